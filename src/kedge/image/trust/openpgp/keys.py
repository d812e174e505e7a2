# SPDX-License-Identifier: BSD-3-Clause
"""Transferable keys: the key blocks of rings and files, split without losing a byte.

Blocks of unknown kinds (other versions, other algorithms) are kept and passed on unchanged, but cannot be used.
`key_validity.py` evaluates the signatures of a block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from kedge.errors import KedgeError, KeyUnusable
from kedge.image.trust.openpgp import algorithms, armor
from kedge.image.trust.openpgp.packets import (
    PUBLIC_KEY,
    PUBLIC_SUBKEY,
    SECRET_KEY,
    SECRET_SUBKEY,
    USER_ATTRIBUTE,
    USER_ID,
    ByteReader,
    Packet,
    read_packets,
    write_packet,
)

_PRIMARY_TAGS = (PUBLIC_KEY, SECRET_KEY)
_COMPONENT_TAGS = (USER_ID, USER_ATTRIBUTE, PUBLIC_SUBKEY, SECRET_SUBKEY)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public part of one key packet."""

    created: int
    numbers: algorithms.PublicNumbers
    body: bytes  # the public packet's body, which is what fingerprints and bindings are computed over
    fingerprint: str

    @property
    def key_id(self) -> str:
        """The last 16 digits of the fingerprint."""
        return self.fingerprint[-16:]

    @property
    def hashed_form(self) -> bytes:
        """The key as certifications and bindings sign it."""
        return b"\x99" + len(self.body).to_bytes(2, "big") + self.body


def parse_public_key(body: bytes, what: str) -> PublicKey:
    """Read the public part of a public or secret key packet; KeyUnusable for unknown kinds."""
    reader = ByteReader(body, what)
    version = reader.take_number(1)
    if version != 4:
        raise KeyUnusable(f"{what} has version {version}; version 4 is the one supported")
    created = reader.take_number(4)
    numbers = algorithms.read_public(reader, reader.take_number(1))
    public = body[: reader.position]
    if len(public) > 0xFFFF:
        raise KeyUnusable(f"{what} is larger than any key")
    digest = hashlib.sha1(b"\x99" + len(public).to_bytes(2, "big") + public, usedforsecurity=False)
    return PublicKey(created, numbers, public, digest.hexdigest().upper())


@dataclass(frozen=True, slots=True)
class Component:
    """A user id, picture or subkey and the signatures that follow it."""

    packet: Packet
    signatures: tuple[Packet, ...] = ()

    @property
    def raw(self) -> bytes:
        """The bytes it was read from."""
        return self.packet.raw + b"".join(item.raw for item in self.signatures)


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """One whole key: primary key packet, signatures on it, components."""

    packet: Packet
    signatures: tuple[Packet, ...]
    components: tuple[Component, ...]
    key: PublicKey | None  # None for a key that is kept but cannot be used
    problem: str = ""  # why not

    @property
    def is_secret(self) -> bool:
        """Whether the block holds secret keys, even if only for a subkey of a public primary key."""
        return self.packet.tag == SECRET_KEY or any(part.packet.tag == SECRET_SUBKEY for part in self.components)

    @property
    def raw(self) -> bytes:
        """The bytes it was read from."""
        return (
            self.packet.raw
            + b"".join(item.raw for item in self.signatures)
            + b"".join(part.raw for part in self.components)
        )

    @property
    def fingerprint(self) -> str:
        """The fingerprint; of an unknown kind of key the best substitute."""
        return self.key.fingerprint if self.key else _guess_fingerprint(self.packet)

    @property
    def user_ids(self) -> tuple[str, ...]:
        """The user ids of the block, unchecked, safe to print."""
        return tuple(decode_user_id(part.packet.body) for part in self.components if part.packet.tag == USER_ID)


def decode_user_id(body: bytes) -> str:
    """A user id as printable text: control characters in a name must not reach a terminal."""
    return "".join(char if char.isprintable() else "?" for char in body[:512].decode("utf-8", "replace"))


def _guess_fingerprint(packet: Packet) -> str:
    if packet.body[:1] == b"\x06":
        digest = hashlib.sha256(b"\x9b" + len(packet.body).to_bytes(4, "big") + packet.body)
    else:
        prefix = b"\x99" + (len(packet.body) & 0xFFFF).to_bytes(2, "big")
        digest = hashlib.sha1(prefix + packet.body, usedforsecurity=False)
    return digest.hexdigest().upper()


