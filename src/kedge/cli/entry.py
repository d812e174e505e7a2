# SPDX-License-Identifier: BSD-3-Clause
"""Entry point of the `kedge` command. Starts of containers take a short path that loads only what they need."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence
else:
    import _signal  # `signal` itself imports enum

CONTAINER_VERBS = ("exec", "run", "shell", "test")
STEP_VERB = "build-step"  # of builds that start their steps with it; no user types it
RANK_VERB = "rank"  # of launches, likewise
LAYER_VERB = "pack-layer"  # of conversions, likewise
_VERSION = (["-V"], ["--version"])
_HELD = "KEDGE_SIGNALS_HELD"  # set by `system/spawn.py`
_COLLECT_AFTER = 20_000  # new objects; Python's own 700 look for garbage dozens of times while modules load

# the global options that may stand before a verb; `shell` has another use for -s
_LEADING = {
    **{"-s": "--silent", "-q": "--quiet", "-v": "--verbose", "-d": "--debug"},
    **{flag: flag for flag in ("--silent", "--quiet", "--verbose", "--debug", "--json", "--nocolor", "--dry-run")},
    "--shim": "--shim",  # set by the shims, not by users
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        end_on_interrupt()
    gc.set_threshold(_COLLECT_AFTER)
    count = 0
    while count < len(words) and words[count] in _LEADING:
        count += 1
    if words[count:] and words[count] in CONTAINER_VERBS:
        from kedge.cli.container import run_words

        return run_words(words[count], words[count + 1 :], leading=[_LEADING[word] for word in words[:count]])
    if words[count:] and words[count] in (STEP_VERB, LAYER_VERB):
        return _run_part(words[count], words[count + 1 :])
    if words[count:] and words[count] == RANK_VERB:
        from kedge.cli.rank import run_rank  # late: only launches have ranks

        return run_rank(words[count + 1 :])
    if words[count : count + 1] == ["instance"] and words[count + 1 : count + 2] in (["start"], ["run"]):
        from kedge.cli.instance import start_words  # late: few commands are this one

        _raise_on_interrupt()
        return start_words(words[count + 1], words[count + 2 :], leading=[_LEADING[word] for word in words[:count]])
    if words[count:] in _VERSION and _show_version(is_command=argv is None):
        return 0
    from kedge.cli.main import end_process  # late: argparse and what it needs cost more than a container
    from kedge.cli.main import main as run_main

    status = run_main(words)
    if argv is None:
        end_process(status)
    return status


def _run_part(verb: str, words: Sequence[str]) -> int:
    """Do a part of what another kedge does."""
    if verb == LAYER_VERB:
        from kedge.cli.pack_layer import run_pack  # late: only conversions on large nodes have these

        run_pack(words)
    from kedge.cli.build_step import run_request  # late: only builds have steps

    return run_request(words)


def _show_version(*, is_command: bool) -> bool:
    """Write the version, which scripts ask for before every job; whether it could be written."""
    from kedge.base.release import VERSION

    text = f"kedge version {VERSION}\n".encode()
    try:
        is_written = os.write(1, text) == len(text)
    except OSError:
        return False  # the long way says what is wrong
    if is_written and is_command:
        os._exit(0)  # nothing waits in a buffer, and the interpreter takes longer to end than this took
    return is_written


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process as it ends any program: nothing catches an exception while modules load.

    Starts of containers keep this: they leave nothing to clean up. A signal that is ignored, as in the background of a
    script, stays ignored.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    if os.environ.pop(_HELD, ""):
        from kedge.system.spawn import listen_again  # late: another kedge started this one

        listen_again()


def _raise_on_interrupt() -> None:
    """Let Ctrl-C be an exception again, for verbs that clean up behind themselves."""
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
