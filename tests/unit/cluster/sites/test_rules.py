# SPDX-License-Identifier: BSD-3-Clause
"""Each rule of a queue at its edges: the limit that is broken, the figures named, what mends it and what that costs.

The sentences are free; their figures are not.
"""

from __future__ import annotations

import re

from kedge.cluster.job import IndexRange, Job, JobArray, Parallel
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.check_request import describe_changes
from kedge.cluster.sites.rules import (
    RULES,
    QueueRequest,
    UnmetRequest,
    check_paths,
    find_broken_limits,
    find_hidden_root,
)

MEGA, GIGA, HOUR, DAY = 1 << 20, 1 << 30, 3600, 86400
Found = tuple[str, list[str], str | None, int]


def ask(job: Job, *, queue: Queue, scheduler: str = "slurm", around=None, **site) -> QueueRequest:
    return QueueRequest(job, Site("site", "", scheduler, **site), queue, **(around or {}))


def judge(request: QueueRequest) -> list[Found]:
    return [show(request, finding) for rule in RULES if (finding := rule(request)) is not None]


def show(request: QueueRequest, finding: UnmetRequest) -> Found:
    """The limit, the figures of the reason, what to change (None: the queue is no use) and the cost."""
    changes = None if finding.better is None else describe_changes(request.job, finding.better)
    return finding.limit, re.findall(r"\d+\w?", finding.reason), changes, finding.cost


def queue(**values) -> Queue:
    return Queue("queue", **values)


def refuse_type(word: str) -> Found:
    """Of an A6000."""
    return "gpu_type", re.findall(r"\d+\w?", f"6000 {word}"), "without --gpu-type", 20


