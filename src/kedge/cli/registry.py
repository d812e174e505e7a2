# SPDX-License-Identifier: BSD-3-Clause
"""`kedge registry`: log in to registries and out, list logins and tags, ask for digests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.image.logins import RegistryOptions
    from kedge.image.registry.secret import Secret

_LONGEST_PASSWORD = 64 << 10


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    login = commands.add_parser("login", help="Log in to a registry; Apptainer can use the login, too")
    login.add_argument("registry", metavar="HOST", help="such as nvcr.io, docker.io or localhost:5000")
    login.add_argument("-u", "--username", metavar="USER", help="for nvcr.io: '$oauthtoken', in single quotes")
    login.add_argument(
        "-p", "--password", metavar="PASSWORD", help="visible to other users in 'ps'; use --password-stdin instead"
    )
    login.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
    logout = commands.add_parser("logout", help="Remove a login")
    logout.add_argument("registry", metavar="HOST")
    listing = commands.add_parser("list", help="List logins and where they are stored, without passwords")
    tags = commands.add_parser("tags", help="List the tags of a repository")
    tags.add_argument("repository", metavar="NAME", help="such as nvcr.io/nvidia/pytorch")
    digest = commands.add_parser("digest", help="Print the digest of an image without pulling it")
    digest.add_argument("reference", metavar="REFERENCE", help="such as docker://nvcr.io/nvidia/pytorch:24.03-py3")
    add_login(digest)
    for command in (login, logout, listing):
        command.add_argument(
            "--authfile", type=Path, metavar="FILE", help="use this file, not ~/.apptainer/docker-config.json"
        )
    for command in (login, tags):
        add_settings(command, "no_https", "ca_bundle", "retries")
    add_settings(digest, "architecture", "no_https", "ca_bundle", "retries", "cache_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"login": _login, "logout": _logout, "list": _list, "tags": _tags, "digest": _digest}
    commands[arguments.command](arguments, console)
    return 0


def _login(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.image.logins import log_in, parse_registry

    host = parse_registry(arguments.registry)
    default = "$oauthtoken" if host == "nvcr.io" else ""
    user = arguments.username
    if user is None:
        can_ask = console.is_interactive and not arguments.password_stdin
        user = console.ask(f"user name{f' [{default}]' if default else ''}: ").strip() if can_ask else ""
        user = user or default
    done = log_in(host, user, _read_password(arguments, console, user), _options(arguments, console))
    if console.json:
        console.print_json(
            {"registry": done.registry, "username": done.username, "path": str(done.path), "checked": done.was_checked}
        )
    if not done.was_checked:
        console.progress.warn(f"{done.registry} accepts any login, so the password could not be checked")
    console.print(f"logged in to {done.registry} as {done.username}; stored in {done.path}")


def _read_password(arguments: argparse.Namespace, console: Console, user: str) -> Secret:
    if arguments.password_stdin:
        if arguments.password is not None:
            raise UsageError("--password and --password-stdin exclude each other", hint="leave out one of them")
        return _check_password(sys.stdin.read(_LONGEST_PASSWORD).rstrip("\r\n"))
    if arguments.password is not None:
        return _check_password(arguments.password)
    if not console.is_interactive:
        raise UsageError(
            "cannot prompt for the password or API key: no terminal",
            hint='use --password-stdin: echo "$KEY" | kedge registry login -u USER --password-stdin HOST',
        )
    return _check_password(console.ask_secret(f"password or API key of {user}: "))


def _check_password(text: str) -> Secret:
    from kedge.image.registry.secret import Secret

    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the password is not UTF-8 text", hint="registries accept UTF-8 only") from None
    return Secret(text)


def _logout(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.image.logins import log_out

    done = log_out(arguments.registry, _options(arguments, console))
    if console.json:
        console.print_json({"registry": done.registry, "removed": done.was_there, "still_from": done.still_from})
    console.print(
        f"removed the login for {done.registry} from {done.path}"
        if done.was_there
        else f"no login for {done.registry} in {done.path}"
    )
    if done.still_from:
        console.progress.warn(f"{done.registry} still has another login: {done.still_from}")


def _list(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.image.logins import list_known_logins

    logins = list_known_logins(_options(arguments, console))
    if console.json:
        console.print_json(
            [{"registry": login.registry, "username": login.username, "source": login.source} for login in logins]
        )
    if logins:
        rows = [(login.registry, login.username, login.source) for login in logins]
        console.print_table(("registry", "user", "from"), rows)
    else:
        console.print("no logins. Add one: kedge registry login HOST")


def _tags(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.image.logins import list_tags

    tags = list_tags(arguments.repository, _options(arguments, console))
    if console.json:
        console.print_json(list(tags))
        return
    for tag in tags:
        console.print(tag)


def _digest(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.base.reference import Reference
    from kedge.image.sources.resolve import ask_digest
    from kedge.image.workplace import Workplace

    reference = Reference.parse(arguments.reference)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    digest = ask_digest(reference, workplace)
    if console.json:
        console.print_json({"reference": str(reference), "digest": str(digest)})
        return
    console.print(str(digest))


def _options(arguments: argparse.Namespace, console: Console) -> RegistryOptions:
    from kedge.image.logins import RegistryOptions

    settings = console.settings
    return RegistryOptions(
        authfile=getattr(arguments, "authfile", None),
        no_https=settings.no_https,
        ca_bundle=settings.ca_bundle,
        retries=settings.retries,
        environ=console.environ,
        progress=console.progress,
    )
