# SPDX-License-Identifier: BSD-3-Clause
"""Command lines for other runtimes: one rule per option and runtime, and the words that come of each."""

from __future__ import annotations

import os
import stat

import pytest

from kedge.container.facts import Additions, Bind, HostFacts, ImageFacts
from kedge.container.options import RunOptions
from kedge.container.others import RUNTIMES, ForeignImage, ForeignPlan, plan_foreign, render_table
from kedge.container.others.apptainer import show_bind
from kedge.container.others.other_runtimes import find_runtime, find_setuid_apptainer
from kedge.container.others.podman import show_volume
from kedge.container.others.rules import HONOURED, IGNORED, OWN, REFUSED, is_given, option_names
from kedge.errors import RuntimeUnsuited, UsageError
from kedge.system.views import TableView
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY

PROGRAMS = ("/bin/sh", "/bin/tool")
IMAGE_FILES: dict[str, bytes | str | None] = {
    "/bin/sh": b"#!",
    "/bin/tool": b"#!",
    "/.singularity.d/env/10-docker2singularity.sh": b'#!/bin/sh\nexport PATH="/bin"\nexport MODE="${MODE:-"image"}"\n',
    "/.singularity.d/runscript": b'#!/bin/sh\nexec tool "$@"\n',
}
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "USER": "user", "SECRET": "s3cret", "MODE": "host"}
OTHERS = ("enroot", "charliecloud", "podman")


def plan(
    runtime: str,
    *,
    binds: list[Bind] | None = None,
    additions: Additions | None = None,
    files: dict[str, bytes | str | None] | None = None,
    environ: dict[str, str] | None = None,
    host_files: dict[str, bytes | str | None] | None = None,
    **options: object,
) -> ForeignPlan:
    """The plan for /i.sif and its relatives."""
    kind = RUNTIMES[runtime].forms[0]
    path = {"sif": "/i.sif", "squashfs": "/i.sqsh", "folder": "/i"}[kind]
    files = IMAGE_FILES if files is None else files
    view = TableView(files, executables=tuple(name for name in PROGRAMS if name in files))
    image = ForeignImage(path, kind, ImageFacts(view=view, path=path, kind=kind))
    options.setdefault("arguments", ["tool", "a b"])
    there = TableView(
        {"/home/user": None, "/tmp": None, "/var/tmp": None, "/etc/subuid": b"user:100000:65536\n"} | (host_files or {})
    )
    host = HostFacts(view=there, environ=environ or ENVIRON, cwd="/data/run")
    return plan_foreign(runtime, RunOptions(**options), binds or [], image, host=host, additions=additions)


@each_row(("runtime", "prefix"), [("apptainer", "APPTAINERENV_"), ("singularity", "SINGULARITYENV_")])
def test_adapter_requests_are_called_as_the_runtime_calls_them(runtime: str, prefix: str) -> None:
    environ = {"KEDGEENV_A": "1", "APPTAINERENV_A": "2", "SINGULARITYENV_B": "3", "KEDGE_NODEDIR": "/n", "PATH": "/bin"}
    found = plan(runtime, environ=environ).environ
    assert found == {f"{prefix}A": "1", f"{prefix}B": "3", "PATH": "/bin"}


@each_row("runtime", OTHERS)
def test_adapter_home_may_be_relative_to_the_current_folder(runtime: str) -> None:
    found = plan(runtime, home="mine:/home/user", host_files={"/data/run/mine": None})
    assert any("/data/run/mine:/home/user" in word for word in found.argv)


def has_words(argv: list[str], *words: str) -> bool:
    """Whether the words stand together, before the image."""
    return any(argv[at : at + len(words)] == list(words) for at in range(len(argv)))


def test_every_option_has_a_rule_for_every_runtime() -> None:
    for adapter in RUNTIMES.values():
        assert set(adapter.rules) == set(option_names()), adapter.name
        assert all(rule.how in (HONOURED, IGNORED, REFUSED, OWN) and rule.text for rule in adapter.rules.values())
    assert [name for name in option_names() if is_given(RunOptions(), name)] == []


