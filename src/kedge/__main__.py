# SPDX-License-Identifier: BSD-3-Clause
"""`python -m kedge`, and the file that `system/start_kedge.py` starts by its path.

Nothing but `os`, `sys` and `_signal`, which the interpreter has loaded or built in, is imported before the path is
settled; not even `__future__`, in this file or in the package's own.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # Ctrl-C while modules load is no traceback
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _settle_path() -> None:
    """Let modules come from where this Python has its own, and from the directories that PYTHONPATH names."""
    place = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - not loaded yet
    given = (os.environ.get("PYTHONPATH") or "/").split(":")
    named = [each for each in given if each.startswith("/")]
    if not __package__:  # by its path, with -E and -P
        sys.path[:0] = named if os.environ.get("PYTHONPATH") else []
        if place not in sys.path:
            sys.path.insert(0, place)
        return
    try:
        here = {os.path.abspath(each) for each in ("", *given) if each not in named}  # noqa: PTH100 - as above
    except OSError:  # the current directory is gone
        here = set()
    kept = {place, os.path.dirname(os.__file__), *map(os.path.normpath, named)}  # noqa: PTH120 - as above
    sys.path[:] = [each for each in sys.path if each.startswith("/") and (each not in here or each in kept)]
    if not (sys.pycache_prefix or "/").startswith("/"):
        sys.pycache_prefix = None


_settle_path()

from kedge.cli.entry import main  # noqa: E402 - as said above

sys.exit(main())
