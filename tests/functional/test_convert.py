# SPDX-License-Identifier: BSD-3-Clause
"""`kedge convert`: every form into every other, what is copied and what is packed anew, metadata on long journeys."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kedge.base.image_format import ImageFormat
from kedge.base.reference import Reference
from kedge.base.tree import Node, NodeKind, walk
from kedge.errors import FileProblem, OutputExists, UnsupportedFormat, UsageError
from kedge.image.convert import read_target
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.inspect import inspect_path
from kedge.image.output_name import choose_tag, read_output
from kedge.image.sources.open_local import open_sif
from tests.builders.containers import Runner, give_to, warm_runner
from tests.builders.images import add_rich_image, hash_file
from tests.builders.rows import each_row
from tests.builders.sif import all_fixtures, fixture_path
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program, require_root

runner = warm_runner

FORMS = {"sif": "x.sif", "squashfs": "x.sqsh", "sandbox": "box", "oci": "oci:lay", "oci-archive": "x.oci.tar",
         "docker-archive": "x.docker.tar"}  # fmt: skip

# Each form is a source and a target once; and from each into itself, where some copy what others write anew
ROUND = ("sif", "sandbox", "oci", "squashfs", "docker-archive", "oci-archive", "sif")
PAIRS = [*itertools.pairwise(ROUND), *((form, form) for form in FORMS)]

REWRITTEN = (b".singularity.d/Singularity", b".singularity.d/labels.json")  # they name the last source


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rich image in every form, each made from the SIF."""
    folder = tmp_path_factory.mktemp("images")
    with FakeRegistry() as registry:
        add_rich_image(registry)
        kedge("pull", "x.sif", f"docker://{registry.host}/team/rich:1", cache=folder / "cache", cwd=folder)
    for name in list(FORMS.values())[1:]:
        kedge("convert", "x.sif", name, cache=folder / "cache", cwd=folder)
    return folder


def describe(root: Node) -> dict[bytes, tuple[object, ...]]:
    """What files are there, as far as every form and an ordinary user can keep it."""
    names: dict[int, bytes] = {}
    found = {}
    for path, node in walk(root):
        first = names.setdefault(id(node), path) if node.kind is not NodeKind.DIRECTORY else path
        size = 0 if path in REWRITTEN else node.size
        found[path] = (node.kind, node.mode, size, node.target, first)
    return found


def describe_sif(path: Path) -> dict[bytes, tuple[object, ...]]:
    image = open_sif(path)
    try:
        return describe(image.root)
    finally:
        image.close()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_convert_each_form_into_another_and_itself(images: Path, tmp_path: Path, source: str, target: str) -> None:
    """Back to a SIF at the end: the same files, and the same answer to `inspect`."""
    text = FORMS[target].replace("oci:", f"oci:{tmp_path}/")
    place = text if text.startswith("oci:") else str(tmp_path / text)
    kedge("convert", FORMS[source], place, cache=tmp_path / "c", cwd=images)
    kedge("convert", place, tmp_path / "end.sif", cache=tmp_path / "c")
    expected, found = describe_sif(images / "x.sif"), describe_sif(tmp_path / "end.sif")
    if os.geteuid() != 0:
        del expected[b"data/null"], found[b"data/null"]
    assert found == expected
    before, after = inspect_path(images / "x.sif"), inspect_path(tmp_path / "end.sif")
    for part in ("runscript", "startscript", "environment"):
        assert getattr(after.report, part) == getattr(before.report, part), part
    if (source, target) == ("sif", "sandbox"):
        assert after.report == before.report
    assert pick_config(after.oci_config) == pick_config(before.oci_config)
    for label in ("maker", "org.label-schema.build-date"):
        assert after.report.labels[label] == before.report.labels[label]


def pick_config(config: dict[str, object] | None) -> dict[str, object]:
    """What of an OCI config every format can keep."""
    assert config
    return {name: value for name, value in config.items() if name in ("Cmd", "Entrypoint", "Env", "Labels")}


def test_convert_between_sif_and_squashfs_copies_the_bytes(images: Path, tmp_path: Path) -> None:
    kedge("convert", images / "x.sqsh", tmp_path / "y.sif", cache=tmp_path / "c")
    for path in (images / "x.sif", tmp_path / "y.sif"):
        with path.open("rb") as file:
            reader = SifReader(file)
            assert b"".join(reader.chunks(reader.root_partition())) == (images / "x.sqsh").read_bytes()
            assert reader.find_named(DataType.GENERIC_JSON, "oci-config.json") is not None


