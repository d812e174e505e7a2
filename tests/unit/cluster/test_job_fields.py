# SPDX-License-Identifier: BSD-3-Clause
"""The table of a job's fields is whole, and its values and contradictions are found whoever made the job."""

from __future__ import annotations

import datetime

import pytest

from kedge.base.frozen import list_names, replace
from kedge.cli.options import GLOBALS
from kedge.cluster.job import LAUNCHERS, RUNTIMES, Dependency, DependencyKind, Job, JobArray, Parallel
from kedge.cluster.job_fields import BY_KEY, BY_NAME, FIELDS, GROUPS, find_meaning
from kedge.cluster.job_rules import check_job, find_problems
from kedge.cluster.job_values import KINDS, MOST, change_job, read_value
from kedge.errors import InvalidJob
from tests.builders.rows import with_rows


def read(name: str, value: object):
    return read_value(BY_NAME[name], value)[name]


def test_fields_table_is_whole_and_sound() -> None:
    assert (sorted(BY_NAME), len(BY_NAME)) == (sorted(list_names(Job)), len(FIELDS))
    assert len(BY_KEY) == len(FIELDS) + 1
    assert BY_KEY["partition"] is BY_NAME["queue"]
    for field in FIELDS:
        assert field.help, field.name
        assert not field.help.endswith("."), field.name
        assert field.group in GROUPS
        assert field.kind in KINDS
        assert bool(field.metavar) == (bool(field.flags) and field.kind != "yes or no"), field.name
        assert bool(field.choices) == (field.kind in ("choice", "choices")), field.name
        assert field.flag or field.name == "command"
        for choice in field.choices:
            assert choice in field.help or field.name in ("launcher", "runtime")
    assert (BY_NAME["runtime"].choices, BY_NAME["launcher"].choices) == (RUNTIMES, LAUNCHERS)
    assert BY_NAME["parallel"].choices == tuple(Parallel)


def test_fields_flags_are_unique_and_leave_the_global_ones() -> None:
    flags = [flag for field in FIELDS for flag in (*field.flags, *(flag for flag, _ in field.constants))]
    flags += [f"--no-{field.flag[2:]}" for field in FIELDS if field.kind == "yes or no"]
    assert len(flags) == len(set(flags))
    taken = {string for _, strings, _ in GLOBALS for string in strings} | {"-h", "--help", "-V", "--dry-run"}
    assert not taken & set(flags)


@with_rows(
    *(("partition", "queue"), ("gpus-per-node", "gpus"), ("mem", "memory"), ("ntasks", "tasks")),
    ("gpu-type", "gpu_type"),
)
def test_fields_words_of_flags_are_understood(word: str, key: str) -> None:
    found = find_meaning(word)
    assert found.key == key


def test_values_of_files_are_read() -> None:
    assert read("command", "python 'a b.py' $(x)") == ("python", "a b.py", "$(x)")
    assert read("command", ["python", 3, 0.5]) == ("python", "3", "0.5")
    assert read("environment", {"A": 1, "B": "x y"}) == (("A", "1"), ("B", "x y"))
    assert read("environment", ["A=1=2", "B="]) == (("A", "1=2"), ("B", ""))
    assert read("setup", "\nmodule purge\n\nulimit -c 0\n") == ("module purge", "", "ulimit -c 0")
    assert read("setup", ["a\nb"]) == ("a\nb",)
    assert read("binds", "data:/data") == read("binds", ("data:/data",)) == ("data:/data",)
    assert read("time", datetime.time(1, 30)) == 5400
    assert read("begin", datetime.datetime(2030, 1, 31, 8)) == "2030-01-31T08:00:00"
    assert read("array", [1, 3, "7-9"]) == JobArray.parse("1,3,7-9")
    assert read("array", 17) == JobArray.parse("17")
    assert read("mail_on", "END, fail") == ("end", "fail")
    assert read("mail_on", ["all"]) == ("begin", "end", "fail")
    assert read("parallel", "mpi") is Parallel.MPI
    assert read_value(BY_NAME["gpus_per_node"], "gpu:a100:4") == {"gpus_per_node": 4, "gpu_type": "a100"}
    assert read_value(BY_NAME["gpus_per_node"], "4") == {"gpus_per_node": 4}
    assert read_value(BY_NAME["gpus_per_node"], 0) == {"gpus_per_node": None, "gpu_type": ""}


