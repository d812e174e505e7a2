# SPDX-License-Identifier: BSD-3-Clause
"""A container as a child of this process, as often as somebody wants one: a step of a program, a build or a launch.

`run` cannot be called twice, because it becomes the program. So this is another process, whose own failures are raised
here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kedge.posix.kedge_child import OWN_FAILURE, read_error, run_kedge
from kedge.posix.process import Finished


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
    """Run `argv` in a container, or its image's own script; returns how it ended, and with `capture` what it printed.

    `root` is a sandbox, an image file or a reference. `binds` and `options` are as `kedge exec` takes them, values of
    `environment` arrive as they are. What kedge itself cannot do is raised by its own class; without `capture` it is
    said on standard error, and shows as OWN_FAILURE.
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
    """What messages call it."""
    return argv[0] if argv else f"kedge run {root}"


def _set_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Our environment with variables for the container; not as options, which everybody on the machine can read."""
    environment = dict(os.environ)
    for name, value in variables.items():
        environment.pop(f"KEDGEENV_{name}", None)  # it would win
        environment[f"APPTAINERENV_{name}"] = value
    return environment
