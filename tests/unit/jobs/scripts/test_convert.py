# SPDX-License-Identifier: BSD-3-Clause
"""Scripts turned into jobs: what becomes of each part, and that nothing is lost without a word."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.cluster.job import Dependency, DependencyKind, Job, Parallel
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.sites.profile import find_folders, load_site
from kedge.errors import InvalidJob
from kedge.jobs.description import parse_description, write_description
from kedge.jobs.scripts.convert import Conversion, convert_script
from kedge.jobs.scripts.reader import read_script
from tests.builders.rows import each_row
from tests.requirements import require_program
from tests.wording import assert_says

FOLDERS = find_folders({"HOME": "/nowhere"})
TARGETS = {"slurm": "generic-slurm", "gridengine": "generic-gridengine", "pbs": "generic-pbs", "local": "local"}


def convert(text: str, target: str = "") -> Conversion:
    return convert_script(read_script(text), target=target)


def slurm(directives: str, body: str) -> str:
    lines = "".join(f"#SBATCH {line}\n" for line in directives.split("\n") if line)
    return f"#!/bin/bash\n{lines}{body}\n"


ONE_GPU = slurm(
    "-J train -p gpu -N 1 -n 1 -c 8 --gres=gpu:a100:2 --mem=32GB -t 1-02:00:00 -A proj --qos=fast -C ib\n"
    "-o %x-%A_%a.out -e err/%j.err --array=0-9:3%2 -d afterok:12:13 --mail-user=a@b.c --mail-type=END,FAIL",
    "module load cuda/12.4 gcc\nexport OMP_NUM_THREADS=8 NAME='a b'\ncd $SLURM_SUBMIT_DIR\nmkdir -p out\n"
    "singularity exec --nv -B /data:/data:ro,/scratch --pwd /work --cleanenv 'my image.sif' "
    "python train.py --name 'x y'",
)


def test_convert_takes_every_part_of_a_plain_script() -> None:
    done = convert(ONE_GPU)
    job = done.job
    assert (job.name, job.queue, job.nodes, job.tasks, job.cpus_per_task) == ("train", "gpu", 1, 1, 8)
    assert (job.gpus_per_node, job.gpu_type, job.memory, job.time) == (2, "a100", 32 << 30, 26 * 3600)
    assert (job.account, job.qos, job.constraint, str(job.array)) == ("proj", "fast", "ib", "0-9:3%2")
    assert (job.output, job.error) == ("{name}-{id}_{index}.out", "err/{id}.err")
    assert job.dependencies == tuple(Dependency(DependencyKind.AFTER_OK, id) for id in ("12", "13"))
    assert (job.mail, job.mail_on) == ("a@b.c", ("end", "fail"))
    assert (job.image, job.command) == ("my image.sif", ("python", "train.py", "--name", "x y"))
    assert (job.binds, job.container_options) == (("/data:/data:ro", "/scratch"), ("--pwd", "/work", "--cleanenv"))
    assert job.modules == ("cuda/12.4", "gcc")
    assert job.environment == (("OMP_NUM_THREADS", "8"), ("NAME", "a b"))
    assert job.setup == ("mkdir -p out",)
    assert (job.parallel, job.nv, done.left) == (Parallel.SINGLE, None, ())


def test_convert_keeps_what_it_cannot_say() -> None:
    text = slurm(
        "--licenses=walrus:1 --signal=B:USR1@60 --gres=gpu:1,tmp:10 --comment='a b'", "singularity exec x.sif a"
    )
    same = convert(text)
    assert same.job.directives == ("--licenses=walrus:1", "--signal=B:USR1@60", "--gres=tmp:10", '--comment="a b"')
    other = convert(text, "pbs")
    assert not other.job.directives
    assert [each.words for each in other.left][:2] == ["--licenses=walrus:1", "--signal=B:USR1@60"]
    assert {each.line for each in other.left} == {2}
    done = convert(
        slurm("-p gpu --qos=q -d afterok:5", "export A=$SLURM_JOB_ID\nsingularity exec x.sif a"), "gridengine"
    )
    assert (done.job.queue, done.job.qos, done.job.dependencies) == ("", "", ())
    said = " ".join(each.why for each in done.left)
    for word in ("queue", "QOS", "5", "SLURM_JOB_ID"):
        assert word in said
    done = convert(slurm("--mem=1.5G\n-N 1 two\n-N 1", "singularity exec x.sif a\n#SBATCH -t 5"))
    assert done.job.directives == ()
    assert done.job.memory is None
    assert {each.line for each in done.left} == {2, 3, 6}


@each_row(("directives", "command", "expected"), [
    ("-n 8", "srun --mpi=pmix singularity exec x.sif a", (Parallel.MPI, "", 8)),
    ("-n 8", "srun singularity exec x.sif a", (Parallel.TASKS, "", 8)),
    ("-N 1", "srun singularity exec x.sif a", (Parallel.SINGLE, "", None)),
    ("-N 1", "srun -n 4 singularity exec x.sif a", (Parallel.TASKS, "", 4)),
    ("-N 2", "mpirun -np 8 -npernode 4 singularity exec x.sif a", (Parallel.MPI, "mpirun", 8)),
    ("-N 1 -n 8", "ibrun apptainer exec x.sif a", (Parallel.MPI, "ibrun", 8)),
    ("-N 1 -n 2", "srun --ntasks=$SLURM_NTASKS --mpi=none kedge exec x.sif a", (Parallel.TASKS, "", 2)),
])  # fmt: skip
def test_convert_reads_launchers(directives: str, command: str, expected: tuple[Parallel, str, int | None]) -> None:
    job = convert(slurm(directives, command)).job
    assert (job.parallel, job.launcher, job.tasks) == expected
    assert (job.image, job.command) == ("x.sif", ("a",))


def test_convert_lists_what_a_launcher_had_besides() -> None:
    done = convert(slurm("-n 8", "srun --cpu-bind=cores -l singularity exec x.sif a"))
    assert [each.line for each in done.left] == [3, 3]
    done = convert(slurm("-n 8", "mpirun -x LD_LIBRARY_PATH --mca btl ^openib singularity exec x.sif a"))
    assert [each.why.rpartition(": ")[2] for each in done.left] == ["-x LD_LIBRARY_PATH", "--mca btl ^openib"]


DDP = slurm(
    "-J ddp --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 -t 30",
    'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
    "export MASTER_PORT=$((10000 + SLURM_JOB_ID % 1000))\nIMG=lightning.sif\nDATA=$PWD/data\n"
    "srun apptainer exec --nv -B $PWD:/work $IMG torchrun --nnodes $SLURM_NNODES --nproc_per_node 2 "
    '--rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT train.py --data "$DATA" --epochs 3',
)


def test_convert_makes_a_torchrun_job() -> None:
    done = convert(DDP, "pbs")
    job = done.job
    assert (job.parallel, job.image, job.nodes, job.gpus_per_node) == (Parallel.TORCHRUN, "lightning.sif", 2, 2)
    assert job.command == ("--no-python", "sh", "-c", 'exec python -u train.py --data "$DATA" --epochs 3')
    assert job.setup == (
        "DATA=$PWD/data",
        'export APPTAINER_BIND="${APPTAINER_BIND:+$APPTAINER_BIND,}$PWD:/work"',
        "export DATA",
    )
    assert ["torchrun options of its own" in each.why for each in done.left] == [True]


def test_convert_hands_arguments_to_the_images_script() -> None:
    job = convert(slurm("-N 1", "apptainer run x.sif a b")).job
    assert (job.command, job.runscript) == (("a", "b"), True)
    assert convert(slurm("-N 1", "apptainer run x.sif")).job.command == ()
    done = convert(slurm("-N 1", 'srun singularity run --nv I.sif "$@"'))
    assert (done.job.image, done.job.runscript, done.job.command) == ("I.sif", True, ())
    assert any("kedge submit -f FILE --" in remark for _, remark in done.remarks)
    kept = convert(slurm("-N 1", "singularity run I.sif $@"))
    assert (kept.job.image, kept.job.command[3:]) == ("", ("bash",))


@each_row("body", ["singularity run --nv I.sif $X", 'N=$(date)\nsrun apptainer run I.sif --name "$N" b'])
def test_convert_wraps_no_words_for_the_images_script(body: str) -> None:
    done = convert(slurm("-N 1", body))
    assert (done.job.image, done.job.runscript, done.job.command) == ("", False, ("bash", "-c", body))
    assert_says("\n".join(remark for _, remark in done.remarks), "script/because-only-shell-node-knows")


def test_convert_reads_other_schedulers_and_pyxis() -> None:
    text = (
        "srun --container-image=nvcr.io#nvidia/cuda:12.4.1 --container-mounts=/a:/b --container-workdir=/b nvidia-smi"
    )
    job = convert(slurm("-N 1 --gpus-per-node=1", text)).job
    assert (job.image, job.binds) == ("docker://nvcr.io/nvidia/cuda:12.4.1", ("/a:/b",))
    assert (job.container_options, job.command) == (("--pwd", "/b"), ("nvidia-smi",))
    text = (
        "#!/bin/sh\n#$ -N hvd -l rt_F=2 -l h_rt=1:00:00\n#$ -j y -cwd -t 1-10 -tc 2 -hold_jid 7\n"
        "source /etc/profile.d/modules.sh\nmodule load openmpi/4.0.5\n"
        "mpirun -np 8 -npernode 4 singularity exec --nv t.sif a\n"
    )
    done = convert_script(read_script(text), site=load_site("abci2", FOLDERS))
    job = done.job
    assert (job.queue, job.nodes, job.time, str(job.array)) == ("rt_F", 2, 3600, "1-10%2")
    assert (job.tasks, job.tasks_per_node, job.parallel) == (8, 4, Parallel.MPI)
    assert (job.modules, job.dependencies[0].kind) == (("openmpi/4.0.5",), DependencyKind.AFTER_ANY)
    assert job.nv  # nothing in the script itself asks for GPUs: they come with rt_F
    assert done.left == ()
    text = (
        "#PBS -N x -q gpu -P grp -l select=2:ncpus=8:mpiprocs=4:ngpus=4:mem=64gb -l walltime=90\nkedge exec x.sif a\n"
    )
    job = convert(text).job
    assert (job.nodes, job.tasks_per_node, job.cpus_per_task, job.gpus_per_node) == (2, 4, 2, 4)
    assert (job.memory, job.time, job.account, job.queue) == (64 << 30, 90, "grp", "gpu")
    torque = convert("#PBS -l nodes=2:ppn=4:gpus=1,mem=1gb -t 0-3 -W depend=afterok:5\nls\n").job
    assert (torque.nodes, torque.tasks_per_node, torque.gpus_per_node, str(torque.array)) == (2, 4, 1, "0-3")
    assert torque.dependencies[0].job == "5"


@each_row("body", [
    "for i in 1 2; do singularity exec x.sif a $i; done", "singularity exec x.sif a > log",
    "singularity exec x.sif a | tee log", "singularity exec x.sif a\nsingularity exec x.sif b",
    "singularity exec x.sif a\ncp out /home", "singularity exec $(ls *.sif) a",
    "singularity exec --overlay $OVERLAY x.sif a", "srun numactl -l singularity exec x.sif a",
    "X=1 singularity exec x.sif a", "singularity shell x.sif", "python a.py",
])  # fmt: skip
def test_convert_keeps_whole_what_is_more_than_one_container(body: str) -> None:
    done = convert(slurm("-N 1", body))
    assert (done.job.image, done.job.command) == ("", ("bash", "-c", body))
    assert any("stay unchanged" in remark for _, remark in done.remarks)


def test_convert_keeps_the_shell_or_language_of_a_script() -> None:
    assert convert("#!/bin/bash -l\n#SBATCH -N 1\nls\nls\n").job.command == ("bash", "-l", "-c", "ls\nls")
    python = convert("#!/usr/bin/env python3\n#SBATCH -N 1\nprint('singularity exec x.sif a')\n").job
    assert python.command == ("python3", "-c", "print('singularity exec x.sif a')")


def test_convert_never_shows_a_secret_in_what_it_lists() -> None:
    secret = "nvapi-0123456789abcdef"
    done = convert(slurm(f"--comment=API_KEY={secret}", f"singularity exec x.sif a\necho TOKEN={secret}"), "pbs")
    assert len(done.left) == 2
    assert secret not in repr(done.left)


def test_convert_writes_a_description_that_reads_back_the_same() -> None:
    for text in (ONE_GPU, DDP, slurm("-N 1", "for i in 1 2; do\n\techo \"$i\" 'x'\ndone")):
        job = convert(text).job
        assert parse_description(write_description([job]), Path("kedge.toml")).job(job.name) == job


def _render(job: Job, target: str) -> str:
    place = ScriptContext("", "/opt/kedge", job.image, "", "/scratch/me", "/scratch/me/{name}-{id}.out", "")
    return find_backend(target).render(job, load_site(TARGETS[target], FOLDERS), place)


CLEAN = {
    "plain": slurm(
        "-J plain -c 4 --mem=4G -t 10", "mkdir -p out\nsingularity exec --nv -B /a x.sif python a.py 'it''s'"
    ),
    "variables": slurm(
        "-J v -t 10", 'DATA="$PWD/data"\nexport DATA\nsingularity exec -B "$PWD" x.sif a "$DATA" "$HOME"'
    ),
    "whole": slurm("-J w -t 10", 'for i in 1 2; do\n    echo "$i" "`date`"\ndone'),
    "array": slurm("-J a -t 10 --array=1-4", "singularity run x.sif a"),
}


def test_convert_makes_scripts_that_shellcheck_likes(tmp_path: Path) -> None:
    for name, target in itertools.product(CLEAN, TARGETS):
        script = _render(convert(CLEAN[name], target).job, target)
        assert "record=" not in script
        (tmp_path / f"{name}-{target}.sh").write_text(script)
    words = [require_program("shellcheck"), *tmp_path.iterdir()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


PIECES = [
    "#SBATCH -N 2\n", "#$ -t 1-3 -tc 2\n", "#PBS -l select=1:ncpus=2\n", "srun -n 2 ", "singularity exec ",
    "apptainer run ",
]  # fmt: skip
PIECES += [
    "-B $X:/a ", "x.sif ", "torchrun ", "--nnodes=2 ", "a.py ", "'", '"', "$Y ", "export A=1\n", "cd /x && ", "\\\n",
    "\n", ";",
]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=30).map("".join),
    st.sampled_from(["", *TARGETS]),
)
def test_convert_never_stumbles(text: str, target: str) -> None:
    job = convert("#!/bin/bash\n" + text, target).job
    with contextlib.suppress(InvalidJob):  # nothing to run, say
        write_description([job])


def test_convert_keeps_lines_in_their_place() -> None:
    job = convert(slurm("-N 1", "ulimit -c 0\n#SBATCH --mem=20G\napptainer exec x.sif a")).job
    assert job.setup == ("ulimit -c 0",)
    done = convert(slurm("-N 1", "srun -n 4 singularity exec --overlay $X I.sif a"))
    assert (done.job.tasks, done.job.image) == (None, "")
    body = "# where it is\nBASE=/data\nIMG=$BASE/x.sif\n# the container\napptainer exec -B $BASE:/d $IMG a"
    done = convert(slurm("-N 1\n##SBATCH -A x", body))
    assert (done.job.image, done.job.binds, done.job.setup) == ("/data/x.sif", ("/data:/d",), ())
    assert done.remarks == ()
    kept = convert(slurm("-N 1", "X=1\nsource env.sh\napptainer exec x.sif a"))
    assert kept.job.setup == ("X=1", "source env.sh")
    assert ["became 'setup'" in remark for _, remark in kept.remarks] == [True]
    body = "export A=1\nB=$A/x\nexport A=2\nexport C=$B\nexport D=4\nX=$E\nexport E=5\napptainer exec x.sif a $X"
    job = convert(slurm("-N 1", body)).job
    assert job.environment == (("D", "4"),)
    assert job.setup == ("export A=1", "B=$A/x", "export A=2", "export C=$B", "X=$E", "export E=5", "export X")


@each_row(("body", "command"), [
    ('CMD="bash x.sh"\nsingularity exec I.sif $CMD', ("bash", "x.sh")),
    ('CMD="bash x.sh"\nsingularity exec I.sif "$CMD"', ("bash x.sh",)),
    ("A=1\nCMD='run -n 2'\nsingularity exec I.sif $CMD --a=$A", ("run", "-n", "2", "--a=1")),
    ("CMD=\nsingularity exec I.sif a $CMD b", ("a", "b")),
    ('BASE=/d\nDATA=$BASE/x\nsingularity exec I.sif a "$DATA"', ("a", "/d/x")),
    ("CMD='a *.txt'\nsingularity exec I.sif \"$CMD\"", ("a *.txt",)),
])  # fmt: skip
def test_convert_splits_words_as_a_shell_does(body: str, command: tuple[str, ...]) -> None:
    job = convert(slurm("-N 1", body)).job
    assert (job.image, job.command) == ("I.sif", command)


@each_row("body", [
    "OPTS='--nv -B /a'\nsingularity exec $OPTS I.sif a", "NV=--nv\nsingularity exec $NV I.sif a",
    "NV=\nsingularity exec $NV I.sif a", 'ARGS=(a b)\nsingularity exec I.sif a "${ARGS[@]}"',
    "singularity exec I.sif a $(ls)", "singularity exec I.sif a *.txt", "singularity exec I.sif a ${X:-1}",
    "read X < file\nsingularity exec I.sif a $X", "N=$(nproc)\nmpirun -np $N singularity exec I.sif a",
    "N=$1\nsrun -n $N singularity exec I.sif a", 'X=$1\nsingularity exec I.sif a "$X"',
])  # fmt: skip
def test_convert_never_guesses_what_a_shell_would_make_of_a_line(body: str) -> None:
    done = convert(slurm("-N 1", body))
    assert (done.job.image, done.job.command[:3]) == ("", ("bash", "-c", body))
    assert done.job.tasks is None
    assert any("stay unchanged" in remark for _, remark in done.remarks)


@each_row(("body", "last"), [
    ('python a.py $1 "$2"\ncp out $3', ("bash",)), ('for x in "$@"; do echo "$x"; done', ("bash",)),
    ('singularity exec I.sif a "$1"', ("sh",)), ("python a.py", ()),
])  # fmt: skip
def test_convert_gives_arguments_their_places(body: str, last: tuple[str, ...], tmp_path: Path) -> None:
    done = convert(slurm("-N 1", body))
    assert done.job.command[3:] == last if done.job.command[1:2] == ("-c",) else not last
    assert any("kedge submit -f FILE --" in remark for _, remark in done.remarks) == bool(last)
    if last and not done.job.image:
        program = body.replace("python a.py", "echo").replace("cp out", "echo")
        argv = [*done.job.command[:2], program, *last, "A", "B", "C"]
        shown = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()
        assert shown == ["A", "B", "C"]


def test_convert_refuses_what_it_does_not_read() -> None:
    for word in ("hetjob", "packjob"):
        with pytest.raises(InvalidJob, match="heterogeneous") as problem:
            convert(slurm(f"-N 1\n{word}\n-N 2 --gpus-per-node=1", "singularity exec x.sif a"))
        assert problem.value.context["line"] == "3"
    with pytest.raises(InvalidJob, match="LSF"):
        convert("#!/bin/bash\n#BSUB -n 4 -q normal\nsingularity exec x.sif a\n", "slurm")
    lines = "#SBATCH -N 1 -n 1 -c 1 -t 5\n#BSUB -W 60 -R span\n#PBS -V -m abe\n"
    done = convert(f"#!/bin/bash\n{lines}apptainer exec x.sif a\n")
    assert done.job.directives == ()
    assert {each.line for each in done.left} == {3, 4}


def test_convert_reads_odd_values() -> None:
    done = convert(slurm("--time=0", "singularity exec x.sif a"))
    assert (done.job.time, done.job.directives) == (None, ("--time=0",))
    assert any("without end" in each.why for each in convert(slurm("--time=0", "apptainer exec x.sif a"), "pbs").left)
    text = slurm("--mail-user=a@b.c\n--mail-type=END\n--mail-type=FAIL", "singularity exec x.sif a")
    assert convert(text).job.mail_on == ("end", "fail")
    done = convert(slurm("-N 2 --gpus=8", "srun singularity exec --nv x.sif a"))
    assert done.job.gpus_per_node == 4
    assert any("8 GPUs" in remark for _, remark in done.remarks)


@each_row(
    ("options", "nv", "words"), [("--rocm", False, ("--rocm",)), ("--nv --rocm", True, ("--rocm",)), ("--nv", None, ())]
)
def test_convert_keeps_both_kinds_of_gpus_apart(options: str, nv: bool | None, words: tuple[str, ...]) -> None:
    job = convert(slurm("--gpus-per-node=1", f"singularity exec {options} x.sif a")).job
    assert (job.nv, job.container_options) == (nv, words)


@each_row("line", ['SIFFILE="/p/x.sif"   ## where it is', "SIFFILE=/p/x.sif # it's here", "SIFFILE=/p/x.sif"])
def test_convert_drops_a_variable_with_a_comment_behind_it(line: str) -> None:
    job = convert(slurm("-N 1", f"{line}\nY=a#b\nmkdir $Y\nsingularity exec $SIFFILE a")).job
    assert (job.image, job.setup) == ("/p/x.sif", ("Y=a#b", "mkdir $Y"))


@each_row("line", ["module purge", "module use /apps", "module load $X", "ml gcc"])
def test_convert_leaves_modules_in_their_lines_where_others_stand_by(line: str) -> None:
    text = slurm("-N 1", f"source /etc/profile.d/modules.sh\n{line}\nmodule load cuda\napptainer exec x.sif a")
    job = convert(text).job
    assert (job.modules, job.setup) == ((), ("source /etc/profile.d/modules.sh", line, "module load cuda"))


@each_row(
    ("image", "expected"),
    [("../a.sqsh", "../a.sqsh"), ("a.sqsh", "a.sqsh"), ("g.io#a/b:sha256:12", "docker://g.io/a/b@sha256:12")],
)
def test_convert_knows_images_of_pyxis(image: str, expected: str) -> None:
    assert convert(slurm("-N 1", f"srun --container-image={image} a")).job.image == expected


@each_row(("body", "why"), [
    ("source vars.sh\nsingularity exec I.sif a $V", "'source' in line 3 may set variables"),
    ('V="a b"\n. ./vars.sh\nsingularity exec I.sif a $V', "'.' in line 4 may set variables"),
    ("V=a; test -f x && . ./vars.sh\nsingularity exec I.sif a $V", "'.' in line 3 may set variables"),
    ("V=a\neval 'V=b'\nsingularity exec I.sif a $V", "'eval' in line 4 may set variables"),
    ("V=a\nbuiltin printf -v V b\nsingularity exec I.sif a $V", "'printf' in line 4 may set variables"),
    ("V=a\nexport $(cat .env)\nsingularity exec I.sif a $V", "'export' in line 4 may set variables"),
    ("IMG=I.sif\nsource vars.sh\nsingularity exec $IMG a", "'source' in line 4 may set variables"),
    ("D=/d\nsource vars.sh\nsingularity exec -B $D I.sif a", "'source' in line 4 may set variables"),
    ('IFS=,\nL="a,b,c"\nsingularity exec I.sif a $L', "IFS in line 3 changes where"),
    ('set -- one two\nsingularity exec I.sif a "$1" "$2"', "'set' in line 3 gives the script other arguments"),
    ('set -o noglob\nV="*"\nsingularity exec I.sif a $V', "'set' in line 3 keeps the shell from"),
    ('set -euf\nV="*"\nsingularity exec I.sif a $V', "'set' in line 3 keeps the shell from"),
    ('X=1\nsingularity exec I.sif sh -c "echo $X \\$X"', "would see the variable X"),
    ("X=1\nY=$(date)\nsingularity exec I.sif sh -c 'echo $X' $X$Y", "would see the variable X"),
    ('ARGS="-l *.sh"\nsingularity exec I.sif ls $ARGS', "the variable ARGS holds a pattern"),
    ("F=$HOME/*.sh\nsingularity exec I.sif ls $F", "the variable F holds a pattern"),
    ("singularity exec I.sif sh -c \"echo '$(hostname)'\"", "is expanded on the node"),
])  # fmt: skip
def test_convert_keeps_whole_what_other_lines_change(body: str, why: str) -> None:
    done = convert(slurm("-N 1", body))
    assert (done.job.image, done.job.command[:3]) == ("", ("bash", "-c", body))
    assert any(why in remark for _, remark in done.remarks)
    assert not any("takes arguments" in remark for _, remark in done.remarks)


@each_row("body", ["cat > c <<EOF\n$1\nEOF\nsingularity exec I.sif a", "singularity exec -B $1 I.sif a"])
def test_convert_sees_arguments_in_documents_and_binds(body: str) -> None:
    done = convert(slurm("-N 1", body))
    assert (done.job.image, done.job.command) == ("", ("bash", "-c", body, "bash"))
    assert any("takes arguments" in remark for _, remark in done.remarks)


def test_convert_says_that_a_script_takes_arguments_only_where_it_does() -> None:
    for body, takes in (
        ('set -- a\necho "$1"', False),
        ('set -- "$1" b\necho "$2"', True),
        ('test "$X" && set -- a\necho "$1"', True),
        ('if test "$X"; then\nset -- a\nfi\necho "$1"', True),
        ('set -euo pipefail\necho "$1"', True),
    ):
        remarks = convert(slurm("-N 1", body)).remarks
        assert any("takes arguments" in remark for _, remark in remarks) == takes, body


@each_row(("body", "command"), [
    ("source env.sh\nsingularity exec I.sif a", ("a",)),
    ("source /etc/profile.d/modules.sh\nV=b\nsingularity exec I.sif a $V", ("a", "b")),
    ("source env.sh\nV=b\nsingularity exec I.sif a $V", ("a", "b")),
    ("source env.sh\nsingularity exec I.sif a $SLURM_JOB_ID", ("sh", "-c", "exec a $SLURM_JOB_ID")),
    ("source env.sh\nsingularity exec -B $PWD I.sif a", ("a",)),
    ("set -euo pipefail\nV=b\nsingularity exec I.sif a $V", ("a", "b")),
    ("cat > c <<'EOF'\n$1\nEOF\nsingularity exec I.sif a", ("a",)),
    ('export X=1\nsingularity exec I.sif sh -c "echo $X \\$X"', ("sh", "-c", 'exec sh -c "echo $X \\$X"')),
    ('F="*.sh"\nG=$(date)\nsingularity exec I.sif ls "$F" $G', ("sh", "-c", 'exec ls "$F" $G')),
])  # fmt: skip
def test_convert_still_takes_apart_what_other_lines_leave_alone(body: str, command: tuple[str, ...]) -> None:
    job = convert(slurm("-N 1", body)).job
    assert (job.image, job.command) == ("I.sif", command)


def test_convert_takes_values_of_variables_only_where_they_are_sure() -> None:
    for line in ("IFS=, read V W < f", "let V=V+1", "typeset V=b"):
        done = convert(slurm("-N 1", f"V=a\n{line}\nsingularity exec I.sif a $V"))
        assert done.job.command[:2] in (("bash", "-c"), ("sh", "-c")), line
    job = convert(slurm("-N 1", "X=1\nY=$(date)\nsingularity exec I.sif sh -c 'echo $X' $Y")).job
    assert job.setup == ("X=1", "Y=$(date)", "export Y")
    job = convert(slurm("-N 1", '[ -z "$V" ] && V=b\nsingularity exec I.sif a $V')).job
    assert (job.command, job.setup[-1]) == (("sh", "-c", "exec a $V"), "export V")
    assert convert(slurm("-N 1", '[ -z "$I" ] && I=b.sif\nsingularity exec $I a')).job.image == ""
    assert convert(slurm("-N 1", "cd /d && I=b.sif\nsingularity exec $I a")).job.image == "b.sif"
    body = "IFS=,\nPATH=/opt/bin:/usr/bin\nX=1\nmkdir -p a\nsingularity exec I.sif a"
    assert convert(slurm("-N 1", body)).job.setup == ("IFS=,", "PATH=/opt/bin:/usr/bin", "mkdir -p a")
