# SPDX-License-Identifier: BSD-3-Clause
"""kedge's command line: a file for each verb, what it prints, its help; and the command lines of other tools."""

# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.
PUBLIC = ("entry",)
