# SPDX-License-Identifier: BSD-3-Clause
"""What the interpreter of a bundle runs: its head starts this file, compiled, as `start.pyc`.

Nothing is on the path but the bundle's own library (-I, -S), which has kedge and its packages in it. A module that
cannot be loaded here tells of a damaged copy: its mark is removed, and the bundle, which then unpacks itself anew, is
started once more. `os`, `sys` and `_signal` are part of the interpreter; any other module may be what is damaged.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # built in

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # Ctrl-C while modules load is no traceback
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

_AGAIN = "KEDGE_UNPACKED_AGAIN"  # only from one start to the next


def _begin() -> int:
    bundle = str(sys._xoptions.get("kedge") or "")
    sys.argv[0] = bundle or sys.argv[0]
    is_second = os.environ.pop(_AGAIN, "") == "1"
    try:
        from kedge.cli.entry import main
    except Exception:
        if bundle and not is_second and _is_damaged():
            os.unlink(f"{sys.prefix}/complete")  # noqa: PTH108 - as said above
            os.execve(bundle, sys.argv, {**os.environ, _AGAIN: "1"})
        raise
    return main()


def _is_damaged() -> bool:
    try:
        from kedge.system.bundle_copy import find_damage

        return bool(find_damage())
    except Exception:  # not even this can be loaded
        return True


if __name__ == "__main__":
    sys.exit(_begin())
