# SPDX-License-Identifier: BSD-3-Clause
"""Bases that are made on this host: by a package manager into an empty directory, or busybox with its links.

What was made is a layer in the cache, known by the header: another build with the same header takes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from kedge.base.frozen import replace
from kedge.base.manifest import OCI_LAYER_ZSTD, Descriptor, ImageConfig, parse_config
from kedge.builds.request import NotMadeError
from kedge.builds.step_values import Base, refuse_recipe
from kedge.container.facts import Bind
from kedge.container.start.build_step import StepProgram, StepRoot, run_build_step
from kedge.container.start.host_script import HostScript, run_host_script
from kedge.errors import BuildFailed, CorruptImage, ProgramMissing
from kedge.image.formats.singularityd.documents import SourceRecord
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.tar_writer import LayerResult, write_layer
from kedge.image.layers.upper_directory import UpperOptions, read_upper
from kedge.image.make_layers import as_tree, make_config, make_manifest, make_section
from kedge.image.registry.download import download_url
from kedge.image.sources.image_source import ImageSource, LayeredImage, TreeImage, choose_reading
from kedge.image.store.build_steps import StepRecord
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained
from kedge.system.outside import Outside
from kedge.system.process import describe_status
from kedge.system.programs import find_program

_FORMAT = "kedge bootstrap 1"
_SCRIPT_FOLDER = "/run/kedge"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LAST_LINES = 20
_BUSYBOX_LIMIT = 64 << 20  # bytes
_BUSYBOX_FILES = {
    "etc/passwd": "root:!:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1\tlocalhost\n",
}


def find_instead(base: Base, workplace: Workplace) -> Base | None:
    """The image to begin with where the program of an agent is not here; None where it is. Raises if there is none."""
    if base.agent == "busybox":
        return None
    plan = plan_bootstrap(base)
    if plan.program:
        return None
    if plan.is_same:
        workplace.progress.warn(
            f"{base.agent} is not installed on this host; building from docker://{plan.image} instead"
        )
        if base.read_field("include"):
            workplace.progress.warn(
                f"'Include: {base.read_field('include').text}' was not applied: install these packages in %post"
            )
        return replace(base, agent="docker", reference=plan.image, fields={})
    raise ProgramMissing(
        f"{base.place}: 'Bootstrap: {base.agent}' needs the program {base.agent}, which this host does not have",
        hint=f"begin with the same system as an image: 'Bootstrap: docker' and 'From: {plan.image}'",
    )


def make_bootstrapped(
    base: Base, workplace: Workplace, store: Store, *, anew: bool = False, makes: bool = True
) -> LayeredImage:
    """The base of a header whose program is here; without `makes` one that the cache has, else NotMadeError."""
    if base.agent == "busybox":
        return _make_busybox(base, workplace, store, anew=anew, makes=makes)
    plan = plan_bootstrap(base)
    said = repr((base.agent, sorted((key, word.text) for key, word in base.fields.items()), str(workplace.platform)))

    def fill(folder: Path) -> None:
        _require_making(makes=makes)
        workplace.progress.note(f"running {Path(plan.program).name} for {base.place}")
        _run_script(base, plan.script, folder, workplace)
        if plan.inside:
            _run_inside(base, plan.inside, folder, workplace)

    return _make(base, said, fill, workplace, store, anew=anew)


def _require_making(*, makes: bool) -> None:
    if not makes:
        raise NotMadeError


def _make_busybox(base: Base, workplace: Workplace, store: Store, *, anew: bool, makes: bool) -> LayeredImage:
    """busybox from `MirrorURL`, or this host's, with a link for each of its programs."""
    mirror = base.read_field("mirrorurl").text.strip()
    own = "" if mirror else _find_static_busybox(base)
    said = mirror
    if own:
        with explained(own):
            said = hashlib.sha256(Path(own).read_bytes()).hexdigest()

    def fill(folder: Path) -> None:
        _require_making(makes=makes)
        with explained(folder):
            for name in ("bin", "etc", "root", "tmp", "var/tmp", "dev", "proc", "sys"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            for name, text in _BUSYBOX_FILES.items():
                (folder / name).write_text(text)
            (folder / "tmp").chmod(0o1777)
            (folder / "var/tmp").chmod(0o1777)
            with (folder / "bin/busybox").open("wb") as file:
                if own:
                    file.write(Path(own).read_bytes())
                else:
                    transport = workplace.open_access().transport
                    download_url(transport, mirror, file, limit=_BUSYBOX_LIMIT)
            (folder / "bin/busybox").chmod(0o755)
        _run_inside(base, ("/bin/busybox", "--install", "-s", "/bin"), folder, workplace)

    return _make(base, f"busybox {said} {workplace.platform}", fill, workplace, store, anew=anew)


def _find_static_busybox(base: Base) -> str:
    path = find_program("busybox") or ""
    if path and b"/ld-" not in Path(path).read_bytes():  # without a loader it runs in an empty directory
        return path
    raise refuse_recipe(
        base.place,
        "'Bootstrap: busybox' needs a 'MirrorURL:' line, as this host has no static busybox",
        "name the address of a static busybox, or begin with 'Bootstrap: docker' and 'From: busybox'",
    )


def _make(
    base: Base, said: str, fill: Callable[[Path], None], workplace: Workplace, store: Store, *, anew: bool
) -> LayeredImage:
    mirror = base.read_field("mirrorurl").text
    record = SourceRecord(base.agent, mirror, None, workplace.platform, 0)

    def open_tree() -> TreeImage:
        with contextlib.ExitStack() as closing:
            folder = closing.enter_context(_make_folder(workplace))
            fill(folder)
            root, source = read_upper(folder, UpperOptions(keeps_root=True))
            closing.callback(source.close)
            if b"dev" in root.children:
                root.children[b"dev"].children.clear()
            image = TreeImage(root, source, record, ImageConfig(workplace.platform), is_decorated=False)
            image.on_close = closing.pop_all().close
            return image

    return as_one_layer(open_tree, f"{_FORMAT} {said}", workplace, store, name=mirror, is_anew=anew)


@contextlib.contextmanager
def _make_folder(workplace: Workplace) -> Iterator[Path]:
    place = workplace.settings.temporary_directory
    with explained(place):
        folder = Path(tempfile.mkdtemp(prefix="kedge-bootstrap-", dir=place))
        folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)


