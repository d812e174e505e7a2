# SPDX-License-Identifier: BSD-3-Clause
"""Requests that a site cannot serve are refused before they queue, and what is proposed instead would be served."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base.frozen import replace
from kedge.cluster.job import IndexRange, Job, JobArray, Parallel
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.check_request import Checked, check_request, describe_changes, nearest_request
from kedge.cluster.sites.profile import SHIPPED, ProfileDirectory, load_site
from kedge.errors import RequestRefused
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_reads, assert_says

FOLDERS = (ProfileDirectory(SHIPPED, "shipped"),)
SITES = {path.stem: load_site(path.stem, FOLDERS) for path in sorted(SHIPPED.glob("*.toml"))}
HOUR, DAY, GIGA = 3600, 86400, 1 << 30
SDUMONT = {"HOME": "/prj/project/user", "SCRATCH": "/scratch/project/user"}


def check(site: str, *, interactive: bool = False, **values) -> Checked:
    return check_request(Job(**values), SITES[site], interactive=interactive)


def refuse(site: str, *, interactive: bool = False, **values) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        check(site, interactive=interactive, **values)
    return caught.value


def refuse_at(site: Site, job: Job | None = None, **surroundings) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        check_request(job or Job(), site, **surroundings)
    return caught.value


def test_checks_fill_in_the_queue() -> None:
    assert check("zih-alpha", gpus_per_node=8, memory=GIGA).job.queue == "alpha"
    assert check("sdumont", time=HOUR).job.queue == "sequana_cpu"
    assert check("sdumont", time=HOUR, gpus_per_node=4).job.queue == "sequana_gpu"
    assert check("sdumont", time=HOUR, gpus_per_node=8).job.queue == "gdl"
    assert check("sdumont", time=200 * HOUR, gpus_per_node=1).job.queue == "sequana_gpu_long"
    assert check("abci2", account="g", gpus_per_node=4, nodes=2).job.queue == "rt_F"
    assert check("abci2", account="g", gpus_per_node=1).job.queue == "rt_G.small"
    assert check("abci2", account="g").job.queue == "rt_C.small"
    assert check("abci2", account="g", cpus_per_task=20).job.queue == "rt_C.large"
    assert check("abci3", account="g", gpus_per_node=1).job.queue == "rt_HG"
    assert check("tacc-lonestar6", time=HOUR, gpus_per_node=3).job.queue == "gpu-a100"
    assert check("nvidia", gpus_per_node=1).job.queue == "gpu"
    assert check("nvidia", gpus_per_node=1, interactive=True).job.queue == "interactive"


TYPES = Site(
    "here",
    "",
    "slurm",
    queues=(
        Queue("a", is_default=True, gpus_per_node=4, gpu="A100-SXM4-40GB"),
        Queue("b", gpus_per_node=4, gpu_types=("t4", "v100")),
        Queue("c", gpus_per_node=4, gpu_type="hopper"),
        Queue("d", gpus_per_node=4),
    ),
)


@each_row("queue_and_type", ["a h100", "a nvidia_h100_80gb", "a v100", "b a100", "b T40", "c h100", "a l4"])
def test_checks_refuse_types_of_gpus_that_a_queue_has_not(queue_and_type: str) -> None:
    queue, kind = queue_and_type.split()
    with pytest.raises(RequestRefused, match=f"{kind} was requested") as caught:
        check_request(Job(gpus_per_node=1, gpu_type=kind, queue=queue), TYPES)
    assert caught.value.context["GPUs there"] == "a: A100-SXM4-40GB; b: t4, v100; c: hopper"
    assert "try: " in str(caught.value.hint)


@with_rows("a a100", "a A100-80GB", "a nvidia_a100", "a ampere", "a 40gb", "b V100", "b t4", "c Hopper", "d x1")
def test_checks_take_types_of_gpus_that_a_queue_has_or_may_have(queue_and_type: str) -> None:
    queue, kind = queue_and_type.split()
    assert check_request(Job(gpus_per_node=1, gpu_type=kind, queue=queue), TYPES).job.queue == queue


def test_checks_types_of_gpus_choose_the_queue_and_are_written_as_there() -> None:
    asked = {"b": "V100", "c": "HOPPER", "a": "A100"}
    made = {
        queue: check_request(Job(gpus_per_node=1, gpu_type=kind, queue=queue), TYPES) for queue, kind in asked.items()
    }
    assert {queue: each.job.gpu_type for queue, each in made.items()} == {"b": "v100", "c": "hopper", "a": "A100"}
    assert check_request(Job(gpus_per_node=1, gpu_type="v100"), TYPES).job.queue == "b"
    assert_says(refuse("zih-alpha", gpus_per_node=1, gpu_type="h100").message, "site/gpus-alpha-zih-alpha", "A100")
    problem = refuse("sdumont", queue="sequana_cpu", gpus_per_node=2, time=HOUR)
    assert (problem.message, problem.hint) == ("sequana_cpu at sdumont has no GPUs", "try: --queue sequana_gpu")
    problem = refuse("sdumont", queue="sequana_gpu", time=HOUR)
    assert "never start" in problem.message
    assert problem.hint == "try: --gpus 1"


def test_checks_leave_alone_what_they_know_nothing_of() -> None:
    job = Job(gpus_per_node=100, nodes=5000, time=400 * DAY, queue="any", memory=1 << 50, exclusive=True)
    for name in ("generic-slurm", "generic-gridengine", "generic-pbs", "local"):
        assert check_request(job, SITES[name]) == Checked(job)
    assert check("abci3", account="g", queue="R1234", nodes=500).job.queue == "R1234"
    assert check("abci3", account="g", queue="rt_HF", reservation="R1234", time=30 * DAY).job.time == 30 * DAY
    assert check("zih-alpha", queue="course", reservation="r1").job.queue == "course"
    assert check("sdumont", queue="sequana_gpu_dev,sequana_gpu", gpus_per_node=1, time=HOUR).job.queue == (
        "sequana_gpu_dev,sequana_gpu"
    )


def test_checks_spread_gpus_and_shorten_times() -> None:
    problem = refuse("zih-alpha", gpus_per_node=16)
    assert_reads(problem.message, "site/alpha-zih-alpha-per-node-requested", "8 GPUs", 16)
    assert problem.hint == "try: --nodes 2 --gpus 8 --queue alpha"
    assert problem.context["nearest"] == "--nodes 2 --gpus 8 --queue alpha"
    assert "--nodes 2 --gpus 5" in str(refuse("zih-alpha", gpus_per_node=10).hint)
    assert "--nodes 37 --gpus 8" in str(refuse("zih-alpha", gpus_per_node=1000).hint)
    assert refuse("sdumont", queue="sequana_gpu_dev", gpus_per_node=1, time=HOUR).hint == ("try: --queue sequana_gpu")
    problem = refuse("zih-alpha", gpus_per_node=1, time=8 * DAY)
    assert_reads(problem.message, "site/job-alpha-zih-alpha-run-most")
    assert problem.hint == "try: --time 7d --queue alpha"
    assert check("abci2", account="g", queue="rt_F", nodes=40, time=100 * HOUR)
    assert "12h" in str(refuse("abci2", account="g", queue="rt_F", time=100 * HOUR, interactive=True).hint)
    assert "--nodes 32" in str(refuse("abci2", account="g", queue="rt_F", nodes=40, interactive=True).hint)
    queues = tuple(Queue(f"q{count}", gpus_per_node=count) for count in (1, 4, 2))
    site = Site("s", "", "slurm", queues=queues, refuses=("gpus",))
    assert refuse_at(site, Job(gpus_per_node=8)).hint == "try: --nodes 2 --gpus 4 --queue q4"


def test_checks_unknown_queues_propose_the_nearest() -> None:
    problem = refuse("sdumont", queue="sequana_gpu_def", time=HOUR, gpus_per_node=1)
    assert_reads(problem.message, "site/sdumont-no-partition-sequana-gpu")
    assert str(problem.hint).startswith("did you mean 'sequana_gpu_dev'?")
    assert "gdl" in problem.context["queues"]
    assert "nvidia_small" in refuse("sdumont-base", queue="x").context["queues"]


def test_checks_say_what_to_change_in_the_words_of_the_command_line() -> None:
    asked = Job(nodes=4, gpus_per_node=2, gpu_type="a100", time=9 * DAY, name="x", exclusive=True)
    assert describe_changes(asked, asked) == ""
    assert describe_changes(asked, replace(asked, nodes=2, time=7 * DAY, memory=2 * GIGA)) == (
        "--nodes 2 --mem 2G --time 7d"
    )
    assert describe_changes(asked, replace(asked, gpus_per_node=None, gpu_type="", nodes=1)) == (
        "--nodes 1, without --gpus and --gpu-type"
    )
    assert describe_changes(asked, replace(asked, exclusive=False)) == "without --exclusive"
    assert describe_changes(replace(asked, exclusive=False), asked) == "--exclusive"
    assert describe_changes(asked, replace(asked, queue="a b")) == "--queue 'a b'"


def test_checks_rank_the_queues_of_a_site() -> None:
    """GPUs for who wants some and none for who does not, the default, and little that was not asked for."""
    several = {
        "retired": Queue("retired", is_default=True, gpus_per_node=4, is_retired=True),
        "four": Queue("four", gpus_per_node=4),
        "eight": Queue("eight", gpus_per_node=8),
        "none": Queue("none", gpus_per_node=0),
        "unknown": Queue("unknown"),
        "two": Queue("two", gpus_per_node=2, is_default=True),
        "batch": Queue("batch", gpus_per_node=1, is_interactive=False),
    }
    cases: list[tuple[str, Job, tuple[str, ...], str, str]] = [  # the site's queues, request, refused, wanted, chosen
        ("four none unknown", Job(), (), "", "none"),
        ("four unknown", Job(), (), "", "unknown"),
        ("none unknown", Job(gpus_per_node=1), (), "", "unknown"),
        ("none unknown four", Job(gpus_per_node=1), (), "", "four"),
        ("four eight", Job(gpus_per_node=1), (), "", "four"),
        ("eight four", Job(gpus_per_node=1), (), "", "eight"),
        ("eight four two", Job(gpus_per_node=1), (), "", "two"),
        ("eight four two", Job(gpus_per_node=3), (), "", "eight"),
        ("eight four", Job(gpus_per_node=1), ("gpus",), "", "four"),
        ("four eight", Job(gpus_per_node=6), ("gpus",), "", "eight"),
        ("four eight", Job(gpus_per_node=8, nodes=2), ("gpus",), "", "eight"),
        ("eight four", Job(), ("gpus",), "", "four"),
        ("retired four", Job(gpus_per_node=1), (), "", "four"),
        ("retired", Job(gpus_per_node=1), (), "", "retired"),
        ("two eight", Job(gpus_per_node=1), (), "eight", "two"),
        ("two eight", Job(gpus_per_node=1), (), "eight", "eight interactive"),
        ("two none eight", Job(), (), "eight", "eight interactive"),
        ("batch eight", Job(gpus_per_node=1), (), "", "eight interactive"),
    ]
    wrong = []
    for names, job, refused, wanted, expected in cases:
        queues = tuple(several[name] for name in names.split())
        site = Site("s", "", "slurm", queues=queues, refuses=refused, interactive_queue=wanted)
        chosen, _, how = expected.partition(" ")
        found = check_request(job, site, interactive=bool(how)).job.queue
        if found != chosen:
            wrong.append((names, describe_changes(Job(), job), expected, found))
    assert not wrong


def test_checks_propose_what_is_nearest() -> None:
    """Another size costs less than another queue that was named, and less of something more, the more is lost."""
    small = Queue("small", max_time=HOUR, max_nodes=2, gpus_per_node=4)
    large = Queue("large", max_time=10 * HOUR, gpus_per_node=0)
    other = Queue("other", max_time=4 * HOUR, max_nodes=9, gpus_per_node=2)
    cases: list[tuple[tuple[Queue, ...], Job, str, list[str]]] = [
        # a hint, and the figures of the reason
        ((small, large), Job(queue="small", time=2 * HOUR), "try: --queue large", ["1h", "2h"]),
        ((small, large), Job(queue="small", time=2 * HOUR, gpus_per_node=1), "try: --time 1h", ["1h", "2h"]),
        ((small, large), Job(queue="small", nodes=3, gpus_per_node=1), "try: --nodes 2", ["2", "3"]),
        ((small, large, other), Job(queue="small", nodes=3, gpus_per_node=1), "try: --queue other", ["2", "3"]),
        ((small, other), Job(queue="small", nodes=3, gpus_per_node=3),
         "try: --nodes 5 --gpus 2 --queue other", ["2", "3"]),
        ((large, small), Job(time=20 * HOUR, gpus_per_node=1), "try: --time 1h --queue small", ["1h", "20h"]),
        ((small, other), Job(time=20 * HOUR, gpus_per_node=4, nodes=2),
         "try: --nodes 4 --gpus 2 --time 4h --queue other", ["2", "4", "4h", "20h"]),
        ((small,), Job(queue="small", time=2 * HOUR, nodes=3), "try: --nodes 2 --time 1h", ["2", "3", "1h", "2h"]),
        ((small,), Job(queue="small", memory=GIGA), "small", []),
        ((large, other), Job(queue="large,other", time=20 * HOUR), "try: --time 10h --queue large", ["10h", "20h"]),
        ((large, other), Job(queue="other , large", nodes=10, time=2), "other , large", []),
        ((replace(small, needs_gpus=True), large), Job(queue="small"), "try: --gpus 1", []),
    ]  # fmt: skip
    wrong: list[tuple[str, object]] = []
    for queues, job, hint, figures in cases:
        site = Site("s", "", "slurm", queues=queues)
        try:
            found = (check_request(job, site).job.queue, list[str]())
        except RequestRefused as problem:
            found = (str(problem.hint), re.findall(r"\d+\w?", problem.message))
            if problem.context.get("nearest") != found[0].removeprefix("try: "):
                wrong.append((describe_changes(Job(), job), problem.context))
        if found != (hint, figures):
            wrong.append((describe_changes(Job(), job), found))
    assert not wrong


def test_checks_say_where_a_refused_job_would_have_gone() -> None:
    queues = (Queue("a", max_time=HOUR, gpus_per_node=1, gpu="V100"), Queue("b", gpus_per_node=0))
    site = Site("s", "", "slurm", queues=queues)
    assert refuse_at(site, Job(gpus_per_node=1, gpu_type="v100", time=3 * HOUR)).context == {
        "site": "s", "queue": "a", "GPUs there": "a: V100", "nearest": "--time 1h --queue a",
    }  # fmt: skip
    refused = refuse_at(Site("s", "", "slurm", requires=("account",)))
    assert (refused.context, refused.hint) == ({"site": "s", "nearest": "--account PROJECT"}, "try: --account PROJECT")
    nodes = (Queue("a", arch="arm64"), Queue("b", arch="amd64"), Queue("c"))
    refused = refuse_at(Site("s", "", "slurm", queues=nodes[:2]), architecture="riscv64")
    assert (refused.context, "--arch amd64 " in str(refused.hint)) == ({"site": "s", "queue": "a"}, True)
    for site, around in (
        (Site("s", "", "slurm", queues=(Queue("a", is_interactive=False),)), {"interactive": True}),
        (Site("s", "", "slurm", queues=(replace(nodes[0], is_interactive=False),)), {"interactive": True}),
        (
            Site("s", "", "slurm", queues=(replace(nodes[0], is_interactive=False),)),
            {"interactive": True, "architecture": "arm64"},
        ),
    ):
        refused = refuse_at(site, **around)
        assert (refused.context, "--arch" in str(refused.hint)) == ({"site": "s", "queue": "a"}, False)


def test_checks_of_unknown_queues_name_what_there_is() -> None:
    queues = (Queue("old", is_retired=True), Queue("gpu", gpus_per_node=4), Queue("cpu", gpus_per_node=0))
    site = Site("s", "", "pbs", queues=queues)
    assert refuse_at(site, Job(queue="old2")).context["queues"] == "gpu, cpu"
    assert refuse_at(replace(site, queues=queues[:1]), Job(queue="gpu")).context["queues"] == "old"
    assert refuse_at(site, Job(queue="gpu,zzz", time=5)).context["queue"] == "zzz"
    assert "--nodes 2 --gpus 3 --queue gpu;" in str(refuse_at(site, Job(queue="zzzzzz", gpus_per_node=6)).hint)
    closed = replace(site, queues=(Queue("cpu", is_interactive=False),))
    assert "nearest" not in str(refuse_at(closed, Job(queue="zzzzzz"), interactive=True).hint)
    assert nearest_request(Job(queue="zzzzzz"), closed, interactive=True) is None
    assert nearest_request(Job(queue="zzzzzz"), site) == Job(queue="cpu")
    assert nearest_request(Job(gpus_per_node=1), site) == Job(gpus_per_node=1)
    assert (nearest_request(Job(), closed), check_request(Job(), closed).job.queue) == (Job(), "cpu")
    assert nearest_request(Job(), replace(site, queues=(Queue("a", arch="arm64"),))) == Job()
    for name, job in {"R12": Job(), "S1.server": Job(), "x": Job(reservation="r")}.items():
        assert check_request(replace(job, queue=name), site).job.queue == name
    for name in ("R12x", "xR12"):
        assert refuse_at(site, Job(queue=name)).context["queue"] == name
    assert refuse_at(replace(site, scheduler="slurm"), Job(queue="R12")).context["queue"] == "R12"


def test_checks_fill_in_what_a_site_wants_said() -> None:
    full = Queue("q", default_time=600, memory_per_node=2 * GIGA, gpus_per_node=2, gpu_type="A100", is_whole_node=True)
    site = Site("s", "", "slurm", queues=(full,), requires=("nodes", "tasks", "time"))
    asked = Job(gpus_per_node=1, gpu_type="a100", memory_per_gpu=GIGA, exclusive=True)
    filled = replace(asked, queue="q", gpu_type="A100", nodes=1, tasks=1, time=600)
    assert check_request(asked, site) == Checked(filled)
    assert check_request(asked, replace(site, requires=())) == Checked(replace(asked, queue="q", gpu_type="A100"))
    given = replace(asked, nodes=3, tasks_per_node=2, time=60, queue="q", gpu_type="A100")
    assert check_request(given, site) == Checked(given)
    assert check_request(replace(given, tasks_per_node=None, tasks=5), site).job.tasks == 5
    assert check_request(replace(given, tasks_per_node=None), site).job.tasks == 3
    spread = replace(site, queues=(replace(full, cpus_per_node=4),), requires=())
    assert [check_request(Job(tasks=tasks), spread).job.nodes for tasks in (1, 4, 5, 9)] == [None, None, 2, 3]
    refusing = replace(site, refuses=("gpus", "memory", "exclusive"), requires=())
    checked = check_request(asked, refusing)
    assert checked.job == replace(asked, queue="q", gpu_type="A100", memory_per_gpu=None, exclusive=False)
    named = [re.findall(r"--\w+|\d\w?", note) for note in checked.notes]
    assert named == [["2", "--gpus"], ["2G", "--mem"], ["--exclusive"]]
    assert check_request(Job(), refusing) == Checked(Job(queue="q"))
    assert check_request(Job(memory=GIGA), refusing).job.memory is None
    assert check_request(Job(memory_per_cpu=GIGA), refusing).job.memory_per_cpu is None


def test_checks_warn_once_of_each() -> None:
    site = Site("s", "", "slurm", queues=(Queue("q", is_retired=True),), default_memory_per_cpu=3 * GIGA)
    switched_off, little = check_request(Job(), site).warnings
    assert ("q at s" in switched_off, "3G" in little) == (True, True)
    assert (
        check_request(Job(), replace(site, notes=("gone since May", "and more")))
        .warnings[0]
        .endswith(": gone since May")
    )
    assert check_request(Job(memory=GIGA), site).warnings == (switched_off,)
    assert check_request(Job(), replace(site, refuses=("memory",))).warnings == (switched_off,)
    quiet = Site("s", "", "slurm", refuses=("export",))
    directives = ("  --export=ALL ", "--time=1", "#SBATCH --export NONE", "--mem=1", "--exports")
    warned = check_request(Job(directives=directives), quiet).warnings
    assert [warning.rpartition(" directive ")[2] for warning in warned] == ["'--export=ALL'", "'#SBATCH --export NONE'"]
    assert check_request(Job(directives=directives), replace(quiet, refuses=())).warnings == ()


def test_checks_take_the_queue_of_a_server_and_name_what_is_near() -> None:
    site = Site("s", "s", "pbs", queues=(Queue("gpu", gpus_per_node=4), Queue("cpu", gpus_per_node=0)))
    assert check_request(Job(queue="gpu@pbs1", gpus_per_node=2), site).job.queue == "gpu@pbs1"
    with pytest.raises(RequestRefused) as caught:
        check_request(Job(queue="zzzzzz", gpus_per_node=2), site)
    assert caught.value.context == {"site": "s", "queue": "zzzzzz", "queues": "gpu, cpu"}
    assert_reads(caught.value.hint, "site/gpu-cpu-nearest-request-queue")
    with pytest.raises(RequestRefused) as caught:
        check_request(Job(queue="cpu", gpus_per_node=2), site)
    assert caught.value.context == {"site": "s", "queue": "cpu", "nearest": "--queue gpu"}


def test_checks_requirements_and_the_account_of_a_profile() -> None:
    assert refuse("abci2", gpus_per_node=4).hint == "try: --account PROJECT --queue rt_F"
    assert refuse("tacc-frontera", gpus_per_node=4).hint == "try: --time 1h --queue rtx"
    assert "--time" in str(refuse("sdumont", queue="sequana_gpu", gpus_per_node=1).hint)
    assert check("sdumont", queue="sequana_gpu_dev", gpus_per_node=1).job.time == 20 * 60
    ready = check("tacc-frontera", gpus_per_node=4, time=HOUR).job
    assert (ready.nodes, ready.tasks, ready.queue) == (1, 1, "rtx")
    ready = check("tacc-frontera", time=HOUR, tasks=100).job
    assert (ready.nodes, ready.tasks, ready.queue) == (2, 100, "small")
    memory = Site("s", "s", "slurm", requires=("memory",))
    with pytest.raises(RequestRefused, match="requires a memory request") as caught:
        check_request(Job(), memory)
    assert caught.value.hint == "try: --mem 4G"
    site = replace(SITES["abci2"], account="g123")
    assert check_request(Job(gpus_per_node=4), site).job.account == "g123"
    assert check_request(Job(gpus_per_node=4, account="other"), site).job.account == "other"


def test_checks_what_tacc_gives_and_refuses() -> None:
    checked = check("tacc-frontera", gpus_per_node=1, memory=64 * GIGA, time=HOUR, queue="rtx")
    assert checked.job.gpus_per_node == 1  # --nv and torchrun still want to know
    assert checked.job.memory is None
    assert checked.notes == (
        "rtx allocates whole nodes (4 GPUs each); --gpus is not passed on",
        "rtx allocates whole nodes (128G of memory each); --mem is not passed on",
    )
    assert "has 128G of memory" in refuse("tacc-frontera", queue="rtx", time=HOUR, memory=200 * GIGA).message
    array = JobArray((IndexRange(0, 99),))
    problem = refuse("tacc-frontera", gpus_per_node=4, time=HOUR, array=array)
    assert problem.hint == "try: --queue rtx, without --array"
    assert check("tacc-lonestar6", gpus_per_node=3, time=HOUR, array=array).job.array == array
    assert "without --exclusive" in str(refuse("sdumont", gpus_per_node=1, time=HOUR, exclusive=True).hint)


def test_checks_cpus_memory_tasks_and_warnings() -> None:
    problem = refuse("zih-alpha", cpus_per_task=100, memory=2048 * GIGA)
    assert "96 CPUs" in problem.message
    assert "990000M of memory" in problem.message
    assert problem.hint == "try: --cpus-per-task 96 --mem 990000M --queue alpha"
    assert "--nodes 2" in str(refuse("zih-alpha", nodes=1, tasks=100, memory=GIGA).hint)
    assert "memory" in refuse("zih-alpha", memory_per_cpu=20 * GIGA, cpus_per_task=90).message
    assert "memory" in refuse("zih-alpha", memory_per_gpu=200 * GIGA, gpus_per_node=8).message
    assert "300M per CPU" in check("zih-alpha", gpus_per_node=1).warnings[0]
    assert check("zih-alpha", gpus_per_node=1, memory_per_cpu=GIGA).warnings == ()
    assert "switched off" in check("abci2", account="g", gpus_per_node=4).warnings[0]
    assert "zih-alpha" in check("zih-taurus", gpus_per_node=1, memory=GIGA).warnings[0]
    warned = check("tacc-vista", time=HOUR, gpus_per_node=1, directives=("--export=ALL", "--gres=gpu:1")).warnings
    assert [("--export" in each, "--gres" in each) for each in warned] == [(True, False), (False, True)]


def test_checks_nodes_for_images_and_terminals() -> None:
    site = SITES["sdumont2nd"]
    job = Job(account="a", gpus_per_node=1)
    assert check_request(job, site, architecture="amd64").job.queue == "lncc-h100_shared"
    assert check_request(job, site, architecture="arm64").job.queue == "lncc-gh200_shared"
    with pytest.raises(RequestRefused, match="has arm64 nodes, but the image is for amd64") as caught:
        check_request(Job(time=HOUR, gpus_per_node=1), SITES["tacc-vista"], architecture="amd64")
    assert "--arch arm64" in str(caught.value.hint)
    site = Site("s", "s", "slurm", queues=(Queue("batch", is_interactive=False), Queue("shell")))
    assert check_request(Job(), site, interactive=True).job.queue == "shell"
    with pytest.raises(RequestRefused, match="not accept interactive jobs") as caught:
        check_request(Job(queue="batch"), site, interactive=True)
    assert caught.value.hint == "try: --queue shell"


def test_checks_paths_that_nodes_do_not_see() -> None:
    job = Job(gpus_per_node=1, time=HOUR, image="a.sif")
    paths = ["/prj/project/user/run", "/prj/project/user/run/a.sif"]
    with pytest.raises(RequestRefused) as caught:
        check_request(job, SITES["sdumont"], environ=SDUMONT, paths=paths)
    assert_reads(caught.value.message, "site/compute-nodes-sdumont-do-not", ", ".join(paths))
    assert caught.value.hint == (
        "try: --image /scratch/project/user/run/a.sif --directory /scratch/project/user/run --queue sequana_gpu"
        " (copy there what it needs)"
    )
    assert check_request(job, SITES["sdumont"], environ=SDUMONT, paths=["/scratch/project/user/run"])
    assert check_request(job, SITES["sdumont"], environ=SDUMONT, paths=["docker://a/b"])
    with pytest.raises(RequestRefused):  # somebody else's home is hidden as well
        check_request(job, SITES["sdumont"], environ=SDUMONT, paths=["/prj/other"])
    with pytest.raises(RequestRefused, match="do not see"):  # where scratch is not known there is nothing to propose
        check_request(job, SITES["sdumont"], environ={"HOME": "/prj/p"}, paths=["/prj/p"])


def some(*choices):
    return st.sampled_from((None, *choices))


JOBS = st.builds(
    Job,
    parallel=st.sampled_from(list(Parallel)),
    nodes=some(1, 2, 3, 16, 40, 600, 5000),
    tasks=some(1, 7, 48, 100, 10000),
    tasks_per_node=some(1, 4, 8, 64, 300),
    cpus_per_task=some(1, 5, 40, 97, 500),
    gpus_per_node=some(1, 2, 3, 4, 8, 9, 16, 100),
    gpu_type=st.sampled_from(["", "a100", "v100"]),
    memory=some(1, GIGA, 100 * GIGA, 5000 * GIGA),
    memory_per_cpu=some(GIGA, 100 * GIGA),
    memory_per_gpu=some(GIGA, 900 * GIGA),
    time=some(60, HOUR, 13 * HOUR, 50 * HOUR, 100 * HOUR, 8 * DAY, 40 * DAY),
    exclusive=st.booleans(),
    account=st.sampled_from(["", "p_x"]),
    array=some(JobArray((IndexRange(0, 9),))),
    directory=st.sampled_from(["", "/prj/project/user/deep/er"]),
    image=st.sampled_from(["", "docker://a/b", "/prj/project/user/a.sif"]),
)


def list_paths(job: Job) -> list[str]:
    """What a submission would look at."""
    directory = job.directory or "/prj/project/user/run"
    return [directory, *([job.image] if job.image.startswith("/") else []), f"{directory}/{job.output or 'x.out'}"]


def refuse_or_serve(job: Job, site: Site, *, interactive: bool) -> None:
    """A request is served as it is filled in, or what is proposed instead is served."""
    around = {"interactive": interactive, "environ": SDUMONT}
    nearest = nearest_request(job, site, paths=list_paths(job), **around)
    try:
        checked = check_request(job, site, paths=list_paths(job), **around)
    except RequestRefused as problem:
        refused: RequestRefused | None = problem
    else:
        refused = None
        again = check_request(checked.job, site, paths=list_paths(checked.job), **around)
        assert again.job == checked.job  # what was filled in is served as it is
    if refused is None:
        assert nearest == job
    elif nearest is not None:
        assert nearest != job
        assert refused.hint
        served = check_request(nearest, site, paths=list_paths(nearest), **around)
        assert served.job.queue == nearest.queue
    else:
        assert "nearest" not in refused.context


@given(data=st.data(), job=JOBS, name=st.sampled_from(sorted(SITES)), interactive=st.booleans())
@settings(max_examples=150, deadline=None)
def test_checks_what_is_proposed_would_be_served(data: st.DataObject, job: Job, name: str, interactive: bool) -> None:
    site = SITES[name]
    asked = replace(job, queue=data.draw(st.sampled_from(["", *(each.name for each in site.queues), "nonsense"])))
    refuse_or_serve(asked, site, interactive=interactive)
    assert nearest_request(asked, site, environ=SDUMONT, paths=list_paths(asked)) is not None


QUEUES = st.builds(
    Queue,
    name=st.sampled_from(["a", "b", "c"]),
    nodes=some(1, 5, 100),
    cpus_per_node=some(1, 7, 64),
    memory_per_node=some(GIGA, 256 * GIGA),
    gpus_per_node=some(0, 1, 3, 8),
    gpu_type=st.sampled_from(["", "a100"]),
    gpu_types=st.sampled_from([(), ("v100", "t4")]),
    gpu=st.sampled_from(["", "V100-SXM2-32GB"]),
    min_nodes=some(2, 6),
    max_nodes=some(1, 4, 50),
    max_gpus=some(1, 5, 30),
    max_time=some(60, HOUR, DAY),
    max_interactive_time=some(60, HOUR),
    default_time=some(60),
    is_whole_node=st.booleans(),
    is_interactive=st.booleans(),
    needs_gpus=st.booleans(),
    is_retired=st.booleans(),
)


@given(
    queues=st.lists(QUEUES, max_size=3, unique_by=lambda each: each.name),
    job=JOBS,
    requires=st.sets(st.sampled_from(["account", "queue", "time", "nodes", "tasks", "memory"])),
    refuses=st.sets(st.sampled_from(["memory", "gpus", "arrays", "export", "exclusive"])),
    interactive=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_checks_what_is_proposed_would_be_served_anywhere(queues, job, requires, refuses, interactive) -> None:
    site = Site("s", "s", "slurm", queues=tuple(queues), requires=tuple(requires), refuses=tuple(refuses - requires))
    refuse_or_serve(job, site, interactive=interactive)
    for queue in queues:
        refuse_or_serve(replace(job, queue=queue.name), site, interactive=interactive)
