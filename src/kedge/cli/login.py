# SPDX-License-Identifier: BSD-3-Clause
"""The login options of all verbs that contact a registry."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.base.reference import Reference
    from kedge.cli.console import Console
    from kedge.image.registry.access_options import AccessOptions


def add_login(parser: argparse._ActionsContainer) -> None:
    """Apptainer's two: ask on the terminal, or read another credentials file."""
    parser.add_argument("--docker-login", action="store_true", help="prompt for user name and password")
    parser.add_argument("--authfile", type=Path, metavar="FILE", help="read credentials from this docker-config.json")


def read_access(arguments: argparse.Namespace, console: Console, reference: Reference | None) -> AccessOptions:
    """The login that the options name; --docker-login prompts for it."""
    from kedge.image.registry.access_options import AccessOptions

    login = None
    if arguments.docker_login:
        from kedge.image.registry.credentials import Credential, make_login  # late: few are asked for a password
        from kedge.image.registry.secret import Secret

        where = (reference.registry if reference else "") or "the registry"
        default = "$oauthtoken" if where == "nvcr.io" else ""
        user = console.ask(f"user name for {where}{f' [{default}]' if default else ''}: ") or default
        password = Secret(console.ask_secret(f"password or API key of {user}: "))
        login = Credential(make_login(user, password), "--docker-login")
    return AccessOptions(login=login, authfile=arguments.authfile, username=reference.user if reference else None)