class _Tail:
    """Passes on what a program prints, line by line, and keeps the end."""

    def __init__(self, workplace: Workplace) -> None:
        self._progress = workplace.progress
        self._rest = b""
        self.lines: deque[str] = deque(maxlen=_LAST_LINES)

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            self.lines.append(text)
            self._progress.detail(text)


def _run_script(base: Base, script: str, folder: Path, workplace: Workplace) -> None:
    """A script with the programs of this host, which can change the folder only."""
    tail = _Tail(workplace)
    with _make_folder(workplace) as place:
        text = f"set -e\nexport ROOTFS=/rootfs LC_ALL=C\n{script}"
        with explained(place):
            (place / "script.sh").write_text(text, "utf-8", "surrogateescape")
        program = HostScript(["/bin/sh", f"{_SCRIPT_FOLDER}/script.sh"])
        bind = Bind(str(place), _SCRIPT_FOLDER, readonly=True)
        status = run_host_script(StepRoot(str(folder)), program, tail.write, binds=[bind])
    _require_success(base, status, tail)
    if not any((folder / name).exists() for name in ("usr", "bin")):
        raise BuildFailed(
            f"{base.place}: 'Bootstrap: {base.agent}' ended without an error and made no files",
            context={"file": base.place.file, "line": str(base.place.line), "output": "\n".join(tail.lines)},
            hint="start from an image instead: 'Bootstrap: docker' and 'From: IMAGE'",
        )