def test_apptainer_plain_exec_and_words_in_their_places() -> None:
    found = plan("apptainer")
    assert (found.argv, found.environ) == (["apptainer", "exec", "/i.sif", "tool", "a b"], ENVIRON)
    assert (found.notes, found.refused) == ([], [])
    words = set(plan("apptainer", compat=True).argv)
    assert {"--contain", "--pid", "--ipc", "--cleanenv", "--no-init", "--no-umask", "--no-eval"} < words
    assert "--writable-tmpfs" in words
    found = plan("apptainer", no_env=["SECRET,MODE"])
    assert sorted(found.environ) == ["HOME", "PATH", "USER"]
    assert plan("apptainer", quiet=True, verb="run", arguments=[]).argv == ["apptainer", "--quiet", "run", "/i.sif"]


@with_rows(
    ({"cleanenv": True}, ["--cleanenv"]),
    ({"env": ["A=1,B=2", "C=3"]}, ["--env", "A=1,B=2", "--env", "C=3"]),
    ({"overlay": ["o.img", "p:ro"]}, ["--overlay", "o.img", "--overlay", "p:ro"]),
    ({"home": "/a:/b"}, ["--home", "/a:/b"]),
    ({"pwd": "/x"}, ["--pwd", "/x"]),
    ({"containall": True}, ["--cleanenv", "--contain", "--pid", "--ipc"]),
    *(({"writable_tmpfs": True}, ["--writable-tmpfs"]), ({"fakeroot": True}, ["--fakeroot"])),
    *(({"hostname": "n"}, ["--uts", "--hostname", "n"]), ({"network": "none"}, ["--net", "--network", "none"])),
    *(({"network": "host"}, []), ({"nv": True}, ["--nv"]), ({"drop_caps": ["a", "b"]}, ["--drop-caps", "a,b"])),
    *(({"root": "unpack"}, ["--unsquash"]), ({"root": "squashfuse"}, []), ({"app": "x"}, ["--app", "x"])),
    ({"sharens": True}, ["--sharens"]),
    ({"no_mount": ["home", "cwd"]}, ["--no-mount", "home", "--no-mount", "cwd"]),
)
def test_apptainer_words(options: dict[str, object], words: list[str]) -> None:
    assert plan("apptainer", **options).argv == ["apptainer", "exec", *words, "/i.sif", "tool", "a b"]


def test_apptainer_and_singularity_get_binds_and_words_of_their_own() -> None:
    environ = {"APPTAINER_BIND": "/data", "SINGULARITY_BINDPATH": "/x", "APPTAINER_CACHEDIR": "/c", "KEDGE_BIND": "/y"}
    binds = [Bind("/data", "/data"), Bind("/a:b,c", "/d", readonly=True), Bind("/i.img", "/e", image_source="/in")]
    found = plan("apptainer", binds=binds, environ=environ)
    shown = ["--bind", "/data:/data", "--bind", "/a\\:b\\,c:/d:ro", "--bind", "/i.img:/e:image-src=/in"]
    assert found.argv == ["apptainer", "exec", *shown, "/i.sif", "tool", "a b"]
    assert found.environ == {"APPTAINER_CACHEDIR": "/c"}
    assert show_bind(Bind("/i", "/e", readonly=True, partition="3")) == "/i:/e:ro,id=3"
    assert plan("singularity", root="unpack").argv[:3] == ["singularity", "exec", "--tmp-sandbox"]
    assert plan("singularity", device=["nvidia.com/gpu=0"]).refused[0][0] == "--device"
    assert "sharens" in plan("singularity", sharens=True).notes[0]


