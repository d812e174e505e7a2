# SPDX-License-Identifier: BSD-3-Clause
"""Checks that users run before their program: are all ranks there, and how fast do they exchange data?"""
