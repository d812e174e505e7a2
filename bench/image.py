# SPDX-License-Identifier: BSD-3-Clause
"""Builds the benchmark image: an OCI layout of real packages, the same bytes from the same packages.

Four kinds of layer, lowest first, as a research image has them: a Debian base, an MPI stack with compilers, the Python
science packages, PyTorch. `--size` adds or leaves out real packages until the target is met; `--files` adds many
small files cut from real text. Every tar is sorted, has fixed times and owners, and is compressed by gzip -6 -n.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

EPOCH = 1_700_000_000
MPI_PACKAGES = ["openmpi-bin", "libopenmpi-dev", "gcc", "g++", "gfortran", "make", "python3", "python3-pip", "git"]
SCIENCE = ["numpy", "scipy", "pandas", "matplotlib", "scikit-learn", "sympy", "pillow"]
TORCH = ["torch==2.13.0"]
# real packages of Debian that fill an image up, large ones first; downloaded only as far as the size asks
FILLERS = [
    "llvm-14-dev", "libllvm14", "clang-14", "openjdk-17-jre-headless", "libboost1.74-dev", "linux-headers-common",
    "texlive-latex-base", "texlive-latex-recommended", "libqt5webengine5", "chromium", "libreoffice-core",
    "libreoffice-common", "blender-data", "vtk9", "libvtk9-dev", "libpetsc-real3.18-dev",
    "libtrilinos-kokkos-dev", "r-base-core", "octave-common", "gnuradio", "ghc", "rustc", "libstd-rust-dev",
    "golang-1.19-go", "golang-1.19-src", "nodejs", "mono-runtime-common", "postgresql-15", "mariadb-server-core",
    "gdb-multiarch", "qemu-system-data", "qemu-system-x86", "kicad-libraries", "fonts-noto-cjk", "wine64",
    "freecad-common", "gimp-data", "inkscape", "asymptote", "maxima-share", "sagemath-database-elliptic-curves",
    "libopencv-dev", "paraview", "python3-pyqt5.qtwebengine", "thunderbird", "firefox-esr", "libwebkit2gtk-4.1-0",
    "gcc-12-source", "linux-source-6.1", "openjdk-17-jdk-headless",
]  # fmt: skip


def run(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(argv)} failed:\n{done.stderr[-2000:]}")
    return done


def apt_mirror() -> str:
    """The mirror this machine's own apt uses."""
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if file.is_file():
            for line in file.read_text().splitlines():
                found = re.match(r"(?:URIs:|deb)\s.*?(https?://\S+)", line)
                if found and "security" not in line:
                    return found.group(1)
    sys.exit("no Debian mirror found in the machine's apt sources")


def suite() -> str:
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return release.get("VERSION_CODENAME", "bookworm").strip('"')


def build_base(target: Path) -> None:
    run("debootstrap", "--variant=minbase", suite(), str(target), apt_mirror())
    for name in Path("/etc/apt/apt.conf.d").glob("*"):  # a proxy or pinned setting of this machine is needed inside too
        if not (target / "etc/apt/apt.conf.d" / name.name).exists():
            shutil.copy(name, target / "etc/apt/apt.conf.d")


