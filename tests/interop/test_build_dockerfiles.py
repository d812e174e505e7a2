# SPDX-License-Identifier: BSD-3-Clause
"""Whole Dockerfiles beside buildah: equal trees and configs; what differs is listed, with the reason."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.builders.busybox import read_busybox
from tests.builders.copy_cases import write_tree
from tests.builders.dockerfiles import CONTEXT_FILES, DOCKERFILES
from tests.interop.test_build_copies import Buildah, build_with_kedge, write_base
from tests.requirements import require_program, require_root

# Paths of the tree that say nothing about the recipe: where each program mounts its own files while a step runs.
MOUNTED = ("dev", "proc", "sys", "run", "etc/hosts", "etc/hostname", "etc/resolv.conf")
# Paths of a tree and keys of a config, by Dockerfile, and why they differ.
_POINTS = "buildah leaves directories above the place of a cache mount; kedge leaves nothing of a mount, as BuildKit"
_MADE = "BuildKit makes the directory of WORKDIR, for the user that is set; buildah when a step runs in it"
JUSTIFIED: dict[tuple[str, str], str] = {
    ("settings", "a"): _MADE,
    ("settings", "a/b"): _MADE,
    ("settings", "d"): _MADE,
    ("links of the base", "usr/lib/work"): _MADE,
    ("mounts", "var"): _POINTS,
    ("mounts", "var/cache"): _POINTS,
    ("another shell", "Cmd"): "SHELL holds for the text of CMD too, as Docker says; buildah 1.28 takes /bin/sh for it",
    ("from nothing", "WorkingDir"): "BuildKit writes '/' for an image from nothing, buildah none",
}
KEYS = (
    "Cmd", "Entrypoint", "Env", "ExposedPorts", "Labels", "StopSignal", "User", "Volumes", "WorkingDir",
)  # fmt: skip


@pytest.fixture(name="buildah", scope="module")
def make_buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    require_root()
    return Buildah(require_program("buildah"), tmp_path_factory.mktemp("buildah"))


@pytest.fixture(name="base", scope="module")
def make_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OCI layout with busybox, links for its programs, and some files to change."""
    busybox = read_busybox()
    path = tmp_path_factory.mktemp("base") / "layout"
    listed = subprocess.run([require_program("busybox"), "--list"], capture_output=True, text=True, check=True)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("bin", "etc", "usr", "usr/lib", "usr/share", "usr/share/doc", "srv", "opt", "home", "root", "tmp"):
            put(archive, name, mode=0o1777 if name == "tmp" else 0o755)
        for name in ("dev", "proc", "sys", "run"):
            put(archive, name)
        put(archive, "bin/busybox", busybox, 0o755)
        for name in sorted(set(listed.stdout.split()) - {"busybox"}):
            put(archive, f"bin/{name}", target="busybox")
        put(archive, "lib", target="usr/lib")
        put(archive, "etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
        put(archive, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        put(archive, "etc/motd", b"welcome\n")
        for name in ("srv/file", "usr/share/doc/old"):
            put(archive, name, b"x")
    write_base(path, out.getvalue(), {"Env": ["PATH=/bin:/usr/bin"], "Cmd": ["/bin/sh"]})
    return path


def put(archive: tarfile.TarFile, name: str, data: bytes | None = None, mode: int = 0o644, target: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.mtime = 1000
    member.mode = mode if data is not None else 0o755 if mode == 0o644 else mode
    if target:
        member.type, member.linkname = tarfile.SYMTYPE, target
    elif data is None:
        member.type = tarfile.DIRTYPE
    else:
        member.size = len(data)
    archive.addfile(member, io.BytesIO(data or b""))


def write_context(folder: Path, text: str, base: Path) -> Path:
    write_tree(folder, CONTEXT_FILES)
    (folder / "tool.sh").chmod(0o755)
    with tarfile.open(folder / "archive.tar.gz", "w:gz") as archive:
        put(archive, "inside", b"inside\n")
    recipe = folder.parent / "Dockerfile"
    recipe.write_text(text.lstrip().replace("BASE", f"oci:{base}"))
    return recipe


def read_layout_config(path: Path) -> dict[str, Any]:
    def read(digest: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((path / "blobs" / digest.replace(":", "/")).read_bytes())
        return document

    index = json.loads((path / "index.json").read_bytes())
    return dict(read(read(index["manifests"][0]["digest"])["config"]["digest"])["config"])


def keep_keys(config: dict[str, Any]) -> dict[str, Any]:
    kept = {key: config.get(key) or None for key in KEYS}
    labels = {key: value for key, value in (config.get("Labels") or {}).items() if key != "io.buildah.version"}
    return {**kept, "Labels": labels or None, "Env": sorted(config.get("Env") or [])}


def keep_paths(tree: dict[str, str]) -> dict[str, Any]:
    return {
        path: text for path, text in tree.items()
        if not any(path == name or path.startswith(f"{name}/") for name in MOUNTED)
    }  # fmt: skip


@pytest.mark.parametrize("name", DOCKERFILES)
def test_dockerfile_gives_what_buildah_makes(name: str, buildah: Buildah, base: Path, tmp_path: Path) -> None:
    recipe = write_context(tmp_path / "context", DOCKERFILES[name], base)
    tag = f"theirs-{list(DOCKERFILES).index(name)}"
    words = (
        "--isolation",
        "chroot",
        "--format",
        "docker",
        "--layers",
        "-t",
        tag,
        "-f",
        str(recipe),
        str(tmp_path / "context"),
    )
    buildah.run("build", *words)
    build_with_kedge(tmp_path, recipe, tmp_path / "context")
    theirs, ours = keep_paths(buildah.read_image(tag)), keep_paths(buildah.read_image(f"oci:{tmp_path}/result"))
    inspected = json.loads(buildah.run("inspect", "--type", "image", tag))
    ours |= keep_keys(read_layout_config(tmp_path / "result"))
    theirs |= keep_keys(inspected["Docker"]["config"])
    different = {key: (ours.get(key), theirs.get(key)) for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
    assert {key: pair for key, pair in different.items() if (name, key) not in JUSTIFIED} == {}
