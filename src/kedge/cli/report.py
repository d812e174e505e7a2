# SPDX-License-Identifier: BSD-3-Clause
"""How a command that did not succeed ends: the text on the terminal, the JSON, the exit status, the log of a bug."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from kedge.base.release import VERSION
from kedge.cli.console import has_style, paint_text
from kedge.cli.options import GlobalOptions
from kedge.cli.progress import leave_plain
from kedge.cli.redaction import escape_controls, escape_json, redact, redact_arguments
from kedge.cli.signals import Terminated
from kedge.errors import FileProblem, KedgeError, LimitReached
from kedge.system.start_kedge import find_bundle, find_bundle_copy, own_interpreter

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import TextIO

_BUG_STATUS = 3
# What the world can do to a file or stream that is open already; anything else without a file name is a bug.
_NO_BUG = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.ENOTCONN, errno.ESTALE)
_FATAL = "FATAL:   "  # as Apptainer writes it
# Fields that nobody needs to act on an error: shown with --verbose and in JSON.
_DETAILS = frozenset(
    (
        *("errno", "status", "request", "url", "detail", "reached", "received", "promised", "PATH"),
        *("offset", "field", "first bytes", "bytes", "member", "object", "type", "table", "file size", "limit"),
        *("digest", "manifest", "config", "layer", "expected", "found", "signed"),
        *("mediaType", "Content-Type", "Content-Length", "next page", "prefix", "token service"),
        *("reason", "key", "entry", "site", "queue", "scheduler", "runtime", "version", "machine", "repository"),
        *("reference", "memory", "needed", "usable", "upper", "link", "target", "tags judged", "tags skipped"),
    )
)


def report_failure(problem: BaseException, argv: Sequence[str], options: GlobalOptions) -> int:
    """Tell the user about `problem` and return the exit status."""
    problem = _find_signal(problem)
    if isinstance(problem, BrokenPipeError):
        return _end_quietly()
    if isinstance(problem, KeyboardInterrupt):
        return _report_end("interrupted", signal.SIGINT, options)
    if isinstance(problem, Terminated):
        return _report_end(f"ended by {signal.Signals(problem.number).name}", problem.number, options)
    error = _understand(problem)
    if error is None or _is_of_bundle(problem):
        error = _find_lost_files() or error
    if isinstance(problem, OSError) and problem.filename is None:
        _silence_output()
    if options.debug:
        _write_line(sys.stderr, _make_safe("".join(traceback.format_exception(problem))).rstrip())
    if error is None:
        return _report_bug(problem, argv, options)
    if options.json:
        _write_line(sys.stdout, escape_json(json.dumps(_redact_values(error.as_dict()), indent=2, ensure_ascii=False)))
    else:
        _write_line(sys.stderr, _render(error, options))
    return error.exit_code


def _find_signal(problem: BaseException) -> BaseException:
    """What a signal raised: Python 3.11 wraps it in a RuntimeError when it comes while a class is being made."""
    cause = problem.__cause__
    is_wrapped = isinstance(problem, RuntimeError) and isinstance(cause, KeyboardInterrupt | Terminated)
    return cause if cause is not None and is_wrapped else problem


def _understand(problem: BaseException) -> KedgeError | None:
    """The error to show the user, or None when it is a bug."""
    if isinstance(problem, KedgeError):
        return problem
    if isinstance(problem, MemoryError):
        from kedge.cluster.host_memory import make_memory_error
        from kedge.system.host.limits import read_limits

        return make_memory_error("this command", read_limits())
    if isinstance(problem, RuntimeError) and "start new thread" in str(problem):
        return LimitReached(
            "no more threads or processes may be started",
            hint="'ulimit -u' shows the limit; end something else, give fewer --threads, or run it in a job",
        )
    if isinstance(problem, OSError) and (problem.filename is not None or problem.errno in _NO_BUG):
        from kedge.system.files import explain

        name = problem.filename
        return explain(problem, os.fsdecode(name) if isinstance(name, str | bytes) else "standard output")
    return None


def _is_of_bundle(problem: BaseException) -> bool:
    """Whether a file of the unpacked bundle is what could not be opened."""
    copy = find_bundle_copy()
    return bool(copy) and isinstance(problem, OSError) and str(problem.filename).startswith(f"{copy}/")


def _find_lost_files() -> KedgeError | None:
    """The error where the unpacked copy of the bundle is broken, and not the code; the next start unpacks it anew."""
    if not find_bundle_copy():
        return None
    from kedge.system.bundle_copy import discard_copy, find_damage

    damage = find_damage()
    if not damage:
        return None
    discard_copy()
    return FileProblem(
        f"the unpacked files of kedge in {find_bundle_copy()} are damaged: {damage}",
        context={"bundle": find_bundle()},
        hint="run the command again: kedge unpacks itself anew",
    )


def _render_error(error: KedgeError, *, color: bool = False, is_shim: bool = False, is_verbose: bool = False) -> str:
    """The error as people read it: message, context, hint; names of files and answers of servers cannot steer it.

    Without --verbose details are left out, and what the message or the hint says already.
    Through a shim it begins as Apptainer's errors do, which tools look for, and the rest stands below it.
    """
    paint = paint_text if color else leave_plain
    edge = " " * len(_FATAL) if is_shim else ""
    begin = paint(_FATAL, "bad") if is_shim else paint("kedge:", "bad") + " "
    lines = [begin + _make_safe(error.message)]
    shown = error.message + (error.hint or "")
    for name, value in error.context.items():
        if not is_verbose and (name in _DETAILS or value in shown):
            continue
        first, *more = _make_safe(value).splitlines() or [""]
        lines.append(f"{edge or '  '}{name}: {first}")
        lines.extend(f"{edge}    {line}" for line in more)
    if error.hint:
        lines.append(f"{edge}{paint('hint:', 'warning')} {_make_safe(error.hint)}")
    return "\n".join(lines)


def _render(error: KedgeError, options: GlobalOptions) -> str:
    return _render_error(
        error,
        color=has_style(sys.stderr, options, os.environ),
        is_shim=options.shim,
        is_verbose=bool(options.verbose or options.debug),
    )


def _make_safe(text: str) -> str:
    return escape_controls(redact(text))


def _report_end(message: str, number: int, options: GlobalOptions) -> int:
    status = 128 + number
    if options.json:
        shown = {"error": "signal", "exit_code": status, "message": message, "context": {}, "hint": None}
        _write_line(sys.stdout, json.dumps(shown, indent=2))
    else:
        _write_line(sys.stderr, f"{_FATAL if options.shim else 'kedge: '}{message}")
    return status


def _redact_values(value: dict[str, object]) -> dict[str, object]:
    shown: dict[str, object] = {}
    for name, item in value.items():
        if isinstance(item, str):
            shown[name] = redact(item)
        elif isinstance(item, dict):
            shown[name] = _redact_values(item)
        else:
            shown[name] = item
    return shown


def _report_bug(problem: BaseException, argv: Sequence[str], options: GlobalOptions) -> int:
    text = _format_bug(problem, argv)
    path = _write_log(text, os.environ)
    message = f"this is a bug: {redact(''.join(traceback.format_exception_only(problem))).strip()}"
    hint = "please report it with the content of the log" if path else "please report it with the text above"
    error = KedgeError(message, context={"log": str(path)} if path else {}, hint=hint)
    if path is None:
        _write_line(sys.stderr, escape_controls(text))
    if options.json:
        _write_line(sys.stdout, json.dumps({**error.as_dict(), "error": "bug", "exit_code": _BUG_STATUS}, indent=2))
    else:
        _write_line(sys.stderr, _render(error, options))
    return _BUG_STATUS


def _format_bug(problem: BaseException, argv: Sequence[str]) -> str:
    """An issue report: what ran, on what, and where it broke, without secrets."""
    facts = {
        "kedge": VERSION,
        "Python": f"{platform.python_version()} ({own_interpreter()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "command": " ".join(["kedge", *redact_arguments(argv)]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    trace = redact("".join(traceback.format_exception(problem))).rstrip()
    return "\n".join(["# kedge stopped with an unexpected error", "", *lines, "", "```", trace, "```", ""])


def _write_log(text: str, environ: Mapping[str, str]) -> Path | None:
    from kedge.system.files import write_atomically
    from kedge.system.private_files import make_private
    from kedge.system.settings import xdg_directory

    folder = xdg_directory(environ, "XDG_STATE_HOME", ".local/state")
    path = folder / f"bug-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.md"
    try:
        make_private(folder)
        write_atomically(path, text.encode(errors="replace"), mode=0o600)
    except (KedgeError, OSError):
        return None
    return path


def _write_line(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except (OSError, ValueError):  # nobody is listening any more
        _silence_output()


def _end_quietly() -> int:
    """The reader of our output went away (`kedge ... | head`): not an error worth a word."""
    _silence_output()
    return 128 + signal.SIGPIPE


def _silence_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
