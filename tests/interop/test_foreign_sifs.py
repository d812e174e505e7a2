# SPDX-License-Identifier: BSD-3-Clause
"""SIF files that others made, the fixtures and Apptainer's own: listed, inspected, converted and verified by kedge.

What comes out of a conversion is run again by the real Apptainer. Needs root and the Apptainer tree; the fixtures alone
need neither.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kedge.base.platform import Platform
from kedge.base.tree import NodeKind, walk
from kedge.errors import SignatureInvalid, UnsupportedFormat
from kedge.image.formats.sif.reader import SifReader
from kedge.image.sources.open_local import open_sif
from tests.builders import layers as build
from tests.builders.apptainer import Apptainer
from tests.builders.busybox import read_busybox
from tests.builders.images import kedge_here, read_here
from tests.builders.oci_archive import Entry, OciArchive
from tests.builders.pem_keys import make_pem
from tests.builders.sif import fixture_path, name_fixtures
from tests.builders.warm_kedge import kedge
from tests.requirements import require_program
from tests.wording import assert_says

# Directories that an image without .singularity.d gets when it becomes one that runs, or that change with it.
NEW_FOLDERS = r"(dev|etc|home|proc|root|sys|tmp|var|var/tmp)\Z"
CHANGED = (
    NEW_FOLDERS + r"|\.singularity\.d|etc/(hosts|resolv\.conf)\Z"
)  # of what comes from OCI all of it is written anew
FORMS = {"sandbox": "folder/", "squashfs": "x.sqsh", "oci-archive": "x.oci.tar", "docker-archive": "x.docker.tar"}
DEFINITION = """\
Bootstrap: localimage
From: {base}

%environment
    export MOOD="fine day"
    export PATH=/bin:/app
%runscript
    echo "run script says $MOOD: $*"
%startscript
    echo started
%labels
    Maker somebody
    Version 1.2.3
%help
    How to use it.
%test
    echo tested
