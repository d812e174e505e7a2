# SPDX-License-Identifier: BSD-3-Clause
"""COPY and ADD beside buildah: the same Dockerfile over the same base gives the same tree in both.

Every case is a stage of its own, and the last stage collects them, so that one build of each program is enough. Cases
that buildah's release does not know (`--exclude`, `--parents`, text in the recipe) are for the unit tests. What buildah
did is recorded (`recorded.py`).
"""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import OCI_CONFIG, OCI_LAYER_TAR, OCI_MANIFEST, Manifest, parse_manifest
from kedge.base.platform import Platform
from kedge.image.formats.oci.stored_image import StoredImage, StoredLayer
from kedge.image.formats.oci.writer import write_layout
from tests.builders.buildah import run_buildah
from tests.builders.copy_cases import BASE, CASES, CONTEXT, CopyCase, Tree, describe_entry, write_tree
from tests.builders.warm_kedge import kedge
from tests.interop.recorded import find_changes, recall
from tests.requirements import require_program, require_root

EXTRA = (
    CopyCase("add an archive", "ADD archive.tar.gz /t/"),
    CopyCase("add an archive over files", "ADD archive.tar /app"),
    CopyCase("add an archive through a link", "ADD archive.tar.gz /srv/link"),
    CopyCase("copy an archive", "COPY archive.tar.gz /t/"),
    CopyCase("add a file", "ADD a.txt /t/"),
    CopyCase("from a stage", "COPY --from=owned /owned /taken/"),
    CopyCase("from a stage with owners", "COPY --from=owned --chown=3:4 /owned /taken/"),
    CopyCase("from a stage, a link", "COPY --from=owned /totarget /taken/"),
    CopyCase("workdir and relative", "WORKDIR /app\nCOPY a.txt sub/deep/"),
)
ODD_NAME = "odd name [1].txt"  # this buildah takes a name that a wildcard matched for another wildcard
# What differs, and why.
_FOLLOWED = (
    "BuildKit writes to the file that a link at the destination leads to, and so does kedge; buildah replaces it"
)
JUSTIFIED = {
    "a link to a file as destination: target.txt": _FOLLOWED,
    "a link to a file as destination: totarget": _FOLLOWED,
}
IGNORED = (
    "# a comment\n\n*\n!dir\ndir/sub\n!dir/sub/two\n",
    "**/*.log\n/a.txt\nprivate/\n",
    "?.txt\n!b.txt\nd[a-i]r/sub\n",
    "  link  \n./secret\ndir/../empty\n",
)


@dataclass(frozen=True)
class Buildah:
    """buildah with a storage of its own."""

    folder: Path

    def run(self, *words: str) -> str:
        return run_buildah(self.folder, *words)

    def read_image(self, name: str) -> dict[str, str]:
        container = self.run("from", "--pull-never", name).strip()
        return describe_directory(Path(self.run("mount", container).strip()))


def describe_directory(root: Path) -> dict[str, str]:
    described = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            status = path.lstat()
            content: bytes | str = b""
            if stat.S_ISLNK(status.st_mode):
                content = str(path.readlink())
            elif stat.S_ISREG(status.st_mode):
                content = path.read_bytes()[:200] if path.suffix != ".gz" else "compressed"  # gzip notes times
            owner = (status.st_uid, status.st_gid)
            described[str(path.relative_to(root))] = describe_entry(status.st_mode, owner, content)
    return described


def make_tar(tree: Tree, folder: Path, owner: tuple[int, int] = (0, 0)) -> bytes:
    """The files of a table as a tar, with modes and this owner."""
    write_tree(folder, tree)
    out = io.BytesIO()

    def own(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid, member.gid = owner
        member.mtime = 1000
        return member

    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name, filter=own)
    return out.getvalue()


def write_base(path: Path, layer: bytes, section: Mapping[str, object] | None = None) -> None:
    """An image of one layer as an OCI layout."""
    config = json.dumps(
        {
            "architecture": Platform.host().architecture,
            "os": "linux",
            "config": dict(section or {}),
            "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(layer))]},
            "history": [{"created_by": "the base"}],
        }
    ).encode()
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": str(Digest.of(config)), "size": len(config)},
        "layers": [{"mediaType": OCI_LAYER_TAR, "digest": str(Digest.of(layer)), "size": len(layer)}],
    }
    manifest = parse_manifest(json.dumps(document).encode())
    assert isinstance(manifest, Manifest)
    digest = Digest.of(layer)
    stored = StoredLayer("base", digest, digest, len(layer), lambda: iter([layer]))
    write_layout(path, [StoredImage(manifest, config, (stored,), None)])


def list_cases() -> list[CopyCase]:
    """Those that both programs build in one go."""
    usable = [
        case
        for case in CASES
        if not (case.error or case.ignore or case.differs or "<<" in case.lines or "odd" in case.lines)
    ]
    return [*usable, *EXTRA]


