# SPDX-License-Identifier: BSD-3-Clause
"""Docker's credential helpers: programs called docker-credential-NAME that keep passwords for others."""

from __future__ import annotations

import json
import re

from kedge.errors import KedgeError, ProgramFailed
from kedge.posix.process import run_program
from kedge.registry.docker_config import Login
from kedge.registry.secret import Secret

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_TIMEOUT = 30.0
TOKEN_USER = "<token>"  # the user name that marks an identity token


def _ask_helper(name: str, key: str) -> Login | None:
    """The helper's login for `key`, or None; the error of a failed helper does not repeat its output."""
    if not _NAME.match(name):
        raise ProgramFailed(f"'{name}' is not a valid name of a credential helper")
    program = f"docker-credential-{name}"
    done = run_program([program, "get"], stdin=key.encode(), timeout=_TIMEOUT, check=False)
    if done.status:
        said = (done.output + done.errors)[:2000].decode(errors="replace").lower()
        if "not found" in said:  # every helper says so in its own way; status 1 alone can mean anything
            return None
        raise ProgramFailed(f"{program} failed with status {done.status} for {key}")
    return _parse_answer(done.output, program)


def _parse_answer(output: bytes, program: str) -> Login | None:
    try:
        answer = json.loads(output[: 1 << 20])
        username, password = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ProgramFailed(f"{program} sent an answer that is not a login") from None
    if not isinstance(username, str) or not isinstance(password, str):
        raise ProgramFailed(f"{program} sent an answer that is not a login")
    if not password:
        return None
    if username == TOKEN_USER:
        return Login(identity_token=Secret(password))
    return Login(username, Secret(password))


def try_helper(name: str, key: str) -> tuple[Login | None, str | None]:
    """As `_ask_helper`, but a helper that fails is only noted: a public image needs none."""
    try:
        return _ask_helper(name, key), None
    except KedgeError as problem:
        return None, problem.message
