# SPDX-License-Identifier: BSD-3-Clause
"""Every rule finds what it is for, and leaves good scripts alone."""

from __future__ import annotations

import re

from kedge.cluster.site import Site
from kedge.cluster.sites.profile import find_folders, list_sites, load_site
from kedge.jobs.script import guess_site
from kedge.jobs.scripts.findings import ScriptFinding, Severity
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script, list_rules
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_shared

FOLDERS = find_folders({"HOME": "/nowhere"})
ABCI, FRONTERA, SDUMONT, ZIH = (load_site(name, FOLDERS) for name in ("abci2", "tacc-frontera", "sdumont", "zih-alpha"))


def check(text: str, site: Site | None = None, *, missing: tuple[str, ...] = ()) -> list[ScriptFinding]:
    """What is found; `missing` are paths that are not there."""
    return check_script(read_script(text), site, lambda path: path not in missing)


def rules_at(text: str, site: Site | None = None, *, missing: tuple[str, ...] = ()) -> set[tuple[str, int]]:
    return {(each.rule, each.line) for each in check(text, site, missing=missing)}


def slurm(directives: str = "", body: str = "srun hostname") -> str:
    lines = "".join(f"#SBATCH {line}\n" for line in directives.split("\n") if line)
    return f"#!/bin/bash\n{lines}{body}\n"


GPU = "-N 1 -n 1 --gpus-per-node=1 -t 0:10:00\n"

