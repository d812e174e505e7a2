# SPDX-License-Identifier: BSD-3-Clause
"""SDumont's page, walked through on a real Slurm whose nodes do not see the home: docs/sites/sdumont.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.internet import Internet
from tests.tutorials.lessons import Expect
from tests.tutorials.site_images import TRAINING, SiteImages
from tests.tutorials.walks import FILE, LOGIN, OWN_HOST, Place, Walk, expect_job, make_walker

_SCRATCH = "/scratch/page/bob"
_ONE = expect_job(r"trained on 0 pictures \(0 bytes\) by 1 on gpu0\d; GPUs 0\b")
_INSIDE = Expect(
    says="Apptainer> ",
    then="ls cnn*; ls ~/.bashrc; echo $CUDA_VISIBLE_DEVICES on $(hostname)",
    then_says=r"cnn_gpus.py[\s\S]*No such file[\s\S]*0 on gpu0",
    leaves=1,
)
_PULL = "kedge pull {} docker://nvcr.io/nvidia/pytorch:22.03-py3"
WALK = Walk(
    "sdumont",
    {
        **OWN_HOST,
        "scp": Expect(is_elsewhere=True),
        "export PATH": Expect(then="type kedge", then_says=f"kedge is {_SCRATCH}/bin/kedge"),
        "kedge config set site sdumont2nd": Expect(
            then="kedge site detect && kedge config unset site && kedge site detect",
            then_says=r"sdumont2nd +requested[\s\S]*SITE +REASON\nsdumont ",
        ),
        "cd $SCRATCH": Expect(then="pwd -P", then_says=rf"(?m)^{_SCRATCH}$"),
        "kedge run": Expect(says="lolcow says moo"),
        "kedge registry login": LOGIN,
        "kedge recommend": Expect(says=r"nvcr.io/nvidia/pytorch:\d\d\.\d\d-py3"),
        "kedge alloc --queue sequana_gpu_dev --gpus 1 --time 20m docker:": _INSIDE,
        "kedge submit --queue sequana_gpu_dev --gpus 1 --cpus-per-task 10": _ONE,
        "kedge status": Expect(says=r"completed on gpu0\d"),
        "kedge logs": Expect(says=_ONE.then_says),
        "kedge submit --torchrun": expect_job(r"by 8 on gpu01\+gpu02; GPUs 0,1,2,3\b"),
        "kedge alloc --queue sequana_gpu_dev --gpus 1 --time 20m ": Expect(then="hostname", then_says=r"gpu0\d"),
        "kedge bench": Expect(says="2048 float64 .* GFLOP/s", leaves=1),
        # files that the tutorial has its readers pull
        "kedge alloc --queue sequana_gpu_dev --gpus 1 --time 20m pytorch": replace(
            _INSIDE, before=tuple(_PULL.format(name) for name in ("pytorch22.03.sif", "pytorch20.03.sif"))
        ),
        "kedge submit --name": replace(
            _ONE,
            then=f"{_ONE.then} && scontrol show job $(squeue -h -t all -n singularity_test -o %i | tail -n 1)",
            then_says=rf"{_ONE.then_says}[\s\S]*TimeLimit=00:20:00[\s\S]*Partition=sequana_gpu_dev[\s\S]*CPUs/Task=10 ",
        ),
        "kedge submit --queue sequana_gpu_dev --gpus 1 --time 20m docker:": _ONE,
    },
    fills={"kedge-x86_64": FILE, "PROJECT/USER": "page/bob"},
)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("big_disks")
def test_sdumont_page(slurm_lessons: SlurmCluster, slurm_internet: Internet, slurm_images: SiteImages) -> None:
    slurm_images.serve_pytorch("nvcr.io/nvidia/pytorch:22.03-py3", "1.12.0a0+2c916ef")
    slurm_images.serve("godlovedc/lolcow:latest", {}, {}, Cmd=["python3", "-c", "print('lolcow says', 'moo')"])
    hosts = slurm_lessons.hosts
    assert hosts is not None
    place = Place("sdumont", "sdumont11", "login.sdumont.lncc.br")
    walker = make_walker(
        slurm_lessons.user("bob"), slurm_internet, place, hosts.local_disk, USER="bob", SCRATCH=_SCRATCH
    )
    walker.there.write(f"{slurm_lessons.folder}{_SCRATCH}/cnn_gpus.py", TRAINING.decode())
    walker.there.write(f"{slurm_lessons.folder}{_SCRATCH}/train.py", TRAINING.decode())
    for node in slurm_lessons.nodes:
        hosts.run(node, "mount", "-t", "tmpfs", "tmpfs", str(walker.there.folder))
    walker.follow(WALK)
