# SPDX-License-Identifier: BSD-3-Clause
"""Enroot's words in kedge's: every verb and flag that Enroot 4 has is passed on, or refused with kedge's own way."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kedge.cli.main import make_parser
from kedge.cli.shims import enroot_words
from kedge.cli.shims.enroot_words import main, translate
from kedge.container.flags import parse_words
from kedge.errors import FileProblem, UsageError
from tests.builders.rows import each_row
from tests.wording import assert_says

URI = "docker://nvcr.io#nvidia/cuda:12.4.1-devel"
START = "--cleanenv --no-eval --no-mount cwd,tmp,bind-paths --scratch /tmp"
HOMELESS = f"{START} --no-home"

LINES = [
    (f"import {URI}", f"pull --format squashfs --name nvidia+cuda+12.4.1-devel.sqsh {URI}"),
    (f"import -o x.sqsh -a arm64 -- {URI}", f"pull --format squashfs --arch arm64 --name x.sqsh {URI}"),
    ("import --output=x.sqsh docker://ubuntu", "pull --format squashfs --name x.sqsh docker://ubuntu"),
    ("import docker://ubuntu:22.04", "pull --format squashfs --name ubuntu+22.04.sqsh docker://ubuntu:22.04"),
    ("import docker://me@a/b", "pull --format squashfs --name a+b.sqsh docker://me@a/b"),
    ("import dockerd://a/b:1", "pull --format squashfs --name a+b+1.sqsh docker-daemon:a/b:1"),
    ("load -n box -f docker://a/b:1", "pull --format sandbox --force --name {data}/box docker://a/b:1"),
    ("create cuda.sqsh", "convert --format sandbox {cwd}/cuda.sqsh {data}/cuda"),
    ("create --name n --force dir/cuda.sqsh", "convert --format sandbox --force {cwd}/dir/cuda.sqsh {data}/n"),
    ("export box", "convert --format squashfs {data}/box {cwd}/box.sqsh"),
    ("export -f -o /x.sqsh box", "convert --format squashfs --force {data}/box /x.sqsh"),
    ("digest docker://a/b:1", "registry digest docker://a/b:1"),
    ("digest -a arm64 docker://r#a/b:1", "registry digest --arch arm64 docker://r#a/b:1"),
    ("start box", f"run {HOMELESS} {{data}}/box"),
    ("start x.sqsh nvidia-smi -L", f"run {HOMELESS} {{cwd}}/x.sqsh nvidia-smi -L"),
    ("start -r -w box sh", f"run {START} --fakeroot --no-home --writable {{data}}/box sh"),
    ("start --root --rw x.sqsh", f"run {START} --fakeroot --no-home --writable-tmpfs {{cwd}}/x.sqsh"),
    ("start -m /a:/b box", f"run {HOMELESS} --bind /a:/b {{data}}/box"),
    ("start --mount .:mnt box", f"run {HOMELESS} --bind {{cwd}}:/mnt {{data}}/box"),
    ("start --mount=/a box", f"run {HOMELESS} --bind /a:/a {{data}}/box"),
    ("start -m /a:ro box", f"run {HOMELESS} --bind /a:/a:ro {{data}}/box"),
    ("start -m /a:/b:none:x-create=dir,bind,ro box", f"run {HOMELESS} --bind /a:/b:ro {{data}}/box"),
    ("start -m /a:/b:bind,ro box", f"run {HOMELESS} --bind /a:/b:ro {{data}}/box"),
    ("start -m tmpfs:/x:tmpfs:x-create=dir box", f"run {HOMELESS} --scratch /x {{data}}/box"),
    ("start --pid --net box", f"run {START} --pid --no-init --net --network none --no-home {{data}}/box"),
    ("start --ipc --uts box", f"run {START} --ipc --uts --no-home {{data}}/box"),
    ("start --rc x.sqsh box a", f"exec {HOMELESS} --bind {{cwd}}/x.sqsh:/etc/rc:ro {{data}}/box /bin/sh /etc/rc a"),
    ("exec 4711 ps -ef", "exec instance://pid:4711 ps -ef"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container, an image, and a host without a driver."""
    (tmp_path / "data/box").mkdir(parents=True)
    (tmp_path / "x.sqsh").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(enroot_words, "_DRIVER", "/nowhere")


