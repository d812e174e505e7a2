# SPDX-License-Identifier: BSD-3-Clause
"""Whether --fakeroot works for a user of this host, and the command that administrators can run for more."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from kedge.answers.doctor.containers.subordinate import judge_subordinate_ids
from kedge.answers.doctor.finding import Finding
from kedge.container.facts import HostFacts
from kedge.errors import UsageError
from kedge.system.views import DirectoryView


def advise(user: str, environ: Mapping[str, str], root: str = "/") -> Finding:
    """The doctor's finding about subordinate ids, for any user of this host."""
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError:
        raise UsageError(f"this host has no user '{user or os.getuid()}'", hint="list users: getent passwd") from None
    host = HostFacts(view=DirectoryView(root), environ=environ, uid=entry.pw_uid, gid=entry.pw_gid, user=entry.pw_name)
    return judge_subordinate_ids(host)
