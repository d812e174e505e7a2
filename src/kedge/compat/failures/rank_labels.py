# SPDX-License-Identifier: BSD-3-Clause
"""Labels that launchers and frameworks put before each line of a rank: recognised, and taken off."""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
# srun -l; mpirun --tag-output of Open MPI 4 and 5; hydra's -l; PyTorch's own; torchrun --tee
_LABEL = re.compile(
    r"(?:"
    r"\s{0,6}(?P<srun>\d{1,7}): "
    r"|\[(?:\d+|[\w.@-]{1,80}@\d+),(?P<tagged>\d{1,7})\](?:\[[^\]]{1,80}\])?<(?:stdout|stderr|stddiag)>: ?"
    r"|\[(?P<hydra>\d{1,7})\] "
    r"|\[rank: ?(?P<lightning>\d{1,7})\] ?"
    r"|\[rank(?P<torch>\d{1,7})\]: ?"
    r"|\[[\w.-]{0,80}?(?:default|worker)(?P<tee>\d{1,7})\]: ?"
    r")"
)


def remove_colours(text: str) -> str:
    """The text without what colours it on a terminal."""
    return _COLOURS.sub("", text) if "\x1b" in text else text


def split_label(line: str) -> tuple[str, str]:
    """The rank that a line's label names, and the line without it; an empty rank where there is no label."""
    found = _LABEL.match(line)
    if found is None:
        return "", line
    inner = _LABEL.match(line, found.end())  # PyTorch's label behind the launcher's: the launcher knows better
    return found[found.lastgroup or 0], line[(inner or found).end() :]
