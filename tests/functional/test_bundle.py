# SPDX-License-Identifier: BSD-3-Clause
"""The bundle on hosts without Python: busybox alone; once in a while Debian 11, whose glibc is older than ours."""

from __future__ import annotations

import pytest

from tests.builders.bundles import BareHost, make_bundle, make_busybox_host, make_debian_host
from tests.builders.images import add_rich_image
from tests.fakes.registry import FakeRegistry

pytestmark = [pytest.mark.root, pytest.mark.slow]

STEP = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "node1", "PYXIS_VERSION": "0.24.0"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> BareHost:
    """For what does not differ where there is a C library besides."""
    folder = tmp_path_factory.mktemp("bare") / "root"
    folder.parent.parent.chmod(0o755)
    return make_busybox_host(folder)


@pytest.fixture(scope="module", params=["busybox", pytest.param("bullseye", marks=pytest.mark.long)])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bare: BareHost) -> BareHost:
    if request.param == "busybox":
        return bare
    return make_debian_host(tmp_path_factory.mktemp("host") / "root", request.param)


def pull(host: BareHost) -> str:
    if not (host.home / "image.sif").exists():
        done = host.run("pull", "image.sif", "host:sh,cat,env")
        assert done.returncode == 0, done.stderr
    return "image.sif"


def test_bundle_needs_no_python_of_the_host(host: BareHost) -> None:
    assert not [*host.root.glob("usr/bin/python3*"), *host.root.glob("bin/python3*")]
    first = host.run("--version")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("kedge version ")
    assert not list(host.home.iterdir()), "nothing goes into the home"
    assert (host.copy() / "complete").exists()


def test_bundle_runs_containers(host: BareHost) -> None:
    done = host.run("exec", pull(host), "sh", "-c", 'echo "$1"; exit 7', "sh", "from inside")
    assert (done.returncode, done.stdout) == (7, "from inside\n"), done.stderr


def test_bundle_leaves_no_variable_of_the_loader(host: BareHost) -> None:
    outside = host.run("exec", "--no-home", pull(host), "env", env={"OWN": "kept"}).stdout
    names = {line.partition("=")[0] for line in outside.splitlines()}
    assert "OWN" in names
    assert not {"LD_PRELOAD", "PYTHONHOME", "PYTHONPATH"} & names
    assert str(host.copy().name) not in outside


def test_bundle_submits_to_the_local_queue(host: BareHost) -> None:
    asked = host.run("submit", "--site", "local", "--name", "first", pull(host), "sh", "-c", "echo in a job")
    assert asked.returncode == 0, asked.stderr
    assert host.run("wait", "--site", "local", "first").returncode == 0
    output = host.run("logs", "--site", "local", "first").stdout
    assert (output.splitlines()[-1], "Usage" in output) == ("in a job", False)
    script = next((host.home / ".local/state/kedge/jobs").rglob("script.sh")).read_text()
    assert "kedge=/usr/local/bin/kedge\n" in script, "nodes have the bundle, and not what is unpacked here"


def test_bundle_doctor_finds_no_problem_of_its_own(host: BareHost) -> None:
    assert " 0 problems" in host.run("doctor").stdout


RECIPE = """Bootstrap: host
From: sh,cat,true

%post
    echo built > /etc/built

%runscript
    cat /etc/built
"""


def test_bundle_takes_the_steps_of_the_demo(bare: BareHost) -> None:
    (bare.home / "demo.def").write_text(RECIPE)
    built = bare.run("build", "demo.sif", "demo.def")
    assert built.returncode == 0, built.stderr
    assert "runs on this machine" in bare.run("explain", "demo.sif").stdout
    assert bare.run("run", "demo.sif").stdout == "built\n"
    ranks = bare.run("launch", "--ranks", "--tasks", "2", "demo.sif", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    assert sorted(ranks.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"], ranks.stderr
    measured = bare.run("bench", "start", "--repeats", "3", "--output", "start.json", "demo.sif")
    assert measured.returncode == 0, measured.stderr
    assert bare.run("instance", "start", "demo.sif", "one").returncode == 0
    inside = bare.run("exec", "instance://one", "cat", "/etc/built")
    assert (bare.run("instance", "stop", "one").returncode, inside.stdout) == (0, "built\n")


def test_bundle_shims_start_the_bundle(bare: BareHost) -> None:
    assert bare.run("shim", "install", "--dir", "/home/user/bin").returncode == 0
    done = bare.run("exec", pull(bare), "sh", "-c", "echo by another name", program="/home/user/bin/apptainer")
    assert (done.returncode, done.stdout) == (0, "by another name\n"), done.stderr
    assert bare.copy().name not in (bare.home / "bin/apptainer").read_text()


def test_bundle_python_has_kedge_also_in_what_it_starts(bare: BareHost) -> None:
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import kedge, ssl, sqlite3'], check=True)"
    done = bare.run("python", "-c", f"{again}; import kedge; print(sys.argv)", "a b")
    assert (done.returncode, done.stdout) == (0, "['-c', 'a b']\n"), done.stderr


def test_bundle_is_the_importer_of_pyxis_under_that_name(bare: BareHost) -> None:
    link = bare.command.with_name("kedge-pyxis")
    if not link.exists():
        link.symlink_to("kedge")
    assert "pyxis" in bare.run("--help", program="/usr/local/bin/kedge-pyxis").stdout
    with FakeRegistry() as registry:
        add_rich_image(registry)
        uri = f"docker://{registry.host}#team/rich:1"
        done = bare.run("get", uri, env=STEP, program="/usr/local/bin/kedge-pyxis")
    assert done.returncode == 0, done.stderr
    assert (bare.root / done.stdout.rstrip("\n").lstrip("/")).read_bytes()[:4] == b"hsqs"


def test_bundle_copies_itself(bare: BareHost) -> None:
    """And starts like an installed kedge: nothing is written once it is unpacked."""
    before = {path: path.stat().st_mtime_ns for path in bare.copy().rglob("*")}
    done = bare.run("bundle", "copy", "--force")
    assert done.returncode == 0, done.stderr
    assert (bare.home / "copy").read_bytes() == make_bundle().read_bytes()
    assert {path: path.stat().st_mtime_ns for path in bare.copy().rglob("*")} == before
