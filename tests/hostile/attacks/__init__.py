# SPDX-License-Identifier: BSD-3-Clause
"""Attacks from inside of containers: what each wants, how its success is seen, and what holds it."""
