# SPDX-License-Identifier: BSD-3-Clause
"""`kedge sign`: add signatures to a SIF file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.options import read_image_path
from kedge.errors import UsageError
from kedge.image import signatures
from kedge.image.trust.sign import SignSelection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.cli.console import Console
    from kedge.image.keys import KeySummary

_LONGEST_LINE = 64 << 10  # of a passphrase; what is piped in may have no end


def configure(parser: argparse.ArgumentParser) -> None:
    """The options, as Apptainer's."""
    parser.add_argument("image", metavar="IMAGE", type=read_image_path, help="the SIF file")
    parser.add_argument(
        "--key", metavar="FILE", type=Path, action="append", help="PEM private key; repeat it for several signatures"
    )
    parser.add_argument("-k", "--keyidx", metavar="N", type=int, help="number of the key in 'kedge key list --secret'")
    parser.add_argument("--fingerprint", metavar="HEX", help="fingerprint of a key in the key ring")
    parser.add_argument("-g", "--group-id", "--groupid", metavar="N", type=int, help="sign the objects of this group")
    parser.add_argument("-i", "--sif-id", "--id", metavar="N", type=int, help="sign this object")
    parser.add_argument("-a", "--all", action="store_true", help="sign all objects (default)")
    add_keysdir(parser)


def add_keysdir(parser: argparse.ArgumentParser, *short: str) -> None:
    """The option that names the directory of the key rings."""
    parser.add_argument(
        *short, "--keysdir", metavar="DIR", type=Path, help="directory of the key rings (default: $APPTAINER_KEYSDIR)"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Sign."""
    files = arguments.key or _from_environment(arguments, console)
    if files and (arguments.keyidx is not None or arguments.fingerprint):
        raise UsageError("--key excludes --keyidx and --fingerprint", hint="leave out one of them")
    request = signatures.SignRequest(
        path=arguments.image,
        selection=SignSelection(_optional(arguments.group_id), _optional(arguments.sif_id)),
        pem_files=tuple(files),
        index=arguments.keyidx,
        fingerprint=arguments.fingerprint,
    )
    source = f"key material from '{files[0]}'" if files else "PGP key material"
    console.progress.note(f"Signing image with {source}")
    made = signatures.sign_file(request, open_trust(arguments, console))
    if console.json:
        console.print_json([{"object": item.id, "group": item.link, "size": item.size} for item in made])
    console.progress.note(f"Signature created and applied to image '{arguments.image}'")
    return 0


def _optional(value: int | None) -> tuple[int, ...]:
    if value is not None and value < 1:
        raise UsageError(f"{value} is not the number of a group or object", hint="list them: kedge sif list IMAGE")
    return () if value is None else (value,)


def _from_environment(arguments: argparse.Namespace, console: Console) -> list[Path]:
    named = signatures.find_variable(console.environ, "SIGN_KEY")
    return [Path(named)] if named and arguments.keyidx is None and not arguments.fingerprint else []


def open_trust(arguments: argparse.Namespace, console: Console) -> signatures.Trust:
    """The key rings and prompts of this command line."""
    return signatures.Trust(
        ring=signatures.open_ring(console.environ, arguments.keysdir),
        ask=lambda question: _ask_passphrase(question, console),
        choose=lambda keys: choose_key(keys, console),
        progress=console.progress,
    )


def _ask_passphrase(question: str, console: Console) -> str:
    """A passphrase from the environment, the terminal, or the first line of standard input."""
    given = signatures.find_variable(console.environ, "SIGN_PASSPHRASE")
    if given is not None:
        return given
    if console.is_interactive:
        return console.ask_secret(question)
    line = read_piped_line()
    if not line:
        raise UsageError(
            f"cannot prompt for a passphrase: no terminal ({question.strip().rstrip(':')})",
            hint="set KEDGE_SIGN_PASSPHRASE, or pipe the passphrase to standard input",
        )
    return line.rstrip("\r\n")


def read_piped_line() -> str:
    """A line from standard input where it is not a terminal, empty at its end."""
    is_piped = sys.stdin is not None and not sys.stdin.isatty()
    return sys.stdin.readline(_LONGEST_LINE) if is_piped else ""


def choose_key(keys: Sequence[KeySummary], console: Console) -> int | None:
    """Let the user choose a key, on the terminal or by a piped number; None without an answer."""
    for key in keys if console.is_interactive else ():
        names = ", ".join(key.user_ids) or "no user id"
        console.progress.note(
            f"{key.index}) {names}  {key.fingerprint}" + (f"  ({key.problem})" if key.problem else "")
        )
    answer = console.ask("Enter # of key to use: ") if console.is_interactive else read_piped_line().strip()
    if not answer:
        return None
    if not answer.isascii() or not answer.isdigit() or len(answer) > 6:
        raise UsageError(f"{answer!r} is not one of the numbers", hint="list them: kedge key list --secret")
    return int(answer)
