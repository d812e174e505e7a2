# SPDX-License-Identifier: BSD-3-Clause
"""The script that every shipped site gets for the same six requests, word by word: tests/golden/sites/SITE/REQUEST.

KEDGE_GOLDEN=write writes them anew; the difference is then read in the commit.
"""

from __future__ import annotations

import os
import shlex
import subprocess

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.cluster.job import IndexRange, Job, JobArray, Parallel
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.sites.check_request import check_request
from kedge.cluster.sites.profile import find_folders, list_sites, load_site
from kedge.errors import RequestRefused
from kedge.system.start_kedge import own_command
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_program

WRITE = os.environ.get("KEDGE_GOLDEN") == "write"  # read before tests lose all variables of kedge
GOLDEN = REPOSITORY / "tests/golden/sites"
FOLDERS = find_folders({"HOME": "/nobody", "XDG_CONFIG_HOME": "/nowhere"})
SITES = sorted(each.name for each in list_sites(FOLDERS))
ENVIRON = {"HOME": "/home/ada", "SCRATCH": "/scratch/proj/ada", "USER": "ada"}
BASE = Job(
    name="train",
    image="/scratch/proj/ada/pytorch.sif",
    command=("python", "train.py", "--note", "it's $5"),
    environment=(("OMP_NUM_THREADS", "8"), ("NOTE", "a 'b' $(c)")),
    binds=("/scratch/proj/ada/data:/data:ro",),
    time=7200,
    account="proj",
)


def largest_node(site, nodes: int = 1) -> int:
    """GPUs of the node with the most of them; generic sites do not say, and there four are asked for."""
    wide = [each for each in site.queues if min(each.max_nodes or nodes, each.nodes or nodes) >= nodes]
    return max((each.gpus_per_node or 0 for each in wide), default=0) or 4


def make_requests(site) -> dict[str, Job]:
    """The six requests, with as many GPUs as the site has in a node."""
    gpus, of_two = largest_node(site), largest_node(site, 2)
    return {
        "one-gpu": replace(BASE, gpus_per_node=1, cpus_per_task=4),
        "whole-node": replace(BASE, gpus_per_node=gpus),
        "mpi": replace(BASE, nodes=2, tasks_per_node=of_two, gpus_per_node=of_two, parallel=Parallel.MPI),
        "torchrun": replace(
            BASE, nodes=2, gpus_per_node=of_two, parallel=Parallel.TORCHRUN, command=("train.py", "--note", "it's $5")
        ),
        "array": replace(BASE, gpus_per_node=1, array=JobArray((IndexRange(0, 99),), 10)),
        "interactive": replace(BASE, gpus_per_node=1, time=3600),
    }


REQUESTS = ("one-gpu", "whole-node", "mpi", "torchrun", "array", "interactive")


def render(name: str, request: str) -> str:
    """The script and the command that submits it, or the refusal; without the version, which changes."""
    site = load_site(name, FOLDERS)
    backend = find_backend(site.scheduler)
    job = make_requests(site)[request]
    if site.runtime == "pyxis":  # which takes no SIF files
        job = replace(job, image="docker://nvcr.io/nvidia/pytorch:24.03-py3")
    place = ScriptContext(
        record="/scratch/proj/ada/.kedge/jobs/records/KEY",
        kedge="/scratch/proj/ada/bin/kedge",
        image=job.image,
        pull_from="",
        directory="/scratch/proj/ada/code",
        output="/scratch/proj/ada/code/" + ("{name}-{id}_{index}.out" if job.array else "{name}-{id}.out"),
        error="",
    )
    try:
        checked = check_request(
            job, site, interactive=request == "interactive", environ=ENVIRON, paths=[place.directory, job.image]
        ).job
        if request == "interactive":
            argv = backend.interactive_argv(checked, site, ["kedge", "shell", "--nv", job.image])
            return shlex.join(_hide_python(argv)) + "\n"
        script = backend.render(checked, site, place)
        argv = backend.submit_argv("job.sh", checked, site)
    except RequestRefused as refusal:
        return f"# refused: {refusal.message}\n# {refusal.hint or ''}".rstrip() + "\n"
    return f"{script}# submitted with: {shlex.join(_hide_python(argv))}\n".replace(f"kedge {VERSION}", "kedge VERSION")


def _hide_python(argv: list[str]) -> list[str]:
    """The command by which kedge starts itself names the machine that the test runs on."""
    own = own_command()
    return ["KEDGE", *argv[len(own) :]] if argv[: len(own)] == own else argv


def name_golden(site: str, request: str):
    return GOLDEN / site / f"{request}.sh"


@each_row("request_name", REQUESTS)
@each_row("site", SITES)
def test_site_script_is_word_by_word_what_it_was(site: str, request_name: str) -> None:
    text = render(site, request_name)
    golden = name_golden(site, request_name)
    if WRITE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@EVERY
def test_site_scripts_are_clean_for_shellcheck_and_all_kept(is_every: bool) -> None:
    """One script of each site and all of each scheduler, and all of all sites in `make test-all`."""
    assert sorted(each.name for each in GOLDEN.iterdir()) == SITES
    chosen = [
        (site, each) for site in SITES for each in REQUESTS[:5] if is_every or site.startswith(("generic", "local"))
    ]
    chosen += [(site, REQUESTS[number % 5]) for number, site in enumerate(SITES)]
    scripts = {name_golden(*each) for each in chosen if name_golden(*each).read_text().startswith("#!")}
    assert len(scripts) > (4 * len(SITES) if is_every else 20)
    words = [require_program("shellcheck"), "--shell=bash", *map(str, scripts)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@each_row("site", [each for each in SITES if each.startswith("tacc-")])
def test_site_scripts_of_tacc_have_none_of_what_it_refuses(site: str) -> None:
    for request in REQUESTS:
        text = name_golden(site, request).read_text()
        assert not [word for word in ("--gres", "--gpus", "--mem", "--export", "srun ") if word in text], text
        if text.startswith("#!"):
            assert "#SBATCH --nodes=" in text
            assert "#SBATCH --time=" in text
