# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pyxis` as Pyxis calls it: one path on standard output, one import for many, files that Enroot understands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kedge.errors import ImageNotFound, UsageError
from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.builders.images import add_rich_image, make_config
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY, require_program

STEP = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "node1", "PYXIS_VERSION": "0.24.0"}


def read(path: Path, name: str) -> str:
    """A file of a SquashFS file, by somebody else's program."""
    argv = [require_program("unsquashfs"), "-cat", str(path), name]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def get(uri: str, cache: Path, **step: str) -> Path:
    """What Pyxis reads: the first line of standard output."""
    done = kedge("pyxis", "get", uri, cache=cache, environment={**STEP, **step})
    assert done.stdout.count("\n") == 1
    return Path(done.stdout.rstrip("\n"))


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        add_rich_image(served)
        yield served


def test_pyxis_get_prints_a_squashfs_file_and_nothing_else(tmp_path: Path, registry: FakeRegistry) -> None:
    path = get(f"docker://{registry.host}#team/rich:1", tmp_path / "c")
    assert path.is_absolute()
    assert path.name == "rich_1.sqsh"
    argv = [require_program("unsquashfs"), "-s", str(path)]  # as Enroot asks whether it is one
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 0
    assert read(path, "data/replaced") == "above"


def test_pyxis_get_makes_the_files_of_enroot(tmp_path: Path) -> None:
    section = {
        "Env": ["PATH=/bin", "GREETING=hello world", "TWO=a\nb"],
        "Entrypoint": ["/bin/printf", "<%s>"],
        "Cmd": ["it's default"],
        "WorkingDir": "/some/where",
        "Volumes": {"/vol": {}},
        "Labels": {"maker": "kedge\ntests"},
    }
    tar = build.layer(
        build.folder("bin"),
        build.file("bin/busybox", read_busybox(), mode=0o755),
        *(build.symlink(f"bin/{name}", "busybox") for name in ("sh", "printf", "pwd", "mkdir")),
        build.folder("etc"),
        build.file("etc/environment", b'PATH="/usr/games"\n'),  # as Ubuntu's images have it
        build.file("etc/fstab", b"# UNCONFIGURED FSTAB FOR BASE SYSTEM\n"),  # as Debian's
    )
    with FakeRegistry() as registry:
        registry.add_image("team/x", "1", [build.compress(tar)], make_config([tar], section))
        done = kedge("pyxis", "get", f"docker://{registry.host}/team/x:1", cache=tmp_path / "c", environment=STEP)
    path = Path(done.stdout.strip())
    assert "TWO" in done.stderr
    assert read(path, "etc/environment") == "PATH=/bin\nGREETING=hello world\n"
    assert read(path, "etc/fstab") == "${ENROOT_ROOTFS}/vol /vol none x-create=dir,bind,rw,nosuid,nodev\n"
    script = read(path, "etc/rc")
    assert "# maker kedge tests\n" in script
    folder = tmp_path / "root"
    subprocess.run([require_program("unsquashfs"), "-q", "-d", str(folder), str(path)], check=True, capture_output=True)
    assert (folder / "some/where").is_dir()
    assert not (folder / ".singularity.d").exists()


@each_row(
    ("section", "words", "shown"),
    [
        ({"Entrypoint": ["printf", "<%s>"], "Cmd": ["it's"]}, [], "<it's>"),
        ({"Entrypoint": ["printf", "<%s>"], "Cmd": ["it's"]}, ["a b", "$c"], "<a b><$c>"),
        ({"Cmd": ["printf", "%s", "only"]}, [], "only"),
        ({"Cmd": ["printf", "%s", "only"]}, ["printf", "%s", "mine"], "mine"),
        ({"Entrypoint": ["pwd"], "WorkingDir": "/usr"}, [], "/usr\n"),
        ({}, ["-c", "exit 3"], ""),
    ],
)
def test_pyxis_command_script_does_what_docker_does(section: dict[str, object], words: list[str], shown: str) -> None:
    from kedge.image.formats.enroot import render_rc

    text = render_rc(section).replace("/etc/rc.local", "/nonexistent")
    done = subprocess.run(["/bin/sh", "-c", text, "rc", *words], capture_output=True, text=True, check=False)
    assert done.stdout == shown or (not section and done.returncode == 127)


