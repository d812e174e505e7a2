# SPDX-License-Identifier: BSD-3-Clause
"""`kedge cache`: show, list, clean, limit and verify the cache, and the images unpacked on this node."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from kedge.base.size import format_size
from kedge.cli.options import add_dry_run, add_settings
from kedge.errors import CorruptImage, UsageError
from kedge.image import cache
from kedge.image.node.node_cache_writer import NodeCache, list_node, report_node
from kedge.image.store.eviction import CacheItem, ItemKind
from kedge.system.config import format_size as format_exactly
from kedge.system.settings import SETTINGS, SettingSource, parse_value

if TYPE_CHECKING:
    from kedge.cli.console import Console

_TYPES = ("blob", "image", "record", "partial", "name", "step", "mount", "digest", "fact", "all")
_SHOWN_AT_ONCE = (ItemKind.IMAGE, ItemKind.RECORD, ItemKind.NAME, ItemKind.MOUNT)  # the others with -v
_UNPACKED = "unpacked"  # on this node: not in the cache, which other nodes may share


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    show = commands.add_parser("show", help="Show the cache's path, size, limit and free space")
    listing = commands.add_parser("list", help="List the items in the cache; -v lists every blob")
    listing.add_argument("--type", "-T", choices=(*_TYPES, _UNPACKED), default="all", help="only items of this kind")
    clean = commands.add_parser("clean", help="Remove unused items")
    clean.add_argument("--days", "-D", type=_parse_days, metavar="N", help="only items unused for N days")
    clean.add_argument("--type", "-T", choices=_TYPES, default="all", help="only items of this kind")
    clean.add_argument(
        "--node", action="store_true", help="remove images unpacked on this node, not items of the cache"
    )
    clean.add_argument("--all", action="store_true", help="also images that you built or tagged here (build -t NAME)")
    clean.add_argument("--force", "-f", action="store_true", help="do not ask for confirmation")
    add_dry_run(clean)
    limit = commands.add_parser(
        "limit", help="Show or set the cache limit; least recently used items are removed first"
    )
    limit.add_argument("size", metavar="SIZE", nargs="?", help="such as 20G; 'none' removes the limit")
    verify = commands.add_parser("verify", help="Verify all checksums and images, and remove damaged items")
    verify.add_argument("--contents", action="store_true", help="also decompress all contents of images")
    for command in (show, listing, clean, limit, verify):
        add_settings(command, "cache_directory")
    for command in (show, listing, clean):
        add_settings(command, "node_directory")


def _parse_days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < 1e6:
        raise UsageError(f"--days takes a number, not '{text}'", hint="such as --days 30")
    return days


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"show": _show, "list": _list, "clean": _clean, "limit": _limit, "verify": _verify}
    return commands[arguments.command](arguments, console) or 0


def _show(arguments: argparse.Namespace, console: Console) -> None:
    del arguments
    report = cache.report_cache(console.settings)
    node = report_node(console.settings)
    if console.json:
        console.print_json({**report.as_dict(), "node": node.as_dict() if node else None})
        return
    rows = [("place", report.place, report.place_from), ("limit", _format_limit(report.limit), report.limit_from)]
    rows.append(("size", format_size(report.size), _count_items(sum(usage.count for usage in report.usage.values()))))
    rows += [
        (
            f"{kind}s" if kind is not ItemKind.TEMPORARY else "temporary",
            format_size(usage.size),
            _count_items(usage.count),
        )
        for kind, usage in report.usage.items()
        if usage.count
    ]
    if report.space is not None:
        rows.append(("free", format_size(report.space.free), f"of {format_size(report.space.total)}"))
        if report.space.quota_left is not None:
            quota = f"of {format_size(report.space.quota_limit or 0)}"
            rows.append(("quota left", format_size(report.space.quota_left), quota))
    if node is not None:
        limit = "none" if node.limit is None else format_size(node.limit)
        rows.append(("node", node.place, f"{node.kind}, limit {limit}"))
        rows.append(("unpacked", format_size(node.size), f"{node.count} images"))
    console.print_table(("", "value", "from"), rows)


def _list(arguments: argparse.Namespace, console: Console) -> None:
    entries = [entry for entry in cache.list_cache(console.settings) if entry.kind in _choose_kinds(arguments.type)]
    unpacked = list_node(console.settings) if arguments.type in ("all", _UNPACKED) else []
    if console.json:
        console.print_json([_as_dict(entry) for entry in entries] + [entry.as_dict() for entry in unpacked])
        return
    is_short = not console.verbosity and arguments.type == "all"
    shown = [entry for entry in entries if not is_short or entry.kind in _SHOWN_AT_ONCE]
    rows = [
        (
            str(entry.kind),
            entry.name,
            format_size(entry.size),
            _format_time(entry.used),
            "in use" if entry.in_use else "",
        )
        for entry in shown
    ]
    rows += [
        (_UNPACKED, entry.source, format_size(entry.size), _format_time(entry.used), "in use" if entry.in_use else "")
        for entry in unpacked
    ]
    if rows:
        console.print_table(("kind", "name", "size", "last used", ""), rows)
    hidden = len(entries) - len(shown)
    total = format_size(sum(entry.size for entry in entries))
    if arguments.type != _UNPACKED:
        console.print(f"{_count_items(len(entries))}, {total}" + (f"; -v shows {hidden} more" if hidden else ""))
    if unpacked or arguments.type == _UNPACKED:
        total = format_size(sum(entry.size for entry in unpacked))
        console.print(f"{_count_images(len(unpacked))} on this node, {total}")


def _clean(arguments: argparse.Namespace, console: Console) -> None:
    if arguments.node:
        _clean_node(arguments, console)
        return
    kinds, is_whole = _choose_kinds(arguments.type), arguments.all
    settings = console.settings
    if not console.dry_run and not arguments.force and console.is_interactive:
        unused = cache.clean_cache(settings, kinds, arguments.days, with_tagged=is_whole, dry_run=True)
        question = f"remove {_count_items(len(unused))} ({_sum(unused)}) from {settings.cache_directory}"
        if not unused or not console.confirm(f"{question}{_name_tagged(unused)}?"):
            _report_removed(console, [])
            return
    removed = cache.clean_cache(settings, kinds, arguments.days, with_tagged=is_whole, dry_run=console.dry_run)
    kept = cache.list_tagged(settings) if not is_whole else []
    _report_removed(console, removed, kept=kept)
    if tagged := _name_tagged(removed):
        console.print(tagged.removeprefix(", ").capitalize())
    if kept:
        console.print(f"Kept what was built or tagged here: {', '.join(kept)} (kedge image rm NAME, or --all)")


def _name_tagged(entries: list[CacheItem]) -> str:
    """The names of images among them that may exist nowhere else."""
    names = sorted({entry.tag for entry in entries if entry.tag})
    return f", with the images built or tagged here: {', '.join(names)}" if names else ""


def _clean_node(arguments: argparse.Namespace, console: Console) -> None:
    node = NodeCache(console.settings, console.progress)
    if not console.dry_run and not arguments.force and console.is_interactive:
        unused = node.clean(arguments.days, dry_run=True)
        size = format_size(sum(entry.size for entry in unused))
        if not unused or not console.confirm(f"remove {_count_images(len(unused))} ({size}) from {node.place}?"):
            return
    removed = node.clean(arguments.days, dry_run=console.dry_run)
    if console.json:
        console.print_json({"removed": [entry.as_dict() for entry in removed], "dry_run": console.dry_run})
        return
    for entry in removed if console.verbosity or console.dry_run else ():
        console.print(f"{_UNPACKED} {entry.source} ({format_size(entry.size)})")
    size = format_size(sum(entry.size for entry in removed))
    console.print(f"{'Would remove' if console.dry_run else 'Removed'} {_count_images(len(removed))} ({size})")


def _limit(arguments: argparse.Namespace, console: Console) -> None:
    if arguments.size is None:
        report = cache.report_cache(console.settings)
        if console.json:
            console.print_json({"limit": report.limit, "limit_from": report.limit_from})
        console.print(f"{_format_limit(report.limit)} ({report.limit_from})")
        return
    source = SettingSource("flag", "kedge cache limit")
    size = parse_value(SETTINGS["cache_limit"], arguments.size, source, console.environ)
    removed = cache.limit_cache(console.settings, size)
    if console.settings.sources["cache_limit"].kind != "default":
        console.progress.warn(f"{console.settings.sources['cache_limit']} sets another limit, which takes precedence")
    _report_removed(console, removed)


def _verify(arguments: argparse.Namespace, console: Console) -> int:
    verified = cache.verify_cache(console.settings, console.progress, with_contents=arguments.contents)
    for path in verified.changed:
        console.progress.warn(f"{path} has changed since kedge wrote it; kedge leaves it as it is")
    for fault in verified.faulty.values():
        console.progress.warn(f"{fault}. kedge wrote it wrongly and leaves it as it is: pull or build it again")
    faulty = [{"path": str(path), "problem": fault} for path, fault in verified.faulty.items()]
    changed = [str(path) for path in verified.changed]
    _report_removed(console, verified.broken, "damaged ", changed=changed, faulty=faulty)
    return CorruptImage.exit_code if faulty else 0


def _report_removed(console: Console, removed: list[CacheItem], state: str = "", **more: object) -> None:
    if console.json:
        console.print_json({"removed": [_as_dict(entry) for entry in removed], "dry_run": console.dry_run, **more})
    if console.verbosity or console.dry_run:
        for entry in removed:
            console.print(f"{entry.kind} {entry.name} ({format_size(entry.size)})")
    verb = "Would remove" if console.dry_run else "Removed"
    console.print(f"{verb} {_count_items(len(removed), state)} ({_sum(removed)})")


def _format_limit(limit: int | None) -> str:
    """Format a limit as it is typed: 20G, not 21.5 GB."""
    return "none" if limit is None else format_exactly(limit)


def _sum(entries: list[CacheItem]) -> str:
    return format_size(sum(entry.size for entry in entries))


def _choose_kinds(name: str) -> list[ItemKind]:
    return list(ItemKind) if name == "all" else [kind for kind in ItemKind if kind.value == name]


def _format_time(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def _as_dict(entry: CacheItem) -> dict[str, object]:
    return {
        "kind": entry.kind.value,
        "name": entry.name,
        "size": entry.size,
        "used": round(entry.used),
        "in_use": entry.in_use,
        "path": str(entry.path),
    }


def _count_items(count: int, state: str = "") -> str:
    """`1 item`, `3 damaged items`."""
    return f"{count} {state}item{'' if count == 1 else 's'}"


def _count_images(count: int) -> str:
    """`1 unpacked image`, `3 unpacked images`."""
    return f"{count} unpacked image{'' if count == 1 else 's'}"
