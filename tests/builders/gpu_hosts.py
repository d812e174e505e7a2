# SPDX-License-Identifier: BSD-3-Clause
"""Makes trees of hosts with NVIDIA drivers, as tables: /proc, /dev, the loader's cache, libraries; and CUDA images."""

from __future__ import annotations

import json
import struct

from kedge.container.facts import HostFacts, ImageFacts
from kedge.system.views import TableView

X86, X86_32, ARM = 0x0303, 0x0003, 0x0A03
CUDA_IMAGE = 'export CUDA_VERSION="${CUDA_VERSION:-"12.9.1"}"\n'

# stem: name that ldconfig knows (its soname); %s is the driver's version
COMPUTE = {
    "libcuda": "libcuda.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvidia-allocator": "libnvidia-allocator.so.1",
    "libnvidia-gpucomp": "libnvidia-gpucomp.so.%s",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-opencl": "libnvidia-opencl.so.1",
    "libnvidia-pkcs11-openssl3": "libnvidia-pkcs11-openssl3.so.%s",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-tileiras": "libnvidia-tileiras.so.%s",
}
UTILITY = {
    "libnvidia-cfg": "libnvidia-cfg.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-nscq": "libnvidia-nscq.so.2",
}
VIDEO = {"libnvcuvid": "libnvcuvid.so.1", "libnvidia-encode": "libnvidia-encode.so.1"}
GRAPHICS = {
    "libEGL_nvidia": "libEGL_nvidia.so.0",
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libnvidia-glcore": "libnvidia-glcore.so.%s",
}
OTHERS = {"libnvidia-ngx": "libnvidia-ngx.so.1", "libnvidia-gtk3": "libnvidia-gtk3.so.%s"}
ALL = COMPUTE | UTILITY | VIDEO | GRAPHICS | OTHERS
NEUTRAL = ("libGL.so.1", "libEGL.so.1", "libGLX.so.0", "libGLdispatch.so.0", "libOpenCL.so.1", "libOpenGL.so.0")


def make_cache(entries: list[tuple[int, str, str]], order: str = "<", layout: str = "new") -> bytes:
    """The loader's cache in the `new`, the `old` or the `both` layout; `order` is struct's letter."""
    new = _make_table(entries, order)
    if layout == "new":
        return new
    names, places = _make_names(entries)
    old = b"ld.so-1.7.0\0" + struct.pack(order + "I", len(entries))
    for (flags, _, _), (name, path) in zip(entries, places, strict=True):
        old += struct.pack(order + "III", flags, name, path)
    return old + names if layout == "old" else old + b"\0" * (-len(old) % 8) + new


def _make_names(entries: list[tuple[int, str, str]], start: int = 0) -> tuple[bytes, list[tuple[int, int]]]:
    names, places = b"", []
    for _, name, path in entries:
        places.append((start + len(names), start + len(names) + len(name) + 1))
        names += name.encode() + b"\0" + path.encode() + b"\0"
    return names, places


def _make_table(entries: list[tuple[int, str, str]], order: str) -> bytes:
    names, places = _make_names(entries, 48 + 24 * len(entries))
    endian = 2 if order == "<" else 3
    table = b"glibc-ld.so.cache1.1" + struct.pack(order + "II", len(entries), len(names)) + bytes([endian]) + b"\0" * 19
    for (flags, _, _), (name, path) in zip(entries, places, strict=True):
        table += struct.pack(order + "IIIIQ", flags, name, path, 0, 0)
    return table + names


def make_elf(bits: int = 64, machine: int = 62) -> bytes:
    """The head of a shared library, enough to tell its kind of machine."""
    return b"\x7fELF" + bytes([2 if bits == 64 else 1, 1, 1]) + b"\0" * 9 + struct.pack("<HH", 3, machine) + b"\0" * 44