ARRAY = JobArray((IndexRange(0, 9),))
INTERACTIVE = {"is_interactive": True}
TORCHRUN = Parallel.TORCHRUN
CASES: list[tuple[QueueRequest, list[Found]]] = [
    # of any use
    (ask(Job(), queue=queue(is_interactive=False)), []),
    (ask(Job(), queue=queue(is_interactive=False), around=INTERACTIVE), [("", [], None, 60)]),
    (ask(Job(), queue=queue(arch="arm64"), around={"architecture": "amd64"}), [("", ["64", "64"], None, 60)]),
    (ask(Job(), queue=queue(arch="arm64"), around={"architecture": "arm64"}), []),
    (ask(Job(), queue=queue(arch="arm64")), []),
    (ask(Job(), queue=queue(), around={"architecture": "amd64"}), []),
    # an account
    (ask(Job(), queue=queue(), requires=("account",)), [("", [], "--account PROJECT", 0)]),
    (ask(Job(account="a"), queue=queue(), requires=("account",)), []),
    (ask(Job(), queue=queue(), requires=("account",), account="a"), []),
    (ask(Job(), queue=queue(), requires=("time", "account")), [
        ("", [], "--time 1h", 0), ("", [], "--account PROJECT", 0),
    ]),
    # GPUs, how many
    (ask(Job(gpus_per_node=4), queue=queue(gpus_per_node=4)), []),
    (ask(Job(gpus_per_node=1), queue=queue()), []),
    (ask(Job(), queue=queue(gpus_per_node=0)), []),
    (ask(Job(gpus_per_node=1, gpu_type="a100", memory_per_gpu=GIGA), queue=queue(gpus_per_node=0)), [
        ("gpus", [], "without --gpus and --gpu-type and --mem-per-gpu", 60),
    ]),
    (ask(Job(queue="queue"), queue=queue(needs_gpus=True)), [("needs_gpus", [], "--gpus 1", 1)]),
    (ask(Job(), queue=queue(needs_gpus=True)), [("needs_gpus", [], "--gpus 1", 4)]),
    (ask(Job(gpus_per_node=1), queue=queue(needs_gpus=True)), []),
    (ask(Job(gpus_per_node=5), queue=queue(gpus_per_node=4)), [("gpus", ["4", "5"], "--nodes 2 --gpus 3", 1)]),
    (ask(Job(gpus_per_node=2), queue=queue(gpus_per_node=1)), [("gpus", ["1", "2"], "--nodes 2 --gpus 1", 1)]),
    (ask(Job(gpus_per_node=6, nodes=3), queue=queue(gpus_per_node=4)), [
        ("gpus", ["4", "6"], "--nodes 5 --gpus 4", 1),
    ]),
    (ask(Job(gpus_per_node=8), queue=queue(gpus_per_node=4, max_nodes=2)), [
        ("gpus", ["4", "8"], "--nodes 2 --gpus 4", 1),
    ]),
    (ask(Job(gpus_per_node=16), queue=queue(gpus_per_node=4, max_nodes=2)), [
        ("gpus", ["4", "16"], "--nodes 2 --gpus 4", 30),
    ]),
    (ask(Job(gpus_per_node=4, nodes=3), queue=queue(max_gpus=12)), []),
    (ask(Job(gpus_per_node=4, nodes=4), queue=queue(max_gpus=12)), [("gpus", ["12", "16"], "--gpus 3", 25)]),
    (ask(Job(gpus_per_node=4, nodes=5), queue=queue(max_gpus=2)), [
        ("gpus", ["2", "20"], "--nodes 2 --gpus 1", 38),
    ]),
    # GPUs, of which type
    (ask(Job(gpus_per_node=1, gpu_type="b"), queue=queue(gpu_types=("a", "c"))), [
        ("gpu_type", [], "--gpu-type a", 20),
    ]),
    (ask(Job(gpus_per_node=1, gpu_type="C"), queue=queue(gpu_types=("a", "c"))), []),
    (ask(Job(gpus_per_node=1), queue=queue(gpu_types=("a", "c"))), []),
    (ask(Job(gpus_per_node=1, gpu_type="b"), queue=queue(gpu_type="a")), [("gpu_type", [], "--gpu-type a", 20)]),
    (ask(Job(gpus_per_node=1, gpu_type="h100"), queue=queue(gpu="A100-SXM4")), [
        ("gpu_type", ["100", "4", "100"], "without --gpu-type", 20),
    ]),
    *((ask(Job(gpus_per_node=1, gpu_type=word), queue=queue(gpu="NVIDIA RTX A6000")), []) for word in (
        "a6000", "rtxa6000", "nvidia_rtx_a6000", "rtx", "ampere", "48gb", "a", "nvidia_a6000_48gb",
    )),
    *((ask(Job(gpus_per_node=1, gpu_type=word), queue=queue(gpu="NVIDIA RTX A6000")), [
        refuse_type(word),
    ]) for word in ("a5000", "gh200", "GTX1080", "mi250x", "nvidia-l40s", "b200")),
    # nodes
    (ask(Job(nodes=4), queue=queue(nodes=9, max_nodes=4, min_nodes=4)), []),
    (ask(Job(nodes=5), queue=queue(nodes=9, max_nodes=4)), [("nodes", ["4", "5"], "--nodes 4", 24)]),
    (ask(Job(nodes=10), queue=queue(nodes=9)), [("nodes", ["9", "10"], "--nodes 9", 22)]),
    (ask(Job(nodes=5), queue=queue(nodes=4, max_nodes=9)), [("nodes", ["4", "5"], "--nodes 4", 24)]),
    (ask(Job(nodes=5), queue=queue(max_interactive_nodes=1)), []),
    (ask(Job(nodes=5), queue=queue(nodes=9, max_interactive_nodes=1), around=INTERACTIVE), [
        ("nodes", ["1", "5"], "--nodes 1", 36),
    ]),
    (ask(Job(nodes=3), queue=queue(min_nodes=4)), [("nodes", ["4", "3"], "--nodes 4", 20)]),
    (ask(Job(), queue=queue(min_nodes=2)), [("nodes", ["2", "1"], "--nodes 2", 20)]),
    (ask(Job(tasks=10, tasks_per_node=3), queue=queue(max_nodes=3)), [("nodes", ["3", "4"], "--nodes 3", 25)]),
    # nodes and time where a reservation is a queue
    (ask(Job(nodes=5, time=DAY, reservation="R1"), queue=queue(max_nodes=1, max_time=HOUR), scheduler="pbs"), []),
    (ask(Job(nodes=5, time=DAY, reservation="R1"), queue=queue(max_nodes=4, max_time=HOUR)), [
        ("nodes", ["4", "5"], "--nodes 4", 24), ("time", ["1h", "1d"], "--time 1h", 39),
    ]),
    (ask(Job(nodes=5), queue=queue(max_nodes=4), scheduler="pbs"), [("nodes", ["4", "5"], "--nodes 4", 24)]),
    # CPUs
    (ask(Job(cpus_per_task=8), queue=queue(cpus_per_node=8)), []),
    (ask(Job(cpus_per_task=9), queue=queue()), []),
    (ask(Job(cpus_per_task=9), queue=queue(cpus_per_node=8)), [("cpus", ["8", "9"], "--cpus-per-task 8", 4)]),
    (ask(Job(cpus_per_task=2, tasks_per_node=4), queue=queue(cpus_per_node=8)), []),
    (ask(Job(cpus_per_task=3, tasks_per_node=5), queue=queue(cpus_per_node=8)), [
        ("cpus", ["8", "15"], "--nodes 3 --tasks-per-node 2", 1),
    ]),
    (ask(Job(nodes=4, tasks=40), queue=queue(cpus_per_node=8)), [("cpus", ["8", "10"], "--nodes 5", 1)]),
    (ask(Job(nodes=2, cpus_per_task=3, tasks=9), queue=queue(cpus_per_node=8, max_nodes=5)), [
        ("cpus", ["8", "15"], "--nodes 5", 1),
    ]),
    (ask(Job(nodes=2, cpus_per_task=3, tasks=9), queue=queue(cpus_per_node=8, max_nodes=4)), [
        ("cpus", ["8", "15"], "--nodes 4 --tasks 8", 22),
    ]),
    (ask(Job(nodes=2, tasks_per_node=12), queue=queue(cpus_per_node=8, max_nodes=2)), [
        ("cpus", ["8", "12"], "--tasks-per-node 8", 27),
    ]),
    (ask(Job(nodes=5, tasks=50, tasks_per_node=12), queue=queue(cpus_per_node=8, nodes=20)), [
        ("cpus", ["8", "12"], "--nodes 7 --tasks-per-node 8", 1),
    ]),
    (ask(Job(nodes=4, tasks=2, tasks_per_node=9), queue=queue(cpus_per_node=8)), [
        ("cpus", ["8", "9"], "--tasks-per-node 8", 1),
    ]),
    (ask(Job(nodes=2, tasks=90, parallel=TORCHRUN), queue=queue(cpus_per_node=1)), []),
    # memory
    (ask(Job(memory=GIGA), queue=queue(memory_per_node=GIGA)), []),
    (ask(Job(memory=4 * GIGA, gpus_per_node=9), queue=queue(memory_per_node=GIGA)), [
        ("memory", ["1G", "4G"], "--mem 1G", 35),
    ]),
    (ask(Job(memory_per_cpu=GIGA, tasks_per_node=2, cpus_per_task=3), queue=queue(memory_per_node=6 * GIGA)), []),
    (ask(Job(memory_per_cpu=GIGA, tasks_per_node=2, cpus_per_task=4), queue=queue(memory_per_node=6 * GIGA)), [
        ("memory", ["6G", "8G"], "--mem 6G, without --mem-per-cpu", 25),
    ]),
    (ask(Job(memory_per_cpu=4 * GIGA), queue=queue(memory_per_node=2 * GIGA)), [
        ("memory", ["2G", "4G"], "--mem 2G, without --mem-per-cpu", 30),
    ]),
    (ask(Job(memory_per_gpu=4 * GIGA, gpus_per_node=2), queue=queue(memory_per_node=6 * GIGA)), [
        ("memory", ["6G", "8G"], "--mem 6G, without --mem-per-gpu", 25),
    ]),
    (ask(Job(memory_per_gpu=4 * GIGA), queue=queue(memory_per_node=MEGA)), []),
    (ask(Job(memory=GIGA), queue=queue(), refuses=("memory",)), [("", [], "without --mem", 1)]),
    (ask(Job(memory=GIGA), queue=queue(memory_per_node=GIGA), refuses=("memory",)), []),
    (ask(Job(), queue=queue(), refuses=("memory",)), []),
    (ask(Job(gpus_per_node=1), queue=queue(), refuses=("memory",)), []),
    (ask(Job(memory_per_gpu=1), queue=queue(), refuses=("memory",)), []),
    (ask(Job(gpus_per_node=1), queue=queue(), requires=("memory",)), [("", [], "--mem 4G", 0)]),
    (ask(Job(), queue=queue(), requires=("memory",)), [("", [], "--mem 4G", 0)]),
    (ask(Job(), queue=queue(memory_per_node=8 * GIGA), requires=("memory",)), [("", [], "--mem 4G", 0)]),
    (ask(Job(), queue=queue(memory_per_node=3 * GIGA), requires=("memory",)), [("", [], "--mem 3G", 0)]),
    (ask(Job(memory_per_cpu=1), queue=queue(), requires=("memory",)), []),
    # time
    (ask(Job(time=HOUR), queue=queue(max_time=HOUR, max_interactive_time=60)), []),
    (ask(Job(time=2 * HOUR), queue=queue(max_time=HOUR)), [("time", ["1h", "2h"], "--time 1h", 30)]),
    (ask(Job(time=HOUR), queue=queue(max_time=DAY, max_interactive_time=900), around=INTERACTIVE), [
        ("time", ["15m", "1h"], "--time 15m", 35),
    ]),
    (ask(Job(time=2 * DAY), queue=queue(max_time=DAY), around=INTERACTIVE), [("time", ["1d", "2d"], "--time 1d", 30)]),
    (ask(Job(), queue=queue(max_time=DAY)), []),
    (ask(Job(), queue=queue(max_time=DAY), requires=("time",)), [("", [], "--time 1h", 0)]),
    (ask(Job(), queue=queue(max_time=600), requires=("time",)), [("", [], "--time 10m", 0)]),
    (ask(Job(), queue=queue(default_time=60), requires=("time",)), []),
    # what a site does not do
    (ask(Job(array=ARRAY), queue=queue(), refuses=("arrays",)), [("", [], "without --array", 20)]),
    (ask(Job(array=ARRAY, exclusive=True), queue=queue(), refuses=("memory",)), []),
    (ask(Job(), queue=queue(), refuses=("arrays", "exclusive", "gpus")), []),
    (ask(Job(exclusive=True), queue=queue(), refuses=("exclusive",)), [("", [], "without --exclusive", 4)]),
    (ask(Job(exclusive=True), queue=queue(is_whole_node=True), refuses=("exclusive",)), []),
    (ask(Job(gpus_per_node=1, gpu_type="a", memory_per_gpu=1), queue=queue(), refuses=("gpus",)), [
        ("", [], "without --gpus and --gpu-type and --mem-per-gpu", 60),
    ]),
    (ask(Job(gpus_per_node=1), queue=queue(gpus_per_node=1), refuses=("gpus",)), []),
]  # fmt: skip


