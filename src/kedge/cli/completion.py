# SPDX-License-Identifier: BSD-3-Clause
"""`kedge completion SHELL`: prints the script that completes verbs, options, files, GPUs, sites, images and topics."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kedge.cli.options import Parser, add_globals
from kedge.cli.topics import TOPICS
from kedge.cli.verbs import VERBS
from kedge.errors import MissingExtra

if TYPE_CHECKING:
    from kedge.cli.console import Console

SHELLS = ("bash", "zsh", "tcsh", "fish")
_FILE_WORDS = ("image", "file", "path", "source", "target", "out", "output", "sif", "directory", "recipe")

_USAGE = """\
for this shell:  bash: eval "$(kedge completion bash)"    zsh: eval "$(kedge completion zsh)"
permanently:     bash: kedge completion bash > ~/.local/share/bash-completion/completions/kedge
                 zsh:  kedge completion zsh > a directory of $fpath, as _kedge
                 tcsh: kedge completion tcsh > ~/.kedge.tcsh, and 'source ~/.kedge.tcsh' in ~/.tcshrc
                 fish: kedge completion fish > ~/.config/fish/completions/kedge.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The shell's name."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    parser.epilog = _USAGE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    try:
        import shtab  # late: nothing else needs it
    except ImportError:
        raise MissingExtra("the package shtab is not installed", hint="pip install shtab") from None
    if arguments.shell not in shtab.SUPPORTED_SHELLS:
        raise MissingExtra(
            f"the installed shtab cannot write for {arguments.shell}", hint="pip install --upgrade shtab"
        )
    parser = _make_whole_parser()
    offer_words(parser, console.environ)
    script = shtab.complete(parser, shell=arguments.shell)
    if console.json:
        console.print_json({"shell": arguments.shell, "script": script})
    console.print(script.rstrip("\n"))
    return 0


def _make_whole_parser() -> argparse.ArgumentParser:
    """Return one parser of all verbs: what completion and the reference page are made from."""
    from kedge.cli.options import GlobalOptions
    from kedge.cli.verbs import VERBS, load_verb

    whole = Parser(prog="kedge")
    whole.add_argument("-V", "--version", action="store_true", help="show the version")
    commands = whole.add_subparsers(dest="verb", metavar="VERB")
    for name, verb in VERBS.items():
        if importlib.util.find_spec(verb.module) is not None:
            load_verb(verb).configure(commands.add_parser(name, help=verb.summary))
    add_globals(whole, GlobalOptions())
    _complete_files(whole)
    return whole


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments that are files, so that shells complete them; shtab reads the attribute."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _complete_files(child)
        elif action.choices is None and action.nargs != 0 and not hasattr(action, "complete"):
            kind = _guess_kind(action)
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]


def _guess_kind(action: argparse.Action) -> dict[str, object] | None:
    import shtab

    metavar = action.metavar if isinstance(action.metavar, str) else ""
    words = {action.dest.lower(), metavar.lower().strip("[]"), *metavar.lower().split()}
    if words & {"dir", "directory"}:
        return dict(shtab.DIRECTORY)
    return dict(shtab.FILE) if words & set(_FILE_WORDS) else None


# The words that shells offer for some options and arguments: GPUs, sites, images and topics.

_MAKERS = ("NVIDIA", "Tesla", "GeForce")  # nobody types them
_SITE_OPTIONS = frozenset(("--site", "--on"))
_IMAGE_VERBS = ("tags", "recommend")


def offer_words(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """Give the actions of a parser that is made for completion the words that they take."""
    sites, gpus, images = _list_site_words(environ), list_gpu_words(), _list_image_words()
    for verb, child in _list_verbs(parser):
        for action in child._actions:
            options = frozenset(action.option_strings)
            if "--gpu" in options and action.nargs != 0:
                _offer(action, gpus)
            elif options & _SITE_OPTIONS:
                _offer(action, sites)
            elif verb == "help" and action.metavar == "TOPIC":
                _offer(action, list(dict.fromkeys((*TOPICS, *VERBS))))
            elif verb in _IMAGE_VERBS and not options and action.metavar in ("IMAGE", "REPO"):
                _offer(action, images)


def list_gpu_words() -> list[str]:
    """`A100`, `A100_80GB`, `RTX_3090`: names of the table without spaces, all of which mean one GPU."""
    from kedge.compat.tables.gpu_names import find_gpu
    from kedge.compat.tables.load import load_tables
    from kedge.errors import UnknownGpu

    tables = load_tables()
    words = dict.fromkeys(_shorten(row.name) for row in tables.gpus)
    words |= dict.fromkeys(word.partition("_")[0] for word in words)
    known = []
    for word in sorted(words):
        try:
            find_gpu(word, tables)
        except UnknownGpu:
            continue
        known.append(word)
    return known


def _list_site_words(environ: Mapping[str, str]) -> list[str]:
    """The sites there are profiles of."""
    from kedge.cluster.sites.find_site import list_known

    return sorted({site.name for site in list_known(environ)})


def _list_image_words() -> list[str]:
    """The images of the tables that one word means."""
    from kedge.compat.tables.load import load_tables

    names = [image.rpartition("/")[2] for image in load_tables().images]
    return sorted(name for name in names if names.count(name) == 1)


def _shorten(name: str) -> str:
    return "_".join(word for word in name.split() if word not in _MAKERS)


def _offer(action: argparse.Action, words: Sequence[str]) -> None:
    if words:
        action.choices = list(words)
        action.__dict__.pop("complete", None)  # shells would offer files instead


def _list_verbs(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """Every verb, and those below it."""
    verbs = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                verbs += [(name, child), *((name, below) for _, below in _list_verbs(child))]
    return verbs
