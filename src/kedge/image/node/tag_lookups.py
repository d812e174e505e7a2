# SPDX-License-Identifier: BSD-3-Clause
"""Whether kedge must ask a registry what a tag means now, or this node's last answer still counts.

The modification time of the reference's file (`node_cache.reference_path`) says when the registry was asked, its
content with which login: another login asks again, so that a wrong one fails.
"""

from __future__ import annotations

import os
import time

from kedge.base.login_sources import NGC_VARIABLES, PAIRS, list_auth_files
from kedge.image.node_cache import read_resolved
from kedge.system.settings_lines import read_configured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIFETIME = 120  # seconds that an answer counts, unless the setting tag_lifetime says otherwise
_UNANSWERED = 3600.0  # seconds until a registry that could not be reached is asked again: the node may have no network
_LOCAL = ("oci", "oci-archive", "docker-archive")  # known by the state of the file


def needs_lookup(reference: str) -> bool:
    """Whether the image that a reference means can change: a tag can, a digest cannot."""
    is_pinned = "@sha256:" in reference or "@sha512:" in reference or ":sha256." in reference
    return not is_pinned and reference.partition(":")[0].lower() not in _LOCAL


def find_current(reference: str, machine: str, environ: Mapping[str, str], words: Sequence[str] = ()) -> str:
    """The root of an image that is here and need not be asked about; `words` are those for a pull."""
    asked = read_resolved(reference, machine, environ)
    if asked is None or not needs_lookup(reference):
        return asked.root if asked else ""
    if "--docker-login" in words or asked.login != describe_login(environ, words):
        return ""
    age = time.time() - asked.when
    longest = _UNANSWERED if asked.is_unanswered else _read_lifetime(environ)
    is_current = 0 <= age < longest and not _has_newer_login(asked.when, environ, words)
    return asked.root if is_current else ""


def _read_lifetime(environ: Mapping[str, str]) -> float:
    """Return for how many seconds an answer counts."""
    given = environ.get("KEDGE_TAG_LIFETIME") or read_configured("tag_lifetime", environ)
    if not given:
        return _LIFETIME
    return float(given) if given.isascii() and given.isdigit() else 0.0  # who asks will say what is wrong with it


def describe_login(environ: Mapping[str, str], words: Sequence[str] = ()) -> str:
    """A few digits that differ for different logins of variables and options, and tell nothing about them."""
    names = [name for pair in PAIRS for name in pair] + list(NGC_VARIABLES)
    given = [f"{name}={environ[name]}" for name in names if environ.get(name)]
    if "--authfile" in words:
        given.append(os.path.abspath(_find_authfile(words)))
    if not given:
        return "-"
    import hashlib  # late: most have their login in a file

    return hashlib.sha256("\0".join(given).encode("utf-8", "surrogateescape")).hexdigest()[:4]


def _find_authfile(words: Sequence[str]) -> str:
    place = list(words).index("--authfile") + 1
    return words[place] if place < len(words) else ""


def _has_newer_login(when: float, environ: Mapping[str, str], words: Sequence[str]) -> bool:
    """Whether somebody logged in or out since."""
    home = environ.get("HOME", "")
    files = list_auth_files(environ, home if home.startswith("/") else "")
    for path in [*files, _find_authfile(words)] if "--authfile" in words else files:
        try:
            if os.stat(path).st_mtime > when:
                return True
        except OSError:
            continue
    return False
