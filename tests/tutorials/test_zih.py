# SPDX-License-Identifier: BSD-3-Clause
"""ZIH Dresden's tutorial: NGC images with Singularity under Slurm, every command as it is written."""

from __future__ import annotations

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.internet import Internet
from tests.tutorials.lessons import Expect, Lesson
from tests.tutorials.page import check_page
from tests.tutorials.reader import make_reader
from tests.tutorials.stand_ins import CONDA_PATH, list_pytorch_files, make_tar

_TRAINED = (
    r"python /workspace/examples/resnet50v1.5/multiproc.py --nnodes=1 --nproc_per_node {} .* /data/imagenet \(GPUs {}"
)
_WORKSPACE = "/scratch/ws/mine/containers"
_IMAGENET = "/scratch/ws/0/anpo879a-ImgNet/imagenet"
_OTHER_IMAGENET = "/scratch/ws/0/marie-ImgNet/imagenet"
_BEEGFS = "/beegfs/global0/ws/marie-beegfs_container_storage/container_storage"
LESSON = Lesson(
    "000",
    "ZIH Dresden: NGC containers",
    "Singularity under Slurm, one GPU and several.",
    {
        80: Expect(says=r"<ready \w+@gpu0\d>"),
        82: Expect(before=(f"mkdir -p {_WORKSPACE} {_IMAGENET} {_OTHER_IMAGENET} {_BEEGFS}",)),
        100: Expect(
            before=("cp pytorch:21.08-py3.sif pytorch:21.06-py3_beegfs",), says="stand-in for the README", leaves=1
        ),
        107: Expect(
            before=(
                f"cp {_WORKSPACE}/pytorch:21.08-py3.sif pytorch:21.06-py3",
                f"cp pytorch:21.06-py3 {_BEEGFS}/pytorch:21.06-py3",
            ),
            says=r"<ready \w+@gpu0\d>",
        ),
        113: Expect(says="Singularity> |Apptainer> "),
        122: Expect(says=_TRAINED.format(1, "0"), leaves=2),
        135: Expect(says=_TRAINED.format(1, "0")),
        154: Expect(says=r"<ready \w+@gpu0\d>"),
        158: Expect(says=_TRAINED.format(8, "0,1,2,3,4,5,6,7"), leaves=1),
    },
    fills={"<name_of_your_workspace>": "mine"},
)


@pytest.mark.usefixtures("big_disks")
def test_zih(slurm_lessons: SlurmCluster, slurm_internet: Internet) -> None:
    tar = make_tar(list_pytorch_files("21.08-py3"))
    slurm_internet.add_image("nvcr.io/nvidia/pytorch:21.08-py3", tar, {"Env": [f"PATH={CONDA_PATH}"]})
    reader = make_reader(slurm_lessons.user(), slurm_internet, "zih")
    check_page(LESSON, reader.follow(LESSON))
