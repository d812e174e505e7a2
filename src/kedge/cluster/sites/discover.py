# SPDX-License-Identifier: BSD-3-Clause
"""Makes a site profile from the answers of the scheduler, writes it, and compares an existing one with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kedge.base.duration import shorten_duration
from kedge.base.frozen import frozen, replace
from kedge.cluster.memory import shorten_memory
from kedge.cluster.schedulers.advice import find_advice, find_missing_setup
from kedge.cluster.schedulers.choose import find_discovery, find_facts
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.detect import detect_scheduler
from kedge.cluster.sites.find_site import look_around, require_settings
from kedge.cluster.sites.profile import check_name, user_folder
from kedge.cluster.sites.schema import write_profile
from kedge.errors import NoScheduler, ProgramFailed, ProgramMissing, SchedulerFailed
from kedge.system.files import atomic_output, explained, refuse_existing_text
from kedge.system.owned_names import find_user_name
from kedge.system.private_files import make_private
from kedge.system.process import run_program

_PATIENCE = 60.0  # seconds for each program
_SHORT_PATIENCE = 15.0  # for optional answers: clients of a database that is down wait long
# `module` is a function of login shells, and prints to standard error
_AVAILABLE = ("bash", "-lc", "module -t avail 2>&1")
_RUNTIME = re.compile(r"(?:[\w.+-]+/)*(?:[\w.+-]*-)?(?:apptainer|singularity(?:pro|ce)?)(?:/[\w.+-]+)?", re.IGNORECASE)


def discover_site(environ: Mapping[str, str], name: str = "") -> Site:
    """The site as its scheduler describes it; raises NoScheduler if there is none."""
    machine = look_around(environ)
    found = detect_scheduler(machine)
    title = name or suggest_name(machine.hostnames)
    check_name(title, where="the name")
    discover = find_discovery(found.scheduler)
    if discover is None:
        raise NoScheduler(
            "no scheduler found on this host",
            hint="run this on a login node of the cluster; to see what was detected: kedge site detect",
        )
    require_settings(found.scheduler, environ)
    site = discover(title, find_user_name(environ), _ask)
    if not site.queues:
        raise SchedulerFailed(
            f"{site.scheduler} lists no {find_facts(site.scheduler).queue_word}", hint="is the scheduler running?"
        )
    return _add_machine(site, machine.hostnames)


def _add_machine(site: Site, hostnames: Sequence[str]) -> Site:
    """The site with what a profile needs besides the scheduler's answers."""
    module = find_runtime_module(_ask(_AVAILABLE, may_fail=True))
    full = next((name for name in hostnames if "." in name), hostnames[0] if hostnames else "")
    pattern = re.sub(r"\d+", r"\\d+", re.escape(full).replace(r"\-", "-")) if full else ""
    scratch = "$SCRATCH" if os.environ.get("SCRATCH") else ""
    return replace(
        site,
        hostnames=(pattern,) if pattern and not pattern.startswith("localhost") else (),
        runtime_modules=(module,) if module else (),
        scratch=scratch,
    )


def suggest_name(hostnames: Sequence[str]) -> str:
    """A name for the site: the second part of `login1.cluster.example.org`, else the host name without digits."""
    full = next((name for name in hostnames if name.count(".") >= 2), "")
    word = full.split(".")[1] if full else re.sub(r"\d+$", "", hostnames[0].partition(".")[0] if hostnames else "")
    return re.sub(r"[^a-z0-9-]", "-", word) or "site"


def save_profile(site: Site, environ: Mapping[str, str], *, output: str = "", force: bool = False) -> Path:
    """Write the profile to the user's directory or to a file, atomically; returns its path."""
    path = Path(output) if output else user_folder(environ) / f"{site.name}.toml"
    refuse_existing_text(path, force=force)
    if not output:
        with explained(path.parent):
            make_private(path.parent)
    with atomic_output(path, force=force) as file:
        file.write(show_profile(site).encode())
    return path


