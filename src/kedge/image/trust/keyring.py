# SPDX-License-Identifier: BSD-3-Clause
"""Key rings on disk, shared with Apptainer: `pgp-public` and `pgp-secret` in one directory, and a site's public ring.

kedge replaces a ring as a whole, under a lock, and writes unknown packets back byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kedge.errors import FileProblem, KedgeError, KeyNotFound, UsageError
from kedge.image.trust.openpgp.keys import KeyBlock, make_public, merge_blocks, parse_public_key, split_blocks
from kedge.image.trust.openpgp.packets import PUBLIC_SUBKEY, SECRET_SUBKEY, read_packets
from kedge.system.exclusive_change import sole_change
from kedge.system.files import explained, write_atomically
from kedge.system.settings import apptainer_directory

Result = TypeVar("Result")

_MAXIMUM_RING = 64 << 20
VARIABLES = ("KEDGE_KEYSDIR", "APPTAINER_KEYSDIR", "SINGULARITY_KEYSDIR", "SINGULARITY_SYPGPDIR")
_GLOBAL_NAME = "global-pgp-public"
_GLOBAL_FOLDERS = tuple(
    Path(base) / name for name in ("apptainer", "singularity") for base in ("/etc", "/usr/local/etc")
)


def locate_folder(environ: Mapping[str, str], home: Path) -> Path:
    """The directory of the user's rings: the first variable that is set, or Apptainer's default."""
    for name in VARIABLES:
        if environ.get(name):
            return Path(environ[name]).absolute()
    return apptainer_directory(environ, home) / "keys"


def _locate_global(environ: Mapping[str, str]) -> Path:
    """The directory of the site's public ring: the first that has one, or where Apptainer would look."""
    if environ.get("KEDGE_GLOBAL_KEYSDIR"):
        return Path(environ["KEDGE_GLOBAL_KEYSDIR"]).absolute()
    return next((folder for folder in _GLOBAL_FOLDERS if (folder / _GLOBAL_NAME).is_file()), _GLOBAL_FOLDERS[0])


def normalize_fingerprint(text: str) -> str:
    """A fingerprint or key id as upper-case hex, at least 8 digits."""
    digits = "".join(text.split()).upper().removeprefix("0X")
    if not 8 <= len(digits) <= 64 or any(char not in "0123456789ABCDEF" for char in digits):
        raise UsageError(f"{text!r} is not a fingerprint", hint="'kedge key list' shows fingerprints: 40 hex digits")
    return digits


def select_key(blocks: Sequence[KeyBlock], wanted: str, where: str) -> KeyBlock:
    """The only key whose fingerprint ends with `wanted`."""
    digits = normalize_fingerprint(wanted)
    matching = [block for block in blocks if block.fingerprint.endswith(digits)]
    if not matching:
        raise KeyNotFound(f"{where} has no key {digits}", hint="list the keys with: kedge key list")
    if len(matching) > 1:
        raise UsageError(f"{len(matching)} keys in {where} end with {digits}", hint="give the whole fingerprint")
    return matching[0]


def find_in_blocks(blocks: Sequence[KeyBlock], identifier: str) -> list[KeyBlock]:
    """The keys that have a primary key or subkey with this fingerprint or key id."""
    return [block for block in blocks if _matches(block, identifier)]


def _matches(block: KeyBlock, identifier: str) -> bool:
    if block.key is None:
        return False
    if block.key.fingerprint.endswith(identifier):
        return True
    for part in block.components:
        if part.packet.tag not in (PUBLIC_SUBKEY, SECRET_SUBKEY):
            continue
        try:
            if parse_public_key(part.packet.body, "a subkey").fingerprint.endswith(identifier):
                return True
        except KedgeError:
            continue
    return False


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The user's two rings, or with `is_global` the site's public ring."""

    folder: Path
    is_global: bool = False

    @property
    def public_path(self) -> Path:
        """The ring of public keys."""
        return self.folder / (_GLOBAL_NAME if self.is_global else "pgp-public")

    @property
    def secret_path(self) -> Path:
        """The ring of secret keys."""
        return self.folder / "pgp-secret"

    def load_public(self) -> list[KeyBlock]:
        """The public keys; none when there is no ring."""
        return _load_ring(self.public_path)

    def load_secret(self) -> list[KeyBlock]:
        """The secret keys; none when there is no ring."""
        return _load_ring(self.secret_path)

    def add_public(self, blocks: Sequence[KeyBlock]) -> list[str]:
        """Add or update keys; returns `added`, `updated` or `unchanged` for each."""
        return self._change(self.public_path, lambda ring: _add(ring, [_drop_secrets(block) for block in blocks]))

    def add_secret(self, blocks: Sequence[KeyBlock]) -> list[str]:
        """Add secret keys; existing ones stay unchanged, because their passphrase may differ."""
        return self._change(self.secret_path, lambda ring: _add_missing(ring, blocks))

    def remove_public(self, fingerprint: str) -> KeyBlock:
        """Remove a public key."""
        return self._change(self.public_path, lambda ring: _remove(ring, fingerprint, str(self.public_path)))

    def remove_secret(self, fingerprint: str) -> KeyBlock:
        """Remove a secret key."""
        return self._change(self.secret_path, lambda ring: _remove(ring, fingerprint, str(self.secret_path)))

    @staticmethod
    def open_global(environ: Mapping[str, str]) -> KeyRing:
        """The site's ring."""
        return KeyRing(_locate_global(environ), is_global=True)

    def _change(self, path: Path, change: Callable[[list[KeyBlock]], Result]) -> Result:
        with sole_change(path):
            ring = _load_ring(path)
            before = [block.raw for block in ring]
            result = change(ring)
            after = [block.raw for block in ring]
            if after != before:
                _save_ring(path, b"".join(after), mode=0o644 if self.is_global else 0o600)
        return result


def _load_ring(path: Path) -> list[KeyBlock]:
    """The keys of a ring file; none when it does not exist."""
    if not path.exists():
        return []
    data = read_key_file(path, limit=_MAXIMUM_RING)
    return split_blocks(read_packets(data, str(path)), str(path))


def _save_ring(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a ring; if its name is a symlink, its target."""
    target = path.resolve() if path.is_symlink() else path
    write_atomically(target, data, mode=mode)


def _drop_secrets(block: KeyBlock) -> KeyBlock:
    return make_public(block) if block.is_secret else block


def _add(ring: list[KeyBlock], blocks: Sequence[KeyBlock]) -> list[str]:
    outcome: list[str] = []
    for block in blocks:
        at = next((at for at, known in enumerate(ring) if known.fingerprint == block.fingerprint), None)
        if at is None:
            ring.append(block)
            outcome.append("added")
            continue
        merged = merge_blocks(ring[at], block)
        outcome.append("unchanged" if merged.raw == ring[at].raw else "updated")
        ring[at] = merged
    return outcome


def _add_missing(ring: list[KeyBlock], blocks: Sequence[KeyBlock]) -> list[str]:
    outcome: list[str] = []
    for block in blocks:
        is_new = all(known.fingerprint != block.fingerprint for known in ring)
        if is_new:
            ring.append(block)
        outcome.append("added" if is_new else "unchanged")
    return outcome


def _remove(ring: list[KeyBlock], fingerprint: str, where: str) -> KeyBlock:
    block = select_key(ring, fingerprint, where)
    ring.remove(block)
    return block


# Reads files that users name as keys, with a bound on their size.

_MAXIMUM_KEY_FILE = 8 << 20


def read_key_file(path: Path, *, limit: int = _MAXIMUM_KEY_FILE) -> bytes:
    """The content of the file; refuses a file too large for a key."""
    with explained(path), path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileProblem(f"{path} is too large to be a key: more than {limit >> 20} MiB", context={"path": str(path)})
    return data
