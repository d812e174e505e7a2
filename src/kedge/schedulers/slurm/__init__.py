# SPDX-License-Identifier: BSD-3-Clause
"""Slurm 20.11 to 25.05: `SLURM` is its Backend."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.schedulers.backend import Backend
from kedge.schedulers.slurm.accounts import history_query, parse_history
from kedge.schedulers.slurm.detail import detail_query, parse_detail
from kedge.schedulers.slurm.directives import parse_submit, render, submit_argv
from kedge.schedulers.slurm.endings import explain
from kedge.schedulers.slurm.interactive import interactive_argv
from kedge.schedulers.slurm.listing import list_query, parse_list


class _Slurm:
    name = "slurm"
    render = staticmethod(render)
    submit_argv = staticmethod(submit_argv)
    parse_submit = staticmethod(parse_submit)
    interactive_argv = staticmethod(interactive_argv)
    list_query = staticmethod(list_query)
    parse_list = staticmethod(parse_list)
    detail_query = staticmethod(detail_query)
    parse_detail = staticmethod(parse_detail)
    history_query = staticmethod(history_query)
    parse_history = staticmethod(parse_history)
    explain = staticmethod(explain)

    @staticmethod
    def cancel_argv(ids: Sequence[str], signal: str = "") -> list[str]:
        """A signal goes to the script's own children too, not only to what srun started."""
        return ["scancel", *([f"--signal={signal}", "--full"] if signal else []), *ids]


SLURM: Backend = _Slurm()
