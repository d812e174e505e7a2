# SPDX-License-Identifier: BSD-3-Clause
"""Bootstrap agents that need programs: what is run, what is missing in a header, which image is named instead."""

from __future__ import annotations

import subprocess

import pytest

from kedge.builds.bases import bootstrap
from kedge.builds.bases.bootstrap import find_instead, plan_bootstrap
from kedge.builds.step_values import Base, RecipePlace
from kedge.errors import InvalidRecipe, ProgramMissing
from kedge.image.workplace import Workplace
from kedge.system.outside import Outside
from kedge.system.settings import Settings
from tests.builders.rows import each_row

PLACE = RecipePlace("x.def", 2)
DEBIAN = {"osversion": "bookworm", "mirrorurl": "http://mirror.example.org/debian"}


@pytest.fixture(name="programs")
def choose_programs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of programs that this host has."""
    names: set[str] = set()

    def find(name: str, path: str | None = None) -> str | None:
        del path
        return f"/usr/bin/{name}" if name in names else None

    monkeypatch.setattr(bootstrap, "find_program", find)
    return names


def make_base(agent: str, fields: dict[str, str]) -> Base:
    return Base(PLACE, agent, fields={key: Outside(value) for key, value in fields.items()})


def check_syntax(script: str) -> None:
    assert subprocess.run(["sh", "-n"], input=script.encode(), check=False).returncode == 0, script


@pytest.mark.parametrize(
    ("agent", "program", "fields", "part"),
    [
        ("debootstrap", "debootstrap", DEBIAN, "--foreign --variant=minbase bookworm"),
        ("debootstrap", "debootstrap", {**DEBIAN, "include": "vim git"}, "--include=vim,git"),
        ("debootstrap", "mmdebstrap", DEBIAN, "--format=tar"),
        ("yum", "yum", {"osversion": "7", "mirrorurl": "http://m/%{OSVERSION}/os", "include": "yum"}, "baseurl=http://m/7/os"),
        ("dnf", "dnf", {"mirrorurl": "http://m/os", "updateurl": "http://m/up"}, "baseurl=http://m/up"),
        ("dnf", "yum", {"mirrorurl": "http://m/os"}, "/usr/bin/yum"),
        ("zypper", "zypper", {"mirrorurl": "http://m/os"}, "--root /rootfs"),
        ("arch", "pacstrap", {}, "/rootfs base"),
        ("arch", "pacstrap", {"include": "vim,git"}, "/rootfs base vim git"),
    ],
)  # fmt: skip
def test_bootstrap_by_a_program(agent, program, fields, part, programs) -> None:
    programs.add(program)
    plan = plan_bootstrap(make_base(agent, fields))
    assert plan.program == f"/usr/bin/{program}"
    assert part.strip("'") in plan.script
    check_syntax(plan.script)


@each_row(
    ("agent", "fields", "image"),
    [
        ("debootstrap", DEBIAN, "debian:bookworm"),
        ("debootstrap", {**DEBIAN, "osversion": "jammy"}, "ubuntu:jammy"),
        ("debootstrap", {"osversion": "new", "mirrorurl": "http://mirror.example.org/ubuntu-ports/"}, "ubuntu:new"),
    ],
)
@pytest.mark.usefixtures("programs")
def test_bootstrap_without_a_program_takes_the_same_suite(agent, fields, image, tmp_path) -> None:
    workplace = Workplace(Settings.load({}, {"HOME": str(tmp_path)}))
    instead = find_instead(make_base(agent, fields), workplace)
    assert (instead.agent, instead.reference) == ("docker", image)


@each_row(
    ("agent", "fields", "image"),
    [
        ("yum", {"osversion": "7", "mirrorurl": "http://m/centos/7"}, "From: centos:7"),
        ("dnf", {"osversion": "9", "mirrorurl": "http://m/rocky/9"}, "From: rockylinux/rockylinux:9"),
        ("dnf", {"osversion": "40", "mirrorurl": "http://m/fedora/40"}, "From: fedora:40"),
        ("zypper", {"osversion": "15.6"}, "From: opensuse/leap:15.6"),
        ("arch", {}, "From: archlinux:latest"),
    ],
)
@pytest.mark.usefixtures("programs")
def test_bootstrap_without_a_program_names_an_image(agent, fields, image, tmp_path) -> None:
    workplace = Workplace(Settings.load({}, {"HOME": str(tmp_path)}))
    with pytest.raises(ProgramMissing, match=r"x\.def:2:1") as problem:
        find_instead(make_base(agent, fields), workplace)
    assert image in str(problem.value.hint)


@each_row(
    ("agent", "fields"),
    [
        *(("debootstrap", {}), ("debootstrap", {"osversion": "bookworm"}), ("debootstrap", {"mirrorurl": "http://m"})),
        *(("yum", {}), ("zypper", {})),
    ],
)
def test_bootstrap_needs_lines_of_the_header(agent: str, fields: dict[str, str], programs: set[str]) -> None:
    programs.add("zypper")
    with pytest.raises(InvalidRecipe, match="needs a '"):
        plan_bootstrap(make_base(agent, fields))
