# SPDX-License-Identifier: BSD-3-Clause
"""The lines of a batch script that copy the image, and kedge itself, to a disk of every node before the command."""

from __future__ import annotations

from kedge.cluster.job import Job
from kedge.cluster.schedulers.backend import Dialect, ScriptContext
from kedge.cluster.schedulers.launch_words import node_words
from kedge.cluster.site import Site

_WHY = "# names that nobody guesses: whoever made a file first would own it"


def stage_lines(job: Job, site: Site, place: ScriptContext, dialect: Dialect) -> list[str]:
    """The copies that the job wants; the variables `kedge` and `image` name them afterwards."""
    stages_image = job.broadcast or place.stages_image
    stages_kedge = place.stages_kedge and bool(dialect.broadcast)
    on_nodes = " ".join(node_words(job, site, dialect)) if stages_image or stages_kedge else ""
    if stages_image and not dialect.broadcast:
        # every node unpacks it to its own disk, once, and keeps it as long as there is room
        return [f'{on_nodes} "$kedge" unpack "$image"'.lstrip()]
    task = "_$KEDGE_ARRAY_INDEX" if job.array else ""  # two tasks may share a node, and each removes its own copy
    prefix = f"{site.node_directory or '/tmp'}/kedge-$UID-$KEDGE_JOB_ID{task}-$RANDOM$RANDOM"
    lines = []
    if stages_kedge:
        lines += [*_copy_kedge(prefix, dialect), _remove_at_the_end(on_nodes, "$staged")]
    if stages_image:
        lines += [f'copy="{prefix}-${{image##*/}}"', f'{dialect.broadcast} "$image" "$copy"']
        lines += [_remove_at_the_end(on_nodes, *(["$staged"] if stages_kedge else ()), "$copy"), 'image="$copy"']
    return [_WHY, *lines] if lines else []


def _remove_at_the_end(on_nodes: str, *copies: str) -> str:
    quoted = " ".join(f'"{copy}"' for copy in copies)
    removal = f"{on_nodes} rm -f {quoted}".lstrip()
    return f"trap 'finish \"$?\" 2>/dev/null || true; {removal}' EXIT"


def _copy_kedge(prefix: str, dialect: Dialect) -> list[str]:
    """Without the copy the job still runs: nodes then read kedge where it is. A /tmp may refuse to run programs."""
    return [
        f'staged="{prefix}-kedge"',
        f'if {dialect.broadcast} --preserve "$kedge" "$staged" && "$staged" --version >/dev/null; then',
        '    kedge="$staged"',
        "else",
        '    echo "kedge: not copied to the nodes, which read $kedge instead" >&2',
        "fi",
    ]
