# SPDX-License-Identifier: BSD-3-Clause
"""Tests against real schedulers, which are started for them on this machine."""
