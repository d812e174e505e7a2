# SPDX-License-Identifier: BSD-3-Clause
"""The files that NVIDIA's tutorial links: the commands in them, and stand-ins for recipes and programs, of our own.

Recipes have the shape of the originals: bases, stages and steps are the same, what is compiled is a script.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

_CUDA = "nvcr.io/nvidia/cuda:12.4.1"
_PYTORCH = "nvcr.io/nvidia/pytorch:24.03-py3"
_SAMPLES = "https://github.com/NVIDIA/cuda-samples/archive/refs/tags/v12.4.1.tar.gz"
_CONSTRAIN = """pip list | awk '{print$1"=="$2}' | tail +3 > /root/base_constraints.txt"""
_INTERACTIVE = "srun -p {} -n 1 -G 1 --cpus-per-task 16 -t 03:00:00 --pty bash -l"
_OVERLAY = "${APPTAINER_CACHEDIR}/pytorch_24.03_overlay"
_INSTALL = "pip install torch torchvision torchaudio"
_NCCL = "apptainer exec --nv lightning.sif all_reduce_perf_mpi -b 1G -e 4G -f 2"
SHELL_IN_OVERLAY = "apptainer shell --fakeroot --overlay ${APPTAINER_CACHEDIR}/cuda-devel_overlay"
COMMANDS: dict[str, tuple[str, ...]] = {
    "prep_apptainer.sh": (
        _INTERACTIVE.format("interactive"),
        "export APPTAINER_CACHEDIR=/tmp/${USER}_apptainer_cache",
        "mkdir -p ${MYDATA}/containers",
        "cd ${MYDATA}/containers",
        f"apptainer pull docker://{_PYTORCH}",
    ),
    "prep_docker.sh": (f"docker pull {_PYTORCH}",),
    "pull_apptainer.sh": (f"apptainer pull docker://{_CUDA}-devel-ubuntu22.04",),
    "pull_enroot.sh": (
        _INTERACTIVE.format("gpu"),
        "enroot import docker://nvcr.io#nvidia/cuda:12.4.1-devel-ubuntu22.04",
    ),
    "nvidia-smi_apptainer.sh": ("apptainer exec --nv cuda_12.4.1-devel-ubuntu22.04.sif nvidia-smi",),
    "interactive_build_apptainer.sh": (
        "mkdir -p ${APPTAINER_CACHEDIR}/cuda-devel_overlay",
        f"{SHELL_IN_OVERLAY} cuda_12.4.1-devel-ubuntu22.04.sif",
    ),
    "interactive_build_docker.sh": (
        f"docker pull {_CUDA}-devel-ubuntu22.04",
        f"docker run --rm -it {_CUDA}-devel-ubuntu22.04 bash -l",
    ),
    "build_nbody_apptainer.sh": ("apptainer build nbody.sif Definition.nbody",),
    "build_nbody_docker.sh": ("docker build -t ${HUB_USER}/nbody -f Dockerfile.nbody .", "docker images | grep nbody"),
    "build_nbody-efficient_apptainer.sh": ("apptainer build nbody-efficient.sif Definition.nbody-efficient",),
    "build_nbody-efficient_docker.sh": (
        "docker build -t ${HUB_USER}/nbody:efficient -f Dockerfile.nbody-efficient .",
        "docker images | grep nbody",
        "docker push ${HUB_USER}/nbody:efficient",
    ),
    "run_nbody_apptainer.sh": (
        "apptainer exec --nv nbody-efficient.sif nvidia-smi",
        "apptainer exec --nv nbody-efficient.sif nbody -benchmark -numbodies=2000000",
    ),
    "pip-install_apptainer.sh": (
        f"mkdir -p {_OVERLAY}",
        f"apptainer shell --fakeroot --overlay {_OVERLAY} pytorch_24.03-py3.sif",
        _INSTALL,
    ),
    "pip-install_docker.sh": (f"docker run --rm -it {_PYTORCH} bash -l", _INSTALL),
    "pip-constraints_apptainer.sh": (
        f"rm -rf {_OVERLAY}",
        f"mkdir -p {_OVERLAY}",
        f"apptainer shell --fakeroot --overlay {_OVERLAY} pytorch_24.03-py3.sif",
        _CONSTRAIN,
        "pip install -c /root/base_constraints.txt torch torchvision torchaudio",
    ),
    "build_lightning_apptainer.sh": ("apptainer build lightning.sif Definition.lightning",),
    "build_lightning_docker.sh": (
        "docker build -t ${HUB_USER}/lighting:latest -f Dockerfile.lightning .",
        "docker push ${HUB_USER}/nbody:efficient",
    ),
    "lightning_interactive-apptainer.sh": ("apptainer shell --nv lightning.sif",),
    "lightning_interactive_nohome-apptainer.sh": ("apptainer shell --nv -c -B $PWD:$PWD lightning.sif",),
    "nccl-apptainer.sh": (
        f"srun -p gpu -N 2 -n 2 --gpus-per-node 1 --mpi=pmi2 {_NCCL} -g 1",
        f"srun -p gpu -N 2 -n 2 --mem=32G --gpus-per-node h100:2 --mpi=pmi2 {_NCCL} -g 2",
    ),
}
_GET = f"""\
curl -sL {_SAMPLES} -o /root/v12.4.1.tar.gz && tar -C /root -xzf /root/v12.4.1.tar.gz"""
_APT = "apt-get update && apt-get install -y --no-install-recommends"
_MAKE = "cd /root/cuda-samples-12.4.1/Samples/5_Domain_Specific/nbody && make && mv nbody /usr/local/bin"
_BUILD = f"%post\n\t{_APT} \\\n\t\tfreeglut3-dev libgl1-mesa-dev curl\n\t{_GET}\n\t{_MAKE}"
_SBATCH = """\
#!/bin/bash
#SBATCH --job-name={name}        # create a short name for your job
#SBATCH --nodes=2                # node count
#SBATCH --gpus-per-node=2
#SBATCH --mem={memory}
#SBATCH --tasks-per-node={tasks}
#SBATCH --output=%x-%j.out
#SBATCH --partition=gpu
#SBATCH --time=00:30:00          # total run time limit (HH:MM:SS)

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$(expr 10000 + $(echo -n ${{SLURM_JOBID}} | tail -c 4))
"""
TEXTS = {
    "Definition.nbody": f"Bootstrap: docker\nFrom: {_CUDA}-devel-ubuntu22.04\n\n{_BUILD}",
    "Definition.nbody-efficient": f"""\
