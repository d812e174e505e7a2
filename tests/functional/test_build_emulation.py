# SPDX-License-Identifier: BSD-3-Clause
"""Steps of a build in which calls of root are emulated leave the layers that real root's leave.

Files are given away and get modes by every call there is, in generated rows. Differences that are known: docs/adr/0019.
"""

from __future__ import annotations

import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import each_role
from tests.functional.test_build_layers import read_layers
from tests.requirements import require_program

PROGRAM = Path(__file__).parents[1] / "programs/give_files_away.c"
CALLS = ("chown", "lchown", "fchownat", "empty", "fchown")
OF_LINKS = ("lchown", "fchownat")
SAME = 0xFFFFFFFF  # the owner or the group stays
STEPS, FILES, CHANGES = 5, 12, 60


def make_rows(seed: int) -> list[str]:
    """For each step the lines for the program; a step's files are its own."""
    chance = random.Random(seed)
    rows = []
    for step in range(STEPS):
        lines = []
        for _ in range(CHANGES):
            kind = chance.choice(("d", "f", "f", "f", "l", "n"))
            path = f"/made/{step}/{kind}{chance.randrange(FILES)}"
            calls = OF_LINKS if kind in "ln" else (*CALLS, "chmod", "setcap" if kind == "f" else "chmod")
            call = chance.choice(calls)
            uid, gid = (chance.choice((0, 0, 1, 1000, 65534, SAME)) for _ in range(2))
            if call == "chmod":
                uid = chance.choice((0o644, 0o755, 0o4755, 0o2755, 0o6755, 0o2644, 0o1777, 0o600))
            lines.append(f"{call} {path} {uid} {gid}")
        rows.append("\n".join(lines) + "\n")
    return rows


Member = tuple[str, str, int, int, dict[str, str]]


def build(role: str, rows: list[str]) -> list[list[Member]]:
    for runner in each_role(role, is_warm=True):
        shop = Workshop.open(runner)
        give = shop.context / "give-away"
        subprocess.run([require_program("gcc"), "-Wall", "-static", "-o", give, PROGRAM], check=True)
        recipe = f"{SHELL}COPY give-away rows /\n"
        (shop.context / "rows").mkdir()
        for step, lines in enumerate(rows):
            shop.write(f"rows/{step}", lines)
            folder, numbers = f"/made/{step}", f"$(busybox seq 0 {FILES - 1})"
            links = f"ln -s f$n {folder}/l$n; ln -s nowhere {folder}/n$n"
            make = f"for n in {numbers}; do mkdir -p {folder}/d$n; echo $n > {folder}/f$n; {links}; done"
            recipe += f"RUN umask 022; {make}; /give-away < /{step}\n"
        shop.write("Dockerfile", recipe)
        os.chown(give, runner.uid, runner.uid)
        runner.read("build", f"oci:{runner.home}/out", str(shop.context))
        return [[describe(member) for member in layer] for layer in read_layers(runner.home / "out")]
    raise AssertionError


def describe(member: tarfile.TarInfo) -> Member:
    attributes = {key: value for key, value in member.pax_headers.items() if "xattr" in key}
    return member.name, oct(member.mode), member.uid, member.gid, attributes


@pytest.mark.root
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_emulated_calls_leave_the_layers_of_real_ones(seed: int) -> None:
    rows = make_rows(seed)
    real, emulated = build("root", rows), build("user", rows)
    assert len(real) == len(emulated) == 3 + STEPS
    different = []
    for step, (expected, found) in enumerate(zip(real, emulated, strict=True)):
        different += [(step, *pair) for pair in zip(expected, found, strict=True) if pair[0] != pair[1]]
    assert not different
