# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge script` believes about sbatch, asked of a real one; and scripts it makes, which sbatch takes."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.schedulers.slurm.options import OPTIONS, VALUES
from kedge.cluster.sites.profile import find_folders, load_site
from kedge.jobs.scripts.convert import convert_script
from kedge.jobs.scripts.findings import ScriptFinding, Severity
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script
from tests.builders.sbatch_values import REFUSED as REFUSED_VALUES
from tests.builders.sbatch_values import TAKEN_LATER
from tests.builders.sbatch_values import VALID as VALID_VALUES
from tests.cluster.slurm_cluster import SlurmCluster

HEAD = "#!/bin/bash\n"
TAKEN = [
    *("#SBATCH -N 1 # two\n", "#SBATCH -N1 #two\n", "#SBATCH --job-name=a#b\n"),
    *("#SBATCH --out=x --err=y --job=z\n", "#SBATCH-N 1\n", "##SBATCH -N 99\n# SBATCH -N 99\n #SBATCH -N 99\n"),
    *("#SBATCH -N 1 \\\n#SBATCH -n 1\n", "#SBATCH --tasks-per-node=2 --mem=1gb\n", "#SBATCH -t 1-2\n"),
    *("true\n#SBATCH -N 99\n", "#SBATCH -o $HOME/x\n", "#SBATCH --extra-n=1\n"),
]
REFUSED = [
    *("#SBATCH -N 1 two\n", '#SBATCH --job-name="a b\n', "#SBATCH --no=1\n", "#SBATCH -N=2\n"),
    *("#SBATCH --nodes = 2\n", "#SBATCH -t 1h\n", "#SBATCH --mem=1.5G\n", "#SBATCH --mem=32GiB\n"),
    *("#SBATCH --mem=1G --mem-per-cpu=1G\n", "#SBATCH --time=00:10:00;\n", "#SBATCH --ntask-per-node=4\n"),
    *("#SBATCH -N 1\r\n",),
]


def is_old(slurm: SlurmCluster) -> bool:
    """Whether it is a Slurm of the years before 2023, as in Debian 12."""
    return int(slurm.read("sbatch", "--version").split()[1].partition(".")[0]) < 23


def ask(slurm: SlurmCluster, texts: Iterable[str]) -> dict[str, str]:
    """What sbatch says against each script; nothing where it takes it."""
    user, asked = slurm.user(), list(dict.fromkeys(texts))
    folder = user.home / f"asked-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    for number, text in enumerate(asked):
        (folder / str(number)).write_text(text, encoding="utf-8", newline="")
    end = secrets.token_hex(8)
    each = f'said=$(sbatch --test-only <$1/$n 2>&1) && echo {end} || echo "refused: $said {end}"'
    shown = user.read_program("sh", "-c", f"n=0; while [ $n -lt $2 ]; do {each}; n=$((n+1)); done", "sh",
                              str(folder), str(len(asked)))  # fmt: skip
    answers = [answer.strip() for answer in shown.split(end)[:-1]]
    return dict(zip(asked, answers, strict=True))


def list_errors(text: str) -> list[ScriptFinding]:
    """What kedge finds wrong with a script."""
    return [each for each in check_script(read_script(text)) if each.severity is Severity.ERROR]


def test_script_and_sbatch_agree_on_what_is_taken(slurm: SlurmCluster) -> None:
    answers = ask(slurm, [f"{HEAD}{directives}hostname\n" for directives in TAKEN])
    wrong = [(text, said, list_errors(text)) for text, said in answers.items() if said or list_errors(text)]
    assert not wrong


def test_script_and_sbatch_agree_on_what_is_refused(slurm: SlurmCluster) -> None:
    texts = [*(f"{HEAD}{each}hostname\n" for each in REFUSED), "#SBATCH -N 1\nls\n", f"\ufeff{HEAD}ls\n"]
    answers = ask(slurm, texts)
    assert [text for text, said in answers.items() if not said] == []
    # a mark alone does not tell that it is for Slurm
    told = [text if "#SBATCH" in text else text.replace("ls", "srun ls") for text in texts]
    assert [text for text in told if not list_errors(text)] == []


def test_script_and_sbatch_agree_on_values_that_are_taken(slurm: SlurmCluster) -> None:
    answers = ask(slurm, [f"{HEAD}#SBATCH -N 1 -n 1 {option}\nhostname\n" for option in VALID_VALUES])
    known = ("node configuration is not available", "Job dependency problem")  # as there are no such nodes and jobs
    wrong = [(text, said) for text, said in answers.items() if said and not any(each in said for each in known)]
    assert not wrong


def test_script_and_sbatch_agree_on_values_that_are_refused(slurm: SlurmCluster) -> None:
    options = [each for each in REFUSED_VALUES if is_old(slurm) or each not in TAKEN_LATER]
    answers = ask(slurm, [f"{HEAD}#SBATCH {option}\nhostname\n" for option in options])
    assert len(answers) == len(options)
    wrong = [pair for pair in answers.items() if not pair[1] or "node configuration is not available" in pair[1]]
    assert not wrong


