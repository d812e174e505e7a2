# SPDX-License-Identifier: BSD-3-Clause
"""Podman and podman-hpc: `podman run --rootfs FOLDER:O`, with the host's namespaces, as programs of a job expect it."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import replace
from kedge.container.facts import Additions, Bind
from kedge.container.options import VENDORS, Vendor
from kedge.container.others.request import ForeignPlan, RuntimeCall
from kedge.container.others.rules import (
    EXPANDED,
    NOT_ADDED,
    OWN_RULES,
    FieldRule,
    each,
    flag,
    honoured,
    ignored,
    refused,
    rule_gpus,
    valued,
)
from kedge.container.others.start import merge_environment, plan_mounts, plan_start

_LIKE_KEDGE = honoured("done by kedge")
_INITS = (
    "/usr/libexec/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/bin/catatonit",
    "/usr/local/bin/catatonit",
)
_CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")


def _split_commas(word: str) -> FieldRule:
    return FieldRule(
        "honoured", f"`{word}`", lambda values: [f"{word}={part}" for text in values for part in text.split(",")]
    )


def _add_gpus(vendor: Vendor) -> FieldRule:
    by_file = f"`--device {vendor.cdi_kind}=all` if there is a CDI file, else " if vendor.cdi_kind else ""
    return honoured(f"{by_file}`--volume` and `--device` for each")


_RULES: dict[str, FieldRule] = {
    **OWN_RULES,
    "verb": honoured("`exec`, `run`, `shell`, `test`, done by kedge"),
    "cleanenv": _LIKE_KEDGE,
    "env": _LIKE_KEDGE,
    "env_file": _LIKE_KEDGE,
    "no_env": _LIKE_KEDGE,
    "no_eval": _LIKE_KEDGE,
    "keep": _LIKE_KEDGE,
    "bind": honoured("`--volume`"),
    "mount": honoured("`--volume`"),
    "contain_libs": honoured("`--volume`"),
    "scratch": honoured("`--tmpfs`"),
    "overlay": refused("it has no overlay images"),
    "home": honoured("`--volume`"),
    "no_home": honoured("not mounted"),
    "workdir": ignored("private directories are in memory"),
    "pwd": honoured("`--workdir`"),
    "no_workdir": _LIKE_KEDGE,
    "no_mount": honoured("home, cwd and tmp only"),
    "contain": honoured("home and temporary directories in memory; /dev has few devices anyway"),
    "containall": EXPANDED,
    "compat": EXPANDED,
    "writable": honoured("the directory itself, not an overlay over it"),
    "writable_tmpfs": honoured("an overlay in its own storage"),
    "tmpfs_size": ignored("its storage sets the limit"),
    "underlay": ignored("mount points are made in an overlay"),
    "fakeroot": honoured("no `--userns=keep-id`"),
    "ignore_subuid": ignored("its users come from /etc/subuid"),
    "userns": honoured("always"),
    "pid": honoured("always (required without control groups)"),
    "ipc": honoured("no `--ipc=host`"),
    "uts": honoured("no `--uts=host`"),
    "hostname": valued("--hostname"),
    "net": honoured("`--network=none`"),
    "network": honoured("`--network`"),
    "no_init": honoured("no `--init`"),
    "no_umask": honoured("no `--umask`"),
    "no_privs": honoured("`--cap-drop=all`, always"),
    "keep_privs": honoured("no `--cap-drop=all`"),
    "drop_caps": _split_commas("--cap-drop"),
    "limits": FieldRule("honoured", "unchanged", lambda values: [f"--{value}" for value in values]),
    "passphrase": refused("it cannot read encrypted images"),
    "pem_path": refused("it cannot read encrypted images"),
    "passed_on": refused("only Apptainer and Singularity have it"),
    "dns": FieldRule("honoured", "`--dns`", lambda value: [f"--dns={part}" for part in value.split(",")]),
    "sharens": ignored("every process gets its own container"),
    **rule_gpus(
        lambda vendor, switch: _add_gpus(vendor) if switch is vendor.on[0] else ignored("CDI adds the GPUs"),
        lambda _: NOT_ADDED,
    ),
    "device": each("--device"),
    "cdi_dirs": ignored("it reads /etc/cdi and /var/run/cdi"),
    "app": _LIKE_KEDGE,
    "shell": _LIKE_KEDGE,
    "root": ignored("it takes a directory"),
    "quiet": flag("--quiet"),
}


class Podman:
    """Podman 4 and newer, without root."""

    name = "podman"
    program = "podman"
    forms: tuple[str, ...] = ("folder",)
    reads_scripts = False

    @property
    def rules(self) -> Mapping[str, FieldRule]:
        """Return one rule for each option."""
        return _RULES

    def fill(self, request: RuntimeCall, words: list[str], plan: ForeignPlan) -> None:
        """`podman run OPTIONS --volume … --env … --rootfs FOLDER /bin/sh -c … PROGRAM …`."""
        options, image = request.options, request.image
        cdi_kinds = _list_cdi_kinds(request)
        if cdi_kinds:
            request = replace(request, additions=Additions())
        mounts = plan_mounts(request)
        started = plan_start(request, mounts, plan)
        plan.details += mounts.notes
        flags = [*_basic_flags(request), *_namespace_flags(request), *_privilege_flags(request), *words]
        if not (options.fakeroot or _has_range(request)):
            plan.notes.append("podman can only make you root in the container: /etc/subuid has no range for you")
        flags += [f"--tmpfs={folder}:rw,mode=1777" for folder in mounts.empty]
        for bind in mounts.binds:
            if bind.image_source or bind.partition:
                plan.refused.append((f"the bind {bind!r}", "podman cannot bind from inside an image file"))
            flags.append(show_volume(bind))
        flags += [word for kind in cdi_kinds for word in ("--device", f"{kind}=all")]
        if not cdi_kinds and not options.device:  # named ones are CDI's, and Podman finds them itself
            flags += [word for device in request.additions.devices for word in ("--device", device)]
        flags += [f"--workdir={started.folder}", "--http-proxy=false"]
        for name in started.names:
            flags += ["--env", f"{name}={started.spelled[name]}" if name in started.spelled else name]
        root = image.path if options.writable else f"{image.path}:O"
        plan.argv = [self.program, "run", *flags, "--rootfs", root, *started.argv]
        plan.environ = merge_environment(request.host.environ, started)


class PodmanHpc(Podman):
    """NERSC's wrapper around Podman; what it does not know it passes on."""

    name = "podman-hpc"
    program = "podman-hpc"


