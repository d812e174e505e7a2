# SPDX-License-Identifier: BSD-3-Clause
"""Apptainer, and Singularity, which takes nearly the same: options are passed on, binds come as one list."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.container.env_scripts import REQUEST_PREFIXES
from kedge.container.facts import Bind
from kedge.container.options import FLAGS
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

_PREFIXES = ("APPTAINER_", "SINGULARITY_")
_BINDS = ("BIND", "BINDPATH", "MOUNT")


def _choose_root(unpack: str) -> FieldRule:
    return FieldRule(
        "honoured",
        f"`{unpack}` for `unpack`; otherwise the runtime chooses",
        lambda value: [unpack] if value == "unpack" else [],
    )


def _join(word: str) -> FieldRule:
    return FieldRule("honoured", f"`{word}`", lambda values: [word, ",".join(values)])


_RULES: dict[str, FieldRule] = {
    **OWN_RULES,
    "verb": honoured("`exec`, `run`, `shell`, `test`"),
    "cleanenv": flag("--cleanenv"),
    "env": each("--env"),
    "env_file": each("--env-file"),
    "no_env": honoured("kedge removes them first"),
    "no_eval": flag("--no-eval"),
    "keep": ignored("it passes all host variables"),
    "bind": honoured("`--bind`"),
    "mount": honoured("`--bind`"),
    "contain_libs": honoured("`--bind`"),
    "scratch": each("--scratch"),
    "overlay": each("--overlay"),
    "home": valued("--home"),
    "no_home": flag("--no-home"),
    "workdir": valued("--workdir"),
    "pwd": valued("--pwd"),
    "no_workdir": honoured("it never uses the image's WORKDIR"),
    "no_mount": each("--no-mount"),
    "contain": flag("--contain"),
    "containall": EXPANDED,
    "compat": EXPANDED,
    "writable": flag("--writable"),
    "writable_tmpfs": flag("--writable-tmpfs"),
    "tmpfs_size": ignored("'sessiondir max size' in its configuration sets the size"),
    "underlay": flag("--underlay"),
    "fakeroot": flag("--fakeroot"),
    "ignore_subuid": flag("--ignore-subuid"),
    "userns": flag("--userns"),
    "pid": flag("--pid"),
    "ipc": flag("--ipc"),
    "uts": flag("--uts"),
    "hostname": valued("--hostname"),
    "net": flag("--net"),
    "network": FieldRule("honoured", "`--network`", lambda value: [] if value == "host" else ["--network", value]),
    "no_init": flag("--no-init"),
    "no_umask": flag("--no-umask"),
    "no_privs": flag("--no-privs"),
    "keep_privs": flag("--keep-privs"),
    "drop_caps": _join("--drop-caps"),
    "limits": FieldRule("honoured", "unchanged", lambda values: [f"--{value}" for value in values]),
    "passphrase": flag("--passphrase"),
    "pem_path": valued("--pem-path"),
    "passed_on": FieldRule("honoured", "passed unchanged", list),
    "dns": valued("--dns"),
    "sharens": flag("--sharens"),
    **rule_gpus(
        lambda vendor, switch: flag(f"--{switch.name}") if vendor.in_apptainer else refused("not supported"),
        lambda vendor: flag(f"--{vendor.off.name}") if vendor.in_apptainer else NOT_ADDED,
    ),
    "device": each("--device", "`--device` (1.5 and newer)"),
    "cdi_dirs": each("--cdi-dirs", "`--cdi-dirs` (1.5 and newer)"),
    "app": valued("--app"),
    "shell": valued("--shell"),
    "root": _choose_root("--unsquash"),
    "quiet": honoured("`--quiet`"),
}


class Apptainer:
    """Apptainer 1.1 and newer."""

    name = "apptainer"
    program = "apptainer"
    forms: tuple[str, ...] = ("sif", "squashfs", "folder", "ext3")
    reads_scripts = True
    requests = "APPTAINERENV_"  # how it calls the variables that are asked for

    @property
    def rules(self) -> Mapping[str, FieldRule]:
        """Return a rule for each option: Apptainer knows all of its own."""
        return _RULES

    def fill(self, request: RuntimeCall, words: list[str], plan: ForeignPlan) -> None:
        """`apptainer exec OPTIONS --bind … IMAGE PROGRAM …`."""
        options = request.options
        binds = [word for bind in request.binds for word in ("--bind", show_bind(bind))]
        quiet = ["--quiet"] if options.quiet else []
        plan.argv = [self.program, *quiet, options.verb, *words, *binds, request.image.path, *options.arguments]
        dropped = _list_twins()
        dropped.update(name.strip() for names in options.no_env for name in names.split(","))
        plan.environ = {
            name: value
            for name, value in _rename_requests(request.host.environ, self.requests).items()
            if name not in dropped and not name.startswith("KEDGE_")
        }


class Singularity(Apptainer):
    """SingularityCE and SingularityPRO, and Singularity 3."""

    name = "singularity"
    program = "singularity"
    requests = "SINGULARITYENV_"

    @property
    def rules(self) -> Mapping[str, FieldRule]:
        """Return Apptainer's rules, less what only that has."""
        return {
            **_RULES,
            "ignore_subuid": ignored("only Apptainer has it"),
            "sharens": ignored("only Apptainer shares a container among the processes of a node"),
            "device": refused("it needs --oci for CDI devices"),
            "cdi_dirs": ignored("it needs --oci for CDI devices"),
            "root": _choose_root("--tmp-sandbox"),
        }


def _list_twins() -> set[str]:
    """The variables whose values are among the words already, and would be added to them a second time."""
    names = {*_BINDS, *(name for flag in FLAGS if flag.kind == "list" for name in flag.variables)}
    return {prefix + name for prefix in _PREFIXES for name in names}


def _rename_requests(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The environment with KEDGEENV_X and its relatives called as the runtime calls them; the first that has X wins."""
    asked: dict[str, str] = {}
    for known in reversed(REQUEST_PREFIXES):
        asked |= {name[len(known) :]: value for name, value in environ.items() if name.startswith(known)}
    others = {name: value for name, value in environ.items() if not name.startswith(REQUEST_PREFIXES)}
    return others | {prefix + name: value for name, value in asked.items()}


def show_bind(bind: Bind) -> str:
    """`SOURCE:DESTINATION[:OPTIONS]`, with colons and commas of paths escaped."""
    options = ["ro"] if bind.readonly else []
    if bind.image_source:
        options.append(f"image-src={_escape(bind.image_source)}")
    if bind.partition:
        options.append(f"id={bind.partition}")
    parts = [_escape(bind.source), _escape(bind.destination), *([",".join(options)] if options else [])]
    return ":".join(parts)


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
