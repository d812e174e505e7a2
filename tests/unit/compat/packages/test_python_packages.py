# SPDX-License-Identifier: BSD-3-Clause
"""Packages of an image: Python's as pip has them, those of dpkg, apk and conda from their databases."""

from __future__ import annotations

from kedge.compat.packages.python_packages import find_site_directories, list_python_packages
from kedge.compat.packages.system_packages import list_apk_packages, list_conda_packages, list_dpkg_packages
from kedge.system.views import TableView

SITE = "/usr/local/lib/python3.10/dist-packages"


def metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not this one\n"


def test_python_packages_are_read_as_pip_has_them() -> None:
    view = TableView({
        f"{SITE}/torch-2.1.0a0_32f93b1.nv24.03.dist-info/METADATA": metadata("torch", "2.1.0a0+32f93b1.nv24.03"),
        f"{SITE}/torch-2.1.0a0_32f93b1.nv24.03.dist-info/RECORD": "torch/x.py,sha256=x,3\n../../../bin/torchrun,,\n",
    })  # fmt: skip
    (package,) = list_python_packages(view)
    assert (package.name, package.version, package.place) == ("torch", "2.1.0a0+32f93b1.nv24.03", SITE)
    assert package.files == (f"{SITE}/torch/x.py", "/usr/local/bin/torchrun")
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
    assert list_python_packages(TableView({"/bin/sh": ""})) == []


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


STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u4
Description: not a field
 Version: 1

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: half
Status: install ok half-installed
Version: 1.0
"""


def test_system_packages_are_listed_with_their_files() -> None:
    view = TableView(
        {"/var/lib/dpkg/status": STATUS, "/var/lib/dpkg/info/libc6:amd64.list": "/.\n/lib\n/lib/libc.so.6\n"}
    )
    (package,) = list_dpkg_packages(view)
    assert (package.name, package.version, package.architecture) == ("libc6", "2.36-9+deb12u4", "amd64")
    assert package.files == ("/lib", "/lib/libc.so.6")
    view = TableView({"/var/lib/dpkg/status.d/base": "Package: base-files\nVersion: 12\nArchitecture: arm64\n"})
    assert [package.name for package in list_dpkg_packages(view)] == ["base-files"]
    text = "C:Q1x\nP:musl\nV:1.2.4-r2\nA:x86_64\nF:lib\nR:ld-musl-x86_64.so.1\na:0:0:755\nF:\nR:top\n\nP:bad\n\n"
    (package,) = list_apk_packages(TableView({"/lib/apk/db/installed": text}))
    assert (package.name, package.version) == ("musl", "1.2.4-r2")
    assert package.files == ("/lib/ld-musl-x86_64.so.1", "/top")
    view = TableView({
        "/opt/conda/conda-meta/numpy-1.26.json": '{"name": "numpy", "version": "1.26", "files": ["lib/x", 3]}',
        "/opt/conda/conda-meta/bad.json": "{",
        "/opt/conda/conda-meta/list.json": "[]",
        "/opt/conda/conda-meta/history": "",
        "/opt/conda/envs/a/conda-meta/zlib-1.json": '{"name": "zlib", "version": "1"}',
    })  # fmt: skip
    packages = list(list_conda_packages(view))
    assert [(package.name, package.place) for package in packages] == [
        ("numpy", "/opt/conda"),
        ("zlib", "/opt/conda/envs/a"),
    ]
    assert packages[0].files == ("/opt/conda/lib/x",)