@with_rows(
    ("nodes", {0: "cannot be 0", -1: "cannot be -1", 1.5: "not a whole number", 10**30: "cannot be"}),
    ("nodes", {"two": "not a whole number", "1-4": "not a whole number"}),
    ("nodes", {True: "true is not a whole number"}),
    ("gpus_per_node", {"a100": "not a number of GPUs", -1: "cannot be -1"}),
    ("memory", {64: "'64' has no unit", True: "not true or false"}),
    ("time", {90: "'90' has no unit", (1,): "not a list", datetime.date(2030, 1, 1): "not a date or time"}),
    ("time", {datetime.time(1, 30, 0, 5): "not a duration"}),
    ("begin", {datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC): "do not support time zones"}),
    ("image", {3: "must be text, not a whole number", "a\0b": "NUL byte"}),
    ("account", {"a\nb": "line break"}),
    ("directives", {("--x\n#SBATCH --y",): "line break", (" ",): "empty text"}),
    ("name", {"  ": "it is empty"}),
    ("command", {"a 'b": "unclosed quote", (True,): "spell them differently", ("a\0",): "NUL"}),
    ("command", {3: "not a whole number"}),
    ("setup", {("a\0",): "NUL"}),
    ("environment", {("A",): "has no value", "A=1": "must be a table"}),
    ("exclusive", {"yes": "true or false, not text"}),
    *(("parallel", {"": "is not one of"}), ("pull", {"later": "is not one of"})),
    ("mail_on", {("requeue",): "is not one of", 3: "list of words"}),
    ("array", {(1.5,): "not a list"}),
    ("dependencies", {12: "a list of jobs", (12,): "must be text"}),
)
def test_values_refusals_say_what_is_wrong(name: str, refused) -> None:
    for value, message in refused.items():
        refuse_value(name, list(value) if isinstance(value, tuple) else value, message)


