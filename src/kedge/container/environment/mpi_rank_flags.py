# SPDX-License-Identifier: BSD-3-Clause
"""Flags that take MPI's ranks apart: without its launcher's variables each rank is a job of size 1."""

from __future__ import annotations

from kedge.base.rank_variables import PMIX, SIZES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kedge.container.options import RunOptions


def warn_of_lost_ranks(options: RunOptions, environ: Mapping[str, str], inside: Collection[str]) -> list[str]:
    """Warnings for ranks of an MPI launch; `inside` are the variables that the container gets."""
    name, size = find_size(environ)
    if size < 2:
        return []
    if options.cleanenv and name not in inside:
        flag = next(attribute for attribute in ("compat", "containall", "cleanenv") if getattr(options, attribute))
        shown = options.given.get(flag, f"--{flag}")
        return [
            f"{shown} removes the variables of the MPI launcher ({name}, …): {size} programs of one rank each will "
            f"run, not one program of {size} ranks. Leave {shown} out; --no-env NAME removes single variables"
        ]
    if "sharens" in options.given and not options.sharens:
        return [
            f"{options.given['sharens']}=false gives every rank a container of its own: ranks cannot read each "
            "other's memory, and MPI may hang. Leave it out"
        ]
    return []


def find_size(environ: Mapping[str, str]) -> tuple[str, int]:
    """The variable that tells a rank of an MPI launch that it is one, and how many ranks there are; 0 elsewhere."""
    for name in SIZES:
        if environ.get(name, "").isdecimal():
            return name, int(environ[name])
    rank, count = PMIX
    if rank in environ and environ.get(count, "").isdecimal():
        return rank, int(environ[count])
    return "", 0
