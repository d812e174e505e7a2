# SPDX-License-Identifier: BSD-3-Clause
"""Two images compared: layers against layers, a directory or a SIF; files, packages and config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kedge.answers.image_diff import ImageDiff, diff_images
from kedge.base.reference import Reference
from kedge.image.convert import ConvertRequest, convert, read_target
from kedge.image.formats.oci.writer import write_layout
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders.oci_images import make_image
from tests.builders.rows import each_row
from tests.wording import assert_reads

SITE = "usr/lib/python3/dist-packages"
BASE = {
    "bin/tool": b"\x7fELF" + bytes(60),
    "etc/motd": b"hello",
    "etc/old": b"old",
    f"{SITE}/torch-2.dist-info/METADATA": b"Name: torch\nVersion: 2.1\n",
    "var/lib/dpkg/status": b"Package: libc6\nStatus: install ok installed\nVersion: 2.36\n",
}
TOP = {
    "etc/motd": b"HELLO", "etc/.wh.old": b"", "opt/new": b"x" * 1000, f"{SITE}/.wh.torch-2.dist-info": b"",
    f"{SITE}/torch-3.dist-info/METADATA": b"Name: torch\nVersion: 3.0\n",
}  # fmt: skip


@pytest.fixture(name="workplace")
def make_workplace(tmp_path: Path) -> Workplace:
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "cache"), "KEDGE_ARCH": "arm64"}
    return Workplace(Settings.load({}, environ))


def write(path: Path, layers: Sequence[Mapping[str, bytes]], **section: object) -> Reference:
    write_layout(path, [make_image(layers, section={"Env": ["PATH=/bin"], **section})])
    return Reference.parse(f"oci:{path}")


def show_files(difference: ImageDiff) -> dict[str, tuple[str, int]]:
    return {change.path: (change.change, change.growth) for change in difference.files}


def test_diff_of_two_builds_lists_files_packages_and_config(tmp_path: Path, workplace: Workplace) -> None:
    base = write(tmp_path / "base", [BASE])
    new = write(tmp_path / "new", [BASE, TOP], Env=["PATH=/bin:/opt", "A=1"], Labels={"v": "2"}, Cmd=["/opt/new"])
    difference = diff_images(base, new, workplace)
    files = show_files(difference)
    assert files["/etc/motd"] == ("changed", 0)
    assert files["/etc/old"] == ("removed", -3)
    assert files["/opt/new"] == ("added", 1000)
    assert "/bin/tool" not in files
    assert_reads([str(change) for change in difference.packages], "compat/torch-replaced", "3.0")
    assert [(change.name, change.before, change.after) for change in difference.config] == [
        ("Cmd", None, '["/opt/new"]'),
        ("Env A", None, "1"),
        ("Env PATH", "/bin", "/bin:/opt"),
        ("Label v", None, "2"),
    ]
    assert difference.shared_layers == 1


def test_diff_of_the_same_layers_reads_none(tmp_path: Path, workplace: Workplace) -> None:
    base = write(tmp_path / "base", [BASE])
    for blob in (tmp_path / "base/blobs/sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            blob.write_bytes(b"\x1f\x8b damaged")
    assert diff_images(base, base, workplace).is_empty


@each_row("name", ["other.sif", "sandbox"])
def test_diff_of_layers_and_what_was_made_of_them_is_empty(name: str, tmp_path: Path, workplace: Workplace) -> None:
    base = write(tmp_path / f"layers of {name}", [BASE, TOP])
    made = tmp_path / name
    convert(ConvertRequest(base, read_target(str(made))), workplace)
    difference = diff_images(base, Reference.parse(str(made)), workplace)
    assert (difference.files, difference.packages) == ((), ())


def test_diff_of_a_sandbox_names_permissions_and_types(tmp_path: Path, workplace: Workplace) -> None:
    base = write(tmp_path / "base", [BASE])
    made = tmp_path / "sandbox"
    convert(ConvertRequest(base, read_target(str(made))), workplace)
    (made / "etc/motd").chmod(0o600)
    (made / "etc/old").unlink()
    (made / "etc/old").symlink_to("motd")
    difference = diff_images(base, Reference.parse(str(made)), workplace)
    assert {change.path: change.what for change in difference.files} == {
        "/etc/motd": ("permissions",),
        "/etc/old": ("type",),
    }
