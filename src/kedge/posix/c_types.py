# SPDX-License-Identifier: BSD-3-Clause
"""What calls of the C library need of ctypes, and no more: importing `ctypes` costs a start more than its mounts.

`ctypes` makes thirty types, tries each of them, and imports `struct` and `types`. The part that does the work is the
module `_ctypes`, written in C. A Python whose `_ctypes` is another gets `ctypes` itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import (
        CDLL,
        Structure,
        addressof,
        byref,
        c_char,
        c_char_p,
        c_int,
        c_long,
        c_short,
        c_size_t,
        c_uint,
        c_uint32,
        c_uint64,
        c_ulong,
        c_ushort,
        c_void_p,
        get_errno,
        sizeof,
    )

    def open_own_library() -> CDLL:
        """The C library of this process; its calls keep errno for `get_errno`."""
else:
    try:
        from _ctypes import (
            FUNCFLAG_CDECL,
            FUNCFLAG_USE_ERRNO,
            CFuncPtr,
            Structure,
            _SimpleCData,
            addressof,
            byref,
            dlopen,
            get_errno,
            sizeof,
        )

        def _simple(name: str, letter: str) -> type:
            return type(_SimpleCData)(name, (_SimpleCData,), {"_type_": letter, "__module__": __name__})

        _RARE = {
            "c_char": "c",
            "c_char_p": "z",
            "c_short": "h",
            "c_ushort": "H",
            "c_void_p": "P",
        }  # made when they are asked for: each takes as long as a mount
        c_int = _simple("c_int", "i")
        c_uint = c_uint32 = _simple("c_uint", "I")
        c_long = _simple("c_long", "l")
        c_ulong = c_size_t = _simple("c_ulong", "L")  # the same in all that Linux runs on
        c_uint64 = c_ulong if sizeof(c_ulong) == 8 else _simple("c_uint64", "Q")

        def __getattr__(name: str) -> type:
            if name not in _RARE:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            made = globals()[name] = _simple(name, _RARE[name])
            return made

        class _Function(CFuncPtr):
            _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
            _restype_ = c_int

        class _Library:
            """A library whose functions are its attributes, as those of `ctypes.CDLL` are."""

            def __init__(self) -> None:
                self._handle = dlopen(None, 0)

            def __getattr__(self, name: str) -> object:
                function = _Function((name, self))  # AttributeError where the library has none of this name
                setattr(self, name, function)
                return function

        open_own_library = _Library
        open_own_library().getpid()  # as good as those of ctypes, or else those
    except (ImportError, AttributeError, TypeError, ValueError):
        from ctypes import (
            CDLL,
            Structure,
            addressof,
            byref,
            c_char,
            c_char_p,
            c_int,
            c_long,
            c_short,
            c_size_t,
            c_uint,
            c_uint32,
            c_uint64,
            c_ulong,
            c_ushort,
            c_void_p,
            get_errno,
            sizeof,
        )

        def open_own_library() -> CDLL:
            """The C library of this process; its calls keep errno for `get_errno`."""
            return CDLL(None, use_errno=True)


__all__ = [
    "Structure",
    "addressof",
    "byref",
    "c_char",
    "c_char_p",
    "c_int",
    "c_long",
    "c_short",
    "c_size_t",
    "c_uint",
    "c_uint32",
    "c_uint64",
    "c_ulong",
    "c_ushort",
    "c_void_p",
    "get_errno",
    "open_own_library",
    "sizeof",
]