def show_profile(site: Site) -> str:
    """The text of a discovered profile."""
    return write_profile(
        site,
        opening=(
            "Written by 'kedge site init' from the answers of the scheduler. Correct what is wrong and add what it",
            "does not know: requires, refuses, home_on_nodes, scratch, pull … 'kedge help sites' explains every key.",
        ),
    )


def compare_with_live(site: Site, environ: Mapping[str, str]) -> list[Difference]:
    """The differences between profile and scheduler; raises NoScheduler if there is none."""
    return compare_sites(site, discover_site(environ, site.name))


def _ask(argv: Sequence[str], *, may_fail: bool = False) -> str:
    try:
        done = run_program(argv, check=False, timeout=_SHORT_PATIENCE if may_fail else _PATIENCE)
    except (ProgramMissing, ProgramFailed) as problem:
        if may_fail:
            return ""
        raise SchedulerFailed(problem.message, hint="is the scheduler running?") from problem
    if done.status and not may_fail:
        said = (done.errors or done.output).decode(errors="replace").strip()
        last = said.splitlines()[-1] if said else f"it ended with status {done.status}"
        plain = (f"{argv[0]}: {last.removeprefix(f'{argv[0]}: ')}", find_advice(said) or "is the scheduler running?")
        message, hint = find_missing_setup(said) or plain
        raise SchedulerFailed(message, context={"command": " ".join(argv), "said": said[-2000:]}, hint=hint)
    return "" if done.status else done.text


def find_runtime_module(text: str) -> str:
    """The module of Apptainer, else of Singularity; without a version where the site has a default. Empty: none."""
    names = [re.sub(r"\((?:default|D|L)\)$", "", line.strip()) for line in text.splitlines()]
    found = [name.rstrip("/") for name in names if _RUNTIME.fullmatch(name.rstrip("/"))]
    if not found:
        return ""
    best = min(found, key=lambda name: ("apptainer" not in name.lower(), "/" in name))
    return best.rpartition("/")[0] if re.fullmatch(r"v?\d.*", best.rpartition("/")[2]) else best


# Where a profile and the scheduler disagree: profiles age, and a limit that moved makes good advice bad.

_AMOUNTS = ("nodes", "cpus_per_node", "memory_per_node", "gpus_per_node", "max_nodes", "max_time")
_LOOSE = 0.1  # documents round: a difference of a tenth in memory or number of nodes is none


@frozen
class Difference:
    """One thing that the profile says otherwise than the scheduler."""

    queue: str
    key: str
    profile: str
    live: str

    def __str__(self) -> str:
        if not self.key:
            return f"{self.queue}: {self.profile or self.live}"
        return f"{self.queue}: {self.key} is {self.profile} in the profile, {self.live} in the scheduler"


def compare_sites(profile: Site, live: Site) -> list[Difference]:
    """What differs, queue by queue; what one of them does not know is no difference."""
    differences = []
    if profile.scheduler != live.scheduler:
        return [Difference(profile.name, "scheduler", profile.scheduler, live.scheduler)]
    for queue in profile.queues:
        other = live.find_queue(queue.name)
        if queue.resource:  # no queue of the scheduler's, but a resource
            continue
        if other is None and not queue.is_retired:
            differences.append(Difference(queue.name, "", "in the profile, not in the scheduler", ""))
        elif other is not None:
            differences += _compare_queues(queue, other)
    known = {each.name for each in profile.queues}
    if known:
        new = [each.name for each in live.queues if each.name not in known]
        differences += [Difference(name, "", "", "in the scheduler, not in the profile") for name in new]
    return differences


def _compare_queues(queue: Queue, other: Queue) -> list[Difference]:
    differences = []
    for key in _AMOUNTS:
        said, is_so = getattr(queue, key), getattr(other, key)
        if said is None or is_so is None or said == is_so:
            continue
        if key in ("nodes", "memory_per_node") and abs(said - is_so) <= _LOOSE * max(said, is_so):
            continue
        differences.append(Difference(queue.name, key, _show(key, said), _show(key, is_so)))
    return differences


def _show(key: str, value: int) -> str:
    if key == "max_time":
        return shorten_duration(value)
    return shorten_memory(value) if key == "memory_per_node" else str(value)
