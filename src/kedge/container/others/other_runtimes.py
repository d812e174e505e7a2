# SPDX-License-Identifier: BSD-3-Clause
"""Hands a container to another runtime: finds its program, brings the image into a format it takes, and becomes it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from kedge.base.image_argument import find_path
from kedge.base.progress import Progress, Silent
from kedge.base.reference import Reference, Transport
from kedge.container.facts import Additions, HostFacts, ImageFacts, gather_host
from kedge.container.flags import collect_binds
from kedge.container.mounts.overlay_options import explain_readonly_image
from kedge.container.options import RunOptions
from kedge.container.others import Adapter, ForeignImage, ForeignPlan, apply_rules, find_adapter, plan_foreign
from kedge.container.shim_file import is_shim
from kedge.container.start_container import choose_architecture, find_on_node, unpack_in_child
from kedge.errors import FileProblem, KedgeError, RuntimeUnsuited, UsageError
from kedge.image.image_file import ImageFile, compare_machine, identify
from kedge.image.node_cache import find_by_reference, find_unpacked, hold_image, is_volatile, read_config
from kedge.image.workplace import Workplace
from kedge.system.process import run_program
from kedge.system.settings import SETTINGS, Settings
from kedge.system.spawn import replace_process
from kedge.system.views import DirectoryView, TableView

Say = Callable[[str, str], None]

_PLACES = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/apptainer/bin", "/opt/singularity/bin")
_OLDEST = {"charliecloud": ((0, 36), "older ones have no --write-fake")}
_PATIENCE = 10.0  # seconds that a program may take to tell its version
_STARTERS = {"apptainer": "libexec/apptainer/bin/starter-suid", "singularity": "libexec/singularity/bin/starter-suid"}


def run_foreign(options: RunOptions, say: Say | None = None) -> int:
    """Become the other runtime's program; returns only after a dry run, or where there is nothing to start.

    `options.runtime` is one of the names in `adapters.RUNTIMES`, or the path of such a program. `say(level, text)`
    hears warnings, notes and, at level `out`, the command line of a dry run.
    """
    say = say or _stay_silent
    environ = dict(os.environ)
    adapter, program = find_runtime(options.runtime, environ)
    early = ForeignPlan(adapter.name)
    apply_rules(adapter.name, options, early)
    early.require_suited()  # before anything is fetched for it
    _require_version(adapter, program, environ)
    host = gather_host(environ)
    with contextlib.ExitStack() as closing:
        image = open_image(adapter, options, host, say, closing)
        options.warnings.clear()  # said before, where kedge itself tried first
        binds = [
            bind
            for bind in collect_binds(options, environ, host.cwd)
            if not bind.is_optional or Path(bind.source).exists()
        ]
        for text in options.warnings:
            say("warn", text)
        plan = plan_foreign(
            adapter.name,
            options,
            binds,
            image,
            host=host,
            additions=_find_additions(adapter, options, host, image.facts),
            has_terminal=os.isatty(0) and os.isatty(1),
        )
    plan.require_suited()
    return _become(program, plan, options, say)


def _become(program: str, plan: ForeignPlan, options: RunOptions, say: Say) -> int:
    for text in plan.notes:
        say("warn", text)
    for text in plan.details:
        say("note", text)
    if plan.is_idle:
        say("note", "nothing to start")
        return 0
    shown = shlex.join([program, *plan.argv[1:]])
    if options.dry_run:
        say("out", shown)
        return 0
    say("note", f"runs: {shown}")
    try:
        replace_process(program, plan.argv, plan.environ)
    except OSError as problem:
        raise RuntimeUnsuited(
            f"cannot start {program}: {problem.strerror}", context={"runtime": plan.runtime, "program": program}
        ) from None


def find_runtime(text: str, environ: Mapping[str, str]) -> tuple[Adapter, str]:
    """The runtime and its program, from a name or a path; RuntimeUnsuited says where it was looked for."""
    if text in ("", "kedge", "auto"):
        raise UsageError("--runtime names no other runtime", hint="for example --runtime apptainer")
    if "/" in text:
        adapter = find_adapter(_name_of_program(Path(text).name))
        if not os.access(text, os.X_OK):
            raise RuntimeUnsuited(f"{text} is not an executable program", context={"runtime": adapter.name})
        return adapter, str(Path(text).absolute())
    adapter = find_adapter(text)
    folders = _list_folders(environ)
    for folder in folders:
        path = f"{folder}/{adapter.program}"
        if os.access(path, os.X_OK) and Path(path).is_file() and not is_shim(path):
            return adapter, path
    module = {"ch-run": "charliecloud"}.get(adapter.program, adapter.program)
    raise RuntimeUnsuited(
        f"cannot find {adapter.name}: no program {adapter.program} in {', '.join(folders)}",
        context={"runtime": adapter.name, "program": adapter.program},
        hint=f"load it first, for example 'module load {module}', or leave out --runtime to use kedge",
    )


def _require_version(adapter: Adapter, program: str, environ: Mapping[str, str]) -> None:
    """Raise for a program that is too old for the words it would get; one that does not tell is tried."""
    oldest, reason = _OLDEST.get(adapter.name, ((), ""))
    if not oldest:
        return
    try:
        asked = run_program([program, "--version"], environment={"USER": "kedge", **environ}, timeout=_PATIENCE)
    except KedgeError:
        return
    found = re.match(rb"\D*(\d+)\.(\d+)", asked.output + asked.errors)
    if found and tuple(map(int, found.groups())) < oldest:
        wanted, shown = ".".join(map(str, oldest)), b".".join(found.groups()).decode()
        raise RuntimeUnsuited(
            f"{program} is {adapter.name} {shown}; kedge needs {wanted} or newer: {reason}",
            context={"runtime": adapter.name, "version": shown},
            hint=f"load a newer version, or leave out --runtime {adapter.name} to use kedge",
        )


def _name_of_program(program: str) -> str:
    return {"ch-run": "charliecloud"}.get(program, program)


def _list_folders(environ: Mapping[str, str]) -> list[str]:
    own = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    return list(dict.fromkeys([*own, *_PLACES]))


def find_setuid_apptainer(environ: Mapping[str, str] | None = None) -> str:
    """An installed Apptainer or Singularity whose starter is setuid root, which needs no user namespaces; else empty.

    It is looked for in files, because asking the program would start it.
    """
    for name, starter in _STARTERS.items():
        for folder in _list_folders(os.environ if environ is None else environ):
            program = Path(folder) / name
            if not os.access(program, os.X_OK) or is_shim(str(program)):
                continue
            prefixes = dict.fromkeys((program.parent.parent, program.resolve().parent.parent))
            others = [Path("/"), Path("/usr"), Path("/usr/local")] if folder in ("/usr/bin", "/bin") else []
            if any(
                _is_setuid_root(prefix / path) for prefix in (*prefixes, *others) for path in _starter_paths(starter)
            ):
                return str(program)
    return ""


def _starter_paths(starter: str) -> tuple[str, ...]:
    """Debian keeps such programs in lib and not in libexec."""
    return starter, starter.replace("libexec/", "lib/", 1), starter.replace("libexec/", "lib64/", 1)


def _is_setuid_root(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_ISUID) and status.st_uid == 0


def _find_additions(adapter: Adapter, options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
    """What devices add, for runtimes that do not find them themselves."""
    if adapter.reads_scripts or not options.asks_devices:
        return Additions()
    from kedge.container.devices import plan_devices  # late, both: most containers ask for no device
    from kedge.container.devices.cdi import refuse_strangers

    if options.device:
        refuse_strangers(options, host.view)
    return plan_devices(options, host, image)


def _stay_silent(level: str, text: str) -> None:
    """Says nothing."""


# Brings an image into a format that another runtime takes: as it is, from the cache, or unpacked on this node.


class _SayingProgress(Silent):
    """Hands notes and warnings on."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def note(self, message: str) -> None:
        """Said with --verbose: standard error is the program's."""
        self._say("note", message)

    def detail(self, message: str) -> None:
        """Print a detail as a note."""
        self._say("note", message)

    def warn(self, message: str) -> None:
        """Said always."""
        self._say("warn", message)


