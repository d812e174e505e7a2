# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA's tutorial: building, overlays, pip constraints, developing inside, NCCL, DDP; every command as written."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from tests.builders.images import make_config
from tests.builders.python_images import write_wheel
from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.internet import PASSWORD, USERNAME, Internet
from tests.tutorials.lessons import Expect, Lesson
from tests.tutorials.nvidia_files import COMMANDS, DEVELOPED, SAMPLES, SHELL_IN_OVERLAY, TEXTS
from tests.tutorials.page import check_page
from tests.tutorials.reader import Reader, add_programs, make_reader
from tests.tutorials.site_images import PACKAGES
from tests.tutorials.stand_ins import OF_NEW_PYTORCH, make_python_layers

_SHELL = "Apptainer> "
_NODE = r"<ready \w+@gpu0\d>"
_LOADED = "loaded pt_bench from {}"
_CUDA = "cuda_12.4.1-devel-ubuntu22.04"
_SQSH = "nvidia+cuda+12.4.1-devel-ubuntu22.04.sqsh"
_CONFLICT = "ResolutionImpossible|conflicting dependencies"
_OWN = "2.3.0a0+40ec155e58.nv24.3"  # PyTorch as its image has it
_LOST = "No module named 'pt_bench'"
_NO_FILE = "the tutorial's repository has no such file; {} does what its Apptainer tab does"
_VARIABLES = ["PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH={PACKAGES}", "CURL_CA_BUNDLE=/etc/ca.crt"]
_CONFIG = {"Env": _VARIABLES, "Cmd": ["/bin/bash"]}
_NO_GPU = b"class cuda:\n    is_available = staticmethod(lambda: False)\n"
_PIP_CONF = b"[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n"


def _replaced(command: str, **more: object) -> Expect:
    """For files that were never written: the command that kedge's pages name."""
    return Expect(typed=command, note=_NO_FILE.format(f"`{command}`"), **more)  # type: ignore[arg-type]


LESSON = Lesson(
    "003",
    "NVIDIA: GPU containers on Slurm",
    "Building, stages, overlays, pip constraints, developing inside a container, NCCL, DDP, Lightning. Most commands "
    "are in files that the document links; their names stand before the commands.",
    {
        (34, 0): Expect(says=_NODE),
        (76, 0): Expect(says=_NODE, leaves=1, is_elsewhere=True),
        (76, 1): Expect(then=f"ls {_SQSH}"),
        90: Expect(says="NVIDIA-SMI"),
        120: Expect(says="NVIDIA-SMI, a stand-in: no GPU"),
        125: _replaced(f"enroot start {_SQSH} nvidia-smi", says="NVIDIA-SMI"),
        191: Expect(
            status=100,
            says="Permission denied",
            note="not on the host, as the tutorial says; inside the container of the next command it works",
        ),
        (201, 1): Expect(says=_SHELL, then="apt-get update && apt-get install -y curl", then_says="installs", leaves=1),
        (207, 1): Expect(leaves=1),
        215: Expect(before=(f"{SHELL_IN_OVERLAY} {_CUDA}.sif",)),
        221: Expect(leaves=1),
        (259, 1): Expect(says="nbody"),
        (305, 1): Expect(says="efficient"),
        (305, 2): Expect(before=(f"echo {PASSWORD} | docker login -u {USERNAME} --password-stdin",)),
        312: Expect(says="nbody-efficient.sif[\\s\\S]*nbody.sif"),
        (329, 0): Expect(says="NVIDIA-SMI"),
        (329, 1): Expect(says="nbody -benchmark -numbodies=2000000"),
        334: _replaced(
            "enroot import docker://${HUB_USER}/nbody:efficient && enroot start ${HUB_USER}+nbody+efficient.sqsh "
            "nbody -benchmark -numbodies=2000000",
            says="nbody -benchmark -numbodies=2000000",
        ),
        (379, 1): Expect(says=_SHELL),
        (379, 2): Expect(says="Successfully installed .*torch-2.9", leaves=1),
        (385, 1): Expect(says="Successfully installed .*torch-2.9"),
        (404, 2): Expect(says=_SHELL),
        (404, 4): Expect(status=1, says=_CONFLICT, leaves=1),
        410: _replaced(
            'docker run --rm nvcr.io/nvidia/pytorch:24.03-py3 bash -c "pip list --format=freeze > /root/base.txt; '
            'pip install -c /root/base.txt torch torchvision torchaudio"',
            status=1,
            says=_CONFLICT,
        ),
        (446, 1): Expect(note="the file pushes nbody:efficient again, and not the image that it has built"),
        473: Expect(says=_SHELL),
        479: _replaced(
            "ENROOT_MOUNT_HOME=y enroot start -m $PWD lightning.sqsh bash",
            before=("cd $MYDATA/containers", "kedge convert lightning.sif lightning.sqsh"),
            then="ls $HOME && ls lightning.sif && echo in ${APPTAINER_NAME:-none}",
            then_says="in lightning.sqsh",
            is_elsewhere=True,
            leaves=1,
        ),
        494: Expect(says=USERNAME),
        504: Expect(says="hello"),
        509: Expect(status=1, says="Read-only file system"),
        510: Expect(status=2, says="No such file"),
        513: Expect(status=2, says="No such file"),
        547: Expect(says=_OWN[:7]),
        563: Expect(says=_LOADED.format(".*/python_dev/pt_bench")),
        570: Expect(status=1, says=_LOST),
        583: Expect(says=_LOADED.format(r".*/\.local/")),
        599: Expect(says=_NODE),
        607: Expect(says=_SHELL),
        613: _replaced(
            "enroot start -m $PWD lightning.sqsh bash",
            then="ls lightning.sif && ! ls $HOME/.bashrc",
            then_says="No such file",
            is_elsewhere=True,
            leaves=1,
        ),
        625: Expect(status=1, says=_LOST),
        632: Expect(says=_LOADED.format(r".*/\.local/")),
        649: Expect(says=r"New Change[\s\S]*" + _LOADED.format(".*/python_dev/pt_bench")),
        659: Expect(status=1),
        (686, 0): Expect(before=("cd $MYDATA/containers",), says="(?=[\\s\\S]*rank 0 of 2)(?=[\\s\\S]*rank 1 of 2).*"),
        (686, 1): Expect(says=r"(?=[\s\S]*rank 0 of 2)(?=[\s\S]*rank 1 of 2 .* -g 2)"),
        692: _replaced(
            "srun -p gpu -N 2 -n 2 --gpus-per-node 1 --mpi=pmi2 --container-image=$PWD/lightning.sqsh "
            "all_reduce_perf_mpi -b 1G -e 4G -f 2 -g 1",
            says=r"(?=[\s\S]*rank 0 of 2)(?=[\s\S]*rank 1 of 2).*",
        ),
        707: Expect(
            typed="sbatch --wait pt_ddp_example.sbatch; cat pt_ddp_example-*.out",
            says=r"torchrun --nnodes 2 --nproc_per_node 2 --rdzv_id \d+ --rdzv_backend c10d --rdzv_endpoint gpu01:1",
        ),
        743: Expect(
            typed="sbatch --wait ptl_ddp_example.sbatch; cat ptl_ddp_example-*.out",
            says="lightning -N 2 -p 2 NODE_RANK 3",
            note="it runs, but with two tasks per node `NODE_RANK=$SLURM_PROCID` is no node rank; "
            "`kedge script check` says to use `$SLURM_NODEID`",
            then="kedge script check ptl_ddp_example.sbatch || true",
            then_says="SLURM_NODEID",
        ),
    },
    files=COMMANDS,
    has_two_terminals=True,
)


