# SPDX-License-Identifier: BSD-3-Clause
"""The few types that calls need: as those of ctypes, which is not imported, and ctypes itself where Python differs."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from kedge.system import libc
from kedge.system.libc import c_types
from tests.builders.rows import each_row

TYPES = (
    *("c_char", "c_char_p", "c_int", "c_long", "c_short", "c_size_t"),
    *("c_uint", "c_uint32", "c_uint64", "c_ulong", "c_ushort", "c_void_p"),
)
LOOK = """
import os, sys
{before}
from kedge.system import libc
print("ctypes" in sys.modules, hasattr(libc._library, "mount"), hasattr(libc._library, "no_such_call"))
words = libc.ShownWords()
words.replace(b"another name")
shown = open("/proc/self/cmdline", "rb").read().rstrip(b"\\0")
words.restore()
print(shown.decode(), open("/proc/self/cmdline", "rb").read().split(b"\\0")[1].decode())
try:
    libc.unmount("/no/such/place", 0)
except OSError as problem:
    print(problem.errno, problem.filename)
sockets = libc.pair_sockets()
file = libc.fetch_descriptor(libc.stow_descriptor(libc.open_in_root(os.open("/", os.O_RDONLY), "/", os.O_PATH)))
print(len(sockets), file > 2)
"""
ANSWERS = ["True False", "another name -c", "2 /no/such/place", "2 True"]


@each_row("name", TYPES)
def test_types_are_those_of_ctypes(name: str) -> None:
    ours, theirs = getattr(c_types, name), getattr(ctypes, name)
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    assert ctypes.alignment(ours) == ctypes.alignment(theirs)
    value: object = 7
    if name in ("c_char", "c_char_p"):
        value = b"x"
    assert ours(value).value == theirs(value).value


def test_types_keep_the_error_of_a_call() -> None:
    assert libc._library.close(c_types.c_int(-1)) == -1
    assert c_types.get_errno() == 9


def test_file_system_type_is_that_of_the_kernel() -> None:
    assert libc.file_system_type("/proc") == 0x9FA0


def look(before: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(before=before)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_calls_need_no_ctypes() -> None:
    assert look("") == [f"False {ANSWERS[0]}", *ANSWERS[1:]]


@each_row("lacking", ["dlopen", "FUNCFLAG_USE_ERRNO", "_SimpleCData"])
def test_calls_take_ctypes_where_python_is_another(lacking: str) -> None:
    """A later Python may have another `_ctypes`: here it lacks something while it is looked at."""
    hide = f"import _ctypes, ctypes; del _ctypes.{lacking}"
    assert look(hide) == [f"True {ANSWERS[0]}", *ANSWERS[1:]]