def make_compat_library(told: object, section: str = ".note.cuda.fwd_compatibility", alignment: int = 4) -> bytes:
    """A libcuda with the note that lists host drivers; sections lie at its end, as in real ones."""
    owner, text = b"NVIDIA Corporation\0", json.dumps(told).encode() + b"\0"
    note = struct.pack("<III", len(owner), len(text), 1) + owner + b"\0" * (-len(owner) % alignment)
    note += text + b"\0" * (-len(text) % alignment)
    names = b"\0.shstrtab\0" + section.encode() + b"\0"
    body = b"code" * 1000
    note_at = 64 + len(body)
    names_at = note_at + len(note)
    table_at = names_at + len(names)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHIQQQ", 3, 62, 1, 0, 0, table_at)
    header += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, 3, 1)
    table = b"\0" * 64
    table += struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, names_at, len(names), 0, 0, 1, 0)
    table += struct.pack("<IIQQQQIIQQ", 11, 7, 2, 0, note_at, len(note), 0, 0, alignment, 0)
    return header + body + note + names + table


def make_driver_tree(
    version: str = "580.95.05",
    models: tuple[str, ...] = ("NVIDIA H200",),
    *,
    folder: str = "/usr/lib/x86_64-linux-gnu",
    libraries: dict[str, str] = ALL,
    library_version: str = "",
    flags: int = X86,
) -> dict[str, bytes | str | None]:
    """A host's files: a running driver, its cards with minors that run against their numbers, its libraries."""
    tree: dict[str, bytes | str | None] = {
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release\n",
        "/proc/sys/kernel/hostname": "gpu7\n",
        **{f"/dev/{name}": "" for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "null")},
        "/usr/bin/nvidia-smi": "#!",
        "/usr/bin/nvidia-cuda-mps-control": "#!",
        "/etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n",
        f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin": b"firmware",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "{}",
        "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json": "{}",
    }
    for number, model in enumerate(models):
        minor = len(models) - 1 - number
        tree[f"/proc/driver/nvidia/gpus/0000:{number + 10:02x}:00.0/information"] = (
            f"Model: \t\t {model}\nIRQ:   \t\t 55\nGPU UUID: \t GPU-{number}1111111-2222-3333-4444-555555555555\n"
            f"Bus Location: \t 0000:{number + 10:02x}:00.0\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
        )
        tree[f"/dev/nvidia{minor}"] = ""
    tree |= make_libraries(library_version or version, folder, libraries)
    entries = [(flags, names % version if "%s" in names else names) for names in libraries.values()]
    cache = [(flags, name, f"{folder}/{name}") for flags, name in entries]
    cache += [(flags, name, f"{folder}/{name}") for name in NEUTRAL]
    tree["/etc/ld.so.cache"] = make_cache(cache)
    return tree


def make_libraries(version: str, folder: str, libraries: dict[str, str]) -> dict[str, bytes | str | None]:
    """Library files that end in the version, and the links of their sonames; and loaders that are nobody's."""
    tree: dict[str, bytes | str | None] = {}
    for stem, soname in libraries.items():
        tree[f"{folder}/{stem}.so.{version}"] = make_elf()
        if "%s" not in soname:
            tree[f"{folder}/{soname}"] = f"-> {stem}.so.{version}"
    for name in NEUTRAL:
        tree[f"{folder}/{name}"] = make_elf()
    return tree


def make_host(
    tree: dict[str, bytes | str | None],
    machine: str = "x86_64",
    refused: tuple[str, ...] = (),
    **environ: str,
) -> HostFacts:
    """The facts of a host with such a tree."""
    return HostFacts(view=TableView(tree, refused=refused), environ=environ, machine=machine)


def make_image(tree: dict[str, bytes | str | None] | None = None, env: str = CUDA_IMAGE) -> ImageFacts:
    """The facts of an image; `env` is what a converter wrote of its environment."""
    return ImageFacts(
        view=TableView({"/.singularity.d/env/10-docker2singularity.sh": env, **(tree or {})}), path="/i.sif"
    )


def make_compat_image(
    version: str, told: object | None, folder: str = "/usr/local/cuda/compat", library_path: str = ""
) -> ImageFacts:
    """An image with driver libraries of its own."""
    library = make_compat_library(told) if told is not None else make_elf()
    tree: dict[str, bytes | str | None] = {
        f"{folder}/libcuda.so.{version}": library,
        f"{folder}/libcuda.so.1": f"-> libcuda.so.{version}",
    }
    env = CUDA_IMAGE + (f'export LD_LIBRARY_PATH="{library_path}"\n' if library_path else "")
    return make_image(tree, env)
