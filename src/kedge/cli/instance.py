# SPDX-License-Identifier: BSD-3-Clause
"""`kedge instance`: containers with a name that run in the background: start, run, list, stop, logs, stats."""

from __future__ import annotations

import argparse
import os
import pwd
import time
from typing import TYPE_CHECKING

from kedge.base.size import format_size
from kedge.cli.container import (
    SHIM,
    Speaker,
    add_flags,
    begin_message,
    drop_shim,
    find_services,
    open_standard_streams,
    print_text,
    write_message,
    write_output,
)
from kedge.cli.signals import raised_signals
from kedge.container import instance as instances
from kedge.container.flags import HelpWanted, parse_words
from kedge.container.instance import InstanceUsage, measure
from kedge.container.options import RunOptions
from kedge.errors import UsageError
from kedge.system.process_tree import parse_signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kedge.cli.console import Console
    from kedge.container.processes.instance_records import Instance

_STARTING = {  # their options are those of containers, which `flags` reads
    "start": "Start an instance and run the image's start script",
    "run": "Start an instance and run the image's default command",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command, summary in _STARTING.items():
        start = commands.add_parser(command, help=summary)
        start.add_argument("image", metavar="IMAGE", help="SIF or SquashFS file, sandbox directory, docker://NAME …")
        start.add_argument("name", metavar="NAME", help="name of the instance")
        start.add_argument(
            "arguments", metavar="[ARGUMENT ...]", nargs=argparse.REMAINDER, help="arguments for the script"
        )
        add_flags(start, "start")
    listing = commands.add_parser("list", help="List the instances on this host")
    listing.add_argument(
        "pattern", metavar="NAME", nargs="?", default="*", help="instances to list; * and ? match any characters"
    )
    listing.add_argument("-j", dest="json", action="store_true", help="print JSON")
    listing.add_argument("-l", "--logs", action="store_true", help="show the paths of their logs")
    listing.add_argument("-a", "--all", action="store_true", help="accepted for Apptainer: all are always listed")
    stop = commands.add_parser("stop", help="Stop instances")
    stop.add_argument(
        "pattern", metavar="NAME", nargs="?", default="", help="instances to stop; * and ? match any characters"
    )
    stop.add_argument("-a", "--all", action="store_true", help="stop all instances")
    stop.add_argument("-s", "--signal", metavar="SIGNAL", default="INT", help="signal to send first (default: INT)")
    stop.add_argument(
        "-t",
        "--timeout",
        metavar="SECONDS",
        type=_parse_seconds,
        default=10.0,
        help="seconds until they are killed (default: 10)",
    )
    stop.add_argument("-F", "--force", action="store_true", help="kill at once")
    logs = commands.add_parser("logs", help="Show an instance's output")
    logs.add_argument("name", metavar="NAME", help="name of the instance, running or ended")
    logs.add_argument("-e", "--errors", action="store_true", help="print standard error only")
    logs.add_argument("-o", "--output", action="store_true", help="print standard output only")
    stats = commands.add_parser("stats", help="Show an instance's use of CPU, memory, disk and processes")
    stats.add_argument("name", metavar="NAME", help="name of the instance")
    stats.add_argument("--no-stream", action="store_true", help="print once instead of every second")
    stats.add_argument("-j", dest="json", action="store_true", help="print JSON, once")
    for subparser in (listing, stop, stats):
        subparser.add_argument("-u", "--user", metavar="USER", default="", help="instances of another user (root only)")


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise UsageError(f"--timeout takes a number of seconds, not '{text}'", hint="for example --timeout 30")
    return seconds


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand; those that start containers come here only through `start_words`."""
    if arguments.command in _STARTING:  # an option stood between the two words, and so argparse read the rest
        raise UsageError(
            f"options of 'kedge instance {arguments.command}' must follow '{arguments.command}'",
            hint=f"usage: kedge instance {arguments.command} [options] IMAGE NAME [ARGUMENT ...]",
        )
    commands = {"list": _list, "stop": _stop, "logs": _logs, "stats": _stats}
    commands[arguments.command](arguments, console)
    return 0


def start_words(command: str, words: Sequence[str], *, leading: Sequence[str] = ()) -> int:
    """`kedge instance start|run`: the words are read as those of `kedge run` are."""
    options = RunOptions(shim=SHIM in leading)
    try:
        open_standard_streams()
        parse_words("start", [*drop_shim(leading), *words], os.environ, into=options)
        name, options.arguments = options.arguments[0], options.arguments[1:]
        options.verb = options.command_name = command
        speaker = Speaker(options)
        speaker.say_collected()
        with raised_signals():
            return _start(options, name, speaker)
    except HelpWanted as wish:
        return _show_help(command, is_whole=wish.is_whole or options.shim)
    except BaseException as problem:
        return _report(problem, ["instance", command, *words], options)


def _report(problem: BaseException, words: list[str], options: RunOptions) -> int:
    # late, all of it: success needs none
    from kedge.cli.main import prepare_streams
    from kedge.cli.options import GlobalOptions
    from kedge.cli.report import report_failure

    prepare_streams()
    shown = GlobalOptions(
        json=options.json or "--json" in words,
        verbose=options.verbose,
        debug=options.debug,
        nocolor=options.nocolor,
        shim=options.shim,
    )
    if getattr(problem, "is_reported", False) and not options.json:
        return getattr(problem, "exit_code", 1)
    return report_failure(problem, words, shown)


def _start(options: RunOptions, name: str, speaker: Speaker) -> int:
    if options.dry_run:
        from kedge.container.start_container import run_container  # late: it starts nothing

        options.pid = True
        return run_container(options, speaker.say, find_services)
    started = instances.start_instance(options, name, os.environ, speaker.say)
    if options.json:
        import json  # late: few ask for it

        write_output(json.dumps(_describe(started), indent=2) + "\n")
    elif not (options.quiet or options.silent):
        head = begin_message("tell", is_shim=options.shim)
        write_message(f"{head}instance '{name}' is running (process {started.pid})")
    return 0


def _show_help(command: str, *, is_whole: bool) -> int:
    # late, all of it: only help needs it
    from kedge.cli.help_text import format_short_help
    from kedge.cli.main import make_parser, prepare_streams
    from kedge.cli.options import find_subcommands

    prepare_streams()
    if is_whole:
        return print_text(find_subcommands(make_parser("instance"))[command].format_help())
    return print_text(format_short_help("start", f"instance {command}", _STARTING[command]))


def _list(arguments: argparse.Namespace, console: Console) -> None:
    running = instances.list_instances(_environment_of(arguments.user), arguments.pattern)
    if console.json:
        console.print_json({"instances": [_describe(instance) for instance in running]})
    elif arguments.logs:
        rows = [
            (instance.name, instance.pid, path) for instance in running for path in (instance.log_err, instance.log_out)
        ]
        console.print_table(("INSTANCE NAME", "PID", "LOGS"), rows)
    else:
        images = [(instance.name, instance.pid, "", instance.image) for instance in running]
        console.print_table(("INSTANCE NAME", "PID", "IP", "IMAGE"), images)


def _describe(instance: Instance) -> dict[str, object]:
    """Describe an instance by the names of Apptainer's list; kedge gives instances no address of their own."""
    return {
        "instance": instance.name,
        "pid": instance.pid,
        "img": instance.image,
        "ip": "",
        "logErrPath": instance.log_err,
        "logOutPath": instance.log_out,
    }


def _stop(arguments: argparse.Namespace, console: Console) -> None:
    if not arguments.pattern and not arguments.all:
        raise UsageError(
            "'kedge instance stop' needs a name or --all", hint="list running instances: kedge instance list"
        )
    stopped = instances.stop_instances(
        _environment_of(arguments.user),
        arguments.pattern or "*",
        number=parse_signal("KILL" if arguments.force else arguments.signal),
        patience=arguments.timeout,
    )
    if console.json:
        ended = [
            {"instance": instance.name, "pid": instance.pid, "killed": was_killed} for instance, was_killed in stopped
        ]
        console.print_json({"stopped": ended})
    for instance, was_killed in stopped:
        how = f" did not end within {arguments.timeout:g} s and was killed" if was_killed else " has ended"
        console.progress.note(f"instance '{instance.name}' of {instance.image} (process {instance.pid}){how}")


def _logs(arguments: argparse.Namespace, console: Console) -> None:
    output, errors = instances.find_logs(os.environ, arguments.name)
    both = arguments.errors == arguments.output
    chosen = [*([output] if both or arguments.output else []), *([errors] if both or arguments.errors else [])]
    if console.json:
        console.print_json({"logErrPath": str(errors), "logOutPath": str(output)})
        return
    for path in chosen:
        with path.open("rb") as file:
            while piece := file.read(1 << 16):
                console.write_bytes(piece)


def _stats(arguments: argparse.Namespace, console: Console) -> None:

    instance = instances.find_instance(_environment_of(arguments.user), arguments.name)
    show_stats(instance, console, is_once=arguments.no_stream)


def _environment_of(user: str) -> Mapping[str, str]:
    """Where to look: the caller's own instances, or for root those of another."""
    if not user:
        return os.environ
    if os.geteuid() != 0:
        raise UsageError("--user is for root only", hint="leave out --user to see your own instances")
    try:
        return {"HOME": pwd.getpwnam(user).pw_dir}
    except KeyError:
        raise UsageError(f"no user '{user}' on this host", hint="list users: getent passwd") from None


# `kedge instance stats`: what an instance uses, once or every second.

_INTERVAL = 1.0  # seconds
_HEADINGS = ("INSTANCE NAME", "CPU USAGE", "MEM USAGE / LIMIT", "MEM %", "BLOCK I/O", "PIDS")


def show_stats(instance: Instance, console: Console, *, is_once: bool) -> None:
    """Print a table, and unless it is wanted once, a line every second until the instance ends."""
    before = measure(instance)
    time.sleep(_INTERVAL)
    now = measure(instance)
    if console.json:
        console.print_json(describe(instance, now, before))
        return
    first = _format_row(instance, now, before)
    widths = [max(len(heading), len(cell)) + 2 for heading, cell in zip(_HEADINGS, first, strict=True)]
    _print_line(console, _HEADINGS, widths)
    _print_line(console, first, widths)
    while not is_once and instance.lives:
        before = now
        time.sleep(_INTERVAL)
        now = measure(instance)
        if now.processes:
            _print_line(console, _format_row(instance, now, before), widths)


def describe(instance: Instance, now: InstanceUsage, before: InstanceUsage) -> dict[str, object]:
    """The figures as JSON has them, in bytes and percent."""
    return {
        "instance": instance.name,
        "cpu_percent": round(now.cpu_share(before), 2),
        "cpu_seconds": now.cpu,
        "memory": now.memory,
        "memory_limit": now.limit,
        "read": now.read,
        "written": now.written,
        "processes": now.processes,
    }


def _format_row(instance: Instance, now: InstanceUsage, before: InstanceUsage) -> tuple[str, ...]:
    return (
        instance.name,
        f"{now.cpu_share(before):.2f}%",
        f"{format_size(now.memory)} / {format_size(now.limit)}",
        f"{100 * now.memory / max(1, now.limit):.2f}%",
        f"{format_size(now.read)} / {format_size(now.written)}",
        str(now.processes),
    )


def _print_line(console: Console, cells: tuple[str, ...], widths: list[int]) -> None:
    line = "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    console.write_bytes(f"{line.rstrip()}\n".encode())