def test_pyxis_get_again_is_served_with_the_registry_stopped(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        uri = f"docker://{registry.host}#team/rich:1"
        first = get(uri, tmp_path / "c")
        registry.server.log.clear()
        second = get(uri, tmp_path / "c", SLURM_JOB_ID="18")
        assert not registry.server.seen("/blobs/")
    third = get(uri, tmp_path / "c", SLURM_JOB_ID="19")
    assert len({path.stat().st_ino for path in (first, second, third)}) == 1
    assert len({first, second, third}) == 3


@pytest.mark.parametrize("nodes", [4, pytest.param(8, marks=pytest.mark.long)])
def test_pyxis_get_by_many_nodes_at_once_imports_once(tmp_path: Path, nodes: int, registry: FakeRegistry) -> None:
    uri = f"docker://{registry.host}#team/rich:1"
    with ThreadPoolExecutor(nodes) as pool:
        paths = list(pool.map(lambda number: get(uri, tmp_path / "c", SLURMD_NODENAME=f"node{number}"), range(nodes)))
    fetched = [each.path for each in registry.server.log if "/blobs/" in each.path]
    assert len(set(paths)) == nodes
    assert len({path.stat().st_ino for path in paths}) == 1
    assert len(fetched) == len(set(fetched)) == 4  # three layers and a config, each once


def test_pyxis_release_lets_go_and_may_be_called_again(tmp_path: Path, registry: FakeRegistry) -> None:
    uri = f"docker://{registry.host}#team/rich:1"
    mine, other = get(uri, tmp_path / "c"), get(uri, tmp_path / "c", SLURM_STEP_ID="1")
    for expected in (True, False):
        done = kedge("pyxis", "release", "--json", cache=tmp_path / "c", environment=STEP)
        assert json.loads(done.stdout) == {"released": expected}
    assert not mine.exists()
    assert other.exists()
    again = get(uri, tmp_path / "c")
    assert again.stat().st_ino == other.stat().st_ino


def test_pyxis_file_stays_when_the_store_is_cleaned(tmp_path: Path, registry: FakeRegistry) -> None:
    path = get(f"docker://{registry.host}#team/rich:1", tmp_path / "c")
    kedge("cache", "clean", "--force", cache=tmp_path / "c")
    assert read(path, "data/replaced") == "above"
    assert path.stat().st_nlink == 1


def test_pyxis_get_without_a_store_leaves_the_job_its_own_file(tmp_path: Path, registry: FakeRegistry) -> None:
    path = get(f"docker://{registry.host}#team/rich:1", tmp_path / "c", KEDGE_DISABLE_CACHE="1")
    assert read(path, "data/replaced") == "above"
    kedge("pyxis", "release", cache=tmp_path / "c", environment=STEP)
    assert not path.exists()
    assert [each for each in (tmp_path / "c").rglob("*") if each.is_file() and each.name != "CACHEDIR.TAG"] == []


def test_pyxis_file_does_not_depend_on_the_name(tmp_path: Path, registry: FakeRegistry) -> None:
    add_rich_image(registry, tag="2")
    one = get(f"docker://{registry.host}#team/rich:1", tmp_path / "c")
    two = get(f"docker://{registry.host}#team/rich:2", tmp_path / "c")
    assert one.stat().st_ino == two.stat().st_ino
    assert (one.name, two.name) == ("rich_1.sqsh", "rich_2.sqsh")


def test_pyxis_failures_say_why_on_standard_error_only(tmp_path: Path, registry: FakeRegistry) -> None:
    done = kedge("pyxis", "get", f"docker://{registry.host}#team/none:1", cache=tmp_path / "c", check=False)
    assert (done.returncode, done.stdout) == (ImageNotFound.exit_code, "")
    assert "team/none" in done.stderr
    done = kedge("pyxis", "put", cache=tmp_path / "c", check=False)
    assert (done.returncode, done.stdout) == (UsageError.exit_code, "")


def test_pyxis_importer_is_one_program(tmp_path: Path, registry: FakeRegistry) -> None:
    """Pyxis runs `PROGRAM get URI`, with an environment that has little in it."""
    script = [sys.executable, REPOSITORY / "scripts/kedge-pyxis"]  # as the wheel installs it
    environment = {"KEDGE_CACHEDIR": str(tmp_path / "c"), "PYTHONPATH": str(REPOSITORY / "src"), **STEP}
    uri = f"docker://{registry.host}#team/rich:1"
    done = subprocess.run(
        [*script, "get", uri], env=environment, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).is_file()
    assert '"scripts/kedge-pyxis" = "kedge-pyxis"' in (REPOSITORY / "pyproject.toml").read_text()