def open_image(
    adapter: Adapter, options: RunOptions, host: HostFacts, say: Say, closing: contextlib.ExitStack
) -> ForeignImage:
    """The image in a format that the runtime takes, with a view into it where one is needed."""
    if options.image.startswith("instance://"):
        if not adapter.reads_scripts:
            raise RuntimeUnsuited(
                f"{adapter.name} has no instances, so it cannot enter {options.image}",
                context={"runtime": adapter.name},
                hint="leave out --runtime",
            )
        return _pass_on(options.image, "sif", options.image)
    path = find_path(options.image)
    found = identify(path) if path else None
    if found is not None:
        compare_machine(found, host.machine)
    must_unpack = not adapter.reads_scripts and "folder" in adapter.forms and (found is None or found.kind != "folder")
    if must_unpack and (options.root == "unpack" or adapter.forms == ("folder",)):
        return _unpack(options, found, host)
    if found is not None and found.kind in adapter.forms:
        return _look_into(adapter, found, found.read_config(), closing)
    if found is not None and found.kind == "folder":
        raise RuntimeUnsuited(
            f"{adapter.name} cannot run a directory: {found.path}",
            context={"runtime": adapter.name},
            hint=f"convert it to a file: kedge convert {shlex.quote(found.path)} IMAGE.sqsh",
        )
    file, config = _have_file(adapter.forms[0], options, found, say)
    return _look_into(adapter, identify(str(file)), config, closing, shown=options.image)


def _pass_on(path: str, kind: str, shown: str) -> ForeignImage:
    """Return an image to be looked at by the runtime itself."""
    return ForeignImage(path, kind, ImageFacts(view=TableView({}), path=shown, kind=kind))


