# SPDX-License-Identifier: BSD-3-Clause
"""What `debootstrap`, `yum`, `dnf`, `zypper` and `arch` in a header mean: programs of this host, and images instead.

Each is a shell script that fills the directory $ROOTFS, run as root of a user namespace, and may have a second part
that runs inside of what the first one made. The words of a header are a stranger's, and the programs know options that
run commands: so the words are checked by a grammar, by which no option, line break or file of this host passes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kedge.builds.step_values import Base, refuse_recipe
from kedge.system.outside import Outside
from kedge.system.programs import find_program

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
