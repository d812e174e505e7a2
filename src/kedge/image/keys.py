# SPDX-License-Identifier: BSD-3-Clause
"""Keys: make, list, import, export, remove, and exchange them with key servers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from kedge.base.frozen import JsonValue
from kedge.errors import KedgeError, KeyNotFound, KeyUnusable, NetworkFailed, RegistryProtocolError
from kedge.image.trust import keyserver
from kedge.image.trust.keyring import KeyRing, find_in_blocks, normalize_fingerprint, read_key_file
from kedge.image.trust.openpgp import algorithms
from kedge.image.trust.openpgp.key_validity import judge
from kedge.image.trust.openpgp.keys import KeyBlock, armor_block, make_public, read_keys
from kedge.image.trust.openpgp.secret import Owner, generate_key
from kedge.system.files import atomic_output

_MAXIMUM_ANSWER = 8 << 20

Answer = TypeVar("Answer")


class Fetch(Protocol):
    """How a key server is reached; `body` is a form to send, or None."""

    def __call__(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        """The status and body of the answer; raises NetworkFailed when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class KeySummary(JsonValue):
    """One key in a listing."""

    json_names = (("is_secret", "secret"),)
    json_nulls = ("problem",)

    index: int
    user_ids: tuple[str, ...]
    fingerprint: str
    algorithm: str
    bits: int
    created: int | None
    expires: int | None
    is_secret: bool
    problem: str  # empty, or why the key cannot be used now


@dataclass(frozen=True, slots=True)
class Imported:
    """The result for one key of an imported file."""

    summary: KeySummary
    ring: str  # "public" or "secret"
    outcome: str  # "added", "updated" or "unchanged"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key pair to generate."""

    owner: Owner
    passphrase: str | None = None
    bits: int = 4096


def summarize(block: KeyBlock, index: int, now: int) -> KeySummary:
    """Describe a key, also one that cannot be used."""
    key = block.key
    user_ids, expires, problem = block.user_ids, None, block.problem
    if key is not None:
        try:
            judged = judge(block, now)
            user_ids = judged.user_ids or user_ids
            expires = judged.primary.expires
            signing = [item for item in judged.subkeys if not judged.refuse(item, now)]
            problem = "" if signing else judged.refuse(judged.primary, now)
        except KedgeError as refusal:
            problem = refusal.message
    return KeySummary(
        index=index,
        user_ids=user_ids,
        fingerprint=block.fingerprint,
        algorithm=algorithms.name_algorithm(key.numbers.algorithm) if key else "unknown",
        bits=key.numbers.bits if key else 0,
        created=key.created if key else None,
        expires=expires,
        is_secret=block.is_secret,
        problem=problem,
    )


def list_keys(ring: KeyRing, *, secret: bool = False) -> list[KeySummary]:
    """The keys of a ring in its order; the index is what --keyidx takes."""
    now = int(time.time())
    blocks = ring.load_secret() if secret else ring.load_public()
    return [summarize(block, index, now) for index, block in enumerate(blocks)]


def make_key(ring: KeyRing, new: NewKey) -> KeySummary:
    """Generate a key pair and put it into both rings."""
    now = int(time.time())
    block = generate_key(new.owner, new.bits, new.passphrase, now)
    ring.add_secret([block])
    ring.add_public([block])
    return summarize(block, len(ring.load_secret()) - 1, now)


def import_keys(ring: KeyRing, path: Path) -> list[Imported]:
    """Import the keys of a file; secret keys go into both key rings."""
    return _store_keys(ring, read_keys(read_key_file(path), str(path)), str(path))


def _store_keys(ring: KeyRing, blocks: Sequence[KeyBlock], where: str) -> list[Imported]:
    """Put key blocks into the rings; a key that proves nothing about itself is refused."""
    now = int(time.time())
    if not blocks:
        raise KeyUnusable(
            f"{where} holds no key", hint="name a file that begins with -----BEGIN PGP PUBLIC KEY BLOCK-----"
        )
    for block in blocks:
        _refuse_unproved(block, ring, now, where)
    imported: list[Imported] = []
    for block in blocks:
        summary = summarize(block, -1, now)
        if block.is_secret:
            imported.append(Imported(summary, "secret", ring.add_secret([block])[0]))
        if not block.is_secret or block.key is not None:
            imported.append(Imported(summary, "public", ring.add_public([block])[0]))
    return imported


