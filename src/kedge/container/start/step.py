# SPDX-License-Identifier: BSD-3-Clause
"""A container as a child process, for callers that go on afterwards: a build, a launch, a Python program.

`run` replaces its process with the program, so it cannot be called twice. A step is another process, which can be run
again, and at the same time from several threads. Failures of kedge itself are raised in the caller.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kedge.system.kedge_child import OWN_FAILURE, read_error, run_kedge
from kedge.system.lean_programs import Finished


def run_step(
    root: str,
    argv: Sequence[str] | None,
    *,
    binds: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    directory: str = "",
    options: Sequence[str] = (),
    capture: bool = True,
    timeout: float | None = None,
) -> Finished:
    """Run `argv` in a container, or the image's run script if it is None; returns the status and, captured, the output.

    `root` is a sandbox directory, an image file or a reference. `binds` and `options` are those of `kedge exec`; values
    of `environment` arrive unchanged. A failure of kedge itself is raised by its own class; without `capture` kedge
    reports it on standard error, and the status is OWN_FAILURE.

    The step ends when the program and all that hold its output have ended. With `--pid` among the options, processes
    that the program left behind end with it, also after `timeout` seconds.
    """
    words = ["exec" if argv is not None else "run"]
    words += [word for bind in binds for word in ("--bind", bind)]
    words += ["--no-eval"] if environment else []
    words += ["--pwd", directory] if directory else []
    words += [*options, root, *(argv or [])]
    done = run_kedge(
        words,
        environment=_set_variables(environment or {}),
        timeout=timeout,
        capture=capture,
        name=name_step(root, argv),
    )
    problem = read_error(done.output) if done.status == OWN_FAILURE else None
    if problem is not None:
        raise problem
    return done


def name_step(root: str, argv: Sequence[str] | None) -> str:
    """What messages call the step."""
    return argv[0] if argv else f"kedge run {root}"


def _set_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Our environment with the variables for the container; not as options, which every user of the host can read."""
    environment = dict(os.environ)
    for name, value in variables.items():
        environment.pop(f"KEDGEENV_{name}", None)  # it would win
        environment[f"APPTAINERENV_{name}"] = value
    return environment