CASES = {
    "unsupported-scheduler": ("#!/bin/bash\n\n#BSUB -n 4 -W 1:00\nmpirun a\n", 3, None),
    "no-shebang": ("#SBATCH -N 1\nhostname\n", 1, None),
    "dos-lines": ("#!/bin/bash\n#SBATCH -N 1\r\nhostname\n", 2, None),
    "byte-order-mark": ("\ufeff#!/bin/bash\n#SBATCH -N 1\n", 1, None),
    "directive-after-command": (slurm("-N 1", "cd /x\n#SBATCH -t 5"), 4, None),
    "directive-not-read": ("#!/bin/bash\n#SBATCH -N 1\n #SBATCH -t 5\n", 3, None),
    "directive-disabled": ("#!/bin/bash\n#SBATCH -N 1\n##SBATCH -t 5\n", 3, None),
    "other-scheduler": ("#!/bin/bash\n#SBATCH -N 1\n#SBATCH -n 1\n#$ -cwd\n", 4, None),
    "variable-in-directive": (slurm("-o $HOME/%j.out"), 2, None),
    "hash-in-value": (slurm("--job-name=a#b"), 2, None),
    "refused-directive": (slurm("-N 1 two"), 2, None),
    "unknown-option": (slurm("--zippy=1"), 2, None),
    "added-option": (slurm("-N 1\n--container-image=x.sqsh"), 3, None),
    "misspelled-option": (slurm("--ntask-per-node=4"), 2, None),
    "refused-value": (slurm("--mem=1.5G"), 2, None),
    "overlooked-value": (slurm("--mail-type=END,FAILED"), 2, None),
    "repeated-option": (slurm("-N 1\n-N 2"), 2, None),
    "copied-dash": (slurm("-N 1", "singularity run \u2014nv x.sif"), 3, None),
    "gpus-on-several-nodes": (slurm("-N 2 --gpus=4"), 2, None),
    "memory-twice": (slurm("--mem=1G\n--mem-per-cpu=1G"), 3, None),
    "short-time": (slurm("--time=1:30"), 2, None),
    "time-in-minutes": (slurm("--time=90"), 2, None),
    "runs-in-home": ("#!/bin/bash\n#$ -N x\npython train.py\n", 2, None),
    "output-folder-missing": (slurm("-o logs/%j.out"), 2, None),
    "array-one-output": (slurm("--array=0-3 -o all.out"), 2, None),
    "masked-gpus": (slurm("--gpus-per-task=1", "srun python a.py --rank $SLURM_LOCALID"), 2, None),
    "tasks-not-started": (slurm("-n 4", "singularity exec x.sif python a.py"), 2, None),
    "lonely-option": (slurm("--gpus-per-task=1"), 2, None),
    "excluding-options": (slurm("--gpus=2 --cpus-per-gpu=2\n-c 2"), 3, None),
    "gpus-do-not-add-up": (slurm("-N 2\n--gpus-per-node=2 --gpus=3"), 3, None),
    "refused-by-site": (slurm("-p rtx -N 1 -n 1 -t 0:10:00\n--gres=gpu:4"), 3, FRONTERA),
    "missing-at-site": (slurm("-p rtx -n 1 -t 0:10:00"), 2, FRONTERA),
    "account-or-queue-missing": (slurm("-N 1 -n 1 -t 0:10:00"), 2, FRONTERA),
    "group-in-script": ("#!/bin/bash\n#$ -l rt_F=1\n#$ -g grp\n#$ -cwd\nls\n", 3, ABCI),
    "unknown-queue": (slurm("-p rtxx -N 1 -n 1 -t 0:10:00"), 2, FRONTERA),
    "retired-queue": ("#!/bin/bash\n#$ -l rt_F=1 -cwd\nls\n", 2, ABCI),
    "over-limit": (slurm("-p rtx-dev -N 1 -n 1 -t 4:00:00"), 2, FRONTERA),
    "queue-needs-gpus": (slurm("-p sequana_gpu -t 1:00:00"), 2, SDUMONT),
    "little-memory": (slurm("-p alpha --gres=gpu:1"), 2, ZIH),
    "hidden-path": (slurm("-p sequana_cpu -t 1:00:00", "cp /prj/me/x ."), 3, SDUMONT),
    "modules-not-set-up": ("#!/bin/bash\n#$ -l rt_F=1 -cwd\nmodule load singularitypro\n", 3, ABCI),
    "wrong-shell": ("#!/bin/sh\n#SBATCH -p rtx -N 1 -n 1 -t 0:10:00\nibrun ls\n", 1, FRONTERA),
    "wrong-launcher": (slurm("-p rtx -N 1 -n 1 -t 0:10:00", "srun ls"), 3, FRONTERA),
    "missing-nv": (slurm(GPU, "singularity exec x.sif python a.py"), 3, None),
    "nv-without-gpus": (slurm("-N 1", "singularity exec --nv x.sif python a.py"), 3, None),
    "wrong-node-rank": (
        slurm("-N 2 --ntasks-per-node=2", 'srun bash -c "NODE_RANK=\\${SLURM_PROCID} python a.py"'),
        3,
        None,
    ),
    "fixed-port": (slurm("-N 2", "export MASTER_PORT=29500\nsrun a"), 3, None),
    "processes-and-gpus": (
        slurm("-N 1 --gpus-per-node=8", "singularity exec --nv x.sif torchrun --nproc_per_node 4 a.py"),
        3,
        None,
    ),
    "mpirun-inside": (slurm("-N 2 -n 8", "singularity exec x.sif mpirun -np 8 a"), 3, None),
    "first-node-only": (slurm("-N 2", "singularity exec x.sif a"), 3, None),
    "srun-forgets-cpus": (slurm("-n 4 -c 8", "srun singularity exec x.sif a"), 3, None),
    "placeholder": (slurm("-N 1", "singularity exec -B /scratch/<user>:/data x.sif a"), 3, None),
    "old-variable": (slurm("-N 1", "echo $SLURM_JOBID"), 3, None),
    "missing-image": (slurm("-N 1", "IMG=gone.sif\nsingularity exec $IMG a"), 4, None),
    "remote-image": (slurm("-n 8", "srun singularity exec docker://python a"), 3, None),
    "pull-in-job": (slurm("-N 1", "singularity pull docker://python"), 3, None),
    "relative-bind": (slurm("-N 1", "singularity exec -B /scratch/me:data x.sif a"), 3, None),
    "secret-in-script": (slurm("-N 1", "export NGC_API_KEY=nvapi-0123456789abcdef"), 3, None),
}


@each_row("rule", [rule.id for rule in list_rules()])
def test_rules_find_what_they_are_for(rule: str) -> None:
    text, line, site = CASES[rule]
    assert (rule, line) in rules_at(text, site, missing=("logs", "gone.sif"))


