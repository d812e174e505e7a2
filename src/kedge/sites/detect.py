# SPDX-License-Identifier: BSD-3-Clause
"""Which site this is, from what is known without starting a program: names, variables, and which programs are here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kedge.frozen import NOTHING, frozen
from kedge.sites.profile import Sign

# What tells schedulers apart: qsub and qstat are Grid Engine's and PBS's both, and say nothing.
PROGRAMS = ("sbatch", "qconf", "pbsnodes")
FILES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/pbs.conf")
_SLURM_FILES = frozenset(FILES[:3])


@frozen
class HostSigns:
    """What is looked at."""

    hostnames: tuple[str, ...] = ()  # all names of this machine, the full ones too
    environ: Mapping[str, str] = NOTHING
    programs: frozenset[str] = frozenset()  # those of PROGRAMS that are here
    files: frozenset[str] = frozenset()  # those of FILES that are here


@frozen
class Candidate:
    """A site this may be, and why."""

    site: str
    reason: str


def detect_site(machine: HostSigns, signs: Sequence[Sign]) -> list[Candidate]:
    """The sites this may be, the likeliest first; never empty, because there is a generic one for every scheduler."""
    by_name = [
        Candidate(sign.name, f"the host name {name} is one of its own")
        for sign in signs
        for name in machine.hostnames
        if any(re.fullmatch(pattern, name) for pattern in sign.hostnames)
    ]
    by_variable = [
        Candidate(sign.name, f"the variable {sign.variables[0][0]} says so")
        for sign in signs
        if sign.variables and all(_fits(machine.environ, *each) for each in sign.variables)
    ]
    unique: dict[str, Candidate] = {}
    for candidate in (*by_name, *by_variable, detect_scheduler(machine)):
        unique.setdefault(candidate.site, candidate)
    return list(unique.values())


def _fits(environ: Mapping[str, str], name: str, pattern: str) -> bool:
    return re.fullmatch(pattern, environ.get(name, "")) is not None


def detect_scheduler(machine: HostSigns) -> Candidate:
    """The generic site for the scheduler that is here, `local` where there is none."""
    environ, programs = machine.environ, machine.programs
    has_slurm_settings = bool(environ.get("SLURM_CONF")) or bool(machine.files & _SLURM_FILES)
    has_other_settings = bool(environ.get("SGE_ROOT")) or bool(environ.get("PBS_CONF_FILE"))
    if environ.get("SLURM_CONF"):
        return Candidate("generic-slurm", "SLURM_CONF is set")
    if "sbatch" in programs and (has_slurm_settings or not has_other_settings):
        return Candidate("generic-slurm", "sbatch is here")
    if environ.get("SGE_ROOT"):
        return Candidate("generic-gridengine", "SGE_ROOT is set")
    if environ.get("PBS_CONF_FILE"):
        return Candidate("generic-pbs", "PBS_CONF_FILE is set")
    if "qconf" in programs:
        return Candidate("generic-gridengine", "qconf is here")
    if "/etc/pbs.conf" in machine.files or "pbsnodes" in programs:
        return Candidate(
            "generic-pbs", "/etc/pbs.conf is here" if "/etc/pbs.conf" in machine.files else "pbsnodes is here"
        )
    return Candidate("local", "no scheduler is here")


def list_names(nodename: str, hosts: str, resolver: str) -> tuple[str, ...]:
    """All names a machine goes by: its own, those in the text of /etc/hosts, and with the domains of /etc/resolv.conf.

    Nobody is asked over the network, which may be slow on a login node.
    """
    short = nodename.partition(".")[0]
    names = [nodename]
    for line in hosts.splitlines():
        words = line.partition("#")[0].split()[1:]
        if nodename in words or short in words:
            names += [word for word in words if word.partition(".")[0] == short]
    if "." not in nodename:
        for line in resolver.splitlines():
            words = line.split()
            if words[:1] in (["search"], ["domain"]):
                names += [f"{short}.{domain.rstrip('.')}" for domain in words[1:]]
    return tuple(dict.fromkeys(name.lower() for name in names if name))