def _basic_flags(request: RuntimeCall) -> list[str]:
    options, host = request.options, request.host
    flags = ["--rm", "--interactive", "--log-driver=none", "--cgroups=disabled", "--security-opt=label=disable"]
    if request.has_terminal:
        flags.append("--tty")
    if not (options.writable or options.writable_tmpfs):
        flags += ["--read-only", "--read-only-tmpfs=false"]
    if not options.no_umask:
        flags.append(f"--umask={host.umask:04o}")
    return flags


def _namespace_flags(request: RuntimeCall) -> list[str]:
    options = request.options
    flags = ["--userns=keep-id"] if _has_range(request) and not options.fakeroot else []
    flags += [f"--{name}=host" for name in ("ipc", "uts") if not getattr(options, name)]
    flags.append(f"--network={options.network or ('none' if options.net else 'host')}")
    # the first process of a namespace does not die of SIGTERM by itself
    if not options.no_init and any(map(request.host.view.is_executable, _INITS)):
        flags.append("--init")
    return flags


def _privilege_flags(request: RuntimeCall) -> list[str]:
    options = request.options
    flags = ["--security-opt=no-new-privileges"]
    if not (options.fakeroot or options.keep_privs):
        flags.append("--cap-drop=all")
    return flags


def show_volume(bind: Bind) -> str:
    """`--volume=SOURCE:DESTINATION[:ro]`, or `--mount` where a path has a colon."""
    if ":" not in bind.source + bind.destination:
        return f"--volume={bind.source}:{bind.destination}{':ro' if bind.readonly else ''}"
    fields = [f"source={bind.source}", f"destination={bind.destination}", *(["ro=true"] if bind.readonly else [])]
    quoted = ['"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"') else text for text in fields]
    return f"--mount=type=bind,{','.join(quoted)}"


def _list_cdi_kinds(request: RuntimeCall) -> list[str]:
    """The kinds of GPUs that are asked for and that a CDI file describes: `nvidia.com/gpu`."""
    files = [name for directory in _CDI_DIRECTORIES for name in request.host.view.names(directory)]
    kinds = [vendor.cdi_kind for vendor in VENDORS if vendor.cdi_kind and vendor.is_asked(request.options)]
    return [kind for kind in kinds if any(kind.partition(".")[0] in name for name in files)]


def _has_range(request: RuntimeCall) -> bool:
    """Whether Podman can map other users than root, which keeping one's own number needs."""
    host = request.host
    text = (host.view.read("/etc/subuid") or b"").decode(errors="replace")
    return any(line.partition(":")[0] in (host.user, str(host.uid)) for line in text.splitlines())