GOOD = [
    (
        slurm(
            "-J a -o %x-%j.out -N 2 --ntasks-per-node=1 --gpus-per-node=4 -c 8 --mem=32G -t 1:00:00  # an hour",
            'srun -c "$SLURM_CPUS_PER_TASK" apptainer exec --nv x.sif torchrun --nnodes 2 a.py',
        ),
        None,
    ),
    ("#!/bin/bash\n#SBATCH -p rtx\n#SBATCH -N 2 -n 8 -t 1:00:00\nibrun apptainer exec --nv x.sif a\n", FRONTERA),
    ('#!/bin/bash\n#PBS -q rt_HF -P grp -l select=1 -l walltime=1:00:00\ncd "$PBS_O_WORKDIR"\nls\n', None),
    ("#!/bin/bash\n#$ -cwd -j y -l h_rt=1:00:00\n#$ -o $HOME/$JOB_ID.log\nls\n", None),
    (
        slurm(
            "-p alpha --gres=gpu:1 --mem=60G -t 8:00:00 -A p_x", "singularity exec --nv /data/horse/x.sif python a.py"
        ),
        ZIH,
    ),
]


@each_row(("text", "site"), GOOD)
def test_rules_leave_good_scripts_alone(text: str, site: Site | None) -> None:
    assert check(text, site) == []


def test_rules_never_show_a_secret() -> None:
    secret = "nvapi-AbCdEfGh0123456789"
    text = slurm(
        f"-p rtx --export=ALL,NGC_API_KEY={secret}\n--comment=$USER,{secret}\n--zippy={secret}",
        f"export DOCKER_PASSWORD='{secret}'\nWANDB_API_KEY=deadbeef00 srun a",
    )
    found = check(text, FRONTERA)
    assert {each.line for each in found if each.rule == "secret-in-script"} == {2, 3, 4, 5, 6}
    shown = " ".join(f"{each.message} {each.remedy}" for each in found)
    assert secret not in shown
    assert "deadbeef00" not in shown


@each_row(
    "line", ["export NGC_API_KEY=$KEY", "API_KEY=", "export HF_TOKEN=${T}", "TOKEN=$(cat ~/t)", "--password <you>"]
)
def test_rules_know_what_is_no_secret(line: str) -> None:
    assert "secret-in-script" not in {rule for rule, _ in rules_at(slurm("-N 1", line))}


def test_rules_know_sites_and_what_comes_unasked() -> None:
    found = check(slurm("-p sequana_gpu --gpus-per-node=6 -t 100:00:00 --exclusive"), SDUMONT)
    limits = [re.findall(r"\d\w*", each.message) for each in found if each.rule == "over-limit"]
    assert limits == [["4", "6"], ["4d", "4d4h"]]
    assert [each.severity for each in found if each.rule == "refused-by-site"] == [Severity.ERROR]
    times = check(slurm("-p sequana_gpu --gpus-per-node=1 -t 100:00:00"), SDUMONT)
    assert any("4d; 4d4h was requested" in each.message and "96:00:00" in each.remedy for each in times)
    text = slurm("-p rtx -N 1 -n 4 -t 0:10:00", "ibrun apptainer exec x.sif a")
    assert "missing-nv" in {rule for rule, _ in rules_at(text, FRONTERA)}
    text = slurm("-p rtx -N 1 -n 4 -t 0:10:00", "ibrun apptainer exec --nv x.sif a")
    assert "nv-without-gpus" not in {rule for rule, _ in rules_at(text, FRONTERA)}
    text = slurm("-N 1", "singularity pull x.sif docker://python\nsingularity exec x.sif a")
    assert "missing-image" not in {rule for rule, _ in rules_at(text, missing=("x.sif",))}
    found = {each.rule for each in check(LIGHTNING)}
    assert found == {"wrong-node-rank", "srun-forgets-cpus", "old-variable"}


def _all_sites() -> list[Site]:
    return [load_site(each.name, FOLDERS) for each in list_sites(FOLDERS) if not each.problem]


