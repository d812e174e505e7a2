# SPDX-License-Identifier: BSD-3-Clause
"""The page has every command of the documents, without a run; expectations are of commands that are there."""

from __future__ import annotations

import pytest

from tests.tutorials import test_abci, test_nvidia, test_sdumont, test_tacc, test_zih
from tests.tutorials.lessons import Lesson
from tests.tutorials.page import check_page
from tests.tutorials.reader import list_steps

LESSONS = [module.LESSON for module in (test_zih, test_sdumont, test_abci, test_nvidia, test_tacc)]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.title.partition(":")[0])
def test_page_is_complete(lesson: Lesson) -> None:
    steps = list_steps(lesson)
    check_page(lesson, steps, may_write=False)
    lines = {step.found.line for step in steps}
    assert {key if isinstance(key, int) else key[0] for key in lesson.expectations} <= lines
    assert set(lesson.files) <= {step.found.text for step in steps}
