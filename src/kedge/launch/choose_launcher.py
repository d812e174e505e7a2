# SPDX-License-Identifier: BSD-3-Clause
"""Which program starts the ranks, and which PMI it offers them: by the request, the site, the scheduler and the MPIs.

Pure: what is there is handed in. A pair of MPIs that would start N programs of one rank each is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from kedge.base.frozen import frozen, replace
from kedge.cluster.allocation import Allocation
from kedge.cluster.mpi import (
    CONTAINED,
    FAILS,
    HYBRID,
    MPICH,
    PMI_ONLY,
    SINGLETONS,
    MpiFacts,
    MpiHost,
    MpiImage,
    MpiVerdict,
)
from kedge.cluster.schedulers.choose import find_facts
from kedge.cluster.site import Site
from kedge.compat.mpi.modes import judge_modes
from kedge.compat.mpi.pmi import choose_mpi_type, list_pmi
from kedge.errors import LaunchRefused
from kedge.launch.contracts import Contract
from kedge.launch.request import AUTO, LaunchRequest


@frozen
class LauncherChoice:
    """The program, and why."""

    launcher: str
    reasons: tuple[str, ...]
    path: str = ""  # of the program
    family: str = ""  # of the host's MPI that it belongs to
    version: str = ""  # of that MPI
    mode: str = ""
    mpi_type: str = ""
    pmi: tuple[str, ...] = ()  # kinds that the image's MPI knows, where ranks need one
    variables: tuple[tuple[str, str], ...] = ()  # that the image's MPI needs in the container for it

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the container that set them; files of the host that they name are mounted."""
        words = [word for name, value in self.variables for word in ("--env", f"{name}={value}")]
        words += [
            word for _, value in self.variables if value.startswith("/") for word in ("--bind", f"{value}:{value}:ro")
        ]
        return tuple(words)


@frozen
class LauncherFacts:
    """What the choice is made from."""

    request: LaunchRequest
    allocation: Allocation
    site: Site
    image: MpiImage
    read_host: Callable[[], MpiHost]  # that takes a while
    has_program: Callable[[str], bool]

    @property
    def mpi(self) -> MpiFacts | None:
        """The MPI of the image, where the launch is about MPI."""
        return self.image.mpi if self.request.is_about_mpi else None

    @property
    def host(self) -> MpiHost:
        """The MPI of this host."""
        return self.read_host()

    @property
    def is_spread(self) -> bool:
        """Whether there are other nodes."""
        return self.allocation.node_count > 1

    def find_host_mpi(self, abi: str) -> MpiFacts | None:
        """The host's MPI whose launcher starts ranks of this kind; None: there is none."""
        found = (each for each in (self.host.mpi, *self.host.others) if each is not None and each.launcher)
        return next((each for each in found if each.abi == abi), None)

    def judge(self, mode: str, mpi: MpiFacts | None = None) -> MpiVerdict:
        """The verdict on one way; `mpi`: with this one as the host's."""
        host = replace(self.host, mpi=mpi, others=()) if mpi is not None else self.host
        verdicts = judge_modes(self.image, host, nodes=self.allocation.node_count)
        return next(verdict for verdict in verdicts if verdict.mode == mode)


def choose_launcher(facts: LauncherFacts) -> LauncherChoice:
    """The launcher that was asked for, that of the site, or the best one here; raises LaunchRefused."""
    asked = facts.request.launcher
    if asked == AUTO and facts.request.mpi_mode in _BY_MODE and facts.mpi is not None:
        return _BY_MODE[facts.request.mpi_mode](facts, facts.mpi)
    if asked != AUTO:
        return _take(facts, asked, f"{asked}: requested")
    if facts.mpi is None:
        return _choose_without_mpi(facts)
    return _choose_for_mpi(facts, facts.mpi)


