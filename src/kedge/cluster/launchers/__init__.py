# SPDX-License-Identifier: BSD-3-Clause
"""One module per program that starts ranks: its words, how it labels their lines, how it says which one failed."""
