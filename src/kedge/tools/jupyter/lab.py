# SPDX-License-Identifier: BSD-3-Clause
"""`kedge jupyter lab`: JupyterLab of an image, with its address and the tunnel that brings it to a laptop."""

from __future__ import annotations

import os
import secrets
import shlex
import stat
from collections.abc import Mapping, Sequence

from kedge.base.frozen import JsonValue, frozen
from kedge.cluster.schedulers.choose import list_facts
from kedge.errors import NotebookProblem, UsageError
from kedge.launch.surroundings import list_busy_ports
from kedge.system.owned_names import find_user_name
from kedge.tools.jupyter.image_python import ImagePython

_FIRST_PORT = 8888
_PORTS = 1000


@frozen
class LabPlan(JsonValue):
    """A server that is about to start."""

    url: str
    token: str
    host: str
    port: int
    tunnel: str
    argv: tuple[str, ...]  # words of kedge


def choose_port(asked: int | None) -> int:
    """The port that was asked for, or the first free one from 8888 on."""
    busy = list_busy_ports()
    if asked is not None:
        if asked in busy or not 0 < asked < 65536:
            raise UsageError(f"port {asked} cannot be used here", hint="leave --port out: kedge finds a free one")
        return asked
    free = (port for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS) if port not in busy)
    return next(free, _FIRST_PORT)


def require_lab(image: str, python: ImagePython) -> None:
    """Refuse an image without JupyterLab, and say what to do."""
    if not python.jupyterlab:
        raise NotebookProblem(
            f"{image} has no JupyterLab",
            hint=f"use a JupyterLab of your own with a kernel in the image: kedge jupyter install {image} "
            "(or build an image with 'pip install jupyterlab')",
        )


def plan_lab(
    image: str,
    python: ImagePython,
    *,
    options: Sequence[str] = (),
    arguments: Sequence[str] = (),
    port: int,
    address: str = "",
    login: str = "",
    environ: Mapping[str, str],
) -> LabPlan:
    """In a job it listens on the node's address, which the login node reaches; elsewhere on this host alone."""
    hosts = (environ.get(facts.submit_host, "") for facts in list_facts() if facts.has_job(environ))
    login = login or next(hosts, "")
    here = os.uname().nodename
    is_remote = bool(login) and login.partition(".")[0] != here.partition(".")[0]
    listen = address or (here if is_remote else "127.0.0.1")
    words = ["exec", *options, image, python.program, "-m", "jupyterlab", "--no-browser"]
    words += [f"--ip={listen}", f"--port={port}", "--ServerApp.port_retries=0"]
    words += ["--allow-root"] if os.geteuid() == 0 else []
    token = secrets.token_hex(24)
    target = here if is_remote else "localhost"
    return LabPlan(
        url=f"http://localhost:{port}/lab?token={token}",
        token=token,
        host=here,
        port=port,
        tunnel=shlex.join(["ssh", "-N", "-L", f"{port}:{target}:{port}", f"{find_user_name(environ)}@{login or here}"]),
        argv=(*words, *arguments),
    )


def close_log(file: int) -> bool:
    """Let nobody else read an open file that the token is about to be printed into; whether others could."""
    status = os.fstat(file)
    is_open = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and bool(status.st_mode & 0o044)
    if is_open:
        os.fchmod(file, stat.S_IMODE(status.st_mode) & ~0o077)
    return is_open


def hand_over_token(plan: LabPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the server: every user of the host can read command lines, and no other user this."""
    return {**environ, "APPTAINERENV_JUPYTER_TOKEN": plan.token}
