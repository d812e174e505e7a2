# SPDX-License-Identifier: BSD-3-Clause
"""False alarms that scripts of others showed, each by a small script of the same kind; and what stays an alarm."""

from __future__ import annotations

from kedge.cluster.sites.profile import find_folders, load_site
from kedge.jobs.scripts.findings import Severity
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script, list_rules
from tests.builders.rows import each_row
from tests.builders.sbatch_values import REFUSED, VALID

CAPELLA = load_site("zih-capella", find_folders({"HOME": "/nowhere"}))


def slurm(directives: str = "", body: str = "srun hostname") -> str:
    lines = "".join(f"#SBATCH {line}\n" for line in directives.split("\n") if line)
    return f"#!/bin/bash\n{lines}{body}\n"


def rules_of(text: str, *, missing: tuple[str, ...] = ()) -> list[str]:
    return [each.rule for each in check_script(read_script(text), None, lambda path: path not in missing)]


WRITER = "for i in 1 2; do\ncat > job$i.sh <<EOF\n#!/bin/bash\n#SBATCH -t 5\nhostname\nEOF\nsbatch job$i.sh\ndone"
AMD = "#SBATCH -p standard-g --gpus-per-node=8\nsrun singularity exec rocm.sif python a.py"
QUIET = {
    "directives in a here document": ("directive-after-command", slurm("-N 1", WRITER)),
    "directives in quotes": ("directive-after-command", slurm("-N 1", "echo '#!/bin/bash\n#SBATCH -t 5\n' > a.sh")),
    "a comment that begins alike": (
        "directive-after-command",
        "#!/bin/bash\n#PBS -N x\nset -e\n#PBS_NCPUS=4 # unhash this\n",
    ),
    "a name that begins like a token": ("secret-in-script", slurm("", "tee -a hf_run_gpt2_base_n16_batch4_out.txt")),
    "a number of tokens": ("secret-in-script", slurm("", "MAX_TOKEN=4096 NUM_TOKEN=8k srun a")),
    "a file with a token": ("secret-in-script", slurm("", "export HF_TOKEN=/home/me/token.txt")),
    "a word for a token": (
        "secret-in-script",
        slurm("", "export EOS_TOKEN=endoftext\nexport HF_TOKEN=your-token-1234"),
    ),
    "a usage in a here document": ("placeholder", slurm("", "cat <<EOF\nusage: a <file>\nEOF")),
    "a usage that is printed": ("placeholder", slurm("", 'echo "usage: a <file>"')),
    "a usage in a condition": ("placeholder", slurm("", 'if [ $# -ne 2 ]; then echo "Usage: $0 <in> <out>"; fi')),
    "a usage in brackets": ("placeholder", slurm("", '[ -z "$1" ] && { echo "Usage: $0 <config>" >&2; exit 1; }')),
    "a message of a function": ("placeholder", slurm("", "[ -f x ] || die \"missing <file>\"\nlog_error 'no <file>'")),
    "a message of the shell": ("placeholder", slurm("", "IN=${1:?usage: a <file> <out>}")),
    "a mark in quotes": ("placeholder", slurm("", 'python a.py --tag "<bos>" --end \'<eos>\' \\\n  --pad "<pad>"')),
    "a pattern of sed": ("placeholder", slurm("", 'sed -i "s:<root>:$ROOT:" a.conf')),
    "an include": ("placeholder", slurm("", "%include <head.h>")),
    "a remark behind a directive": ("placeholder", slurm("-n 1 # tasks <required>", "ls")),
    "two redirections": ("placeholder", slurm("", "a <in > out")),
    "GPUs that srun asks for": ("nv-without-gpus", slurm("-N 1", "srun --gpus=1 singularity exec --nv x.sif a")),
    "GPUs that come with a partition": ("nv-without-gpus", slurm("-p a100", "singularity exec --nv x.sif a")),
    "GPUs of a PBS node": (
        "nv-without-gpus",
        "#!/bin/bash\n#PBS -l select=1\ncd $PBS_O_WORKDIR\nsingularity exec --nv x.sif a\n",
    ),
    "GPUs of AMD": ("missing-nv", f"#!/bin/bash\n{AMD}\n"),
    "mail for several reasons": ("repeated-option", slurm("--mail-type=begin\n--mail-type=end")),
    "one CPU": ("srun-forgets-cpus", slurm("-n 4 -c 1", "srun ./a")),
    "one task": ("srun-forgets-cpus", slurm("-N 2 -n 2 -c 8", "srun ./a")),
    "one task of a step": ("srun-forgets-cpus", slurm("-n 4 -c 8", "srun --ntasks=1 ./a")),
    "a step that needs no CPUs": ("srun-forgets-cpus", slurm("-n 4 -c 8", "srun mkdir -p /tmp/x")),
    "a small step in a shell": ("srun-forgets-cpus", slurm("-n 4 -c 8", "srun -l bash -c 'echo $(hostname)'")),
    "one thread": ("srun-forgets-cpus", slurm("-n 4 -c 8", "export OMP_NUM_THREADS=1\nsrun ./a")),
    "CPUs by masks": ("srun-forgets-cpus", slurm("-n 4 -c 8", "srun --cpu-bind=mask_cpu:0xfe ./a")),
    "another name of an option": ("refused-directive", slurm("--cluster=a")),
    "options in a variable": ("srun-forgets-cpus", slurm("-n 4 -c 8", "srun $SRUN_ARGS ./a")),
    "a port of the job's own": ("fixed-port", slurm("", 'export MASTER_PORT="1${SLURM_JOB_ID:0-4}"')),
    "minutes that are meant": ("short-time", slurm("--time=30:00")),
    "nothing in the directory": ("runs-in-home", "#!/bin/bash\n#PBS -N x\n/opt/a/bin/run /data/in.dat\n"),
    "ecFlow's own lines": ("runs-in-home", "#!/bin/bash\n#PBS -N x\n%include <head.h>\n/opt/run\n"),
    "PBS of NCI": ("runs-in-home", "#!/bin/bash\n#PBS -l walltime=1:00:00,wd\npython a.py\n"),
    "a dash in a remark": ("copied-dash", slurm("--mem=100 # see also \u2013mem-per-cpu")),
}


