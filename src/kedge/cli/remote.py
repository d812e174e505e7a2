# SPDX-License-Identifier: BSD-3-Clause
"""`kedge remote`: the servers behind library://, in the file that Apptainer reads too."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings
from kedge.errors import UsageError
from kedge.ops.setup import remotes
from kedge.registry.secret import Secret

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.registry.client_setup import Access

_GLOBAL = "kedge does not change files of the site"


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands, as Apptainer's."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add = commands.add_parser("add", help="Add a remote and use it")
    add.add_argument("name", metavar="NAME", help="what it is to be called")
    add.add_argument("uri", metavar="ADDRESS", help="such as cloud.sylabs.io")
    add.add_argument("-i", "--insecure", action="store_true", help="reach it by http")
    add.add_argument("-n", "--no-default", action="store_true", help="do not use it yet")
    add.add_argument("--no-login", action="store_true", help="do not ask for a token")
    use = commands.add_parser("use", help="Choose the remote for library://")
    use.add_argument("name", metavar="NAME")
    use.add_argument("-e", "--exclusive", action="store_true", help=f"refused: {_GLOBAL}")
    commands.add_parser("list", help="List remotes")
    status = commands.add_parser("status", help="Check the services of a remote")
    login = commands.add_parser("login", help="Store a token for a remote")
    logout = commands.add_parser("logout", help="Remove the token of a remote")
    for each in (status, login, logout):
        each.add_argument("name", metavar="NAME", nargs="?", default="", help="default: the remote in use")
    remove = commands.add_parser("remove", help="Remove a remote")
    remove.add_argument("name", metavar="NAME")
    for each in (add, use, remove):
        each.add_argument("-g", "--global", dest="site", action="store_true", help=f"refused: {_GLOBAL}")
    for each in (add, login):
        each.add_argument("--tokenfile", type=Path, metavar="FILE", help="read the token from this file")
    login.add_argument("-p", "--password", metavar="TOKEN", help="the token; visible to others in 'ps'")
    login.add_argument("-i", "--insecure", action="store_true", help="check the token by http")
    login.add_argument("--password-stdin", action="store_true", help="read the token from standard input")
    for each in commands.choices.values():
        each.add_argument(
            "-c", "--config", type=Path, metavar="FILE", help="use this file, not ~/.apptainer/remote.yaml"
        )
    for each in (add, login, status):
        add_settings(each, "ca_bundle", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    if getattr(arguments, "site", False) or getattr(arguments, "exclusive", False):
        raise UsageError(f"{_GLOBAL}: --global and --exclusive are for root with Apptainer itself", hint="leave it out")
    file = remotes.RemoteConfig.of(console.environ, arguments.config)
    commands = {"add": _add, "use": _use, "list": _list, "status": _status, "login": _login, "logout": _logout}
    commands["remove"] = _remove
    commands[arguments.command](arguments, console, file)
    return 0


def _add(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    from kedge.runtime.command_line.flags import read_truth  # late: one subcommand

    is_insecure = arguments.insecure or bool(read_truth(console.environ.get("APPTAINER_ADD_INSECURE", "")))
    remote = remotes.make_remote(arguments.name, arguments.uri, is_insecure=is_insecure)
    token = None if arguments.no_login else _read_token(arguments, console)
    if token is not None:
        with _open_access(console) as access:
            remotes.check_token(access.transport, remote, token)
    file.add(remote, use=not arguments.no_default)
    if token is not None:
        file.set_token(remote, token)
    _tell(console, file, f'Remote "{remote.name}" added.')


def _use(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    file.use(arguments.name)
    _tell(console, file, f'Remote "{arguments.name}" now in use.')


def _remove(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    file.remove(arguments.name)
    _tell(console, file, f'Remote "{arguments.name}" removed.')


def _list(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    del arguments
    _tell(console, file, "")
    found = file.read()
    rows = [
        (
            remote.name,
            remote.uri,
            "✓" if remote.name == found.active else "",
            "✓" if remote.is_site else "",
            "✓" if remote.is_exclusive else "",
            "✗!" if remote.is_insecure else "✓",
        )
        for remote in found.known.values()
    ]
    console.print_table(("NAME", "URI", "DEFAULT?", "GLOBAL?", "EXCLUSIVE?", "SECURE?"), rows)


def _status(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    remote = file.find(arguments.name)
    console.progress.note(f"Checking status of remote: {remote.name}")
    with _open_access(console) as access:
        services = remotes.check_services(access.transport, remote)
        if remote.token is not None:
            remotes.check_token(access.transport, remote, remote.token)
    if console.json:
        told = [{"service": each.name, "uri": each.uri, "version": each.version or None} for each in services]
        console.print_json({"remote": remote.name, "services": told, "logged_in": remote.token is not None})
    rows = [(each.name, "OK" if each.version else "N/A", each.version, each.uri) for each in services]
    console.print_table(("SERVICE", "STATUS", "VERSION", "URI"), rows)
    for each in services:
        if each.problem:
            console.progress.warn(f"{each.name} at {each.uri}: {each.problem}")
    said = (
        "Valid authentication token set (logged in)." if remote.token else "No authentication token set (logged out)."
    )
    console.print(f"\n{said}")


def _login(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    remote = file.find(arguments.name)
    token = _read_token(arguments, console, must=True)
    assert token is not None
    asked = replace(remote, is_insecure=remote.is_insecure or arguments.insecure)
    with _open_access(console) as access:
        remotes.check_token(access.transport, asked, token)
    file.set_token(remote, token)
    _tell(console, file, f"Access Token Verified! Token stored in {file.path}")


def _logout(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    remote = file.find(arguments.name)
    if remote.token is not None:
        file.set_token(remote, None)
    _tell(console, file, "Logout succeeded")


def _read_token(arguments: argparse.Namespace, console: Console, *, must: bool = False) -> Secret | None:
    """The token of a login; None where nobody gives one and none is needed."""
    if arguments.tokenfile is not None:
        return remotes.read_token(arguments.tokenfile)
    if getattr(arguments, "password", None):
        return Secret(arguments.password)
    if getattr(arguments, "password_stdin", False):
        return Secret(sys.stdin.readline(4096).strip())
    if not must and not console.is_interactive:
        return None
    typed = console.ask_secret("Access Token: ").strip()
    if must and not typed:
        raise UsageError("the token is empty", hint="kedge remote login --tokenfile FILE")
    return Secret(typed) if typed else None


def _tell(console: Console, file: remotes.RemoteConfig, text: str) -> None:
    if console.json:
        found = file.read()
        known = [{"name": each.name, "uri": each.uri, "global": each.is_site} for each in found.known.values()]
        console.print_json({"active": found.active, "remotes": known})
    if text:
        console.progress.note(text)


def _open_access(console: Console) -> Access:
    from kedge.ops.setup.registries import RegistryOptions  # late: most subcommands ask nobody

    settings = console.settings
    return RegistryOptions(
        ca_bundle=settings.ca_bundle, retries=settings.retries, environ=console.environ, progress=console.progress
    ).open_access()