def _run_inside(base: Base, argv: tuple[str, ...], folder: Path, workplace: Workplace) -> None:
    tail = _Tail(workplace)
    environment = {"PATH": _PATH, "HOME": "/root", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    _require_success(base, run_build_step(StepRoot(str(folder)), StepProgram(argv, environment), tail.write), tail)


def _require_success(base: Base, status: int, tail: _Tail) -> None:
    if status:
        raise BuildFailed(
            f"{base.place}: 'Bootstrap: {base.agent}' {describe_status(status)}",
            context={"file": base.place.file, "line": str(base.place.line), "output": "\n".join(tail.lines)},
            hint="check MirrorURL, OSVersion and Include in the header",
        )


# What `debootstrap`, `yum`, `dnf`, `zypper` and `arch` in a header mean: programs of this host, and images instead.
#
# Each is a shell script that fills the directory $ROOTFS, run as root of a user namespace, and may have a second part
# that runs inside of what the first one made. The words of a header are a stranger's, and the programs know options
# that run commands: so the words are checked by a grammar, by which no option, line break or file of this host passes.

# releases of Ubuntu; every other suite is Debian's, unless the mirror says otherwise
_UBUNTU = frozenset(
    (
        *("precise", "trusty", "utopic", "vivid", "wily", "xenial", "yakkety", "zesty", "artful", "bionic", "cosmic"),
        *("disco", "eoan", "focal", "groovy", "hirsute", "impish", "jammy", "kinetic", "lunar", "mantic", "noble"),
        *("oracular", "plucky", "questing"),
    )
)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")
_ADDRESS = re.compile(r"(?:https?|ftp)://[A-Za-z0-9\[][^\s\x00-\x20\x7f\"'`\\<>]{0,2000}")
_PACKAGE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@^._+:*=~-]{0,255}")
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
_DEVICES = "null zero full random urandom tty console ptmx"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How a root file system is made: a program, its script, what runs inside afterwards; or an image instead."""

    program: str  # empty: none of the programs is here
    script: str = ""
    inside: tuple[str, ...] = ()
    image: str = ""  # that begins with the same system
    is_same: bool = False  # whether kedge may take the image without being asked


def plan_bootstrap(base: Base) -> Bootstrap:
    """What to do for the agent of a base; raises InvalidRecipe where its header lacks something."""
    return _AGENTS[base.agent](base)


def _find(*names: str) -> str:
    for name in names:
        if path := find_program(name) or find_program(name, _SBIN):
            return path
    return ""


def _require(base: Base, name: str, example: str) -> None:
    if not base.read_field(name):
        raise refuse_recipe(
            base.place, f"'Bootstrap: {base.agent}' needs a '{name}:' line", f"add for example: {name}: {example}"
        )


def _check(base: Base, name: str, word: Outside, pattern: re.Pattern[str], what: str) -> str:
    """A line of the header, which may be missing; raises InvalidRecipe where it is not what it should be."""
    try:
        return word.read_by(pattern) if word else ""
    except ValueError:
        raise refuse_recipe(base.place, f"'{name}: {word.text}' is not {what}") from None


def _read_version(base: Base) -> str:
    return _check(base, "OSVersion", base.read_field("OSVersion"), _VERSION, "the name or number of a release")


def _read_address(base: Base, name: str, version: str) -> str:
    """The address, with the release put in."""
    word = Outside(base.read_field(name).text.replace("%{OSVERSION}", version))
    return _check(base, name, word, _ADDRESS, "an address that begins with http://, https:// or ftp://")


def _read_packages(base: Base) -> list[str]:
    words = base.read_field("Include").text.replace(",", " ").split()
    return [_check(base, "Include", Outside(word), _PACKAGE, "the name of a package") for word in words]


def _plan_debootstrap(base: Base) -> Bootstrap:
    _require(base, "OSVersion", "bookworm")
    _require(base, "MirrorURL", "https://deb.debian.org/debian/")
    suite = _read_version(base)
    mirror = _read_address(base, "MirrorURL", suite)
    packages = _read_packages(base)
    release = "ubuntu" if suite in _UBUNTU or "ubuntu" in mirror.lower() else "debian"
    image = f"{release}:{suite}"
    program = _find("debootstrap", "mmdebstrap")
    words = ["--variant=minbase"] + ([f"--include={','.join(packages)}"] if packages else [])
    if program.endswith("mmdebstrap"):
        # it wants an empty directory, and the image's has mount points: a tar in there, which is unpacked then;
        # terminals and devices cannot be mounted by one user alone
        words += ["--mode=root", "--format=tar", "--skip=chroot/mount/dev,chroot/mount/sys,chroot/mount/proc"]
        script = (
            'mkdir "$ROOTFS/.work"\n'
            f'TMPDIR="$ROOTFS/.work" {shlex.join([program, *words, suite])} '
            f'"$ROOTFS/.image.tar" {shlex.quote(mirror)}\n'
            'rm -rf "$ROOTFS/.work"\n'
            'tar -C "$ROOTFS" -xpf "$ROOTFS/.image.tar" --numeric-owner --exclude="./dev/?*"\n'
            'rm "$ROOTFS/.image.tar"\n'
        )
        return Bootstrap(program, script, image=image, is_same=True)
    # no devices can be made: files in their places keep the program from it, and the second part finds real ones
    script = (
        f'mkdir -p "$ROOTFS/dev"\nfor name in {_DEVICES}; do : > "$ROOTFS/dev/$name"; done\n'
        f'{shlex.join([program, "--foreign", *words, suite])} "$ROOTFS" {shlex.quote(mirror)}\n'
    )
    return Bootstrap(program, script, ("/debootstrap/debootstrap", "--second-stage"), image, is_same=True)


def _plan_yum(base: Base) -> Bootstrap:
    _require(base, "MirrorURL", "https://dl.rockylinux.org/pub/rocky/9/BaseOS/$basearch/os/")
    version = _read_version(base)
    mirror, update = (_read_address(base, name, version) for name in ("MirrorURL", "UpdateURL"))
    program = _find(*(("dnf", "yum") if base.agent == "dnf" else ("yum", "dnf")))
    packages = _read_packages(base) or ["dnf" if base.agent == "dnf" else "yum"]
    lines = ["[main]", "gpgcheck=0", "plugins=0", "reposdir=/nonexistent", "cachedir=/tmp/cache"]
    lines += ["[base]", "name=base", f"baseurl={mirror}", "enabled=1"]
    lines += ["[updates]", "name=updates", f"baseurl={update}", "enabled=1"] if update else []
    release = [f"--releasever={version}"] if version else []
    words = [program, "-c", "/tmp/yum.conf", "-y", "--installroot", "/rootfs", *release, "install", *packages]
    script = f"cat > /tmp/yum.conf <<'END'\n{chr(10).join(lines)}\nEND\n{_prepare_rpm()}{shlex.join(words)}\n"
    return Bootstrap(program, script, image=_name_rpm_image(mirror, version))


def _prepare_rpm() -> str:
    return 'mkdir -p "$ROOTFS/etc" "$ROOTFS/dev" "$ROOTFS/var/lib/rpm"\n: > "$ROOTFS/dev/null"\n'


def _name_rpm_image(mirror: str, version: str) -> str:
    for word, name in (
        ("rocky", "rockylinux/rockylinux"),
        ("alma", "almalinux"),
        ("fedora", "fedora"),
        ("oracle", "oraclelinux"),
        ("centos", "centos" if version.startswith(("5", "6", "7")) else "quay.io/centos/centos"),
    ):
        if word in mirror.lower():
            prefix = "stream" if name.startswith("quay.io") else ""
            return f"{name}:{prefix}{version or 'latest'}"
    return f"rockylinux/rockylinux:{version or '9'}"


def _plan_zypper(base: Base) -> Bootstrap:
    version = _read_version(base)
    mirror = _read_address(base, "MirrorURL", version)
    image = f"opensuse/leap:{version}" if version else "opensuse/leap:latest"
    program = _find("zypper")
    if "sle" in base.read_field("product").text.lower():
        image = f"registry.suse.com/bci/bci-base:{version or 'latest'}"
    packages = ["zypper", *_read_packages(base)]
    words = [program, "--root", "/rootfs", "--non-interactive"]
    script = (
        f"{_prepare_rpm()}{shlex.join([*words, 'ar', '-G', mirror, 'repo'])}\n"
        f"{shlex.join([*words, '--no-gpg-checks', 'install', '-l', '--no-recommends', *packages])}\n"
    )
    if program:
        _require(base, "MirrorURL", "https://download.opensuse.org/distribution/leap/15.6/repo/oss/")
    return Bootstrap(program, script, image=image)


def _plan_arch(base: Base) -> Bootstrap:
    program = _find("pacstrap")
    words = [program, "-c", "-G", "-M", "/rootfs", "base", *_read_packages(base)]
    return Bootstrap(program, f"{shlex.join(words)}\n", image="archlinux:latest")


_AGENTS: Mapping[str, Callable[[Base], Bootstrap]] = {
    "debootstrap": _plan_debootstrap,
    "yum": _plan_yum,
    "dnf": _plan_yum,
    "zypper": _plan_zypper,
    "arch": _plan_arch,
}


# An image that has no layers (a SIF, a directory, programs of this host) as a base with one layer, kept in the cache.
#
# The layer is known by what the image holds: the same file under another name costs a look at a small record.

_LAYERS_FORMAT = "kedge base 2"  # raise it when the same image gives another layer
_PIECE = 1 << 20


def as_one_layer(
    open_image: Callable[[], ImageSource],
    identity: str,
    workplace: Workplace,
    store: Store,
    *,
    name: str,
    is_anew: bool = False,
) -> LayeredImage:
    """The image that `open_image` opens as one layer; `identity` says what it holds, `name` what people call it.

    An image whose layer the cache has is not opened, unless the layer is wanted anew: its record tells all.
    """
    key = hashlib.sha256(f"{_LAYERS_FORMAT} {identity}".encode("utf-8", "surrogateescape")).hexdigest()
    known = None if is_anew else store.steps.find(key)
    record = known or _make_layer(key, open_image, workplace, store, is_anew=is_anew)
    assert record.layer is not None
    layer, raw = record.layer, str(record.extra["config"]).encode()
    config = parse_config(raw)
    source = LayerSource(
        layer.digest.hex[:12], layer.digest, record.diff_id, partial(read_cached_layer, store, layer), layer.size
    )
    origin = SourceRecord(str(record.extra["kind"]), name, None, config.platform, int(record.extra["created"]))
    options = choose_reading(workplace)
    manifest = make_manifest(raw, [layer])
    is_decorated = bool(record.extra["is_decorated"])
    return LayeredImage(
        manifest=manifest,
        config_bytes=raw,
        config=config,
        layers=(source,),
        record=origin,
        options=options,
        is_decorated=is_decorated,
    )


def _make_layer(
    key: str, open_image: Callable[[], ImageSource], workplace: Workplace, store: Store, *, is_anew: bool
) -> StepRecord:
    """The record of the image's layer, which is written unless another process has done that meanwhile."""
    claimed = store.steps.claim(key, workplace.progress.note, is_anew=is_anew)
    if isinstance(claimed, StepRecord):
        return claimed
    with claimed:
        image = open_image()
        try:
            return _write_layer(key, image, workplace, store)
        finally:
            image.close()


