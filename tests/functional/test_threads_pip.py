# SPDX-License-Identifier: BSD-3-Clause
"""Users whom pip in NVIDIA's images surprised, and one who chose a tag by the cluster's driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.answers.doctor.image_check import judge_image
from kedge.compat.failures.find_clues import find_clues
from kedge.compat.recommend import recommend
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.target import Target
from kedge.compat.verdict import NATIVE
from tests.builders.user_threads import TABLES, about, case, read_image
from tests.wording import assert_begins

PYTORCH = "nvcr.io/nvidia/pytorch"


@pytest.mark.parametrize(
    ("tag", "what", "why", "fix"),
    [
        case(
            51,
            "22.09-py3",
            *(
                "may replace NVIDIA's build of torch",
                "takes NVIDIA's pre-release version for older than packages require",
            ),
            "install with PIP_CONSTRAINT=FILE; or use --no-deps",
        ),
        case(
            52,
            "25.10-py3",
            *(
                "pinned to the versions it was built with (PIP_CONSTRAINT=/etc/pip/constraint.txt)",
                "ResolutionImpossible",
            ),
            "pip install --no-deps NAME",
        ),
        case(
            53,
            "25.03-py3",
            *("pinned to the versions it was built with", "ResolutionImpossible"),
            "set PIP_CONSTRAINT to a copy of the file without the conflicting lines",
        ),
        case(
            55,
            "23.10-py3",
            *("pip in this image (23.10) may replace", "and installs another torch"),
            "save 'pip list --format=freeze' to FILE",
        ),
    ],
)
def test_threads_pip_of_an_image_is_told_by_doctor(*, tag: str, what: str, why: str, fix: str, tmp_path: Path) -> None:
    findings = judge_image(read_image(f"{PYTORCH}:{tag}"), None, None, {"HOME": str(tmp_path)})
    [finding] = [each for each in findings if what in each.what]
    assert why in finding.why
    assert fix in finding.fix


@about(52, 53)
def test_threads_pip_that_gave_up_is_explained() -> None:
    first, *_ = find_clues(
        "ERROR: Cannot install flash-attn because these package versions have conflicting dependencies.\n"
        "The conflict is caused by:\n    The user requested (constraint) torch==2.7.0a0+7c8ec84\n"
    )
    assert "PIP_CONSTRAINT" in first.cause
    assert "--no-deps" in first.remedy


@about(54)
def test_threads_tag_by_the_driver_of_the_cluster() -> None:
    gpus = (find_gpu("H100", TABLES),)
    target = Target("H100 nodes", "queue", gpus, has_gpus=True, driver="580.95.05", architecture="amd64")
    found = recommend("pytorch", target, TABLES)
    assert found.best is not None
    assert (found.best.tag, found.best.outcome) == ("25.11-py3", NATIVE)
    assert_begins(found.sentence, "recommend/newest-tag-runs-natively-3", PYTORCH, "NVIDIA H100")