def test_convert_squashfs_of_odd_length_is_padded_for_mounts(images: Path, tmp_path: Path) -> None:
    program = require_program("mksquashfs")
    argv = [program, images / "box", tmp_path / "odd.sqsh", "-nopad", "-quiet", "-no-progress", "-comp", "gzip"]
    subprocess.run(argv, check=True, capture_output=True)
    assert (tmp_path / "odd.sqsh").stat().st_size % 4096
    kedge("convert", tmp_path / "odd.sqsh", tmp_path / "y.sif", cache=tmp_path / "c")
    with (tmp_path / "y.sif").open("rb") as file:
        partition = SifReader(file).root_partition()
        assert partition.size % 4096 == 0
        assert SquashReader(file, partition.offset, partition.size).superblock.compressor == 1


@pytest.mark.parametrize(("codec", "number"), [("gzip", 1), ("lz4", 5), ("none", None), ("zstd:1", 6)])
def test_convert_packs_anew_when_a_codec_is_asked_for(
    images: Path, tmp_path: Path, codec: str, number: int | None
) -> None:
    pairs = (("y.sqsh", "x.sif"), ("y.sif", "x.sif"), ("z.sif", "x.sqsh"))
    for name, source in pairs if codec == "gzip" else pairs[:1]:
        kedge("convert", "--compress", codec, images / source, tmp_path / name, cache=tmp_path / "c")
        with (tmp_path / name).open("rb") as file:
            offset = 0 if name == "y.sqsh" else SifReader(file).root_partition().offset
            reader = SquashReader(file, offset)
            assert number in (None, reader.superblock.compressor)
            assert describe(reader.read_tree()) == describe_sif(images / "x.sif")


def test_convert_sif_to_sif_is_a_copy(images: Path, tmp_path: Path) -> None:
    whole = [fixture for fixture in all_fixtures() if fixture.name != "empty.sif"]  # it has no file system: refused
    for fixture in (images / "x.sif", *whole):
        kedge("convert", fixture, tmp_path / "y.sif", "--force", cache=tmp_path / "c")
        assert hash_file(tmp_path / "y.sif") == hash_file(fixture)
        assert (tmp_path / "y.sif").stat().st_mode & 0o777 == 0o755


