# SPDX-License-Identifier: BSD-3-Clause
"""Batch scripts as people write them: what each scheduler reads in them. Tried against sbatch 22.05 and qsub 8.1.9."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base.shell_text import find_commands
from kedge.jobs.scripts.containers import find_pulls
from kedge.jobs.scripts.read_request import read_request
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script
from kedge.jobs.scripts.script import BatchScript
from tests.builders.rows import each_row


def read_options(*lines: str) -> list[tuple[str, str | None]]:
    """The live options of a script with these directives."""
    script = read_script("\n".join(["#!/bin/bash", *lines, "hostname", ""]))
    return [(each.option, each.value) for each in script.live]


@each_row(("line", "options"), [
    ("#SBATCH --nodes=2", [("--nodes", "2")]), ("#SBATCH --nodes 2", [("--nodes", "2")]),
    ("#SBATCH -N 2", [("--nodes", "2")]), ("#SBATCH -N2", [("--nodes", "2")]), ("#SBATCH-N 2", [("--nodes", "2")]),
    ("#SBATCH\t-N\t2", [("--nodes", "2")]),
    ("#SBATCH -N 2 -n 8 --exclusive -t 5",
     [("--nodes", "2"), ("--ntasks", "8"), ("--exclusive", None), ("--time", "5")]),
    ("#SBATCH -N 1 # one is enough", [("--nodes", "1")]),
    ("#SBATCH -N 1 # -n 99", [("--nodes", "1")]),
    ("#SBATCH --job-name=a#b", [("--job-name", "a")]),
    ("#SBATCH --container-image=nvcr.io\\#nvidia/cuda", [("--container-image", "nvcr.io#nvidia/cuda")]),
    ('#SBATCH --job-name="a b # c" # comment "', [("--job-name", "a b # c")]),
    ("#SBATCH --job-name='a \"b' -n 2", [("--job-name", 'a "b'), ("--ntasks", "2")]),
    ("#SBATCH --out=x --err=y --job=z", [("--output", "x"), ("--error", "y"), ("--job-name", "z")]),
    ("#SBATCH --tasks-per-node=4", [("--ntasks-per-node", "4")]),
    ("#SBATCH --tasks=4", [("--ntasks-per-node", "4")]),
    ("#SBATCH -N 2 \\", [("--nodes", "2")]),
    ("#SBATCH hetjob", [("hetjob", None)]),
    ("#SBATCH", []),
    ("#$ -l rt_F=2", [("-l", "rt_F=2")]),
    ("#$-l rt_F=2", [("-l", "rt_F=2")]),
    ("#$ -l h_rt=1:00:00,gpu=1 -pe mpi 8 -cwd", [("-l", "h_rt=1:00:00,gpu=1"), ("-pe", "mpi 8"), ("-cwd", None)]),
    ("#$ -N foo#comment", [("-N", "foo")]),
    ("#$ -j y # both", [("-j", "y")]),
    ("#PBS -l select=2:ncpus=4:ngpus=1 -j oe", [("-l", "select=2:ncpus=4:ngpus=1"), ("-j", "oe")]),
    ("  #PBS -qgpu", [("-q", "gpu")]),
])  # fmt: skip
def test_reader_understands_every_spelling(line: str, options: list[tuple[str, str | None]]) -> None:
    assert read_options(line) == options


@each_row("line", [
    "##SBATCH -N 2", "# SBATCH -N 2", " #SBATCH -N 2", "#sbatch -N 2",
    "#SBATCH is what sbatch reads".replace("#", "# "),
])  # fmt: skip
def test_reader_leaves_out_what_is_no_directive(line: str) -> None:
    assert read_options(line) == []


def test_reader_reads_to_where_the_scheduler_does() -> None:
    for prefix in ("#SBATCH", "#PBS"):
        script = read_script(f"#!/bin/bash\n\n# a word\n{prefix} -N a\nset -e\n{prefix} -q b\n")
        assert [(each.line, each.is_live) for each in script.directives] == [(4, True), (6, False)]
        assert "line 5" in script.directives[1].reason
    script = read_script("#!/bin/sh\n#$ -cwd\nhostname\n#$ -N late\n")
    assert [each.option for each in script.live] == ["-cwd", "-N"]
    assert [command.line for command in script.commands] == [3]
    script = read_script("#PBS -l select=2 \\\n  -N two\n:\n#PBS -q late\necho\n")
    assert [(each.option, each.value) for each in script.live] == [("-l", "select=2"), ("-N", "two"), ("-q", "late")]


def test_reader_guesses_the_scheduler() -> None:
    assert read_script("#!/bin/sh\n#SBATCH -N 1\n#PBS -q x\n#SBATCH -n 1\n").scheduler == "slurm"
    assert read_script("#!/bin/sh\n#$ -cwd\nmpirun a\n").scheduler == "gridengine"
    assert read_script("#!/bin/sh\necho $PBS_O_WORKDIR\n").scheduler == "pbs"
    assert read_script("#!/bin/sh\n#BSUB -J x\n").scheduler == "lsf"
    guessed = read_script("#!/bin/sh\n#$HOME is where we are\nls\n")
    assert guessed.scheduler == "local"
    assert not guessed.directives
    script = read_script("#!/bin/sh\n#SBATCH -N 1\n#SBATCH -t 5\n#PBS -N other\n#$ -N third\n")
    assert [(each.scheduler, each.is_live) for each in script.directives] == [
        ("slurm", True),
        ("slurm", True),
        ("pbs", True),
        ("gridengine", False),
    ]


def test_reader_takes_dos_lines_and_a_byte_order_mark() -> None:
    script = read_script("\ufeff#!/bin/bash\r\n#SBATCH -N 2\r\nhostname\r\n")
    assert (script.has_mark, script.dos_line, script.shebang) == (True, 1, "#!/bin/bash")
    assert script.live[0].value == "2"
    assert "\r" not in script.text


def _call(command: str) -> BatchScript:
    return read_script(f"#!/bin/bash\n{command}\n")


def test_reader_finds_containers_with_options_and_launchers() -> None:
    script = _call(
        "srun --mpi=pmi2 -n 4 apptainer -s exec -B /a:/b,/c --nv -ce --env X=1 'my image.sif' python t.py --nv > log"
    )
    (call,) = script.containers
    assert (call.program, call.verb, call.image and call.image.text) == ("apptainer", "exec", "my image.sif")
    assert [(name, value and value.text) for name, value in call.options] == [
        ("--bind", "/a:/b,/c"), ("--nv", None), ("--contain", None), ("--cleanenv", None), ("--env", "X=1"),
    ]  # fmt: skip
    assert [word.text for word in call.command] == ["python", "t.py", "--nv"]
    assert [word.text for word in call.launcher] == ["srun", "--mpi=pmi2", "-n", "4"]
    assert call.gives_gpus


@each_row(("command", "program", "image"), [
    ("singularity run -B/data image.sif", "singularity", "image.sif"),
    ("/opt/bin/singularity exec --bind=/a image.sif ls", "singularity", "image.sif"),
    ("srun -N 2 --container-image=nvcr.io#nvidia/cuda --container-mounts /a:/b ls", "srun", "nvcr.io#nvidia/cuda"),
    ("enroot start --mount /a:/b --rw ubuntu ls", "enroot", "ubuntu"),
    ("shifter --image=docker:ubuntu:20.04 ls", "shifter", "docker:ubuntu:20.04"),
    ("if true; then kedge exec $IMG ls; fi", "kedge", "$IMG"),
    ("OMP_NUM_THREADS=1 mpirun -np 8 -npernode 4 singularity run --nv x.sif", "singularity", "x.sif"),
])  # fmt: skip
def test_reader_finds_every_runtime(command: str, program: str, image: str) -> None:
    (call,) = _call(command).containers
    assert (call.program, call.image and call.image.text) == (program, image)


@each_row(
    "command", ["echo hello", "module load singularity", "singularity pull x.sif docker://y", "# singularity exec x"]
)
def test_reader_takes_nothing_else_for_a_container(command: str) -> None:
    assert not _call(command).containers


def test_reader_finds_modules_and_pulls() -> None:
    script = _call("module load a/1 b\nml c/2\nml purge\nmodule purge\nsingularity pull x.sif docker://y")
    assert [name for _, name in script.modules] == ["a/1", "b", "c/2"]
    assert [command.line for command in find_pulls(script.commands)] == [6]


def test_shell_keeps_words_quotes_and_lines() -> None:
    text = "a 'b c' \"d $e\" f\\ g \\\n  h | i && j=(k l) > m 2>&1 <<X; n\nsrun o\nX\np $(q 'r)' s) `t u` # v\n"
    commands = find_commands(text)
    assert [[word.raw for word in each.words] for each in commands] == [
        ["a", "'b c'", '"d $e"', "f\\ g", "h"], ["i"], ["j=(k l)"], ["n"], ["p", "$(q 'r)' s)", "`t u`"],
    ]  # fmt: skip
    assert [each.line for each in commands] == [1, 2, 2, 2, 5]
    assert [word.is_literal for word in commands[0].words] == [True, True, False, True, True]
    assert commands[0].words[3].text == "f g"


PIECES = [
    "#SBATCH ", "#$ ", "#PBS ", "-l ", "--", "-N", "=", "select=", "gpu:", "\\", '"', "'", "`", "$(", "${", ")",
    "<<E", "\n", "\r\n",
]  # fmt: skip
PIECES += [
    "srun ", "singularity exec ", "--container-image", "-B ", "a:b", "module load ", "%j", "~", "#", "export X=",
    "9" * 30,
]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=40).map("".join))
def test_reader_never_stumbles(text: str) -> None:
    script = read_script(text)
    read_request(script)
    for finding in check_script(script, has_file=lambda path: False):
        assert 1 <= finding.line <= text.count("\n") + 1
        assert finding.message
        assert finding.remedy
