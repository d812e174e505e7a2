# SPDX-License-Identifier: BSD-3-Clause
"""What container runtimes say when they cannot start."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, POSSIBLE, Failure

CONTAINERS = (
    Failure(
        "kedge-refused",
        r"^kedge: (?!warning)([^\n]{1,300})(?:\n {2,}[^\n]*){0,3}\nhint: ([^\n]{1,300})",
        cause="{1} (kedge's own message)",
        remedy="{2}",
        source="kedge",
        examples=(
            "kedge: no such file or directory: /nosuch.sif\nhint: check the spelling; give an image in a registry as "
            "docker://ubuntu:22.04",
        ),
    ),
    Failure(
        "no-user-namespaces",
        r"Failed to create user namespace: .{0,80}|user namespace(?:s)? (?:requires?|are|is) .{0,40}(?:disabled|not)"
        r"|newuidmap.{0,80}(?:failed|Operation not permitted)|unshare: unshare failed: Operation not permitted"
        r"|could not create user namespace|enroot-nsenter: failed to create user namespace|max_user_namespaces",
        cause="that node does not let users make user namespaces, which containers without root need",
        remedy="'kedge doctor' on that node names the setting; tell the administrators, or use another partition",
        source="https://github.com/apptainer/apptainer/issues/2370",
        examples=(
            "FATAL:   while extracting image: root filesystem extraction failed: ERROR  : Failed to create user "
            "namespace: "
            "not allowed to create user namespace",
            "unshare: unshare failed: Operation not permitted",
        ),
        sure=LIKELY,
    ),
    Failure(
        "apparmor-namespaces",
        r"write(?:\(\)|ing)? .{0,30}/proc/\d*(?:self)?/?uid_map.{0,40}(?:Operation not permitted|Permission denied)"
        r"|apparmor_restrict_unprivileged_userns|could not (?:set|write) (?:uid|user) map",
        cause="AppArmor (Ubuntu 23.10 and newer) keeps programs from using user namespaces",
        remedy="'kedge doctor' on that node says so in detail; the administrators allow it with "
        "kernel.apparmor_restrict_unprivileged_userns=0 or a profile",
        source="https://github.com/apptainer/apptainer/issues/2027",
        examples=(
            "ERROR  : Could not write info to setgroups: Permission denied\n"
            "could not write user map: open /proc/self/uid_map: Permission denied",
        ),
        sure=LIKELY,
    ),
    Failure(
        "no-fuse",
        r"fuse: device not found|failed to open /dev/fuse|squashfuse.{0,80}(?:failed|not found|exited)"
        r"|fusermount3?: .{0,60}(?:Operation not permitted|not found|failed)",
        cause="that node cannot mount images by FUSE: /dev/fuse or fusermount is missing",
        remedy="kedge unpacks the image on such nodes by itself; with Apptainer use a directory (sandbox) "
        "instead of a "
        "SIF; 'kedge doctor' on that node says more",
        source="runtime facts: threads about FUSE",
        examples=(
            "fuse: device not found, try 'modprobe fuse' first",
            "fusermount: mount failed: Operation not permitted",
        ),
        sure=LIKELY,
    ),
    Failure(
        "no-image-file",
        r"could not open image (\S+?): .{0,80}no such file|image (?:file )?['\"]?(\S+?\.(?:sif|sqsh"
        r"|img))['\"]?.{0,40}"
        r"(?:does not exist|no such file|not found)|failed to stat .{0,20}(\S+?\.(?:sif|sqsh))|lstat (\S+?\.sif)",
        cause="the image file is not on that node: it lies on a disk of another node, or was moved",
        remedy="put it on a file system that all nodes share; 'kedge submit' stages it there",
        source="workflow facts: distributed launch; Apptainer",
        examples=(
            "FATAL:   could not open image /tmp/pytorch.sif: failed to retrieve path for /tmp/pytorch.sif: lstat "
            "/tmp/pytorch.sif: no such file or directory",
        ),
    ),
    Failure(
        "bind-source",
        r"mount (\S+?)->(\S+?) error|while mounting .{0,120}(?:no such file|doesn't exist)|bind (?:source|path) "
        r"\S+ does not"
        r" exist|mount source (\S+?) doesn't exist|cannot bind (\S+)",
        cause="a directory that should be bound into the container does not exist on that node",
        remedy="check --bind, APPTAINER_BIND and SINGULARITY_BIND for paths of another cluster; 'kedge exec "
        "--dry-run' "
        "shows all mounts",
        source="Apptainer",
        examples=(
            "FATAL:   container creation failed: mount /scratch/me->/scratch/me error: while mounting "
            "/scratch/me: mount "
            "source /scratch/me doesn't exist",
        ),
    ),
    Failure(
        "program-not-in-image",
        r"executable file not found in \$PATH|exec: \"([^\"]{1,100})\": (?:stat|executable)|failed to run "
        r"command ['‘](\S+?)['’]"
        r": No such file|the image has no (?:program|command) '?(\S+?)'?\b",
        cause="the image does not have the program that was to be started",
        remedy="'kedge exec IMAGE which PROGRAM' shows where it is; python3 instead of python; bind the "
        "directory that has "
        "it",
        source="Apptainer, Docker",
        examples=('FATAL:   "train.py": executable file not found in $PATH',),
    ),
    Failure(
        "nvidia-hook",
        r"nvidia-container-cli: (?!requirement error)([^\n]{1,100})|enroot-\w+ .{0,80}nvidia|98-nvidia\.sh",
        cause="NVIDIA's container hook failed on that node: {1}",
        remedy="'kedge exec --nv' works without it; 'kedge doctor' on that node looks at the driver itself",
        source="https://github.com/NVIDIA/pyxis/issues/110",
        examples=(
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open "
            "shared object "
            "file: no such file or directory",
            "[ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container\n"
            "[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1",
        ),
        missing="it is not installed, or finds no driver",
    ),
    Failure(
        "pyxis-import",
        r"pyxis: failed to import docker image|pyxis: couldn't start container|enroot import.{0,80}failed",
        cause="Pyxis could not import or start the image; the lines after it have enroot's own message",
        remedy="'kedge pull IMAGE.sqsh REFERENCE' once on the login node, then "
        "--container-image=/path/IMAGE.sqsh; a "
        "file needs ./ or / before it",
        source="https://github.com/NVIDIA/pyxis/issues/67",
        examples=("slurmstepd: error: pyxis: failed to import docker image",),
        sure=POSSIBLE,
    ),
    Failure(
        "tmp-noexec",
        r"failed to map segment from shared object|Temporary directory \S+ .{0,20}noexec",
        cause="the program lies on a file system from which nothing may be executed (noexec)",
        remedy="set TMPDIR to a directory on another file system; 'findmnt -T DIRECTORY' shows the options",
        source="https://github.com/apptainer/apptainer/issues/895",
        examples=("error: /tmp/_MEIxyz/libz.so.1: failed to map segment from shared object",),
        sure=LIKELY,
    ),
)
