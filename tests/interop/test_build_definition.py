# SPDX-License-Identifier: BSD-3-Clause
"""The same definition file through the real Apptainer and through kedge: equal trees, and Apptainer runs our image."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.apptainer import PEER_USER, Apptainer, apptainer_folder
from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, make_runner
from tests.builders.removal import remove_beside
from tests.requirements import require_user_namespaces

PROGRAMS = ("sh", "cat", "cp", "echo", "env", "grep", "ls", "mkdir", "sort", "touch", "tr", "wc")
RECIPE = """# A recipe that uses most of the sections
Bootstrap: localimage
From: base
Stage: builder
%arguments
    WORD=hello
%post
    mkdir -p /opt/made
    echo '{{ WORD }}' > /opt/made/word
    echo two words > "/opt/made/a b"

Bootstrap: localimage
From: base
%files
    data.txt /opt/data/
    data.txt
%files from builder
    /opt/made
%setup
    mkdir -p ${SINGULARITY_ROOTFS}/opt/setup
    cp data.txt $APPTAINER_ROOTFS/opt/setup/
%post
    env | grep -E '^(SINGULARITY|APPTAINER)_(ENVIRONMENT|LABELS)=' | sort > /opt/variables
    echo "$0 $# $- $(pwd) $HOME $LANG" > /opt/shell
    [ -z "$BASED" ] || echo "$BASED" > /opt/based
    echo 'export FROM_POST=1' >> $SINGULARITY_ENVIRONMENT
    echo 'from.post some value' >> $APPTAINER_LABELS
    cat /opt/made/word
%environment
    export GREETING="hello there"
%runscript
    echo "run $GREETING $FROM_POST $*"
%startscript
    echo start
%test
    test -e /opt/shell && echo tested
%help
    How it is used.
%labels
    Author Some One
%appinstall one
    touch $SCIF_APPROOT/made
%appfiles one
    data.txt
%apprun one
    echo "app $SCIF_APPNAME"
%appenv one
    export ONE=1
"""
# the base's own environment, which %post must see
BASE_RECIPE = "Bootstrap: localimage\nFrom: box\n%environment\n    export BASED='on this'\n%labels\n    Base yes\n"
IGNORED = {".singularity.d/kedge-build.json"}


@pytest.fixture(scope="module")
def peer() -> Iterator[Apptainer]:
    require_user_namespaces()
    with apptainer_folder() as made:
        programs = made.folder / "box/bin"
        programs.mkdir(parents=True)
        (programs / "busybox").write_bytes(read_busybox())
        (programs / "busybox").chmod(0o755)
        for name in PROGRAMS:
            (programs / name).symlink_to("busybox")
        (made.folder / "box/etc").mkdir()
        for name in ("passwd", "group"):
            (made.folder / "box/etc" / name).write_text("")
        (made.folder / "data.txt").write_text("data\n")
        (made.folder / "recipe.def").write_text(RECIPE)
        (made.folder / "base.def").write_text(BASE_RECIPE)
        made.own(made.folder)
        made.run("build", "--sandbox", "base", "base.def")
        made.run("build", "--sandbox", "theirs", "recipe.def")
        yield made


@pytest.fixture(scope="module")
def runner(peer: Apptainer) -> Iterator[Runner]:
    folder = Path(tempfile.mkdtemp(prefix="kedge-home-"))  # %setup would not see a directory that the home is in
    folder.chmod(0o755)
    os.chown(folder, PEER_USER, PEER_USER)
    try:
        runner = make_runner(folder, PEER_USER)
        runner.read("build", "--sandbox", "ours", "recipe.def", cwd=peer.folder)
        yield runner
    finally:
        remove_beside(folder)


def read_tree(folder: Path) -> dict[str, tuple[str, object]]:
    """Kind and content by path."""
    tree: dict[str, tuple[str, object]] = {}
    for path in folder.rglob("*"):
        name, status = str(path.relative_to(folder)), path.lstat()
        if name in IGNORED:
            continue
        if stat.S_ISLNK(status.st_mode):
            tree[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            tree[name] = ("directory", oct(status.st_mode & 0o755))  # Apptainer builds with a umask of its own
        else:
            tree[name] = (oct(status.st_mode & 0o755), _read_content(name, path))
    return tree


def _read_content(name: str, path: Path) -> object:
    if name.endswith(".singularity.d/labels.json"):
        labels = json.loads(path.read_bytes())
        return {key: value for key, value in labels.items() if not key.startswith("org.") or ".deffile." in key}
    lines = path.read_bytes().split(b"\n")
    return [sorted(line.split()) if line.startswith(b"export SCIF") else line for line in lines]


def test_build_definition_gives_the_tree_of_apptainer(peer: Apptainer, runner: Runner) -> None:
    theirs, ours = read_tree(peer.folder / "theirs"), read_tree(peer.folder / "ours")
    assert ours == theirs
    assert theirs["opt/made/word"][1] == [b"hello", b""]
    assert theirs["opt/based"][1] == [b"on this", b""]


def test_build_definition_runs_under_apptainer(peer: Apptainer, runner: Runner) -> None:
    runner.read("build", "image.sif", "recipe.def", cwd=peer.folder)
    answers = peer.answer(
        ("run", "image.sif", "a", "b"),
        ("run", "--app", "one", "image.sif"),
        ("test", "image.sif"),
        ("run-help", "image.sif"),
        ("inspect", "--list-apps", "image.sif"),
        ("inspect", "--deffile", "image.sif"),
    )
    assert [status for status, _ in answers] == [0] * len(answers)
    texts = [output.strip() for _, output in answers]
    assert texts[:5] == ["run hello there 1 a b", "app one", "tested", "How it is used.", "one"]
    assert texts[5] == RECIPE.partition("\n")[2].replace("{{ WORD }}", "hello").strip()


def test_build_definition_labels_of_base_recipe_and_post(peer: Apptainer, runner: Runner) -> None:
    labels = json.loads((peer.folder / "ours/.singularity.d/labels.json").read_bytes())
    assert (labels["Base"], labels["Author"], labels["from.post"]) == ("yes", "Some One", "some value")
    history = peer.folder / "ours/.singularity.d/bootstrap_history/Apptainer0"
    assert history.read_text() == BASE_RECIPE
