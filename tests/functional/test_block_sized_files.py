# SPDX-License-Identifier: BSD-3-Clause
"""Files of exactly one block, straight from a docker-archive into an image, as unsquashfs reads them back."""

from __future__ import annotations

import hashlib
import io
import json
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.builders.warm_kedge import kedge
from tests.requirements import require_program

BLOCK = 131072


def make_tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def make_docker_archive(files: dict[str, bytes]) -> bytes:
    layer = make_tar(files)
    diff = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {"architecture": "arm64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}}
    manifest = [{"Config": "config.json", "RepoTags": ["blocks:1"], "Layers": ["layer.tar"]}]
    documents = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    return make_tar({"layer.tar": layer, **documents})


@pytest.mark.parametrize("sizes", [(BLOCK,) * 2, (BLOCK,) * 10, (1, BLOCK, BLOCK), (BLOCK - 1, 1, BLOCK)], ids=str)
def test_files_of_a_block_are_what_the_layer_has(sizes: tuple[int, ...], tmp_path: Path) -> None:
    noise = random.Random(26)
    files = {f"file{number}": noise.randbytes(size) for number, size in enumerate(sizes)}
    archive, image = tmp_path / "image.tar", tmp_path / "image.sqsh"
    archive.write_bytes(make_docker_archive(files))
    kedge("convert", f"docker-archive:{archive}", image, cache=tmp_path / "cache")
    unpack = [require_program("unsquashfs"), "-no-xattrs", "-d", tmp_path / "out", image]
    subprocess.run(unpack, check=True, capture_output=True, timeout=60)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files} == files
