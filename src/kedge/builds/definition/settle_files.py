# SPDX-License-Identifier: BSD-3-Clause
"""What the files of a WriteFilesStep become in a tree that has files of these names already.

Ways of a file: `write` replaces; `keep` is written only where nothing is; `append` puts its text behind what is there;
`labels` merges a JSON object into the one that is there, and with it what %post left in /.build.labels; `history`
replaces, and keeps the old definition file in bootstrap_history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kedge.base.frozen import frozen, replace
from kedge.builds.step_values import Step, TreeFile, WriteFilesStep
from kedge.image.formats.go_json import clean_text, encode_json, encode_text

BUILD_LABELS = "/.build.labels"  # $APPTAINER_LABELS
_HISTORY = "/.singularity.d/bootstrap_history"
_MOST_HISTORY = 1000


@frozen
class SettledFiles:
    """What is to be done to a tree: whole files to write, and files to remove."""

    files: tuple[TreeFile, ...]
    removed: tuple[str, ...] = ()


def settle_files(step: WriteFilesStep, read: Callable[[str], bytes | None]) -> SettledFiles:
    """Decide about every file of the step; `read` gives a file of the tree, or None where there is none."""
    settled: dict[str, TreeFile] = {}
    removed: list[str] = []

    def look(path: str) -> bytes | None:
        if path in removed:
            return None
        return settled[path].data if path in settled else read(path)

    for file in step.files:
        if file.way == "keep" and look(file.path) is not None:
            continue
        data = file.data
        if file.way == "append":
            data = (look(file.path) or b"") + data
        elif file.way == "labels":
            data = _merge_labels(look(file.path), data, look(BUILD_LABELS))
            if read(BUILD_LABELS) is not None and BUILD_LABELS not in removed:
                removed.append(BUILD_LABELS)
        elif file.way == "history":
            _keep_history(look(file.path), look, settled)
        settled[file.path] = replace(file, data=data, way="write")
    return SettledFiles(tuple(settled.values()), tuple(removed))


def add_labels(step: Step, labels: Mapping[str, str]) -> Step:
    """The step with further labels, where it writes some."""
    if not labels or not isinstance(step, WriteFilesStep):
        return step
    files = [
        replace(file, data=encode_text(encode_json({**_load_labels(file.data), **labels})))
        if file.way == "labels"
        else file
        for file in step.files
    ]
    return replace(step, files=tuple(files))


def _merge_labels(present: bytes | None, added: bytes, appended: bytes | None) -> bytes:
    """Later ones win: of the base, of the recipe, of %post."""
    labels = {**_load_labels(present), **_load_labels(added)}
    if appended is not None:
        from kedge.builds.definition.definition import read_labels  # late: only a step that is done needs it

        labels |= read_labels(appended.decode("utf-8", "replace"))
    clean = {clean_text(name): clean_text(labels[name]) for name in sorted(labels)}
    return encode_text(encode_json(clean, indent="\t"))


def _load_labels(data: bytes | None) -> dict[str, str]:
    """The texts of a labels.json; a broken one counts as empty."""
    try:
        document = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {name: text for name, text in document.items() if isinstance(text, str)}


def _keep_history(old: bytes | None, look: Callable[[str], bytes | None], settled: dict[str, TreeFile]) -> None:
    if old is None:
        return
    for number in range(_MOST_HISTORY):
        if all(look(f"{_HISTORY}/{name}{number}") is None for name in ("Apptainer", "Singularity")):
            path = f"{_HISTORY}/Apptainer{number}"
            settled[path] = TreeFile(path, old)
            return
