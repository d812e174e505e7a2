# SPDX-License-Identifier: BSD-3-Clause
"""ZIH's page, walked through on a real Slurm: every command of docs/sites/zih.md, and what its jobs did."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.internet import Internet
from tests.tutorials.lessons import Expect
from tests.tutorials.reader import add_programs
from tests.tutorials.site_images import TRAINING, SiteImages
from tests.tutorials.walks import FILE, OWN_HOST, Place, Walk, expect_job, make_walker

_NODE = r"<ready \w+@gpu0\d>"
_PICTURES = r"trained on 3 pictures \(30 bytes\) by {} on {}; GPUs {}"
_ALL = "0,1,2,3,4,5,6,7"
_ONE = expect_job(_PICTURES.format(1, r"gpu0\d", "0"))
_EIGHT = expect_job(_PICTURES.format(8, r"gpu0\d", _ALL))
_SIXTEEN = expect_job(_PICTURES.format(16, r"gpu01\+gpu02", _ALL))
# a shell in the container, with the data and a GPU
_LOOK = "ls /data/imagenet/train; echo $CUDA_VISIBLE_DEVICES on $(hostname)"
_INSIDE = Expect(says="Apptainer> ", then=_LOOK, then_says=r"cats[\s\S]*0 on gpu0")
_WS_ALLOCATE = """\
#!/bin/sh
# ZIH's: a directory for some days
mkdir -p /data/horse/ws/$USER-$1 && echo "/data/horse/ws/$USER-$1, remaining time in days: $2"
"""
WALK = Walk(
    "zih",
    {
        **OWN_HOST,
        "ws_allocate": Expect(says="remaining time"),
        "kedge config set": Expect(
            then="kedge config get scratch_directory", then_says="/data/horse/ws/bob-containers"
        ),
        "kedge alloc --gpus 1 --mem 50G --time 8h -B": _INSIDE,
        "cat": Expect(says="stand-in for the README"),
        "exit": Expect(),
        ("kedge submit ", 0): _ONE,
        "kedge submit --gpus 8": _EIGHT,
        "kedge status": Expect(says=r"completed on gpu0\d"),
        "kedge logs": Expect(says=_PICTURES.format(8, r"gpu0\d", _ALL)),
        "kedge submit --nodes 2": _SIXTEEN,
        "kedge submit --torchrun": expect_job(r"trained on 0 pictures \(0 bytes\) by 8 on gpu0\d; GPUs " + _ALL),
        "kedge alloc --gpus 1 --mem 50G --time 30m": Expect(says=_NODE),
        "kedge bench": Expect(says="2048 float64 .* GFLOP/s", leaves=1),
        # the tutorial's cluster
        "kedge alloc --queue alpha": Expect(
            before=("export KEDGE_SITE=zih-taurus",),
            says=_NODE,
            then="scontrol show job $SLURM_JOB_ID",
            then_says=r"TimeLimit=08:00:00[\s\S]*Partition=alpha [\s\S]*NumNodes=1 [\s\S]*MinMemoryNode=(5000|48)",
            leaves=1,
        ),
        "kedge alloc --queue alpha --gpus 1 --time 8h --mem 50000M -B": replace(_INSIDE, leaves=1),
        "kedge submit --queue alpha": _ONE,
        "kedge submit --contract multiproc --queue": _EIGHT,
        "kedge submit --contract multiproc --nodes 2": _SIXTEEN,
    },
    fills={"kedge-x86_64": FILE},
)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("big_disks")
def test_zih_page(slurm_lessons: SlurmCluster, slurm_internet: Internet, slurm_images: SiteImages) -> None:
    slurm_images.serve_pytorch("nvcr.io/nvidia/pytorch:21.06-py3", "1.9.0a0+c3d40fd")
    slurm_images.serve_pytorch("nvcr.io/nvidia/pytorch:24.12-py3", "2.6.0a0+df5bbc09d1.nv24.12")
    assert slurm_lessons.hosts is not None
    name = "login1.alpha.hpc.tu-dresden.de"
    local = slurm_lessons.hosts.local_disk
    walker = make_walker(slurm_lessons.user("bob"), slurm_internet, Place("zih", name), local, USER="bob")
    add_programs(walker.there, {"ws_allocate": _WS_ALLOCATE})
    for place in ("data/horse/ws", "scratch/ws/0/me"):
        for number in range(3):
            walker.there.write(f"{slurm_lessons.folder}/{place}/imagenet/train/cats/{number}.JPEG", "x" * 10, 0o644)
    for place in ("data/horse/ws", "scratch/ws", "scratch/ws/0"):  # others have theirs there
        (slurm_lessons.folder / place).chmod(0o1777)
    walker.there.write("train.py", TRAINING.decode())
    walker.follow(WALK)
    report = json.loads((walker.there.folder / "raport.json").read_text())
    assert report == {"pictures": 3, "bytes": 30, "processes": 16, "hosts": ["gpu01", "gpu02"]}
    assert list((slurm_lessons.folder / "data/horse/ws/bob-containers").rglob("*.sif")), "where the page says"
