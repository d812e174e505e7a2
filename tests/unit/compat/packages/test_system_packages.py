# SPDX-License-Identifier: BSD-3-Clause
"""Packages of dpkg, apk and conda, from their databases."""

from __future__ import annotations

from kedge.compat.packages.system_packages import list_apk_packages, list_conda_packages, list_dpkg_packages
from kedge.system.views import TableView

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


def test_dpkg_lists_what_is_installed_with_its_files() -> None:
    view = TableView(
        {"/var/lib/dpkg/status": STATUS, "/var/lib/dpkg/info/libc6:amd64.list": "/.\n/lib\n/lib/libc.so.6\n"}
    )
    (package,) = list_dpkg_packages(view)
    assert (package.name, package.version, package.architecture) == ("libc6", "2.36-9+deb12u4", "amd64")
    assert package.files == ("/lib", "/lib/libc.so.6")


def test_dpkg_reads_the_parts_of_distroless_images() -> None:
    view = TableView({"/var/lib/dpkg/status.d/base": "Package: base-files\nVersion: 12\nArchitecture: arm64\n"})
    assert [package.name for package in list_dpkg_packages(view)] == ["base-files"]


def test_apk_lists_packages_and_files() -> None:
    text = "C:Q1x\nP:musl\nV:1.2.4-r2\nA:x86_64\nF:lib\nR:ld-musl-x86_64.so.1\na:0:0:755\nF:\nR:top\n\nP:bad\n\n"
    (package,) = list_apk_packages(TableView({"/lib/apk/db/installed": text}))
    assert (package.name, package.version) == ("musl", "1.2.4-r2")
    assert package.files == ("/lib/ld-musl-x86_64.so.1", "/top")


def test_conda_lists_packages_of_every_prefix() -> None:
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
