# SPDX-License-Identifier: BSD-3-Clause
"""One file per verb: parse, call one operation, render."""
