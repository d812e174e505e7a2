# SPDX-License-Identifier: BSD-3-Clause
"""What an image needs of a driver and a GPU, in sentences that hold for every host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.versions import order
from kedge.compat.rules.driver_lookup import find_need

if TYPE_CHECKING:
    from kedge.compat.rules.driver_rule import DriverNeed
    from kedge.compat.tables.load import Tables
    from kedge.compat.traits import ImageTraits


def describe_driver_need(traits: ImageTraits, tables: Tables) -> list[str]:
    """The drivers it runs on, the plain way first; empty: unknown."""
    need = find_need(traits, tables)
    if not need.cuda and not need.built_for:
        return []
    first = _find_first(need, tables)
    ways = []
    if need.min_driver:
        ways.append(
            f"{need.min_driver} (NVIDIA's minimum); {first} and newer also work"
            if first
            else f"{need.min_driver} or newer"
        )
    if need.minor_floor and need.minor_floor not in (need.min_driver, first):
        ways.append(f"{need.minor_floor} or newer by minor-version compatibility (cannot compile PTX at run time)")
    if need.branches and need.carries_compat:
        listed = ", ".join(str(branch) for branch in need.branches)
        ways.append(f"branches {listed} on data-center GPUs, with the libcuda in the image")
    return ways


def _find_first(need: DriverNeed, tables: Tables) -> str:
    """The first driver of the branch that brought this CUDA, where NVIDIA's minimum for an update of it is later."""
    named, minor = order(need.min_driver), order(need.cuda)[:2]
    rows = [row for row in tables.cuda if row.min_driver and order(row.version)[:2] == minor]
    first = min((row.min_driver for row in rows if order(row.min_driver)[:1] == named[:1]), key=order, default="")
    return first if first and order(first) < named else ""


def describe_gpu_need(traits: ImageTraits, tables: Tables) -> str:
    """`7.5 (Turing), 8.0, 8.6 (Ampere), 9.0 (Hopper); newer GPUs compile PTX at start`; empty: unknown."""
    text = traits.capabilities.value
    if not text:
        return ""
    if text.endswith("(stated)"):
        return f"compute capability {text.partition('+')[0]} and newer (NVIDIA's release notes)"
    words = text.split()
    names = [word.removesuffix("+PTX") for word in words]
    known = {model.capability: model.architecture.partition(" (")[0] for model in tables.gpus}
    shown = []
    for place, name in enumerate(names):
        title = _name_architecture(name, known)
        following = _name_architecture(names[place + 1], known) if place + 1 < len(names) else ""
        shown.append(f"{name} ({title})" if title and title != following else name)
    newer = "; newer GPUs compile PTX at start" if words[-1].endswith("+PTX") else ""
    return f"compute capability {', '.join(shown)}{newer}"


def _name_architecture(capability: str, known: dict[str, str]) -> str:
    """By the capability, or by another of its major where only one architecture has that."""
    if capability in known:
        return known[capability]
    major = order(capability)[:1]
    names = {name for other, name in known.items() if order(other)[:1] == major}
    return names.pop() if len(names) == 1 else ""
