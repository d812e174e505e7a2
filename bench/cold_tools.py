# SPDX-License-Identifier: BSD-3-Clause
"""What bench/first-output runs: for each tool the commands from an image's name to a program's first line.

Every tool gets a directory that was empty a moment ago for its cache, its images and its home.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

KEDGE = Path(__file__).resolve().parent.parent / ".venv/bin/kedge"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tool finds the image, what may be written, and who runs it."""

    fresh: Path
    plain: str  # the registry, by HTTP
    secure: str  # the same one, by HTTPS
    uid: int
    peer: str  # prefix of commands that run where Apptainer is

    @property
    def as_user(self) -> list[str]:
        """What makes an ordinary user of root."""
        user = str(self.uid)
        return [] if os.geteuid() else ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]


@dataclass(frozen=True, slots=True)
class Way:
    """Commands to be run one after the other; the last one prints the line."""

    steps: list[list[str]]
    environment: dict[str, str] = field(default_factory=dict)


def plan_kedge(place: Place, program: list[str]) -> Way:
    """One command."""
    environment = {"KEDGE_CACHEDIR": f"{place.fresh}/cache", "KEDGE_NODEDIR": f"{place.fresh}/node"}
    exec_ = [str(KEDGE), "exec", "--quiet", f"docker://{place.plain}/bench:bench", *program]
    return Way([[*place.as_user, *exec_]], environment)


def plan_kedge_sif(place: Place, program: list[str]) -> Way:
    """What others do: a SIF first, and a container from it."""
    environment = {"KEDGE_CACHEDIR": f"{place.fresh}/cache", "KEDGE_NODEDIR": f"{place.fresh}/node"}
    pull = [str(KEDGE), "pull", "--quiet", f"{place.fresh}/image.sif", f"docker://{place.plain}/bench:bench"]
    exec_ = [str(KEDGE), "exec", "--quiet", f"{place.fresh}/image.sif", *program]
    return Way([[*place.as_user, *pull], [*place.as_user, *exec_]], environment)


def plan_apptainer(place: Place, program: list[str]) -> Way:
    """One command, which makes a SIF in its cache. It is run as that peer's user, who is an ordinary one."""
    prefix = shlex.split(place.peer.replace("{dir}", str(place.fresh)))
    own = ["env", f"APPTAINER_CACHEDIR={place.fresh}/cache", f"APPTAINER_TMPDIR={place.fresh}"]
    exec_ = ["apptainer", "--silent", "exec", "--no-https", f"docker://{place.plain}/bench:bench", *program]
    return Way([[*prefix, *own, *exec_]])


def plan_charliecloud(place: Place, program: list[str]) -> Way:
    """A directory by ch-image, which speaks HTTPS only, and ch-run on it."""
    storage = f"{place.fresh}/storage"
    pull = ["ch-image", "-a", "yolo", "--no-cache", "-s", storage, "--tls-no-verify", "pull"]
    pull += [f"{place.secure}/bench:bench", "bench"]
    return Way([[*place.as_user, *pull], [*place.as_user, "ch-run", f"{storage}/img/bench", "--", *program]])


def plan_podman(place: Place, program: list[str]) -> Way:
    """One command; a container of one user, as without subordinate ids, on the kernel's overlay."""
    (place.fresh / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{place.fresh}/storage"\nrunroot = "{place.fresh}/run"\n'
        '[storage.options.overlay]\nignore_chown_errors = "true"\n'
    )
    # no network of its own, as kedge makes none; runc, because crun refuses nodes with both kinds of control groups
    (place.fresh / "containers.conf").write_text(
        '[containers]\nnetns = "host"\nlog_driver = "none"\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
    )
    (place.fresh / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    environment = {
        "CONTAINERS_STORAGE_CONF": f"{place.fresh}/storage.conf",
        "CONTAINERS_CONF": f"{place.fresh}/containers.conf",
        "XDG_RUNTIME_DIR": f"{place.fresh}/run",
        "TMPDIR": str(place.fresh),
    }
    words = ["podman", "run", "--rm", "--quiet", "--tls-verify=false"]
    words += ["--signature-policy", f"{place.fresh}/policy.json"]
    return Way([[*place.as_user, *words, f"{place.plain}/bench:bench", *program]], environment)


TOOLS = {
    "kedge": plan_kedge,
    "kedge-sif": plan_kedge_sif,
    "apptainer": plan_apptainer,
    "charliecloud": plan_charliecloud,
    "podman": plan_podman,
}
NAMES = {
    "kedge": "kedge exec docker://",
    "kedge-sif": "kedge pull, kedge exec SIF",
    "apptainer": "apptainer exec docker://",
    "charliecloud": "ch-image pull, ch-run",
    "podman": "podman run",
}
PACKAGES = {
    "charliecloud": (("ch-image", "ch-run"), ("charliecloud",)),
    "podman": (("podman", "runc"), ("podman", "runc")),
}


def find_lack(tool: str, peer: str) -> str:
    """Why the tool cannot be measured here; the empty string when it can."""
    if tool == "apptainer":
        return "" if peer else "no prefix of commands that run where it is (--apptainer)"
    programs, packages = PACKAGES.get(tool, ((), ()))
    missing = [program for program in programs if not shutil.which(program)]
    return f"no {' and no '.join(missing)} here (apt-get install {' '.join(packages)})" if missing else ""