@each_row(("text", "name"), [
    (slurm("-p rtx -N 1 -n 8 -t 0:10:00", "module load tacc-apptainer\nibrun apptainer run x.sif a"),
     "tacc-frontera"),
    (slurm("--partition sequana_gpu_dev"), "sdumont"),
    ("#!/bin/sh\n#$ -l rt_F=1\nls\n", "abci2"),
    ("#!/bin/sh\n#PBS -q rt_HF\n#PBS -l select=1\nls\n", "abci3"),
    (slurm("-p gpu"), None),
    (slurm("-p alpha"), "zih-alpha"),
])  # fmt: skip
def test_rules_guess_the_site(text: str, name: str | None) -> None:
    guessed = guess_site(read_script(text), _all_sites())
    assert (guessed[0].name if guessed else None) == name


def _tutorial(name: str, first: str, last: str) -> str:
    """A script out of the text of a tutorial, without what its page puts before each line."""
    text = next(require_shared("tutorials").glob(f"{name}_*.txt")).read_text(errors="replace")
    found = re.search(rf"^([>\t ]*)({re.escape(first)}.*?{re.escape(last)}[^\n]*)$", text, re.M | re.S)
    assert found, f"the tutorial {name} has changed"
    lead = found[1]
    return (
        "\n".join(line.removeprefix(lead).removeprefix(lead.rstrip()) for line in (found[1] + found[2]).split("\n"))
        + "\n"
    )


@each_row(("name", "first", "last", "site", "expected"), [
    ("001", "#!/bin/bash\n> #SBATCH --job-name", "--batch_size 16'", SDUMONT, {"queue-needs-gpus", "placeholder"}),
    ("002", "#!/bin/sh\n#$ -l rt_F=1", "cnn_mnist.py\nsingularity", ABCI, {"retired-queue"}),
    ("002", "#!/bin/sh\n#$ -l rt_F=2", "mpirun -np 8", ABCI, {"retired-queue"}),
    ("004", "#!/bin/bash\n\n\t#SBATCH -J calculate-pi-mpi", "ibrun apptainer run", FRONTERA, {"missing-nv"}),
])  # fmt: skip
def test_rules_read_the_tutorials(name: str, first: str, last: str, site: Site, expected: set[str]) -> None:
    text = _tutorial(name, first, last)
    script = read_script(text)
    assert script.live
    assert script.containers
    assert {each.rule for each in check_script(script, site)} == expected
    assert guess_site(script, _all_sites()) is not None


LIGHTNING = slurm(
    "--job-name=two # its name\n--nodes=2\n--tasks-per-node=2 --gpus-per-node=2\n--mem=16GB\n--output=%x-%j.out\n"
    "--cpus-per-task=8\n--partition=gpu\n--time=00:30:00",
    "export MASTER_PORT=$(expr 10000 + $(echo -n ${SLURM_JOBID} | tail -c 4))\n"
    'srun --mpi=pmi2 apptainer exec --nv lightning.sif bash -c "export NODE_RANK=\\${SLURM_PROCID}; python a.py"',
)


def test_rules_are_in_the_guide_under_names_of_their_own() -> None:
    guide = (REPOSITORY / "docs" / "guides" / "scripts.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (.*?) \| (.*?) \|$", guide, re.M)
    expected = [(rule.id, rule.severity.value, _cell(rule.title), _cell(rule.remedy)) for rule in list_rules()]
    assert rows == expected
    assert len({rule.id for rule in list_rules()}) == len(list_rules()) == len(CASES)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


EIGHT = "-N 1 --gpus-per-node=8"


@each_row(("text", "site", "said", "remedy"), [
    (slurm(EIGHT, "singularity exec --nv x.sif python /workspace/multiproc.py --nproc_per_node 4 main.py"), None,
     "--nproc_per_node 4 leaves 4 of the 8 GPUs of each node idle",
     "write --nproc_per_node 8, or request 4 GPUs per node"),
    (slurm("-N 2 --gres=gpu:8", 'N=4\nsrun sh -c "torchrun --nproc-per-node=4 a.py"'), None,
     "--nproc-per-node 4 leaves 4 of the 8", "write --nproc-per-node 8"),
    (slurm(EIGHT, "PER=4\npython -m torch.distributed.launch --nproc_per_node=$PER a.py"), None,
     "--nproc_per_node 4 leaves 4 of the 8", ""),
    (slurm("-N 1 --gres=gpu:4", "torchrun --nproc_per_node=8 a.py"), None,
     "--nproc_per_node 8 starts more processes than the 4 GPUs of each node",
     "write --nproc_per_node 4, or request 8 GPUs per node"),
    ("#!/bin/bash\n#$ -l rt_F=2\n#$ -cwd\nmpirun -np 4 -npernode 2 singularity run --nv x.sif python a.py\n", ABCI,
     "-npernode 2 leaves 2 of the 4 GPUs of each node idle, unless each rank uses several", "write -npernode 4"),
    (slurm("-N 2 --gpus-per-node=4", "mpirun --map-by ppr:2:node singularity exec --nv x.sif a"), None,
     "--map-by ppr 2 leaves 2 of the 4", ""),
])  # fmt: skip
def test_rules_compare_processes_with_gpus(text: str, site: Site | None, said: str, remedy: str) -> None:
    [found] = [each for each in check(text, site) if each.rule == "processes-and-gpus"]
    assert found.message.startswith(said)
    assert found.remedy.startswith(remedy)