def _look_into(
    adapter: Adapter, image: ImageFile, config: bytes, closing: contextlib.ExitStack, *, shown: str = ""
) -> ForeignImage:
    if adapter.reads_scripts:
        return _pass_on(image.path, image.kind, shown or image.path)
    name = shown or image.path
    if image.kind == "folder":
        facts = ImageFacts(view=DirectoryView(image.path), path=name, kind="folder", oci_config=config)
        return ForeignImage(image.path, "folder", facts)
    from kedge.image.formats.squashfs.view import SquashView  # late: directories need no reader

    file = closing.enter_context(Path(image.path).open("rb"))
    view = closing.enter_context(SquashView(file, image.offset, image.size))
    return ForeignImage(image.path, image.kind, ImageFacts(view=view, path=name, kind=image.kind, oci_config=config))


def _unpack(options: RunOptions, found: ImageFile | None, host: HostFacts) -> ForeignImage:
    """A directory on this node, held for as long as the runtime's processes live."""
    if options.writable:
        raise explain_readonly_image(options.image, found.kind if found else "reference")
    root = _find_current(options, found, host)
    if options.pull in ("newer", "always") or not root or hold_image(root) < 0:
        unpack_in_child(options, options.image)
        root = _find_root(options, found, host)
        if not root or hold_image(root) < 0:
            raise FileProblem(
                f"{options.image} was removed from this node's cache before it could be used",
                hint="set KEDGE_NODEDIR to a directory on a larger disk",
            )
    facts = ImageFacts(view=DirectoryView(root), path=options.image, kind="folder", oci_config=read_config(root))
    return ForeignImage(root, "folder", facts)


def _find_current(options: RunOptions, found: ImageFile | None, host: HostFacts) -> str:
    is_looked_up = found is None and options.pull == "auto"
    return find_on_node(options, host, is_asked=False) if is_looked_up else _find_root(options, found, host)


def _find_root(options: RunOptions, found: ImageFile | None, host: HostFacts) -> str:
    if found is not None:
        return find_unpacked(found, host.environ)
    return (
        ""
        if is_volatile(options.image)
        else find_by_reference(options.image, choose_architecture(options, host), host.environ)
    )


def _have_file(kind: str, options: RunOptions, found: ImageFile | None, say: Say) -> tuple[Path, bytes]:
    """A SIF or SquashFS file in the store, and the image's OCI config where it is known."""
    from kedge.image.cached_image import CachedFormat, provide_cached
    from kedge.image.write_image import write_sif, write_squashfs  # late: what a runtime takes as it is needs none

    shape = CachedFormat("sif", write_sif) if kind == "sif" else CachedFormat("squashfs", write_squashfs)
    workplace = _make_workplace(options, _SayingProgress(say))
    reference = Reference(Transport.FILE, path=found.path) if found else Reference.parse(options.image)
    if workplace.settings.disable_cache:
        raise UsageError(
            "--disable-cache cannot be used with another runtime, which needs the image in the cache",
            hint=f"pull it first: kedge pull IMAGE.{'sif' if kind == 'sif' else 'sqsh'} {reference.redacted}",
        )
    with workplace.open_store() as store:
        path = provide_cached(reference, workplace, store, shape, policy=options.pull)
        config = found.read_config() if found else _find_config(reference, workplace)
    return path, config


def _find_config(reference: Reference, workplace: Workplace) -> bytes:
    """What the registry said when the image was fetched; nothing where it was no image of layers."""
    from kedge.image.sources.classify import SourceKind, classify
    from kedge.image.sources.resolve import read_config as read_image_config
    from kedge.image.sources.resolve import resolve

    source = classify(reference)
    if source.kind is not SourceKind.REGISTRY:
        return b""
    with contextlib.suppress(KedgeError), workplace.open_store() as store:
        source = source.look_up(lambda: resolve(reference, workplace, store, offline=True))
        return read_image_config(source.layers, store)[0] if source.layers else b""
    return b""


def _make_workplace(options: RunOptions, progress: Progress) -> Workplace:
    """Settings as the words for a pull say; they are those of `kedge pull`."""
    from kedge.image.registry.access_options import AccessOptions

    flags: dict[str, object] = {}
    authfile: Path | None = None
    words = list(options.pull_words)
    by_flag = {flag: setting for setting in SETTINGS.values() for flag in setting.flags}
    while words:
        word, _, value = words.pop(0).partition("=")
        setting = by_flag.get(word)
        if setting is not None and setting.kind == "yes or no":
            flags[setting.name] = True
        elif setting is not None:
            flags[setting.name] = value or words.pop(0)
        elif word == "--authfile":
            authfile = Path(value or words.pop(0))
        elif word == "--docker-login":
            raise UsageError("--docker-login cannot be used with --runtime", hint="log in first: kedge registry login")
    return Workplace(Settings.load(flags), progress, AccessOptions(authfile=authfile))
