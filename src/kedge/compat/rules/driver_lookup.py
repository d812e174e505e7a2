# SPDX-License-Identifier: BSD-3-Clause
"""What an image needs of a driver, and what a driver offers, looked up in the tables."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.base.versions import major_minor, order
from kedge.compat.rules.driver_rule import DriverNeed, HostDriver
from kedge.compat.rules.libcuda_choice import is_data_center

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Gpu, Target
    from kedge.compat.traits import ImageTraits

_OWN_SOURCES = ("image", "file", "label")  # facts of the very image, not of a table


def find_need(traits: ImageTraits, tables: Tables) -> DriverNeed:
    """What the image asks of a driver."""
    cuda, built_for = traits.cuda.value, traits.driver.value
    row = tables.find_cuda(cuda) if cuda else None
    min_driver = row.min_driver if row is not None else ""
    if row is not None and row.stands_for and built_for:
        min_driver = built_for  # of this very build, where the row is of another one
    return DriverNeed(
        cuda,
        built_for=built_for,
        carries_compat=carries_compat(traits),
        branches=_find_branches(traits, tables),
        min_driver=min_driver,
        minor_floor=row.minor_floor if row is not None else "",
    )


def carries_compat(traits: ImageTraits) -> bool | None:
    """Whether the image has a libcuda of its own; NVIDIA's monthly images all do."""
    return True if traits.compat or traits.release else None


def _find_branches(traits: ImageTraits, tables: Tables) -> list[int]:
    """The host branches that the image's libcuda runs with; empty: unknown.

    What the image itself lists is all there is. Rows of one CUDA minor list different ones for the same package, so
    together they count.
    """
    branches = [int(word) for word in traits.compat_branches.value.split() if word.isascii() and word.isdigit()]
    if branches and traits.compat_branches.source.startswith(_OWN_SOURCES):
        return branches
    minor = order(traits.cuda.value)[:2]
    rows = tables.list_cuda(*minor) if len(minor) == 2 else ()
    return sorted({*branches, *(branch for row in rows for branch in row.compat_branches)})


def find_machine(target: Target, gpu: Gpu, tables: Tables) -> HostDriver:
    """The driver of a target, as its GPU meets it."""
    return HostDriver(
        target.driver,
        takes_forward_compat=takes_forward_compat(gpu),
        cuda=major_minor(target.cuda) or find_offered_cuda(target.driver, tables),
        first_branch=_find_first_branch(gpu, tables),
        last_branch=gpu.last_driver_branch,
        capability=gpu.capability,
    )


def takes_forward_compat(gpu: Gpu) -> bool | None:
    """Whether a GPU runs the libcuda of an image; of workstation cards only the server editions do, by their names."""
    if gpu.takes_forward_compat is None and gpu.kind == "workstation":
        return is_data_center(gpu.name)
    return gpu.takes_forward_compat


@functools.lru_cache(maxsize=64)
def _find_first_branch(gpu: Gpu, tables: Tables) -> int | None:
    """The branch that came with the first CUDA for a GPU's capability: older ones do not know that; None: unknown.

    Boards that came later may need a newer one.
    """
    first = order(gpu.first_cuda)[:2]
    drivers = [order(row.min_driver) for row in tables.cuda if row.min_driver and order(row.version)[:2] == first]
    return min(drivers)[0] if first and drivers else None


@functools.lru_cache(maxsize=64)
def find_offered_cuda(driver: str, tables: Tables) -> str:
    """The newest CUDA that a driver runs by itself: 12.2 for 535.104.05; empty where that is unknown."""
    branch = order(driver)[:1]
    offered = [order(row.version)[:2] for row in tables.cuda if row.min_driver and order(row.min_driver)[:1] <= branch]
    return ".".join(str(field) for field in max(offered)) if branch and offered else ""


# The driver branches that clusters have, and what is said where nobody knows which of them it is.

# The branches that clusters stay on for long; newer ones are those that the tables name.
_USUAL_BRANCHES = (470, 525, 535, 550, 570, 580)
FIND_DRIVER = (
    "run 'kedge doctor' in a job on such a node, and kedge remembers its driver; or read it there with nvidia-smi and "
    "give it with --driver VERSION"
)


@frozen
class DriverChoice:
    """The tag to take with the drivers of one branch."""

    branch: int  # 535
    cuda: str  # 12.2: the newest that the branch offers by itself; empty: unknown
    tag: str
    outcome: str


def list_branches(tables: Tables) -> list[int]:
    """The branches in use, oldest first."""
    return sorted(set(_USUAL_BRANCHES) | {branch for branch in find_newest(tables) if branch > _USUAL_BRANCHES[-1]})


def find_newest(tables: Tables) -> dict[int, str]:
    """The newest driver of each branch that the tables name."""
    newest: dict[int, str] = {}
    for driver in [*(row.min_driver for row in tables.cuda), *(row.bundled_driver for row in tables.releases)]:
        fields = order(driver)
        if len(fields) > 1 and fields > order(newest.get(fields[0], "")):
            newest[fields[0]] = driver
    return newest


def tell_choices(name: str, where: str, choices: Sequence[DriverChoice], ways: dict[str, str]) -> str:
    """The sentence where the tag depends on the driver."""
    listed = "; ".join(
        f"{choice.branch}: {choice.tag}{'' if ways[choice.outcome] == 'natively' else f' ({ways[choice.outcome]})'}"
        for choice in choices
    )
    return (
        f"The newest tag of {name} that runs natively depends on the driver of {where}, which is unknown. "
        f"Driver {listed}."
    )


def tell_same(choices: Sequence[DriverChoice]) -> str:
    """Return the note where all branches that give an answer give the same."""
    first, last = choices[0].branch, choices[-1].branch
    if len(choices) == 1:
        return f"the driver is unknown; of the branches in use, only {first} runs any tag"
    return f"the driver is unknown; the tag is the same for all branches in use, {first} to {last}"