@each_row("text", [
    slurm(EIGHT, "torchrun --nproc_per_node=8 a.py"),
    slurm(EIGHT, "torchrun --nproc_per_node=gpu a.py"),
    slurm(EIGHT, "torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE a.py"),
    slurm(EIGHT, "echo --nproc_per_node_count 4"),
    slurm(EIGHT, "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=4 a.py"),
    slurm(EIGHT, "torchrun --nproc_per_node=4 a.py &\ntorchrun --nproc_per_node=4 b.py &\nwait"),
    slurm(EIGHT, "srun --gpus=4 torchrun --nproc_per_node=4 a.py"),
    slurm("-N 2 --gpus-per-node=4", "mpirun -npernode 1 singularity exec --nv x.sif torchrun a.py"),
    slurm("-N 2 --gpus-per-node=4", "mpirun -npernode 16 singularity exec --nv x.sif a"),  # ranks may share one
    slurm("-N 2 --gpus-per-node=4", "srun -N 2 singularity exec --nv x.sif a"),
    slurm("-N 1", "torchrun --nproc_per_node=4 a.py"),
])  # fmt: skip
def test_rules_leave_processes_alone_that_may_be_meant(text: str) -> None:
    assert "processes-and-gpus" not in {each.rule for each in check(text)}


@each_row("starter", [
    "torchrun", "python -m torch.distributed.launch", "python multiproc.py", "python /w/multiproc.py", "deepspeed",
    "sh -c 'torchrun'",
])  # fmt: skip
def test_rules_do_not_put_srun_before_what_starts_its_own_processes(starter: str) -> None:
    one = slurm("-N 1 --ntasks-per-node=8 --gres=gpu:8", f"singularity exec --nv x.sif {starter} a.py")
    assert not [each for each in check(one) if "srun" in each.remedy]
    two = slurm("-N 2 --ntasks-per-node=8 --gres=gpu:8", f"singularity exec --nv x.sif {starter} a.py")
    [found] = [each for each in check(two) if each.rule == "first-node-only"]
    assert "srun" not in found.remedy
    assert "kedge submit --torchrun --nodes" in found.remedy
    plain = slurm("-N 2 --gres=gpu:8", "singularity exec --nv x.sif python a.py")
    [found] = [each for each in check(plain) if each.rule == "first-node-only"]
    assert found.remedy.startswith("put srun")


def _rows() -> list[list[str]]:
    lines = (REPOSITORY / "bench" / "scripts.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def test_collection_is_whole_and_as_the_guide_says() -> None:
    rows = _rows()
    assert len(rows) >= 100
    assert len({(repository, path) for _, repository, _, path, _ in rows}) == len(rows)
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for _, _, commit, _, _ in rows)
    assert {kind for kind, *_ in rows} == {"tuned", "fresh"}
    guide = (REPOSITORY / "docs" / "guides" / "scripts.md").read_text()
    repositories = {repository for _, repository, *_ in _rows()}
    assert f"{len(_rows())} public scripts of {len(repositories)} repositories" in guide
    warnings = {rule.id for rule in list_rules() if rule.severity is Severity.WARNING}
    for *_, counts in _rows():
        for each in counts.split():
            rule, found, true = re.fullmatch(r"([\w-]+)=(\d+)/(\d+)", each).groups()  # type: ignore[union-attr]
            assert rule in warnings
            assert int(true) <= int(found)