def run(line: str, tmp_path: Path, **environ: str) -> tuple[str, dict[str, str]]:
    meant = translate("enroot", shlex.split(line), {"ENROOT_DATA_PATH": f"{tmp_path}/data", **environ})
    return shlex.join(meant.words), meant.environ


@each_row(("line", "expected"), LINES)
def test_words_in_kedges(line: str, expected: str, tmp_path: Path) -> None:
    words = run(line, tmp_path)[0]
    assert shlex.split(words) == shlex.split(expected.format(data=tmp_path / "data", cwd=tmp_path))


@each_row("line", [line for line, _ in LINES])
def test_kedge_takes_the_words(line: str, tmp_path: Path) -> None:
    verb, *rest = shlex.split(run(line, tmp_path)[0])
    if verb in ("run", "exec"):
        parse_words(verb, rest, {})
    else:
        make_parser(verb).parse_args(rest)


def test_variables_and_drivers_are_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, _ = run("start box", tmp_path, ENROOT_REMAP_ROOT="yes", ENROOT_ROOTFS_WRITABLE="y")
    assert words == f"run {START} --fakeroot --no-home --writable {tmp_path}/data/box"
    mounted = {"ENROOT_MOUNT_HOME": "y", "HOME": "/home/me"}
    assert "--bind /home/me " in run("start box", tmp_path, **mounted)[0]
    assert "--bind /home/me:/root " in run("start -r box", tmp_path, **mounted)[0]
    assert "--bind" not in run("start box", tmp_path, ENROOT_MOUNT_HOME="no", HOME="/home/me")[0]
    _, environ = run("import docker://x", tmp_path, ENROOT_CACHE_PATH="/c", ENROOT_TEMP_PATH="/t", KEDGE_TMPDIR="/k")
    assert environ == {"KEDGE_CACHEDIR": "/c"}
    _, environ = run("start -e A=1,2 --env B --env=C= box", tmp_path, B="host", TERM="vt100")
    assert environ == {"KEDGEENV_A": "1,2", "KEDGEENV_B": "host", "KEDGEENV_C": "", "KEDGEENV_TERM": "vt100"}
    monkeypatch.setattr(enroot_words, "_DRIVER", str(tmp_path / "x.sqsh"))
    assert "--nv" in run("start box", tmp_path)[0]
    assert "--nv" not in run("start box", tmp_path, NVIDIA_VISIBLE_DEVICES="void")[0]


@each_row(("line", "said"), [
    ("start -c conf.sh box", "configuration scripts"), ("start", "takes a name"),
    ("start -e 1=2 box", "names no variable"), ("start -m none:/x box", "mounts directories"),
    ("start --root=1 box", "not supported"), ("import", "takes 1 name"), ("import -o", "needs a value"),
    ("create -n a/b x.sqsh", "is no name for a container"), ("exec box ls", "process number"),
    ("bundle x.sqsh", "does not support"), ("batch x", "does not support"), ("strat box", "no verb"),
])  # fmt: skip
def test_what_is_refused_has_a_reason(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        run(line, tmp_path)
    assert raised.value.hint or "value" in said


def test_a_missing_container_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileProblem, match="no container 'gone'"):
        run("start gone", tmp_path)
    assert main("enroot", ["start", "gone/away"]) == 1
    assert_says(capsys.readouterr().err, "shims/enroot-create-n-name-image")
    assert main("enroot", ["nonsense"]) == 1


def test_answers(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["version"], ["--help"], ["start", "--help"], ["info"]):
        assert main("enroot", words) == 0
    assert capfd.readouterr().out.startswith("4.0.1+kedge.")


@each_row("name", ["..", ".", "", "a/b"])
@each_row("verb", ["remove", "start", "export"])
def test_enroot_containers_are_directly_in_their_directory(tmp_path: Path, verb: str, name: str) -> None:
    (tmp_path / "data/a/b").mkdir(parents=True, exist_ok=True)
    environ = {"ENROOT_DATA_PATH": str(tmp_path / "data")}
    with pytest.raises((FileProblem, UsageError)):
        translate("enroot", [verb, name], environ)
    assert (tmp_path / "data/a/b").is_dir()


@each_row("name", ["..", ".", "a/b"])
def test_enroot_creates_no_container_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no name for a container"):
        translate("enroot", ["create", "-f", "-n", name, "a.sqsh"], {"ENROOT_DATA_PATH": str(tmp_path)})
