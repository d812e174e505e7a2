# SPDX-License-Identifier: BSD-3-Clause
"""`--protect`: what is frozen, what steps get, and how a replaced package is named."""

from __future__ import annotations

import pytest

from kedge.builds.step_values import RecipePlace
from kedge.builds.steps.run_program import CONSTRAINTS_PATH, freeze_packages
from kedge.errors import PackageReplaced
from kedge.system.views import TableView
from tests.wording import assert_reads

SITE = "/usr/local/lib/python3.10/dist-packages"
PLACE = RecipePlace("Dockerfile", 7)


def make_view(**versions: str) -> TableView:
    return TableView(
        {f"{SITE}/{name}-0.dist-info/METADATA": f"Name: {name}\nVersion: {text}\n" for name, text in versions.items()}
        | {"/etc/pip/constraint.txt": "numpy==1.24\n"}
    )


def test_protect_gives_steps_both_files() -> None:
    protection = freeze_packages(
        make_view(torch="2.1.0a0+nv", numpy="1.24"), {"PIP_CONSTRAINT": "/etc/pip/constraint.txt"}
    )
    assert protection.text == "torch==2.1.0a0+nv\n"
    protection = freeze_packages(make_view(torch="2"), {})
    environment = protection.extend_environment({"PIP_CONSTRAINT": "/etc/pip/constraint.txt", "A": "1"})
    assert environment == {
        "A": "1",
        "PIP_CONSTRAINT": f"/etc/pip/constraint.txt {CONSTRAINTS_PATH}",
        "UV_CONSTRAINT": f"/etc/pip/constraint.txt {CONSTRAINTS_PATH}",
    }
    assert protection.extend_environment(environment) == environment
    assert freeze_packages(make_view(a="1"), {}).key != freeze_packages(make_view(a="2"), {}).key


def test_protect_lets_new_packages_in_and_names_those_replaced() -> None:
    freeze_packages(make_view(torch="2"), {}).check(make_view(torch="2", lightning="2.4"), PLACE, "RUN pip install")
    protection = freeze_packages(make_view(torch="2.1.0a0+nv", numpy="1.24"), {})
    with pytest.raises(PackageReplaced) as refused:
        protection.check(make_view(torch="2.3.0"), PLACE, "RUN pip install torchaudio")
    assert_reads(refused.value.message, "build/dockerfile-numpy-removed-more-bases")
    assert refused.value.context["2"] == "torch 2.1.0a0+nv was replaced by 2.3.0"
    assert refused.value.context["step"] == "RUN pip install torchaudio"
    assert "--no-deps" in str(refused.value.hint)
