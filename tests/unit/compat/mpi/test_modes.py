# SPDX-License-Identifier: BSD-3-Clause
"""The rules over hybrid, bind, PMI-only and contained, case by case, with the sentences that users read."""

from __future__ import annotations

from kedge.base.frozen import replace
from kedge.cluster.mpi import (
    BIND,
    CONTAINED,
    CRAY,
    DOUBTFUL,
    FAILS,
    HYBRID,
    INTEL,
    MODES,
    MPICH,
    MVAPICH,
    OPEN_MPI,
    PMI1,
    PMI2,
    PMI_ONLY,
    PMIX,
    SINGLETONS,
    UNKNOWN,
    WORKS,
    MpiFacts,
    MpiHost,
    MpiImage,
    MpiVerdict,
)
from kedge.compat.mpi.modes import choose_mode, judge_modes
from tests.builders.rows import each_row

BOTH = ("none", "pmi2", "pmix", "pmix_v4")
OPEN = MpiFacts(OPEN_MPI, "4.1.4", "/lib/libmpi.so.40", "libmpi.so.40", pmi=(PMIX,), launcher="/usr/bin/mpirun")
OPEN_5 = replace(OPEN, version="5.0.3")
OPEN_1 = replace(OPEN, version="1.10.7", soname="libmpi.so.12", pmi=None)
HPCX = replace(OPEN, version="4.1.7a1", build="HPC-X 2.20", prefix="/opt/hpcx/ompi")
CLASSIC = MpiFacts(
    MPICH, "4.0.2", "/lib/libmpich.so.12", "libmpich.so.12", pmi=(PMI2, PMI1), launcher="/usr/bin/mpiexec.hydra"
)
BY_PMIX = replace(CLASSIC, version="4.2.0", pmi=(PMIX,))
INTEL_MPI = MpiFacts(
    INTEL, "2021.9", "/opt/libmpi.so.12", "libmpi.so.12", pmi=(PMI2, PMI1), needs_pmi_library=True, launcher="/o/mpirun"
)
MVAPICH_2 = replace(CLASSIC, family=MVAPICH, version="2.3.7", soname="libmpi.so.12")
CRAY_MPICH = MpiFacts(CRAY, "8.1.25", "/opt/cray/libmpi_cray.so.12", "libmpi_cray.so.12", pmi=(PMI2, PMI1))


def make_image(mpi: MpiFacts | None, glibc: str = "2.36", *, is_searched: bool = True, needed: str = "") -> MpiImage:
    return MpiImage("x.sif", (mpi,) if mpi else (), glibc, is_searched=is_searched, needed=needed)


def make_host(mpi: MpiFacts | None = None, plugins: tuple[str, ...] | None = BOTH, **more: object) -> MpiHost:
    values = {"has_slurm": plugins is not None, "glibc": "2.36"} | more
    return MpiHost(mpi, plugins=plugins, **values)  # type: ignore[arg-type]


def judge(mode: str, image: MpiImage, host: MpiHost, nodes: int | None = None) -> MpiVerdict:
    return next(verdict for verdict in judge_modes(image, host, nodes=nodes) if verdict.mode == mode)


