# SPDX-License-Identifier: BSD-3-Clause
"""`kedge keyserver`: the key servers that kedge asks, in order: the setting `keyserver` in your own file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.errors import InvalidSetting, UsageError
from kedge.image.trust.keyserver import normalize_server, split_servers
from kedge.system.config import change_setting

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands, as Apptainer's."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add = commands.add_parser("add", help="Add a key server")
    add.add_argument("url", metavar="URL", help="such as https://keys.openpgp.org")
    add.add_argument("-o", "--order", metavar="N", type=int, default=0, help="position in the list (default: last)")
    add.add_argument("-i", "--insecure", action="store_true", help="allow http")
    commands.add_parser("list", help="List key servers in the order that kedge asks them")
    remove = commands.add_parser("remove", help="Remove a key server")
    remove.add_argument("url", metavar="URL")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    servers = _change(arguments, split_servers(console.settings.keyserver))
    if arguments.command != "list":

        def choose() -> str:
            servers[:] = _change(arguments, split_servers(console.read_settings().keyserver))
            return ",".join(servers)

        path = change_setting("keyserver", choose, console.environ)
        console.progress.note(f"set the key servers in {path}")
        _warn_of_variable(console)
    if console.json:
        console.print_json(servers)
    rows = [(f"#{number}", server) for number, server in enumerate(servers, 1)]
    if arguments.command == "list":
        console.print_table(("order", "key server"), rows)
    return 0


def _change(arguments: argparse.Namespace, servers: list[str]) -> list[str]:
    """The list as the subcommand leaves it; refuses what cannot be done."""
    if arguments.command == "add":
        return _add(arguments, servers)
    if arguments.command == "remove":
        return _remove(normalize_server(arguments.url), servers)
    return servers


def _add(arguments: argparse.Namespace, servers: list[str]) -> list[str]:
    server = normalize_server(arguments.url)
    if server.startswith("http://") and not arguments.insecure:
        raise UsageError(
            f"{arguments.url} uses http, which others on the network can read and change",
            hint="use https, or add --insecure",
        )
    if server in servers:
        raise InvalidSetting(f"{server} is already in the list", hint="show the list: kedge keyserver list")
    if not 0 <= arguments.order <= len(servers) + 1:
        raise UsageError(f"--order {arguments.order} is out of range", hint=f"1 to {len(servers) + 1}")
    place = arguments.order - 1 if arguments.order else len(servers)
    return [*servers[:place], server, *servers[place:]]


def _remove(server: str, servers: list[str]) -> list[str]:
    if server not in servers:
        raise InvalidSetting(f"{server} is not in the list of key servers", hint=f"the list: {', '.join(servers)}")
    if len(servers) == 1:
        raise InvalidSetting(
            f"{server} is the only key server", hint="add another one first; 'kedge verify --local' uses none"
        )
    return [other for other in servers if other != server]


def _warn_of_variable(console: Console) -> None:
    if console.settings.sources["keyserver"].kind == "environment":
        console.progress.warn(
            "the variable KEDGE_KEYSERVER is set and takes precedence. Remove it: unset KEDGE_KEYSERVER"
        )
