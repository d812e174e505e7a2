# SPDX-License-Identifier: BSD-3-Clause
"""What --fakeroot can do for a user of this host, and the line that administrators would type for more."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from kedge.doctor.containers.subordinate import judge_subordinate_ids
from kedge.doctor.finding import Finding
from kedge.errors import UsageError
from kedge.posix.views import DirectoryView
from kedge.runtime.facts import HostFacts


def advise(user: str, environ: Mapping[str, str], root: str = "/") -> Finding:
    """What the doctor says about subordinate ids, for any user of this host."""
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError:
        raise UsageError(f"there is no user '{user or os.getuid()}'", hint="'getent passwd' lists them") from None
    host = HostFacts(view=DirectoryView(root), environ=environ, uid=entry.pw_uid, gid=entry.pw_gid, user=entry.pw_name)
    return judge_subordinate_ids(host)
