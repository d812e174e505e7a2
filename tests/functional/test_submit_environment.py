# SPDX-License-Identifier: BSD-3-Clause
"""The variables of a job arrive in its container as they were given, whatever they are called and whoever starts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import Job, Parallel
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.site import Site
from kedge.errors import RequestRefused
from tests.builders.queue_user import QueueUser
from tests.builders.rows import each_row
from tests.requirements import require_user_namespaces

GIVEN = {
    "PYTHONPATH": "/x:/other",
    "LD_LIBRARY_PATH": "/y",
    "CONDA_PREFIX": "/c",
    "LD_PRELOAD": "",
    "HOME": "/elsewhere",
    "PATH": "/usr/bin:/bin:/mine",
    "R_LIBS": "/r,s",
    "PLAIN": '$(id) "x" `y` \\ it\'s ${HOME}',
    "LINES": "one\ntwo",
}
Kedge = Callable[..., str]


@pytest.fixture
def local(tmp_path: Path) -> Kedge:
    """kedge with a queue of its own; an image with a shell lies in its directory."""
    require_user_namespaces()
    user = QueueUser(tmp_path, KEDGE_SITE="local")
    user.run("pull", "tools.sif", "host:sh,env")
    return user.read


def read_variables(text: str) -> dict[str, str]:
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if "=" in entry)


def require_given(seen: dict[str, str]) -> None:
    expected = {**GIVEN, "LD_LIBRARY_PATH": "/y:/.singularity.d/libs"}  # kedge adds where libraries of the host are
    assert {name: seen.get(name) for name in GIVEN} == expected


def test_variables_of_flags_arrive(local: Kedge) -> None:
    flags = [word for pair in GIVEN.items() for word in ("--env", "=".join(pair))]
    local("submit", "--wait", "--error", "errors", *flags, "tools.sif", "env", "-0")
    require_given(read_variables(local("logs")))


def test_variables_of_a_description_arrive(local: Kedge, tmp_path: Path) -> None:
    lines = [f"{name} = {value!r}" if name != "PLAIN" else f"{name} = '''{value}'''" for name, value in GIVEN.items()]
    text = "\n".join(
        ["[job]", 'image = "tools.sif"', 'command = ["env", "-0"]', 'error = "errors"', "[job.environment]", *lines, ""]
    )
    (tmp_path / "kedge.toml").write_text(text.replace("'one\\ntwo'", '"one\\ntwo"'))
    local("submit", "--wait")
    require_given(read_variables(local("logs")))


def test_variables_win_over_those_of_the_image(local: Kedge, tmp_path: Path) -> None:
    local("convert", "--format", "sandbox", "tools.sif", "box")
    (tmp_path / "box/.singularity.d/env/90-environment.sh").write_text("export WHOSE=image\n")
    local("submit", "--wait", "--error", "errors", "--env", "WHOSE=mine", "box", "env", "-0")
    assert read_variables(local("logs"))["WHOSE"] == "mine"


def test_programs_of_the_node_do_not_get_them(local: Kedge) -> None:
    shown = local("submit", "--dry-run", "--env", "LD_PRELOAD=/x.so", "--env", "PATH=/x", "tools.sif", "env")
    assert "export LD_PRELOAD" not in shown
    assert "export PATH" not in shown
    bare = local("submit", "--dry-run", "--env", "LD_PRELOAD=/x.so", "-", "env")
    assert "export LD_PRELOAD=/x.so" in bare  # without a container they are the program's


JOB = Job(
    image="docker://x.org/y",
    command=("env",),
    environment=(("A", "$x"), ("LD_PRELOAD", "/z.so")),
    parallel=Parallel.MPI,
)
PLACE = ScriptContext("", "/k", "/i.sif", "", "/d", "/d/o", "", inside_only=("LD_PRELOAD",))


def render(scheduler: str, runtime: str, job: Job = JOB) -> str:
    site = Site(name="here", title="", scheduler=scheduler, runtime=runtime)
    return find_backend(scheduler).render(job, site, PLACE)


@each_row("scheduler", ["slurm", "gridengine", "pbs", "local"])
@each_row(
    ("runtime", "prefix"), [("kedge", "KEDGEENV_"), ("apptainer", "APPTAINERENV_"), ("singularity", "SINGULARITYENV_")]
)
def test_every_runtime_is_asked_in_its_own_words(scheduler: str, runtime: str, prefix: str) -> None:
    text = render(scheduler, runtime)
    assert f"export A='$x'\nexport {prefix}A='\\$x'\nexport {prefix}LD_PRELOAD=/z.so\n" in text
    launched = text.replace("\\\n", "").splitlines()[-1]
    if "mpi" in launched.split()[0]:  # the others hand on all there is
        assert f"{prefix}LD_PRELOAD" in launched
        assert " LD_PRELOAD" not in launched


def test_pyxis_is_told_on_the_command_line_of_srun() -> None:
    text = render("slurm", "pyxis")
    assert "--export=ALL,LD_PRELOAD=/z.so --container-env=A,LD_PRELOAD" in text.replace("\\\n    ", "")
    with pytest.raises(RequestRefused, match="no comma in the value of LD_PRELOAD"):
        render("slurm", "pyxis", replace(JOB, environment=(("LD_PRELOAD", "/a,/b"),)))


def test_another_runtime_is_not_asked_for_a_home() -> None:
    with pytest.raises(RequestRefused, match="apptainer does not let --env set HOME") as refusal:
        render("slurm", "apptainer", replace(JOB, environment=(("HOME", "/x"),)))
    assert "--home" in str(refusal.value.hint)
