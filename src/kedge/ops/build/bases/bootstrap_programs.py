# SPDX-License-Identifier: BSD-3-Clause
"""What `debootstrap`, `yum`, `dnf`, `zypper` and `arch` in a header mean: programs of this host, and images instead.

Each is a shell script that fills the directory $ROOTFS, run as root of a user namespace, and may have a second part
that runs inside of what the first one made.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kedge.posix.programs import find_program
from kedge.recipe.steps import Base, refuse_recipe

# releases of Ubuntu; every other suite is Debian's, unless the mirror says otherwise
_UBUNTU = frozenset(
    (
        *("precise", "trusty", "utopic", "vivid", "wily", "xenial", "yakkety", "zesty", "artful", "bionic", "cosmic"),
        *("disco", "eoan", "focal", "groovy", "hirsute", "impish", "jammy", "kinetic", "lunar", "mantic", "noble"),
        *("oracular", "plucky", "questing"),
    )
)
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


def _require(base: Base, key: str, name: str, example: str) -> str:
    value = base.fields.get(key, "").strip()
    if not value:
        raise refuse_recipe(
            base.place, f"'Bootstrap: {base.agent}' needs a '{name}:' line", f"add for example: {name}: {example}"
        )
    return value


def _split(fields: Mapping[str, str], key: str = "include") -> list[str]:
    return fields.get(key, "").replace(",", " ").split()


def _plan_debootstrap(base: Base) -> Bootstrap:
    suite = _require(base, "osversion", "OSVersion", "bookworm")
    mirror = _require(base, "mirrorurl", "MirrorURL", "https://deb.debian.org/debian/").replace("%{OSVERSION}", suite)
    packages = _split(base.fields)
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
    version = base.fields.get("osversion", "").strip()
    mirror = _require(base, "mirrorurl", "MirrorURL", "https://dl.rockylinux.org/pub/rocky/9/BaseOS/$basearch/os/")
    mirror = mirror.replace("%{OSVERSION}", version)
    update = base.fields.get("updateurl", "").replace("%{OSVERSION}", version)
    program = _find(*(("dnf", "yum") if base.agent == "dnf" else ("yum", "dnf")))
    packages = _split(base.fields) or ["dnf" if base.agent == "dnf" else "yum"]
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
    version = base.fields.get("osversion", "").strip()
    mirror = base.fields.get("mirrorurl", "").replace("%{OSVERSION}", version)
    image = f"opensuse/leap:{version}" if version else "opensuse/leap:latest"
    program = _find("zypper")
    if "sle" in base.fields.get("product", "").lower():
        image = f"registry.suse.com/bci/bci-base:{version or 'latest'}"
    packages = ["zypper", *_split(base.fields)]
    words = [program, "--root", "/rootfs", "--non-interactive"]
    script = (
        f"{_prepare_rpm()}{shlex.join([*words, 'ar', '-G', mirror, 'repo'])}\n"
        f"{shlex.join([*words, '--no-gpg-checks', 'install', '-l', '--no-recommends', *packages])}\n"
    )
    if program:
        _require(base, "mirrorurl", "MirrorURL", "https://download.opensuse.org/distribution/leap/15.6/repo/oss/")
    return Bootstrap(program, script, image=image)


def _plan_arch(base: Base) -> Bootstrap:
    program = _find("pacstrap")
    words = [program, "-c", "-G", "-M", "/rootfs", "base", *_split(base.fields)]
    return Bootstrap(program, f"{shlex.join(words)}\n", image="archlinux:latest")


_AGENTS: Mapping[str, Callable[[Base], Bootstrap]] = {
    "debootstrap": _plan_debootstrap,
    "yum": _plan_yum,
    "dnf": _plan_yum,
    "zypper": _plan_zypper,
    "arch": _plan_arch,
}
