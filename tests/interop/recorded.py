# SPDX-License-Identifier: BSD-3-Clause
"""Answers of other programs that change with their version alone: of Apptainer and buildah, kept in tests/golden/peers.

`KEDGE_GOLDEN=write scripts/run-tests FILE` asks again for all that the tests of a file compare with; then read the
difference before you commit it. `make test-all` asks, too, and compares. `conformance/` has a record of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from tests.builders.apptainer import apptainer_folder
from tests.requirements import REPOSITORY

FOLDER = REPOSITORY / "tests/golden/peers"
IS_RECORDING = os.environ.get("KEDGE_GOLDEN") == "write"  # read before tests lose all variables of kedge

Ask = Callable[[list[str]], Mapping[str, Any]]  # from the names of questions to answers, which JSON can hold


def ask_apptainer_version() -> str:
    """As it says it itself."""
    with apptainer_folder() as peer:
        return peer.run("--version").stdout.strip()


def recall(
    subject: str, questions: Mapping[str, object], ask: Ask, ask_version: Callable[[], str] = ask_apptainer_version
) -> dict[str, Any]:
    """The answers by the names of questions; the program itself is asked where a question is not the recorded one."""
    path = FOLDER / f"{subject}.json"
    records = json.loads(path.read_text())["answers"] if path.exists() and not IS_RECORDING else {}
    signs = {name: _sign(question) for name, question in questions.items()}
    found = {name: records[name][1] for name in signs if name in records and records[name][0] == signs[name]}
    missing = [name for name in signs if name not in found]
    found |= ask(missing) if missing else {}
    if IS_RECORDING:
        path.parent.mkdir(exist_ok=True)
        lines = [f"  {json.dumps(name)}: {json.dumps([signs[name], found[name]])}" for name in signs]
        text = f'{{\n "said by": "{ask_version()}",\n "answers": {{\n'
        path.write_text(text + ",\n".join(lines) + "\n }\n}\n")  # a line for each: that is how differences are read
    return found


def find_changes(subject: str, questions: Mapping[str, object], ask: Ask) -> list[str]:
    """The questions that the program answers otherwise than it is recorded."""
    recorded, fresh = recall(subject, questions, ask), ask(list(questions))
    return [
        f"{name}: {fresh[name]!r} where {recorded[name]!r} is recorded"
        for name in questions
        if json.dumps(fresh[name]) != json.dumps(recorded[name])
    ]


def _sign(question: object) -> str:
    return hashlib.sha256(repr(question).encode()).hexdigest()[:16]