"""


@pytest.mark.parametrize("name", name_fixtures())
def test_fixture_is_listed(name: str, tmp_path: Path) -> None:
    path = fixture_path(name)
    with path.open("rb") as file:
        objects = len(SifReader(file).descriptors)
    listing = kedge_here("sif", "list", path, cache=tmp_path)
    rows = [line for line in listing.splitlines() if line[:1].isdecimal()]
    assert len(rows) == objects
    assert "Version" in kedge_here("sif", "header", path, cache=tmp_path)
    for line in rows:
        number = line.split("|")[0].strip()
        assert f" {number}\n" in kedge_here("sif", "info", number, path, cache=tmp_path)


@pytest.mark.parametrize("name", [name for name in name_fixtures() if name != "empty.sif" and "signed" not in name])
def test_fixture_is_converted(name: str, tmp_path: Path) -> None:
    """To every form and back, with the same files; unsquashfs reads the bare file system."""
    path = fixture_path(name)
    before = describe_image(path)
    with path.open("rb") as file:
        architecture = SifReader(file).header.architecture
    kedge_here("convert", "--compress", "zstd", path, tmp_path / "zstd.sif", cache=tmp_path)
    assert describe_image(tmp_path / "zstd.sif") == before
    for form, target in FORMS.items():
        if form == "sandbox" and os.geteuid() != 0:
            continue  # the owners of files would be ours
        kedge_here("convert", "--format", form, path, tmp_path / target, cache=tmp_path)
        prefix = f"{form}:" if form.endswith("archive") else ""
        back = tmp_path / f"{form}.sif"
        flags = ["--arch", architecture] if prefix else []
        kedge_here("convert", *flags, f"{prefix}{tmp_path / target}", back, cache=tmp_path)
        after = describe_image(back)
        same = [name for name in before if name and not re.match(CHANGED if prefix else NEW_FOLDERS, name)]
        assert {name: after.get(name) for name in same} == {name: before[name] for name in same}, form
    argv = [require_program("unsquashfs"), "-l", "-d", "", str(tmp_path / FORMS["squashfs"])]
    listing = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert sorted(line[1:] for line in listing.splitlines() if line[1:]) == sorted(name for name in before if name)


def test_fixture_without_a_file_system_is_refused_in_words(tmp_path: Path) -> None:
    empty = fixture_path("empty.sif")
    for words in (
        *(("convert", empty, tmp_path / target) for target in (*FORMS.values(), "x.sif")),
        ("inspect", empty),
    ):
        done = kedge(*words, cache=tmp_path / "cache", check=False)
        assert done.returncode == UnsupportedFormat.exit_code
        assert "no primary system partition" in done.stderr
        assert_says(done.stderr, "image/contains-no-file-system")
    done = kedge("pull", tmp_path / "x.sif", empty, cache=tmp_path / "cache", check=False)
    assert done.returncode == UnsupportedFormat.exit_code
    assert list(tmp_path.iterdir()) == []


def test_fixture_is_verified(tmp_path: Path) -> None:
    keys = {"APPTAINER_KEYSDIR": str(tmp_path / "keys"), "KEDGE_GLOBAL_KEYSDIR": str(tmp_path / "site")}
    kedge("key", "import", fixture_path("pgp-public.asc"), cache=tmp_path, environment=keys)
    for name, key, accepted in (
        ("one-group-signed-dsse.sif", "ed25519-public.pem", True),
        ("one-group-signed-dsse.sif", "rsa-public.pem", True),
        ("one-group-signed-dsse.sif", "ecdsa-public.pem", False),
        ("one-group.sif", "ed25519-public.pem", False),
        ("one-group-signed-pgp.sif", "", True),
        ("one-group.sif", "", False),
    ):
        flags = ["--key", str(fixture_path(key))] if key else ["--local"]
        done = kedge("verify", *flags, fixture_path(name), cache=tmp_path, environment=keys, check=False)
        assert done.returncode == (0 if accepted else SignatureInvalid.exit_code), f"{name} {key}: {done.stderr}"


FIXTURE = ["fixture"] if os.uname().machine == "aarch64" else []  # Apptainer refuses images of other machines
NAMES = ["archive", "folder", "full", "xz", "lzo", "zstd", "lz4", *FIXTURE]


@pytest.fixture(scope="module")
def images(peer: Apptainer) -> dict[str, Path]:
    """What Apptainer makes of an OCI archive, of a directory, of a definition file; and the fixture that runs."""
    folder = peer.folder
    program = read_busybox()
    entries = [Entry("app"), Entry("app/busybox", program), Entry("bin")]
    entries += [Entry(f"bin/{name}", target="/app/busybox") for name in ("sh", "env", "echo", "cat", "true")]
    entries += [Entry("data"), Entry("data/note", b"hello"), Entry("data/zeros", bytes(500_000))]
    section = {"Entrypoint": ["/bin/echo", "entry"], "Cmd": ["cmd"], "Env": ["PATH=/bin", "WHO=world"]}
    OciArchive(entries, section, Platform.host().architecture).write(folder / "base.tar")
    (folder / "full.def").write_text(DEFINITION.format(base="archive.sif"))
    builds = [
        "apptainer -s build archive.sif oci-archive:base.tar",
        "apptainer -s build --sandbox sandbox archive.sif",
        "apptainer -s build folder.sif sandbox",
        "apptainer -s build full.sif full.def",
        "apptainer -s build --mksquashfs-args '-comp xz' xz.sif sandbox",
        "apptainer -s build --mksquashfs-args '-comp lzo -b 64K' lzo.sif sandbox",
        "apptainer -s build --mksquashfs-args '-comp zstd -no-fragments -noI' zstd.sif sandbox",
        "apptainer -s build --mksquashfs-args '-comp lz4 -no-xattrs -no-exports -b 1M' lz4.sif sandbox",
    ]
    peer.run("sh", "-c", " && ".join(builds), shell=True)
    if FIXTURE:
        shutil.copy(fixture_path("busybox_arm64.sif"), folder / "fixture.sif")
        (folder / "fixture.sif").chmod(0o755)
    return {name: peer.own(folder / f"{name}.sif") for name in NAMES}


def describe_image(path: Path) -> dict[str, tuple[object, ...]]:
    """All that can be seen of an image's tree, contents included."""
    image = open_sif(path)
    try:
        for node in {id(node): node for _, node in walk(image.root) if node.kind is NodeKind.FILE}.values():
            node.content = b"".join(image.source.chunks(node))
        return build.describe(image.root)
    finally:
        image.close()