def test_convert_sif_to_sif_with_another_codec_keeps_objects_but_no_signatures(images: Path, tmp_path: Path) -> None:
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    (tmp_path / "note").write_bytes(b"a note" * 1000)
    kedge("convert", images / "x.sif", "signed.sif", **here)
    kedge("sif", "add", "--datatype", "7", "--groupid", "1", "signed.sif", "note", **here)
    key = tmp_path / "key.pem"
    subprocess.run([require_program("openssl"), "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    kedge("sign", "--key", key, "signed.sif", **here)
    done = kedge("convert", "--compress", "gzip", "signed.sif", "new.sif", **here)
    assert "signature" in done.stderr
    with (tmp_path / "signed.sif").open("rb") as one, (tmp_path / "new.sif").open("rb") as two:
        before, after = SifReader(one), SifReader(two)
        kept = [each for each in before.descriptors if each.data_type != DataType.SIGNATURE]
        assert len(kept) == len(before.descriptors) - 1
        assert [(d.data_type, d.name, d.group) for d in after.descriptors] == [
            (d.data_type, d.name, d.group) for d in kept
        ]
        for old, new in zip(kept, after.descriptors, strict=True):
            if old.data_type != DataType.PARTITION:
                assert before.read_object(old) == after.read_object(new)
    again = kedge("convert", "signed.sif", "copy.sif", **here)
    assert "signature" not in again.stderr  # the same bytes: the signature still fits
    assert hash_file(tmp_path / "copy.sif") == hash_file(tmp_path / "signed.sif")


def test_convert_says_that_an_overlay_stays_behind(images: Path, tmp_path: Path) -> None:
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    (tmp_path / "overlay.img").write_bytes(bytes(8192))
    kedge("convert", images / "x.sif", "x.sif", **here)
    flags = ("--datatype", "4", "--parttype", "4", "--partfs", "2", "--partarch", "4", "--groupid", "1")
    kedge("sif", "add", *flags, "x.sif", "overlay.img", **here)
    assert "only the primary partition" in kedge("convert", "x.sif", "y.sqsh", **here).stderr
    assert "only the primary partition" not in kedge("convert", "x.sif", "y.sif", **here).stderr  # a copy has all of it
    assert "only the primary partition" not in kedge("convert", "--compress", "gzip", "x.sif", "z.sif", **here).stderr
    with (tmp_path / "z.sif").open("rb") as file:
        assert [each.data_type for each in SifReader(file).descriptors].count(DataType.PARTITION) == 2


def test_convert_fixtures_of_other_makers(tmp_path: Path) -> None:
    """Real SIF files: into a layout and back, with their labels."""
    path = fixture_path("busybox_arm64.sif")
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    kedge("convert", "--arch", "arm64", path, "oci:lay:a/b:1", **here)
    index = json.loads((tmp_path / "lay/index.json").read_text())
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == "a/b:1"
    kedge("convert", "--arch", "arm64", "oci:lay:a/b:1", "back.sif", **here)
    assert describe_sif(path).keys() <= describe_sif(tmp_path / "back.sif").keys()
    assert json.loads(kedge("inspect", "--oci", "back.sif", **here).stdout)["Cmd"] == ["sh"]


def test_convert_plain_folder_gets_what_apptainer_needs(tmp_path: Path) -> None:
    box = tmp_path / "box"
    (box / "bin").mkdir(parents=True)
    (box / "bin/tool").write_text("#!/bin/sh\n")
    (box / "bin/tool").chmod(0o755)
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    kedge("convert", "box", "x.sif", **here)
    found = describe_sif(tmp_path / "x.sif")
    assert {b".singularity.d/runscript", b".singularity.d/env/90-environment.sh", b"bin/tool", b"proc"} <= set(found)
    assert not (box / ".singularity.d").exists()  # the directory itself is not touched
    kedge("convert", "box", "x.oci.tar", **here)
    assert kedge("inspect", "x.oci.tar", **here).returncode == 0


def test_convert_for_an_ordinary_user(images: Path, runner: Runner) -> None:
    """An ordinary user's files are root's inside an image, and what the user unpacks is the same image again."""
    (runner.home / "box/bin").mkdir(parents=True)
    (runner.home / "box/bin/x").write_text("x")
    shutil.copy(images / "x.sif", runner.home / "x.sif")
    give_to(runner, runner.home)
    for source, target in (("box", "plain.sif"), ("x.sif", "tree"), ("tree", "oci:lay"), ("oci:lay", "end.sif")):
        runner.read("convert", source, target)
    image = open_sif(runner.home / "plain.sif")
    assert {node.uid for _, node in walk(image.root)} == {0}
    image.close()
    expected, found = describe_sif(images / "x.sif"), describe_sif(runner.home / "end.sif")
    del expected[b"data/null"], found[b"data/null"]  # such a user makes no devices: an empty file stands for them
    assert found == expected


@pytest.mark.root
def test_convert_keeps_owners_for_root(images: Path, tmp_path: Path) -> None:
    require_root()
    kedge("convert", images / "box", tmp_path / "x.sif", cache=tmp_path / "c")
    image = open_sif(tmp_path / "x.sif")
    owned = image.root.children[b"data"].children[b"owned"]
    assert (owned.uid, owned.gid) == (1000, 100)
    image.close()


def test_convert_uses_the_temporary_folder_it_is_given(images: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    with (images / "x.oci.tar").open("rb") as file, (tmp_path / "x.oci.tar.gz").open("wb") as out:
        subprocess.run([require_program("gzip"), "-1"], stdin=file, stdout=out, check=True)
    here = {"cache": tmp_path / "c", "cwd": tmp_path, "environment": {"TMPDIR": "/nonexistent"}}
    kedge("convert", "--tmpdir", tmp_path / "tmp", "x.oci.tar.gz", "y.sif", **here)
    kedge("convert", "--tmpdir", tmp_path / "tmp", "y.sif", "y.oci.tar", **here)
    assert list((tmp_path / "tmp").iterdir()) == []
    done = kedge("convert", "--tmpdir", "/nonexistent", "y.sif", "z.oci.tar", check=False, **here)
    assert done.returncode == FileProblem.exit_code
    assert not (tmp_path / "z.oci.tar").exists()


def test_convert_is_reproducible(images: Path, tmp_path: Path) -> None:
    for name in ("x.oci.tar", "x.docker.tar"):
        kedge("convert", "--threads", "1", images / "x.sif", tmp_path / name, cache=tmp_path / "c", umask=0o077)
        assert hash_file(tmp_path / name) == hash_file(images / name)
    kedge("convert", "--threads", "1", images / "box", tmp_path / "one.sif", cache=tmp_path / "c")
    kedge("convert", "--threads", "3", images / "box", tmp_path / "two.sif", cache=tmp_path / "c")
    assert hash_file(tmp_path / "one.sif") == hash_file(tmp_path / "two.sif")


@each_row(
    "words, error",
    [
        (("missing.sif", "y.sqsh"), FileProblem),
        (("x.sif", "x.sqsh"), OutputExists),
        (("x.sif", "box"), OutputExists),
        (("--force", "x.sif", "box.sif"), OutputExists),  # a directory is never replaced by a file
        (("x.sif", "y.unknown"), UsageError),
        (("x.sif", "oci:"), None),
        (("x.sif", "sandbox:"), UsageError),
        (("--format", "sif", "x.sif", "oci:y"), UsageError),
        (("docker://localhost/x:1", "y.sif"), UsageError),
        (("page.sif", "y.sqsh"), UnsupportedFormat),
        (("x.sif", "missing/y.sqsh"), FileProblem),
    ],
)
def test_convert_refusals_leave_nothing(
    images: Path, tmp_path: Path, words: tuple[str, ...], error: type[Exception] | None
) -> None:
    (images / "page.sif").write_text("<html></html>")
    (images / "box.sif").mkdir(exist_ok=True)
    before = sorted(path.name for path in images.iterdir())
    done = kedge("convert", *words, cache=tmp_path / "c", cwd=images, check=False)
    assert done.returncode not in (0, 3)
    assert error is None or done.returncode == error.exit_code, done.stderr  # type: ignore[attr-defined]
    assert sorted(path.name for path in images.iterdir()) == before


def test_convert_dry_run_writes_nothing_but_reads_the_source(images: Path, tmp_path: Path) -> None:
    done = kedge("convert", "--dry-run", images / "x.sif", tmp_path / "y.sqsh", cache=tmp_path / "c")
    assert "would write" in done.stdout
    assert not (tmp_path / "y.sqsh").exists()
    bad = kedge("convert", "--dry-run", images / "missing", tmp_path / "y.sqsh", cache=tmp_path / "c", check=False)
    assert bad.returncode == FileProblem.exit_code


def test_convert_damaged_sources_are_refused_and_leave_nothing(images: Path, tmp_path: Path) -> None:
    whole = (images / "x.sif").read_bytes()
    (tmp_path / "cut.sif").write_bytes(whole[: len(whole) // 2])
    with (images / "x.sif").open("rb") as file:
        offset = SifReader(file).root_partition().offset
        offset += SquashReader(file, offset).superblock.inode_table
    flipped = bytearray(whole)
    flipped[offset + 2 : offset + 200] = bytes(198)
    (tmp_path / "flipped.sif").write_bytes(flipped)
    for name, target in (("cut.sif", "y"), ("flipped.sif", "y.oci.tar"), ("cut.sif", "y.docker.tar")):
        done = kedge("convert", name, target, cache=tmp_path / "c", cwd=tmp_path, check=False)
        assert done.returncode not in (0, 3), (name, target)
        assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "c") == ["cut.sif", "flipped.sif"]


@each_row(
    "text, expected",
    [
        ("a.sif", ("a.sif", "sif", None)),
        ("pytorch:21.08-py3.sif", ("pytorch:21.08-py3.sif", "sif", None)),
        ("a.simg", ("a.simg", "sif", None)),
        ("a.SQSH", ("a.SQSH", "squashfs", None)),
        ("oci:lay:x", ("lay", "oci", "x")),
        ("oci-archive:a.tar:ghcr.io/a/b:1", ("a.tar", "oci-archive", "ghcr.io/a/b:1")),
        ("docker-archive:a.tar", ("a.tar", "docker-archive", None)),
        ("sandbox:a:b", ("a:b", "sandbox", None)),
        ("squashfs:a", ("a", "squashfs", None)),
        ("sif:a", ("a", "sif", None)),
        ("./oci:lay", ("oci:lay", None, None)),
        ("image", ("image", None, None)),
        ("box/", ("box", "sandbox", None)),
    ],
)
def test_output_names_say_form_and_tag(text: str, expected: tuple[str, str | None, str | None]) -> None:
    found = read_output(text)
    assert (str(found.path), found.form, found.tag) == expected


def test_output_of_convert_without_ending_is_a_folder() -> None:
    assert read_target("image").form == "sandbox"


@each_row(
    "reference, oci, docker",
    [
        ("docker://ubuntu:22.04", "22.04", "ubuntu:22.04"),
        ("docker://ghcr.io/a/b", "latest", "ghcr.io/a/b:latest"),
        ("docker://ghcr.io/a/b:1@sha256:" + "0" * 64, "1", "ghcr.io/a/b:1"),
        ("./My Image.sif", "latest", "my-image:latest"),
        ("oci:some/lay:x", "x", "lay-x:latest"),
        ("docker-archive:a.tar:me/it:2", "me/it:2", "me/it:2"),
        ("host:bash,python3", "latest", "bash-python3:latest"),
    ],
)
def test_output_tags_follow_the_source(reference: str, oci: str, docker: str) -> None:
    parsed = Reference.parse(reference)
    assert choose_tag(parsed, ImageFormat.OCI) == oci
    assert choose_tag(parsed, ImageFormat.DOCKER_ARCHIVE) == docker
    assert choose_tag(parsed, ImageFormat.OCI, "mine") == "mine"
    assert choose_tag(parsed, ImageFormat.SIF) is None
