# SPDX-License-Identifier: BSD-3-Clause
"""The cluster that jobs go to: site, scheduler backend, records. Only this file runs the scheduler's programs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from kedge.base.frozen import frozen, replace
from kedge.cluster.schedulers.backend import Backend, Query
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.site import Site
from kedge.cluster.sites.find_site import choose_site, require_settings
from kedge.errors import KedgeError, NoScheduler, ProgramFailed, ProgramMissing, SchedulerFailed, rebuild_error
from kedge.jobs.records import Records, find_record_root
from kedge.system.lean_programs import Finished
from kedge.system.owned_names import find_user_name
from kedge.system.settings import Settings

_PATIENCE = 120.0  # seconds; a controller that restarts answers within that
_ADDRESS = r"^\w+: (error: )?"  # sbatch: error:
_SHOWN_LINES = 5


@frozen
class Cluster:
    """A site with the backend of its scheduler and the records of one user."""

    site: Site
    backend: Backend
    user: str
    records: Records

    def ask(self, query: Query) -> str | None:
        """The output of a program of the scheduler; None if it failed and is allowed to."""
        try:
            done = self.call(query.argv, query.environment)
        except SchedulerFailed:
            if query.may_fail:
                return None
            raise
        if done.status:
            from kedge.cluster.schedulers.advice import is_unreachable  # late: only for a failure

            if not query.may_fail or is_unreachable(done.errors.decode(errors="replace")):
                raise self.explain_failure(done)
        text = done.output.decode(errors="replace")
        # a program that fails for one unknown job still prints the others
        return text if text.strip() or not done.status else None

    def call(self, argv: Sequence[str], changes: Sequence[tuple[str, str | None]] = ()) -> Finished:
        """Run a program of the scheduler, whatever its status; `changes` sets variables, None unsets one."""
        from kedge.system.process import run_program  # late: a submission calls no other program than its own

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
                problem.message, hint="the scheduler may be busy or down: try again in a minute"
            ) from problem

    def explain_missing(self, program: str, problem: ProgramMissing) -> KedgeError:
        """The error for a program of the scheduler that is not installed."""
        return NoScheduler(
            f"'{program}' was not found, and site {self.site.name} needs it for {self.backend.name}",
            context=problem.context,
            hint=problem.hint or "choose another site with --site; kedge site detect shows which site this is",
        )

    def require_configuration(self, environ: Mapping[str, str]) -> None:
        """Refuse at once what the scheduler's programs refuse after a minute."""
        require_settings(self.backend.name, environ)

    def explain_failure(self, done: Finished) -> KedgeError:
        """The error for a program of the scheduler that failed: its messages without its name before each line."""
        from kedge.cluster.schedulers.advice import find_advice, find_missing_setup  # late: only for a failure

        own = _read_own_error(done.output)
        if own is not None:
            return own
        said = (done.errors or done.output).decode(errors="replace").strip()
        lines = [re.sub(_ADDRESS, "", line).strip() for line in said.splitlines() if line.strip()]
        what = "; ".join(lines[-_SHOWN_LINES:]) or f"exit code {done.status} without a message"
        context = {"command": shlex.join(done.argv), **({"said": said[-2000:]} if len(lines) > _SHOWN_LINES else {})}
        missing = find_missing_setup(said)
        if missing is not None:
            return SchedulerFailed(missing[0], context=context | {"said": lines[-1]}, hint=missing[1])
        return SchedulerFailed(f"{done.argv[0]}: {what}", context=context, hint=find_advice(said))


def _read_own_error(output: bytes) -> KedgeError | None:
    """The error as kedge printed it: the programs of the local queue are kedge itself."""
    if not output.startswith(b"{"):
        return None
    import json  # late: other schedulers print no JSON here

    try:
        printed = json.loads(output)
    except ValueError:
        return None
    return rebuild_error(printed) if "error" in printed and "message" in printed else None


def open_cluster(settings: Settings, environ: Mapping[str, str], *, described: str = "") -> Cluster:
    """The site that was asked for, else the detected one; `described` is the site of a kedge.toml, which flags beat."""
    if described and settings.sources["site"].kind not in ("flag", "environment"):
        settings = replace(settings, site=described)
    site = choose_site(settings, environ)
    backend = find_backend(site.scheduler)
    records = Records(find_record_root(settings, site, environ))
    records.refuse_intruders()
    return Cluster(site, backend, find_user_name(environ), records)
