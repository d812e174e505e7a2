# SPDX-License-Identifier: BSD-3-Clause
"""bind: whether the host's MPI, mounted into the container, can stand in for the one that programs were linked with."""

from __future__ import annotations

from kedge.base.versions import order
from kedge.cluster.mpi import BIND, DOUBTFUL, FAILS, OPEN_MPI, UNKNOWN, WORKS, MpiFacts, MpiHost, MpiImage, MpiVerdict
from kedge.compat.mpi.wording import explain_absence

_OWN_MPI = "use the image's own MPI, or an image with a newer system"


def judge_bind(image: MpiImage, host: MpiHost) -> MpiVerdict:
    """The verdict on the MPI that a user gets; where that fails, on another one of the host that works."""
    return _judge(image, choose_bound(image, host))


def choose_bound(image: MpiImage, host: MpiHost) -> MpiFacts | None:
    """The MPI of the host that stands in: the first that can, else the one that a user gets."""
    known = [mpi for mpi in (host.mpi, *host.others) if mpi is not None]
    return next((mpi for mpi in known if _judge(image, mpi).level != FAILS), host.mpi)


def _judge(image: MpiImage, outside: MpiFacts | None) -> MpiVerdict:
    """C library first, then the name under which programs look for their MPI."""
    inside = image.mpi
    if outside is None or not outside.library:
        return _say(FAILS, "kedge found no MPI library on the host", "load an MPI module")
    doubt = _judge_c_library(image, outside)
    if doubt is not None:
        return doubt
    if inside is None:
        if not image.is_searched:
            return _say(UNKNOWN, explain_absence(image))
        name = outside.soname or outside.library.rpartition("/")[2]
        if image.needed and _number(image.needed) != _number(name):
            reason = f"the program needs {image.needed}, and {outside.title} of the host is {name}"
            return _say(FAILS, reason, "load an MPI with that name on the host")
        reason = (
            f"the image has no MPI of its own: programs that were linked with {name} get {outside.title} of the host"
        )
        return _say(WORKS, reason)
    if not inside.abi or not outside.abi:
        return _say(UNKNOWN, f"kedge cannot tell whether {outside.title} can stand in for {inside.title}")
    if inside.abi != outside.abi:
        reason = f"programs of the image need {inside.title}, and {outside.title} of the host has another ABI"
        return _say(FAILS, reason, "load an MPI of that family on the host")
    return _judge_open_mpi(inside, outside) if inside.abi == OPEN_MPI else _judge_mpich(inside, outside)


def _judge_c_library(image: MpiImage, outside: MpiFacts) -> MpiVerdict | None:
    """Whether the host's libraries load with the image's C library; None where nothing speaks against it."""
    if image.glibc == "musl":
        reason = "the image's C library is musl, and the host's MPI needs glibc"
        return _say(FAILS, reason, "take an image based on Debian, Ubuntu or Rocky Linux")
    ours, theirs = order(outside.needs_glibc or outside.glibc), order(image.glibc)
    if not theirs:
        return _say(UNKNOWN, "the image's glibc version is unknown, and the host's MPI may need a newer one")
    if ours > theirs:
        needed = outside.needs_glibc or outside.glibc
        reason = f"{outside.title} of the host needs glibc {needed}, and the image has {image.glibc}"
        return _say(FAILS, f"{reason}: programs end with 'GLIBC_{needed} not found'", _OWN_MPI)
    return None


def _judge_open_mpi(inside: MpiFacts, outside: MpiFacts) -> MpiVerdict:
    if inside.soname and outside.soname and inside.soname != outside.soname:
        reason = f"programs of the image look for {inside.soname} ({inside.title}), and the host has {outside.soname}"
        return _say(FAILS, reason, "load an MPI with that name on the host")
    if inside.numbers and outside.numbers and outside.numbers[:1] < inside.numbers[:1]:
        reason = f"{outside.title} of the host is older than the {inside.title} that the image's programs were made for"
        return _say(DOUBTFUL, reason, f"load Open MPI {inside.numbers[0]} on the host")
    return _say(WORKS, f"{outside.title} of the host stands in for {inside.title} of the image (same ABI)")


def _judge_mpich(inside: MpiFacts, outside: MpiFacts) -> MpiVerdict:
    """MPICH since 3.1, Intel MPI, MVAPICH2 and Cray MPICH agreed on one ABI, whatever their files are called."""
    ours, theirs = _number(outside.soname), _number(inside.soname)
    if ours and theirs and ours != theirs:
        reason = f"programs of the image look for {inside.soname} ({inside.title}), and the host has {outside.soname}"
        return _say(FAILS, reason, "load an MPI with that ABI on the host")
    return _say(WORKS, f"{outside.title} of the host stands in for {inside.title} of the image (MPICH ABI)")


def _number(soname: str) -> str:
    """`12` of libmpi.so.12 and libmpich.so.12."""
    return soname.partition(".so.")[2].partition(".")[0]


def _say(level: str, reason: str, remedy: str = "") -> MpiVerdict:
    return MpiVerdict(BIND, level, reason, remedy)
