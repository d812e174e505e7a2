# SPDX-License-Identifier: BSD-3-Clause
"""kedge.toml: what it says, what it refuses and where, and that what kedge writes is read back as the same jobs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base.toml_text import find_lines
from kedge.cluster.job import Dependency, DependencyKind, Job, JobArray, Parallel
from kedge.cluster.job_fields import BY_KEY
from kedge.cluster.job_rules import find_problems
from kedge.errors import FileProblem, InvalidJob
from kedge.jobs.description import (
    FILE_LIMIT,
    Description,
    find_description,
    parse_description,
    read_description,
    write_description,
)
from kedge.jobs.encoding import VERSION, decode_job, encode_job
from tests.builders.rows import each_row

PATH = Path("kedge.toml")
WHOLE = """\
site = "tacc-vista"

[job]
account = "ABC123"
image = "docker://nvcr.io/nvidia/pytorch:25.01-py3"
binds = ["data:/data:ro"]
environment = { OMP_NUM_THREADS = 8 }
memory = "64G"
setup = '''
module purge
[jobs.not-a-table]
'''

[jobs.train]  # the first
command = "python train.py --title 'a b'"
nodes = 2
gpus = "a100:4"
time = 02:00:00
parallel = "torchrun"
environment.SEED = 1.5

[jobs.eval]
name = "Evaluation of it all"
command = ["python", "eval.py", 3]
after = ["train", "afterany:17"]
memory_per_cpu = "2G"
array = "0-9%2"
binds = ["more"]
modules = []
"""


def parse(text: str) -> Description:
    return parse_description(text, PATH)


def refuse(text: str) -> InvalidJob:
    with pytest.raises(InvalidJob) as caught:
        parse(text)
    return caught.value


def test_description_reads_jobs_and_what_they_share() -> None:
    found = parse(WHOLE)
    assert (found.site, found.names, found.folder) == ("tacc-vista", ("train", "eval"), Path())
    train, evaluation = found.job("train"), found.job("eval")
    assert train == Job(
        name="train", account="ABC123", image="docker://nvcr.io/nvidia/pytorch:25.01-py3", binds=("data:/data:ro",),
        environment=(("OMP_NUM_THREADS", "8"), ("SEED", "1.5")), memory=64 << 30,
        setup=("module purge", "[jobs.not-a-table]"), command=("python", "train.py", "--title", "a b"), nodes=2,
        gpus_per_node=4, gpu_type="a100", time=7200, parallel=Parallel.TORCHRUN,
    )  # fmt: skip
    assert evaluation.name == "Evaluation of it all"
    assert evaluation.command == ("python", "eval.py", "3")
    assert evaluation.binds == ("data:/data:ro", "more")
    assert (evaluation.memory, evaluation.memory_per_cpu) == (None, 2 << 30)
    assert evaluation.dependencies == (
        Dependency(DependencyKind.AFTER_OK, "train"),
        Dependency(DependencyKind.AFTER_ANY, "17"),
    )


def test_description_of_one_job_needs_no_name() -> None:
    found = parse('[job]\nname = "a b"\nimage = "x.sif"\n')
    assert found.names == ("a b",)
    assert found.job().image == "x.sif"
    assert parse('[jobs.train]\nimage = "x.sif"\n').job().name == "train"
    assert parse('[job]\nimage = "x.sif"\n').job().name == "kedge"
    description = parse('[job]\nimage = "x"\npartition = "gpu"\n[jobs.a]\n[jobs.b]\nqueue = "long"\n')
    assert [description.job(name).queue for name in ("a", "b")] == ["gpu", "long"]
    text = '[job]\nimage = "x"\nqueue = "a"\ngpus = "a100:4"\nmodules = ["m"]\n'
    found = parse(f'{text}[jobs.one]\nqueue = ""\ngpus = 0\nmodules = []\n[jobs.two]\ngpu_type = "h100"\n')
    assert found.job("one") == Job(name="one", image="x")
    assert found.job("two").gpu_type == "h100"


def test_description_orders_jobs_behind_what_they_wait_for() -> None:
    waits = {"d": ["b", "c"], "b": ["a"], "c": ["a", "12"], "a": [], "e": []}
    found = parse(
        "".join(f'[jobs.{name}]\nimage = "x"\nafter = {json.dumps(after)}\n' for name, after in waits.items())
    )
    assert found.order() == ("a", "b", "c", "d", "e")
    assert found.order(["c"]) == ("a", "c")
    assert found.order(["e", "b"]) == ("e", "a", "b")
    assert found.needs("c") == ("a",)
    with pytest.raises(InvalidJob, match="no job 'f'"):
        found.order(["f"])


def test_description_names_what_there_is() -> None:
    found = parse(WHOLE)
    with pytest.raises(InvalidJob, match="no job 'trian'") as caught:
        found.job("trian")
    assert caught.value.hint == "did you mean 'train'?"
    with pytest.raises(InvalidJob, match="several jobs: train, eval"):
        found.job()
    problem = refuse('[jobs.a]\nimage = "x"\ntime = 90')
    assert problem.context == {"file": "kedge.toml", "line": "3", "table": "jobs.a", "key": "time"}


@each_row(("text", "message", "hint"), [
    ('[job]\nimage = "x"\ntim = "2h"', "kedge.toml line 3: [job] tim: unknown key", "did you mean 'time'?"),
    ("[jobs.a]\n\nntasks = 2", "kedge.toml line 3: [jobs.a] ntasks: unknown key", "it is called 'tasks'"),
    ("[jobs.a]\ntasks-per-node = 2", "line 2: [jobs.a] tasks-per-node", "it is called 'tasks_per_node'"),
    ("[jobs.a]\nxyzzy = 2", "line 2: [jobs.a] xyzzy: unknown key", "the keys are: name, image"),
    ('[job]\nimage = "x"\ntime = 90', "line 3: [job] time: '90' has no unit", "90m"),
    ('[job]\nimage = "x"\ntime = 2h', "is not TOML", 'text stands in quotes: time = "2h"'),
    ('[job\nimage = "x"', "is not TOML", "a job looks like"),
    ('image = "x"', "line 1: image: unknown key", "[job] or [jobs.NAME]"),
    ('sit = "x"\n[job]\nimage = "x"', "line 1: sit: unknown key", "did you mean 'site'?"),
    ("site = 3", "line 1: site: it must be the name of a site", "kedge site list"),
    ("", "describes no job", "[jobs.train]"),
    ('site = "x"', "describes no job", "[jobs.train]"),
    ('[jobs.a]\ntime = "2h"', "line 1: [jobs.a] command: neither an image nor a command", "give an image"),
    ('[jobs]\nimage = "x"', "line 2: [jobs.image]: it must be a table, not text", "[jobs.NAME]"),
    ('[[jobs]]\nimage = "x"', "line 1: [jobs]: it must be a table", "[jobs.NAME]"),
    ("job = 3", "line 1: [job]: it must be a table, not a whole number", "[job]"),
    ('[job.train]\nimage = "x"', "line 1: [job] train: unknown key", "[jobs.train]"),
    ('[jobs.12]\nimage = "x"', "line 1: [jobs.12]: '12' cannot be the name", "not digits alone"),
    ('[jobs."a b"]\nimage = "x"', """line 1: [jobs."a b"]: 'a b' cannot be the name""", "letters"),
    ('[job]\nname = "x"\n[jobs.a]\nimage = "x"', "line 2: [job] name: [job] is what several", "[jobs.NAME]"),
    ('[jobs.a]\nimage = "x"\n[jobs.a.environment]\nB = "1"\n"C-D" = "2"', "line 5: [jobs.a] environment: 'C-D'", "_"),
    ('[jobs.a]\nimage = "x"\nnodes = 0', "line 3: [jobs.a] nodes: it cannot be 0", "from 1"),
    ('[jobs.a]\nimage = "x\\u0000"', "line 2: [jobs.a] image: it contains a NUL byte", "remove it"),
    ('[jobs.a]\nimage = "x"\nmemory = "1G"\nmemory_per_cpu = "1G"', "line 4: [jobs.a] memory_per_cpu:", "keep one"),
    ('[job]\ngpu_type = "a"\n[jobs.a]\nimage = "x"', "line 2: [job] gpu_type: the number of", "GPUs"),
    ('[jobs.a]\nimage = "x"\nafter = "a"', "line 3: [jobs.a] after: these jobs wait for each other: a -> a", "drop"),
    ('[jobs.a]\nimage = "x"\nafter = ["c"]\n[jobs.b]\nimage = "x"\nafter = ["a"]\n[jobs.c]\nimage = "x"\nafter = "b"',
     "line 3: [jobs.a] after: these jobs wait for each other: a -> c -> b -> a", "drop one 'after'"),
])  # fmt: skip
def test_description_refusal_names_line_table_key_and_remedy(text: str, message: str, hint: str) -> None:
    problem = refuse(text)
    assert message in problem.message
    assert hint in str(problem.hint)
    assert problem.context["file"] == "kedge.toml"


@each_row("key", sorted(BY_KEY))
def test_description_every_key_refuses_what_it_cannot_be(key: str) -> None:
    wrong = "{ a-b = 1 }" if key == "environment" else "{ a = 1 }"
    problem = refuse(f"[jobs.a]\n{key} = {wrong}")
    assert problem.message.startswith(f"kedge.toml line 2: [jobs.a] {key}: ")


@each_row("text", [
    "x = " + "[" * 50_000, "x = " + "{a=" * 30_000, "a" + ".a" * 60_000 + " = 1", "x = {a" + ".a" * 60_000 + " = 1}",
    "[job]\n" + "a " * 60_000 + "= 1", "x = " + "1" * 100_000, '"\\"' * 50_000, "'''" * 40_001,
    'x = "' + '\\"' * 50_000, "[]" * 60_000, "\ud800",
], ids=range(11))  # fmt: skip
def test_description_hostile_text_is_refused_quickly(text: str) -> None:
    began = time.process_time()
    assert len(refuse(text).message) < 400
    assert time.process_time() - began < 10


def test_description_files_are_found_and_their_problems_clear(tmp_path: Path) -> None:
    file = tmp_path / "kedge.toml"
    with pytest.raises(FileProblem, match="No such file"):
        read_description(file)
    with pytest.raises(FileProblem, match="directory"):
        read_description(tmp_path)
    file.write_bytes(b'[job]\nimage = "\xff"\n')
    with pytest.raises(InvalidJob, match=r"kedge.toml line 2: it is not UTF-8"):
        read_description(file)
    file.write_bytes(b"#" * (FILE_LIMIT + 1))
    with pytest.raises(InvalidJob, match="too large"):
        read_description(file)
    with pytest.raises(InvalidJob, match="too large"):
        read_description("/dev/zero")
    file.write_bytes(b'\xef\xbb\xbf[job]\r\nimage = "x"\r\n')  # as editors of Windows save it
    assert read_description(file).job().image == "x"
    assert read_description(file).folder == tmp_path
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "kedge.toml").write_text('[job]\nimage = "x"\n')
    assert find_description(tmp_path) == tmp_path / "kedge.toml"
    with pytest.raises(InvalidJob, match=r"no kedge\.toml in") as caught:
        find_description(below)
    assert str(below) in caught.value.message


def test_lines_are_those_of_the_statements() -> None:
    text = '# [x]\na = "b = 1" # c\nl = [\n  "[y]",\n  1.5,\n]\n[t . "u v"]\r\n'
    text += 'w.x = """\n[z]\n"""\n"" = 1\n[[m]]\nn = {o = 1}'
    assert find_lines(text) == {
        ("a",): 2, ("l",): 3, ("t", "u v"): 7, ("t", "u v", "w"): 8, ("t", "u v", "w", "x"): 8, ("t", "u v", ""): 11,
        ("m",): 12, ("m", "n"): 13,
    }  # fmt: skip


HOSTILE = [
    '"', "'", "\\", "\n", "\t", "$(id)", "`id`", "${x}", "#", "=", "é", "日本", "😀", "\x7f", "\x01", "\u2028", "]",
    " ",
]  # fmt: skip
TEXT = st.one_of(
    st.lists(st.sampled_from(HOSTILE), max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
FILLED = LINE.filter(lambda text: bool(text.strip()))
WAITED = FILLED.map(str.strip).filter(lambda text: not set(text) & set(",:"))
COUNT = st.none() | st.integers(1, 1_000_000)
AMOUNT = st.none() | st.integers(1, 1 << 60)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
INDICES = st.sampled_from(["0-9%2", "1,3,5-9:2", "7", "0-100:10"]).map(JobArray.parse)


def lists(texts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(texts, max_size=4).map(tuple)


JOBS = st.builds(
    Job,
    name=TEXT.filter(lambda text: bool(text.strip())),
    environment=st.dictionaries(NAMES, TEXT, max_size=3).map(lambda found: tuple(found.items())),
    parallel=st.sampled_from([Parallel.SINGLE, Parallel.TASKS, Parallel.MPI]),
    dependencies=st.lists(st.builds(Dependency, st.sampled_from(DependencyKind), WAITED), max_size=3).map(tuple),
    runtime=st.sampled_from(["", "kedge", "pyxis"]),
    launcher=st.sampled_from(["", "srun", "none"]),
    mail_on=st.sampled_from([(), ("end",), ("fail", "begin")]),
    output=st.sampled_from(["", "{name}-{id}.out", "a b/'{index}'.log"]),
    pull=st.sampled_from(["", "now", "in-job"]),
    stage=st.sampled_from(["", "auto", "always", "never"]),
    image=FILLED,
    nv=st.none() | st.booleans(),
    time=st.none() | st.integers(1, 10**8),
    array=st.none() | INDICES,
    **dict.fromkeys(("container_options", "binds", "modules", "directives", "drop_directives"), lists(FILLED)),
    **dict.fromkeys(("command", "setup"), lists(TEXT)),
    **dict.fromkeys(("directory", "account", "queue", "qos", "reservation", "constraint", "begin", "mail"), LINE),
    **dict.fromkeys(("nodes", "cpus_per_task", "gpus_per_node"), COUNT),
    **dict.fromkeys(("exclusive", "broadcast"), st.booleans()),
    memory=AMOUNT,
).filter(lambda job: not list(find_problems(job)))


@settings(deadline=None, max_examples=40)
@given(JOBS)
def test_description_written_is_read_back(job: Job) -> None:
    found = parse(write_description([job], site="s"))
    assert found.site == "s"
    assert found.job() == job


@settings(deadline=None, max_examples=40)
@given(JOBS)
def test_encoding_survives_json(job: Job) -> None:
    assert decode_job(json.loads(json.dumps(encode_job(job)))) == job


def test_description_written_keeps_jobs_apart() -> None:
    waits = tuple(Dependency(DependencyKind.AFTER_OK, name) for name in ("a b!", "a-b", "12"))
    jobs = [
        Job(name="a b!", image="x"),
        Job(name="a b?", image="y"),
        Job(name="12", image="z"),
        Job(name="last", image="z", dependencies=waits),
    ]
    text = write_description(jobs)
    found = parse(text)
    assert [job.name for job in found.jobs.values()] == ["a b!", "a b?", "12", "last"]
    assert found.names == ("a-b-2", "a-b-3", "job-12", "last")  # a-b is a job elsewhere, and stays one
    assert [each.job for each in found.job("last").dependencies] == ["a-b-2", "a-b", "job-12"]
    assert found.needs("last") == ("a-b-2", "job-12")
    job = Job(name="train", image="x", dependencies=(Dependency(DependencyKind.AFTER_OK, "train"),))
    found = parse(write_description([job]))
    assert found.names == ("train-2",)
    assert found.job() == job


def test_description_written_is_plain() -> None:
    job = Job(name="train", image="x.sif", command=("a",) * 40, time=5400, memory=64 << 30, exclusive=True, nv=False)
    text = write_description([job])
    assert 'time = "1h30m"\n' in text
    assert 'memory = "64G"\n' in text
    assert "nv = false\n" in text
    assert max(map(len, text.splitlines())) <= 120
    assert parse(text).job() == job
    with pytest.raises(InvalidJob, match="bytes in it that are no text"):
        write_description([Job(image="x", command=("\udcff",))])
    with pytest.raises(InvalidJob, match="neither an image nor a command"):
        write_description([Job()])


def test_encoding_keeps_what_it_does_not_know() -> None:
    document = encode_job(Job(name="a", image="x", dependencies=(Dependency(DependencyKind.AFTER, "1", "/r"),)))
    assert document["version"] == VERSION
    newer = {**document, "version": 99, "colour": "blue", "nodes": None, "dependencies": document["dependencies"]}
    assert decode_job(newer) == decode_job(document)
    assert decode_job(document).dependencies[0].record == "/r"
    assert decode_job({}) == Job()
    job = Job(image="x", command=("\udcff",))
    assert decode_job(json.loads(json.dumps(encode_job(job)))) == job


@each_row(("name", "value"), [
    ("nodes", "2"), ("nodes", True), ("command", "ls"), ("command", [1]), ("environment", [["A"]]),
    ("environment", {"A": "1"}), ("parallel", "odd"), ("array", "x"), ("array", 3),
    ("dependencies", [{"kind": "odd", "job": "1"}]), ("dependencies", [{"kind": "after"}]), ("dependencies", ["1"]),
    ("image", None), ("exclusive", 1),
])  # fmt: skip
def test_encoding_damage_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidJob, match=f"'{name}' cannot be read"):
        decode_job({name: value})
