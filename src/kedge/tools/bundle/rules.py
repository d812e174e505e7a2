# SPDX-License-Identifier: BSD-3-Clause
"""What a bundle leaves out, and what it needs beyond what its ELF files say."""

from __future__ import annotations

import re

# Of the standard library: what only its own developers use, what needs a display, what installs other packages.
_LIBRARY_LEFT_OUT = re.compile(
    r"(?:site-packages|dist-packages|test|tests|idlelib|idle_test|tkinter|turtledemo|turtle\.py|ensurepip|lib2to3|venv"
    r"|pydoc_data|distutils|config-[0-9][^/]*|__pycache__|__phello__|EXTERNALLY-MANAGED"
    r"|lib-dynload/(?:_tkinter|_test[a-z]+|_xxtestfuzz|_ctypes_test|xxlimited\w*|ossaudiodev|nis|_dbm|_gdbm)\.[^/]*)"
)
# Of the packages: tests, sources of C, and the second way into zstd, which needs a compiler's parser.
_PACKAGE_LEFT_OUT = re.compile(
    r".*(?:\.pyi|\.c|\.h|\.pxd|\.pyx|\.typed|/RECORD|/INSTALLER|/REQUESTED|/direct_url\.json)"
    r"|(?:zstandard/_cffi|pycparser/|cffi/).*|.*/tests?/.*|.*__pycache__/.*"
)
# Files of kedge that are read as text, by the Python of an image or of a user: these keep their source.
SOURCES_KEPT = ("kedge/__main__.py", "kedge/tools/functions/runner.py", "kedge/launch/probe/allreduce_torch.py")
# Opened by name at run time: by programs, and by the host's own libraries that are loaded into this process (name
# services, the GPU driver), which must get the C library that they find here and not their own.
NAMED_OBJECTS = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2"),
    *("libnss_files.so.2", "libnss_dns.so.2", "libnss_compat.so.2", "libanl.so.1", "libgcc_s.so.1"),
)
# Modules that the interpreter loads before it can say anything.
VITAL_MODULES = ("encodings/__init__.pyc", "encodings/aliases.pyc", "encodings/utf_8.pyc", "kedge/cli/entry.pyc")


def is_library_left_out(name: str) -> bool:
    """Whether a path below the standard library's directory is not taken; what is below it is not either."""
    return bool(_LIBRARY_LEFT_OUT.fullmatch(name) or _LIBRARY_LEFT_OUT.fullmatch(name.rpartition("/")[2]))


def is_package_left_out(name: str) -> bool:
    """Whether a file of a package is not taken."""
    return bool(_PACKAGE_LEFT_OUT.fullmatch(name))
