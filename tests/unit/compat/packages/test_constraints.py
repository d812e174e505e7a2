# SPDX-License-Identifier: BSD-3-Clause
"""Packages frozen as pins, and what counts as replaced."""

from __future__ import annotations

from kedge.compat.packages.constraints import list_changes, list_replaced, read_pinned_names, render_constraints
from kedge.compat.packages.package import CONDA, DPKG, PIP, InstalledPackage, normalize_name
from tests.builders.rows import each_row
from tests.wording import assert_reads

OWN, SYSTEM = "/usr/local/lib/python3.10/dist-packages", "/usr/lib/python3/dist-packages"


def package(name: str, version: str, place: str = OWN, manager: str = PIP, **more: str) -> InstalledPackage:
    return InstalledPackage(manager, name, version, place, **more)  # type: ignore[arg-type]


@each_row("name", ["ruamel.yaml", "ruamel-yaml", "Ruamel_YAML", "ruamel._-yaml"])
def test_names_are_compared_as_pip_does(name: str) -> None:
    assert normalize_name(name) == "ruamel-yaml"


def test_constraints_are_own_versions_without_tools() -> None:
    packages = [
        package("torch", "2.1.0a0+32f93b1.nv24.03"), package("pip", "24.0"), package("setuptools", "68.2.2"),
        package("mine", "1.0", location="/workspace"), package("odd", "1.0-unknown"),
        package("epoch", "1!2.0.post1.dev3"), package("libc6", "2.36", manager=DPKG),
    ]  # fmt: skip
    assert render_constraints(packages) == "epoch==1!2.0.post1.dev3\ntorch==2.1.0a0+32f93b1.nv24.03\n"
    packages = [
        package("numpy", "1.24", SYSTEM), package("numpy", "1.26"), package("six", "1.16", SYSTEM),
        package("click", "8.0"), package("click", "8.1", "/opt/conda/lib/python3.12/site-packages"),
    ]  # fmt: skip
    assert render_constraints(packages, ["Six"]) == "numpy==1.26\n"
    text = (
        "# by the vendor\n-c other.txt\ntorch==2.1 # built here\nnumpy<2\nruamel.yaml [x] == 1 ; python_version>'3'\n"
    )
    assert read_pinned_names(text) == ["torch", "ruamel.yaml"]


def test_replaced_counts_what_python_would_take() -> None:
    before = [package("torch", "2.1.0a0+nv"), package("numpy", "1.24"), package("six", "1.16")]
    after = [package("torch", "2.3.0"), package("numpy", "1.24"), package("new", "1")]
    assert [str(change) for change in list_replaced(before, after)] == [
        "torch 2.1.0a0+nv was replaced by 2.3.0",
        "six 1.16 was removed",
    ]
    before = [package("numpy", "1.24", SYSTEM)]
    assert list_replaced(before, [*before, package("numpy", "2.0")])[0].after == "2.0"
    assert list_replaced(before, [*before, package("numpy", "2.0", "/root/.local/lib/python3.10/site-packages")])
    assert not list_replaced(before, [*before, package("numpy", "2.0", "/opt/venv/lib/python3.10/site-packages")])
    assert not list_replaced(before, [*before, package("numpy", "1.24")])
    before, after = [package("torch", "2.1", fingerprint="a")], [package("torch", "2.1", fingerprint="b")]
    assert_reads(str(list_replaced(before, after)[0]), "compat/torch-replaced-another-build-same")
    assert not list_replaced(before, [package("torch", "2.1", fingerprint="a")])
    before = [package("mkl", "2024.0", "/opt/conda", CONDA), package("pip", "23.0")]
    after = [package("mkl", "2024.2", "/opt/conda", CONDA), package("pip", "24.0")]
    assert [change.name for change in list_replaced(before, after)] == ["mkl"]


def test_changes_list_what_was_added_removed_and_changed() -> None:
    before = [package("a", "1"), package("B", "1"), package("libc6", "1", "", DPKG)]
    after = [package("A", "2"), package("c", "1"), package("libc6", "1", "", DPKG)]
    assert [str(change) for change in list_changes(before, after)] == [
        "A 1 was replaced by 2",
        "B 1 was removed",
        "c 1 was added",
    ]
