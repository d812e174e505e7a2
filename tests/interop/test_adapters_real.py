# SPDX-License-Identifier: BSD-3-Clause
"""The real Apptainer and the real ch-run do what our command lines for them say, as an ordinary user."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kedge.container.facts import Additions, Bind, HostFacts
from kedge.container.options import RunOptions
from kedge.container.others import RUNTIMES, plan_foreign
from kedge.container.others.other_runtimes import open_image
from kedge.system.views import DirectoryView
from tests.builders.apptainer import PEER_USER, Apptainer, apptainer_folder
from tests.builders.images import add_rich_image
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry

RUNNING = ("apptainer", "charliecloud")


@dataclass(frozen=True)
class Peer:
    """The other machine, and one image on it in three forms."""

    apptainer: Apptainer

    @property
    def home(self) -> Path:
        """The user's home, which is bound unless asked otherwise."""
        return self.apptainer.folder / "home"

    def run(
        self,
        runtime: str,
        *arguments: str,
        binds: list[Bind] | None = None,
        additions: Additions | None = None,
        environ: dict[str, str] | None = None,
        **options: object,
    ) -> tuple[int, str, str]:
        """Status, output and errors of the command line for this runtime."""
        folder = self.apptainer.folder
        own = {"PATH": "/usr/bin:/bin:/usr/sbin", "HOME": str(self.home), "USER": "peer", **(environ or {})}
        name = "x.sif" if runtime == "apptainer" else "x.sqsh"
        options.setdefault("image", str(folder / name))
        asked = RunOptions(arguments=list(arguments), **options)
        host = HostFacts(
            view=DirectoryView("/"),
            environ=own,
            uid=PEER_USER,
            gid=PEER_USER,
            user="peer",
            home=str(self.home),
            cwd=str(folder),
            machine=os.uname().machine,
        )
        with contextlib.ExitStack() as closing:
            image = open_image(RUNTIMES[runtime], asked, host, lambda *_: None, closing)
            plan = plan_foreign(runtime, asked, binds or [], image, host=host, additions=additions)
        plan.require_suited()
        variables = [f"{name}={value}" for name, value in plan.environ.items()]
        done = self.apptainer.run("env", "-i", *variables, *plan.argv, shell=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def show(self, runtime: str, *arguments: str, **options: object) -> str:
        """What it prints, when all is well."""
        status, output, errors = self.run(runtime, *arguments, **options)  # type: ignore[arg-type]
        assert status == 0, errors
        return output


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with apptainer_folder() as apptainer, FakeRegistry() as registry:
        add_rich_image(registry)
        reference, cache = f"docker://{registry.host}/team/rich:1", apptainer.folder / "cache"
        kedge("pull", apptainer.folder / "x.sif", reference, cache=cache)
        kedge("pull", "--format", "squashfs", apptainer.folder / "x.sqsh", reference, cache=cache)
        kedge("pull", "--sandbox", apptainer.folder / "box", reference, cache=cache)
        for name in ("home", "data"):
            (apptainer.folder / name).mkdir()
        (apptainer.folder / "home/mine").write_text("at home\n")
        (apptainer.folder / "data/file").write_text("bound\n")
        apptainer.own(apptainer.folder)
        yield Peer(apptainer)


@pytest.mark.parametrize("runtime", RUNNING)
def test_program_sees_home_folder_binds_and_variables(peer: Peer, runtime: str) -> None:
    """What needs no other options: one start."""
    environ = {"GREETING": "host", "OWN": "host", "APPTAINERENV_THIRD": "forwarded", "APPTAINERENV_OWN": "weak"}
    data = str(peer.apptainer.folder / "data")
    binds = [Bind(data, "/new/place"), Bind(f"{data}/file", "/opt/one")]
    script = "pwd; cat $HOME/mine /data/replaced; echo; cat /new/place/file /opt/one; "
    script += 'echo "$GREETING|$OWN|$THIRD|$PATH"; exit 7'
    given = {"home": str(peer.home), "binds": binds, "environ": environ, "env": ["OWN=strong"]}
    status, output, errors = peer.run(runtime, "sh", "-c", script, **given)
    assert status == 7, errors
    *shown, variables = output.splitlines()
    assert shown == [str(peer.apptainer.folder), "at home", "above", "bound", "bound"]
    assert variables.startswith("hello world|strong|forwarded|/bin")


@pytest.mark.parametrize("runtime", RUNNING)
def test_run_starts_the_entrypoint_and_shell_ends_with_its_input(peer: Peer, runtime: str) -> None:
    assert peer.show(runtime, verb="run", no_workdir=True) == "[default]"
    assert peer.show(runtime, "a b", "c", verb="run", no_workdir=True) == "[a b][c]"
    assert peer.show(runtime, verb="shell") == ""


@pytest.mark.parametrize("runtime", RUNNING)
def test_cleanenv_leaves_little(peer: Peer, runtime: str) -> None:
    shown = peer.show(runtime, "env", environ={"LEAK": "1"}, cleanenv=True, env=["MINE=1"])
    names = {line.partition("=")[0] for line in shown.splitlines()}
    assert "LEAK" not in names
    assert {"MINE", "LANG", "HOME", "PATH", "GREETING"} <= names


@pytest.mark.parametrize("runtime", RUNNING)
def test_pwd_and_home_are_where_they_were_asked(peer: Peer, runtime: str) -> None:
    data = str(peer.apptainer.folder / "data")
    shown = peer.show(runtime, "sh", "-c", "pwd; echo $HOME; cat $HOME/file", pwd="/data", home=f"{data}:/home/other")
    assert shown == "/data\n/home/other\nbound\n"


@pytest.mark.parametrize("runtime", RUNNING)
def test_contain_shows_nothing_of_the_host(peer: Peer, runtime: str) -> None:
    script = f"cat {peer.home}/mine; echo x >/tmp/new && cat /tmp/new"
    assert peer.show(runtime, "sh", "-c", script, contain=True) == "x\n"


@pytest.mark.parametrize("runtime", RUNNING)
def test_fakeroot_is_root_and_writable_tmpfs_takes_files(peer: Peer, runtime: str) -> None:
    assert peer.show(runtime, "id", "-u", fakeroot=True) == "0\n"
    assert peer.show(runtime, "sh", "-c", "echo x >/new && cat /new", writable_tmpfs=True) == "x\n"


@pytest.mark.parametrize("runtime", RUNNING)
def test_folders_run_as_well(peer: Peer, runtime: str) -> None:
    box = str(peer.apptainer.folder / "box")
    assert peer.show(runtime, "cat", "/data/replaced", image=box) == "above"


def test_apptainer_takes_every_word_we_have_for_it(peer: Peer) -> None:
    """Names of flags, not their effects: those of switches that an ordinary user may give here."""
    names = ["cleanenv", "no_eval", "contain", "pid", "ipc", "uts", "no_init", "no_umask", "no_nv", "no_rocm", "userns"]
    shown = peer.show(
        "apptainer", "printf", "ran", **dict.fromkeys(names, True), no_home=True, hostname="other",
        no_mount=["tmp"], env=["A=1,B=2"], scratch=["/scratch"], workdir=str(peer.apptainer.folder / "data"),
    )  # fmt: skip
    assert shown == "ran"


def test_charliecloud_gets_libraries_of_devices(peer: Peer) -> None:
    additions = Additions()
    additions.libraries.append((str(peer.apptainer.folder / "data/file"), "libfake.so.1"))
    additions.variables["DEVICE"] = "0"
    script = "cat /.singularity.d/libs/libfake.so.1; echo $DEVICE; echo $LD_LIBRARY_PATH"
    shown = peer.show("charliecloud", "sh", "-c", script, additions=additions).splitlines()
    assert shown[:2] == ["bound", "0"]
    assert "/.singularity.d/libs" in shown[2]


def test_file_for_enroot_is_a_root_that_runs(peer: Peer) -> None:
    """What Pyxis gets, started with its command script as Enroot does."""
    folder = peer.apptainer.folder
    with FakeRegistry() as registry:
        add_rich_image(registry)
        uri = f"docker://{registry.host}#team/rich:1"
        made = kedge("pyxis", "get", uri, cache=folder / "cache", environment={"SLURM_JOB_ID": "1"}).stdout.strip()
        target = folder / "enroot.sqsh"
        target.write_bytes(Path(made).read_bytes())
    status, output, errors = peer.run("apptainer", "sh", "/etc/rc", "x", image=str(target))
    assert (status, output) == (0, "[x]"), errors