def test_charliecloud_plain_exec() -> None:
    found = plan("charliecloud")
    assert found.argv == [
        *("ch-run", "--write-fake", "--cd=/data/run", "--bind=/var/tmp:/var/tmp", "--bind=/home/user:/home/user"),
        *("--bind=/data/run:/data/run", "--env-no-expand"),
        *(word for word in found.argv if word.startswith("--set-env=")),
        *("/i.sqsh", "--", "/bin/tool", "a b"),
    ]
    assert "--set-env=HOME=/home/user" in found.argv
    assert any(word.startswith("--set-env=PATH=/bin") for word in found.argv)
    assert found.environ["SECRET"] == "s3cret"
    assert found.environ["PATH"] == "/usr/bin:/bin"  # ch-run's own
    found = plan("charliecloud", containall=True)
    assert not [word for word in found.argv if word.startswith("--bind=")]
    assert "SECRET" not in found.environ
    assert "--unset-env=USER" in found.argv
    assert [note.split(":")[0] for note in found.notes[:2]] == [
        "charliecloud ignores --pid (part of --containall)",
        "charliecloud ignores --ipc (part of --containall)",
    ]
    found = plan("charliecloud", binds=[Bind("/d", "/d", readonly=True, origin="--bind")])
    assert "--bind=/d:/d" in found.argv
    assert "/d" in found.notes[0]
    assert plan("charliecloud", writable=True).refused[0][0] == "--writable"


@with_rows(
    ({"fakeroot": True}, ["--uid=0", "--gid=0", "--seccomp"]),
    ({"tmpfs_size": "4G"}, ["--write-fake=4G"]),
    *(({"contain": True}, ["--private-tmp"]), ({"pwd": "/x"}, ["--cd=/x"]), ({"sharens": True}, ["--join"])),
    ({"home": "/a:/b"}, ["--bind=/a:/b"]),
)
def test_charliecloud_words(options: dict[str, object], words: list[str]) -> None:
    assert has_words(plan("charliecloud", **options).argv, *words)


def test_enroot_plain_exec() -> None:
    found = plan("enroot")
    options = "x-create=auto,rbind,nosuid,nodev,rw"
    assert found.argv[:2] == ["enroot", "start"]
    assert has_words(found.argv, "--mount", f"/home/user:/home/user:none:{options}")
    assert has_words(found.argv, "--mount", f"/data/run:/data/run:none:{options}")
    assert has_words(found.argv, "--env", "SECRET")
    at = found.argv.index("/i.sqsh")
    assert (found.argv[at + 1 : at + 3], found.argv[-2:]) == (["/bin/sh", "-c"], ["/bin/tool", "a b"])
    assert "cd /data/run" in found.environ["KEDGE_LINES"]
    assert found.environ["ENROOT_MOUNT_HOME"] == "n"


@with_rows(
    *(({"fakeroot": True}, ["--root"]), ({"writable_tmpfs": True}, ["--rw"]), ({"pid": True}, ["--pid"])),
    ({"network": "none"}, ["--net"]),
    ({"scratch": ["/s"]}, ["--mount", "tmpfs:/s:tmpfs:x-create=dir,rw,nosuid,nodev,mode=1777"]),
)
def test_enroot_words(options: dict[str, object], words: list[str]) -> None:
    assert has_words(plan("enroot", **options).argv, *words)


def test_enroot_values_of_several_lines_travel_in_one(tmp_path) -> None:
    """Enroot keeps variables in a file, a line for each, and takes away quotes that go around a value."""
    found = plan("enroot", environ={**ENVIRON, "TWO": "a\\n'\nb", "QUOTED": '"x"'})
    assert not has_words(found.argv, "--env", "QUOTED")
    assert "\n" not in found.environ["KEDGE_LINES"]
    assert not has_words(found.argv, "--env", "TWO")
    shown = tmp_path / "shown"
    words = found.argv[found.argv.index("/i.sqsh") + 1 :]
    words[words.index("/bin/tool") :] = ["/bin/sh", "-c", f'printf "%s|$PWD" "$TWO" >{shown}']
    lines = found.environ["KEDGE_LINES"].replace("/data/run", str(tmp_path))
    assert os.spawnve(os.P_WAIT, words[0], words, {"KEDGE_LINES": lines, "PATH": "/bin:/usr/bin"}) == 0
    assert shown.read_text() == f"a\\n'\nb|{tmp_path}"


