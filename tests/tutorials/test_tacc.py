# SPDX-License-Identifier: BSD-3-Clause
"""TACC's tutorial: Docker images with MPI, idev and ibrun, GPU tests, a classifier; every command as it is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.internet import PASSWORD, USERNAME, Internet
from tests.tutorials.lessons import Expect, Lesson
from tests.tutorials.page import check_page
from tests.tutorials.reader import Reader, add_programs, make_reader
from tests.tutorials.stand_ins import IBRUN, IDEV, MODULES, make_tar

_PATH = {"Env": ["PATH=/code:/usr/local/bin:/bin"]}
DOCKERFILE_MPI = """\
FROM tacc/tacc-ubuntu18-impi19.0.7-common:latest
RUN apt-get update && apt-get install -y python3-pip
RUN pip3 install mpi4py==3.1.4
COPY pi-mpi.py /usr/local/bin/
RUN chmod +rx /usr/local/bin/pi-mpi.py
"""
DOCKERFILE_BERT = """\
FROM tacc/tacc-ml:centos7-cuda10-tf2.4-pt1.7
RUN conda install -y transformers
WORKDIR /code
ENV PATH=/code:$PATH
COPY test.csv train.csv valid.csv /code/\x20
COPY bert_classifier.py /code
RUN chmod +rx /code/bert_classifier.py
"""
_PI = """\
#!/bin/sh
rank=${PMI_RANK:-${SLURM_PROCID:-0}}
echo "[$(hostname)-$rank] one of ${PMI_SIZE:-1} ranks, $1 samples${MPI_IS_SET_UP:+, MPI set up}"
"""
_BERT = """\
#!/bin/sh
case $1 in -h) echo "usage: bert_classifier.py [-h] [-d DEVICE] [-o OUTPUT] [-s SOURCE]"; exit ;; esac
echo "classifies $(ls /code/*.csv | wc -l) files on ${2:-cuda} in $(pwd)"
"""
_ENTRY = b'#!/bin/sh\nMPI_IS_SET_UP=1; export MPI_IS_SET_UP\nexec "$@"\n'
_STEP = {"apt-get": 'echo "apt-get $*"', "pip3": 'echo "pip3 $*"', "conda": 'echo "conda $*"'}
_PROMPT = r"<ready \w+@gpu0\d>"


def _ranks(count: int) -> str:
    return rf"-{count - 1}\] one of {count} ranks, 10000000 samples, MPI set up"


LESSON = Lesson(
    "004",
    "TACC: MPI and GPU containers",
    "Docker images with MPI, `idev` and `ibrun`, GPU tests with table and plot, a BERT classifier.",
    {
        71: Expect(before=(f"echo {PASSWORD} | docker login -u {USERNAME} --password-stdin",)),
        85: Expect(says=_ranks(1)),
        88: Expect(says=_ranks(2)),
        112: Expect(says=_PROMPT),
        128: Expect(says=_ranks(1)),
        131: Expect(says=_ranks(8)),
        134: Expect(says=_ranks(4), leaves=1),
        154: Expect(says=_PROMPT),
        157: Expect(
            before=("rm pi-estimator_0.1-mpi.sif",),
            note="the file of line 125 must be removed first, as with Apptainer, or `--force` replaces it",
        ),
        158: Expect(says="pi-estimator_0.1-mpi.sif"),
        165: Expect(save="pi-mpi.sbatch"),
        183: Expect(says="Submitted batch job"),
        189: Expect(
            says="JOBID",
            then="while squeue -h -u $USER | grep -q .; do sleep 1; done; cat calculate-pi-mpi.*",
            then_says=_ranks(8),
        ),
        (197, 0): Expect(before=("number=$(sbatch --parsable -p rtx --wrap 'sleep 300')",), says="wrap"),
        (197, 1): Expect(then="squeue -h -t R,PD -u $USER | wc -l", then_says="(?m)^0$"),
        231: Expect(says=_PROMPT),
        240: Expect(says="caffe device_query -gpu 0"),
        264: Expect(says=r"python tf_test.py"),
        305: Expect(says=r"python pytorch_matmul_scaling_test.py --no-gpu"),
        339: Expect(says=r"python pytorch_matmul_scaling_test.py", leaves=1),
        402: Expect(before=("cd bert",)),
        422: Expect(says="usage: bert_classifier.py"),
        439: Expect(says="classifies 3 files on cpu", then="cd ..", then_says=""),
        448: Expect(says=_PROMPT),
        464: Expect(says="classifies 3 files on cuda", leaves=1),
    },
    fills={"USERNAME": USERNAME, "[username]": USERNAME, "[job number]": "$number"},
)


@pytest.fixture
def reservation(slurm_lessons: SlurmCluster) -> Iterator[None]:
    """The one of the training, for as long as the test takes."""
    name = "Containers-Fall24"
    words = f"StartTime=now Duration=60 Nodes={slurm_lessons.nodes[0]} CoreCnt=8 Users={USERNAME}"
    slurm_lessons.read("scontrol", "create", "reservation", f"ReservationName={name}", *words.split())
    yield
    slurm_lessons.read("scontrol", "delete", f"ReservationName={name}")


@pytest.fixture
def reader(slurm_lessons: SlurmCluster, slurm_internet: Internet) -> Reader:
    """With TACC's commands, and the files that the tutorial has its readers download."""
    modules = MODULES.format(shims=slurm_lessons.user().home / "shims", openmpi="/nowhere")
    startup = slurm_lessons.folder / "modules.sh"
    startup.write_text(modules)
    reader = make_reader(
        slurm_lessons.user(),
        slurm_internet,
        "tacc",
        modules,
        BASH_ENV=str(startup),
        SCRATCH="/scratch/alice",
        USER=USERNAME,
    )
    add_programs(reader, {"idev": IDEV, "ibrun": IBRUN})
    for name, text in {"Dockerfile.mpi": DOCKERFILE_MPI, "pi-mpi.py": _PI}.items():
        reader.write(name, text, 0o644)
    files = {f"{name}.csv": f"label,text\n1,{name}\n" for name in ("test", "train", "valid")}
    for name, text in {"Dockerfile": DOCKERFILE_BERT, "bert_classifier.py": _BERT, **files}.items():
        reader.write(f"bert/{name}", text, 0o644)
    reader.user.read_program("mkdir", "-p", "/scratch/alice")
    return reader


