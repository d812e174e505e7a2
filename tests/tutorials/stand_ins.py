# SPDX-License-Identifier: BSD-3-Clause
"""Stand-ins for images of gigabytes and for commands that only one site has: each says how it was called, and where."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.builders.containers import APPLETS, Runner
from tests.builders.learning_images import add_libraries
from tests.builders.once import make_once
from tests.builders.python_images import make_python_image
from tests.requirements import require_program

# programs of images, as shell scripts
PROGRAMS = {
    "nvidia-smi": "echo 'NVIDIA-SMI, a stand-in: no GPU is here'",  # in images, as no driver brings it
    "bash": 'exec sh "$@"',
    "vim": 'exec cat "$@"',
    "python": 'echo "python $* (GPUs ${CUDA_VISIBLE_DEVICES:-none}, $(pwd))"'
    '"${OMPI_COMM_WORLD_RANK:+ rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE}"',
    "caffe": 'echo "caffe $*"',
    "mpirun": """\
case $1 in --version) echo 'mpirun (Open MPI) 4.1.1rc1'; exit ;; esac
count=$2; shift 2
for rank in $(seq 0 $((count - 1))); do PMI_RANK=$rank PMI_SIZE=$count "$@"; done""",
    "pi-mpi.py": """\
rank=${PMI_RANK:-${SLURM_PROCID:-0}}
echo "[$(hostname)-$rank] pi of ${PMI_SIZE:-${SLURM_NTASKS:-1}} ranks, $1 samples${MPI_IS_SET_UP:+, set up}\"""",
    "bert_classifier.py": 'echo "bert_classifier $* in $(pwd)"',
}
# of NVIDIA's newer images of PyTorch alone: torchrun came with 1.10.0, after 21.08
OF_NEW_PYTORCH = {
    "torchrun": 'echo "torchrun $* on ${SLURMD_NODENAME:-$(hostname)}"',
    "all_reduce_perf_mpi": 'echo "all_reduce rank $PMI_RANK of $PMI_SIZE on ${SLURMD_NODENAME}: $*"',
}
# NVIDIA's PyTorch of the summer of 2021: by tag, the version that it states
_SUMMER_2021 = {"21.06-py3": "1.9.0a0+c3d40fd", "21.08-py3": "1.10.0a0+3fd9dcf"}
CONDA_PATH = "/opt/conda/bin:/usr/local/bin:/usr/bin:/bin"
_TORCH = "opt/conda/lib/python3.8/site-packages/torch"
_RESNET = "workspace/examples/resnet50v1.5"
APPLETS_BESIDE = ("sed", "awk", "tail", "seq", "cp", "mv", "find", "whoami", "tar", "expr", "vi", "cmp")
README = b"stand-in for the README of resnet50v1.5\n"


def list_pytorch_files(tag: str) -> dict[str, bytes]:
    """What NVIDIA's PyTorch of this tag has to start processes with, and the example of ZIH's tutorial.

    It is installed by conda. Of launchers it has `torch.distributed.run` and `launch`, and no program `torchrun`.
    """
    return {
        f"{_TORCH}/__init__.py": b"",
        f"{_TORCH}/version.py": f"__version__ = '{_SUMMER_2021[tag]}'\n".encode(),
        f"{_TORCH}/distributed/__init__.py": b"",
        f"{_TORCH}/distributed/launch.py": b'parser.add_argument("--use_env", action="store_true")\n',
        f"{_TORCH}/distributed/run.py": b"def main(): ...\n",
        f"{_RESNET}/README.md": README,
        f"{_RESNET}/main.py": b"",
        f"{_RESNET}/multiproc.py": b'os.environ["LOCAL_RANK"] = str(local_rank)\n',
    }


