# SPDX-License-Identifier: BSD-3-Clause
"""Which site this is, from what is known without starting a program: names, variables, and which programs are here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kedge.base.frozen import NOTHING, frozen
from kedge.base.patterns import late_pattern
from kedge.cluster.schedulers.choose import list_facts
from kedge.cluster.schedulers.facts import SchedulerFacts
from kedge.cluster.sites.profile import Sign

_GROUP = late_pattern(r"\([^()]*\)")
_TAIL = late_pattern(r"(?:\\\.[a-zA-Z0-9-]+)+\Z")  # `\.abci\.local` of `(es|g)\d+\.abci\.local`


@frozen
class HostSigns:
    """What is looked at."""

    hostnames: tuple[str, ...] = ()  # all names of this machine, the full ones too
    environ: Mapping[str, str] = NOTHING
    programs: frozenset[str] = frozenset()  # those of `list_scheduler_signs` that are here
    files: frozenset[str] = frozenset()  # likewise


@frozen
class Candidate:
    """A site this may be, and why."""

    site: str
    reason: str
    scheduler: str = ""  # of a generic site


def detect_site(machine: HostSigns, signs: Sequence[Sign]) -> list[Candidate]:
    """The sites this may be, the likeliest first; never empty, because there is a generic one for every scheduler."""
    by_name = [
        Candidate(sign.name, f"host name {name} matches")
        for sign in signs
        for name in machine.hostnames
        if any(not is_other_text(pattern, name) and re.fullmatch(pattern, name) for pattern in sign.hostnames)
    ]
    by_variable = [
        Candidate(sign.name, f"{sign.variables[0][0]} is set for it")
        for sign in signs
        if sign.variables and all(_fits(machine.environ, *each) for each in sign.variables)
    ]
    unique: dict[str, Candidate] = {}
    for candidate in (*by_name, *by_variable, detect_scheduler(machine)):
        unique.setdefault(candidate.site, candidate)
    return list(unique.values())


def is_other_text(pattern: str, name: str) -> bool:
    """Whether a pattern begins or ends with plain text, and the name otherwise: nearly all do, and compiling is slow.

    False where it cannot be told by that.
    """
    if "(?" in pattern or ("|" in pattern and "|" in _GROUP.sub("", pattern)):
        return False
    count = 0
    while pattern[count : count + 1].isalnum():
        count += 1
    if pattern[count : count + 1] in ("*", "?", "{"):  # then the last one may be absent
        count -= 1
    if not name.startswith(pattern[: max(count, 0)]):
        return True
    tail = _TAIL.search(pattern)
    return tail is not None and not name.endswith(tail[0].replace("\\", ""))


def _fits(environ: Mapping[str, str], name: str, pattern: str) -> bool:
    return re.fullmatch(pattern, environ.get(name, "")) is not None


def list_scheduler_signs() -> tuple[list[str], list[str]]:
    """The programs and the files to look for: `qsub` and `qstat` are of two schedulers, and say nothing."""
    facts = list_facts()
    programs = [scheduler.program for scheduler in facts if scheduler.program]
    return programs, [file for scheduler in facts for file in (*scheduler.settings_files, *scheduler.own_files)]


def detect_scheduler(machine: HostSigns) -> Candidate:
    """The generic site for the scheduler that is here, `local` where there is none."""
    facts = list_facts()
    for find_reason in (_find_proof, _find_trace):
        for scheduler in facts:
            if reason := find_reason(scheduler, machine):
                return Candidate(f"generic-{scheduler.name}", reason, scheduler.name)
    return Candidate("local", "no scheduler found", "local")


def _find_proof(scheduler: SchedulerFacts, machine: HostSigns) -> str:
    """Settings: they say which scheduler is used where programs of several are installed."""
    if machine.environ.get(scheduler.settings):
        return f"{scheduler.settings} is set"
    has_files = not machine.files.isdisjoint(scheduler.settings_files)
    return f"{scheduler.program} is installed" if has_files and scheduler.program in machine.programs else ""


def _find_trace(scheduler: SchedulerFacts, machine: HostSigns) -> str:
    file = next((name for name in scheduler.own_files if name in machine.files), "")
    if file:
        return f"{file} exists"
    return f"{scheduler.program} is installed" if scheduler.program in machine.programs else ""


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
