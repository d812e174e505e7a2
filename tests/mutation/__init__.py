# SPDX-License-Identifier: BSD-3-Clause
"""Mutation tests: small faults are put into a copy of the source, and the tests must notice (`scripts/mutate`)."""
