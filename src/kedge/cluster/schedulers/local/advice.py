# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of the local queue say when they refuse, and what to do about it."""

from kedge.cluster.schedulers.facts import RefusalAdvice

ADVICE = RefusalAdvice()  # they are kedge's own, and say themselves what to do
