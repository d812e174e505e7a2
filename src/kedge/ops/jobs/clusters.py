# SPDX-License-Identifier: BSD-3-Clause
"""Where jobs go from here: the site, its scheduler, and its programs, which are run in this file only."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Mapping, Sequence

from kedge.errors import KedgeError, NoScheduler, ProgramFailed, ProgramMissing, SchedulerFailed, rebuild_error
from kedge.frozen import frozen, replace
from kedge.jobs.place import find_record_root
from kedge.jobs.records import Records
from kedge.model.site import Site
from kedge.ops.setup.site import choose_site, require_settings
from kedge.posix.process import Finished, run_program
from kedge.schedulers.advice import find_advice, find_missing_setup, is_unreachable
from kedge.schedulers.backend import Backend, Query
from kedge.schedulers.choose import find_backend
from kedge.settings import Settings

_PATIENCE = 120.0  # seconds; a controller that restarts answers within that
_ADDRESS = r"^\w+: (error: )?"  # sbatch: error:
_SHOWN_LINES = 5


@frozen
class Cluster:
    """A site with the module of its scheduler, as one user sees it."""

    site: Site
    backend: Backend
    user: str
    records: Records

    def ask(self, query: Query) -> str | None:
        """What a scheduler's program prints; None when it failed and may."""
        try:
            done = self.call(query.argv, query.environment)
        except SchedulerFailed:
            if query.may_fail:
                return None
            raise
        if done.status and (not query.may_fail or is_unreachable(done.errors.decode(errors="replace"))):
            raise self.explain_failure(done)
        text = done.output.decode(errors="replace")
        # one that fails for a job it does not know tells of the others it was asked for all the same
        return text if text.strip() or not done.status else None

    def call(self, argv: Sequence[str], changes: Sequence[tuple[str, str | None]] = ()) -> Finished:
        """Run a scheduler's program to its end, whatever its status; `changes` are variables to set, None drops one."""
        self.require_configuration(os.environ)
        environment = {**os.environ, **{name: value for name, value in changes if value is not None}}
        for name in (name for name, value in changes if value is None):
            environment.pop(name, None)
        try:
            return run_program(argv, environment=environment, check=False, timeout=_PATIENCE)
        except ProgramMissing as problem:
            raise self.explain_missing(argv[0], problem) from None
        except ProgramFailed as problem:
            raise SchedulerFailed(
                problem.message, hint="the scheduler may be busy or down; try again in a minute"
            ) from problem

    def explain_missing(self, program: str, problem: ProgramMissing) -> KedgeError:
        """The error for a program of the scheduler that is not here."""
        return NoScheduler(
            f"'{program}' is not here, and {self.site.name} is a site with {self.backend.name}",
            context=problem.context,
            hint=problem.hint or "'kedge site detect' says what is here; another site is chosen with --site",
        )

    def require_configuration(self, environ: Mapping[str, str]) -> None:
        """Refuse at once what the scheduler's programs refuse after a minute of patience."""
        require_settings(self.backend.name, environ)

    def explain_failure(self, done: Finished) -> KedgeError:
        """The error for a program of the scheduler that failed: all it said, without its own name before each line."""
        own = _read_own_error(done.output)
        if own is not None:
            return own
        said = (done.errors or done.output).decode(errors="replace").strip()
        lines = [re.sub(_ADDRESS, "", line).strip() for line in said.splitlines() if line.strip()]
        what = "; ".join(lines[-_SHOWN_LINES:]) or f"it ended with status {done.status} and said nothing"
        context = {"command": shlex.join(done.argv), **({"said": said[-2000:]} if len(lines) > _SHOWN_LINES else {})}
        missing = find_missing_setup(said)
        if missing is not None:
            return SchedulerFailed(missing[0], context=context | {"said": lines[-1]}, hint=missing[1])
        return SchedulerFailed(f"{done.argv[0]}: {what}", context=context, hint=find_advice(said))


def _read_own_error(output: bytes) -> KedgeError | None:
    """The local queue is kedge itself, and its errors are what they are."""
    if not output.startswith(b"{"):
        return None
    import json  # late: other schedulers print no JSON here

    try:
        told = json.loads(output)
    except ValueError:
        return None
    return rebuild_error(told) if "error" in told and "message" in told else None


def open_cluster(settings: Settings, environ: Mapping[str, str], *, described: str = "") -> Cluster:
    """The site that was asked for, or the one this is; `described` is what a description names, which flags beat."""
    if described and settings.sources["site"].kind not in ("flag", "environment"):
        settings = replace(settings, site=described)
    site = choose_site(settings, environ)
    backend = find_backend(site.scheduler)
    records = Records(find_record_root(settings, site, environ))
    records.refuse_intruders()
    return Cluster(site, backend, find_user(environ), records)


def find_user(environ: Mapping[str, str]) -> str:
    """The user's name, as schedulers know it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user of a container, or of a directory service that does not answer
        return environ.get("USER") or environ.get("LOGNAME") or str(os.getuid())