TOGETHER = [
    *("--gpus-per-task=1", "--gpus-per-socket=1", "--mem-per-gpu=1G", "--cpus-per-gpu=2", "--ntasks-per-gpu=1"),
    *("--distribution=arbitrary", "--gpus=2 --ntasks-per-gpu=1 --ntasks-per-node=2"),
    *("--gpus=2 --ntasks-per-gpu=1 --gpus-per-task=1", "--gpus=1 --cpus-per-gpu=2 -c 2", "-N 2 --gpus=1"),
    *("-N 2 --gpus=2 --gpus-per-node=2", "--gpus=3 --gpus-per-node=2", "--gpus=4 --gpus-per-task=1 -n 2"),
]
APART = [
    *("--gpus-per-task=1 -n 1", "--gpus-per-task=1 -N 2", "--gpus-per-task=0", "--mem-per-gpu=1G --gres=gpu:1"),
    *("--ntasks-per-gpu=1 -n 2", "-N 2 --gpus=4 --gpus-per-node=2", "--gpus=4 --gpus-per-node=2"),
    *("-N 2 -n 1 --gpus=1", "--gpus=2 --gpus-per-task=1 -n 2", "--cpus-per-gpu=2 --gpus=1"),
    *("--gres=gpu:1 --gpus=1",),
]


def test_script_and_sbatch_agree_on_options_together(slurm: SlurmCluster) -> None:
    texts = {f"{HEAD}#SBATCH {each}\nhostname\n": each in TOGETHER for each in (*TOGETHER, *APART)}
    answers, wrong = ask(slurm, texts), []
    for text, is_refused in texts.items():
        is_without_effect = "#SBATCH --cpus-per-gpu=2\n" in text and is_old(slurm)
        wanted = (is_refused and not is_without_effect, is_refused)
        if (bool(answers[text]), bool(list_errors(text))) != wanted:
            wrong.append((text, wanted, answers[text]))
    assert not wrong


def test_script_is_right_that_one_task_gets_all_cpus(slurm: SlurmCluster) -> None:
    user = slurm.user()
    text = f"{HEAD}#SBATCH -n 1 -c 4 -o step.txt\nsrun scontrol show step $SLURM_JOB_ID.0\n"
    job = user.read_program("sbatch", "--parsable", stdin=text).strip()
    slurm.wait_for_state(job, "COMPLETED")
    assert " CPUs=4 " in (user.home / "step.txt").read_text()
    assert not check_script(read_script(text))


def test_script_sums_up_reasons_for_mail_as_sbatch_does(slurm: SlurmCluster) -> None:
    user = slurm.user()
    text = f"{HEAD}#SBATCH --mail-type=END --mail-user=a@b.c\n#SBATCH --mail-type=FAIL --time=0\nsleep 1\n"
    job = user.read_program("sbatch", "--parsable", "--hold", stdin=text).strip()
    told = slurm.describe_job(job)
    user.read_program("scancel", job)
    read = convert_script(read_script(text)).job
    assert told["MailType"].lower().split(",") == list(read.mail_on) == ["end", "fail"]
    assert (told["TimeLimit"], read.time) == ("UNLIMITED", None)


def test_script_knows_every_option_of_sbatch(slurm: SlurmCluster) -> None:
    shown = slurm.user().read_program("sbatch", "--help")
    known = {word.partition("=")[0].partition("[")[0].rstrip(",.") for word in shown.split() if word.startswith("--")}
    assert known - set(OPTIONS) == set()
    assert {"--nodes", "--gres", "--mem-per-gpu"} <= set(VALUES)


def test_script_values_are_those_that_sbatch_reads(slurm: SlurmCluster) -> None:
    user = slurm.user()
    text = f"{HEAD}#SBATCH -J 'a \"b # c' -n 2 -t 1:30 # three\n#SBATCH -N 2\n#PBS -N late\nsleep 1\n"
    job = user.read_program("sbatch", "--parsable", "--hold", "--ignore-pbs", stdin=text).strip()
    told = user.read_program("squeue", "--noheader", "--jobs", job, "--format", "%j|%C").strip()
    user.read_program("scancel", job)
    read = convert_script(read_script(text.replace("#PBS -N late\n", ""))).job
    assert told == f"{read.name}|{read.tasks}" == 'a "b # c|2'
    assert read.time == 90  # which Slurm rounds up to minutes


def test_script_converted_for_slurm_is_taken(slurm: SlurmCluster, tmp_path: Path) -> None:
    old = (
        "#!/bin/bash\n#PBS -N moved -l select=2:ncpus=2:mpiprocs=2:ngpus=1:mem=100mb -l walltime=0:05:00 -J 1-3\n"
        "cd $PBS_O_WORKDIR\nexport A='it''s'\nmpirun -np 4 singularity exec --nv x.sif ./a.out --n 3\n"
    )
    job = convert_script(read_script(old), target="slurm").job
    home = slurm.user().home
    place = ScriptContext("", "/opt/kedge", "x.sif", "", str(home), f"{home}/{{name}}-{{id}}_{{index}}.out", "")
    text = find_backend("slurm").render(job, load_site("generic-slurm", find_folders({"HOME": str(tmp_path)})), place)
    done = slurm.user().run_program("sbatch", "--test-only", stdin=text)
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes=2" in text
    assert not list_errors(text)