def probe(peer: Apptainer, image: Path | str) -> list[str]:
    """What an image does when Apptainer runs it."""
    shell = "echo $WHO $MOOD; /bin/busybox cat /data/note /app/note 2>/dev/null; echo $PATH"
    commands = (("run", image), ("run", image, "one", "two words"), ("exec", image, "/bin/sh", "-c", shell))
    return [f"{status} {output}" for status, output in peer.answer(*commands)]


@pytest.fixture(scope="module")
def behaviours(images: dict[str, Path], peer: Apptainer) -> dict[str, list[str]]:
    found = {name: probe(peer, images[name]) for name in ("archive", "full", "xz", *FIXTURE)}
    assert found["full"][1] == "0 run script says fine day: one two words\n"
    assert found["archive"][:2] == ["0 entry cmd\n", "0 entry one two words\n"]
    return found


@pytest.mark.peer
@pytest.mark.root
def test_apptainers_images_are_listed_and_inspected_as_it_does(
    images: dict[str, Path], peer: Apptainer, tmp_path: Path
) -> None:
    """From an OCI archive, from a directory, from a definition file: the codec of the partition is not asked about."""
    flags = ("", "--json", "-d", "-r", "-e", "-l", "-H", "-s", "-t", "--all", "--list-apps")
    sifs = [images[name] for name in ("archive", "folder", "full", *FIXTURE)]
    commands = [(*verb, sif) for sif in sifs for verb in (("sif", "list"), ("sif", "header"))]
    commands += [("inspect", *words.split(), sif) for sif in sifs for words in flags]
    for words, (status, theirs) in zip(commands, peer.answer(*commands), strict=True):
        ours, output = read_here(*words, cache=tmp_path)
        assert (output, ours == 0) == (theirs, status == 0), words
        assert status == 0 or words[0] == "inspect"


@pytest.mark.peer
@pytest.mark.root
def test_apptainers_images_are_read_as_unsquashfs_reads_them(images: dict[str, Path], tmp_path: Path) -> None:
    for name, sif in images.items():
        target = tmp_path / name
        with sif.open("rb") as file:
            offset = SifReader(file).root_partition().offset
        argv = [require_program("unsquashfs"), "-o", str(offset), "-no-progress", "-d", str(target), str(sif)]
        subprocess.run(argv, capture_output=True, check=True)
        image = open_sif(sif)
        try:
            ours = sorted(path for path, _ in walk(image.root))
            assert ours == sorted(os.fsencode(path.relative_to(target)) for path in target.rglob("*")), name
            for path, node in walk(image.root):
                if node.kind is NodeKind.FILE:
                    assert b"".join(image.source.chunks(node)) == (target / os.fsdecode(path)).read_bytes(), path
        finally:
            image.close()


CODECS = ("gzip", "lz4", "none", "zstd")


@pytest.mark.peer
@pytest.mark.root
def test_apptainers_images_have_the_same_files_with_another_compression(
    images: dict[str, Path], peer: Apptainer
) -> None:
    """Each image with one of the codecs, by turns."""
    for name, codec in zip(NAMES, itertools.cycle(CODECS), strict=False):
        again = peer.folder / f"{name}-again.sif"
        kedge_here("convert", "--compress", codec, images[name], again, cache=peer.folder / "cache")
        assert describe_image(again) == describe_image(images[name]), (name, codec)


