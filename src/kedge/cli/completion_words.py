# SPDX-License-Identifier: BSD-3-Clause
"""The words that shells offer for some options and arguments: GPUs, sites, images and topics."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from kedge.cli.topics import TOPICS
from kedge.cli.verbs import VERBS

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
