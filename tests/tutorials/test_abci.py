# SPDX-License-Identifier: BSD-3-Clause
"""ABCI's tutorial: NGC images under Grid Engine, MPI of host and container, locked images; every command as written."""

from __future__ import annotations

import pytest

from tests.cluster.gridengine_cell import GROUP, GridEngineCell
from tests.tutorials.internet import KEY, Internet
from tests.tutorials.lessons import Expect, Lesson
from tests.tutorials.page import check_page
from tests.tutorials.reader import Reader, make_reader
from tests.tutorials.stand_ins import make_tar

_NODE = r"<ready \w+@ge0\d>"
EXAMPLES = {
    "cnn_mnist.py": "/tensorflow/tensorflow/v1.15.5/tensorflow/examples/tutorials/layers/cnn_mnist.py",
    "tensorflow_mnist.py": "/horovod/horovod/v0.22.1/examples/tensorflow/tensorflow_mnist.py",
    "train_mnist.py": "/chainer/chainer/v4.0.0b1/examples/mnist/train_mnist.py",
}
_RANKS = "".join(rf"(?=[\s\S]*python tensorflow_mnist.py .* rank {rank} of 8\b)" for rank in range(8))
_FORGET = "unset SINGULARITY_DOCKER_USERNAME SINGULARITY_DOCKER_PASSWORD"
# At ABCI a shell of qrsh has the variables of its job; the login shell of this Grid Engine has none.
JOB_VARIABLES = """\
for file in {spool}/$(hostname)/active_jobs/*/environment; do
    [ -r "$file" ] || continue
    while IFS= read -r line; do
        case $line in PE*=*|NHOSTS=*|NSLOTS=*|JOB_*=*|ARC=*|TMPDIR=*|QUEUE=*|SGE_*=*) export "$line" ;; esac
    done < "$file"
done
"""
LESSON = Lesson(
    "002",
    "AIST ABCI: NGC",
    "Singularity under Grid Engine: resource types, the MPI of host and image, locked images.",
    {
        75: Expect(says=_NODE),
        78: Expect(says=r"python cnn_mnist.py", leaves=1),
        86: Expect(
            save="job.sh",
            typed="qsub -sync y -g grpname job.sh; cat job.sh.o*",
            says="python cnn_mnist.py",
            seconds=120,
        ),
        107: Expect(says=r"mpirun \(Open MPI\) 4.1.1rc1"),
        116: Expect(says="openmpi/4.0.5"),
        129: Expect(says=_NODE),
        137: Expect(says=_RANKS, leaves=1, seconds=120),
        161: Expect(save="mpi.sh", typed="qsub -sync y -g grpname mpi.sh; cat mpi.sh.o*", says=_RANKS, seconds=120),
        181: Expect(
            status=1,
            says="API key",
            note="the image is locked: without a key kedge says how to log in; with `NGC_API_KEY` set it works",
            then="NGC_API_KEY=<NGC API Key> docker pull nvcr.io/partners/chainer:4.0.0b1",
        ),
        211: Expect(
            before=("rm chainer_4.0.0b1.sif", _FORGET),
            keys=((r"user name.*: ?\Z", "$oauthtoken"), (r"(?i)(password|key).*: ?\Z", KEY)),
        ),
        221: Expect(says=_NODE),
        224: Expect(says="python train_mnist.py -g 0", leaves=1),
    },
    fills={"grpname": GROUP, "<NGC API Key>": KEY},
)


@pytest.fixture
def reader(abci_lessons: GridEngineCell, abci_internet: Internet, abci_modules: str) -> Reader:
    """With ABCI's modules on every host, and a real Open MPI behind one of them."""
    variables = JOB_VARIABLES.format(spool=abci_lessons.folder / "spool/execd")
    return make_reader(abci_lessons.user(), abci_internet, ".", variables + abci_modules)


def test_abci(reader: Reader, abci_internet: Internet) -> None:
    for name in ("nvidia/tensorflow:21.06-tf1-py3", "partners/chainer:4.0.0b1"):
        abci_internet.add_image(f"nvcr.io/{name}", make_tar())
    for name, path in EXAMPLES.items():
        abci_internet.files[path] = f"print('{name}')\n".encode()
    check_page(LESSON, reader.follow(LESSON))
