# SPDX-License-Identifier: BSD-3-Clause
"""Limits, clock, locale and variables of this user's shell."""
