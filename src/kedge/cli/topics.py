# SPDX-License-Identifier: BSD-3-Clause
"""The pages that `kedge help TOPIC` shows: which there are, where they lie, and the sections in them."""

from __future__ import annotations

import re
from pathlib import Path

# topic -> (page below docs/, one line about it); in the order that `kedge help` lists them, one task each first
TASKS = {
    "first-gpu": ("tasks/first-gpu.md", "Run your first GPU container"),
    "ngc-keys": ("tasks/ngc-keys.md", "NGC keys and locked images"),
    "binds": ("tasks/binds.md", "See your data in the container"),
    "overlays": ("tasks/overlays.md", "Change an image without building it"),
    "small-images": ("tasks/small-images.md", "Build a small image"),
    "pip": ("tasks/pip.md", "Install Python packages without breaking the image"),
    "develop": ("tasks/develop.md", "Develop inside a container: editable installs, a shell on a node, VS Code"),
    "batch-jobs": ("tasks/batch-jobs.md", "Run a batch job, see its output and why it failed"),
    "mpi-nodes": ("tasks/mpi-nodes.md", "Run MPI on several nodes"),
    "ddp": ("tasks/ddp.md", "Train on several GPUs and nodes with torchrun"),
    "old-gpus": ("tasks/old-gpus.md", "Use an old GPU: K40, P100, V100"),
    "offline": ("tasks/offline.md", "Clusters without internet access"),
    "from-docker": ("tasks/from-docker.md", "For users of Docker"),
    "from-enroot": ("tasks/from-enroot.md", "For users of Enroot and Pyxis"),
}
GUIDES = {
    "install": ("guides/install.md", "Install kedge: one file for any cluster, uv, pip"),
    "run": ("guides/run.md", "Containers: directories, variables, writing, root, instances, many ranks"),
    "gpus": ("guides/gpus.md", "GPUs and fabrics: --nv, --rocm, --device, which cards, which driver files"),
    "build": ("guides/build.md", "Build images from definition files and Dockerfiles: cache, stages, secrets"),
    "pull": ("guides/pull.md", "Pull images: references, formats, architectures, offline, login nodes"),
    "registries": ("guides/registries.md", "Registries: NGC keys, logins, proxies, mirrors, certificates"),
    "formats": ("guides/formats.md", "Image formats: SIF, SquashFS, directories, OCI, and who reads which"),
    "datasets": ("guides/datasets.md", "Bring ImageNet, MNIST, CSV files or weights to the cluster, once and checked"),
    "host-images": ("guides/host-images.md", "Images made of this host's programs: host:"),
    "store": ("guides/store.md", "The cache: where it is, quotas, cleaning, unpacked images"),
    "signing": ("guides/signing.md", "Keys and signatures: sign, verify"),
    "explain": ("guides/explain.md", "Whether an image runs on a node, partition, GPU or driver"),
    "choosing": ("guides/choosing.md", "Find an image and the newest tag that runs"),
    "tables": ("guides/tables.md", "The data behind verdicts, its sources, and how to add rows"),
    "jobs": ("guides/jobs.md", "Jobs: kedge.toml, GPUs, MPI, torchrun, arrays, states, local queue"),
    "launch": ("guides/launch.md", "Many GPUs and nodes: MPI, torchrun, RANK and WORLD_SIZE, which launcher and why"),
    "records": ("guides/records.md", "Records of runs, running one again, and what jobs used of what they requested"),
    "failures": ("guides/failures.md", "When a job fails: kedge diagnose, and what it recognises"),
    "bench": ("guides/bench.md", "Measure GPU, CPU, ranks, network, container start and pull"),
    "mpi": ("guides/mpi.md", "MPI in containers: which ways to start ranks work, the host's MPI inside"),
    "sites": ("guides/sites.md", "Clusters: detection, partitions or queues, your own profile"),
    "zih": ("sites/zih.md", "ZIH Dresden: Alpha Centauri, Capella"),
    "sdumont": ("sites/sdumont.md", "LNCC Santos Dumont"),
    "abci": ("sites/abci.md", "AIST ABCI"),
    "tacc": ("sites/tacc.md", "TACC: Frontera, Lonestar6, Vista"),
    "nvidia-slurm": ("sites/nvidia-slurm.md", "Any Slurm cluster with GPUs, and NVIDIA's tutorial"),
    "scripts": ("guides/scripts.md", "Check and convert batch scripts"),
    "doctor": ("guides/doctor.md", "Every check of 'kedge doctor' and how to fix what it finds"),
    "troubleshooting": ("guides/troubleshooting.md", "Errors, what they mean, how to fix them"),
    "other-runtimes": ("guides/other-runtimes.md", "Drive Apptainer, Singularity, Enroot, Charliecloud or Podman"),
    "pyxis": ("guides/pyxis.md", "kedge as the importer of srun --container-image"),
    "workflow-tools": ("guides/workflow-tools.md", "Snakemake, Nextflow, cwltool, ReFrame, Parsl, Dask"),
    "jupyter": ("guides/notebooks.md", "Notebooks: kernels in containers and jobs, JupyterLab with its tunnel"),
    "from-singularity": ("guides/from-singularity.md", "For users of Singularity or Apptainer"),
    "from-tutorials": ("guides/from-tutorials.md", "Commands of cluster tutorials and what to type instead"),
    "python": ("guides/python.md", "kedge from Python: verbs as typed functions"),
    "jobs-python": ("guides/jobs-python.md", "Jobs from Python: submit, and functions that run on the cluster"),
    "kedge-toml": ("reference/kedge-toml.md", "Every key of kedge.toml"),
    "json": ("reference/json.md", "Every key of --json output"),
    "errors": ("errors.md", "Exit codes"),
    "compatibility": ("compatibility.md", "Differences from Apptainer"),
}

