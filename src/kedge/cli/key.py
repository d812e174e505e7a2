# SPDX-License-Identifier: BSD-3-Clause
"""`kedge key`: signing keys, in key rings shared with Apptainer."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.redaction import redact
from kedge.cli.sign import add_keysdir, choose_key, read_piped_line
from kedge.errors import KedgeError, UsageError
from kedge.image import keys
from kedge.image.signatures import choose_block, open_ring
from kedge.image.trust.keyring import KeyRing, select_key
from kedge.image.trust.keyserver import DEFAULT_SERVER
from kedge.image.trust.openpgp.keys import KeyBlock
from kedge.image.trust.openpgp.secret import Owner
from kedge.image.trust.openpgp.signature import format_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands, as Apptainer's."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _configure_newpair(commands.add_parser("newpair", help="Create a key pair"))
    listing = commands.add_parser("list", help="List the keys of a key ring")
    listing.add_argument("-s", "--secret", action="store_true", help="list secret keys")
    importing = commands.add_parser("import", help="Import keys from a file")
    importing.add_argument("file", metavar="FILE", type=Path)
    exporting = commands.add_parser("export", help="Export a key to a file")
    exporting.add_argument("file", metavar="FILE", type=Path)
    exporting.add_argument("-s", "--secret", action="store_true", help="export the secret key")
    exporting.add_argument("-a", "--armor", action="store_true", help="write ASCII armor")
    exporting.add_argument("-k", "--keyidx", metavar="N", type=int, help="number of the key in 'kedge key list'")
    exporting.add_argument("--fingerprint", metavar="HEX", help="fingerprint of the key")
    exporting.add_argument("-F", "--force", action="store_true", help="replace an existing file")
    removing = commands.add_parser("remove", help="Remove a key")
    removing.add_argument("fingerprint", metavar="FINGERPRINT")
    removing.add_argument("-p", "--public", action="store_true", help="only the public key (default)")
    removing.add_argument("-s", "--secret", action="store_true", help="only the secret key")
    removing.add_argument("-b", "--both", action="store_true", help="public and secret key")
    searching = commands.add_parser("search", help="Search a key server")
    searching.add_argument("text", metavar="TEXT", help="name, e-mail address, fingerprint or key id")
    searching.add_argument("-l", "--long-list", action="store_true", help="show algorithm, dates and state too")
    for name, text in (("pull", "Get a key from a key server"), ("push", "Send a key to a key server")):
        commands.add_parser(name, help=text).add_argument("fingerprint", metavar="FINGERPRINT")
    for name, command in commands.choices.items():
        add_keysdir(command, "-d")
        if name in ("search", "pull", "push", "newpair"):
            command.add_argument("-u", "--url", metavar="URL", help=f"key server (default: {DEFAULT_SERVER})")
        if name not in ("search", "newpair"):
            command.add_argument(
                "-g", "--global", dest="site", action="store_true", help="use the site's public key ring"
            )


def _configure_newpair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-N", "--name", metavar="TEXT", help="name of the owner")
    parser.add_argument("-E", "--email", metavar="TEXT", help="e-mail address of the owner")
    parser.add_argument("-C", "--comment", metavar="TEXT", help="comment")
    parser.add_argument(
        "-b", "--bit-length", metavar="N", type=int, default=4096, help="size of the key (default: 4096)"
    )
    parser.add_argument(
        "-P",
        "--password",
        metavar="TEXT",
        help="passphrase; visible to other users in 'ps' (default: prompt)",
    )
    parser.add_argument("--no-password", action="store_true", help="make a secret key without a passphrase")
    parser.add_argument(
        "-U",
        "--push",
        nargs="?",
        const="true",
        default="false",
        choices=("true", "false"),
        help="send it to the key server",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands: dict[str, Callable[[argparse.Namespace, KeyRing, Console], None]] = {
        "newpair": _make,
        "list": _list,
        "import": _import,
        "export": _export,
        "remove": _remove,
        "search": _search,
        "pull": _pull,
        "push": _push,
    }
    is_site = getattr(arguments, "site", False)
    ring = KeyRing.open_global(console.environ) if is_site else open_ring(console.environ, arguments.keysdir)
    if is_site and getattr(arguments, "secret", False):
        raise UsageError("the site's key ring holds public keys only")
    commands[arguments.command](arguments, ring, console)
    return 0


def _make(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    name = _answer(arguments.name, "Enter your name (e.g., John Doe): ", console)
    email = _answer(arguments.email, "Enter your email address: ", console)
    comment = arguments.comment or ""
    if arguments.comment is None and console.is_interactive:
        comment = console.ask("Enter optional comment (e.g., development keys): ")
    owner = Owner(name, email, comment)
    passphrase = _ask_new_passphrase(arguments, console)
    console.progress.note(f"Generating an OpenPGP key pair of {arguments.bit_length} bits")
    made = keys.make_key(ring, keys.NewKey(owner, passphrase, arguments.bit_length))
    if console.json:
        console.print_json(made.as_dict())
    console.print(f"Key with fingerprint {made.fingerprint} added to {ring.folder}")
    if arguments.push == "true":
        keys.push_key(
            _open_fetch(console), _server(arguments, console), select_key(ring.load_public(), made.fingerprint, "")
        )


def _answer(given: str | None, question: str, console: Console) -> str:
    return given if given is not None else console.ask(question)


def _ask_new_passphrase(arguments: argparse.Namespace, console: Console) -> str | None:
    if arguments.no_password:
        return None
    if arguments.password is not None:
        return str(arguments.password) or None
    if not console.is_interactive:
        line = read_piped_line()
        if not line:
            raise UsageError(
                "cannot prompt for a passphrase: no terminal",
                hint="pipe it to standard input, or use --no-password for a key without a passphrase",
            )
        return line.rstrip("\r\n") or None
    first = console.ask_secret("Enter a passphrase: ")
    if first != console.ask_secret("Enter it again: "):
        raise UsageError("the two passphrases differ", hint="try again")
    if not first and not console.confirm(
        "Without a passphrase anybody who can read the file can sign with the key. Continue?"
    ):
        raise UsageError("no key was made")
    return first or None


def _list(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    listed = keys.list_keys(ring, secret=arguments.secret)
    if console.json:
        console.print_json([item.as_dict() for item in listed])
    path = ring.secret_path if arguments.secret else ring.public_path
    console.print(f"{'Private' if arguments.secret else 'Public'} key listing ({path}):")
    for item in listed:
        console.print()
        console.print(f"{str(item.index) + ')':<3} User:              {', '.join(item.user_ids) or '(none)'}")
        console.print(f"    Creation time:     {format_time(item.created) if item.created is not None else 'unknown'}")
        console.print(f"    Fingerprint:       {item.fingerprint}")
        console.print(f"    Length (in bits):  {item.bits or 'unknown'}")
        if item.expires is not None:
            console.print(f"    Expires:           {format_time(item.expires)}")
        if item.problem:
            console.print(f"    Not usable:        {item.problem}")


def _import(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    _show_imported(keys.import_keys(ring, arguments.file), console)


def _show_imported(imported: list[keys.Imported], console: Console) -> None:
    if console.json:
        console.print_json(
            [{**item.summary.as_dict(), "ring": item.ring, "outcome": item.outcome} for item in imported]
        )
    words = {"added": "added to", "updated": "updated in", "unchanged": "already in"}
    for item in imported:
        console.print(f"Key with fingerprint {item.summary.fingerprint} {words[item.outcome]} the {item.ring} keyring")
        if item.summary.problem:
            console.progress.warn(f"key {item.summary.fingerprint} cannot be used: {item.summary.problem}")


def _export(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    blocks = ring.load_secret() if arguments.secret else ring.load_public()
    where = str(ring.secret_path if arguments.secret else ring.public_path)
    block = _select(blocks, arguments, console, where)
    keys.export_key(block, arguments.file, armor=arguments.armor, force=arguments.force)
    if console.json:
        console.print_json({"fingerprint": block.fingerprint, "secret": arguments.secret, "file": str(arguments.file)})
    kind = "Private" if arguments.secret else "Public"
    console.print(f"{kind} key with fingerprint {block.fingerprint} correctly exported to file: {arguments.file}")


def _select(blocks: list[KeyBlock], arguments: argparse.Namespace, console: Console, where: str) -> KeyBlock:
    if arguments.fingerprint:
        return select_key(blocks, arguments.fingerprint, where)
    return choose_block(
        blocks, arguments.keyidx, lambda candidates: choose_key(candidates, console), int(time.time()), where
    )


def _remove(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    secret = arguments.secret or arguments.both
    public = arguments.both or arguments.public or not secret
    removed = keys.remove_key(ring, arguments.fingerprint, public=public, secret=secret)
    if console.json:
        console.print_json({"fingerprint": arguments.fingerprint, "rings": removed})
    for name in removed:
        console.print(f"Key {arguments.fingerprint} removed from the {name} keyring")


def _server(arguments: argparse.Namespace, console: Console) -> str:
    return arguments.url or console.settings.keyserver


def _open_fetch(console: Console) -> keys.Fetch:
    return keys.open_fetch(console.environ, console.settings.ca_bundle)


def _search(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    del ring
    results = keys.search_keys(_open_fetch(console), _server(arguments, console), arguments.text)
    if console.json:
        console.print_json([{name: getattr(item, name) for name in item.__slots__} for item in results])
    console.print(f"Showing {len(results)} results")
    rows = [
        (
            item.fingerprint,
            item.algorithm,
            item.bits,
            format_time(item.created or 0),
            item.flags,
            ", ".join(item.user_ids),
        )
        for item in results
    ]
    if arguments.long_list:
        console.print_table(("fingerprint", "algorithm", "bits", "created", "state", "name/email"), rows)
    else:
        console.print_table(("fingerprint", "bits", "name/email"), [(row[0], row[2], row[5]) for row in rows])


def _pull(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    _show_imported(
        [keys.pull_key(ring, _open_fetch(console), _server(arguments, console), arguments.fingerprint)], console
    )


def _push(arguments: argparse.Namespace, ring: KeyRing, console: Console) -> None:
    block = select_key(ring.load_public(), arguments.fingerprint, str(ring.public_path))
    server = _server(arguments, console)
    try:
        server = keys.push_key(_open_fetch(console), server, block)
    except KedgeError as problem:
        problem.context.setdefault("key server", server)
        raise
    if console.json:
        console.print_json({"fingerprint": block.fingerprint, "server": redact(server)})
    console.print(f"public key '{block.fingerprint}' pushed to {redact(server)}")