def _write_layer(key: str, image: ImageSource, workplace: Workplace, store: Store) -> StepRecord:
    with as_tree(image, workplace.settings.temporary_directory) as (root, source):

        def write(file: BinaryIO) -> LayerResult:
            return write_layer(root, source, file, "zstd", threads=workplace.threads)

        layer, diff_id = store.add_layer(write, OCI_LAYER_ZSTD)
    raw = make_config(image, make_section(image, workplace.progress), diff_id)
    extra = {
        "config": raw.decode(),
        "kind": image.record.kind,
        "created": image.record.created,
        "is_decorated": image.is_decorated,
    }
    record = StepRecord(key, layer, diff_id, f"base: {image.record.kind} {image.record.reference}", extra)
    store.steps.write(record)
    return record


def read_cached_layer(store: Store, layer: Descriptor) -> Iterator[bytes]:
    """The compressed bytes of a layer that is in the cache."""
    path = store.blob_path(layer.digest)
    with contextlib.ExitStack() as closing:
        with explained(path):
            file = closing.enter_context(path.open("rb"))
        yield from _read(file, path, layer)


def _read(file: BinaryIO, path: Path, layer: Descriptor) -> Iterator[bytes]:
    left = layer.size
    while left:
        with explained(path):
            piece = file.read(min(_PIECE, left))
        if not piece:
            raise CorruptImage(f"the layer {layer.digest} in the cache is incomplete", hint="run 'kedge cache verify'")
        left -= len(piece)
        yield piece
