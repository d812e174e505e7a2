# SPDX-License-Identifier: BSD-3-Clause
"""Python packages of an image: names and versions as pip has them, in every site-packages."""

from __future__ import annotations

from kedge.compat.packages.python_packages import find_site_directories, list_python_packages
from kedge.system.views import TableView

SITE = "/usr/local/lib/python3.10/dist-packages"


def metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not this one\n"


def test_python_packages_read_the_version_that_pip_prints() -> None:
    view = TableView({
        f"{SITE}/torch-2.1.0a0_32f93b1.nv24.03.dist-info/METADATA": metadata("torch", "2.1.0a0+32f93b1.nv24.03"),
        f"{SITE}/torch-2.1.0a0_32f93b1.nv24.03.dist-info/RECORD": "torch/x.py,sha256=x,3\n../../../bin/torchrun,,\n",
    })  # fmt: skip
    (package,) = list_python_packages(view)
    assert (package.name, package.version, package.place) == ("torch", "2.1.0a0+32f93b1.nv24.03", SITE)
    assert package.files == (f"{SITE}/torch/x.py", "/usr/local/bin/torchrun")


def test_python_packages_are_read_from_eggs_links_and_editable_installs() -> None:
    view = TableView({
        f"{SITE}/six-1.16.0.egg-info": metadata("six", "1.16.0"),
        f"{SITE}/Old-1.0-py3.10.egg-info/PKG-INFO": metadata("Old", "1.0"),
        f"{SITE}/my-tool.egg-link": "/workspace/my\n.",
        "/workspace/my/my_tool.egg-info/PKG-INFO": metadata("my-tool", "0.1"),
        f"{SITE}/new-2.0.dist-info/METADATA": metadata("new", "2.0"),
        f"{SITE}/new-2.0.dist-info/direct_url.json": '{"dir_info": {"editable": true}, "url": "file:///src/new"}',
    })  # fmt: skip
    packages = {package.name: package for package in list_python_packages(view)}
    assert {name: package.version for name, package in packages.items()} == {
        "six": "1.16.0", "Old": "1.0", "my-tool": "0.1", "new": "2.0",
    }  # fmt: skip
    assert packages["my-tool"].location == "/workspace/my"
    assert packages["new"].location == "/src/new"


def test_python_packages_damaged_entries_are_passed_over() -> None:
    view = TableView({
        f"{SITE}/empty-1.0.dist-info/METADATA": "",
        f"{SITE}/~orch-2.0.dist-info/RECORD": "x",
        f"{SITE}/evil-1.dist-info/METADATA": metadata("evil\x1b[2J", "1"),
        f"{SITE}/link.egg-link": "relative",
        f"{SITE}/new-2.0.dist-info/METADATA": metadata("new", "2.0"),
        f"{SITE}/new-2.0.dist-info/RECORD": b"\xff\x00\"unclosed",
        f"{SITE}/new-2.0.dist-info/direct_url.json": "[",
    })  # fmt: skip
    assert [package.name for package in list_python_packages(view)] == ["new"]


def test_python_packages_every_interpreter_is_looked_at() -> None:
    view = TableView({
        "/usr/lib/python3/dist-packages/a.py": "", "/usr/local/lib/python3.11/site-packages/a.py": "",
        "/opt/conda/lib/python3.12/site-packages/a.py": "", "/opt/conda/envs/train/conda-meta/history": "",
        "/opt/conda/envs/train/lib/python3.9/site-packages/a.py": "", "/opt/mine/pyvenv.cfg": "",
        "/opt/mine/lib/python3.11/site-packages/a.py": "", "/opt/mine/lib64": "-> lib",
    })  # fmt: skip
    assert find_site_directories(view) == [
        "/usr/lib/python3/dist-packages",
        "/usr/local/lib/python3.11/site-packages",
        "/opt/conda/lib/python3.12/site-packages",
        "/opt/mine/lib/python3.11/site-packages",
        "/opt/conda/envs/train/lib/python3.9/site-packages",
    ]


def test_python_packages_an_image_without_python_has_none() -> None:
    assert list_python_packages(TableView({"/bin/sh": ""})) == []
