# SPDX-License-Identifier: BSD-3-Clause
"""A real job that fails as users' jobs do: what its output means is told by `submit --wait` and by `status`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.errors import JobFailed
from tests.builders.queue_user import QueueUser
from tests.wording import assert_says

SAID = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
MEANS = "the image has no kernels for that GPU (error 209): the GPU is too old for it, or too new"


@pytest.fixture
def user(tmp_path: Path) -> QueueUser:
    return QueueUser(tmp_path)


def test_job_clues_of_a_failed_job_are_told(user: QueueUser) -> None:
    script = user.folder / "train.sh"
    script.write_text(f"echo Traceback\nprintf '\\033[31m%s\\n' '{SAID}' >&2\nexit 1\n")
    waited = user.run("submit", "--wait", "--site", "local", "-", "sh", script, check=False)
    assert waited.returncode == JobFailed.exit_code
    assert f"which means: {MEANS}" in waited.stderr
    shown = user.run("status", "--site", "local").stdout
    assert "    output: " in shown
    assert SAID in shown
    assert "\033" not in shown
    assert_says(shown, "submit/cause-remedy-explain-image-gpu", MEANS)
    told = json.loads(user.run("status", "--json", "--site", "local").stdout)
    assert told["tasks"][0]["clue"]["cause"] == MEANS


def test_job_clues_where_output_is_thrown_away(user: QueueUser) -> None:
    words = ("submit", "--wait", "--site", "local", "-o", "/dev/null", "-e", "/dev/null", "-", "sh", "-c", "echo x")
    user.run(*words)
    assert Path("/dev/null").is_char_device()
    assert_says(user.run("logs", "--site", "local", check=False).stderr, "submit/to-so-it-is-lost", "/dev/null")
    assert user.run("status", "--site", "local").stderr == ""
