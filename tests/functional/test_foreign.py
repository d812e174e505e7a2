# SPDX-License-Identifier: BSD-3-Clause
"""`kedge exec --runtime NAME`: programs that stand in for the runtimes show what they were started with."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.builders.images import add_rich_image
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program

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


def settle(tmp_path: Path, programs: Path, **more: str) -> dict[str, str]:
    """Variables of a user who has these programs."""
    return {"PATH": f"{programs}:/usr/bin:/bin", "KEDGE_NODEDIR": str(tmp_path / "node"), **more}


def test_foreign_becomes_the_program(tmp_path: Path, programs: Path) -> None:
    done = kedge(
        "exec", "--runtime", "apptainer", "--nv", "--bind", "/usr:/mnt:ro", tmp_path / "x.sif", "ls", "-l",
        cache=tmp_path / "c", environment=settle(tmp_path, programs, APPTAINER_BIND="/etc"), check=False,
    )  # fmt: skip
    shown = json.loads(done.stdout)
    binds = ["--bind", "/usr:/mnt:ro", "--bind", "/etc:/etc"]
    assert shown["argv"][1:] == ["exec", "--nv", *binds, str(tmp_path / "x.sif"), "ls", "-l"]
    assert "APPTAINER_BIND" not in shown["environ"]
    assert done.returncode == 9


def test_foreign_variable_chooses_the_runtime(tmp_path: Path, programs: Path) -> None:
    environment = settle(tmp_path, programs, KEDGE_RUNTIME="apptainer")
    done = kedge("exec", tmp_path / "x.sif", "ls", cache=tmp_path / "c", environment=environment, check=False)
    assert json.loads(done.stdout)["argv"][-1] == "ls"


@pytest.mark.parametrize(
    "line", ['runtime = "apptainer"', "# site\nruntime   =   'apptainer'  # ours", 'runtime="""apptainer"""']
)
def test_foreign_site_chooses_the_runtime_and_the_user_another(tmp_path: Path, programs: Path, line: str) -> None:
    site = tmp_path / "site.toml"
    site.write_text(line + "\n")
    environment = settle(tmp_path, programs, KEDGE_SITE_CONFIG=str(site))
    done = kedge("exec", tmp_path / "x.sif", "ls", cache=tmp_path / "c", environment=environment, check=False)
    assert json.loads(done.stdout)["argv"][0].endswith("apptainer")
    own = tmp_path / "config/kedge/config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('runtime = "podman"\n')
    environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    done = kedge("exec", tmp_path / "x.sif", "ls", cache=tmp_path / "c", environment=environment, check=False)
    assert json.loads(done.stdout)["argv"][0].endswith("podman")


def test_foreign_dry_run_prints_the_command_line(tmp_path: Path, programs: Path) -> None:
    done = kedge("exec", "--runtime", "apptainer", "--dry-run", tmp_path / "x.sif", "echo", "a b",
                 cache=tmp_path / "c", environment=settle(tmp_path, programs))  # fmt: skip
    assert shlex.split(done.stdout) == [str(programs / "apptainer"), "exec", str(tmp_path / "x.sif"), "echo", "a b"]


def test_foreign_reference_becomes_a_sif_in_the_store(tmp_path: Path, programs: Path) -> None:
    """The one that a pull made, and no registry is asked again."""
    reference = pull(tmp_path)
    done = kedge("exec", "--runtime", "apptainer", reference, "ls", cache=tmp_path / "c",
                 environment=settle(tmp_path, programs), check=False)  # fmt: skip
    image = Path(json.loads(done.stdout)["argv"][-2])
    assert image.is_relative_to(tmp_path / "c")
    assert image.read_bytes() == (tmp_path / "x.sif").read_bytes()


@pytest.mark.parametrize("runtime", ["charliecloud", "enroot"])
def test_foreign_sif_becomes_a_squashfs_file_once(tmp_path: Path, programs: Path, runtime: str) -> None:
    images = set()
    for _ in range(2):
        done = kedge("exec", "--runtime", runtime, tmp_path / "x.sif", "/bin/cat", "/data/text",
                     cache=tmp_path / "c", environment=settle(tmp_path, programs), check=False)  # fmt: skip
        words = json.loads(done.stdout)["argv"]
        images.add(next(word for word in words if "/images/" in word))
        assert words[-2:] == ["/bin/cat", "/data/text"]
    assert len(images) == 1
    with Path(images.pop()).open("rb") as file:
        assert file.read(4) == b"hsqs"
    assert done.returncode == 9


def test_foreign_podman_gets_a_folder_of_this_node(tmp_path: Path, programs: Path) -> None:
    done = kedge("exec", "--runtime", "podman", tmp_path / "x.sif", "ls", cache=tmp_path / "c",
                 environment=settle(tmp_path, programs), check=False)  # fmt: skip
    words = json.loads(done.stdout)["argv"]
    root = Path(words[words.index("--rootfs") + 1].removesuffix(":O"))
    assert root.is_relative_to(tmp_path / "node")
    assert (root / "data/replaced").read_text() == "above"
    assert words[-1] == "/bin/ls"


@pytest.mark.parametrize("words", [("podman",), ("charliecloud", "--root-from", "unpack")])
def test_foreign_writable_does_not_change_what_the_node_shares(
    tmp_path: Path, programs: Path, words: tuple[str, ...]
) -> None:
    done = kedge("exec", "--writable", "--runtime", *words, tmp_path / "x.sif", "ls", cache=tmp_path / "c",
                 environment=settle(tmp_path, programs), check=False)  # fmt: skip
    assert done.returncode == 255
    assert "--writable cannot change" in done.stderr


def test_foreign_refuses_before_it_fetches(tmp_path: Path, programs: Path) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        done = kedge("exec", "--runtime", "enroot", "--overlay", "o.img", f"docker://{registry.host}/team/rich:1", "ls",
                     cache=tmp_path / "c", environment=settle(tmp_path, programs), check=False)  # fmt: skip
        assert registry.server.log == []
    assert done.returncode == 255
    assert "enroot" in done.stderr
    assert "--overlay" in done.stderr


def test_foreign_missing_program_is_named(tmp_path: Path) -> None:
    environment = {"PATH": f"{tmp_path}:{Path(require_program('true')).parent}"}
    done = kedge("exec", "--runtime", "podman-hpc", tmp_path / "x.sif", "ls", cache=tmp_path / "c",
                 environment=environment, check=False)  # fmt: skip
    assert done.returncode == 255
    assert "podman-hpc" in done.stderr
    assert "module load podman-hpc" in done.stderr


def test_foreign_ignored_options_are_said(tmp_path: Path, programs: Path) -> None:
    done = kedge("exec", "--runtime", "charliecloud", "--pid", tmp_path / "x.sif", "ls", cache=tmp_path / "c",
                 environment=settle(tmp_path, programs), check=False)  # fmt: skip
    assert "charliecloud ignores --pid" in done.stderr
    assert done.returncode == 9


@pytest.mark.parametrize(
    ("version", "is_old"), [("0.31", True), ("0.35~pre", True), ("0.36", False), ("1.0", False), ("nonsense", False)]
)
def test_foreign_charliecloud_that_is_too_old_is_refused_by_version(
    tmp_path: Path, programs: Path, version: str, *, is_old: bool
) -> None:
    program = programs / "ch-run"
    show = f"#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version}' >&2; exit 0; fi\nexit 9\n"
    program.write_text(show)
    done = kedge("exec", "--runtime", "charliecloud", tmp_path / "x.sif", "ls", cache=tmp_path / "c",
                 environment=settle(tmp_path, programs), check=False)  # fmt: skip
    assert done.returncode == (255 if is_old else 9), done.stderr
    if is_old:
        assert f"is charliecloud {version.partition('~')[0]}; kedge needs 0.36 or newer" in done.stderr
        assert "leave out --runtime charliecloud" in done.stderr
