# SPDX-License-Identifier: BSD-3-Clause
"""The answers of an image's Python are read with care: the image may be anybody's."""

from __future__ import annotations

import pytest

from kedge.errors import NotebookProblem
from kedge.system.lean_programs import Finished
from kedge.tools.jupyter import image_python


@pytest.mark.parametrize(
    "said", ["", "kedge-python", "kedge-python {}", "kedge-python 7", 'kedge-python {"installed": 1}']
)
def test_image_python_other_answers_are_none(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        image_python, "run_step", lambda *_, **__: Finished(("python3",), 0, said.encode(), b"odd wrapper\n")
    )
    with pytest.raises(NotebookProblem, match="gives no answer: odd wrapper"):
        image_python.ask_python("a.sif")