def split_blocks(packets: Iterable[Packet], what: str) -> list[KeyBlock]:
    """Split a stream of packets into key blocks that together hold every byte of it."""
    blocks: list[list[Packet]] = []
    for packet in packets:
        if packet.tag in _PRIMARY_TAGS:
            blocks.append([packet])
        elif blocks:
            blocks[-1].append(packet)
        else:
            raise KeyUnusable(
                f"{what} does not start with a key (packet kind {packet.tag})",
                hint="a key file or key ring is expected",
            )
    return [_build_block(items, what) for items in blocks]


def _build_block(items: list[Packet], what: str) -> KeyBlock:
    direct: list[Packet] = []
    components: list[tuple[Packet, list[Packet]]] = []
    for packet in items[1:]:
        if packet.tag in _COMPONENT_TAGS:
            components.append((packet, []))
        elif components:
            components[-1][1].append(packet)
        else:
            direct.append(packet)
    parts = tuple(Component(packet, tuple(signatures)) for packet, signatures in components)
    try:
        key = parse_public_key(items[0].body, f"a key in {what}")
    except KedgeError as problem:
        return KeyBlock(items[0], tuple(direct), parts, None, problem.message)
    return KeyBlock(items[0], tuple(direct), parts, key)


def read_keys(data: bytes, what: str) -> list[KeyBlock]:
    """The key blocks of a file, armored or binary, public or secret."""
    if not armor.is_armored(data):
        return split_blocks(read_packets(data, what), what)
    blocks: list[KeyBlock] = []
    for block in armor.decode_all(data, what):
        if block.kind in (armor.PUBLIC_KEY_BLOCK, armor.PRIVATE_KEY_BLOCK):
            blocks.extend(split_blocks(read_packets(block.data, what), what))
    return blocks


def make_public(block: KeyBlock) -> KeyBlock:
    """Return the key without its secrets."""
    if not block.is_secret:
        return block
    if block.key is None:
        raise KeyUnusable(
            f"kedge cannot separate the public part of {block.fingerprint} from its secret part: {block.problem}"
        )
    parts = []
    for part in block.components:
        if part.packet.tag == SECRET_SUBKEY:
            body = parse_public_key(part.packet.body, f"a subkey of {block.fingerprint}").body
            part = Component(_make_packet(PUBLIC_SUBKEY, body), part.signatures)
        parts.append(part)
    return KeyBlock(_make_packet(PUBLIC_KEY, block.key.body), block.signatures, tuple(parts), block.key)


def _make_packet(tag: int, body: bytes) -> Packet:
    return Packet(tag, body, write_packet(tag, body))


def merge_blocks(old: KeyBlock, new: KeyBlock) -> KeyBlock:
    """Both blocks' user ids, subkeys and signatures, so that revocations and extensions reach a ring."""
    parts: dict[bytes, Component] = {_identify(part): part for part in old.components}
    for part in new.components:
        identity = _identify(part)
        known = parts.get(identity)
        if known is None:
            parts[identity] = part
        else:
            parts[identity] = Component(known.packet, _union(known.signatures, part.signatures))
    return KeyBlock(old.packet, _union(old.signatures, new.signatures), tuple(parts.values()), old.key, old.problem)


def _identify(part: Component) -> bytes:
    # a subkey is known by its public part: in a secret block the secret part differs with each passphrase change
    if part.packet.tag in (PUBLIC_SUBKEY, SECRET_SUBKEY):
        try:
            return b"key" + parse_public_key(part.packet.body, "a subkey").body
        except KedgeError:
            return b"raw" + part.packet.body
    return bytes([part.packet.tag]) + part.packet.body


def _union(old: tuple[Packet, ...], new: tuple[Packet, ...]) -> tuple[Packet, ...]:
    known = {item.body for item in old}
    return old + tuple(item for item in new if item.body not in known)


def armor_block(block: KeyBlock) -> bytes:
    """The key as text."""
    return armor.encode_armor(armor.PRIVATE_KEY_BLOCK if block.is_secret else armor.PUBLIC_KEY_BLOCK, block.raw)
