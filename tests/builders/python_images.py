# SPDX-License-Identifier: BSD-3-Clause
"""An image with Python and pip, packed from this host, and wheels that are written here: no network is needed."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import zipfile
from pathlib import Path

from tests.builders.containers import Runner, each_role, give_to
from tests.builders.once import make_once
from tests.requirements import require_file

_PROGRAMS = ("/usr/bin/python3", "/bin/sh", "/bin/ls", "/bin/cat", "/bin/rm", "/bin/mkdir", "/bin/cp", "/usr/bin/env")
_SYSTEM = Path("/usr/lib/python3/dist-packages")
_NEEDED = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
# pip of Debian refuses to install beside the distribution's packages, and asks the network for its own version
PIP = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}


def make_python_image(runner: Runner, name: str = "python", programs: tuple[str, ...] = ()) -> Path:
    """A sandbox of the runner's user with the host's Python, pip and setuptools; skips where the host has none.

    `programs` of the host are inside, too.
    """
    require_file("/usr/lib/python3/dist-packages/pip")
    require_file("/usr/lib/python3/dist-packages/setuptools")
    require_file("/usr/lib/python3/dist-packages/pkg_resources")
    words = ",".join((*_PROGRAMS, *programs))
    mark = hashlib.sha256(words.encode()).hexdigest()[:12]
    kept = make_once(f"python-image-{mark}", lambda place: _pack_python(words, place))
    folder = runner.folder / name
    subprocess.run(["cp", "-aT", kept, folder], check=True)
    return give_to(runner, folder)


def _pack_python(words: str, folder: Path) -> None:
    for runner in each_role("user"):
        runner.read("pull", "--sandbox", str(runner.home / "made"), f"host:{words}")
        subprocess.run(["cp", "-aT", runner.home / "made", folder], check=True)
    target = folder / "usr/lib/python3/dist-packages"
    target.mkdir(parents=True, exist_ok=True)
    for part in (*_NEEDED, *(path.name for path in _SYSTEM.glob("wheel"))):
        # with what is compiled: each start of pip would compile it again
        shutil.copytree(_SYSTEM / part, target / part, dirs_exist_ok=True)
    for path in (
        path for name in ("pip", "setuptools", "wheel") for path in _SYSTEM.glob(f"{name}-*.*-info")
    ):  # commands are found by them
        shutil.copytree(path, target / path.name, dirs_exist_ok=True)


def write_wheel(
    folder: Path, name: str, version: str, *, requires: tuple[str, ...] = (), module: tuple[str, str] = ("", "")
) -> Path:
    """A wheel with one module, which knows its version; `module` gives it another name and more text."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        f"{module[0] or name}.py": f'VERSION = __version__ = "{version}"\n{module[1]}',
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(inside, text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
