# SPDX-License-Identifier: BSD-3-Clause
"""Places of this host that are not for a stranger's recipe: homes, what all users share, and secrets in a home.

`SECRETS` is the one table of the latter. A place is known by its path below a home, and those of the user also by
device and inode, so that a link or a second mount of the same directory is the same place.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from kedge.base.login_sources import list_auth_files

# Files and directories below a home that hold keys, passwords and tokens
SECRETS = (
    *(".ssh", ".gnupg", ".pki", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/op"),
    *(".netrc", ".authinfo", ".authinfo.gpg", ".pgpass", ".my.cnf", ".mylogin.cnf", ".vault-token", ".smbcredentials"),
    *(
        ".git-credentials",
        ".config/git/credentials",
        ".config/gh",
        ".config/glab-cli",
        ".config/hub",
        ".subversion/auth",
    ),
    *(".aws", ".azure", ".config/gcloud", ".boto", ".oci", ".config/doctl", ".s3cfg", ".config/rclone", ".rclone.conf"),
    *(".kube", ".config/helm/registry", ".docker", ".config/containers/auth.json", ".config/enroot"),
    *(".apptainer", ".singularity", ".config/ngc", ".ngc", ".config/kedge", ".local/state/kedge"),
    *(".pypirc", ".config/pypoetry/auth.toml", ".local/share/uv/credentials", ".npmrc", ".gem/credentials"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".config/sops", ".globus", ".globusonline"),
    *(".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle"),
    *(".local/share/jupyter/runtime", ".mozilla", ".config/google-chrome", ".config/chromium", ".thunderbird"),
    *(".bash_history", ".zsh_history", ".python_history", ".local/share/fish/fish_history"),
)
_ABOVE = frozenset(row[:end] for row in SECRETS for end, sign in enumerate(row) if sign == "/")
_ROWS = frozenset(SECRETS)
# Variables that say where such a file or directory is, if not there
_VARIABLES = (
    *("XDG_RUNTIME_DIR", "GNUPGHOME", "KUBECONFIG", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("HF_TOKEN_PATH", "NETRC", "ENROOT_CONFIG_PATH", "CLOUDSDK_CONFIG", "AZURE_CONFIG_DIR", "PGPASSFILE"),
)
_OWN = (("XDG_CONFIG_HOME", "kedge"), ("XDG_STATE_HOME", "kedge"), ("HF_HOME", "token"))
SHARED = ("/tmp", "/var/tmp", "/dev/shm")
_NO_HOMES = ("", "/", "/usr", "/bin", "/sbin", "/lib", "/etc", "/var")  # of accounts that are programs
_MOST_LOOKED_AT = 100  # entries of a directory that may hold homes


def find_homes(environ: Mapping[str, str] | None = None) -> list[str]:
    """The user's home under every name it has, with a slash at the end; empty if it is not a directory of theirs."""
    homes = {(os.environ if environ is None else environ).get("HOME", "")}
    with contextlib.suppress(KeyError):
        homes.add(pwd.getpwuid(os.getuid()).pw_dir)
    usable = {home.rstrip("/") for home in homes if home.startswith("/") and os.path.isdir(home)}  # noqa: PTH112
    usable |= {os.path.realpath(home) for home in usable}
    return sorted(home + "/" for home in usable if home not in _NO_HOMES)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a directory: its path below a home, None outside of homes, and the secrets it belongs to."""

    below_home: str | None = None
    secret: str = ""


_NOWHERE = Standing()


@dataclass(slots=True)
class PrivatePlaces:
    """The places for one user."""

    environ: Mapping[str, str]
    homes: tuple[str, ...] = field(init=False)
    _home_identities: frozenset[tuple[int, int]] = field(init=False)
    _secrets: dict[tuple[int, int], str] = field(init=False)  # the user's own: what is there, links followed
    _owners: dict[int, str] = field(default_factory=dict)  # homes by user id

    def __post_init__(self) -> None:
        self.homes = tuple(home.rstrip("/") for home in find_homes(self.environ))
        found = (_look(home) for home in self.homes)
        self._home_identities = frozenset(_identify(status) for status in found if status is not None)
        self._secrets = {}
        for path in self._list_named():
            status = _look(path)
            if status is not None:
                self._secrets.setdefault(_identify(status), os.path.realpath(path))

    def _list_named(self) -> Iterator[str]:
        for home in self.homes:
            yield from (f"{home}/{row}" for row in SECRETS)
        home = self.environ.get("HOME", "") or (self.homes[0] if self.homes else "/")
        files = list_auth_files(self.environ, home)
        files += [self.environ.get(name, "") for name in _VARIABLES]
        files += [f"{self.environ[name]}/{below}" for name, below in _OWN if self.environ.get(name)]
        for path in files:
            if path.startswith("/") and not self._is_too_much(os.path.realpath(path)):
                yield path

    def _is_too_much(self, path: str) -> bool:
        """Whether a variable names what cannot be a place of secrets alone: `XDG_RUNTIME_DIR=/tmp`."""
        is_above = any(f"{home}/".startswith(f"{path.rstrip('/')}/") for home in self.homes)
        return is_above or path in {os.path.realpath(shared) for shared in SHARED}

    # -- secrets

    def enter(self, above: Standing, path: str, status: os.stat_result) -> Standing:
        """The standing of what is in a directory of that standing; `path` has no links."""
        if above.secret:
            return above
        known = self._secrets.get((status.st_dev, status.st_ino))
        if known is not None:
            return Standing(None, known)
        below = above.below_home
        if below is not None:
            name = path.rpartition("/")[2]
            below = f"{below}/{name}" if below else name
            if below in _ROWS:
                return Standing(None, path)
            below = below if below in _ABOVE else None
        if stat.S_ISDIR(status.st_mode) and self._is_home(path, status):
            below = ""
        return _NOWHERE if below is None else Standing(below)

    def judge(self, path: str) -> Standing:
        """The standing of a path without links."""
        standing, done = _NOWHERE, ""
        for name in path.strip("/").split("/"):
            done = f"{done}/{name}"
            try:
                status = os.lstat(done)
            except OSError:
                break
            standing = self.enter(standing, done, status)
        return standing

    def list_secrets(self, folder: str) -> list[str]:
        """The user's places of secrets that are below a directory, none below another."""
        start = folder.rstrip("/") + "/"
        inside = sorted(path for path in self._secrets.values() if path.startswith(start))
        return [path for path in inside if not any(path.startswith(f"{other}/") for other in inside)]

    def _is_home(self, path: str, status: os.stat_result) -> bool:
        return _identify(status) in self._home_identities or (path not in _NO_HOMES and self._find_home(status) == path)

    def _find_home(self, status: os.stat_result) -> str:
        """The home of who owns a file; empty where nobody knows."""
        uid = status.st_uid
        if uid not in self._owners:
            self._owners[uid] = ""
            with contextlib.suppress(KeyError, OSError):
                self._owners[uid] = os.path.realpath(pwd.getpwuid(uid).pw_dir)
        return self._owners[uid]

    # -- directories that hold too much

    def explain_width(self, path: str) -> str:
        """Why a directory, a path without links, is too much for a recipe as a whole; empty: it is not."""
        status = _look(path)
        if path == "/":
            return "it is the root of this host"
        if status is not None and any(_is_same(status, shared) for shared in SHARED):
            return "all users share it"
        if path in self.homes or (status is not None and _identify(status) in self._home_identities):
            return "it is your home"
        if any(home.startswith(f"{path}/") for home in self.homes):
            return "your home is in it"
        if status is not None and self._is_home(path, status):
            return "it is the home of another user"
        return "it holds homes" if self._holds_homes(path) else ""

    def _holds_homes(self, path: str) -> bool:
        try:
            with os.scandir(path) as entries:
                looked_at = [entry for entry in islice(entries, _MOST_LOOKED_AT) if entry.is_dir(follow_symlinks=False)]
                return any(
                    self._is_home(f"{path}/{entry.name}", entry.stat(follow_symlinks=False)) for entry in looked_at
                )
        except OSError:
            return False


def _look(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None


def _is_same(status: os.stat_result, path: str) -> bool:
    other = _look(path)
    return other is not None and _identify(other) == _identify(status)


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
