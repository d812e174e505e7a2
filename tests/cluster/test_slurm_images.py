# SPDX-License-Identifier: BSD-3-Clause
"""Images of jobs on a real Slurm: files, references that are pulled now or in the job, copies on every node."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders.bundles import make_bundle
from tests.builders.docker_registry import docker_registry
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.virtual_hosts import VirtualHosts

INSIDE = 'test -e /.singularity.d && echo "inside on $SLURMD_NODENAME"'


@pytest.fixture
def me(slurm: SlurmCluster) -> JobUser:
    return make_job_user(slurm)


def test_image_file_is_named_from_where_it_was_submitted(me: JobUser) -> None:
    me.take_tools("py.sif")
    (me.folder / "run").mkdir(mode=0o777)
    (me.folder / "run").chmod(0o777)
    assert "inside on n1\n" in me.run_job("-D", "run", "py.sif", "sh", "-c", INSIDE)
    missing = me.run("submit", "nosuch.sif", "true")
    assert missing.returncode != 0
    assert "nosuch.sif" in missing.stderr


def test_image_reference_is_pulled_once_and_kept(me: JobUser) -> None:
    assert "inside on n1\n" in me.run_job("host:sh", "sh", "-c", INSIDE)
    [image] = (me.folder / "data/kedge/images").rglob("*.sif")
    before = image.stat()
    assert "inside on n1\n" in me.run_job("host:sh", "sh", "-c", INSIDE)
    assert (image.stat().st_ino, image.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert me.run("submit", "--dry-run", "host:nosuch-program", "true").returncode == 0
    wrong = me.run("submit", "host:nosuch-program", "true")
    assert wrong.returncode != 0
    assert "nothing was submitted" in wrong.stderr


def test_image_is_pulled_by_one_of_the_tasks(me: JobUser, tmp_path: Path) -> None:
    me.take_tools("small.sif")
    with docker_registry(tmp_path) as registry:
        me.read("push", "small.sif", f"docker://{registry.host}/small:1")
        words = (f"docker://{registry.host}/small:1", "sh", "-c", INSIDE)
        array = me.submit("--pull", "in-job", "-a", "0-7", *words)
        assert not (me.folder / "data/kedge/images").exists()
        me.read("wait", array)
        logs = [me.read("logs", f"{array}_{index}") for index in range(8)]
    assert all("inside on n" in log for log in logs), logs
    assert len(list((me.folder / "data/kedge/images").rglob("*.sif"))) == 1
    assert sum("layer " in log for log in logs) == 1, logs
    assert sum("there already" in log for log in logs) == 7


def test_image_is_built_by_one_of_the_tasks(me: JobUser) -> None:
    me.write("tools.def", "Bootstrap: host\nFrom: sh,cat,date\n%post\ncat /proc/sys/kernel/random/uuid >/made\n")
    array = me.submit("--build", "tools.def", "-a", "0-3", "tools.sif", "sh", "-c", 'echo "made $(cat /made)"')
    me.read("wait", array)
    logs = [me.read("logs", f"{array}_{index}") for index in range(4)]
    made = {line for log in logs for line in log.splitlines() if line.startswith("made ")}
    assert len(made) == 1, logs
    assert made.pop() in me.run_job("--build", "tools.def", "tools.sif", "sh", "-c", 'echo "made $(cat /made)"')


def test_image_that_cannot_be_built_fails_the_job(me: JobUser) -> None:
    me.write("tools.def", "Bootstrap: host\nFrom: sh\n%post\necho the reason; exit 3\n")
    job = me.submit("--build", "tools.def", "tools.sif", "true")
    assert me.run("wait", job).returncode == 76
    assert "the reason" in me.read("logs", job)
    assert not (me.folder / "tools.sif").exists()


def make_user_with_disk(cluster: SlurmCluster) -> tuple[JobUser, VirtualHosts]:
    """A user of a site whose nodes have a disk of their own, as its profile says."""
    me = make_job_user(cluster)
    assert cluster.hosts is not None
    profile = f'scheduler = "slurm"\ntitle = "two hosts"\nnode_directory = "{cluster.hosts.local_disk}"\n'
    me.write("config/kedge/sites/here.toml", profile)
    return me.with_environment(XDG_CONFIG_HOME=str(me.folder / "config"), KEDGE_SITE="here"), cluster.hosts


def test_image_is_copied_to_every_node_and_removed(slurm_hosts: SlurmCluster) -> None:
    me, hosts = make_user_with_disk(slurm_hosts)
    disk = hosts.local_disk
    me.take_tools("py.sif")
    show = f'{INSIDE}; set -- {disk}/*-py.sif; test -e "$1" && echo "copies $#"'
    options = ("--broadcast", "-N", "2", "--tasks-per-node", "1", "--each-task", "-B", str(disk))
    shown = me.run_job(*options, "py.sif", "sh", "-c", show)
    assert sorted(line for line in shown.splitlines() if line.startswith("inside")) == [
        "inside on gpu01",
        "inside on gpu02",
    ]
    assert shown.count("copies 1") == 2, shown
    for node in slurm_hosts.nodes:
        assert "py.sif" not in hosts.run(node, "ls", str(disk))


def test_bundle_is_copied_to_every_node_and_removed(slurm_hosts: SlurmCluster) -> None:
    me, hosts = make_user_with_disk(slurm_hosts)
    disk = hosts.local_disk
    shutil.copy(make_bundle(), me.folder / "kedge")
    me = replace(me, user=replace(me.user, program=(str(me.folder / "kedge"),)))
    me.take_tools("py.sif")
    show = f'{INSIDE}; set -- {disk}/*-kedge; test -x "$1" && echo "copies $#"'
    options = ("--stage", "always", "-N", "2", "--tasks-per-node", "2", "--each-task", "-B", str(disk))
    shown = me.run_job(*options, "py.sif", "sh", "-c", show)
    assert sorted(line for line in shown.splitlines() if line.startswith("inside")) == [
        *("inside on gpu01", "inside on gpu01", "inside on gpu02", "inside on gpu02")
    ]
    assert shown.count("copies 1") == 4, shown
    assert "not copied" not in shown
    for node in slurm_hosts.nodes:
        left = hosts.run(node, "ls", str(disk)).split()
        assert not any(name.endswith(("-kedge", "-py.sif")) for name in left), left


def test_image_on_a_node_is_never_a_file_that_another_user_made_first(slurm_hosts: SlurmCluster) -> None:
    """The attack wants to own the image that a job runs from: names in a shared directory can be guessed from ids."""
    me, hosts = make_user_with_disk(slurm_hosts)
    disk = hosts.local_disk
    me.take_tools("py.sif")
    before = int(me.submit_shell("true"))
    names = [str(disk / f"kedge-{me.user.uid}-{number}-py.sif") for number in range(before, before + 9)]
    other = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c")
    for node in slurm_hosts.nodes:
        hosts.run(node, "chmod", "1777", str(disk))  # as /tmp is
        hosts.run(node, *other, f"umask 0; touch {' '.join(names)}")
    try:
        assert me.run_job("--broadcast", "py.sif", "sh", "-c", INSIDE).startswith("inside on gpu0")
        for node in slurm_hosts.nodes:
            assert hosts.run(node, "find", *names, "-size", "0").split() == names
    finally:
        for node in slurm_hosts.nodes:
            hosts.run(node, "rm", "-f", *names)


def test_variables_of_a_job_arrive_in_its_container(me: JobUser) -> None:
    me.take_tools("env.sif")
    given = {"PYTHONPATH": "/x", "LD_LIBRARY_PATH": "/y", "CONDA_PREFIX": "/c", "HOME": "/h", "PLAIN": "$(id) `x`"}
    flags = [word for pair in given.items() for word in ("--env", "=".join(pair))]
    seen = me.run_job(*flags, "env.sif", "env").splitlines()
    expected = {**given, "LD_LIBRARY_PATH": "/y:/.singularity.d/libs"}
    assert {f"{name}={value}" for name, value in expected.items()} <= set(seen)
