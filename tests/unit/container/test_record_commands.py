# SPDX-License-Identifier: BSD-3-Clause
"""`shell --record`: what bash is told, and when it cannot be."""

from __future__ import annotations

from kedge.container.record_commands import add_record


def record(shell: str, *, is_kept: bool) -> tuple[dict[str, str], list[str]]:
    variables: dict[str, str] = {}
    warnings: list[str] = []
    add_record(variables, warnings, shell, is_kept=is_kept)
    return variables, warnings


def test_record_tells_bash_where_to_write_or_says_why_not() -> None:
    variables, warnings = record("/bin/bash", is_kept=True)
    assert "/.kedge-commands" in variables["PROMPT_COMMAND"]
    assert variables["HISTFILE"] == ""
    assert not warnings
    assert record("/bin/sh", is_kept=True) == (
        {},
        ["--record has no effect: the image has no bash, and /bin/sh cannot record"],
    )
    assert "--overlay DIRECTORY" in record("/bin/bash", is_kept=False)[1][0]
