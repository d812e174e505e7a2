# SPDX-License-Identifier: BSD-3-Clause
"""The processor of this machine: its model and the instruction sets it offers, as /proc/cpuinfo names them."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.platform import Platform
from kedge.errors import InvalidReference

_READ_LIMIT = 64 << 10  # the first processor is enough, and a node may have hundreds

# What each level of x86-64 adds, in the kernel's words: pni is SSE3, abm is LZCNT.
_LEVELS = (
    frozenset("cmov cx8 fpu fxsr lm mmx sse sse2 syscall".split()),  # noqa: SIM905
    frozenset("cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3".split()),  # noqa: SIM905
    frozenset("abm avx avx2 bmi1 bmi2 f16c fma movbe xsave".split()),  # noqa: SIM905
    frozenset("avx512bw avx512cd avx512dq avx512f avx512vl".split()),  # noqa: SIM905
)

# Arm processors say numbers where others say names: implementer and part.
_ARM_MODELS = {
    ("0x41", "0xd0c"): "Neoverse N1",
    ("0x41", "0xd40"): "Neoverse V1",
    ("0x41", "0xd49"): "Neoverse N2",
    ("0x41", "0xd4f"): "Neoverse V2 (NVIDIA Grace and others)",
    ("0x43", "0x0af"): "ThunderX2",
    ("0x46", "0x001"): "A64FX",
    ("0x48", "0xd01"): "Kunpeng 920",
}


@frozen
class Processor:
    """What is known of it; `features` is None and the others are empty where the kernel does not say."""

    architecture: str = ""  # amd64, arm64
    model: str = ""
    features: frozenset[str] | None = None

    @property
    def level(self) -> int | None:
        """4 of x86-64-v4; 0 where even the oldest is not complete, None where it is no x86-64 or is not known."""
        if self.architecture != "amd64" or self.features is None:
            return None
        return find_level(self.features)


def find_level(features: frozenset[str]) -> int:
    """The highest level of x86-64 that the features fill, with all those below it."""
    for level, wanted in enumerate(_LEVELS):
        if not wanted <= features:
            return level
    return len(_LEVELS)


def read_processor(root: str = "/", machine: str = "") -> Processor:
    """The processor, from /proc/cpuinfo below `root`; `machine` is uname's word where it is not this one's."""
    try:
        architecture = Platform.parse(machine or os.uname().machine).architecture
    except InvalidReference:  # a machine that no image is made for
        architecture = ""
    try:
        with Path(root, "proc/cpuinfo").open("rb") as file:
            data = file.read(_READ_LIMIT)
    except OSError:
        return Processor(architecture)
    fields = _read_first(data.decode(errors="replace"))
    features = fields.get("flags", fields.get("features", ""))
    return Processor(architecture, _name_model(fields), frozenset(features.split()) or None)


def _read_first(text: str) -> dict[str, str]:
    """The fields of the first processor, by their names in small letters."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon and fields:
            break
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _name_model(fields: dict[str, str]) -> str:
    known = _ARM_MODELS.get((fields.get("cpu implementer", ""), fields.get("cpu part", "").lower()), "")
    named = fields.get("model name") or fields.get("cpu") or known
    return " ".join(named.split())
