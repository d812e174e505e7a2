# SPDX-License-Identifier: BSD-3-Clause
"""What one process says for many: of all tasks of a job, ranks of a launch or calls of a workflow tool, the first.

An empty file in the user's directory in memory says that it was said. Where none can be made, it is said again.
"""

from __future__ import annotations

import os
import time

from kedge.base.rank_variables import HYDRA, LAUNCH_NAMES, RANKS
from kedge.container.processes.rank_sharing import find_launch, find_private_directory, make_digest
from kedge.image.node_cache import own_directory
from kedge.system.spawn import start_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_OLD = 12 * 3600.0  # seconds: who comes back the next morning reads it again


def say_first(text: str, environ: Mapping[str, str], uid: int, *, is_shim: bool = False) -> bool:
    """Whether to say it: not after another rank, task or, through a shim, another call of the same session."""
    if any(environ.get(name, "0") != "0" for name in RANKS):
        return False
    scope = find_scope(environ, is_shim=is_shim)
    if not scope:
        return True
    from kedge.errors import KedgeError  # late: only what is said once needs it

    try:
        folder = own_directory(f"{find_private_directory(uid)}/said")
        _sweep(folder)
        os.close(os.open(f"{folder}/{make_digest(f'{scope} {text}')}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    except (OSError, KedgeError):
        return True
    return True


def find_scope(environ: Mapping[str, str], *, is_shim: bool) -> str:
    """What those have in common of whom one speaks: the job or the launch; through a shim the session, too."""
    from kedge.cluster.schedulers.choose import list_facts  # late: only what is said needs it

    known = [facts for facts in list_facts(also_recognised=True) if not facts.job_id or facts.has_job(environ)]
    names = [name for facts in known for name in facts.job_scope]
    found = [f"{name}={environ[name]}" for name in (*names, *LAUNCH_NAMES) if environ.get(name)]
    if not found and environ.get(HYDRA):
        return find_launch(environ)
    if found or not is_shim:
        return " ".join(found)
    session = os.getsid(0)
    return f"session {session} {start_of(session)}"


def _sweep(folder: str) -> None:
    """Forget what was said long ago."""
    oldest = time.time() - _OLD
    for name in os.listdir(folder):
        if os.stat(f"{folder}/{name}").st_mtime < oldest:
            os.unlink(f"{folder}/{name}")
