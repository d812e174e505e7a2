# SPDX-License-Identifier: BSD-3-Clause
"""What is known of one MPI, of a host or of an image, and the verdict on one way to start its ranks."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen
from kedge.base.patterns import late_pattern

OPEN_MPI, MPICH, INTEL, CRAY, MVAPICH = "Open MPI", "MPICH", "Intel MPI", "Cray MPICH", "MVAPICH"
PARASTATION, UNKNOWN_FAMILY = "ParaStation MPI", "MPI"
FAMILIES = (OPEN_MPI, MPICH, INTEL, CRAY, MVAPICH, PARASTATION)
# How ranks find each other: PMIx; PMI-2 and PMI-1, whose wire protocols Slurm's pmi2 plugin serves both
PMIX, PMI2, PMI1 = "pmix", "pmi2", "pmi1"
# The ways to start ranks that are in containers
HYBRID, BIND, PMI_ONLY, CONTAINED = "hybrid", "bind", "pmi", "contained"
MODES = (HYBRID, BIND, PMI_ONLY, CONTAINED)
# What is said of one way; `singletons`: it starts as many programs of one rank each, and ends with 0
WORKS, DOUBTFUL, FAILS, SINGLETONS, UNKNOWN = "works", "doubtful", "fails", "singletons", "unknown"

_VERSION = late_pattern(r"[vV]?(\d+(?:\.\d+)*)")
_NUMBERS = late_pattern(r"\d+")


@frozen
class MpiFacts(JsonValue):
    """One MPI; what is empty or None is unknown."""

    json_also = ("title", "abi")

    family: str  # one of FAMILIES, or UNKNOWN_FAMILY
    version: str = ""
    library: str = ""  # path of libmpi, links followed
    soname: str = ""  # libmpi.so.40
    prefix: str = ""  # /opt/hpcx/ompi; empty where it shares /usr with others
    pmi: tuple[str, ...] | None = None  # of PMIX, PMI2, PMI1; empty: it was built without any
    pmix_version: str = ""  # of the libpmix it uses
    needs_pmi_library: bool = False  # Intel MPI: it opens the file that I_MPI_PMI_LIBRARY names
    fabrics: tuple[str, ...] | None = None  # ucx, libfabric, verbs, psm2, …; without any it uses TCP and shared memory
    glibc: str = ""  # of the system it is in; `musl` where that is the C library
    needs_glibc: str = ""  # the newest symbols that its libraries ask of the C library
    launcher: str = ""  # path of its mpirun or mpiexec
    build: str = ""  # HPC-X 2.16, Debian
    variables: tuple[tuple[str, str], ...] = ()  # what the image sets for it: OPAL_PREFIX
    source: str = ""  # where family and version are known from

    @property
    def title(self) -> str:
        """`Open MPI 4.1.4`."""
        return f"{self.family} {self.version}".rstrip()

    @property
    def abi(self) -> str:
        """The family whose programs can use this library in place of their own: Open MPI or MPICH; else empty."""
        if self.family == OPEN_MPI:
            return OPEN_MPI
        return MPICH if self.family in FAMILIES else ""

    @property
    def numbers(self) -> tuple[int, ...]:
        """(4, 1, 4); empty where the version is unknown."""
        head = _VERSION.match(self.version)
        return tuple(int(number) for number in _NUMBERS.findall(head[1])[:4]) if head else ()


@frozen
class MpiVerdict(JsonValue):
    """Whether one way to start ranks works, and why."""

    mode: str  # one of MODES
    level: str  # works, doubtful, fails, singletons, unknown
    reason: str
    remedy: str = ""
    mpi_type: str = ""  # of PMI_ONLY: srun's --mpi
    launcher: str = ""  # of HYBRID: the host's program; of CONTAINED: the image's
    variables: tuple[tuple[str, str], ...] = ()  # what must be set in the container for it

    @property
    def is_usable(self) -> bool:
        """Whether a launch may try it."""
        return self.level in (WORKS, DOUBTFUL)


@frozen
class MpiHost(JsonValue):
    """What a host offers to ranks in containers."""

    mpi: MpiFacts | None = None  # the one whose mpirun a user gets
    others: tuple[MpiFacts, ...] = ()  # further ones that have a launcher
    plugins: tuple[str, ...] | None = None  # what `srun --mpi=list` names; None: no Slurm, or it did not answer
    has_slurm: bool | None = None  # None: unknown
    pmi_library: str = ""  # Slurm's libpmi2.so, for Intel MPI
    glibc: str = ""


@frozen
class MpiImage(JsonValue):
    """The MPIs of an image; the first is the one that its programs use."""

    name: str
    mpis: tuple[MpiFacts, ...] = ()
    glibc: str = ""
    is_searched: bool = False  # its files were read: what is not in `mpis` is not there
    needed: str = ""  # libmpi.so.40, where a program was named that needs it
    notes: tuple[str, ...] = ()

    @property
    def mpi(self) -> MpiFacts | None:
        """The one that programs use; None where there is none, or where that is unknown."""
        return self.mpis[0] if self.mpis else None
