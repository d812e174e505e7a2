# SPDX-License-Identifier: BSD-3-Clause
"""The tables: their rows, the loader that validates them, and what a GPU is called."""
