# SPDX-License-Identifier: BSD-3-Clause
"""`srun --container-image` on a real Slurm without Pyxis, through the shim; and a site's srun that has Pyxis."""

from __future__ import annotations

import pytest

from tests.builders.shims import write_shims
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster

INSIDE = 'test -e /.singularity.d && echo "rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME: $(ls /given)"'

PYXIS = '#!/bin/sh\ncase $1 in --help) echo "  --container-image=X  [pyxis]" ;; *) echo "$@" ;; esac\n'


@pytest.fixture
def me(slurm: SlurmCluster) -> JobUser:
    user = make_job_user(slurm)
    shims = write_shims(user.folder / "shims", ["srun"])
    path = user.user.variables()["PATH"]
    return user.with_environment(PATH=f"{shims}:{path}", ONE="of the host")


def srun(me: JobUser, *words: str) -> str:
    done = me.user.run_program("srun", *words, cwd=me.folder)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_tasks_on_nodes_are_in_the_container(me: JobUser) -> None:
    me.read("pull", "image.sqsh", "host:sh,ls,env,cat")
    me.write("data/file", "x")
    words = ("-N", "2", "-n", "4", "--container-image=./image.sqsh", "--container-mounts=./data:/given:ro")
    shown = sorted(srun(me, *words, "--container-workdir=/given", "sh", "-c", INSIDE).splitlines())
    assert [line.split(" on ")[0] for line in shown] == [f"rank {rank} of 4" for rank in range(4)]
    assert {line.split(" on ")[1] for line in shown} == {"n1: file", "n2: file"}
    failed = me.user.run_program("srun", "--container-image", "./image.sqsh", "sh", "-c", "exit 7", cwd=me.folder)
    assert failed.returncode == 7


def test_a_named_container_is_found_by_the_next_step(me: JobUser) -> None:
    me.read("pull", "image.sqsh", "host:sh,ls,env,cat")
    me.write("job.sh", "srun --container-image=./image.sqsh --container-name=tools true\n"
             "srun --container-name=tools sh -c 'test -e /.singularity.d && echo found'\n"
             "srun --container-name=other true || echo refused\n")  # fmt: skip
    done = me.user.run_program("salloc", "-n", "1", "bash", "job.sh", cwd=me.folder)
    assert done.stdout.split() == ["found", "refused"], done.stderr
    assert "--container-image=IMAGE" in done.stderr


def test_other_words_reach_the_sites_srun_unchanged(me: JobUser) -> None:
    assert srun(me, "-n", "1", "echo", "--container-image=x", "a b") == "--container-image=x a b\n"
    site = me.folder / "site"
    site.mkdir()
    (site / "srun").write_text(PYXIS)
    (site / "srun").chmod(0o755)
    pyxis = me.with_environment(PATH=f"{me.folder}/shims:{site}:/usr/bin:/bin")
    assert srun(pyxis, "--container-image=a/b", "id") == "--container-image=a/b id\n"
    shims = f"{me.folder}/shims"
    done = me.user.run_program("env", f"PATH={shims}:/nowhere", f"{shims}/srun", "id")
    assert (done.returncode, "no other srun" in done.stderr) == (1, True)
