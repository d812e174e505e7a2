# SPDX-License-Identifier: BSD-3-Clause
"""What an image says of its build: bases with their digests, steps, arguments, and the kedge that built it."""

from __future__ import annotations

import json

from kedge.base.release import VERSION
from kedge.base.secret_text import mask_value
from kedge.builds.request import BuildRequest
from kedge.builds.states.build_state import StageResult
from kedge.builds.step_values import Recipe
from kedge.builds.steps.session import BuildSession
from kedge.image.formats.go_json import clean_text


def write_note(recipe: Recipe, session: BuildSession, result: StageResult) -> str:
    """Return the note as JSON; values of secrets are no part of it."""
    bases = {base.reference: base.digest or base.key for base in session.bases if base.reference}
    document: dict[str, object] = {
        "kedge": VERSION,
        "recipe": {"kind": recipe.kind, "name": recipe.name},
        "arguments": _list_arguments(session.request),
        "bases": [{"reference": name, "digest": digest} for name, digest in sorted(bases.items())],
        "steps": [str(entry["created_by"]) for entry in result.state.history],
        "target": session.request.target or None,
    }
    if session.request.sections != ("all",):
        document["sections"] = list(session.request.sections)
    return clean_text(json.dumps(document, indent=1, ensure_ascii=False))


def _list_arguments(request: BuildRequest) -> dict[str, str]:
    return {name: mask_value(name, value) for name, value in sorted(request.arguments.items())}
