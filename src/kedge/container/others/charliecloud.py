# SPDX-License-Identifier: BSD-3-Clause
"""Charliecloud's ch-run: user and mount namespaces only; the host's environment, network and devices are the image's.

ch-run makes mount points only in a root that can be written, so it always gets `--write-fake`: what a program writes
outside of binds is in memory and gone afterwards, where other runtimes would refuse to write.
"""

from __future__ import annotations

from collections.abc import Mapping

from kedge.container.facts import Bind
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
_BOUND = honoured("`--bind` for each library and program")
_NO_NAMESPACE = "it has user and mount namespaces only"

_RULES: dict[str, FieldRule] = {
    **OWN_RULES,
    "verb": honoured("`exec`, `run`, `shell`, `test`, done by kedge"),
    "cleanenv": _LIKE_KEDGE,
    "env": _LIKE_KEDGE,
    "env_file": _LIKE_KEDGE,
    "no_env": honoured("kedge removes them first"),
    "no_eval": _LIKE_KEDGE,
    "keep": _LIKE_KEDGE,
    "bind": honoured("`--bind`; read-only binds become writable, with a warning"),
    "mount": honoured("`--bind`; read-only binds become writable, with a warning"),
    "contain_libs": honoured("`--bind`"),
    "scratch": refused("its only empty directory is /tmp; bind a directory with --bind"),
    "overlay": refused("it has no persistent overlays"),
    "home": honoured("`--bind`"),
    "no_home": honoured("not bound"),
    "workdir": ignored("private directories are in memory"),
    "pwd": honoured("`--cd`"),
    "no_workdir": _LIKE_KEDGE,
    "no_mount": honoured("home, cwd and tmp only"),
    "contain": honoured("`--private-tmp`, home and current directory not bound; /dev stays the host's"),
    "containall": EXPANDED,
    "compat": EXPANDED,
    "writable": honoured("`--write`; directories only"),
    "writable_tmpfs": honoured("`--write-fake`"),
    "tmpfs_size": honoured("`--write-fake=SIZE`"),
    "underlay": ignored("mount points are made with --write-fake"),
    "fakeroot": flag("--uid=0", "--gid=0", "--seccomp"),
    "ignore_subuid": honoured("it never uses them"),
    "userns": honoured("always"),
    "pid": ignored(_NO_NAMESPACE),
    "ipc": ignored(_NO_NAMESPACE),
    "uts": ignored(_NO_NAMESPACE),
    "hostname": refused(_NO_NAMESPACE),
    "net": refused(_NO_NAMESPACE),
    "network": refused(_NO_NAMESPACE),
    "no_init": honoured("it has no init"),
    "no_umask": ignored("it always passes the umask"),
    "no_privs": honoured("always"),
    "keep_privs": ignored("it never keeps privileges"),
    "drop_caps": honoured("it has none"),
    "limits": refused("it creates no control groups"),
    "passphrase": refused("it cannot read encrypted images"),
    "pem_path": refused("it cannot read encrypted images"),
    "passed_on": refused("only Apptainer and Singularity have it"),
    "dns": refused("it binds the host's resolv.conf"),
    "sharens": flag("--join"),
    **rule_gpus(
        lambda vendor, switch: _BOUND if switch is vendor.on[0] else ignored("kedge binds each library instead"),
        lambda _: NOT_ADDED,
    ),
    "device": _BOUND,
    "cdi_dirs": _BOUND,
    "app": _LIKE_KEDGE,
    "shell": _LIKE_KEDGE,
    "root": honoured("a directory for `unpack`, otherwise a SquashFS file"),
    "quiet": flag("--quiet"),
}

# ch-run finds programs by PATH, and names its mount point after USER; a TMPDIR would be bound in place of /tmp
_NEEDED = ("PATH", "USER", "HOME")


class Charliecloud:
    """ch-run 0.36 and newer, which has `--write-fake`."""

    name = "charliecloud"
    program = "ch-run"
    forms: tuple[str, ...] = ("squashfs", "folder")
    reads_scripts = False

    @property
    def rules(self) -> Mapping[str, FieldRule]:
        """Return one rule for each option."""
        return _RULES

    def fill(self, request: RuntimeCall, words: list[str], plan: ForeignPlan) -> None:
        """`ch-run OPTIONS --bind … IMAGE -- /bin/sh -c … PROGRAM …`."""
        options, image = request.options, request.image
        mounts = plan_mounts(request)
        started = plan_start(request, mounts, plan)
        plan.details += mounts.notes
        if mounts.home in mounts.empty:
            self._make_home(request, started)
        flags = [*words, *self._choose_writing(request, plan), f"--cd={started.folder}"]
        if options.contain:
            flags.append("--private-tmp")
        flags += [f"--bind={self._show_bind(bind, plan)}" for bind in mounts.binds if bind.source != "/tmp"]
        absent = [name for name in request.host.environ if name not in started.names and name in _NEEDED]
        flags += ["--env-no-expand", *(f"--unset-env={name}" for name in absent)]
        flags += [f"--set-env={name}={value}" for name, value in sorted(started.spelled.items())]
        plan.argv = [self.program, *flags, image.path, "--", *started.argv]
        own = {name: value for name, value in request.host.environ.items() if name in _NEEDED}
        plan.environ = merge_environment(own, started)

    def _make_home(self, request: RuntimeCall, started: Started) -> None:
        """ch-run has no empty directories, but the root can be written: the image's shell makes one."""
        view = request.image.facts.view
        has_shell = view.is_executable("/bin/sh") and any(map(view.is_executable, ("/bin/mkdir", "/usr/bin/mkdir")))
        if started.folder != started.spelled.get("HOME"):
            return
        started.folder = "/"
        if has_shell:
            code = 'mkdir -p "$HOME" && cd "$HOME"; exec "$@"'
            started.argv = ["/bin/sh", "-c", code, "kedge", *started.argv]

    def _show_bind(self, bind: Bind, plan: ForeignPlan) -> str:
        if ":" in bind.source + bind.destination:
            plan.refused.append((f"the bind {bind!r}", "ch-run cannot take a path with a colon"))
        if bind.image_source or bind.partition:
            plan.refused.append((f"the bind {bind!r}", "ch-run cannot bind from inside an image file"))
        if bind.readonly and bind.origin:
            plan.notes.append(f"{bind.source} is writable in the container: ch-run has no read-only binds")
        return f"{bind.source}:{bind.destination}"

    def _choose_writing(self, request: RuntimeCall, plan: ForeignPlan) -> list[str]:
        options = request.options
        if not options.writable:
            return [f"--write-fake={options.tmpfs_size}" if options.tmpfs_size else "--write-fake"]
        if request.image.kind != "folder":
            plan.refused.append(("--writable", "a SquashFS file is read-only; use a directory"))
        return ["--write"]
