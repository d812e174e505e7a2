# SPDX-License-Identifier: BSD-3-Clause
"""kedge as users have it: installed by its user from a wheel, by pip, by uv, or in a prefix of its own.

The wheel is written here as pyproject.toml says, because building one needs hatchling and so the network. It names no
requirements: a `.pth` file shows the installed kedge those of the checkout's environment.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.containers import Runner, as_user, each_role, give_to
from tests.builders.made_pages import make_pages
from tests.builders.once import make_once
from tests.requirements import REPOSITORY

PYTHON = "/usr/bin/python3"  # the system's: users can read it
NO_UV = "uv is not installed"
_PROGRAM = ".where-kedge-is"


@dataclass(frozen=True)
class InstalledRunner(Runner):
    """Runs an installed kedge from where users stand; what tests start from / starts there too."""

    place: Path = Path("/tmp")
    package: Path = Path("/")  # where its modules are
    number: int = 0  # which of INSTALLED

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Nothing of the checkout's."""
        inherited = super().variables(more)
        return {name: value for name, value in inherited.items() if name not in ("PYTHONPATH", "KEDGE_KEEP")}

    def run(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, from the user's place."""
        return super().run(*words, env=env, cwd=self.place if cwd in (None, "/") else cwd, stdin=stdin)


# How kedge was installed, and where its user stands: each once, not each with each
INSTALLED = (("venv", "home"), ("user", "project"), ("prefix", "/tmp"), ("uv", "project"))


def each_installed(how: str, where: str) -> Iterator[InstalledRunner]:
    """A fixture's body: an ordinary user who has installed kedge so and stands there, with secrets in the home."""
    for plain in each_role("user"):
        project = plain.home / "projects/run"
        project.mkdir(parents=True)
        for name in (".ssh/id_ed25519", ".ngc/config", ".docker/config.json"):
            (plain.home / name).parent.mkdir()
            (plain.home / name).write_text("text-of-the-canary")
        give_to(plain, plain.home)
        kedge = install(how, plain.home, plain.uid)
        place = {"home": plain.home, "project": project}.get(where, Path(where))
        package = next(path.parent for path in plain.home.rglob("kedge/cli") if "__pycache__" not in path.parts)
        # some tests give another home, and so the user's packages would be elsewhere
        environment = {"PYTHONUSERBASE": str(plain.home / ".local")} if how == "user" else {}
        number = INSTALLED.index((how, where))
        yield InstalledRunner(plain.folder, plain.uid, environment, place, package, number, program=(str(kedge),))


def install(how: str, home: Path, uid: int) -> Path:
    """kedge in this home: installed once in a run of the tests, elsewhere, and moved with the paths in its files."""

    def make(folder: Path) -> None:
        folder.mkdir()
        if os.getuid() == 0:
            os.chown(folder, uid, uid)
        wheel = write_wheel(folder)
        kedge = INSTALLERS[how](folder, uid, wheel)
        wheel.unlink()
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # uv's
        (folder / _PROGRAM).write_text(str(kedge.relative_to(folder)))

    made = make_once(f"installed-{how}", make)
    old, new = str(made.with_name(f"{made.name}.half")), str(home)
    present = set(home.rglob("*"))
    shutil.copytree(made, home, symlinks=True, dirs_exist_ok=True)
    for path in set(home.rglob("*")) - present:
        if path.is_symlink():
            target = str(path.readlink())
            path.unlink()
            path.symlink_to(target.replace(old, new))
        elif path.is_file() and (path.parent.name == "bin" or path.name == "pyvenv.cfg"):
            data, times = path.read_bytes(), path.stat()
            if old.encode() in data:
                path.write_bytes(data.replace(old.encode(), new.encode()))
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        if os.getuid() == 0:
            os.chown(path, uid, uid, follow_symlinks=False)
    return home / (home / _PROGRAM).read_text()


def write_wheel(folder: Path) -> Path:
    """A wheel of the checkout."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    name, version = project["project"]["name"], project["project"]["version"]
    rules = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    source = REPOSITORY / "src"
    files = {
        str(path.relative_to(source)): path.read_bytes()
        for path in sorted((source / name).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    for old, new in rules["force-include"].items():
        files |= _read_tree(REPOSITORY / old, new)
    for old, new in rules["shared-scripts"].items():
        files |= _read_tree(REPOSITORY / old, f"{name}-{version}.data/scripts/{new}")
    files |= _read_tree(make_pages() / "man", f"{name}-{version}.data/data/share/man/man1")  # scripts/build_hook.py
    about = f"{name}-{version}.dist-info"
    files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""]).encode()
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, data)
    wheel.chmod(0o644)
    return wheel


def _read_tree(path: Path, place: str) -> dict[str, bytes]:
    """A file, or all files below a directory, by where they go in the wheel."""
    if path.is_file():
        return {place: path.read_bytes()}
    return {f"{place}/{below.relative_to(path)}": below.read_bytes() for below in path.rglob("*") if below.is_file()}


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def install_in_venv(home: Path, uid: int, wheel: Path) -> Path:
    """`python3 -m venv --copies`, whose interpreter is the user's own file, and pip."""
    venv = home / "venv"
    _run(home, uid, PYTHON, "-m", "venv", "--copies", "--without-pip", str(venv))
    _pip(home, uid, wheel, "--python", str(venv / "bin/python"))
    _show_requirements(home, uid, str(venv / "bin/python"))
    return venv / "bin/kedge"


def install_for_user(home: Path, uid: int, wheel: Path) -> Path:
    """`pip install --user`."""
    _pip(home, uid, wheel, "--python", PYTHON, more=("--user", "--break-system-packages"))
    _show_requirements(home, uid, PYTHON, is_user=True)
    return home / ".local/bin/kedge"


def install_in_prefix(home: Path, uid: int, wheel: Path) -> Path:
    """As conda does: an interpreter with its library, all of it the user's, and packages unpacked into it."""
    prefix = home / "prefix"
    real = Path(PYTHON).resolve()
    library = Path(_run(home, uid, PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").strip())
    left_out = shutil.ignore_patterns("config-*", "test", "idlelib", "lib2to3", "ensurepip", "EXTERNALLY-MANAGED")
    shutil.copytree(library, prefix / "lib" / library.name, ignore=left_out, symlinks=False)
    (prefix / "bin").mkdir()
    shutil.copy(real, prefix / "bin/python3")
    packages = Path(
        _run(home, uid, str(prefix / "bin/python3"), "-c", "import site; print(site.getsitepackages()[0])").strip()
    )
    packages.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for script in packages.glob("*.data/scripts/*"):
        text = script.read_text().replace("#!python", f"#!{prefix}/bin/python3", 1)
        (prefix / "bin" / script.name).write_text(text)
        (prefix / "bin" / script.name).chmod(0o755)
    if os.getuid() == 0:
        for path in (prefix, *prefix.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
    _show_requirements(home, uid, str(prefix / "bin/python3"))
    return prefix / "bin/kedge"


def install_by_uv(home: Path, uid: int, wheel: Path) -> Path:
    """`uv tool install`."""
    uv = shutil.which("uv") or shutil.which("uv", path=sysconfig.get_path("scripts"))
    if uv is None:
        pytest.skip(NO_UV)
    _run(home, uid, uv, "tool", "install", "--offline", "--no-index", "--python", PYTHON, str(wheel))
    _show_requirements(home, uid, str(home / ".local/share/uv/tools/kedge/bin/python"))
    return home / ".local/bin/kedge"


INSTALLERS: dict[str, Callable[[Path, int, Path], Path]] = {
    "venv": install_in_venv,
    "user": install_for_user,
    "prefix": install_in_prefix,
    "uv": install_by_uv,
}


def _pip(home: Path, uid: int, wheel: Path, *before: str, more: tuple[str, ...] = ()) -> None:
    words = ("install", "--quiet", "--no-index", "--no-deps", "--no-warn-script-location", *more, str(wheel))
    _run(home, uid, sys.executable, "-m", "pip", "--disable-pip-version-check", *before, *words)


def _show_requirements(home: Path, uid: int, python: str, *, is_user: bool = False) -> None:
    call = "site.getusersitepackages()" if is_user else "site.getsitepackages()[0]"
    place = Path(_run(home, uid, python, "-c", f"import site; print({call})").strip())
    (place / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def _run(home: Path, uid: int, *words: str) -> str:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        as_user(uid, list(words)), env=environment, cwd=home, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout
