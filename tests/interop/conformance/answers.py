# SPDX-License-Identifier: BSD-3-Clause
"""What the real Apptainer did in each case, kept with its version: `scripts/record-apptainer` asks it again.

A record is used as long as the case is the same, and only to agree: where kedge's answer does not fit, Apptainer itself
is asked, since another machine may let both do otherwise. `make test-all` compares the records with fresh answers.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os

from tests.interop.conformance.case import Case
from tests.interop.conformance.runner import Place, Result
from tests.requirements import REPOSITORY

FILE = REPOSITORY / "tests/golden/apptainer.json"
IS_RECORDING = os.environ.get("KEDGE_GOLDEN") == "write"


def find_answer(case: Case) -> tuple[Result, str] | None:
    """Apptainer's recorded answer and what it said; None where there is none for this very case."""
    if IS_RECORDING:
        return None
    record = _RECORDS.get(case.name)
    if record is None or record["case"] != _sign(case):
        return None
    return Result(record["status"], record["stdout"], record["after"]), record["said"]


def write_answers(place: Place, cases: dict[str, Case], answers: dict[str, tuple[Result, str]]) -> None:
    """Keep these, and what is recorded of other cases."""
    version = place.enter("apptainer", "--version").stdout.split()[-1]
    made = {
        name: {"case": _sign(cases[name]), **vars(result), "said": said} for name, (result, said) in answers.items()
    }
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in sorted({**_RECORDS, **made}.items())]
    head = f'{{\n "apptainer": "{version}",\n "date": "{today}",\n "answers": {{\n'
    FILE.write_text(head + ",\n".join(lines) + "\n }\n}\n")  # a line for each case: that is how differences are read


def _sign(case: Case) -> str:
    """A name for all that the case consists of but for what is expected of it."""
    asked = (case.words, dict(case.env), case.setup, case.after, case.script, case.stdin, case.cwd, case.ignore)
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]


_RECORDS = json.loads(FILE.read_text())["answers"] if FILE.exists() else {}
