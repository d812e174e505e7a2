# SPDX-License-Identifier: BSD-3-Clause
"""Profiles: those that come with kedge say what the tutorials and the sites' documents say; others are checked."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path

import pytest

from kedge.base.frozen import list_names
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites import profile
from kedge.cluster.sites.schema import QUEUE_KEYS, SITE_KEYS
from kedge.errors import SiteProblem
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY

NAMES = sorted(path.stem for path in profile.SHIPPED.glob("*.toml"))
FOLDERS = (profile.ProfileDirectory(profile.SHIPPED, "shipped"),)
EXPECTED = (
    "abci2 abci3 generic-gridengine generic-pbs generic-slurm local nvidia nvidia-pyxis sdumont sdumont-base sdumont2nd"
    " tacc-frontera tacc-lonestar6 tacc-vista zih-alpha zih-capella zih-taurus"
)
HOUR, DAY, GIGA = 3600, 86400, 1 << 30


def load(name: str) -> Site:
    return profile.load_site(name, FOLDERS)


def queue(site: str, name: str) -> Queue:
    found = load(site).find_queue(name)
    assert found is not None
    return found


def write(folder: Path, name: str, text: str) -> profile.ProfileDirectory:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text)
    return profile.ProfileDirectory(folder, "user")


def test_profiles_shipped_are_these_and_nobody_changes_them() -> None:
    assert sorted(EXPECTED.split()) == NAMES
    assert profile.list_signs(FOLDERS) == profile.list_signs(FOLDERS)
    assert load("tacc-vista") == load("tacc-vista")


@each_row("name", NAMES)
def test_profiles_shipped_are_known_without_toml(name: str) -> None:
    text = (profile.SHIPPED / f"{name}.toml").read_text()
    assert profile.find_known_table(text) == tomllib.loads(text), "run scripts/make-tables"


def test_profiles_that_were_changed_are_read_anew(tmp_path: Path) -> None:
    text = (profile.SHIPPED / "zih-capella.toml").read_text()
    assert profile.find_known_table(text) is not None
    changed = text.replace("capella", "capello")  # the same size
    assert profile.find_known_table(changed) is None
    assert profile.parse_toml(changed) == tomllib.loads(changed) != tomllib.loads(text)
    site = profile.load_site("mine", (write(tmp_path, "mine", changed.replace("title = ", "title = 'x' # ")), *FOLDERS))
    assert site.title == "x"


@each_row("name", NAMES)
def test_profiles_shipped_load_and_say_where_their_figures_are_from(name: str) -> None:
    site = load(name)
    assert site.title
    if site.queues:
        assert site.sources
        assert all(re.search(r"\b20[12]\d\b", each) for each in site.sources)
    assert sum(each.is_default for each in site.queues) <= 1
    assert not site.interactive_queue or site.find_queue(site.interactive_queue)
    text = (profile.SHIPPED / f"{name}.toml").read_text()
    assert text.startswith("# SPDX-License-Identifier: BSD-3-Clause")
    assert max(map(len, text.splitlines())) <= 140


@each_row("name", NAMES)
def test_profiles_signs_are_those_of_the_whole_profile(name: str) -> None:
    sign = next(each for each in profile.list_signs(FOLDERS) if each.name == name)
    assert (sign.hostnames, sign.variables) == (load(name).hostnames, load(name).variables)


@each_row("name", ["zih-taurus", "sdumont-base", "abci2"])
def test_profiles_of_clusters_that_are_gone_say_so(name: str) -> None:
    assert profile.is_retired(load(name))
    assert re.search(r"switched off|replaced|ended", load(name).notes[0])


MODULES = "source /etc/profile.d/modules.sh"
ZIH = {"gpu_directive": "--gres=gpu:{count}", "default_memory_per_cpu": 300 << 20, "pull": "in-job"}
SDUMONT = {"home_on_nodes": False, "hidden_paths": ("/prj",), "scratch": "$SCRATCH", "pull": "in-job"}
TACC = {"gpu_directive": "", "memory_directive": "", "launcher": "ibrun", "interactive": "idev"}
TACC["runtime_modules"] = ("tacc-apptainer",)


@with_rows(
    *((name, ZIH) for name in ("zih-taurus", "zih-alpha")),
    ("sdumont", {**SDUMONT, "requires": ("time",), "refuses": ("exclusive",)}),
    ("sdumont2nd", {"requires": ("account",)}),
    ("abci2", {"scheduler": "gridengine", "account_option": "-g", "account_on_command_line": True}),
    ("abci2", {"launcher": "mpirun", "interactive": "qrsh", "node_directory": "$SGE_LOCALDIR"}),
    ("abci2", {"module_setup": (MODULES,), "runtime_modules": ("singularitypro",)}),
    ("abci3", {"scheduler": "pbs", "account_option": "-P", "account_on_command_line": False}),
    *((name, TACC) for name in ("tacc-frontera", "tacc-lonestar6", "tacc-vista")),
    ("nvidia", {"mpi_type": "pmi2", "interactive_queue": "interactive", "runtime": ""}),
    ("nvidia-pyxis", {"runtime": "pyxis", "queues": load("nvidia").queues}),
)
def test_profiles_say_of_sites_what_their_documents_say(site: str, figures: dict[str, object]) -> None:
    assert {name: getattr(load(site), name) for name in figures} == figures


ALPHA = {"gpus_per_node": 8, "cpus_per_node": 96, "max_time": 7 * DAY, "gpu": "A100-SXM4-40GB"}


@with_rows(
    ("zih-taurus", "alpha", {**ALPHA, "nodes": 34}),
    ("zih-alpha", "alpha", {**ALPHA, "nodes": 37}),
    ("zih-capella", "capella", {"gpus_per_node": 4}),
    *(("sdumont", f"sequana_{name}_dev", {"max_time": HOUR // 3}) for name in ("gpu", "cpu")),
    *(("sdumont", f"sequana_{name}", {"max_time": 96 * HOUR}) for name in ("gpu", "cpu")),
    ("sdumont", "sequana_gpu_long", {"max_time": 744 * HOUR}),
    ("sdumont", "sequana_gpu", {"gpus_per_node": 4}),
    ("sdumont", "gdl", {"gpus_per_node": 8, "max_time": 48 * HOUR}),
    ("sdumont-base", "nvidia_small", {"gpus_per_node": 2}),
    ("sdumont2nd", "lncc-gh200", {"arch": "arm64"}),
    ("tacc-frontera", "rtx", {"gpus_per_node": 4, "max_time": 48 * HOUR, "gpu": "Quadro-RTX-5000"}),
    ("tacc-lonestar6", "gpu-a100", {"gpus_per_node": 3}),
    ("tacc-lonestar6", "gpu-a100-dev", {"max_time": 2 * HOUR}),
    ("nvidia", "interactive", {"gpu": "L40S", "driver": "565.57.01"}),  # so says nvidia-smi in the tutorial
    ("abci3", "rt_HF", {"cpus_per_node": 192, "gpus_per_node": 8, "max_nodes": 128}),
    ("abci3", "rt_HG", {"cpus_per_node": 16, "gpus_per_node": 1, "max_nodes": 1}),
    ("abci3", "rt_HC", {"cpus_per_node": 32, "gpus_per_node": 0, "max_nodes": 1}),
)
def test_profiles_say_of_queues_what_their_documents_say(site: str, name: str, figures: dict[str, object]) -> None:
    assert {each: getattr(queue(site, name), each) for each in figures} == figures


@with_rows(
    ("rt_F", (40, 4, 360), (512, 32), 168),
    *(("rt_G.large", (20, 4, 240), (1, 1), 168), ("rt_G.small", (5, 1, 60), (1, 1), 72)),
    *(("rt_C.large", (20, 0, 120), (1, 1), 72), ("rt_C.small", (5, 0, 30), (1, 1), 72)),
    *(("rt_AF", (72, 8, 480), (64, 4), 72), ("rt_AG.small", (9, 1, 60), (1, 1), 72)),
)
def test_profiles_abci2_resource_types(name, size, nodes, hours) -> None:
    found = queue("abci2", name)
    assert (found.cpus_per_node, found.gpus_per_node, (found.memory_per_node or 0) // GIGA) == size
    assert (found.max_nodes, found.max_interactive_nodes) == nodes
    assert (found.max_time, found.max_interactive_time) == (hours * HOUR, 12 * HOUR)
    assert (found.default_time, found.resource) == (HOUR, name)


def test_profiles_say_what_holds_for_all_queues_of_a_site() -> None:
    # the tutorial's own request for eight GPUs has to fit
    assert (queue("zih-taurus", "alpha").memory_per_node or 0) >= 500000 << 20
    assert all(each.needs_gpus == bool(each.gpus_per_node) for each in load("sdumont").queues)
    assert {each.name for each in load("sdumont-base").queues} >= {"nvidia_small", "nvidia_dev", "nvidia_long"}
    assert [each.name for each in load("abci3").queues] == ["rt_HF", "rt_HG", "rt_HC"]
    assert any("OPAL_PREFIX" in note for note in load("abci3").notes)
    assert {each.name for each in load("nvidia").queues} == {"gpu", "interactive"}
    assert all(each.arch == "arm64" for each in load("tacc-vista").queues)
    for name in ("tacc-frontera", "tacc-lonestar6", "tacc-vista"):
        site = load(name)
        assert (set(site.requires) >= {"time", "nodes", "tasks"}, set(site.refuses) >= {"memory", "gpus"}) == (
            True,
            True,
        )
        assert ("arrays" in site.refuses) == (name == "tacc-frontera")
        assert all(each.is_whole_node for each in site.queues)


def test_profiles_keys_are_the_fields_of_the_model_and_explained() -> None:
    assert set(SITE_KEYS) | {"queues", "name", "origin"} == set(list_names(Site))
    assert set(QUEUE_KEYS) == set(list_names(Queue))
    guide = (REPOSITORY / "docs/guides/sites.md").read_text().partition("## Keys of a profile")[2]
    explained = set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE))
    assert explained == set(SITE_KEYS) | set(QUEUE_KEYS) | {"inherits"}


def test_profiles_the_users_come_first(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "KEDGE_SITES": f"{tmp_path}/shared:relative"}
    folders = profile.find_folders(environ)
    assert [each.origin for each in folders] == ["user", "site", "site", "shipped"]
    write(tmp_path / "shared", "mine", 'title = "shared"\nscheduler = "slurm"\n')
    assert profile.load_site("mine", folders).title == "shared"
    write(tmp_path / ".config/kedge/sites", "mine", 'title = "own"\nscheduler = "slurm"\n')
    assert profile.load_site("mine", folders).title == "own"
    summary = next(each for each in profile.list_sites(folders) if each.name == "mine")
    assert (summary.origin, summary.title) == ("user", "own")


def test_profiles_inherit_and_may_refine_what_they_hide(tmp_path: Path) -> None:
    own = write(tmp_path, "zih-alpha", 'inherits = "zih-alpha"\naccount = "p_x"\n[environment]\nA = "1"\n')
    write(tmp_path, "deeper", 'inherits = "zih-alpha"\ntitle = "Deeper"\n[environment]\nB = "2"\n')
    folders = (own, *FOLDERS)
    site = profile.load_site("zih-alpha", folders)
    assert (site.account, site.queues) == ("p_x", load("zih-alpha").queues)
    assert profile.load_site("deeper", folders).environment == (("A", "1"), ("B", "2"))
    sign = next(each for each in profile.list_signs(folders) if each.name == "deeper")
    assert sign.hostnames == load("zih-alpha").hostnames
    write(tmp_path, "here", 'inherits = "generic-slurm"\ntitle = "Here"\n')
    assert profile.load_site(f"{tmp_path}/here.toml", FOLDERS).name == "here"


def test_profiles_that_inherit_in_a_circle_are_refused(tmp_path: Path) -> None:
    own = write(tmp_path, "a", 'inherits = "b"\n')
    write(tmp_path, "b", 'inherits = "a"\n')
    with pytest.raises(SiteProblem, match="forms a cycle"):
        profile.load_site("a", (own,))
    profile.list_signs((own,))
    write(tmp_path, "c", 'inherits = "gone"\n')
    with pytest.raises(SiteProblem, match="no such profile exists"):
        profile.load_site("c", (own,))
    write(tmp_path, "itself", 'inherits = "itself"\n')
    with pytest.raises(SiteProblem, match="no such profile exists"):
        profile.load_site("itself", (own,))


@with_rows(
    ('title = "x"\nschedular = "slurm"\n', 2, "unknown key"),
    ('title = "x"\nscheduler = "slrm"\n', 2, "'slrm' is not one of: slurm"),
    ('title = 4\nscheduler = "slurm"\n', 1, "it must be one line of text"),
    ('title = "x"\nrequires = ["acount"]\n', 2, "'acount' is not one of"),
    ('title = "x"\nrequires = "account"\n', 2, "it must be a list"),
    ('title = "x"\nhostnames = ["a["]\n', 2, "not a regular expression"),
    ('title = "x"\nhome_on_nodes = "no"\n', 2, "it must be true or false"),
    ('title = "x"\n\n[environment]\nA = 1\n', 3, "'A' in it must be one line of text"),
    ('title = "x"\n[[queues]]\nname = "a"\n[[queues]]\nname = "b"\nmax_time = 20\n', 6, "it must be a time"),
    ('title = "x"\n[[queues]]\nname = "a"\nmemory_per_node = "lots"\n', 4, "it must be a size"),
    ('title = "x"\n[[queues]]\nname = "a"\ngpus_per_node = -1\n', 4, "it must be a whole number"),
    ('title = "x"\n[[queues]]\nname = "a"\ngpu_per_node = 1\n', 4, "unknown key"),
    ('title = "x"\n[[queues]]\nname = "a"\ndriver = "new"\n', 4, "it must be the version of a driver"),
    ('title = "x"\n[[queues]]\nname = "a"\ndriver = 535\n', 4, "it must be one line of text"),
    ('title = "x"\n[[queues]]\ntitle = "a"\n', 2, "a queue needs a name"),
    ('title = "x"\nqueues = 3\n', 2, "begins with the line"),
    ('title = "x"\ninherits = "../../etc/passwd"\n', 2, "it must be the name of a profile"),
    ('title = "x\\ny"\n', 1, "one line of text"),
)
def test_profiles_errors_name_file_line_and_key(text: str, line: int, said: str) -> None:
    with pytest.raises(SiteProblem) as caught:
        profile.parse_profile(text, "my.toml")
    assert caught.value.message.startswith(f"my.toml line {line}: ")
    assert said in caught.value.message
    assert caught.value.context["key"]


def test_profiles_errors_propose_the_nearest() -> None:
    with pytest.raises(SiteProblem) as caught:
        profile.parse_profile('title = "x"\n[[queues]]\nname = "a"\ngpu_per_node = 1\n', "my.toml")
    assert caught.value.hint == "did you mean 'gpus_per_node'?"
    with pytest.raises(SiteProblem) as caught:
        profile.load_site("zih-alpah", FOLDERS)
    assert caught.value.hint == "did you mean 'zih-alpha'?"


@each_row(
    ("data", "said"),
    [
        *((b"title = ", "is not TOML"), (b"\xff\xfe", "is not UTF-8")),
        *((b"title = 'x'\n" + b"#" * (1 << 20), "too large"), (b"x = " + b"[" * 100000, "is not TOML")),
    ],
)
def test_profiles_that_are_no_profiles_are_refused(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "bad.toml").write_bytes(data)
    with pytest.raises(SiteProblem, match=said):
        profile.read_table(tmp_path / "bad.toml")
    folder = profile.ProfileDirectory(tmp_path, "user")
    assert profile.list_signs((folder,))[0].hostnames == ()
    assert profile.list_sites((folder,))[0].problem


def test_profiles_need_a_title_and_others_that_are_bad_do_not_matter(tmp_path: Path) -> None:
    own = write(tmp_path, "a", 'title = "x"\n')
    with pytest.raises(SiteProblem, match="a profile needs 'scheduler'"):
        profile.load_site("a", (own,))
    write(tmp_path, "b", 'title = "x"\nscheduler = "slurm"\n[[queues]]\nname = "q"\n[[queues]]\nname = "q"\n')
    with pytest.raises(SiteProblem, match="two queues are called 'q'"):
        profile.load_site("b", (own,))
    hopeless = profile.ProfileDirectory(Path("/" + "x" * 5000), "user")  # fails for root, too
    assert profile.load_site("nvidia", (hopeless, *FOLDERS)) == load("nvidia")
    assert len(profile.list_sites((hopeless, *FOLDERS))) == len(NAMES)
    assert len(profile.list_signs((hopeless, *FOLDERS))) == len(NAMES)
    own = write(tmp_path, "good", 'title = "x"\nscheduler = "slurm"\n')
    write(tmp_path, "bad", "this is not TOML")
    assert profile.load_site("good", (own,)).title == "x"


@each_row("name", ["", "..", "a b", "-x", "x" * 65, "\n"])
def test_profiles_names_are_names(name: str) -> None:
    with pytest.raises(SiteProblem, match="is not a valid site name"):
        profile.load_site(name, FOLDERS)


def test_profiles_are_found_quickly() -> None:
    profile.list_signs(FOLDERS)
    best = min(_time_signs() for _ in range(5))
    assert best < 0.1


def _time_signs() -> float:
    begin = time.process_time()
    profile.list_signs(FOLDERS)
    load("tacc-frontera")
    return time.process_time() - begin
