# SPDX-License-Identifier: BSD-3-Clause
"""Words of other tools, and what kedge calls the same: Docker, Podman, Apptainer, Enroot, schedulers, pip and conda.

Each line is a hint: one sentence, with a command that can be copied. Imported for a mistake only.
"""

from __future__ import annotations

_BUILD = "to build an image: kedge build OUTPUT.sif RECIPE, or kedge build -t NAME CONTEXT"
_JOBS = "to list jobs and their state: kedge jobs"
_STATUS = "to see why a job is pending or failed: kedge status JOB"
_CANCEL = "to cancel a job: kedge cancel JOB; to stop an instance: kedge instance stop NAME"
_SUBMIT = "to submit a job: kedge submit --time 1h IMAGE COMMAND; to check a script you have: kedge script check FILE"
_ALLOC = "to get a shell in a container on a compute node: kedge alloc --time 1h IMAGE"
_NODES = "to list the partitions or queues of this cluster: kedge site show"
_CACHE = "to list the images in the cache: kedge cache list"
_CLEAN = "to remove an image of the cache: kedge image rm NAME; unused items: kedge cache clean; an image file: rm FILE"
_INSTANCES = "to list running instances: kedge instance list; jobs: kedge jobs"
_START = "to start a container in the background: kedge instance start IMAGE NAME"
_LOGIN = "to log in to a registry: kedge registry login HOST"
_LOGOUT = "to log out of a registry: kedge registry logout HOST"
_INSTALL = "kedge installs no packages; to find an image that has one: kedge search WORD"
_INSIDE = "to run a command in a running instance: kedge exec instance://NAME COMMAND"
_UNPACK = "to unpack an image into a directory: kedge pull --sandbox DIRECTORY docker://NAME"
_RIGHTS = "containers have the rights of their caller: nobody can be given more, and --drop-caps takes away"

