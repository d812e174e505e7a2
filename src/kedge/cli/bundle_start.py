# SPDX-License-Identifier: BSD-3-Clause
"""What the interpreter of a bundle runs: its head starts this file, compiled, as `start.pyc`.

Nothing is on the path but the bundle's own library (-I, -S), which has kedge and its packages in it. A module that
cannot be loaded here tells of a damaged copy: it is put away, and the bundle is started once more.
"""

import sys


def _begin() -> int:
    sys.argv[0] = str(sys._xoptions.get("kedge") or sys.argv[0])  # -X kedge=PATH
    try:
        from kedge.cli.entry import main
    except Exception:
        _start_again()
        raise
    return main()


def _start_again() -> None:
    """Return only where the copy is whole."""
    from kedge.posix.bundle_copy import discard_copy, find_damage
    from kedge.posix.spawn import replace_process
    from kedge.posix.start_kedge import own_command

    if find_damage():
        import os

        discard_copy()
        command = own_command(*sys.argv[1:])
        replace_process(command[0], command, dict(os.environ))


if __name__ == "__main__":
    sys.exit(_begin())
