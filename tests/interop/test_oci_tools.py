# SPDX-License-Identifier: BSD-3-Clause
"""skopeo and umoci read what we write, and we read what skopeo writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kedge.base.platform import Platform
from kedge.image.formats.oci.open_stored import open_images
from kedge.image.formats.oci.stored_image import StoredImage
from kedge.image.formats.oci.writer import write_docker_archive, write_layout, write_oci_archive
from tests.builders.oci_images import make_image, read_layers
from tests.builders.skopeo import run_skopeo
from tests.requirements import require_program

HOST = Platform.host().architecture
ONE = make_image([{"etc/a": b"1" * 3000}, {"b": b"2"}], tag="docker.io/library/one:1", architecture=HOST)
TWO = make_image([{"etc/a": b"1" * 3000}, {"c": b"3"}], tag="docker.io/library/two:2", architecture=HOST)


def run(*argv: str | Path) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(path: Path, kind: str, *images: StoredImage) -> str:
    if kind == "oci":
        write_layout(path, images)
    else:
        with path.open("w+b") as file:
            (write_oci_archive if kind == "oci-archive" else write_docker_archive)(file, images)
    return f"{kind}:{path}"


@pytest.mark.parametrize("kind", ["oci", "oci-archive", "docker-archive"])
def test_skopeo_inspects_what_we_write(tmp_path: Path, kind: str) -> None:
    source = stored(tmp_path / "image", kind, ONE, TWO)
    found = json.loads(run_skopeo(tmp_path, "inspect", f"{source}:docker.io/library/two:2"))
    assert found["Architecture"] == HOST
    assert found["Env"] == ["PATH=/bin"]
    wanted = [layer.diff_id if kind == "docker-archive" else layer.digest for layer in TWO.layers]
    assert found["Layers"] == [str(digest) for digest in wanted]
    if kind != "docker-archive":
        assert found["Digest"] == str(TWO.manifest.digest)


@pytest.mark.parametrize("kind", ["oci", "oci-archive", "docker-archive"])
@pytest.mark.parametrize("other", ["oci", "oci-archive", "docker-archive"])
def test_skopeo_copies_between_kinds_and_we_read_the_copy(tmp_path: Path, kind: str, other: str) -> None:
    source = stored(tmp_path / "image", kind, ONE)
    run_skopeo(
        tmp_path, "copy", f"{source}:docker.io/library/one:1", f"{other}:{tmp_path / 'copy'}:docker.io/library/copy:9"
    )
    with open_images(tmp_path / "copy", prefer_docker=other == "docker-archive") as images:
        image = images.image("docker.io/library/copy:9", Platform.host())
        assert [layer.diff_id for layer in image.layers] == [layer.diff_id for layer in ONE.layers]
        assert image.parsed_config().command == ("/bin/sh",)
        assert all(read_layers(image))


def test_we_read_what_umoci_makes(tmp_path: Path) -> None:
    umoci = require_program("umoci")
    run(umoci, "init", "--layout", tmp_path / "layout")
    run(umoci, "new", "--image", f"{tmp_path / 'layout'}:fresh")
    (tmp_path / "file").write_bytes(b"content")
    run(umoci, "insert", "--rootless", "--image", f"{tmp_path / 'layout'}:fresh", tmp_path / "file", "/file")
    with open_images(tmp_path / "layout") as images:
        assert images.tags() == ["fresh"]
        assert len(read_layers(images.image("fresh"))) == 1