@each_row(("inside", "outside", "level", "words"), [
    (OPEN, OPEN, WORKS, "can start ranks of the image (Open MPI 4.1.4)"),
    (HPCX, OPEN, WORKS, "(Open MPI 4.1.4) can start ranks of the image (Open MPI 4.1.7a1)"),
    (replace(OPEN, version="4.0.5"), OPEN, DOUBTFUL, "is newer than the image's Open MPI 4.0.5"),
    (OPEN_5, OPEN, FAILS, "the image has Open MPI 5.0.3, the host Open MPI 4.1.4: mpirun starts ranks of its own"),
    (OPEN, OPEN_5, FAILS, "its own major version only"),
    (replace(OPEN, version=""), OPEN, DOUBTFUL, "the version of the image's Open MPI is unknown"),
    (replace(OPEN, pmi=()), OPEN, FAILS, "was built without PMIx"),
    (CLASSIC, OPEN, SINGLETONS, "each rank would be rank 0 of 1, and nothing would say so"),
    (OPEN, CLASSIC, SINGLETONS, "MPICH 4.0.2 of the host cannot start ranks of Open MPI 4.1.4"),
    (OPEN, INTEL_MPI, SINGLETONS, "Intel MPI 2021.9 of the host cannot start ranks of Open MPI 4.1.4"),
    (CLASSIC, CLASSIC, WORKS, "the host's mpiexec (MPICH 4.0.2)"),
    (BY_PMIX, CLASSIC, SINGLETONS, "was built for PMIx only"),
    (CLASSIC, INTEL_MPI, WORKS, "are of one family and speak the same PMI"),
    (INTEL_MPI, CLASSIC, WORKS, "are of one family"),
    (MVAPICH_2, INTEL_MPI, WORKS, "are of one family"),
    (OPEN, CRAY_MPICH, FAILS, "the host has no mpirun in PATH"),
    (OPEN, None, FAILS, "the host has no mpirun in PATH"),
    (None, OPEN, FAILS, "the image has no MPI library"),
])  # fmt: skip
def test_hybrid(inside: MpiFacts | None, outside: MpiFacts | None, level: str, words: str) -> None:
    verdict = judge(HYBRID, make_image(inside), make_host(outside))
    assert (verdict.level, words in verdict.reason) == (level, True), verdict


def test_other_launchers_and_libraries_are_taken() -> None:
    verdict = judge(HYBRID, make_image(CLASSIC), make_host(OPEN, others=(CLASSIC,)))
    assert (verdict.level, verdict.launcher) == (WORKS, "/usr/bin/mpiexec.hydra")
    image = make_image(None, needed="libmpich.so.12")
    assert judge(BIND, image, make_host(OPEN)).level == FAILS
    assert judge(BIND, image, make_host(OPEN, others=(CLASSIC,))).level == WORKS


@each_row(("inside", "plugins", "level", "mpi_type", "words"), [
    (OPEN, BOTH, WORKS, "pmix", "srun --mpi=pmix serves what Open MPI 4.1.4 of the image speaks (PMIx)"),
    (OPEN_5, ("none", "pmix_v3", "pmix_v4"), WORKS, "pmix_v4", "PMIx"),
    (OPEN, ("none", "pmi2"), FAILS, "", "'OMPI was not built with SLURM's PMI support'"),
    (replace(OPEN, pmi=(PMIX, PMI2)), ("none", "pmi2"), WORKS, "pmi2", "PMIx and PMI-2"),
    (replace(OPEN, pmi=()), BOTH, FAILS, "", "was built without PMI"),
    (replace(OPEN, pmix_version="1.2.5"), BOTH, DOUBTFUL, "pmix", "may be too new for it"),
    (CLASSIC, BOTH, WORKS, "pmi2", "PMI-2 and PMI-1"),
    (CLASSIC, ("none", "pmix"), SINGLETONS, "", "each rank would be rank 0 of 1"),
    (BY_PMIX, BOTH, WORKS, "pmix", "PMIx"),
    (MVAPICH_2, BOTH, WORKS, "pmi2", "MVAPICH 2.3.7"),
    (CRAY_MPICH, ("none", "cray_shasta", "pmi2"), WORKS, "cray_shasta", "Cray MPICH 8.1.25"),
    (INTEL_MPI, BOTH, SINGLETONS, "pmi2", "needs I_MPI_PMI_LIBRARY under srun"),
    (OPEN, ("none",), FAILS, "", "srun here has none only"),
    (None, BOTH, FAILS, "", "the image has no MPI library"),
])  # fmt: skip
def test_pmi(inside: MpiFacts | None, plugins: tuple[str, ...], level: str, mpi_type: str, words: str) -> None:
    verdict = judge(PMI_ONLY, make_image(inside), make_host(OPEN, plugins))
    assert (verdict.level, verdict.mpi_type, words in verdict.reason) == (level, mpi_type, True), verdict


