# SPDX-License-Identifier: BSD-3-Clause
"""One OpenPBS for all tests, and a user of it for each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.job_user import JobUser, leaving_nothing
from tests.live.openpbs import OpenPbs, open_pbs


@pytest.fixture(scope="session")
def pbs() -> Iterator[OpenPbs]:
    with tempfile.TemporaryDirectory(prefix="kedge-openpbs-") as name:
        Path(name).chmod(0o755)
        with open_pbs(Path(name)) as started:
            yield started


@pytest.fixture
def me(pbs: OpenPbs) -> Iterator[JobUser]:
    with leaving_nothing(pbs) as user:
        yield user
