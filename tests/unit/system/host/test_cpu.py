# SPDX-License-Identifier: BSD-3-Clause
"""The processor and the C library of a machine, as the kernel and the loader tell them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.cluster.this_host import read_glibc
from kedge.system.host.cpu import find_level, read_processor
from tests.builders.rows import each_row

V1 = "fpu vme cx8 cmov mmx fxsr sse sse2 syscall nx lm"
V2 = f"{V1} pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
V3 = f"{V2} fma movbe xsave avx f16c abm bmi1 avx2 bmi2"
V4 = f"{V3} avx512f avx512dq avx512cd avx512bw avx512vl"
X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC  7742 64-Core Processor\nflags\t\t: {}\n\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\nprocessor\t: 1\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800MHz\n"


def write(root: Path, text: str) -> str:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(text)
    return str(root)


@each_row(("flags", "level"), [("fpu", 0), (V1, 1), (V2, 2), (V3, 3), (V4, 4), (f"{V1} avx512f", 1)])
def test_processor_level_needs_all_below_it(flags: str, level: int) -> None:
    assert find_level(frozenset(flags.split())) == level


def test_processor_x86_is_read(tmp_path: Path) -> None:
    found = read_processor(write(tmp_path, X86.format(V3)), "x86_64")
    assert (found.architecture, found.model, found.level) == ("amd64", "AMD EPYC 7742 64-Core Processor", 3)
    assert "avx2" in found.features


def test_processor_arm_says_numbers_and_is_named(tmp_path: Path) -> None:
    found = read_processor(write(tmp_path, ARM), "aarch64")
    assert found.architecture == "arm64"
    assert found.model.startswith("Neoverse V2")
    assert found.features == frozenset(("fp", "asimd", "sve"))
    assert found.level is None


def test_processor_power_has_no_flags(tmp_path: Path) -> None:
    found = read_processor(write(tmp_path, POWER), "ppc64le")
    assert found.model == "POWER9, altivec supported"
    assert found.features is None


@pytest.mark.parametrize("text", ["", "\n\n", "nonsense", ":" * 1000])
def test_processor_that_says_nothing_is_not_known(tmp_path: Path, text: str) -> None:
    found = read_processor(write(tmp_path, text), "x86_64")
    assert (found.architecture, found.model, found.features, found.level) == ("amd64", "", None, None)


def test_processor_without_cpuinfo_is_not_known(tmp_path: Path) -> None:
    assert read_processor(str(tmp_path), "strange").architecture == ""


def test_processor_reads_a_bounded_part(tmp_path: Path) -> None:
    root = write(tmp_path, X86.format(V1))
    with (tmp_path / "proc/cpuinfo").open("ab") as file:
        file.truncate(8 << 30)
    assert read_processor(root, "x86_64").level == 1


def test_processor_of_this_machine_is_known() -> None:
    assert read_processor().architecture
    assert read_processor().features


def test_glibc_is_that_of_this_process() -> None:
    told = os.confstr("CS_GNU_LIBC_VERSION")
    assert told == f"glibc {read_glibc()}"


def test_glibc_of_another_c_library_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise ValueError(name)

    monkeypatch.setattr(os, "confstr", refuse)
    assert read_glibc() == ""
