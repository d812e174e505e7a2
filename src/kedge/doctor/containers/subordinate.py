# SPDX-License-Identifier: BSD-3-Clause
"""Subordinate ids: whether --fakeroot has many users, or root alone."""

from __future__ import annotations

import os

from kedge.doctor.finding import NOTE, OK, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.runtime.environment.identity import find_user
from kedge.runtime.facts import HostFacts
from kedge.runtime.processes.subordinate import find_helper, find_range, plan_maps
from kedge.runtime.views import FolderView

NAME = "subordinate-ids"


def check_subordinate_ids(surroundings: Surroundings) -> list[Finding]:
    """newuidmap, newgidmap, and lines for this user in /etc/subuid and /etc/subgid."""
    uid = os.getuid()
    view = FolderView(surroundings.root)
    host = HostFacts(view=view, environ=surroundings.environ, uid=uid, gid=os.getgid(), user=find_user(uid)[0])
    return [judge_subordinate_ids(host)]


def judge_subordinate_ids(host: HostFacts) -> Finding:
    """What --fakeroot will be for this user."""
    if host.uid == 0:
        return Finding(NAME, OK, "root needs none")
    if plan_maps(host, 0):
        count = find_range(host.view.read("/etc/subuid") or b"", host)[1]
        return Finding(NAME, OK, f"{count} ids for {host.user}: --fakeroot has all users of an image")
    missing = [each for each in ("newuidmap", "newgidmap") if not find_helper(each, host.view.is_executable)]
    if missing:
        reason = f"{' and '.join(missing)} are not installed" if missing[1:] else f"{missing[0]} is not installed"
        fix = "the package is uidmap (Debian, Ubuntu) or shadow-utils (RHEL, SUSE)"
    else:
        reason = f"/etc/subuid or /etc/subgid has no range of 1000 or more for {host.user}"
        fix = (
            "an administrator can give a range that nobody else has: "
            f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {host.user}"
        )
    return Finding(
        NAME,
        NOTE,
        f"none: {reason}",
        "--fakeroot shows root as the only user; apt, dnf and tar still work, because kedge lets 'chown' and its kind "
        "succeed without doing anything",
        f"none is needed for running images. To install packages with all their users: {fix}",
        f"guides/doctor.md#{NAME}",
    )