# a verb as typed elsewhere -> what to type instead
VERB_HABITS = {
    # Docker and Podman
    "ps": _INSTANCES,
    "top": "to see what an instance uses: kedge instance stats NAME",
    "stats": "to see what an instance uses: kedge instance stats NAME",
    "images": "to list the images of the cache and their names: kedge image list",
    "ls": f"{_CACHE}; instances: kedge instance list",
    "list": f"{_CACHE}; instances: kedge instance list; jobs: kedge jobs",
    "rmi": _CLEAN,
    "rm": _CLEAN,
    "remove": _CLEAN,
    "clean": _CLEAN,
    "prune": _CLEAN,
    "system": "to see what the cache holds: kedge cache show; to check this host: kedge doctor",
    "info": "to check this host: kedge doctor; versions: kedge version",
    "history": "to see what holds the bytes of an image: kedge image size IMAGE",
    "buildx": _BUILD,
    "make": _BUILD,
    "lint": "to check a recipe: kedge recipe lint FILE; a batch script: kedge script check FILE",
    "compose": "kedge has no compose files; start one instance per service: kedge instance start IMAGE NAME",
    "login": _LOGIN,
    "logout": _LOGOUT,
    "start": _START,
    "create": _START,
    "stop": _CANCEL,
    "kill": _CANCEL,
    "attach": _INSIDE,
    "enter": _INSIDE,
    "cp": "bind a directory and copy there: kedge exec --bind DIRECTORY IMAGE cp FILE DIRECTORY",
    "save": "an image is a file already: kedge pull FILE.sif docker://NAME; other formats: kedge convert FILE OUTPUT",
    "export": "to write an image in another format: kedge convert FILE OUTPUT",
    "load": "to run an archive of 'docker save': kedge run docker-archive:FILE.tar",
    "tag": "to give an image of the cache another name: kedge image tag NAME NEW; in a registry: kedge push FILE docker://NEW",
    "volume": "to make a host directory visible: kedge run --bind DIRECTORY IMAGE",
    "network": "containers use the host's network; without network: kedge run --net --network none IMAGE",
    # Apptainer and Singularity
    "buildcfg": "to list kedge's settings: kedge config show",
    "capability": _RIGHTS,
    "checkpoint": "DMTCP inside a container makes checkpoints: kedge exec IMAGE dmtcp_launch COMMAND",
    "oci": "to run an OCI layout: kedge run oci:DIRECTORY",
    "plugin": "kedge has no plugins",
    "apps": "to list the apps of an image: kedge inspect --list-apps IMAGE",
    "bootstrap": _BUILD,
    "spython": "to convert a recipe: kedge recipe convert FILE",
    # Enroot, Charliecloud, Shifter
    "import": "to pull an image into a SquashFS file: kedge pull FILE.sqsh docker://NAME",
    "ngc": "to log in: kedge registry login nvcr.io; to find images: kedge search --ngc WORDS, kedge tags NAME",
    "shifterimg": "to pull an image: kedge pull docker://NAME",
    "ch-run": "to run a command in a container: kedge exec IMAGE COMMAND",
    # schedulers
    "sbatch": _SUBMIT,
    "qsub": _SUBMIT,
    "bsub": _SUBMIT,
    "batch": _SUBMIT,
    "queue": _JOBS,
    "squeue": _JOBS,
    "qstat": _JOBS,
    "bjobs": _JOBS,
    "sacct": _STATUS,
    "qacct": _STATUS,
    "scontrol": _STATUS,
    "scancel": "to cancel a job: kedge cancel JOB",
    "qdel": "to cancel a job: kedge cancel JOB",
    "bkill": "to cancel a job: kedge cancel JOB",
    "srun": f"{_ALLOC}; inside a job: srun kedge exec IMAGE COMMAND",
    "salloc": _ALLOC,
    "qlogin": _ALLOC,
    "qrsh": _ALLOC,
    "sinfo": _NODES,
    "qhost": _NODES,
    "pbsnodes": _NODES,
    "nodes": _NODES,
    "partitions": _NODES,
    "queues": _NODES,
    # pip, conda, git, others
    "install": _INSTALL,
    "uninstall": _CLEAN,
    "activate": "to work inside an image: kedge shell IMAGE",
    "deactivate": "to leave a container's shell: exit",
    "env": "to see the variables of a container: kedge exec IMAGE env",
    "fetch": "to pull an image: kedge pull docker://NAME",
    "download": "to pull an image: kedge pull docker://NAME",
    "get": "to pull an image: kedge pull docker://NAME",
    "clone": "to pull an image: kedge pull docker://NAME",
    "extract": _UNPACK,
    "untar": _UNPACK,
    "show": "to see what an image holds: kedge inspect IMAGE",
    "check": "to check this host: kedge doctor; an image: kedge explain IMAGE; a script: kedge script check FILE",
    "info-image": "to see what an image holds: kedge inspect IMAGE",
    "settings": "to list settings and where each comes from: kedge config show",
    "setup": "to check this host and what is missing: kedge doctor",
    "init": "to write a profile of this cluster: kedge site init",
    "update": "to learn about new tags: kedge data update; to refresh an image: kedge pull --force docker://NAME",
    "man": "to list the guides: kedge help",
    "docs": "to list the guides: kedge help",
    "guide": "to list the guides: kedge help",
    # launching
    "mpirun": "inside a job: kedge launch IMAGE COMMAND; on this host: kedge launch --tasks 4 IMAGE COMMAND",
    "torchrun": "inside a job: kedge launch --torchrun IMAGE SCRIPT; as a job: kedge submit --torchrun IMAGE SCRIPT",
    "benchmark": "measure the ranks and their network: kedge bench allreduce IMAGE",
}

_TTY = "leave it out, as kedge uses your terminal: kedge exec IMAGE COMMAND"
_GPUS = "for NVIDIA GPUs add --nv, for AMD --rocm; CUDA_VISIBLE_DEVICES=0,1 chooses cards"
_BIND = "to make a host directory visible: --bind /data or --bind /data:/inside"
_DETACH = "to start a container in the background: kedge instance start IMAGE NAME"
_NAMED = "containers have no names; instances do: kedge instance start IMAGE NAME"
_PORTS = "leave it out: containers use the host's network, so every port is open already"
_USER = "leave it out: you are yourself inside; to appear as root: --fakeroot"
_RESOURCES = "'kedge submit' requests resources of a job: kedge submit --gpus 1 --time 1h IMAGE COMMAND"
_OUTPUT = "the output comes first: kedge pull FILE.sif docker://NAME"

