# SPDX-License-Identifier: BSD-3-Clause
"""A verb that fails in every way a verb can; `python -m tests.fakes.failing_verb fail HOW` is kedge with that verb."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kedge.cli import verbs
from kedge.cli.console import Console
from kedge.cli.main import main
from kedge.cli.options import add_dry_run, add_settings
from kedge.errors import NetworkFailed
from kedge.system.files import atomic_output


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("how", choices=sorted(WAYS))
    parser.add_argument("--password")
    parser.add_argument("-d", "--deffile", action="store_true")  # takes a letter that is also a global option's
    add_dry_run(parser)
    add_settings(parser, "threads", "no_https")


def run(arguments: argparse.Namespace, console: Console) -> int:
    return WAYS[arguments.how](console) or 0


def fail_known(console: Console) -> None:
    context = {"url": "https://me:s3cret@reg.example/v2/?token=abcdefgh", "stderr": "one\ntwo"}
    raise NetworkFailed("cannot reach https://me:s3cret@reg.example/v2/", context=context, hint="check the name")


def fail_unknown(console: Console) -> None:
    raise ZeroDivisionError("at https://me:s3cret@reg.example/")


def fail_memory(console: Console) -> None:
    raise MemoryError


def fail_threads(console: Console) -> None:
    raise RuntimeError("can't start new thread")


def fail_file(console: Console) -> None:
    Path("no-such-file").read_bytes()


def interrupt(console: Console) -> None:
    raise KeyboardInterrupt


def write_slowly(console: Console) -> None:
    with atomic_output(Path("big.sif")) as file:
        file.write(b"half")
        file.flush()
        console.print("writing")
        sys.stdout.flush()
        time.sleep(60)


def print_much(console: Console) -> None:
    for _ in range(100_000):
        console.print("a line of output")


def talk(console: Console) -> None:
    console.print("result")
    console.progress.note("a note")
    console.progress.detail("a detail")
    console.progress.warn("a warning")
    task = console.progress.task("layer 1", 2_000_000)
    task.advance(1_500_000)
    task.advance(500_000)
    task.finish()
    console.print_table(("name", "size"), [("first", 1), ("second", 22)])
    if console.json:
        console.print_json({"verbosity": console.verbosity, "dry_run": console.dry_run})


def print_odd_names(console: Console) -> None:
    console.print("caf\udce9 × é")
    console.print_json({"name": "caf\udce9"})


def show_settings(console: Console) -> int:
    threads, no_https = console.settings.sources["threads"], console.settings.sources["no_https"]
    console.print(f"{console.settings.threads} {threads} {console.settings.no_https} {no_https}")
    return 7


WAYS: dict[str, Callable[[Console], int | None]] = {
    "known": fail_known,
    "unknown": fail_unknown,
    "memory": fail_memory,
    "threads": fail_threads,
    "file": fail_file,
    "interrupt": interrupt,
    "write-slowly": write_slowly,
    "print-much": print_much,
    "talk": talk,
    "odd-names": print_odd_names,
    "settings": show_settings,
}

if __name__ == "__main__":
    verbs.VERBS["fail"] = verbs.Verb("tests.fakes.failing_verb", "fail in some way", "Setup")
    sys.exit(main())