def inside(root: Path, *argv: str) -> None:
    run("chroot", str(root), "env", "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *argv)


def unpack_debs(names: list[str], target: Path, downloads: Path, wanted: int) -> int:
    """Unpack packages into `target` until `wanted` bytes are there; returns what was added."""
    downloads.mkdir(parents=True, exist_ok=True)
    total = 0
    for name in names:
        if total >= wanted:
            break
        before = {p.name for p in downloads.glob("*.deb")}
        have = sorted(downloads.glob(f"{name}_*.deb"))
        if not have:
            done = subprocess.run(["apt-get", "download", name], cwd=downloads, capture_output=True, check=False)
            if done.returncode:
                continue  # not every package exists on every architecture
            have = [p for p in downloads.glob("*.deb") if p.name not in before]
        place = target / "opt" / "filler" / name
        place.mkdir(parents=True, exist_ok=True)
        run("dpkg-deb", "-x", str(have[0]), str(place))
        total += sum(p.lstat().st_size for p in place.rglob("*") if not p.is_symlink() and p.is_file())
    return total


def install_wheels(names: list[str], target: Path) -> None:
    site = target / "usr/local/lib/python3.11/dist-packages"
    site.mkdir(parents=True, exist_ok=True)
    run("/usr/bin/python3", "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--target", str(site), *names)


def cut_small_files(target: Path, count: int) -> None:
    """`count` distinct small files, cut from real text."""
    text = b"".join(sorted(p.read_bytes() for p in Path("/usr/share/common-licenses").iterdir() if p.is_file()))
    for number in range(count):
        folder = target / "opt" / "many" / f"{number // 500:04d}"
        if number % 500 == 0:
            folder.mkdir(parents=True, exist_ok=True)
        start = number * 977 % (len(text) - 4096)
        (folder / f"{number:06d}.txt").write_bytes(b"%d\n" % number + text[start : start + 200 + number % 1800])


SKIP = ("./var/log/", "./var/cache/", "./var/lib/apt/lists/", "./proc/", "./sys/", "./dev/", "./run/", "./tmp/")


def write_layer(root: Path, blobs: Path, lower: set[str]) -> dict[str, object]:
    """Tar what `root` has beyond `lower` names into a gzip blob; returns the descriptor with its diff_id."""
    names = [str(p) for p in sorted(root.rglob("*"))]
    plain, packed = hashlib.sha256(), hashlib.sha256()
    temporary = blobs / "layer.tmp"
    with temporary.open("wb") as out:
        gzip_process = subprocess.Popen(["gzip", "-6", "-n"], stdin=subprocess.PIPE, stdout=out)
        assert gzip_process.stdin is not None

        class Tee(io.RawIOBase):
            def write(self, data: object) -> int:  # type: ignore[override]
                plain.update(data)  # type: ignore[arg-type]
                return gzip_process.stdin.write(data)  # type: ignore[union-attr,arg-type]

        with tarfile.open(fileobj=Tee(), mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[arg-type]
            for name in names:
                arc = os.path.relpath(name, root)
                if arc in lower or any(f"./{arc}".startswith(skip) for skip in SKIP):
                    continue
                lower.add(arc)
                info = tar.gettarinfo(name, arc)
                if info is None:
                    continue
                info.mtime, info.uname, info.gname = min(int(info.mtime), EPOCH), "", ""
                if info.isfile():
                    with Path(name).open("rb") as content:
                        tar.addfile(info, content)
                else:
                    tar.addfile(info)
        gzip_process.stdin.close()
        gzip_process.wait()
    with temporary.open("rb") as file:
        while chunk := file.read(1 << 20):
            packed.update(chunk)
    size = temporary.stat().st_size
    temporary.rename(blobs / packed.hexdigest())
    return {"digest": f"sha256:{packed.hexdigest()}", "size": size, "diff_id": f"sha256:{plain.hexdigest()}"}


def put_blob(blobs: Path, document: object) -> tuple[str, int]:
    data = json.dumps(document, sort_keys=True).encode()
    name = hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    return f"sha256:{name}", len(data)


def write_image(layout: Path, layers: list[dict[str, object]], tag: str) -> None:
    blobs = layout / "blobs" / "sha256"
    machine = {"aarch64": "arm64", "x86_64": "amd64"}.get(os.uname().machine, os.uname().machine)
    config, config_size = put_blob(
        blobs,
        {
            "architecture": machine,
            "os": "linux",
            "created": "2023-11-14T22:13:20Z",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
                "Cmd": ["python3"],
                "Labels": {"org.opencontainers.image.title": "bench"},
            },
            "rootfs": {"type": "layers", "diff_ids": [layer["diff_id"] for layer in layers]},
            "history": [{"created_by": "bench"} for _ in layers],
        },
    )
    kind = "application/vnd.oci.image."
    manifest, manifest_size = put_blob(
        blobs,
        {
            "schemaVersion": 2,
            "mediaType": kind + "manifest.v1+json",
            "config": {"mediaType": kind + "config.v1+json", "digest": config, "size": config_size},
            "layers": [
                {"mediaType": kind + "layer.v1.tar+gzip", "digest": layer["digest"], "size": layer["size"]}
                for layer in layers
            ],
        },
    )
    entry = {"mediaType": kind + "manifest.v1+json", "digest": manifest, "size": manifest_size}
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}  # type: ignore[assignment]
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def build_image(work: Path, megabytes: int, files: int) -> Path:
    """The layout for this size, built once and kept under `work`."""
    layout = work / f"image-{megabytes}MB-{files}files"
    if (layout / "index.json").exists():
        return layout
    if os.geteuid():
        sys.exit(
            "building the benchmark image needs root (debootstrap); once built, whoever may write to --work can measure"
        )
    shutil.rmtree(layout, ignore_errors=True)
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    roots = _build_roots(work, megabytes)
    seen: set[str] = set()
    layers = [write_layer(root, blobs, seen) for root in roots]
    if files:
        extra = work / f"many-{files}"
        if not extra.exists():
            cut_small_files(extra, files)
        layers.append(write_layer(extra, blobs, seen))
    write_image(layout, layers, "bench")
    return layout


def _build_roots(work: Path, megabytes: int) -> list[Path]:
    """Folders to tar, lowest layer first, made once and shared by all sizes."""
    base, mpi, science, torch = (work / name for name in ("root-base", "root-mpi", "root-science", "root-torch"))
    if not base.exists():
        build_base(work / "root-base.tmp")
        (work / "root-base.tmp").rename(base)
    roots = [base]
    steps = [(300, mpi, None), (700, science, SCIENCE), (1100, torch, TORCH)]
    for least, place, wheels in steps:
        if megabytes < least:
            break
        if not place.exists():
            temporary = place.with_suffix(".tmp")
            shutil.rmtree(temporary, ignore_errors=True)
            if wheels is None:
                run("cp", "-a", str(base), str(temporary))
                inside(temporary, "apt-get", "update")
                inside(temporary, "apt-get", "install", "-y", "--no-install-recommends", *MPI_PACKAGES)
            else:
                install_wheels(wheels, temporary)
            temporary.rename(place)
        roots.append(place)
    filled = sum(_weigh(root) for root in ([mpi] if mpi in roots else [base]) + roots[2:])
    missing = megabytes * 1_000_000 - filled
    if missing > 50_000_000:
        filler = work / f"root-filler-{megabytes}"
        if not filler.exists():
            unpack_debs(FILLERS, filler, work / "debs", missing)
        roots.append(filler)
    return roots


def _weigh(root: Path) -> int:
    return sum(p.lstat().st_size for p in root.rglob("*") if p.is_file() and not p.is_symlink())


if __name__ == "__main__":
    print(build_image(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))