@pytest.mark.peer
@pytest.mark.root
def test_apptainers_images_run_the_same_with_another_compression(
    images: dict[str, Path], behaviours: dict[str, list[str]], peer: Apptainer
) -> None:
    """The image that does most, with each codec."""
    for codec in CODECS:
        again = peer.folder / f"full-{codec}.sif"
        kedge_here("convert", "--compress", codec, images["full"], again, cache=peer.folder / "cache")
        assert probe(peer, peer.own(again)) == behaviours["full"], codec


# The image that has all that a form may lose, and the one whose config came from such an archive
OFTEN = [*(("full", form) for form in FORMS), ("archive", "oci-archive")]
SELDOM = [(name, form) for name in ("archive", "xz", *FIXTURE) for form in FORMS if (name, form) not in OFTEN]


@pytest.mark.peer
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), [*OFTEN, *(pytest.param(*pair, marks=pytest.mark.long) for pair in SELDOM)])
def test_apptainers_images_run_the_same_in_another_form_and_back(
    name: str, form: str, images: dict[str, Path], behaviours: dict[str, list[str]], peer: Apptainer
) -> None:
    place = peer.folder / f"{form}-{name}"
    place.mkdir()
    target, back = place / FORMS[form], place / "back.sif"
    prefix = f"{form}:" if form.endswith("archive") else ""
    kedge_here("convert", "--format", form, images[name], target, cache=place / "cache")
    kedge_here("convert", f"{prefix}{target}", back, cache=place / "cache")
    peer.own(place)
    if not prefix:
        assert describe_image(back) == describe_image(images[name])
        assert probe(peer, target) == behaviours[name]
        assert probe(peer, back) == behaviours[name]
        return
    theirs = place / "theirs.sif"
    peer.run("build", theirs, f"{prefix}{target}")
    for image in (back, theirs):
        found = probe(peer, image)
        assert found[:2] == behaviours[name][:2]
        assert found[2].startswith(behaviours[name][2].rstrip()), "Apptainer adds to the PATH of OCI images"


@pytest.mark.peer
@pytest.mark.root
def test_apptainers_documents_survive_conversion(images: dict[str, Path], peer: Apptainer, tmp_path: Path) -> None:
    again = peer.folder / "documents.sif"
    kedge("convert", images["full"], again, cache=tmp_path)
    peer.own(again)
    flags = ("-r", "-e", "-H", "-t", "-s", "-l", "-d")
    before, after = (peer.answer(*(("inspect", flag, image) for flag in flags)) for image in (images["full"], again))
    assert after == before
    assert {status for status, _ in after} == {0}
    labels = json.loads(peer.run("inspect", "--json", "-l", again).stdout)["data"]["attributes"]["labels"]
    assert (labels["Maker"], labels["Version"]) == ("somebody", "1.2.3")


@pytest.mark.peer
@pytest.mark.root
def test_apptainers_signature_is_verified_and_no_conversion_keeps_it(
    images: dict[str, Path], peer: Apptainer, tmp_path: Path
) -> None:
    private, public = (peer.own(path) for path in make_pem(peer.folder, "p256"))
    signed = peer.folder / "signed.sif"
    shutil.copy(images["full"], signed)
    peer.run("sign", "--key", private, peer.own(signed))
    kedge("verify", "--key", public, signed, cache=tmp_path)
    kedge("convert", "--compress", "zstd", signed, tmp_path / "again.sif", cache=tmp_path)
    refused = kedge("verify", "--key", public, tmp_path / "again.sif", cache=tmp_path, check=False)
    assert refused.returncode == SignatureInvalid.exit_code
    data = bytearray(signed.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "changed.sif").write_bytes(bytes(data))
    changed = kedge("verify", "--key", public, tmp_path / "changed.sif", cache=tmp_path, check=False)
    assert changed.returncode == SignatureInvalid.exit_code
