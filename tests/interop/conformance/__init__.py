# SPDX-License-Identifier: BSD-3-Clause
"""The same command lines through the real Apptainer and through kedge: what users see must be the same."""
