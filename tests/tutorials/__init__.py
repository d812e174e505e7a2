# SPDX-License-Identifier: BSD-3-Clause
"""The five tutorials: every command that a reader types, as it is written, and the page that says what came of it."""