def test_enroot_gpu_comes_from_its_hook_and_paths_have_no_space() -> None:
    additions = Additions()
    additions.libraries.append(("/usr/lib/libcuda.so.1", "libcuda.so.1"))
    found = plan("enroot", nv=True, additions=additions)
    assert found.environ["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert found.environ["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert not [word for word in found.argv if "libcuda" in word]
    assert plan("enroot", no_nv=True).environ["NVIDIA_VISIBLE_DEVICES"] == "void"
    found = plan("enroot", binds=[Bind("/my data", "/d")])
    assert "space" in found.refused[0][1]


def test_podman_plain_exec() -> None:
    found = plan("podman")
    assert found.argv[:4] == ["podman", "run", "--rm", "--interactive"]
    expected = ("--read-only", "--userns=keep-id", "--ipc=host", "--uts=host", "--network=host")
    for word in (*expected, "--cap-drop=all", "--umask=0022", "--volume=/home/user:/home/user", "--workdir=/data/run"):
        assert word in found.argv
    assert found.argv[-4:] == ["--rootfs", "/i:O", "/bin/tool", "a b"]
    assert has_words(found.argv, "--env", "SECRET")
    assert "s3cret" not in " ".join(found.argv)  # every user of the node can read the words
    assert found.environ["PATH"] == "/usr/bin:/bin"
    assert "--init" not in plan("podman").argv
    there: dict[str, bytes | str | None] = {"/usr/bin/catatonit": b"#!"}
    assert "--init" in plan("podman", host_files=there).argv
    assert "--init" not in plan("podman", host_files=there, no_init=True).argv
    found = plan("podman", host_files={"/etc/subuid": b"other:100000:65536\n"})
    assert "--userns=keep-id" not in found.argv
    assert "/etc/subuid" in found.notes[0]
    assert show_volume(Bind("/a:b,c", "/d", readonly=True)) == (
        '--mount=type=bind,"source=/a:b,c",destination=/d,ro=true'
    )


@with_rows(
    ({"fakeroot": True}, [], ["--userns=keep-id", "--cap-drop=all"]),
    ({"no_init": True}, [], ["--init"]),
    ({"ipc": True}, [], ["--ipc=host"]),
    ({"network": "none"}, ["--network=none"], ["--network=host"]),
    ({"hostname": "n"}, ["--hostname"], ["--uts=host"]),
    ({"writable_tmpfs": True}, ["/i:O"], ["--read-only"]),
    ({"writable": True}, ["/i"], ["/i:O", "--read-only"]),
    ({"contain": True}, ["--tmpfs=/tmp:rw,mode=1777"], ["--volume=/tmp:/tmp", "--volume=/data/run:/data/run"]),
    ({"no_umask": True}, [], ["--umask=0022"]),
    ({"dns": "1.1.1.1,2.2.2.2"}, ["--dns=1.1.1.1", "--dns=2.2.2.2"], []),
    ({"no_home": True}, [], ["--volume=/home/user:/home/user"]),
)
def test_podman_words(options: dict[str, object], present: list[str], absent: list[str]) -> None:
    words = plan("podman", **options).argv
    assert [word for word in present if word not in words] == []
    assert [word for word in absent if word in words] == []


def test_podman_gpu_by_cdi_or_one_by_one() -> None:
    additions = Additions()
    additions.libraries.append(("/usr/lib/libcuda.so.1", "libcuda.so.1"))
    additions.devices.append("/dev/nvidia0")
    found = plan("podman", nv=True, additions=additions, host_files={"/etc/cdi/nvidia.yaml": b""})
    assert has_words(found.argv, "--device", "nvidia.com/gpu=all")
    assert not [word for word in found.argv if "libcuda" in word]
    found = plan("podman", nv=True, additions=additions)
    assert has_words(found.argv, "--device", "/dev/nvidia0")
    assert "--volume=/usr/lib/libcuda.so.1:/.singularity.d/libs/libcuda.so.1:ro" in found.argv


@each_row("runtime", OTHERS)
def test_environment_is_what_kedge_gives(runtime: str) -> None:
    """The image's value beats the host's, the user's the image's; of the user's the words have paths alone."""
    found = plan(runtime, env=["TOKEN=t0ken"])
    assert found.environ["TOKEN"] == "t0ken"
    assert "t0ken" not in " ".join(found.argv)
    assert any(word.endswith("MODE=image") for word in found.argv)
    assert plan(runtime, env=["MODE=mine"]).environ["MODE"] == "mine"


@each_row("runtime", OTHERS)
def test_verbs_start_what_kedge_starts(runtime: str) -> None:
    assert plan(runtime, verb="run", arguments=["x"]).argv[-2:] == ["/.singularity.d/runscript", "x"]
    assert plan(runtime, verb="shell", arguments=[]).argv[-1] == "/bin/sh"
    assert plan(runtime, verb="test", arguments=[]).is_idle


@each_row("runtime", OTHERS)
def test_image_without_a_shell(runtime: str) -> None:
    found = plan(runtime, files={"/bin/tool": b""}, arguments=["/bin/tool"])
    assert found.argv[-1] == "/bin/tool"
    assert "/bin/sh" not in found.argv


@each_row("runtime", OTHERS)
@each_row(("option", "value"), [("overlay", ["o.img"])])
def test_refusals_name_option_and_runtime(runtime: str, option: str, value: object) -> None:
    found = plan(runtime, **{option: value})
    with pytest.raises(RuntimeUnsuited) as caught:
        found.require_suited()
    assert runtime in caught.value.message
    assert f"--{option}" in caught.value.message
    assert f"--{option}" in str(caught.value.hint)


@each_row("runtime", OTHERS)
def test_refusals_of_kedge_itself_are_others_too(runtime: str) -> None:
    found = plan(runtime, passed_on=["--fusemount", "x"], given={"passed_on": "--fusemount"})
    assert [option for option, _ in found.refused] == ["--fusemount"]


def test_apptainer_gets_what_kedge_refuses_but_no_instances() -> None:
    found = plan("apptainer", passed_on=["--fusemount", "x", "--add-caps", "all"])
    assert has_words(found.argv, "--fusemount", "x", "--add-caps", "all")
    assert not found.refused
    assert plan("apptainer", verb="start").refused[0][0] == "'start'"


def test_runtime_that_is_unknown_or_missing_is_named(tmp_path) -> None:
    with pytest.raises(UsageError, match="'docker'"):
        find_runtime("docker", {"PATH": "/usr/bin"})
    with pytest.raises(RuntimeUnsuited) as caught:
        find_runtime("enroot", {"PATH": str(tmp_path)})
    assert str(tmp_path) in caught.value.message
    assert "module load enroot" in str(caught.value.hint)


def test_program_is_found_by_name_and_by_path(tmp_path) -> None:
    program = tmp_path / "ch-run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for text in ("charliecloud", str(program)):
        adapter, found = find_runtime(text, {"PATH": f"relative:{tmp_path}"})
        assert (adapter.name, found) == ("charliecloud", str(program))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs real root")
@pytest.mark.parametrize("folder", ["libexec", "lib"])
def test_setuid_apptainer_is_found_by_its_starter(tmp_path, folder: str) -> None:
    program, starter = tmp_path / "bin/apptainer", tmp_path / folder / "apptainer/bin/starter-suid"
    for path in (program, starter):
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    environ = {"PATH": str(program.parent)}
    assert find_setuid_apptainer(environ) == ""
    starter.chmod(0o755 | stat.S_ISUID)
    assert find_setuid_apptainer(environ) == str(program)
    os.chown(starter, 1000, 1000)
    starter.chmod(0o755 | stat.S_ISUID)
    assert find_setuid_apptainer(environ) == ""


def test_guide_has_the_table() -> None:
    page = (REPOSITORY / "docs/guides/other-runtimes.md").read_text()
    assert render_table() in page, "docs/guides/other-runtimes.md: put the new table in (kedge.container.others)"
