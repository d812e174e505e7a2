# SPDX-License-Identifier: BSD-3-Clause
"""`kedge remote`: the servers behind library://, in the file that Apptainer reads too."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.cli.options import add_settings
from kedge.errors import UsageError
from kedge.image import remotes
from kedge.image.registry.secret import Secret

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.image.registry.client_setup import Access

_GLOBAL = "kedge does not change the site's files"


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands, as Apptainer's."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add = commands.add_parser("add", help="Add a remote and use it")
    add.add_argument("name", metavar="NAME", help="name of the new remote")
    add.add_argument("uri", metavar="ADDRESS", help="such as cloud.sylabs.io")
    add.add_argument("-i", "--insecure", action="store_true", help="use http, not https")
    add.add_argument("-n", "--no-default", action="store_true", help="do not make it the remote in use")
    add.add_argument("--no-login", action="store_true", help="do not ask for a token")
    use = commands.add_parser("use", help="Choose the remote for library://")
    use.add_argument("name", metavar="NAME")
    use.add_argument("-e", "--exclusive", action="store_true", help=f"refused: {_GLOBAL}")
    commands.add_parser("list", help="List remotes")
    status = commands.add_parser("status", help="Check the services of a remote")
    login = commands.add_parser("login", help="Store a token for a remote")
    logout = commands.add_parser("logout", help="Remove the token of a remote")
    for command in (status, login, logout):
        command.add_argument("name", metavar="NAME", nargs="?", default="", help="default: the remote in use")
    remove = commands.add_parser("remove", help="Remove a remote")
    remove.add_argument("name", metavar="NAME")
    for command in (add, use, remove):
        command.add_argument("-g", "--global", dest="site", action="store_true", help=f"refused: {_GLOBAL}")
    for command in (add, login):
        command.add_argument("--tokenfile", type=Path, metavar="FILE", help="read the token from this file")
    login.add_argument("-p", "--password", metavar="TOKEN", help="token; visible to other users in 'ps'")
    login.add_argument("-i", "--insecure", action="store_true", help="check the token over http")
    login.add_argument("--password-stdin", action="store_true", help="read the token from standard input")
    for command in commands.choices.values():
        command.add_argument(
            "-c", "--config", type=Path, metavar="FILE", help="use this file, not ~/.apptainer/remote.yaml"
        )
    for command in (add, login, status):
        add_settings(command, "ca_bundle", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    if getattr(arguments, "site", False) or getattr(arguments, "exclusive", False):
        raise UsageError(
            f"{_GLOBAL}, so --global and --exclusive are refused",
            hint="leave the option out; root can use Apptainer for this",
        )
    file = remotes.RemoteConfig.of(console.environ, arguments.config)
    commands = {"add": _add, "use": _use, "list": _list, "status": _status, "login": _login, "logout": _logout}
    commands["remove"] = _remove
    commands[arguments.command](arguments, console, file)
    return 0


def _add(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    from kedge.container.flags import read_truth  # late: one subcommand

    is_insecure = arguments.insecure or bool(read_truth(console.environ.get("APPTAINER_ADD_INSECURE", "")))
    remote = remotes.make_remote(arguments.name, arguments.uri, is_insecure=is_insecure)
    token = None if arguments.no_login else _read_token(arguments, console)
    if token is not None:
        with _open_access(console) as access:
            remotes.check_token(access.transport, remote, token)
    file.add(remote, use=not arguments.no_default)
    if token is not None:
        file.set_token(remote, token)
    _report(console, file, f'Remote "{remote.name}" added.')


def _use(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    file.use(arguments.name)
    _report(console, file, f'Remote "{arguments.name}" now in use.')


def _remove(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    file.remove(arguments.name)
    _report(console, file, f'Remote "{arguments.name}" removed.')


def _list(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    del arguments
    _report(console, file, "")
    remotes_known = file.read()
    rows = [
        (
            remote.name,
            remote.uri,
            "✓" if remote.name == remotes_known.active else "",
            "✓" if remote.is_site else "",
            "✓" if remote.is_exclusive else "",
            "✗!" if remote.is_insecure else "✓",
        )
        for remote in remotes_known.known.values()
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
        answers = [
            {"service": service.name, "uri": service.uri, "version": service.version or None} for service in services
        ]
        console.print_json({"remote": remote.name, "services": answers, "logged_in": remote.token is not None})
    rows = [(service.name, "OK" if service.version else "N/A", service.version, service.uri) for service in services]
    console.print_table(("SERVICE", "STATUS", "VERSION", "URI"), rows)
    for service in services:
        if service.problem:
            console.progress.warn(f"{service.name} at {service.uri}: {service.problem}")
    state = (
        "Valid authentication token set (logged in)." if remote.token else "No authentication token set (logged out)."
    )
    console.print(f"\n{state}")


def _login(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    remote = file.find(arguments.name)
    token = _read_token(arguments, console, must=True)
    assert token is not None
    asked = replace(remote, is_insecure=remote.is_insecure or arguments.insecure)
    with _open_access(console) as access:
        remotes.check_token(access.transport, asked, token)
    file.set_token(remote, token)
    _report(console, file, f"Access Token Verified! Token stored in {file.path}")


def _logout(arguments: argparse.Namespace, console: Console, file: remotes.RemoteConfig) -> None:
    remote = file.find(arguments.name)
    if remote.token is not None:
        file.set_token(remote, None)
    _report(console, file, "Logout succeeded")


def _read_token(arguments: argparse.Namespace, console: Console, *, must: bool = False) -> Secret | None:
    """The token to log in with; None where none is given and none is needed."""
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


def _report(console: Console, file: remotes.RemoteConfig, text: str) -> None:
    if console.json:
        current = file.read()
        known = [
            {"name": remote.name, "uri": remote.uri, "global": remote.is_site} for remote in current.known.values()
        ]
        console.print_json({"active": current.active, "remotes": known})
    if text:
        console.progress.note(text)


def _open_access(console: Console) -> Access:
    from kedge.image.logins import RegistryOptions  # late: most subcommands make no request

    settings = console.settings
    return RegistryOptions(
        ca_bundle=settings.ca_bundle, retries=settings.retries, environ=console.environ, progress=console.progress
    ).open_access()
