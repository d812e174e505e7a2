# SPDX-License-Identifier: BSD-3-Clause
"""A plan as --dry-run prints it: words and variables of the launcher and of every rank, with stars for secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kedge.base.frozen import as_dict
from kedge.base.secret_text import mask_value, mask_words
from kedge.cluster.ranks import own_variables
from kedge.compat.failures.catalogue import CAUSE, GENERAL, Clue
from kedge.compat.failures.find_clues import find_clues
from kedge.launch.contracts import Contract, rank_command, rank_variables
from kedge.launch.follow_output import RankFailure
from kedge.launch.plan import CONTAINED, LaunchPlan
from kedge.launch.variables import find_leaking


def describe_plan(plan: LaunchPlan, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return all that is known before the start; a launcher's own variables are not."""
    return {
        "launcher": plan.launcher,
        "mode": plan.mode,
        "mpi_type": plan.mpi_type,
        "contract": str(plan.contract),
        "size": plan.shape.size,
        "nodes": [
            {"name": node.name, "tasks": count} for node, count in zip(plan.shape.nodes, plan.shape.tasks, strict=True)
        ],
        "rendezvous": {"address": plan.order.address, "port": plan.order.port},
        "reasons": list(plan.reasons),
        "environment": _mask(dict(plan.changes)),
        "processes": [{"argv": mask_words(process.argv)} for process in plan.list_processes()],
        "ranks": _list_ranks(plan, environ),
    }


def _list_ranks(plan: LaunchPlan, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    contract = Contract(plan.order.contract)
    is_own = plan.program.is_own and plan.mode != CONTAINED
    shown = []
    for rank in plan.shape.list_ranks():
        terms = plan.order.terms_on(rank.node_rank, environ)
        variables: dict[str, str | None] = dict(own_variables(rank)) if is_own else {}
        if plan.mode != CONTAINED:
            variables |= dict.fromkeys(find_leaking(environ)) | rank_variables(contract, rank, terms)
        command = rank_command(contract, rank, terms, plan.command) if plan.command else ()
        shown.append(
            {
                **as_dict(rank),
                "host": plan.shape.nodes[rank.node_rank].name,
                "environment": _mask(variables),
                "argv": ["kedge", *mask_words([*plan.container, *command])],
            }
        )
    return shown


def _mask(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value if value is None else mask_value(name, value) for name, value in variables.items()}


# Why a rank failed, as far as its last lines and those of the launcher say.

_SHOWN_ALREADY = ("python-exception", "mpi-abort")  # what says no more than the lines do that the user sees


def find_rank_clue(failure: RankFailure) -> Clue | None:
    """The likeliest cause; None where no known message explains it."""
    clues = find_clues("\n".join((*failure.lines, *failure.launcher_lines)))
    chosen = (clue for clue in clues if clue.level in (CAUSE, GENERAL) and clue.name not in _SHOWN_ALREADY)
    return next(chosen, None)
