# SPDX-License-Identifier: BSD-3-Clause
"""A CDI file of another user, or one that is not what it seems, wants files of the host in a closed container.

`--device` takes what such a file says: mounts, variables, nodes. So it has to be root's word, or the user's.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.container.devices.cdi import read_specifications
from kedge.system.views import DirectoryView
from tests.builders.containers import Runner, give_to
from tests.builders.rows import each_row
from tests.builders.strangers import KEY, KEY_FILE
from tests.requirements import require_root
from tests.wording import assert_says

STRANGER = 4321
NAME = "vendor.com/thing=x"


@pytest.fixture(name="home")
def plant(runner: Runner) -> Path:
    key = runner.home / KEY_FILE
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_text(KEY)
    give_to(runner, key.parent)
    return runner.home


@pytest.fixture(name="folder")
def make_folder(runner: Runner) -> Iterator[Path]:
    folder = runner.folder / "cdi"
    folder.mkdir()
    yield give_to(runner, folder)
    shutil.rmtree(folder)


def describe(**edits: object) -> str:
    device = {"name": "x", "containerEdits": edits}
    return json.dumps({"cdiVersion": "0.6.0", "kind": "vendor.com/thing", "devices": [device]})


def mount(source: object) -> dict[str, object]:
    return {"hostPath": str(source), "containerPath": "/opt/x"}


def attack(runner: Runner, image: str, folder: Path) -> str:
    """What is said, and seen in a closed container."""
    words = ("--containall", "--device", NAME, "--cdi-dirs", str(folder), image, "sh", "-c")
    done = runner.run("exec", *words, "cat /opt/x /opt/x/* /opt/x/.ssh/* 2>&1; env")
    assert KEY not in done.stdout + done.stderr
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@each_row("whose", ["file", "directory", "everybody's file", "everybody's directory"])
def test_specification_of_a_stranger(runner: Runner, image: str, home: Path, folder: Path, whose: str) -> None:
    require_root()
    folder.chmod(0o755)
    file = folder / "thing.json"
    file.unlink(missing_ok=True)
    file.write_text(describe(mounts=[mount(home)], env=["EVIL=1"]))
    give_to(runner, folder)
    place = folder if whose.endswith("directory") else file
    if whose.startswith("everybody"):
        place.chmod(place.stat().st_mode | 0o002)
    else:
        os.chown(place, STRANGER, STRANGER)
    said = attack(runner, image, folder)
    assert "EVIL" not in said
    assert "everybody may write to it" in said or f"it belongs to user {STRANGER}" in said


def test_nodes_are_devices(runner: Runner, image: str, home: Path, folder: Path) -> None:
    (home / "link").unlink(missing_ok=True)
    (home / "link").symlink_to(home / ".ssh")
    nodes = [{"path": "/opt/x", "hostPath": str(home / name)} for name in (".ssh", KEY_FILE, "link")]
    nodes.append({"path": "/opt/x", "hostPath": f"/dev/../{home}/.ssh"})
    nodes.append({"path": "/opt/x", "hostPath": f"/proc/self/root/{home}/.ssh"})
    for node in nodes:
        (folder / "thing.json").write_text(describe(deviceNodes=[node]))
        give_to(runner, folder)
        assert_says(attack(runner, image, folder), "run/not-device-ignored")


@each_row(
    ("name", "text"),
    [
        ("x.json", describe(env=["A=\0"])),
        ("x.json", describe(mounts=[mount("/etc\0/x")])),
        ("x.yaml", 'cdiVersion: 1\nkind: vendor.com/thing\ndevices:\n- name: x\n  containerEdits: {env: ["A=\\0"]}\n'),
        ("x.json", describe(env=["A B=1", "=x", "A\nB=1", 7, None, {}], mounts="no", deviceNodes=[7, {"path": "x"}])),
        ("x.json", describe(hooks=[{"path": "/bin/sh", "args": ["sh", "-c", "touch /tmp/PWNED"]}, {"args": [{}]}, 7])),
    ],
)  # fmt: skip
def test_texts_that_are_none(runner: Runner, image: str, folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    give_to(runner, folder)
    attack(runner, image, folder)
    assert not Path("/tmp/PWNED").exists()


@each_row(
    "text",
    ["a: [" + "x," * 200_000 + "]", "a: " + "[" * 200_000, "- " * 200_000, "a: 1\n" * 200_000, '"' * 400_000],
    ids=["flow", "depth", "dashes", "twice", "quotes"],
)
def test_large_files_are_read_in_proportion_to_their_length(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    if not (tmp_path / "y.json").exists():
        os.mkfifo(tmp_path / "y.json")
    (tmp_path / "z.json").write_text("[" * 200_000)
    found, problems = read_specifications(DirectoryView("/"), [str(tmp_path)])
    assert not found
    assert len(problems) == 3
