# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the host and the shell for `kedge doctor`: one file per subject, each finding with its remedy."""
