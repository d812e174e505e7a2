# SPDX-License-Identifier: BSD-3-Clause
"""The probe in containers, as an ordinary user, with real Open MPI and MPICH: inside, outside, and the wrong pairs.

And in images with another libc, where Debian's mirror delivers them.
"""

from __future__ import annotations

import lzma
import os
import re
import subprocess
from pathlib import Path

import pytest

from kedge.launch.check_world import AskedWorld, compare_world
from kedge.launch.probe.answers import read_answers, read_failures, read_lines
from tests.builders.containers import Runner, as_user, give_to, make_sandbox
from tests.builders.debian_bases import find_mirror
from tests.builders.mpi_images import installed_title, launch_words, make_mpi_image, probe_rank
from tests.requirements import require_program
from tests.unit.launch.probe.test_program import PLAYED_MPI
from tests.wording import assert_begins

FAMILIES = ("openmpi", "mpich")


@pytest.fixture(scope="module")
def images(runner: Runner) -> dict[str, Path]:
    return {family: make_mpi_image(runner, family) for family in FAMILIES}


def launch(runner: Runner, launcher: str, ranks: int, image: Path, *words: str) -> str:
    """What the ranks print."""
    argv = as_user(runner.uid, [*launch_words(launcher, ranks), *probe_rank(image, *words)])
    return runner.call(argv, env={"TMPDIR": "/tmp"}).stdout


@pytest.mark.parametrize("family", FAMILIES)
def test_probe_tells_the_version_without_starting_mpi(runner: Runner, images: dict[str, Path], family: str) -> None:
    done = runner.call(as_user(runner.uid, probe_rank(images[family], "version")))
    (value,) = read_lines(done.stdout)
    assert value["abi"] == family
    assert value["version"].startswith({"openmpi": "Open MPI v", "mpich": "MPICH Version:"}[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_probe_sees_the_world_that_was_asked_for(runner: Runner, images: dict[str, Path], family: str) -> None:
    answers = read_answers(launch(runner, family, 3, images[family], "world"))
    assert [(each.task, each.rank, each.size) for each in answers] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert compare_world(AskedWorld(3), answers) is None


@pytest.mark.parametrize(
    ("launcher", "family", "hint"),
    [("openmpi", "mpich", "--launcher mpiexec"), ("mpich", "openmpi", "--launcher mpirun")],
)
def test_probe_finds_silent_singletons(runner, images, launcher, family, hint):
    answers = read_answers(launch(runner, launcher, 2, images[family], "world"))
    name = {"openmpi": "mpirun", "mpich": "mpiexec"}[launcher]
    problem = compare_world(AskedWorld(2, launcher=name, family=installed_title(family)), answers)
    assert problem is not None
    assert (problem.kind, problem.is_fatal) == ("singletons", True)
    assert f"{installed_title(family)} needs" in problem.sentence
    assert hint in problem.hint


def test_probe_pi_is_the_same_on_any_number_of_ranks(runner: Runner, images: dict[str, Path]) -> None:
    answers = [
        value["pi"]
        for family, ranks in (("openmpi", 1), ("openmpi", 3), ("mpich", 4))
        for value in read_lines(launch(runner, family, ranks, images[family], "pi", "--intervals", "1000000"))
    ]
    assert len(answers) == 3
    assert len(set(answers)) == 1
    assert abs(answers[0] - 3.141592653589793) < 1e-12


@pytest.mark.parametrize("ranks", [4, pytest.param(64, marks=pytest.mark.long)])
def test_probe_ranks_of_a_node_share_namespaces_and_read_each_other(runner, images, ranks):
    values = list(read_lines(launch(runner, "openmpi", ranks, images["openmpi"], "cma")))
    expected = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    assert sorted((value["rank"], value["neighbour"]) for value in values) == expected
    assert [value["error"] for value in values if not value["read"]] == []
    assert len({(value["user_namespace"], value["mount_namespace"]) for value in values}) == 1


def test_probe_says_why_it_cannot_answer(runner: Runner, images: dict[str, Path]) -> None:
    box = give_to(runner, make_sandbox(runner.folder / "box"))

    def reason(image: Path, *words: str) -> str:
        done = runner.call(as_user(runner.uid, probe_rank(image, *words)))
        assert done.returncode == 3, done.stderr
        (failure,) = read_failures(done.stdout)
        return failure.reason

    assert_begins(reason(box, "world"), "run/image-no-dynamic-loader")
    assert_begins(reason(images["mpich"], "version", "--library", "/lib/libmpi.so.40"), "run/cannot-open-mpi-library")


# -- another libc: musl, and a glibc whose libdl still was a library of its own

DEBIAN_NAMES = {"aarch64": "arm64", "x86_64": "amd64"}
_PATIENCE = 60  # seconds


def fetch(address: str) -> bytes:
    """A file of the mirror that this host's apt is configured for; skips where it does not deliver."""
    argv = [require_program("curl"), "--silent", "--fail", "--location", "--max-time", str(_PATIENCE), address]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the mirror of this host does not deliver (curl ends with {done.returncode})")
    return done.stdout


def unpack_package(suite: str, package: str, folder: Path) -> None:
    """The files of a Debian package."""
    mirror, machine = find_mirror().rstrip("/"), DEBIAN_NAMES[os.uname().machine]
    listing = lzma.decompress(fetch(f"{mirror}/dists/{suite}/main/binary-{machine}/Packages.xz")).decode()
    found = re.search(rf"^Package: {package}\n(?:.+\n)*?Filename: (\S+)\n", listing, re.MULTILINE)
    if found is None:
        pytest.skip(f"{suite} of this host's mirror has no {package}")
    (folder.parent / "package.deb").write_bytes(fetch(f"{mirror}/{found[1]}"))
    subprocess.run([require_program("dpkg-deb"), "-x", folder.parent / "package.deb", folder], check=True)


@pytest.mark.parametrize(
    ("suite", "package"), [("bookworm", "musl"), ("bullseye", "libc6")], ids=["musl", "glibc 2.31"]
)
def test_probe_asks_mpi_with_any_libc(runner: Runner, tmp_path: Path, suite: str, package: str) -> None:
    box = make_sandbox(runner.folder / package)
    unpack_package(suite, package, box)
    (tmp_path / "mpi.c").write_text(PLAYED_MPI)
    library = box / "opt/libmpi.so.12"
    library.parent.mkdir(exist_ok=True)
    compiler = require_program("gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-nostdlib", "-o", library, tmp_path / "mpi.c"], check=True)
    give_to(runner, box)
    for command, kinds in (("version", ["version"]), ("world", ["world", "met"]), ("pi", ["pi"])):
        done = runner.call(as_user(runner.uid, probe_rank(box, command, "--library", "/opt/libmpi.so.12")))
        values = list(read_lines(done.stdout))
        assert [value["kedge"] for value in values] == kinds, done.stdout + done.stderr