Bootstrap: docker
From: {_CUDA}-devel-ubuntu22.04
Stage: builder

{_BUILD}

# Change to the base image
Bootstrap: docker
From: {_CUDA}-base-ubuntu22.04

%post
	{_APT} freeglut3 libgl1

# Copy the program
%files from builder
	/usr/local/bin/nbody /usr/local/bin/nbody
""",
    "Dockerfile.nbody": f"FROM {_CUDA}-devel-ubuntu22.04\nRUN {_APT} freeglut3-dev curl\nRUN {_GET}\nRUN {_MAKE}\n",
    "Dockerfile.nbody-efficient": f"""\
FROM {_CUDA}-devel-ubuntu22.04 AS builder
RUN {_APT} freeglut3-dev
ADD {_SAMPLES} /root
RUN tar -C /root -xzf /root/v12.4.1.tar.gz
RUN {_MAKE}
FROM {_CUDA}-base-ubuntu22.04
RUN {_APT} freeglut3 libgl1
COPY --from=builder /usr/local/bin/nbody /usr/local/bin/nbody
""",
    "Definition.lightning": f"""\
# with what PyTorch's image has
Bootstrap: docker
From: {_PYTORCH}

%post
	{_CONSTRAIN}
	pip install -c /root/base_constraints.txt lightning
""",
    "Dockerfile.lightning": f"""\
FROM {_PYTORCH}
RUN {_CONSTRAIN}
RUN pip install -c /root/base_constraints.txt lightning
""",
    "pt_ddp_example.sbatch": _SBATCH.format(name="pt_ddp_example", memory="32GB", tasks=1)
    + """\
export WORLD_SIZE=$(($SLURM_JOB_NUM_NODES * $SLURM_GPUS_ON_NODE))
srun --mpi=pmi2 apptainer exec --nv lightning.sif \\
    torchrun --nnodes ${SLURM_JOB_NUM_NODES} --nproc_per_node ${SLURM_GPUS_ON_NODE} --rdzv_id $RANDOM \\
    --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:${MASTER_PORT} pt_ddp_example.py
""",
    "ptl_ddp_example.sbatch": _SBATCH.format(name="ptl_ddp_example", memory="16GB", tasks=2)
    + """\
srun --mpi=pmi2 apptainer exec --nv lightning.sif bash -c \\
    "export NODE_RANK=\\${SLURM_PROCID}; python ptl_ddp_example.py -N $SLURM_JOB_NUM_NODES -p ${SLURM_GPUS_ON_NODE}"
""",
    "ptl_ddp_example.py": "import os, sys\nprint('lightning', *sys.argv[1:], 'NODE_RANK', os.environ['NODE_RANK'])\n",
}
_BENCH = "import pt_bench\nprint('loaded pt_bench from', pt_bench.__file__)\n"
_DEVELOPED = {
    "python_dev/self_contained.py": "import torch\nprint('torch', torch.VERSION)\n",
    "python_dev/bench.py": _BENCH,
    "python_dev/setup.py": "import setuptools\nsetuptools.setup(name='pt_bench', packages=['pt_bench'])\n",
    "python_dev/pt_bench/__init__.py": "",
}
_PLACE = "cuda-samples-12.4.1/Samples/5_Domain_Specific/nbody"
_SAMPLE = {
    f"{_PLACE}/Makefile": "nbody: nbody.sh\n\tcp nbody.sh nbody && chmod 755 nbody\n",
    f"{_PLACE}/nbody.sh": '#!/bin/sh\necho "nbody $*: a stand-in for the sample"\n',
}


def pack(files: Mapping[str, str]) -> bytes:
    """A tar.gz of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


DEVELOPED, SAMPLES = pack(_DEVELOPED), pack(_SAMPLE)
