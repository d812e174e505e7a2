# SPDX-License-Identifier: BSD-3-Clause
"""Enroot: `enroot start IMAGE.sqsh`. Variables and mounts are named one by one; nothing of the host goes in unasked."""

from __future__ import annotations

import shlex
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
    flag,
    honoured,
    ignored,
    refused,
    rule_gpus,
)
from kedge.container.others.start import Started, merge_environment, plan_mounts, plan_start

_LIKE_KEDGE = honoured("done by kedge")
_MOUNTED = honoured("libraries and programs, `--mount` for each")


def _use_hook(vendor: Vendor) -> FieldRule:
    return honoured(f"its {vendor.name} hook, by `{_name_selector(vendor)}`")


def _name_selector(vendor: Vendor) -> str:
    """The variable that tells Enroot's hook which GPUs to bring."""
    return next(iter(vendor.enroot_variables))


_RULES: dict[str, FieldRule] = {
    **OWN_RULES,
    "verb": honoured("`exec`, `run`, `shell`, `test`, done by kedge"),
    "cleanenv": _LIKE_KEDGE,
    "env": _LIKE_KEDGE,
    "env_file": _LIKE_KEDGE,
    "no_env": _LIKE_KEDGE,
    "no_eval": _LIKE_KEDGE,
    "keep": _LIKE_KEDGE,
    "bind": honoured("`--mount`"),
    "mount": honoured("`--mount`"),
    "contain_libs": honoured("`--mount`"),
    "scratch": honoured("`--mount` of a tmpfs"),
    "overlay": refused("it has no persistent overlays"),
    "home": honoured("`--mount`"),
    "no_home": honoured("not mounted"),
    "workdir": ignored("private directories are in memory"),
    "pwd": honoured("by the image's shell"),
    "no_workdir": _LIKE_KEDGE,
    "no_mount": honoured("home, cwd and tmp only"),
    "contain": honoured("home and temporary directories in memory; /dev stays the host's"),
    "containall": EXPANDED,
    "compat": EXPANDED,
    "writable": refused("a SquashFS file cannot be written; --writable-tmpfs keeps changes in memory"),
    "writable_tmpfs": flag("--rw"),
    "tmpfs_size": ignored("the kernel's limit applies (half of the memory)"),
    "underlay": ignored("mount points are made in an overlay"),
    "fakeroot": flag("--root"),
    "ignore_subuid": honoured("it never uses them"),
    "userns": honoured("always"),
    "pid": flag("--pid", since="4.1"),
    "ipc": flag("--ipc", since="4.1"),
    "uts": flag("--uts", since="4.1"),
    "hostname": refused("it cannot set a host name"),
    "net": flag("--net", since="4.1"),
    "network": honoured("`none` only"),
    "no_init": honoured("it has no init"),
    "no_umask": ignored("it always passes the umask"),
    "no_privs": honoured("always"),
    "keep_privs": ignored("it never keeps privileges"),
    "drop_caps": honoured("it always drops all"),
    "limits": refused("it creates no control groups"),
    "passphrase": refused("it cannot read encrypted images"),
    "pem_path": refused("it cannot read encrypted images"),
    "passed_on": refused("only Apptainer and Singularity have it"),
    "dns": refused("it binds the host's resolv.conf"),
    "sharens": ignored("every process gets its own namespaces"),
    **rule_gpus(
        lambda vendor, _: _use_hook(vendor) if vendor.enroot_variables else _MOUNTED,
        lambda vendor: honoured(f"`{_name_selector(vendor)}=void`") if vendor.enroot_variables else NOT_ADDED,
    ),
    "device": _MOUNTED,
    "cdi_dirs": _MOUNTED,
    "app": _LIKE_KEDGE,
    "shell": _LIKE_KEDGE,
    "root": ignored("it mounts SquashFS files with squashfuse"),
    "quiet": honoured("it prints little"),
}
_LINES = "KEDGE_LINES"
_OPTIONS = "x-create=auto,rbind,nosuid,nodev"