def _refuse_unproved(block: KeyBlock, ring: KeyRing, now: int, where: str) -> None:
    problem = judge(block, now).primary.problem if block.key is not None else ""
    if not problem or any(known.fingerprint == block.fingerprint for known in ring.load_public()):
        return  # what is new about a known key, such as a revocation, may come without its user ids
    raise KeyUnusable(
        f"kedge refuses the key {block.fingerprint} from {where}: {problem}",
        hint="ask the owner for the key file; key servers leave out user ids that were not confirmed by e-mail",
    )


def export_key(block: KeyBlock, target: Path, *, armor: bool, force: bool = False) -> None:
    """Write a key to a file; a secret one is readable by its owner alone."""
    data = armor_block(block) if armor else block.raw
    with atomic_output(target, mode=0o600 if block.is_secret else 0o644, force=force) as file:
        file.write(data)


def remove_key(ring: KeyRing, fingerprint: str, *, public: bool = True, secret: bool = False) -> list[str]:
    """Remove a key; returns the names of the key rings it was in."""
    removed: list[str] = []
    wanted = [("public", ring.remove_public)] * public + [("secret", ring.remove_secret)] * secret
    missing: KeyNotFound | None = None
    for name, remove in wanted:
        try:
            remove(fingerprint)
            removed.append(name)
        except KeyNotFound as problem:
            missing = problem
    if not removed and missing is not None:
        raise missing
    return removed


def search_keys(fetch: Fetch, servers: str, text: str) -> list[keyserver.FoundKey]:
    """What the first key server that knows something has for a name, an address or a fingerprint."""
    return _ask_servers(servers, lambda server: _search_server(fetch, server, text)) or []


def _search_server(fetch: Fetch, server: str, text: str) -> list[keyserver.FoundKey]:
    status, body = fetch("GET", keyserver.build_lookup(server, "index", text), None)
    if status == 404:
        return []
    _check_answer(status, server, body)
    return keyserver.parse_index(body)


def _ask_servers(servers: str, ask: Callable[[str], Answer]) -> Answer:
    """The first answer that says something; where none does, the last one or what was raised last."""
    *others, last = keyserver.split_servers(servers)
    for server in others:
        with contextlib.suppress(KeyNotFound, NetworkFailed):
            if answer := ask(server):
                return answer
    return ask(last)


def fetch_key(fetch: Fetch, servers: str, fingerprint: str) -> KeyBlock:
    """A key from the first key server that has it; one that is not the key asked for is refused."""
    digits = normalize_fingerprint(fingerprint)
    return _ask_servers(servers, lambda server: _fetch_from(fetch, server, digits))


def _fetch_from(fetch: Fetch, server: str, digits: str) -> KeyBlock:
    status, body = fetch("GET", keyserver.build_lookup(server, "get", digits), None)
    if status == 404:
        raise KeyNotFound(
            f"{server} has no key {digits}", hint="ask the signer for the key, then import it: kedge key import FILE"
        )
    _check_answer(status, server, body)
    keys = find_in_blocks(read_keys(body, f"the answer of {server}"), digits)
    if len(keys) != 1 or keys[0].is_secret:
        raise RegistryProtocolError(f"{server} sent another key than {digits}")
    return keys[0]


def pull_key(ring: KeyRing, fetch: Fetch, server: str, fingerprint: str) -> Imported:
    """Get a key from a key server into the public ring."""
    return _store_keys(ring, [fetch_key(fetch, server, fingerprint)], server)[0]


def push_key(fetch: Fetch, servers: str, block: KeyBlock) -> str:
    """Send a public key to the first key server; returns which that is."""
    server = keyserver.split_servers(servers)[0]
    url, body = keyserver.build_upload(server, armor_block(make_public(block)))
    status, answer = fetch("POST", url, body)
    _check_answer(status, server, answer)
    return server


def _check_answer(status: int, server: str, body: bytes) -> None:
    if 200 <= status < 300:
        return
    text = body[:200].decode("utf-8", "replace")
    said = "".join(char if char.isprintable() else " " for char in text)
    raise NetworkFailed(f"the key server {server} has an error: status {status}", context={"answer": said})


def open_fetch(environ: Mapping[str, str], ca_bundle: Path | None = None) -> Fetch:
    """A function that asks key servers over HTTP."""
    from kedge.image.registry.proxies import Proxies  # late: only commands that go online need the network code
    from kedge.image.registry.transport import HttpRequest, HttpTransport, TransportOptions

    options = TransportOptions(retries=1, ca_bundle=ca_bundle, proxies=Proxies.from_environment(environ))
    transport = HttpTransport(options)

    def fetch(method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else {}
        with transport.send(HttpRequest(method, url, headers=headers, body=body)) as response:
            return response.status, response.read_all(_MAXIMUM_ANSWER, "the key server's answer")

    return fetch