TOPICS = {**TASKS, **GUIDES}

# the guide of a verb that has no guide of its own name
VERB_GUIDES = {
    **dict.fromkeys(("exec", "shell", "test", "run-help", "instance", "overlay"), "run"),
    **dict.fromkeys(("submit", "alloc", "status", "logs", "wait", "cancel", "local-queue"), "jobs"),
    **dict.fromkeys(("search", "tags", "recommend"), "choosing"),
    **dict.fromkeys(("push", "registry", "remote", "delete"), "registries"),
    **dict.fromkeys(("recipe", "image", "commit"), "build"),
    **dict.fromkeys(("convert", "sif", "inspect"), "formats"),
    **dict.fromkeys(("cache", "unpack"), "store"),
    **dict.fromkeys(("sign", "verify", "key", "keyserver"), "signing"),
    "diagnose": "failures",
    "rerun": "records",
    "script": "scripts",
    "site": "sites",
    "data": "tables",
    "shim": "from-singularity",
    "bundle": "install",
    "upgrade": "install",
}

_HEADING = re.compile(r"(#{1,6}) (.+)")


def find_guide(verb: str) -> str | None:
    """The topic that explains a verb."""
    return verb if verb in TOPICS else VERB_GUIDES.get(verb)


def read_topic(topic: str) -> str:
    """The text of a guide: of the wheel, of the checkout that this is, or made from the code now."""
    if topic in ("errors", "kedge-toml"):
        from kedge.cli.made_pages import make_errors_page, make_keys_page  # late: guides need no code

        return make_errors_page() if topic == "errors" else make_keys_page()
    package = Path(__file__).resolve().parent.parent
    page = TOPICS[topic][0]
    installed = package / "docs" / page
    path = installed if installed.exists() else package.parent.parent / "docs" / page
    return path.read_text(encoding="utf-8")


def list_sections(text: str) -> dict[str, str]:
    """The sections of a guide by the anchors of their headings, each with what stands below it."""
    headings = _list_headings(text)
    lines = text.splitlines()
    sections: dict[str, str] = {}
    for index, (start, heading) in enumerate(headings):
        later = (line for line, other in headings[index + 1 :] if len(other[1]) <= len(heading[1]))
        anchor = re.sub(r"[^\w\- ]", "", heading[2].lower()).strip().replace(" ", "-")
        sections.setdefault(anchor, "\n".join(lines[start : next(later, len(lines))]) + "\n")
    return sections


def _list_headings(text: str) -> list[tuple[int, re.Match[str]]]:
    """The headings with the numbers of their lines; a comment in a block of code is none."""
    headings, is_code = [], False
    for number, line in enumerate(text.splitlines()):
        is_code ^= line.startswith("```")
        heading = None if is_code else _HEADING.fullmatch(line)
        if heading:
            headings.append((number, heading))
    return headings
