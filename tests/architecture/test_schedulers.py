# SPDX-License-Identifier: BSD-3-Clause
"""What is a scheduler's own stands in its package: its words occur nowhere else, and a new one needs one line more."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cluster import schedulers
from kedge.cluster.schedulers import choose
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.current_job import find_current_job
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.detect import HostSigns, detect_scheduler
from kedge.jobs.scripts.convert import convert_script
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script
from tests.architecture.source_tree import Module, read_modules

WORDS = re.compile(r"\b(?:sbatch|srun|salloc|qsub|qrsh|qstat|squeue|scontrol|sacct)\b|\b(?:SLURM|PBS|SGE)_")
LAUNCHERS = re.compile(r"\b(?:mpirun|mpiexec|ibrun|orterun)\b")
# Names of programs and variables: who owns them
OWNERS = (
    "kedge.compat.mpi",  # what a family of MPI calls its launcher
    "kedge.cluster",  # launchers, and the variables by which they tell a process its rank
    "kedge.launch",  # chooses one of them for a launch
    "kedge.container.processes.rank_sharing",
    "kedge.jobs.scripts.rules_slurm",  # what sbatch and srun do with a script
    "kedge.jobs.scripts.containers",  # Pyxis: srun is the container's runtime
    "kedge.jobs.scripts.convert",  # the options of launchers
    "kedge.system.host.space",  # $SLURM_TMPDIR is a place among others
)
# Who may name them as well, for a reason that is not a fact of a scheduler
NAMERS = {
    "kedge.jobs.scripts.convert": "a container that srun starts has another kind of name",
    "kedge.jobs.scripts.rules_body": "likewise",
    "kedge.jobs.scripts.script": "likewise",
    "kedge.jobs.scripts.rules_site": "TACC has ibrun instead of srun",
    "kedge.jobs.script": "likewise",
    "kedge.compat.mpi.read_tree": "mpirun of Open MPI 4 is a link to orterun",
    "kedge.base.words_of_other_tools": "what users type at kedge's prompt out of habit",
    "kedge.jobs.alloc": "Pyxis: the step within an allocation",
    "kedge.base.rank_variables": "every start looks whether it is a rank, without loading a package for it",
    "kedge.container.shim_file": "the shim of that name, for scripts written for Pyxis",
    "kedge.cli.shims.srun_words": "likewise",
}


def is_owner(module: str) -> bool:
    return any((module + ".").startswith(owner + ".") for owner in OWNERS)


def find_names(module: Module) -> Iterator[tuple[int, str]]:
    """Texts in the code that are names or patterns, and no sentences for users: those have blanks."""
    for node in module.find(ast.Constant):
        if isinstance(node.value, str) and " " not in node.value.strip():
            yield node.lineno, node.value


@pytest.mark.parametrize("pattern", [WORDS, LAUNCHERS], ids=["schedulers", "launchers"])
def test_names_of_schedulers_stand_in_their_packages(pattern: re.Pattern[str]) -> None:
    wrong = [
        f"{module.shown}:{line} names {text!r}, which a scheduler's package should say"
        for module in read_modules().values()
        if not is_owner(module.name) and module.name not in NAMERS
        for line, text in find_names(module)
        if pattern.search(text)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_namers_name_something() -> None:
    modules = read_modules()
    idle = [
        name
        for name in (*NAMERS, *OWNERS)
        if not any(
            WORDS.search(text) or LAUNCHERS.search(text)
            for module in modules.values()
            if (module.name + ".").startswith(name + ".")
            for _, text in find_names(module)
        )
    ]
    assert not idle, f"take these out of the lists above: {idle}"


def test_names_of_packages_stand_in_one_list() -> None:
    """No part above asks which scheduler it is: it asks the package for the fact. `local` and Pyxis are named."""
    wrong = [
        f"{module.shown}:{line} names {text!r}: ask kedge.cluster.schedulers.choose for the fact"
        for module in read_modules().values()
        if not module.name.startswith("kedge.cluster.schedulers.") and module.name not in MAY_ASK
        for line, text in find_names(module)
        if text in ("slurm", "gridengine", "pbs", "lsf", "flux")
    ]
    assert not wrong, "\n" + "\n".join(wrong)


MAY_ASK = ("kedge.answers.doctor.cluster",)  # checks that are about Slurm's accounts and kinds of MPI

TOY = {
    "__init__": """
        from kedge.cluster.schedulers.facts import SchedulerFacts

        FACTS = SchedulerFacts(
            name="toy", title="Toy", prefix="#TOY", submit="tsub", interactive=("tsh",), program="tinfo",
            job_id="TOY_JOB", job_mark="TOY_JOB", own_variables=r"TOY_\\w+", traces=r"\\bTOY_\\w+",
        )
    """,
    "language": """
        from kedge.cluster.schedulers.language import Language
        from kedge.cluster.schedulers.script_request import put_count, put_text
        from kedge.cluster.schedulers.toy import FACTS

        READERS = {"--nodes": put_count("nodes"), "--queue": put_text("queue")}
        LANGUAGE = Language(
            FACTS, readers=READERS, needs_shebang=True, queue_options=("--queue",), refusable={"arrays": ("--many",)}
        )
    """,
    "backend": """
        from kedge.cluster.schedulers.backend import Dialect
        from kedge.cluster.schedulers.script_body import render_body
        from kedge.cluster.schedulers.toy import FACTS

        DIALECT = Dialect(FACTS.submit, "$TOY_JOB", "TOY_JOB", "TOY_TASK", ("first_node=$TOY_NODE",), "mpirun")


        class _Toy:
            name = FACTS.name

            def render(self, job, site, place):
                lines = [f"#TOY --nodes={job.node_count}", f"#TOY --queue={job.queue}"]
                return "\\n".join(["#!/bin/bash", *lines, render_body(job, site, place, DIALECT)])


        BACKEND = _Toy()
    """,
    "advice": """
        from kedge.cluster.schedulers.facts import RefusalAdvice

        ADVICE = RefusalAdvice(remedies={"no such toy": "'tinfo' lists the toys"})
    """,
}
SCRIPT = "#!/bin/bash\n#TOY --nodes=2 --queue=red\n#TOY --many=4\nmpirun -np 2 apptainer exec a.sif ./run\n"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A scheduler as somebody would add it: a package beside the others, and its name in the list."""
    for name, text in TOY.items():
        path = tmp_path / "toy" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.setattr(schedulers, "__path__", [*schedulers.__path__, str(tmp_path)])
    monkeypatch.setattr(choose, "SCHEDULERS", ("toy", *choose.SCHEDULERS))
    yield
    for name in [name for name in sys.modules if name.startswith("kedge.cluster.schedulers.toy")]:
        del sys.modules[name]


