# SPDX-License-Identifier: BSD-3-Clause
"""`kedge exec --runtime NAME`: programs that stand in for the runtimes show what they were started with."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.images import add_rich_image
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program
from tests.wording import assert_says

SHOW = """#!{python} -SI
import json, os, sys
print(json.dumps({{"argv": sys.argv, "environ": dict(os.environ)}}))
sys.exit(9)
"""


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rich image as a file."""
    folder = tmp_path_factory.mktemp("pulled")
    pull(folder)
    return folder / "x.sif"


@pytest.fixture
def programs(tmp_path: Path, pulled: Path) -> Path:
    """A directory with a program for each runtime, and beside it the rich image as x.sif."""
    shutil.copy2(pulled, tmp_path / "x.sif")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("apptainer", "ch-run", "enroot", "podman"):
        (folder / name).write_text(SHOW.format(python=sys.executable))
        (folder / name).chmod(0o755)
    return folder


def pull(tmp_path: Path) -> str:
    """The rich image as a file; its reference, of a registry that is gone afterwards."""
    with FakeRegistry() as registry:
        add_rich_image(registry)
        reference = f"docker://{registry.host}/team/rich:1"
        kedge("pull", "--force", tmp_path / "x.sif", reference, cache=tmp_path / "c")
    return reference


@dataclass(frozen=True, slots=True)
class User:
    """Has programs that stand in for the runtimes, and the rich image as x.sif."""

    folder: Path
    programs: Path

    def start(self, *words: str, status: int = 9, **more: str) -> subprocess.CompletedProcess[str]:
        """`kedge exec` with these words."""
        own = {"PATH": f"{self.programs}:/usr/bin:/bin", "KEDGE_NODEDIR": str(self.folder / "node")}
        done = kedge("exec", *words, cache=self.folder / "c", environment={**own, **more}, check=False, cwd=self.folder)
        assert done.returncode == status, done.stderr
        return done

    def see(self, *words: str, **more: str) -> list[str]:
        """The words that the program was started with."""
        found: list[str] = json.loads(self.start(*words, **more).stdout)["argv"]
        return found

    @property
    def image(self) -> str:
        return str(self.folder / "x.sif")


@pytest.fixture
def user(tmp_path: Path, programs: Path) -> User:
    return User(tmp_path, programs)


def test_foreign_becomes_the_program(user: User) -> None:
    words = ("--nv", "--bind", "/usr:/mnt:ro", user.image, "ls", "-l")
    shown = json.loads(user.start("--runtime", "apptainer", *words, APPTAINER_BIND="/etc").stdout)
    binds = ["--bind", "/usr:/mnt:ro", "--bind", "/etc:/etc"]
    assert shown["argv"][1:] == ["exec", "--nv", *binds, user.image, "ls", "-l"]
    assert "APPTAINER_BIND" not in shown["environ"]


@each_row("line", ['runtime = "apptainer"', "# site\nruntime   =   'apptainer'  # ours", 'runtime="""apptainer"""'])
def test_foreign_site_chooses_the_runtime_the_user_another_and_a_variable_again(user: User, line: str) -> None:
    site, own = user.folder / "site.toml", user.folder / "config/kedge/config.toml"
    site.write_text(line + "\n")
    assert user.see(user.image, "ls", KEDGE_SITE_CONFIG=str(site))[0].endswith("apptainer")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text('runtime = "podman"\n')
    more = {"KEDGE_SITE_CONFIG": str(site), "XDG_CONFIG_HOME": str(user.folder / "config")}
    assert user.see(user.image, "ls", **more)[0].endswith("podman")
    assert user.see(user.image, "ls", **more, KEDGE_RUNTIME="apptainer")[0].endswith("apptainer")


def test_foreign_dry_run_prints_the_command_line(user: User) -> None:
    done = user.start("--runtime", "apptainer", "--dry-run", user.image, "echo", "a b", status=0)
    assert shlex.split(done.stdout) == [str(user.programs / "apptainer"), "exec", user.image, "echo", "a b"]


def test_foreign_reference_becomes_a_sif_in_the_store(user: User) -> None:
    """The one that a pull made, and no registry is asked again."""
    reference = pull(user.folder)
    image = Path(user.see("--runtime", "apptainer", reference, "ls")[-2])
    assert image.is_relative_to(user.folder / "c")
    assert image.read_bytes() == Path(user.image).read_bytes()


@pytest.mark.parametrize("runtime", ["charliecloud", "enroot"])
def test_foreign_sif_becomes_a_squashfs_file_once(user: User, runtime: str) -> None:
    images = set()
    for _ in range(2):
        words = user.see("--runtime", runtime, user.image, "/bin/cat", "/data/text")
        images.add(next(word for word in words if "/images/" in word))
        assert words[-2:] == ["/bin/cat", "/data/text"]
    assert len(images) == 1
    with Path(images.pop()).open("rb") as file:
        assert file.read(4) == b"hsqs"


def test_foreign_podman_gets_a_folder_of_this_node(user: User) -> None:
    words = user.see("--runtime", "podman", user.image, "ls")
    root = Path(words[words.index("--rootfs") + 1].removesuffix(":O"))
    assert root.is_relative_to(user.folder / "node")
    assert (root / "data/replaced").read_text() == "above"
    assert words[-1] == "/bin/ls"


@each_row("words", [("podman",), ("charliecloud", "--root-from", "unpack")])
def test_foreign_writable_does_not_change_what_the_node_shares(user: User, words: tuple[str, ...]) -> None:
    done = user.start("--writable", "--runtime", *words, user.image, "ls", status=255)
    assert "--writable cannot change" in done.stderr


def test_foreign_refuses_before_it_fetches(user: User) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        words = ("--overlay", "o.img", f"docker://{registry.host}/team/rich:1", "ls")
        done = user.start("--runtime", "enroot", *words, status=255)
        assert registry.server.log == []
    assert "enroot" in done.stderr
    assert "--overlay" in done.stderr


def test_foreign_missing_program_is_named(user: User) -> None:
    done = user.start(
        "--runtime", "podman-hpc", user.image, "ls", status=255, PATH=str(Path(require_program("true")).parent)
    )
    assert "podman-hpc" in done.stderr
    assert "module load podman-hpc" in done.stderr


def test_foreign_ignored_options_are_said(user: User) -> None:
    assert "charliecloud ignores --pid" in user.start("--runtime", "charliecloud", "--pid", user.image, "ls").stderr


@each_row("version, is_old", [("0.31", True), ("0.35~pre", True), ("0.36", False), ("1.0", False), ("nonsense", False)])
def test_foreign_charliecloud_that_is_too_old_is_refused_by_version(user: User, version: str, *, is_old: bool) -> None:
    show = f"#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version}' >&2; exit 0; fi\nexit 9\n"
    (user.programs / "ch-run").write_text(show)
    done = user.start("--runtime", "charliecloud", user.image, "ls", status=255 if is_old else 9)
    if is_old:
        assert_says(done.stderr, "run/charliecloud-needs-newer", version.partition("~")[0], "0.36")
        assert "leave out --runtime charliecloud" in done.stderr
