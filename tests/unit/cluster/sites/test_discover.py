# SPDX-License-Identifier: BSD-3-Clause
"""Profiles from what schedulers print: recorded from Slurm 22.05 and Grid Engine 8.1.9, for PBS as documented."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.base.frozen import replace
from kedge.cluster.schedulers.gridengine.discover import GridEngineTexts, find_groups, parse_names, parse_settings
from kedge.cluster.schedulers.gridengine.discover import read_site as discover_gridengine
from kedge.cluster.schedulers.pbs.discover import PbsTexts
from kedge.cluster.schedulers.pbs.discover import read_site as discover_pbs
from kedge.cluster.schedulers.slurm.discover import SlurmTexts, parse_gres
from kedge.cluster.schedulers.slurm.discover import read_site as discover_slurm
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.discover import compare_sites, find_runtime_module, suggest_name
from kedge.cluster.sites.profile import SHIPPED, ProfileDirectory, load_site, make_site, parse_profile
from kedge.cluster.sites.schema import SCHEDULERS, write_profile
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY

RECORDED = REPOSITORY / "tests/golden/discover"
MEGA, HOUR, DAY = 1 << 20, 3600, 86400


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def slurm_texts() -> SlurmTexts:
    return SlurmTexts(*(recorded(f"slurm-{name}") for name in ("partitions", "nodes", "hosts", "config")))


def test_discover_slurm_reads_what_a_real_one_says() -> None:
    site = discover_slurm(slurm_texts(), "tiny")
    assert (site.title, site.scheduler, site.mpi_type) == ("tiny (Slurm 22.05.8)", "slurm", "pmix")
    assert [each.name for each in site.queues] == ["gpu", "dev", "mixed", "cpu"]  # `old` is down
    node = Queue("gpu", nodes=2, cpus_per_node=8, memory_per_node=4000 * MEGA, gpus_per_node=4, gpu_type="a100")
    gpu = replace(node, arch="arm64", is_default=True, max_time=8 * HOUR, default_time=600)
    assert site.find_queue("gpu") == gpu
    dev = replace(gpu, name="dev", is_default=False, nodes=1, max_nodes=1, max_time=1200, default_time=None)
    assert site.find_queue("dev") == dev
    node = Queue("cpu", nodes=1, cpus_per_node=32, memory_per_node=16000 * MEGA, gpus_per_node=0, arch="arm64")
    assert site.find_queue("cpu") == replace(node, max_time=7 * DAY, is_whole_node=True)


def test_discover_slurm_limits_of_partitions_users_and_qualities_of_service() -> None:
    mixed = discover_slurm(slurm_texts(), "tiny").find_queue("mixed")
    assert (mixed.cpus_per_node, mixed.gpus_per_node, mixed.gpu_type, mixed.max_time) == (32, 4, "", None)
    assert "1 × 16 CPUs and 8000 MB with 2 × v100, 2 × a100" in mixed.note
    texts = slurm_texts()
    assert discover_slurm(texts, "x").default_memory_per_cpu is None  # not all have one
    lines = [line for line in texts.partitions.splitlines() if "DefMemPerCPU=100" in line]
    assert discover_slurm(SlurmTexts("\n".join(lines)), "x").default_memory_per_cpu == 100 * MEGA
    partitions = recorded("slurm-partitions").replace(
        "PartitionName=mixed AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A",
        "PartitionName=mixed AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=gpus",
    )
    qos = "normal|||\ngpus|4-00:00:00|node=24,gres/gpu=96|gres/gpu=1\n"
    rows = "proj|mixed|10|3-00:00:00\nproj|dev||00:10:00\nproj|cpu|1|UNLIMITED\n"
    site = discover_slurm(SlurmTexts(partitions, qos=qos, associations=rows), "x")
    mixed, dev = site.find_queue("mixed"), site.find_queue("dev")
    assert dev is not None
    assert (mixed.max_time, mixed.max_nodes, mixed.max_gpus, mixed.needs_gpus) == (3 * DAY, 10, 96, True)
    assert (dev.max_time, dev.max_nodes, dev.needs_gpus) == (600, 1, False)
    assert site.account == "proj"
    site = discover_slurm(SlurmTexts(recorded("slurm-partitions"), associations="a||2|\nb||4|1-00:00:00\n"), "x")
    gpu = site.find_queue("gpu")
    assert (site.account, gpu.max_nodes, gpu.max_time) == ("", 4, 8 * HOUR)


@with_rows(
    *(("gpu:a100:4", (("a100", 4),)), ("gpu:a100:4(S:0-1)", (("a100", 4),)), ("gpu:4", (("", 4),))),
    *(("gpu:tesla:no_consume:2", (("tesla", 2),)), ("gpu", (("", 1),)), ("gpu:a100", (("a100", 1),))),
    ("gpu:a100_1g.5gb:7,gpu:a100:1,mps:400", (("a100_1g.5gb", 7), ("a100", 1))),
    *(("(null)", ()), ("", ()), ("lustre:1", ())),
)
def test_discover_slurm_reads_gpus(text: str, gpus: tuple[tuple[str, int], ...]) -> None:
    assert parse_gres(text) == gpus


def gridengine_texts() -> GridEngineTexts:
    rules = {"smp": "$pe_slots", "mpi": "$round_robin", "fill": "$fill_up", "ppn1": "1", "ppn2": "2"}
    environments = {name: f"pe_name {name}\nallocation_rule    {rule}\n" for name, rule in rules.items()}
    return GridEngineTexts(
        queues={"all.q": recorded("gridengine-queue")},
        hosts={"ge01": recorded("gridengine-host"), "ge02": recorded("gridengine-host")},
        groups={"@allhosts": "ge01 ge02\n"},
        environments={**environments, "ppn4": recorded("gridengine-environment")},
        resources=recorded("gridengine-resources"),
        loads=recorded("gridengine-loads") + "ge03 broken\n",
    )


def test_discover_gridengine_reads_what_a_real_one_says() -> None:
    site = discover_gridengine(gridengine_texts(), "cell")
    (queue,) = site.queues
    assert (queue.name, queue.nodes, queue.cpus_per_node, queue.gpus_per_node) == ("all.q", 2, 8, 4)
    assert (queue.arch, queue.max_time, queue.is_interactive) == ("arm64", None, True)
    assert queue.memory_per_node == 24064 * MEGA
    assert site.gpu_directive == "-l gpu={count}"
    assert dict(site.options) == {"smp_environment": "smp", "mpi_environment": "ppn{tasks}", "gpu_per_slot": "yes"}
    assert "rt_F" in site.notes[0]
    queue = recorded("gridengine-queue").replace("h_rt                  INFINITY", "h_rt 24:00:00,[@long=48:00:00]")
    queue = queue.replace("slots                 8", "slots 8,[ge01=16]").replace("BATCH INTERACTIVE", "BATCH")
    resources = (
        recorded("gridengine-resources")
        .replace(
            "h_vmem              h_vmem        MEMORY    <=    YES         NO ", "h_vmem h_vmem MEMORY <= YES YES "
        )
        .replace("gpu                 gpu           INT       <=    YES         YES", "gpu gpu INT <= YES JOB")
    ) + "exclusive excl BOOL EXCL YES YES 0 1000\n"
    site = discover_gridengine(GridEngineTexts({"long.q": queue}, resources=resources), "x")
    assert (site.queues[0].max_time, site.queues[0].cpus_per_node) == (48 * HOUR, 16)
    assert not site.queues[0].is_interactive
    options = dict(site.options)
    assert options["exclusive"] == "-l exclusive=true"
    assert (options["memory_resource"], options["memory_per_slot"]) == ("h_vmem", "yes")
    assert "gpu_per_slot" not in options
    texts = replace(gridengine_texts(), environments={"mpi": "allocation_rule $fill_up\n"})
    assert "options.mpi_environment" in discover_gridengine(texts, "x").notes[0]
    assert parse_names("all.q\n\nlong.q\n") == ["all.q", "long.q"]
    assert parse_names("no parallel environment defined\n") == []
    assert find_groups("hostlist @a @b-1 host3\n") == ["@a", "@b-1"]
    assert "np_load_long=" in parse_settings(recorded("gridengine-host"))["load_values"]
    assert parse_settings("a  b, \\\n   c\n# d e\n") == {"a": "b,  c"}


def test_discover_pbs_reads_what_is_documented() -> None:
    site = discover_pbs(PbsTexts(recorded("pbs-queues"), recorded("pbs-server"), recorded("pbs-nodes")), "x")
    assert site.title == "pbs1 (PBS 2022.1.6.20231025034236)"
    assert [each.name for each in site.queues] == ["rt_HF", "rt_HG", "big"]  # the others take no jobs of users
    full, shared, big = site.queues
    node = Queue("rt_HF", nodes=2, cpus_per_node=192, memory_per_node=2113409284 * 1024, gpus_per_node=8)
    assert full == replace(node, max_nodes=128, max_time=168 * HOUR, default_time=HOUR, is_whole_node=True)
    assert (shared.is_default, shared.nodes, shared.max_nodes) == (True, 1, 1)
    assert (big.nodes, big.cpus_per_node, big.gpus_per_node, big.min_nodes, big.max_gpus) == (1, 96, 0, 65, 512)


@with_rows(
    ("/apps/modulefiles:\nopenmpi/4.0.5(default)\nsingularitypro/3.9\nsingularitypro/4.1\n", "singularitypro"),
    ("tacc-apptainer/1.3.3\ntacc-singularity/3.7\n", "tacc-apptainer"),
    *(("apptainer\n", "apptainer"), ("tools/apptainer/1.2(default)\n", "tools/apptainer")),
    *(("bash: module: command not found\n", ""), ("", ""), ("singularity-python-tools/1.0\n", "")),
)
def test_discover_modules_finds_the_runtime(text: str, module: str) -> None:
    assert find_runtime_module(text) == module


@given(st.text(alphabet="gpua100:,()=|%\n -.0123456789NodePartitionNameQueue\t[]", max_size=300))
def test_discover_nothing_that_is_printed_breaks_it(text: str) -> None:
    discover_slurm(SlurmTexts(text, text, text, text, text, text), "x")
    discover_gridengine(GridEngineTexts({"q": text}, {"h": text}, {"@g": text}, {"p": text}, text, text), "x")
    discover_pbs(PbsTexts(text, text, text), "x")
    find_runtime_module(text)


LINES = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" "), max_size=20
)
TEXTS = st.lists(LINES, max_size=3).map(tuple)
TABLES = st.dictionaries(LINES.filter(bool), LINES, max_size=3).map(lambda each: tuple(each.items()))

QUEUES = st.builds(
    Queue,
    name=LINES.filter(bool),
    note=LINES,
    gpus_per_node=st.none() | st.integers(0, 100),
    max_time=st.none() | st.integers(1, 10**7),
    memory_per_node=st.none() | st.integers(1, 1 << 50),
    is_interactive=st.booleans(),
)
SITES = st.builds(
    Site,
    name=st.just("x"),
    title=LINES.filter(bool),
    scheduler=st.sampled_from(SCHEDULERS),
    **dict.fromkeys(("notes", "setup"), TEXTS),
    **dict.fromkeys(("environment", "options"), TABLES),
    gpu_directive=st.none() | LINES,
    home_on_nodes=st.booleans(),
    internet_on_nodes=st.none() | st.booleans(),
    default_memory_per_cpu=st.none() | st.integers(1, 1 << 50),
    queues=st.lists(QUEUES, max_size=3, unique_by=lambda each: each.name).map(tuple),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(SITES)
def test_discover_profiles_are_read_back_as_they_were_written(site: Site) -> None:
    assert make_site(parse_profile(write_profile(site, opening=("a",)), "x"), "x", "") == site


@each_row("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_discover_shipped_profiles_are_read_back_too(path) -> None:
    site = load_site(path.stem, (ProfileDirectory(SHIPPED, "shipped"),))
    assert make_site(parse_profile(write_profile(site), "x"), site.name, site.origin) == site


def test_discover_differences_are_named_queue_by_queue() -> None:
    live = discover_slurm(slurm_texts(), "tiny")
    assert compare_sites(live, live) == []
    gpu, dev, *rest = live.queues
    changed = replace(gpu, max_time=24 * HOUR, gpus_per_node=8, memory_per_node=4100 * MEGA)
    queues = (changed, replace(dev, max_time=None), *rest[1:], Queue("fast"), Queue("gone", is_retired=True))
    assert [str(each) for each in compare_sites(replace(live, queues=queues), live)] == [
        "gpu: gpus_per_node is 8 in the profile, 4 in the scheduler",
        "gpu: max_time is 1d in the profile, 8h in the scheduler",
        "fast: in the profile, not in the scheduler",
        "mixed: in the scheduler, not in the profile",
    ]
    assert [each.key for each in compare_sites(replace(live, scheduler="pbs"), live)] == ["scheduler"]
    assert compare_sites(replace(live, queues=()), live) == []


@with_rows(
    (("login1", "login1.alpha.hpc.tu-dresden.de"), "alpha"),
    *((("vm",), "vm"), (("head01",), "head"), (("Ünï",), "-n-"), ((), "site")),
)
def test_discover_names_the_site_after_its_machines(names: tuple[str, ...], name: str) -> None:
    assert suggest_name(names) == name