def _choose_without_mpi(facts: LauncherFacts) -> LauncherChoice:
    usual = find_facts(facts.allocation.scheduler).launcher_of_tasks
    wanted = facts.site.launcher if facts.site.scheduler == facts.allocation.scheduler else ""
    is_last = wanted in ("mpirun", "mpiexec")  # a program more that may fail; a profile has it for programs of MPI
    if wanted not in ("", "none") and not is_last and facts.has_program(wanted):
        return _take(facts, wanted, f"{wanted}: the launcher of site {facts.site.name}")
    if usual and (facts.is_spread or usual == "srun") and facts.has_program(usual):
        return _take(facts, usual, f"{usual}: {find_facts(facts.allocation.scheduler).title} starts the tasks itself")
    if not facts.is_spread:
        return LauncherChoice("local", ("local: kedge starts the tasks itself, on this host",))
    for program in (wanted if is_last else "mpirun", "mpirun"):
        if facts.has_program(program):
            return _take(facts, program, f"{program}: no other program reaches the nodes of the job")
    raise LaunchRefused(
        f"no program starts tasks on the {facts.allocation.node_count} nodes of this job",
        hint="load a module with mpirun or mpiexec, or give --nodes 1",
    )


def _choose_for_mpi(facts: LauncherFacts, mpi: MpiFacts) -> LauncherChoice:
    tried = []
    if find_facts(facts.allocation.scheduler).launcher_of_tasks == "srun" and facts.has_program("srun"):
        verdict = facts.judge(PMI_ONLY)
        if verdict.level not in (FAILS, SINGLETONS):
            return _with_srun(facts, mpi, verdict, f"srun: {verdict.reason}")
        tried.append(verdict)
    found = facts.find_host_mpi(mpi.abi)
    verdict = facts.judge(HYBRID, found)
    if found is not None and verdict.level not in (FAILS, SINGLETONS):
        return _with_mpirun(facts, mpi, found, f"{found.launcher}: {verdict.reason}")
    tried.append(verdict)
    if not facts.is_spread:
        verdict = facts.judge(CONTAINED)
        if verdict.is_usable:
            return _make_contained(verdict, mpi)
        tried.append(verdict)
    raise LaunchRefused(
        f"no launcher here starts ranks of {mpi.title}, the MPI of {facts.image.name}",
        context={verdict.mode: verdict.reason for verdict in tried},
        hint=next((verdict.remedy for verdict in tried if verdict.remedy), None),
    )


def _take(facts: LauncherFacts, launcher: str, reason: str) -> LauncherChoice:
    """Choose this launcher, if the image's MPI can live with it."""
    mpi = facts.mpi
    if launcher == "srun":
        if mpi is None:
            return LauncherChoice("srun", (reason,), mpi_type=_wanted_type(facts))
        return _with_srun(facts, mpi, facts.judge(PMI_ONLY), reason)
    if launcher in ("mpirun", "mpiexec"):
        wanted = facts.find_host_mpi(MPICH) if launcher == "mpiexec" else None
        return _with_mpirun(facts, mpi, wanted or facts.host.mpi, reason)
    if launcher in ("local", "qrsh") and mpi is not None and facts.request.tasks != 1 and facts.image.mpi is not None:
        return _refuse_own(facts, launcher, mpi, reason)
    return LauncherChoice(launcher, (reason,), pmi=_kinds(mpi))


def _refuse_own(facts: LauncherFacts, launcher: str, mpi: MpiFacts, reason: str) -> LauncherChoice:
    """kedge's own start serves no PMI; that MPI is in the image does not say that the program uses it."""
    if facts.request.has_check:
        raise LaunchRefused(
            f"the launcher '{launcher}' does not connect ranks of MPI, and the image has {mpi.title}:"
            " each would be rank 0 of 1",
            hint="leave out --launcher; for a program that does not use MPI add --ranks or --no-check",
        )
    return LauncherChoice(launcher, (reason,))


