# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a container as text or JSON: what `--dry-run` shows."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from kedge.runtime.mounts.operations import describe

if TYPE_CHECKING:
    from kedge.runtime.facts import Payload
    from kedge.runtime.mounts.operations import Operation
    from kedge.runtime.options import RunOptions


def render_plan(options: RunOptions, operations: list[Operation], payload: Payload) -> str:
    """Every operation in order, and the program with its environment."""
    if options.json:
        return json.dumps(
            {
                "operations": [
                    {"kind": each[0], "fields": list(each[1:]), "text": describe(each)} for each in operations
                ],
                "program": payload.argv,
                "environment": payload.environ,
            },
            indent=2,
        )
    lines = [describe(each) for each in operations]
    lines.append(f"run {shlex.join(payload.argv)}")
    lines += [f"  {name}={_show(value)}" for name, value in sorted(payload.environ.items())]
    return "\n".join(lines)


def _show(value: str) -> str:
    shown = value.encode("unicode_escape", "surrogateescape").decode("ascii") if not value.isprintable() else value
    return shown if len(shown) <= 200 else f"{shown[:200]}… ({len(value)} characters)"