def refuse_value(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        read(name, value)
    assert message in caught.value.message
    assert len(caught.value.message) < 200


def test_values_refusals_of_tables_say_what_is_wrong() -> None:
    for name in ("directives", "array"):
        refuse_value(name, {}, "not a table")
    for key, value, message in (
        *(("9A", "1", "'9A' is not a variable name"), ("", "1", "'' is not a variable name")),
        *(("A", True, "A: true and false"), ("A", 1 << 70, "A: the number is too large")),
        ("A", ["x"], "A: it must be text, not a list"),
    ):
        refuse_value("environment", {key: value}, message)


def test_change_lists_add_and_other_values_replace() -> None:
    base = Job(
        binds=("a",), environment=(("A", "1"), ("B", "2")), command=("x",), memory=5, queue="q", mail_on=("end",)
    )
    changes = {"binds": ("b",), "environment": (("B", "3"), ("C", "4")), "command": ("y",), "mail_on": ("fail",)}
    changed = change_job(base, changes)
    assert (changed.binds, changed.environment) == (("a", "b"), (("A", "1"), ("B", "3"), ("C", "4")))
    assert (changed.command, changed.mail_on, changed.queue) == (("y",), ("fail",), "q")
    assert change_job(base, {"binds": (), "environment": ()}) == replace(base, binds=(), environment=())
    other = change_job(base, {"memory_per_cpu": 7})
    assert (other.memory, other.memory_per_cpu) == (None, 7)


TORCHRUN = {"command": ("a",), "parallel": Parallel.TORCHRUN}


@with_rows(
    ("command", [{"image": ""}, {"parallel": Parallel.TORCHRUN}]),
    ("memory_per_cpu", [{"memory": 1, "memory_per_cpu": 1}]),
    ("memory_per_gpu", [{"memory_per_gpu": 1}]),
    ("gpu_type", [{"gpu_type": "a100"}]),
    ("nodes", [{"nodes": 0}, {"nodes": 10**7}, {"nodes": MOST + 1}]),
    ("time", [{"time": -1}]),
    ("tasks", [{"tasks": 7, "tasks_per_node": 4}, {"tasks": 9, "nodes": 2, "tasks_per_node": 4}]),
    ("tasks", [{"tasks": 2, "nodes": 4}, {**TORCHRUN, "nodes": 2, "tasks": 8}]),
    ("tasks_per_node", [{**TORCHRUN, "tasks_per_node": 4}]),
    ("environment", [{"environment": given} for given in ((("A-B", "1"),), (("A", "1"), ("A", "2")))]),
    ("environment", [{"environment": (("A", "a\0b"),)}]),
    *(("output", [{"output": "{nme}.out"}]), ("error", [{"error": "%x-%5j.err"}])),
    *(("name", [{"name": "a\0"}, {"name": " "}]), ("queue", [{"queue": "a\n#SBATCH --y"}])),
    *(("directives", [{"directives": ("a\rb",)}]), ("runtime", [{"runtime": "x; y"}])),
    ("mail_on", [{"mail_on": ("never",)}]),
    ("dependencies", [{"dependencies": (Dependency(DependencyKind.AFTER_OK, id),)} for id in ("1,singleton", "")]),
)
def test_rules_find_the_contradiction(field: str, all_fields) -> None:
    for fields in all_fields:
        job = Job(**{"image": "x", **fields})
        assert [problem.field for problem in find_problems(job)] == [field], fields
        assert all(problem.hint for problem in find_problems(job)), fields
        with pytest.raises(InvalidJob) as caught:
            check_job(job)
        assert caught.value.context == {"key": BY_NAME[field].key}


@with_rows(
    (Job(memory=1, memory_per_cpu=1), "memory already sets the memory", "keep one: memory or memory_per_cpu"),
    (Job(tasks=7, tasks_per_node=4), "7 tasks cannot be 4 on each node", "request 4 or 8 tasks"),
    (Job(tasks=3, tasks_per_node=4), "3 tasks cannot be 4 on each node", "request 4 tasks"),
    (Job(tasks=9, nodes=2, tasks_per_node=4), "2 nodes with 4 tasks each make 8, not 9", "request 8 tasks"),
    (Job(tasks=2, nodes=4), "2 tasks leave some of 4 nodes idle", "request at most 2 nodes"),
    (Job(output="%j.out"), "%j is a pattern of Slurm", "write {id}"),
    (Job(output="%A.out"), "%A is a pattern of Slurm", "write {id}"),
    (Job(error="%3a.out"), "%a is a pattern of Slurm", "write {index}"),
    (Job(error="%x.out"), "%x is a pattern of Slurm", "write {name}"),
    (Job(output="{indx}.out"), "{indx} is not a placeholder", "did you mean 'index'?"),
    (Job(output="{zzzzz}.out"), "{zzzzz} is not a placeholder", "use {name}, {id}, {index}"),
    (Job(runtime="kedge\n"), "'kedge\\n' contains a line break or another control character", "remove it"),
    (Job(queue="\n" + "q" * 99), f"'\\n{'q' * 59}' contains a line break", "remove it"),
    (Job(runtime="x" * 99), f"'{'x' * 60}' is not one of: kedge, ", "give one of: kedge, "),
)
def test_rules_say_what_is_wrong_and_what_to_write_instead(job: Job, message: str, hint: str) -> None:
    problem = next(find_problems(replace(job, image="x")))
    assert problem.message.startswith(message)
    assert problem.hint.startswith(hint)


@with_rows(
    *({}, {"nodes": MOST}, {"nodes": 2, "tasks": 2}, {"tasks": 8, "nodes": 2, "tasks_per_node": 4}),
    *({"image": "", "command": ("hostname",)}, {"tasks": 7, "nodes": 2}, {"output": "100%/{id}.out"}),
    {"name": 'a\n"$(x)"', "setup": ("a\nb",), "environment": (("A", "\n$()"),), "output": "{name}/{id}_{index}.out"},
    *({**TORCHRUN, "nodes": 2, "tasks": 2, "gpus_per_node": 4}, {**TORCHRUN, "tasks": 2}),
)
def test_rules_leave_what_is_sound(fields) -> None:
    job = Job(**{"image": "x", **fields})
    assert check_job(job) is job
    assert check_job(Job(nodes=2), needs_command=False), "an interactive one needs no command"