def write_recipe(path: Path, base: Path, cases: list[CopyCase]) -> None:
    stages = [f"FROM oci:{base} AS owned\nCOPY --chown=8:9 dir /owned/\nCOPY --chown=8:9 run.sh /owned/"]
    stages += [f"FROM oci:{base} AS case{number}\n{case.lines}" for number, case in enumerate(cases)]
    collected = [f"COPY --from=case{number} / /{number}/" for number in range(len(cases))]
    path.write_text("\n".join([*stages, "FROM scratch", *collected]) + "\n")


def prepare(tmp_path: Path, cases: list[CopyCase]) -> tuple[Path, Path]:
    """The context and the recipe."""
    context, base = tmp_path / "context", tmp_path / "base"
    write_tree(context, {name: entry for name, entry in CONTEXT.items() if name != ODD_NAME})
    archive = make_tar({"x/new": b"n", "sub/keep": b"changed", "top": (b"t", 0o4755)}, tmp_path / "archived", (21, 22))
    (context / "archive.tar").write_bytes(archive)
    subprocess.run(["gzip", "-k", str(context / "archive.tar")], check=True)
    write_base(base, make_tar(BASE, tmp_path / "files"))
    write_recipe(tmp_path / "Dockerfile", base, cases)
    return context, tmp_path / "Dockerfile"


def ask_buildah_to_copy(names: list[str]) -> dict[str, dict[str, str]]:
    """The files of the image that collects all cases."""
    require_root()
    with tempfile.TemporaryDirectory(prefix="kedge-buildah-") as name:
        context, recipe = prepare(Path(name), list_cases())
        buildah = Buildah(Path(name))
        buildah.run("build", "--layers=false", "-t", "theirs", "-f", str(recipe), str(context))
        return dict.fromkeys(names, buildah.read_image("theirs"))


COPIES = {"all": ([case.lines for case in list_cases()], BASE, CONTEXT)}


def test_copies_give_the_trees_that_buildah_makes(tmp_path: Path) -> None:
    require_root()  # else the files of the directory are ours
    cases = list_cases()
    context, recipe = prepare(tmp_path, cases)
    kedge("build", "-f", recipe, "--sandbox", tmp_path / "box", context, cache=tmp_path / "cache", cwd=tmp_path)
    theirs = recall("copies", COPIES, ask_buildah_to_copy, ask_version)["all"]
    ours = {path: each for path, each in describe_directory(tmp_path / "box").items() if path[0].isdigit()}
    named = {
        f"{cases[int(path.partition('/')[0])].name}: {path.partition('/')[2]}": (ours.get(path), theirs.get(path))
        for path in sorted({*ours, *theirs})
        if ours.get(path) != theirs.get(path)
    }
    assert {name: pair for name, pair in named.items() if name not in JUSTIFIED} == {}


QUESTIONS = {text: CONTEXT for text in IGNORED}


def ask_buildah(names: list[str]) -> dict[str, dict[str, str]]:
    """What comes into an image in spite of some .dockerignore files."""
    require_root()
    answers = {}
    for text in names:
        with tempfile.TemporaryDirectory(prefix="kedge-buildah-") as name:
            place = Path(name)
            context = write_ignoring(place, text)
            buildah = Buildah(place)
            buildah.run("build", "--layers=false", "-t", "theirs", "-f", f"{place}/Dockerfile", str(context))
            answers[text] = buildah.read_image("theirs")
    return answers


def ask_version() -> str:
    """As it says it itself."""
    done = subprocess.run([require_program("buildah"), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write_ignoring(place: Path, text: str) -> Path:
    context = place / "context"
    write_tree(context, {name: entry for name, entry in CONTEXT.items() if name != ODD_NAME})
    (context / ".dockerignore").write_text(text)
    (place / "Dockerfile").write_text("FROM scratch\nCOPY . /all/\n")
    return context


def test_ignore_files_leave_out_what_buildah_leaves_out(tmp_path: Path) -> None:
    """What buildah did is recorded (`recorded.py`)."""
    require_root()  # else the files of the directory are ours
    for number, (text, theirs) in enumerate(recall("ignore-files", QUESTIONS, ask_buildah, ask_version).items()):
        place = tmp_path / str(number)
        context = write_ignoring(place, text)
        recipe = f"{place}/Dockerfile"
        kedge("build", "-f", recipe, "--sandbox", place / "box", context, cache=tmp_path / "cache", cwd=place)
        ours = {path: each for path, each in describe_directory(place / "box").items() if path.startswith("all")}
        assert ours == theirs, text


@pytest.mark.long
@pytest.mark.root
def test_copies_and_ignore_files_are_recorded_as_buildah_takes_them() -> None:
    assert find_changes("ignore-files", QUESTIONS, ask_buildah) == []
    assert find_changes("copies", COPIES, ask_buildah_to_copy) == []