def serve_images(internet: Internet) -> None:
    mpi = make_tar({"entry.sh": _ENTRY}, _STEP)
    section = {**_PATH, "Entrypoint": ["/bin/sh", "/entry.sh"]}
    internet.add_image("tacc/tacc-ubuntu18-impi19.0.7-common:latest", mpi, section)
    internet.add_image("tacc/tacc-ml:centos7-cuda10-tf2.4-pt1.7", make_tar(programs=_STEP), _PATH)
    data = {f"code/{name}.csv": b"label,text\n" for name in ("test", "train", "valid")}
    internet.add_image("eriksf/bert-classifier:0.0.1", make_tar(data, {"bert_classifier.py": _BERT}), _PATH)
    for name in (
        "nvidia/caffe:latest",
        "tensorflow/tensorflow:latest-gpu",
        "eriksf/pytorch:2.4.1-cuda12.1-cudnn9-runtime",
    ):
        internet.add_image(name, make_tar(), _PATH)
    for name in ("tf_test.py", "pytorch_matmul_scaling_test.py"):
        internet.files[f"/TACC/containers_at_tacc/master/docs/scripts/{name}"] = b"print()\n"


@pytest.mark.usefixtures("big_disks", "reservation")
def test_tacc(reader: Reader, slurm_internet: Internet) -> None:
    serve_images(slurm_internet)
    check_page(LESSON, reader.follow(LESSON))
