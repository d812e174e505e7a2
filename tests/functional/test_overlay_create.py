# SPDX-License-Identifier: BSD-3-Clause
"""`kedge overlay create`: ext3 images and overlay partitions of SIF files."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object
from kedge.image.formats.sif.layout import PARTITION_EXTRA, DataType, FileSystem, PartitionType
from kedge.image.formats.sif.reader import SifReader
from kedge.image.image_file import identify
from tests.builders.sif import build_sif
from tests.builders.squashfs_images import write_image
from tests.builders.warm_kedge import kedge
from tests.requirements import require_program
from tests.wording import assert_says


def create(*words, cwd="/", umask=None):
    return kedge("overlay", "create", *words, cache=Path("/nonexistent"), cwd=cwd, umask=umask, check=False)


def list_folder(image, folder="/"):
    """Name: (mode, uid, gid), read by e2fsprogs."""
    program = require_program("debugfs")
    done = subprocess.run([program, "-R", f"ls -p {folder}", str(image)], check=True, capture_output=True, text=True)
    found = {}
    for line in done.stdout.splitlines():
        parts = line.split("/")
        if len(parts) > 5 and parts[5] not in (".", ".."):
            found[parts[5]] = (int(parts[2], 8), int(parts[3]), int(parts[4]))
    return found


def check_image(image):
    done = subprocess.run([require_program("e2fsck"), "-fn", str(image)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def make_sif(tmp_path):
    def make(file_system=FileSystem.SQUASHFS):
        root = PARTITION_EXTRA.pack(file_system, PartitionType.PRIMARY_SYSTEM, b"02\0")
        path = tmp_path / "image.sif"
        path.write_bytes(build_sif([(DataType.PARTITION, write_image(), root)]))
        path.chmod(0o755)
        return path

    require_program("mkfs.ext3")
    return make


def test_a_new_image_has_upper_and_work_that_belong_to_the_caller(tmp_path):
    require_program("mkfs.ext3")
    image = tmp_path / "o.img"
    done = create(image, "--create-dir", "/opt/app", "--create-dir", "data", umask=0o077)
    assert done.returncode == 0, done.stderr
    assert image.stat().st_size == 64 << 20
    assert stat.S_IMODE(image.stat().st_mode) == 0o600
    check_image(image)
    own = (0o40755, os.getuid(), os.getgid())
    top = list_folder(image)
    assert (top["upper"], top["work"]) == (own, own)
    assert list_folder(image, "/upper") == {"opt": own, "data": own}
    assert list_folder(image, "/upper/opt") == {"app": own}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.img"], "nothing else stays"


def test_fakeroot_gives_all_of_it_to_root(tmp_path):
    require_program("mkfs.ext3")
    image = tmp_path / "o.img"
    command = ["--fakeroot", "--create-dir", "/a b/c", image]
    assert create(*command).returncode == 0
    root = (0o40755, 0, 0)
    assert list_folder(image)["work"] == root
    assert list_folder(image, "/upper") == {"a b": root}
    assert list_folder(image, '"/upper/a b"') == {"c": root}
    check_image(image)


def test_a_sparse_image_takes_little_space_and_a_full_one_all(tmp_path):
    require_program("mkfs.ext3")
    assert create("--size", "128", tmp_path / "full.img").returncode == 0
    assert create("--size", "128", "--sparse", tmp_path / "sparse.img").returncode == 0
    full, sparse = ((tmp_path / name).stat() for name in ("full.img", "sparse.img"))
    assert full.st_size == sparse.st_size == 128 << 20
    assert sparse.st_blocks * 512 < 32 << 20 < full.st_blocks * 512


def test_json_says_what_was_made(tmp_path):
    require_program("mkfs.ext3")
    done = create("--json", "--size", "64M", tmp_path / "o.img")
    assert json.loads(done.stdout) == {"file": str(tmp_path / "o.img"), "size": 64 << 20, "partition": None}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--size", "10", "new.img"], "an overlay needs 64 MiB"),
        (["--size", "much", "new.img"], "not a valid size"),
        (["--size", "-1", "new.img"], "not a valid size"),
        (["--create-dir", "../out", "new.img"], "is not a path inside"),
        (["--create-dir", "/", "new.img"], "is not a path inside"),
        (["there.img"], "exists already"),
        (["folder"], "exists already"),
        (["missing/new.img"], "missing"),
    ],
)
def test_what_cannot_be_made_is_one_error_and_leaves_nothing(tmp_path, words, reason):
    require_program("mkfs.ext3")
    (tmp_path / "there.img").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    done = create(*words, cwd=tmp_path)
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "there.img"]
    assert (tmp_path / "there.img").read_bytes() == b"mine"


def test_without_mkfs_the_error_names_the_package(tmp_path):
    script = "import kedge.image.overlay as m; m.find_program = lambda name: None; from kedge.cli.main import main; "
    words = f"raise SystemExit(main(['overlay', 'create', {str(tmp_path / 'o.img')!r}]))"
    done = subprocess.run([sys.executable, "-c", script + words], capture_output=True, text=True, check=False)
    assert done.returncode == 41
    assert "e2fsprogs" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_sif_gets_a_partition_in_the_group_of_its_root(make_sif, tmp_path):
    path = make_sif()
    before = path.read_bytes()
    done = create(path)
    assert done.returncode == 0, done.stderr
    with path.open("rb") as file:
        reader = SifReader(file, str(path))
        root, added = reader.descriptors
        assert (added.file_system, added.partition_type) == (FileSystem.EXT3, PartitionType.OVERLAY)
        assert (added.group, added.architecture) == (root.group, root.architecture)
        assert added.offset % 4096 == 0
        (tmp_path / "part").write_bytes(b"".join(reader.chunks(added)))
        assert b"".join(reader.chunks(root)) == before[root.offset : root.end]
    check_image(tmp_path / "part")
    assert set(list_folder(tmp_path / "part")) == {"lost+found", "upper", "work"}
    assert identify(str(path)).overlays == [(added.offset, 64 << 20, "ext3")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert sorted(each.name for each in tmp_path.iterdir()) == ["image.sif", "part"]


def test_a_second_partition_is_refused_and_changes_nothing(make_sif):
    path = make_sif()
    assert create(path).returncode == 0
    before = path.stat()
    done = create(path)
    assert_says(done.stderr, "image/writable-overlay-already-object", 2)
    assert re.search(r"kedge sif del 2 ", done.stderr)
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_a_signed_sif_is_refused(make_sif):
    path = make_sif()
    append_object(
        path, DataObject(DataType.SIGNATURE, b"signature", group=0, link=1, links_group=True, extra=bytes(260))
    )
    done = create(path)
    assert_says(done.stderr, "image/break-signature")
    assert "kedge sif del 2" in done.stderr


def test_an_encrypted_or_damaged_sif_is_refused(make_sif):
    path = make_sif(FileSystem.ENCRYPTED_SQUASHFS)
    done = create(path)
    assert done.returncode != 0
    assert "encrypted" in done.stderr
    path.write_bytes(path.read_bytes()[:3000])
    done = create(path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_sparse_is_refused_for_a_sif(make_sif):
    done = create("--sparse", make_sif())
    assert done.returncode == 2
    assert "--sparse" in done.stderr
