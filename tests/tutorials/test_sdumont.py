# SPDX-License-Identifier: BSD-3-Clause
"""SDumont's tutorial: Singularity from zero, NGC keys, binds, jobs; every command, also those that are wrong."""

from __future__ import annotations

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.internet import KEY, Internet
from tests.tutorials.lessons import Expect, Lesson
from tests.tutorials.page import check_page
from tests.tutorials.reader import make_reader
from tests.tutorials.stand_ins import make_tar

_DASHES = "the document's dashes before `{}` are broken, and salloc is Slurm's own; with `--` it works"
_RELATIVE = "the destination `my_scratch` is relative; kedge's error says to write `/my_scratch`, which works"
_ABSOLUTE = "absolute path; write .*:/my_scratch"
_SHELL = "(Singularity|Apptainer)> "
LESSON = Lesson(
    "001",
    "LNCC SDumont: containerization",
    "Singularity from zero: a first container, the key for NGC, binds, jobs, old GPUs.",
    {
        33: Expect(
            before=("kedge config set library_url https://library.sylabs.io",),
            note="SingularityCE presets the library of Sylabs, Apptainer and kedge preset none; name it once: "
            "`kedge config set library_url https://library.sylabs.io`",
        ),
        37: Expect(says="lolcow says moo"),
        41: Expect(says="lolcow says moo"),
        45: Expect(says=_SHELL),
        47: Expect(says="a stand-in", leaves=1),
        78: Expect(
            cannot=_DASHES.format("-nodes"),
            status=1,
            then="salloc --partition=sequana_gpu_dev --nodes=1 --job-name singularity_test",
            then_says="Granted job allocation",
        ),
        82: Expect(says=_SHELL, note="the broken dash of `-nv` is read as `--nv`, with a warning"),
        84: Expect(says="NVIDIA-SMI", leaves=1),
        92: Expect(
            before=("mkdir -p /scratch/ideeps/<user>/my_repo",),
            cannot=_RELATIVE,
            status=255,
            says=_ABSOLUTE,
            then="singularity shell -B /scratch/ideeps/<user>:/my_scratch pytorch22.03.sif",
            then_says=_SHELL,
            leaves=2,
        ),
        96: Expect(
            save="job.sbatch",
            before=("cp pytorch22.03.sif pytorch20.03.sif",),
            cannot=f"{_RELATIVE}; its repository has `cnn_gpus.py` and `--batch-size`",
            typed="sbatch --wait job.sbatch || cat slurm-*.out",
            says=_ABSOLUTE,
            then="sed -i s,my_scratch,/my_scratch,g job.sbatch; sbatch --wait job.sbatch; cat slurm-*.out",
            then_says=r"python cnn_gpu.py --epochs 5 --batch_size 16 \(GPUs none, /my_scratch/my_repo\)",
        ),
        (108, 0): Expect(
            cannot=_DASHES.format("-nodes"),
            status=1,
            then="salloc --partition=cpu_dev --nodes=1 --job-name singularity_pulling",
            then_says="Granted job allocation",
        ),
        (108, 1): Expect(before=("rm pytorch22.03.sif",), leaves=1),
    },
    fills={"<user>": "reader", "<NGC API key>": KEY},
)


@pytest.mark.usefixtures("big_disks")
def test_sdumont(slurm_lessons: SlurmCluster, slurm_internet: Internet) -> None:
    for name in ("nvcr.io/nvidia/pytorch:22.03-py3", "lucasfernandoaes/pytorch-legacy:1.6.0"):
        slurm_internet.add_image(name, make_tar())
    reader = make_reader(slurm_lessons.user(), slurm_internet, "sdumont")
    slurm_internet.add_image("godlovedc/lolcow:latest", make_tar(), {"Cmd": ["echo", "lolcow says moo"]})
    reader.user.read("pull", "lolcow.sif", "docker://godlovedc/lolcow", env=reader.environment)
    slurm_internet.library["godlovedc/funny/lolcow"] = (reader.user.home / "lolcow.sif").read_bytes()
    check_page(LESSON, reader.follow(LESSON))
