# SPDX-License-Identifier: BSD-3-Clause
"""Where this kedge was installed from, and the lines that bring a newer one from there.

Never by its name from an index: what a name means there, others decide.
"""

from __future__ import annotations

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kedge.base.frozen import frozen
from kedge.system.start_kedge import find_bundle, own_python


@frozen
class Origin:
    """A place, and the shell lines to type; without lines nobody recorded where it came from."""

    what: str
    lines: tuple[str, ...] = ()


def find_origin() -> Origin:
    """Return where the running kedge comes from."""
    bundle = find_bundle()
    if bundle:
        return _describe_bundle(bundle)
    try:
        installed = metadata.distribution("kedge")
    except metadata.PackageNotFoundError:
        return _describe_sources(Path(__file__).resolve().parents[3])
    return read_record(installed.read_text("direct_url.json") or "{}", (installed.read_text("INSTALLER") or "").strip())


def read_record(record: str, installer: str) -> Origin:
    """What an installer noted: a directory, a repository, or a file; nothing where it came from an index."""
    told = json.loads(record)
    address, version = told.get("url", ""), told.get("vcs_info", {})
    if not address:
        return Origin("an index or a directory of packages, of which no record was kept")
    if version:
        revision = version.get("requested_revision", "")
        full = f"{version.get('vcs', 'git')}+{address}" + (f"@{revision}" if revision else "")
        return Origin(f"the repository {address}", (_install(full, installer),))
    path = unquote(urlsplit(address).path)
    if "dir_info" not in told:
        return Origin(f"the file {path if address.startswith('file:') else address}")
    if told["dir_info"].get("editable"):
        return _describe_sources(Path(path))
    pulled = _describe_sources(Path(path))
    return Origin(pulled.what, (*pulled.lines, _install(shlex.quote(path), installer))) if pulled.lines else pulled


def _describe_bundle(path: str) -> Origin:
    made = f"{Path(path).name}.new"
    there = f"kedge bundle {made}   # on a host with the newer kedge; copy the file to here"
    return Origin(f"the file {path}", (there, f"mv {made} {shlex.quote(path)}"))


def _describe_sources(folder: Path) -> Origin:
    if not folder.is_dir():
        return Origin(f"the directory {folder}, which is gone")
    if not (folder / ".git").exists():
        return Origin(f"the directory {folder}, which is no clone")
    return Origin(f"the clone {folder}", (f"git -C {shlex.quote(str(folder))} pull",))


def _install(origin: str, installer: str) -> str:
    if installer != "uv":
        return f"{shlex.join(own_python('-m', 'pip', 'install', '--upgrade'))} {origin}"
    if Path(sys.prefix).parent.name == "tools":
        return f"uv tool install --reinstall {origin}"
    return f"uv pip install --python {shlex.join(own_python())} --reinstall {origin}"