def make_tar(files: Mapping[str, bytes] | None = None, programs: Mapping[str, str] | None = None) -> bytes:
    """The only layer of an image: busybox, the tutorials' programs, and files."""
    scripts = {**PROGRAMS, **(programs or {})}
    names = [name for name in (*APPLETS, *APPLETS_BESIDE) if name not in scripts]
    return build.layer(
        *(
            build.folder(name)
            for name in ("bin", "etc", "workspace", "root", "tmp", "usr", "usr/local", "usr/local/bin")
        ),
        build.file("bin/busybox", read_busybox(), mode=0o755),
        *(build.symlink(f"bin/{name}", "busybox") for name in names),
        *(build.file(f"bin/{name}", f"#!/bin/sh\n{text}\n".encode(), mode=0o755) for name, text in scripts.items()),
        build.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
        build.file("etc/group", b"root:x:0:\n"),
        build.file("etc/os-release", b'PRETTY_NAME="a stand-in"\n'),
        *(build.file(path, data) for path, data in (files or {}).items()),
    )


# Commands of sites. `module load` puts kedge's shims on the PATH, as the module of Singularity or Apptainer would.
MODULES = """\
module() {{
    verb=$1; shift
    case $verb in
        avail) echo "openmpi/2.1.6 openmpi/3.1.6 openmpi/4.0.5(default)"; return ;;
    esac
    for name; do
        case $name in
            singularitypro|tacc-apptainer) PATH={shims}:$PATH ;;
            openmpi/*)
                PATH={openmpi}:$PATH
                # nodes that are played have fewer CPUs than the real ones
                export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1 ;;
            *) echo "module: unknown: $name" >&2; return 1 ;;
        esac
    done
    export PATH
}}
"""
IDEV = """\
#!/bin/bash
# TACC's idev: a shell on the first node of a new job
nodes=1 tasks=1
while getopts m:p:N:n:A:r: option; do
    case $option in
        m) time=$OPTARG ;; p) queue=$OPTARG ;; N) nodes=$OPTARG ;; n) tasks=$OPTARG ;; *) ;;
    esac
done
exec salloc -t "$time" -p "$queue" -N "$nodes" -n "$tasks" srun --interactive --preserve-env --pty bash
"""
IBRUN = """\
#!/bin/bash
# TACC's ibrun: mpirun over the hosts of the job; with -n COUNT fewer tasks
[ "$1" = -n ] && { count="--ntasks=$2"; shift 2; }
exec srun --mpi=pmi2 --overlap $count "$@"
"""


def make_python_layers(
    runner: Runner, files: Mapping[str, bytes], programs: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """Layers, also compressed: real programs of this host (Python, pip, curl), above them the stand-ins and files."""
    system = make_once("python-system.tar", lambda path: path.write_bytes(_pack_system(runner))).read_bytes()
    scripts = {name: text for name, text in {**PROGRAMS, **programs}.items() if name != "bash"}
    own = build.layer(
        *(build.file(f"usr/bin/{name}", f"#!/bin/sh\n{text}\n".encode(), mode=0o755) for name, text in scripts.items()),
        *(build.file(path, data) for path, data in files.items()),
    )
    packed = make_once("python-system.tgz", lambda path: path.write_bytes(build.compress(system))).read_bytes()
    return [(system, packed), (own, build.compress(own))]


def _pack_system(runner: Runner) -> bytes:
    tools = tuple(require_program(name) for name in ("bash", "curl", "make"))
    folder = make_python_image(runner, "python-tree", tools)
    (folder / "usr/local/bin").mkdir(parents=True, exist_ok=True)
    binaries = folder / "usr/bin"
    (binaries / "busybox").write_bytes(read_busybox())
    (binaries / "busybox").chmod(0o755)
    for name in (*APPLETS, *APPLETS_BESIDE):
        if not (binaries / name).exists():
            (binaries / name).symlink_to("busybox")
    _slim_python(folder)
    add_libraries(folder)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, ".", filter=_give_to_root)
    shutil.rmtree(folder)
    return buffer.getvalue()


def _slim_python(folder: Path) -> None:
    """Leave out what no reader uses, and compile pip, which else is compiled whenever it starts."""
    for pattern in ("test", "lib2to3", "pydoc_data", "idlelib", "ensurepip", "config-*"):
        for path in folder.glob(f"usr/lib/python3.*/{pattern}"):
            shutil.rmtree(path)
    words = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder)]
    subprocess.run(["/usr/bin/python3", *words, str(folder / "usr/lib/python3/dist-packages")], check=False)


def _give_to_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
