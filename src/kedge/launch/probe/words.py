# SPDX-License-Identifier: BSD-3-Clause
"""Where the probe's file is, and the words that start it. Its source, probe.c, says what each command prints."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINES = ("x86_64", "aarch64")  # that the probe is built for: scripts/build-probe
COMMANDS = ("version", "world", "pi", "allreduce", "cma")


def find_probe(machine: str) -> str:
    """The path of the probe for a machine as `uname -m` names it; empty where there is none."""
    return f"{__file__.rpartition('/')[0]}/probe-{machine}" if machine in MACHINES else ""


def probe_words(
    program: str,
    command: str,
    *,
    library: str = "",
    task: int | None = None,
    numbers: Mapping[str, int] | None = None,
) -> list[str]:
    """The command line of the probe. `program`: its path inside the container.

    `library`: the image's MPI library, a path or a soname; empty: the probe looks for it. `task`: the number that the
    launcher gave this process, which the answer repeats; None: the probe reads the launcher's variables. `numbers`:
    intervals, bytes, rounds.
    """
    words = [program, command]
    if library:
        words += ["--library", library]
    if task is not None and task >= 0:
        words += ["--task", str(task)]
    for name, value in (numbers or {}).items():
        words += [f"--{name}", str(value)]
    return words