@each_row("name", QUIET)
def test_alarms_are_not_raised(name: str) -> None:
    rule, text = QUIET[name]
    assert rule in {each.id for each in list_rules()}
    assert rule not in rules_of(text)


LOUD = {
    "behind a here document": ("directive-after-command", slurm("-N 1", f"{WRITER}\n#SBATCH -t 5")),
    "a token": ("secret-in-script", slurm("", f"export HF_TOKEN=hf_{'aB3' * 12}")),
    "a password": ("secret-in-script", slurm("", "export DB_PASSWORD=hunter2")),
    "an account": ("placeholder", slurm("--account=<project code>")),
    "a path": ("placeholder", slurm("", 'DATA="<path to the data>"')),
    "an account in a name": ("placeholder", slurm("--account=<your_account>")),
    "a name in quotes": ("placeholder", slurm('-J "<name>"')),
    "a file": ("placeholder", slurm("", "python a.py <file>")),
    "a file beside a message": ("placeholder", slurm("", 'test -f x && python a.py <file> || echo "no <file>"')),
    "an option": ("placeholder", slurm("", "python a.py --account=<your_account>")),
    "several words in quotes": ("placeholder", slurm("", 'srun --container-mounts "<FOLDERS TO MOUNT>" a')),
    "no GPU in sight": ("nv-without-gpus", slurm("-N 1", "singularity exec --nv x.sif a")),
    "several CPUs": ("srun-forgets-cpus", slurm("-n 4 -c 8", "srun -l ./a")),
    "hours": ("short-time", slurm("--time=24:00")),
    "a resource twice": ("repeated-option", slurm("--gres=gpu:1\n--gres=gpu:2")),
}


@each_row("name", LOUD)
def test_alarms_stay_where_they_are_due(name: str) -> None:
    rule, text = LOUD[name]
    assert rules_of(text).count(rule) == 1


def test_alarms_are_raised_once() -> None:
    body = "IMG=gone.sif\n" + "singularity exec $IMG a\n" * 16
    assert rules_of(slurm("-N 1", body), missing=("gone.sif",)).count("missing-image") == 1
    text = slurm("-N 1 --mem=1G\nhetjob\n-N 2 --mem-per-cpu=1G --time=x")
    assert {each.rule for each in check_script(read_script(text))} == {"refused-value"}
    found = [each.message for each in check_script(read_script(slurm("-p capella -N 1 -t 1:00:00")), CAPELLA)]
    assert any("300M per CPU" in message for message in found)


@each_row("pattern", ["%u", "%N", "%x"])
def test_alarms_know_directories_with_patterns(pattern: str) -> None:
    text = slurm(f"-o logs/{pattern}/%j.out")
    assert "output-folder-missing" in rules_of(text, missing=(f"logs/{pattern}",))
    assert "output-folder-missing" not in rules_of(text)


@each_row("option", VALID)
def test_alarms_spare_values_that_sbatch_takes(option: str) -> None:
    found = check_script(read_script(slurm(f"-N 1 -n 1 {option}")))
    assert not [each.message for each in found if each.severity is Severity.ERROR]


@each_row("option", REFUSED)
def test_alarms_name_values_that_sbatch_refuses(option: str) -> None:
    found = check_script(read_script(slurm(option)))
    assert [each.line for each in found if each.severity is Severity.ERROR] == [2]


@each_row(
    ("option", "remedy"),
    [("--mpi=pmix", "srun"), ("--workdir=/x", "--chdir"), ("--zippy", "plugin"), ("--cpu-bind=cores", "srun")],
)
def test_alarms_say_what_to_do_about_unknown_options(option: str, remedy: str) -> None:
    found = [each for each in check_script(read_script(slurm(option))) if each.severity is Severity.ERROR]
    assert [each.rule for each in found] == ["unknown-option"]
    assert remedy in found[0].remedy


@each_row("text", ["#!/bin/bash\n#BSUB -n 4\nmpirun a\n", "#!/bin/sh\n#flux: -N 2\nflux run a\n"])
def test_alarms_say_that_a_scheduler_is_not_supported(text: str) -> None:
    found = check_script(read_script(text))
    assert [(each.rule, each.severity, each.line) for each in found] == [("unsupported-scheduler", Severity.ERROR, 2)]
