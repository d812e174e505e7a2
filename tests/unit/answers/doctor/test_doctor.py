# SPDX-License-Identifier: BSD-3-Clause
"""The time that checks have: on a host where loading their code takes longer than all of it, too."""

from __future__ import annotations

import importlib
import time
from types import ModuleType

import pytest

from kedge.answers.doctor import doctor
from kedge.answers.doctor.doctor import diagnose
from kedge.answers.doctor.surroundings import OK, SKIPPED, Surroundings
from kedge.system.settings import Settings

NAMES = ("kernel", "locale", "registries")  # the last brings the imports that take long


def make_surroundings(patience: float = 1.0) -> Surroundings:
    environ = {"HOME": "/nowhere", "LANG": "C.UTF-8"}
    return Surroundings(environ, Settings.load({}, environ), is_offline=True, patience=patience)


@pytest.mark.parametrize("patience", [1.0, 5.0])
def test_a_host_that_loads_slowly_gets_its_checks_done_and_is_told(
    monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    load = importlib.import_module

    def load_slowly(name: str) -> ModuleType:
        time.sleep(2.5 if name == "kedge.answers.doctor.network" else 0)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", load_slowly)
    diagnosis = diagnose(make_surroundings(patience), NAMES)
    levels = {finding.check: finding.level for finding in diagnosis.findings}
    assert levels["kernel"] == OK
    assert levels["locale"] != SKIPPED
    assert "this host is slow: time limits were multiplied by " in diagnosis.summary
    assert 5.0 <= diagnosis.slowness <= 20.0
    assert diagnosis.as_dict()["summary"] == diagnosis.summary


def test_a_host_of_usual_speed_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_USUAL", 60.0)  # whatever else this machine does at the moment
    diagnosis = diagnose(make_surroundings(20.0), ("kernel",))
    assert diagnosis.slowness == 1.0
    assert "slow" not in diagnosis.summary


def test_the_slowest_host_does_not_wait_without_end() -> None:
    assert doctor._measure_slowness(10_000.0) == doctor._SLOWEST
