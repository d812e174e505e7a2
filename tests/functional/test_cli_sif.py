# SPDX-License-Identifier: BSD-3-Clause
"""`kedge sif` from the command line: output as `apptainer sif` prints it, JSON, changes and mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.cli.main import main
from kedge.errors import CorruptImage, FileProblem, OutputExists, UnsupportedFormat, UsageError
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path
from tests.requirements import open_way

Run = Callable[..., tuple[int, str, str]]
LIST = """\
------------------------------------------------------------------------------
ID   |GROUP   |LINK    |SIF POSITION (start-end)  |TYPE
------------------------------------------------------------------------------
1    |1       |NONE    |32768-32807               |Def.FILE
2    |1       |NONE    |36864-38761               |JSON.Generic
3    |1       |NONE    |40960-41050               |JSON.Generic
4    |1       |NONE    |45056-839680              |FS (Squashfs/*System/arm64)
5    |NONE    |1   (G) |839680-841445             |Signature (SHA-256)
"""
HEADER = """\
Launch Script:        #!/usr/bin/env run-singularity
Version:              01
Primary Architecture: arm64
ID:                   a46b411d-d08c-4f71-8f4e-f77318d7edf2
Created At:           2021-08-02 21:41:28 +0000 UTC
Modified At:          2021-08-02 21:41:28 +0000 UTC
Descriptors Free:     43
Descriptors Total:    48
Descriptors Offset:   4096
Descriptors Size:     27 KiB
Data Offset:          32768
Data Size:            790 KiB
"""
INFO = """\
  Data Type:        FS
  ID:               4
  Group ID:         1
  Linked ID:        NONE
  Offset:           45056
  Size:             794624
  Created At:       2021-08-02 21:41:28 +0000 UTC
  Modified At:      2021-08-02 21:41:28 +0000 UTC
  Name:             squashfs-309960939
  Filesystem Type:  Squashfs
  Partition Type:   *System
  Architecture:     arm64
"""
EMPTY_HEADER = """\
Version:            01
Descriptors Free:   48
Descriptors Total:  48
Descriptors Offset: 4096
Descriptors Size:   27 KiB
Data Offset:        32176
Data Size:          0 B
"""
FINGERPRINT = "433FE984155206BD962725E20E8713472A879943"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        status = main(["sif", *map(str, words)])
        out, err = capfd.readouterr()
        return status, out, err

    return call


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.sif"
    path.write_bytes(fixture_path("busybox_arm64.sif").read_bytes())
    return path


def test_cli_sif_list_header_info_print_what_apptainer_prints(run: Run, image: Path) -> None:
    assert run("list", image) == (0, LIST, "")
    assert run("header", image) == (0, HEADER, "")
    assert run("info", 4, image) == (0, INFO, "")
    assert run("header", fixture_path("empty.sif")) == (0, EMPTY_HEADER, "")
    assert "Entity:       1137E72E6816BFC06D9CAA0D15F3F4F4F14B03B2" in run("info", 5, image)[1]


def test_cli_sif_json(run: Run, image: Path) -> None:
    document = json.loads(run("list", "--json", image)[1])
    assert [each["id"] for each in document["objects"]] == [1, 2, 3, 4, 5]
    assert document["objects"][3]["architecture"] == "arm64"
    assert document["objects"][4]["link_is_group"] is True
    assert document["header"]["created"] == 1627940488
    assert json.loads(run("header", "--json", fixture_path("one-group.sif"))[1])["created"] is None
    assert json.loads(run("info", "--json", 1, image)[1])["size"] == 39


def test_cli_sif_dump_writes_raw_bytes(image: Path) -> None:
    argv = [sys.executable, "-m", "kedge", "sif", "dump", "4", str(image)]
    done = subprocess.run(argv, capture_output=True, check=True)
    assert done.stdout == image.read_bytes()[45056 : 45056 + 794624]
    assert done.stderr == b""


def test_cli_sif_add_every_type(run: Run, image: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("hello\n")
    partition = ("--parttype", 3, "--partfs", 4, "--partarch", 2)
    signature = ("--signhash", 1, "--signentity", FINGERPRINT, "--link", 1, "--groupid", 3)
    for words in (
        ("--datatype", 7, "--filename", "gen"),
        ("--datatype", 4, *partition),
        ("--datatype", 5, *signature),
        ("--datatype", 9, "--sbomformat", "spdx-json"),
        ("--datatype", 8),
        ("--datatype", 2),
        ("--datatype", 3, "--alignment", 64),
        ("--datatype", 10),
    ):
        assert run("add", *words, image, note)[0] == 0, words
    assert run("list", image)[1] == LIST + (
        "6    |NONE    |NONE    |841445-841451             |Generic/Raw\n"
        "7    |NONE    |NONE    |843776-843782             |FS (Raw/Data/amd64)\n"
        "8    |3       |1       |843782-843788             |Signature (SHA-256)\n"
        "9    |NONE    |NONE    |843788-843794             |SBOM (spdx-json)\n"
        "10   |NONE    |NONE    |843794-843800             |Cryptographic Message (Unknown/Unknown)\n"
        "11   |NONE    |NONE    |843800-843806             |Env.Vars\n"
        "12   |NONE    |NONE    |843840-843846             |JSON.Labels\n"
        "13   |NONE    |NONE    |843846-843852             |OCI.RootIndex\n"
    )
    assert "Name:         gen" in run("info", 6, image)[1]
    assert "Name:         note.txt" in run("info", 11, image)[1]
    digest = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert f"Digest:       {digest}" in run("info", 13, image)[1]


@each_row(
    "words, complaint",
    [
        (("--datatype", 12), "--datatype 12"),
        (("--datatype", 4), "--parttype"),
        (("--datatype", 4, "--parttype", 9, "--partfs", 1, "--partarch", 2), "--parttype 9"),
        (("--datatype", 4, "--parttype", 1, "--partfs", 1, "--partarch", 99), "--partarch 99"),
        (("--datatype", 4, "--parttype", 2, "--partfs", 1, "--partarch", 4), "primary partition already"),
        (("--datatype", 5, "--signhash", 1), "--signentity"),
        (("--datatype", 5, "--signhash", 1, "--signentity", "zz"), "--signentity"),
        (("--datatype", 9), "--sbomformat"),
        (("--datatype", 7, "--alignment", 3), "power of two"),
        (("--datatype", 7, "--groupid", 1 << 33), "out of range"),
    ],
)
def test_cli_sif_add_refuses_what_makes_no_sense(
    run: Run, image: Path, tmp_path: Path, words: tuple[object, ...], complaint: str
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("x")
    before = image.read_bytes()
    status, _, errors = run("add", *words, image, note)
    assert status == UsageError.exit_code
    assert complaint in errors
    assert image.read_bytes() == before


def test_cli_sif_del_and_setprim(run: Run, image: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("x")
    assert run("add", "--datatype", 4, "--parttype", 1, "--partfs", 1, "--partarch", 2, image, note)[0] == 0
    assert run("setprim", 6, image)[0] == 0
    assert "Primary Architecture: amd64" in run("header", image)[1]
    assert run("del", 6, image)[0] == 0
    assert "Primary Architecture" not in run("header", image)[1]
    assert run("setprim", 4, image)[0] == 0
    assert run("list", image)[1] == LIST
    assert run("setprim", 1, image)[0] == UnsupportedFormat.exit_code


def test_cli_sif_new(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "new.sif"
    assert run("new", path)[0] == 0
    assert "Descriptors Free:   48" in run("header", path)[1]
    assert path.stat().st_mode & 0o777 == 0o755
    assert run("new", path)[0] == OutputExists.exit_code
    other = tmp_path / "other.sif"
    assert json.loads(run("new", other, "--json")[1]) == {"file": str(other)}


def test_cli_sif_mistakes_are_explained(run: Run, image: Path, tmp_path: Path) -> None:
    assert run("list", tmp_path / "nothing.sif")[0] == FileProblem.exit_code
    assert run("list", tmp_path)[0] == FileProblem.exit_code
    status, _, errors = run("info", 77, image)
    assert status == UnsupportedFormat.exit_code
    assert "no object 77" in errors
    (tmp_path / "page.sif").write_text("<!DOCTYPE html><html><body>Please sign in</body></html>")
    status, _, errors = run("list", tmp_path / "page.sif")
    assert status == UnsupportedFormat.exit_code
    assert "web page" in errors
    image.write_bytes(image.read_bytes()[:500_000])
    assert run("list", image)[0] == CorruptImage.exit_code
    document = json.loads(run("list", "--json", image)[1])
    assert document["context"]["field"] == "data_size"


def test_cli_sif_add_of_a_pipe_does_not_wait(run: Run, image: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert run("add", "--datatype", 7, image, tmp_path / "pipe")[0] == UsageError.exit_code


@pytest.mark.root
def test_cli_sif_works_for_an_unprivileged_user(image: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs real root")
    open_way(tmp_path)
    tmp_path.chmod(0o777)
    os.chown(image, 1501, 1501)
    note = tmp_path / "note.txt"
    note.write_text("x")
    drop = ["setpriv", "--reuid", "1501", "--regid", "1501", "--clear-groups"]
    argv = [*drop, sys.executable, "-m", "kedge", "sif", "add", "--datatype", "7", str(image), str(note)]
    subprocess.run(argv, check=True, capture_output=True, env={**os.environ, "HOME": str(tmp_path)})
    assert image.stat().st_uid == 1501
    image.chmod(0o444)
    before = image.read_bytes()
    done = subprocess.run(argv, check=False, capture_output=True, env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == FileProblem.exit_code
    assert b"read-only" in done.stderr
    assert image.read_bytes() == before
    image.chmod(0o600)
    os.chown(image, 0, 0)
    done = subprocess.run(argv, check=False, capture_output=True, env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == FileProblem.exit_code
