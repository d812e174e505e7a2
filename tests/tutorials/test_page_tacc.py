# SPDX-License-Identifier: BSD-3-Clause
"""TACC's page, walked through on a real Slurm that refuses what TACC refuses: docs/sites/tacc.md.

The MPI is this host's MPICH, the family of TACC's Intel MPI; as there, only the image's entry point sets it up.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.requirements import require_program
from tests.tutorials.internet import PASSWORD, USERNAME, Internet
from tests.tutorials.lessons import Expect
from tests.tutorials.reader import add_programs
from tests.tutorials.site_images import TRAINING, HostLayers, SiteImages
from tests.tutorials.stand_ins import IBRUN, IDEV
from tests.tutorials.test_tacc import DOCKERFILE_BERT, DOCKERFILE_MPI
from tests.tutorials.walks import FILE, OWN_HOST, Place, Walk, Walker, expect_job, make_walker

_PI = """\
#!/usr/bin/env python3
import socket, sys
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
points = numpy.random.default_rng(world.rank).random((int(sys.argv[1]) // world.size // 10, 2))
inside = world.reduce(int(((points**2).sum(1) <= 1).sum()))
hosts = world.gather(socket.gethostname())
if world.rank == 0:
    print("pi is", round(4 * inside / len(points) / world.size, 1), "by", world.size, "ranks on", *sorted(set(hosts)))
"""
_BERT = """\
#!/usr/bin/env python3
import argparse, csv, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("-s", "--source", default="/code")
given = parser.parse_args()
files = sorted(pathlib.Path(given.source).glob("*.csv"))
print("classified", sum(len(list(csv.DictReader(path.open()))) for path in files), "texts of", len(files), "files")
"""
_DEVICES = b"import os\nprint('devices of', os.environ.get('APPTAINER_NAME', 'nothing'), 'are', 'unknown')\n"
# of Intel MPI: without it neither mpirun nor the library is found
_ENTRY = """\
#!/bin/sh
export PATH=/opt/impi/bin:$PATH LD_LIBRARY_PATH=/opt/impi/lib LD_PRELOAD=/opt/impi/close.so
exec "$@"
"""
# MPICH before 4.2 may wait for ever when it closes connections of UCX over TCP: they are left to the kernel
_CLOSE = "void *ucp_disconnect_nb(void *end) { return 0; }\n"
_SET_UP = """\
#!/bin/sh
mkdir -p /opt/impi/lib
ln -sf /usr/lib/*/libmpich.so.12 /opt/impi/lib/libmpi.so.12
echo "$0 $*: nothing to install"
"""
_INSTALLED = b'#!/bin/sh\necho "$0 $*: nothing to install"\n'
_NODE = r"<ready \w+@gpu0\d>"
_ALONE = expect_job(r"pi is 3\.1 by 8 ranks on gpu0\d\n")
_BOTH = expect_job(r"pi is 3\.1 by 16 ranks on gpu01 gpu02\n")
_CLASSIFIED = "classified 3 texts of 3 files"
_CANCEL = Expect(
    before=("kedge submit --queue rtx --nodes 1 --tasks 1 --time 10m - sleep 600",),
    says="Cancelled job",
    then="kedge wait; squeue -h -t R,PD | wc -l",
    then_says="(?m)^0$",
)
_BUILT = r"push \w+: [\s\S]* steps, "
_LOGIN = (("user name", USERNAME), ("password", PASSWORD))
WALK = Walk(
    "tacc",
    {
        **OWN_HOST,
        "kedge registry login docker.io": Expect(is_elsewhere=True, keys=_LOGIN, says="logged in"),
        "kedge build -t USERNAME/pi-estimator": Expect(is_elsewhere=True, says=_BUILT),
        "kedge run docker://USERNAME/pi-estimator": Expect(is_elsewhere=True, says=r"pi is 3\.1 by 2 ranks on head"),
        "kedge alloc --queue rtx --nodes 1": Expect(
            says=_NODE, then="echo $SLURM_JOB_PARTITION $SLURM_NTASKS", then_says="rtx 8", leaves=1
        ),
        "kedge submit --mpi --runscript --queue rtx --nodes 1 ": _ALONE,
        "kedge submit --mpi --runscript --queue rtx --nodes 2": _BOTH,
        "kedge jobs": Expect(says=r"completed"),
        ("kedge logs", 0): Expect(says=_BOTH.then_says),
        "kedge cancel": _CANCEL,
        "kedge search": Expect(says="tacc/tacc-ubuntu18-impi19.0.7-common"),
        "kedge alloc --queue rtx-dev": Expect(says=_NODE),
        "wget": Expect(then="cat tf_test.py", then_says="import os"),
        "kedge exec --nv docker://tensorflow": Expect(says="devices of tensorflow.* are unknown"),
        "kedge exec --nv docker://nvidia/caffe": Expect(says="no GPU for caffe"),
        "kedge bench matmul --device": Expect(says="2048 float64 .* GFLOP/s"),
        "kedge bench matmul --plot": Expect(
            says="2048 float64 .* GFLOP/s", then="head -c 60 matmul.svg", then_says="<svg", leaves=1
        ),
        "kedge build -t USERNAME/bert": Expect(is_elsewhere=True, before=("cd bert",), says=_BUILT),
        "kedge run docker://USERNAME/bert": Expect(is_elsewhere=True, says="usage: bert_classifier.py"),
        "kedge submit --nv --queue rtx --nodes 1 --tasks 1": expect_job(_CLASSIFIED),
        # a process for each GPU, and where there is none, one
        "kedge submit --torchrun": expect_job(r"by 2 on gpu01\+gpu02;"),
        "kedge bench nbody": Expect(says="4096 bodies float32 .*FLOP/s", leaves=1),
        # files that the tutorial has its readers pull
        "kedge submit --mpi --runscript --queue rtx --nodes 1 --tasks 8 --time 10m pi": replace(
            _ALONE,
            before=tuple(
                f"kedge pull {name.replace(':', '_')}.sif docker://{USERNAME}/{name}"
                for name in ("pi-estimator:0.1-mpi", "bert-classifier:0.0.1")
            ),
        ),
        "ibrun": Expect(
            before=("kedge alloc --queue rtx --nodes 1 --tasks 8 --time 60m",), says=_ALONE.then_says, leaves=1
        ),
        "kedge submit ": replace(
            _ALONE,
            then=f"{_ALONE.then} && cat calculate-pi-mpi.[0-9]*",
            then_says=f"{_ALONE.then_says}[\\s\\S]*{_ALONE.then_says}",
        ),
        "kedge submit --nodes 2 --tasks 16": _BOTH,
        ("kedge logs", 1): Expect(says=_BOTH.then_says),
        "kedge submit --queue rtx --gpus 4": expect_job(_CLASSIFIED),
        ("kedge logs", 2): Expect(says=_CLASSIFIED),
    },
    fills={"kedge-x86_64": FILE, "USERNAME": USERNAME},
)


def serve_images(images: SiteImages, internet: Internet, folder: Path) -> None:
    (folder / "close.c").write_text(_CLOSE)
    made = folder / "close.so"
    subprocess.run([require_program("gcc"), "-shared", "-fPIC", "-o", made, folder / "close.c"], check=True)
    programs = {"entry.sh": _ENTRY.encode(), "usr/bin/apt-get": _SET_UP.encode(), "usr/bin/pip3": _INSTALLED}
    programs |= {"opt/impi/close.so": made.read_bytes(), "opt/impi/bin/mpirun": b'#!/bin/sh\nexec mpirun.mpich "$@"\n'}
    name = "tacc/tacc-ubuntu18-impi19.0.7-common:latest"
    images.serve(name, {}, programs, mpi="mpich", Entrypoint=["/bin/sh", "/entry.sh"])
    images.serve("tacc/tacc-ml:centos7-cuda10-tf2.4-pt1.7", {}, {"usr/bin/conda": _INSTALLED})
    images.serve("tensorflow/tensorflow:2.17.0-gpu", {}, {})
    images.serve("nvidia/caffe:latest", {}, {"usr/bin/caffe": b"#!/bin/sh\necho no GPU for caffe $*\n"})
    images.serve_pytorch("eriksf/pytorch:2.4.1-cuda12.1-cudnn9-runtime", "2.4.1")
    internet.files["/TACC/containers_at_tacc/master/docs/scripts/tf_test.py"] = _DEVICES


def write_files(walker: Walker) -> None:
    """What the tutorial has its readers download, on their own host and at TACC."""
    texts = {f"bert/{name}.csv": f"label,text\n1,{name}\n" for name in ("test", "train", "valid")}
    texts |= {"Dockerfile.mpi": DOCKERFILE_MPI, "pi-mpi.py": _PI}
    texts |= {"bert/Dockerfile": DOCKERFILE_BERT, "bert/bert_classifier.py": _BERT}
    for name, text in texts.items():
        walker.own.write(name, text, 0o644)
    walker.there.write("train.py", TRAINING.decode())


@pytest.mark.timeout(900)
def test_tacc_page(
    frontera: SlurmCluster, frontera_internet: Internet, host_layers: HostLayers, tmp_path: Path
) -> None:
    serve_images(SiteImages(host_layers, frontera_internet), frontera_internet, tmp_path)
    assert frontera.hosts is not None
    place = Place("tacc", "login1.frontera.tacc.utexas.edu", "frontera.tacc.utexas.edu")
    user, local = frontera.user("bob"), frontera.hosts.local_disk
    scratch = user.folder.with_name("bob-tacc") / "there/scratch"
    walker = make_walker(user, frontera_internet, place, local, USER="bob", SCRATCH=str(scratch))
    walker.there.write(f"{scratch}/a-file", "")
    add_programs(walker.there, {"idev": IDEV, "ibrun": IBRUN})
    write_files(walker)
    walker.follow(WALK)
    assert list((scratch / "kedge/images").rglob("pi-estimator*.sif")), "where the page says"