def test_pmi_of_intel_and_without_an_answer() -> None:
    verdict = judge(PMI_ONLY, make_image(INTEL_MPI), make_host(None, pmi_library="/usr/lib64/libpmi2.so.0"))
    assert (verdict.level, verdict.variables) == (WORKS, (("I_MPI_PMI_LIBRARY", "/usr/lib64/libpmi2.so.0"),))
    own = replace(INTEL_MPI, variables=(("I_MPI_PMI_LIBRARY", "/opt/libpmi2.so"),))
    assert judge(PMI_ONLY, make_image(own), make_host(None)).level == WORKS
    assert judge(PMI_ONLY, make_image(OPEN), make_host(OPEN, None)).level == FAILS
    open_question = judge(PMI_ONLY, make_image(CLASSIC), MpiHost(OPEN, has_slurm=True))
    assert (open_question.level, open_question.mpi_type) == (DOUBTFUL, "pmi2")


@each_row(("inside", "outside", "glibc", "level", "words"), [
    (OPEN, OPEN, "2.36", WORKS, "stands in for Open MPI 4.1.4 of the image (same ABI)"),
    (OPEN, OPEN_5, "2.36", WORKS, "Open MPI 5.0.3 of the host stands in"),
    (OPEN_5, OPEN, "2.36", DOUBTFUL, "is older than the Open MPI 5.0.3"),
    (OPEN_1, OPEN, "2.36", FAILS, "look for libmpi.so.12 (Open MPI 1.10.7), and the host has libmpi.so.40"),
    (CLASSIC, INTEL_MPI, "2.36", WORKS, "stands in for MPICH 4.0.2 of the image (MPICH ABI)"),
    (MVAPICH_2, CRAY_MPICH, "2.36", WORKS, "MPICH ABI"),
    (CLASSIC, OPEN, "2.36", FAILS, "has another ABI"),
    (OPEN, replace(OPEN, needs_glibc="2.34"), "2.31", FAILS, "programs end with 'GLIBC_2.34 not found'"),
    (OPEN, replace(OPEN, needs_glibc="2.31"), "2.31", WORKS, "same ABI"),
    (OPEN, OPEN, "musl", FAILS, "the image's C library is musl"),
    (OPEN, OPEN, "", UNKNOWN, "the image's glibc version is unknown"),
    (None, OPEN, "2.36", WORKS, "the image has no MPI of its own"),
    (OPEN, replace(OPEN, library=""), "2.36", FAILS, "kedge found no MPI library on the host"),
    (OPEN, None, "2.36", FAILS, "kedge found no MPI library on the host"),
])  # fmt: skip
def test_bind(inside: MpiFacts | None, outside: MpiFacts | None, glibc: str, level: str, words: str) -> None:
    verdict = judge(BIND, make_image(inside, glibc), make_host(outside))
    assert (verdict.level, words in verdict.reason) == (level, True), verdict


def test_contained_is_for_one_node_and_unread_images_are_open() -> None:
    assert judge(CONTAINED, make_image(OPEN), make_host(), nodes=1).launcher == "/usr/bin/mpirun"
    assert judge(CONTAINED, make_image(OPEN), make_host(), nodes=2).level == FAILS
    assert judge(CONTAINED, make_image(replace(OPEN, launcher="")), make_host()).level == FAILS
    assert judge(CONTAINED, make_image(None), make_host()).level == FAILS
    verdicts = judge_modes(make_image(None, "", is_searched=False), make_host(OPEN))
    assert {verdict.mode: verdict.level for verdict in verdicts} == dict.fromkeys(MODES, UNKNOWN)
    assert choose_mode(verdicts) is None


@each_row(("inside", "host", "nodes", "chosen"), [
    (OPEN, make_host(OPEN), 2, PMI_ONLY),
    (OPEN, make_host(OPEN, None), 2, HYBRID),
    (CLASSIC, make_host(OPEN, None), 1, CONTAINED),
    (CLASSIC, make_host(OPEN, None), 2, None),
    (OPEN_5, make_host(OPEN, ("none", "pmi2")), 2, None),
    (CLASSIC, make_host(OPEN), 2, PMI_ONLY),
])  # fmt: skip
def test_choice(inside: MpiFacts, host: MpiHost, nodes: int, chosen: str | None) -> None:
    verdict = choose_mode(judge_modes(make_image(inside), host, nodes=nodes))
    assert (verdict.mode if verdict else None) == chosen
