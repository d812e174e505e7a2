# SPDX-License-Identifier: BSD-3-Clause
"""The options that say who asks a registry, shared by the verbs that go there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.model.reference import Reference
    from kedge.registry.client_setup import AccessOptions


def add_login(parser: argparse.ArgumentParser) -> None:
    """Apptainer's two: ask on the terminal, or take another file of credentials."""
    parser.add_argument("--docker-login", action="store_true", help="ask for user name and password")
    parser.add_argument("--authfile", type=Path, metavar="FILE", help="docker-config.json to take credentials from")


def read_access(arguments: argparse.Namespace, console: Console, reference: Reference) -> AccessOptions:
    """What was said, and asked for, about the login."""
    from kedge.registry.client_setup import AccessOptions
    from kedge.registry.credentials import Credential, make_login
    from kedge.registry.secret import Secret

    login = None
    if arguments.docker_login:
        where = reference.registry or "the registry"
        default = "$oauthtoken" if where == "nvcr.io" else ""
        user = console.ask(f"user name for {where}{f' [{default}]' if default else ''}: ") or default
        password = Secret(console.ask_secret(f"password or API key of {user}: "))
        login = Credential(make_login(user, password), "--docker-login")
    return AccessOptions(login=login, authfile=arguments.authfile, username=reference.user)