# an option as typed elsewhere -> what to type instead; for verbs that start containers
CONTAINER_HABITS = {
    **dict.fromkeys(("-it", "-ti", "-t", "--tty", "--interactive"), _TTY),
    **dict.fromkeys(("--gpus", "--gpu", "--nvidia", "--cuda"), _GPUS),
    **dict.fromkeys(("--volume", "--volumes", "--mounts", "--container-mounts", "-b"), _BIND),
    "--rm": "leave it out, as kedge keeps nothing of a container",
    "--remove": "leave it out, as kedge keeps nothing of a container",
    **dict.fromkeys(("--detach", "--background", "--daemon"), _DETACH),
    **dict.fromkeys(("--name", "--container-name"), _NAMED),
    **dict.fromkeys(("--publish", "--port", "--ports", "--expose"), _PORTS),
    **dict.fromkeys(("--user", "--uid", "--container-remap-root", "--root"), _USER),
    **dict.fromkeys(("--rw", "--container-writable"), "to let programs write into the image: --writable-tmpfs"),
    "--read-only": "leave it out: images are read-only unless --writable or --writable-tmpfs is given",
    "--entrypoint": "to run another command than the image's own: kedge exec IMAGE COMMAND",
    "--container-entrypoint": "to run the image's default command: kedge run IMAGE",
    "--container-image": "the image needs no option: kedge exec IMAGE COMMAND",
    "--image": "the image needs no option: kedge exec IMAGE COMMAND",
    **dict.fromkeys(("--workdir-inside", "--container-workdir", "--chdir"), "to start in a directory: --pwd DIRECTORY"),
    "--shm-size": "leave it out: containers use the host's /dev/shm",
    "--ulimit": "leave it out: limits are those of your shell; change them there: ulimit -l unlimited",
    "--privileged": _RIGHTS,
    "--cap-add": _RIGHTS,
    "--cap-drop": "to take capabilities away: --drop-caps LIST",
    "--security-opt": "leave it out: containers have the rights of their caller",
    "--platform": "to choose an architecture: --arch arm64",
    "--restart": "kedge restarts nothing; in a job the scheduler does",
    "--init": "to have a process 1 that reaps the others: --pid",
    "--link": _PORTS,
    "--no-container-mount-home": "to leave the home directory out: --no-home",
    **dict.fromkeys(("--time", "--nodes", "--partition", "--account", "--ntasks", "--mem", "--walltime"), _RESOURCES),
}

_ENCRYPT = "kedge cannot write encrypted images"

# the same for single other verbs
OPTION_HABITS = {
    "build": {
        **dict.fromkeys(("-e", "--encrypt", "--passphrase", "--pem-path"), _ENCRYPT),
        **dict.fromkeys(("-r", "--remote"), "leave it out: builds run on this host, without root"),
        "--mksquashfs-args": "kedge does not use mksquashfs; to choose a compression: --compress gzip",
        "--squash": "leave it out: a SIF file is one file system; to keep files out, use a second stage",
        "--reproducible": "set the time of all files: SOURCE_DATE_EPOCH=0 kedge build OUTPUT RECIPE",
        **dict.fromkeys(("--cache-from", "--cache-to"), "leave it out: steps are cached in kedge's cache"),
        "--load": "leave it out: the image stays in kedge's cache under the name of -t",
        "--network": "leave it out: steps use the host's network; without network: RUN --network=none",
        **dict.fromkeys(("--rm", "--force-rm"), "leave it out, as kedge keeps nothing of a container"),
    },
    "pull": {
        **dict.fromkeys(("--output", "-o", "--out"), _OUTPUT),
        "--platform": "to choose an architecture: --arch arm64",
        "--all-tags": "kedge pulls one image at a time; to list tags: kedge tags NAME",
        "--tag": "the tag is part of the name: kedge pull docker://NAME:TAG",
    },
    "submit": {
        **dict.fromkeys(("--gres", "--gpu", "--ngpus"), "to request GPUs on each node: --gpus 4 or --gpus a100:4"),
        **dict.fromkeys(("--walltime", "--timelimit"), "to set the time limit: --time 2h"),
        **dict.fromkeys(("--cpus", "--cores", "--ncpus"), "to request CPUs for each task: --cpus-per-task 8"),
        "--ram": "to request memory on each node: --memory 64G",
        "--wrap": "the command follows the image: kedge submit --time 1h IMAGE COMMAND",
    },
    "push": {"--tag": "the tag is part of the name: kedge push FILE docker://HOST/NAME:TAG"},
    "logs": {"--tail": "to see the last lines only: kedge logs -n 20 JOB"},
}


def explain_option(verb: str, option: str) -> str | None:
    """The hint for an option that kedge's verb does not have."""
    if verb in ("exec", "run", "shell", "test", "start"):
        return CONTAINER_HABITS.get(option)
    return OPTION_HABITS.get(verb, {}).get(option)