def _with_srun(facts: LauncherFacts, mpi: MpiFacts, verdict: MpiVerdict, reason: str) -> LauncherChoice:
    asked = facts.request.mpi_type
    kinds = _kinds(mpi)
    if asked != AUTO:
        fitting = choose_mpi_type(mpi, (asked,)) if kinds else asked
        if kinds and not fitting and facts.request.has_check:
            raise LaunchRefused(
                f"srun --mpi={asked} does not connect ranks of {mpi.title}, which needs {' or '.join(kinds)}",
                hint="leave out --mpi-type: kedge chooses the right one",
            )
        return LauncherChoice("srun", (reason, f"--mpi={asked}: requested"), mode=PMI_ONLY, mpi_type=asked, pmi=kinds)
    if verdict.level in (FAILS, SINGLETONS) and facts.request.has_check:
        raise LaunchRefused(verdict.reason, hint=verdict.remedy or None)
    chosen = verdict.mpi_type or choose_mpi_type(mpi, facts.host.plugins or ()) or facts.site.mpi_type
    reasons = (reason, f"--mpi={chosen}: {mpi.title} of the image needs it") if chosen else (reason,)
    return LauncherChoice("srun", reasons, mode=PMI_ONLY, mpi_type=chosen, pmi=kinds, variables=verdict.variables)


def _with_mpirun(facts: LauncherFacts, mpi: MpiFacts | None, found: MpiFacts | None, reason: str) -> LauncherChoice:
    """mpirun or mpiexec of the MPI that was found on the host."""
    if mpi is not None:
        verdict = facts.judge(HYBRID, found)
        if verdict.level in (FAILS, SINGLETONS) and facts.request.has_check:
            raise LaunchRefused(verdict.reason, hint=verdict.remedy or None)
    family = found.abi or found.family if found else ""
    name = "mpiexec" if family == MPICH else "mpirun"
    path, version = (found.launcher, found.version) if found else ("", "")
    return LauncherChoice(name, (reason,), path, family, version, mode=HYBRID if mpi else "", pmi=_kinds(mpi))


def _take_hybrid(facts: LauncherFacts, mpi: MpiFacts) -> LauncherChoice:
    found = facts.find_host_mpi(mpi.abi) or facts.host.mpi
    return _with_mpirun(facts, mpi, found, f"{found.launcher if found else 'mpirun'}: --mpi-mode hybrid")


_NO_MODE = "leave out --mpi-mode: kedge chooses what works here"


def _take_pmi(facts: LauncherFacts, mpi: MpiFacts) -> LauncherChoice:
    if not facts.has_program("srun"):
        raise LaunchRefused(facts.judge(PMI_ONLY).reason, hint=_NO_MODE)
    scheduler = find_facts(facts.allocation.scheduler)
    if scheduler.launcher_of_tasks != "srun" and facts.allocation.scheduler != "local":
        raise LaunchRefused(
            f"srun starts ranks of Slurm jobs, and this is no Slurm job but one of {scheduler.title}", hint=_NO_MODE
        )
    return _with_srun(facts, mpi, facts.judge(PMI_ONLY), "srun: --mpi-mode pmi")


def _make_contained(verdict: MpiVerdict, mpi: MpiFacts) -> LauncherChoice:
    name = "mpiexec" if mpi.abi == MPICH else "mpirun"
    return LauncherChoice(
        *(name, (verdict.reason,), mpi.launcher, mpi.abi, mpi.version), mode=CONTAINED, variables=verdict.variables
    )


def _take_contained(facts: LauncherFacts, mpi: MpiFacts) -> LauncherChoice:
    verdict = facts.judge(CONTAINED)
    if not verdict.is_usable:
        raise LaunchRefused(verdict.reason, hint=verdict.remedy or None)
    return _make_contained(verdict, mpi)


_BY_MODE = {HYBRID: _take_hybrid, PMI_ONLY: _take_pmi, CONTAINED: _take_contained}


def _kinds(mpi: MpiFacts | None) -> tuple[str, ...]:
    return (list_pmi(mpi) or ()) if mpi else ()


def _wanted_type(facts: LauncherFacts) -> str:
    """Return the PMI as asked; else none, or the site's for MPI and for an image that could not be looked at."""
    if facts.request.mpi_type != AUTO:
        return facts.request.mpi_type
    is_unknown = facts.request.contract is Contract.NONE and not facts.image.is_searched
    if facts.request.uses_mpi or (is_unknown and facts.request.uses_mpi is None):
        return facts.site.mpi_type
    return "none"