def test_rules_at_their_edges() -> None:
    wrong = [
        (number, found) for number, (request, expected) in enumerate(CASES) if (found := judge(request)) != expected
    ]
    assert not wrong, "\n".join(f"{CASES[number]}: {found}" for number, found in wrong)


def test_limits_are_judged_with_the_nodes_that_tasks_need() -> None:
    """Tasks without a number of nodes are spread, as schedulers do it; what a site wants said is no limit."""
    cases: list[tuple[Job, Queue, list[str]]] = [
        (Job(tasks=17), queue(cpus_per_node=8, max_nodes=3), []),
        (Job(tasks=16), queue(cpus_per_node=8, max_nodes=2), []),
        (Job(tasks=17), queue(cpus_per_node=8, max_nodes=2), ["nodes"]),
        (Job(tasks=5, cpus_per_task=3), queue(cpus_per_node=8, max_nodes=2), ["nodes"]),
        (Job(tasks=5, cpus_per_task=9), queue(cpus_per_node=8), ["cpus"]),
        (Job(tasks=17, nodes=1), queue(cpus_per_node=8), ["cpus"]),
        (Job(tasks=17, tasks_per_node=9), queue(cpus_per_node=8), ["cpus"]),
        (Job(tasks=17), queue(max_nodes=1), []),
    ]
    wrong = []
    for job, where, expected in cases:
        found = [each.limit for each in find_broken_limits(ask(job, queue=where, requires=("account", "time")))]
        if found != expected:
            wrong.append((job, where, found, expected))
    assert not wrong