@pytest.mark.usefixtures("toy")
def test_new_scheduler_needs_a_package_and_a_line() -> None:
    site = Site("playroom", "", "toy", queues=(Queue("red", max_nodes=1), Queue("blue")), refuses=("arrays",))
    script = read_script(SCRIPT)
    assert script.scheduler == "toy"
    rules = {finding.rule: finding for finding in check_script(script, site)}
    assert "red at playroom" in rules["over-limit"].message
    assert rules["refused-by-site"].line == 3
    assert {"unknown-option", "other-scheduler"}.isdisjoint(rules)
    job = convert_script(script).job
    assert (job.nodes, job.queue, job.image) == (2, "red", "a.sif")
    place = ScriptContext("", "/kedge", "/a.sif", "", "/project", "/project/out", "")
    rendered = choose.find_backend("toy").render(job, site, place)
    assert "#TOY --nodes=2\n#TOY --queue=red" in rendered
    assert "To submit it by hand: tsub FILE" in rendered
    assert read_script(rendered).scheduler == "toy"


@pytest.mark.usefixtures("toy")
def test_new_scheduler_is_detected_and_known_in_its_jobs() -> None:
    from kedge.cluster.schedulers.advice import find_advice

    assert detect_scheduler(HostSigns(programs=frozenset(["tinfo"]))).scheduler == "toy"
    job = find_current_job({"TOY_JOB": "7"})
    assert job is not None
    assert (job.scheduler, job.id) == ("toy", "7")
    assert find_advice("tsub: no such toy") == "'tinfo' lists the toys"
    assert read_script("echo $TOY_NODE\n").scheduler == "toy"


def test_every_scheduler_has_its_parts() -> None:
    for name in choose.SCHEDULERS:
        assert choose.find_facts(name).name == choose.find_backend(name).name == choose.find_language(name).name == name
    assert len(choose.list_advice()) == len(choose.SCHEDULERS)
