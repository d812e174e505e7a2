# SPDX-License-Identifier: BSD-3-Clause
"""One file per verb: parse, call one operation, render.

The command `kedge`, `python -m kedge` and the shims all begin by importing a module of this package, and from here on
modules come from the archive.
"""

from kedge.module_archive import serve_modules

serve_modules()
