# SPDX-License-Identifier: BSD-3-Clause
"""Subordinate ids: whether --fakeroot and the steps of builds have all users of an image, or root alone."""

from __future__ import annotations

import os

from kedge.answers.doctor.finding import NOTE, OK, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.facts import HostFacts, find_user
from kedge.container.processes.subordinate_ids import STEP_IDS, find_helper, find_range, plan_maps
from kedge.system.views import DirectoryView

NAME = "subordinate-ids"
_FIRST, _COUNT = 100000, 65536  # as useradd gives them


def check_subordinate_ids(surroundings: Surroundings) -> list[Finding]:
    """Check newuidmap, newgidmap, and the user's lines in /etc/subuid and /etc/subgid."""
    uid = os.getuid()
    view = DirectoryView(surroundings.root)
    host = HostFacts(view=view, environ=surroundings.environ, uid=uid, gid=os.getgid(), user=find_user(uid)[0])
    return [judge_subordinate_ids(host)]


def _find_free_range(host: HostFacts) -> str:
    """The first 65536 ids after all ranges in /etc/subuid and /etc/subgid, as usermod takes them."""
    ends = [_FIRST]
    for table in ("/etc/subuid", "/etc/subgid"):
        for line in (host.view.read(table) or b"").decode(errors="replace").splitlines():
            start, _, count = line.partition(":")[2].partition(":")
            if start.isdigit() and count.isdigit():
                ends.append(int(start) + int(count))
    return f"{max(ends)}-{max(ends) + _COUNT - 1}"


def judge_subordinate_ids(host: HostFacts) -> Finding:
    """Explain what --fakeroot offers this user."""
    if host.uid == 0:
        return Finding(NAME, OK, "root needs none")
    if plan_maps(host, 0):
        count = find_range(host.view.read("/etc/subuid") or b"", host)[1]
        who = "--fakeroot and builds have all users of an image"
        if not plan_maps(host, 0, exactly=STEP_IDS - 1):
            who = f"--fakeroot has the users of an image; builds need {STEP_IDS - 1} ids, and emulate users"
        return Finding(NAME, OK, f"{count} ids for {host.user}: {who}")
    missing = [name for name in ("newuidmap", "newgidmap") if not find_helper(name, host.view.is_executable)]
    if missing:
        reason = f"{' and '.join(missing)} are not installed" if missing[1:] else f"{missing[0]} is not installed"
        fix = "install the package uidmap (Debian, Ubuntu) or shadow-utils (RHEL, SUSE)"
    else:
        reason = f"/etc/subuid or /etc/subgid has no range of 1000 or more for {host.user}"
        free = _find_free_range(host)
        fix = f"an administrator can assign a free range: usermod --add-subuids {free} --add-subgids {free} {host.user}"
    return Finding(
        NAME,
        NOTE,
        f"none: {reason}",
        why="--fakeroot has root as its only user; apt, dnf and tar still work, because kedge lets 'chown' and similar "
        "calls succeed without effect",
        fix=f"no action needed to run images. To install packages with all their users: {fix}",
        docs=f"kedge help doctor {NAME}",
    )