@pytest.fixture
def reader(slurm_lessons: SlurmCluster, slurm_internet: Internet) -> Reader:
    """In $MYDATA/containers are the files that the tutorial has its readers download."""
    user = slurm_lessons.user()
    data = Path("/scratch/nvidia")
    user.read_program("mkdir", "-p", f"{data}/containers")
    reader = make_reader(user, slurm_internet, "nvidia", MYDATA=str(data), HUB_USER=USERNAME, USER=USERNAME)
    add_programs(reader, {"nvidia-smi": "#!/bin/sh\necho 'NVIDIA-SMI, a stand-in: no GPU is here'\n"})
    shared = slurm_lessons.folder / "scratch/nvidia/containers"
    for name, text in TEXTS.items():
        reader.write(f"{shared}/{name}", text, 0o644)
    (shared / "python_dev.tar.gz").write_bytes(DEVELOPED)
    return reader


def serve_images(reader: Reader, internet: Internet, folder: Path, **programs: str) -> None:
    """The same layers for all: Python with PyTorch's stand-in, and wheels that replace or extend it."""
    write_wheel(folder, "torch", "2.9.0")
    write_wheel(folder, "torchvision", "0.24.0", requires=("torch==2.9.0",))
    write_wheel(folder, "torchaudio", "2.9.0", requires=("torch==2.9.0",))
    write_wheel(folder, "lightning", "2.5", requires=("torch>=2.0.0a0",))
    files = {f"wheels/{path.name}": path.read_bytes() for path in folder.iterdir()}
    with zipfile.ZipFile(write_wheel(folder / "own", "torch", _OWN)) as archive:
        places = {name: f"usr/lib/python3/dist-packages/{name}" for name in archive.namelist()}
        files |= {place: archive.read(name) for name, place in places.items()}
    files["usr/lib/python3/dist-packages/torch.py"] += _NO_GPU
    files |= {"etc/pip.conf": _PIP_CONF, "etc/ca.crt": internet.certificate.read_bytes(), "workspace/README": b""}
    files["root/.curlrc"] = f"proxy = {internet.proxy}\ncacert = /etc/ca.crt\n".encode()
    programs = {
        **OF_NEW_PYTORCH,
        "apt-get": 'echo "apt-get $*: installs nothing"',
        "python": 'exec python3 "$@"',
        "pip": 'exec python3 -m pip "$@"',
        **programs,
    }
    layers = make_python_layers(reader.user, files, programs)
    config = make_config([tar for tar, _ in layers], _CONFIG)
    for name in ("cuda:12.4.1-devel-ubuntu22.04", "cuda:12.4.1-base-ubuntu22.04", "pytorch:24.03-py3"):
        internet.add_layers(f"nvcr.io/nvidia/{name}", [packed for _, packed in layers], config)
    internet.files["/NVIDIA/cuda-samples/archive/refs/tags/v12.4.1.tar.gz"] = SAMPLES


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("big_disks")
def test_nvidia(reader: Reader, slurm_internet: Internet, tmp_path: Path) -> None:
    serve_images(reader, slurm_internet, tmp_path)
    cache = Path(f"/tmp/{USERNAME}_apptainer_cache")  # the tutorial's own words; users differ from run to run
    shutil.rmtree(cache, ignore_errors=True)
    try:
        check_page(LESSON, reader.follow(LESSON))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
