# SPDX-License-Identifier: BSD-3-Clause
"""Recipes of one kind printed as the other: text for people, with a note wherever the kinds differ."""
