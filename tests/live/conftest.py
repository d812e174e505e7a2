# SPDX-License-Identifier: BSD-3-Clause
"""A user of the OpenPBS for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.job_user import JobUser, leaving_nothing
from tests.live.openpbs import OpenPbs


@pytest.fixture
def me(pbs: OpenPbs) -> Iterator[JobUser]:
    with leaving_nothing(pbs) as user:
        yield user
