# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of clusters: shipped ones and the user's own, which one this is, and what can be asked of it."""