class Enroot:
    """Enroot 3.4 and newer."""

    name = "enroot"
    program = "enroot"
    forms: tuple[str, ...] = ("squashfs",)
    reads_scripts = False

    @property
    def rules(self) -> Mapping[str, FieldRule]:
        """Return one rule for each option."""
        return _RULES

    def fill(self, request: RuntimeCall, words: list[str], plan: ForeignPlan) -> None:
        """`enroot start OPTIONS --mount … --env … IMAGE /bin/sh -c … PROGRAM …`."""
        options = request.options
        if options.network not in ("", "none", "host"):
            plan.refused.append(("--network", "it supports none and host only"))
        if any(vendor.enroot_variables and vendor.is_asked(options) for vendor in VENDORS):
            request = replace(request, additions=Additions())  # its own hook does it
        mounts = plan_mounts(request)
        started = plan_start(request, mounts, plan)
        plan.details += mounts.notes
        flags = list(words)
        for folder in mounts.empty:
            flags += ["--mount", f"tmpfs:{folder}:tmpfs:x-create=dir,rw,nosuid,nodev,mode=1777"]
        for bind in mounts.binds:
            flags += ["--mount", self._show_mount(bind, plan)]
        started.inherited |= self._choose_devices(request)
        argv = self._enter_folder(request, started, plan)
        for name in started.names:
            flags += ["--env", f"{name}={started.spelled[name]}" if name in started.spelled else name]
        plan.argv = [self.program, "start", *flags, request.image.path, *argv]
        # a site's default may be otherwise; home is mounted like everything else
        own = {"ENROOT_ROOTFS_WRITABLE": "n", "ENROOT_MOUNT_HOME": "n", "ENROOT_REMAP_ROOT": "n"}
        plan.environ = {**merge_environment(request.host.environ, started), **own}

    def _enter_folder(self, request: RuntimeCall, started: Started, plan: ForeignPlan) -> list[str]:
        """Enroot knows no directory to begin in, and keeps variables in lines: the image's shell sees to both."""
        given = {**started.inherited, **started.spelled}
        torn = {name: value for name, value in given.items() if _is_torn(value)}
        if not torn and started.folder == "/":
            return started.argv
        if not request.image.facts.view.is_executable("/bin/sh"):
            plan.notes.append(
                "the image has no shell: enroot starts the program in / and cuts variables at the first line"
            )
            started.drop(torn)
            return started.argv
        lines = [f"export {name}={shlex.quote(torn[name])}" for name in sorted(torn)]
        started.drop(torn)
        script = "\n".join([*lines, f"cd {shlex.quote(started.folder)} || exit 255", f"unset {_LINES}"])
        # printf %b undoes what makes one line of it
        started.inherited[_LINES] = script.replace("\\", "\\\\").replace("\n", "\\n")
        return ["/bin/sh", "-c", f'eval "$(printf %b "${_LINES}")"; exec "$@"', "kedge", *started.argv]

    def _show_mount(self, bind: Bind, plan: ForeignPlan) -> str:
        if any(mark in bind.source + bind.destination for mark in (":", " ", "\t", "\n")):
            plan.refused.append((f"the bind {bind!r}", "enroot cannot take a path with a colon or a space"))
        if bind.image_source or bind.partition:
            plan.refused.append((f"the bind {bind!r}", "enroot cannot bind from inside an image file"))
        optional = ",nofail,silent" if bind.is_optional else ""
        return f"{bind.source}:{bind.destination}:none:{_OPTIONS},{'ro' if bind.readonly else 'rw'}{optional}"

    def _choose_devices(self, request: RuntimeCall) -> dict[str, str]:
        options, environ = request.options, request.host.environ
        variables: dict[str, str] = {}
        for vendor in (vendor for vendor in VENDORS if vendor.enroot_variables):
            if vendor.is_off(options):
                variables[_name_selector(vendor)] = "void"
            elif vendor.is_asked(options):
                # an image that does not set them gets no GPU, or no driver library
                variables |= {name: environ.get(name) or value for name, value in vendor.enroot_variables.items()}
        return variables


def _is_torn(value: str) -> bool:
    """Whether Enroot would change a value: it reads lines, and takes quotes away that go around all of it."""
    return "\n" in value or (value[:1] in ('"', "'") and value[-1:] in ('"', "'"))