HOME = {"HOME": "/home/u", "SCRATCH": "/home/u/scratch", "GROUP": "/group/g"}


def test_paths_are_hidden_and_proposed_below_scratch() -> None:
    site = Site(
        "site",
        "",
        "slurm",
        home_on_nodes=False,
        scratch="$SCRATCH",
        hidden_paths=("$GROUP", "/local/", "/old~", "$NONE"),
    )
    expected = {
        "/home/u": "/home/u", "/home/u/x": "/home/u", "/home/u/../u/x": "/home/u", "/home/us": None, "/home": None,
        "/home/u/scratch/../x": "/home/u",
        "/home/u/scratch": None, "/home/u/scratch/x": None, "/home/u/scratch2": "/home/u",
        "/group/g/x": "/group/g", "/local": "/local/", "/local/x": "/local/", "/localx": None, "/old~/x": "/old~",
        "relative": None, "docker://a/b": None, "/": None,
    }  # fmt: skip
    assert {path: find_hidden_root(path, site, HOME) for path in expected} == expected
    seen = Site("site", "", "slurm", scratch="$SCRATCH")
    assert [find_hidden_root(path, seen, HOME) for path in expected] == [None] * len(expected)
    assert find_hidden_root("/x", Site("site", "", "slurm", hidden_paths=("/",)), {}) == "/"
    assert find_hidden_root("/x", Site("site", "", "slurm", home_on_nodes=False), {}) is None
    cases: list[tuple[Job, list[str], str]] = [
        (Job(), ["/home/u/run"], "--directory /home/u/scratch/run"),
        (Job(), ["/home/u/run/../x", "/home/u/y"], "--directory /home/u/scratch/x"),
        (Job(), ["/group/g/run"], "--directory /home/u/scratch/run"),
        (Job(), ["/data/x", "/home/u"], "--directory /home/u/scratch"),
        (Job(directory="/elsewhere"), ["/home/u/run"], ""),
        (Job(image="a.sif", output="a.sif"), ["/home/u/a.sif"], "--image /home/u/scratch/a.sif"),
        *((Job(image=name), ["/home/u/run/a.sif"], "--image /home/u/scratch/run/a.sif")
          for name in ("a.sif", "./a.sif", "run/a.sif", "/home/u/run/a.sif")),
        *((Job(directory=name), ["/home/u/run"], "--directory /home/u/scratch/run")
          for name in ("/home/u/run", "run", ".", "./", "")),
        (Job(output="logs/x.out"), ["/home/u/logs/x.out"], "--output /home/u/scratch/logs/x.out"),
        (Job(image="a.sif"), ["/home/u/aa.sif"], "--directory /home/u/scratch/aa.sif"),
        (Job(directory="d", output="o", error="e"), [f"/home/u/{name}" for name in "doe"],
         "--directory /home/u/scratch/d --output /home/u/scratch/o --error /home/u/scratch/e"),
    ]  # fmt: skip
    wrong = []
    for job, paths, expected in cases:
        around = {"environ": HOME, "paths": tuple(paths)}
        request = ask(
            job, queue=queue(), around=around, home_on_nodes=False, scratch="$SCRATCH", hidden_paths=("$GROUP",)
        )
        finding = check_paths(request)
        if finding is None or show(request, finding) != ("", [], expected, 1):
            wrong.append((job, paths, finding and show(request, finding), expected))
    assert not wrong
    assert check_paths(ask(Job(), queue=queue(), around={"environ": HOME, "paths": ("/home/u",)})) is None
    nowhere = ask(Job(), queue=queue(), around={"environ": HOME, "paths": ("/home/u",)}, home_on_nodes=False)
    assert check_paths(nowhere) == UnmetRequest("compute nodes of site do not see /home/u", None, 60)
