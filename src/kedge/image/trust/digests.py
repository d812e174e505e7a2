# SPDX-License-Identifier: BSD-3-Clause
"""The document that a SIF signature covers: digests of the header's lasting fields, of descriptors and of objects.

Object numbers are relative to the smallest of the group, and offsets are not covered, so a signed image may be laid
out anew without breaking its signatures.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from dataclasses import dataclass, field

from kedge.base.progress import Progress, Silent
from kedge.errors import SignatureInvalid, UsageError
from kedge.image.formats.sif.layout import SifDescriptor
from kedge.image.formats.sif.reader import SifReader, describe_type

VERSION = 1
# type, used, relative ID, link, size, creation time, uid, gid, name, extra
_DESCRIPTOR_FORM = struct.Struct("<i?IIqqqq128s384s")
_DIGEST = re.compile(r"(sha224|sha256|sha384|sha512|sha512_224|sha512_256):([0-9a-f]{56,128})")
_MAXIMUM_ID = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _SignedObject:
    """The signed digests of one object."""

    relative_id: int
    descriptor_digest: str
    object_digest: str


@dataclass(frozen=True, slots=True)
class _SignedMetadata:
    """The signed document of one group."""

    header_digest: str
    objects: tuple[_SignedObject, ...]

    def encode(self) -> bytes:
        """The exact bytes that are signed: compact JSON with its keys in this order."""
        objects = [
            {
                "relativeId": item.relative_id,
                "descriptorDigest": item.descriptor_digest,
                "objectDigest": item.object_digest,
            }
            for item in self.objects
        ]
        document = {"version": VERSION, "header": {"digest": self.header_digest}, "objects": objects}
        return json.dumps(document, separators=(",", ":")).encode()


def parse_metadata(data: bytes, what: str) -> _SignedMetadata:
    """Read the document of a signature; refuses anything else."""
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise SignatureInvalid(
                f"{what} has version {str(document['version'])[:20]}; version 1 is the one supported"
            )
        objects = tuple(
            _SignedObject(
                _check_id(item["relativeId"]),
                _check_digest(item["descriptorDigest"]),
                _check_digest(item["objectDigest"]),
            )
            for item in document["objects"]
        )
        metadata = _SignedMetadata(_check_digest(document["header"]["digest"]), objects)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise SignatureInvalid(f"{what} does not hold the digests of an image") from problem
    if len({item.relative_id for item in objects}) != len(objects):
        raise SignatureInvalid(f"{what} names an object twice")
    return metadata


def _check_id(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAXIMUM_ID:
        raise ValueError(value)
    return value


def _check_digest(value: object) -> str:
    match = _DIGEST.fullmatch(value) if isinstance(value, str) else None
    if match is None or hashlib.new(match[1]).digest_size * 2 != len(match[2]):
        raise ValueError(value)
    return match[0]


@dataclass(slots=True)
class Digester:
    """Computes digests of one image: each object once per algorithm, for all signatures."""

    reader: SifReader
    progress: Progress = field(default_factory=Silent)
    _known: dict[tuple[int, str], str] = field(default_factory=dict)

    def hash_header(self, algorithm: str) -> str:
        """Launch line, magic, version and identity; not times, architecture or table offsets."""
        header = self.reader.header
        return _format(algorithm, header.launch + header.magic + header.version + header.identity)

    def hash_descriptor(self, descriptor: SifDescriptor, relative_id: int, algorithm: str) -> str:
        """The descriptor without the fields that change when the file is laid out anew."""
        return _format(
            algorithm,
            _DESCRIPTOR_FORM.pack(
                descriptor.data_type,
                True,
                relative_id,
                descriptor.link_field,
                descriptor.size,
                descriptor.created,
                descriptor.uid,
                descriptor.gid,
                descriptor.name_field,
                descriptor.extra,
            ),
        )

    def hash_object(self, descriptor: SifDescriptor, algorithm: str) -> str:
        """The object's bytes."""
        known = self._known.get((descriptor.id, algorithm))
        if known is None:
            known = f"{algorithm}:{self._hash_chunks([descriptor], algorithm)}"
            self._known[descriptor.id, algorithm] = known
        return known

    def hash_together(self, descriptors: list[SifDescriptor], algorithm: str) -> str:
        """Several objects' bytes in sequence, as legacy signatures cover them; plain hex."""
        return self._hash_chunks(descriptors, algorithm)

    def _hash_chunks(self, descriptors: list[SifDescriptor], algorithm: str) -> str:
        state = hashlib.new(algorithm)
        total = sum(descriptor.size for descriptor in descriptors)
        task = self.progress.task("hashing", total) if total > 1 << 24 else Silent().task("hashing", total)
        for descriptor in descriptors:
            for chunk in self.reader.chunks(descriptor):
                state.update(chunk)
                task.advance(len(chunk))
        task.finish()
        return state.hexdigest()


def _format(algorithm: str, data: bytes) -> str:
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def list_groups(reader: SifReader) -> list[int]:
    """The groups of an image, in order."""
    return sorted({descriptor.group for descriptor in reader.descriptors if descriptor.group})


def list_group(reader: SifReader, group: int) -> list[SifDescriptor]:
    """A group's objects by number; UsageError when there is no such group."""
    members = sorted((item for item in reader.descriptors if item.group == group and group), key=lambda item: item.id)
    if not members:
        known = ", ".join(str(number) for number in list_groups(reader)) or "none"
        raise UsageError(f"{reader.where} has no object group {group}", context={"groups": known})
    return members


def compute_metadata(
    digester: Digester, group: int, objects: tuple[int, ...] = (), algorithm: str = "sha256"
) -> _SignedMetadata:
    """The document for a group, or for some objects of it."""
    members = list_group(digester.reader, group)
    first = members[0].id
    chosen = [item for item in members if not objects or item.id in objects]
    return _SignedMetadata(
        digester.hash_header(algorithm),
        tuple(
            _SignedObject(
                item.id - first,
                digester.hash_descriptor(item, item.id - first, algorithm),
                digester.hash_object(item, algorithm),
            )
            for item in chosen
        ),
    )


def check_metadata(
    metadata: _SignedMetadata, digester: Digester, group: int, objects: tuple[int, ...] = ()
) -> tuple[SifDescriptor, ...]:
    """Compare a signed document with the image; returns the objects that are unchanged.

    Without `objects` the group must hold exactly the signed objects; with them only those are compared.
    """
    members = list_group(digester.reader, group)
    first = members[0].id
    signed = {item.relative_id + first: item for item in metadata.objects}
    if not objects:
        _check_members(signed, members, digester.reader)
    if digester.hash_header(_name(metadata.header_digest)) != metadata.header_digest:
        raise _changed("header-changed", f"the header of {digester.reader.where} was changed after signing")
    chosen = [item for item in members if not objects or item.id in objects]
    for item in chosen:
        _check_object(signed, item, item.id - first, digester)
    return tuple(chosen)


def _name(digest: str) -> str:
    return digest.partition(":")[0]


def _check_object(signed: dict[int, _SignedObject], item: SifDescriptor, relative: int, digester: Digester) -> None:
    known = signed.get(item.id)
    what = f"object {item.id} ({describe_type(item.data_type)}) of {digester.reader.where}"
    if known is None:
        raise _changed("object-not-signed", f"{what} is not covered by this signature", item.id)
    actual = digester.hash_descriptor(item, relative, _name(known.descriptor_digest))
    if actual != known.descriptor_digest:
        raise _changed("descriptor-changed", f"the descriptor of {what} was changed after signing", item.id)
    actual = digester.hash_object(item, _name(known.object_digest))
    if actual != known.object_digest:
        error = _changed("object-changed", f"the content of {what} was changed after signing", item.id)
        error.context |= {"signed": known.object_digest, "found": actual}
        raise error


def _check_members(signed: dict[int, _SignedObject], members: list[SifDescriptor], reader: SifReader) -> None:
    present = {item.id for item in members}
    added = sorted(present - signed.keys())
    removed = sorted(signed.keys() - present)
    group = members[0].group
    if added:
        text = f"object {added[0]} in group {group} of {reader.where} is not covered by the signature"
        raise _changed("object-added", f"{text}: it was added after signing, or left out", added[0])
    if removed:
        text = f"{len(signed)} objects of group {group} of {reader.where} were signed, {len(present)} are there"
        raise _changed("object-removed", f"{text}: object {removed[0]} was removed after signing", removed[0])


def _changed(reason: str, message: str, identifier: int | None = None) -> SignatureInvalid:
    context = {"reason": reason} | ({"object": str(identifier)} if identifier is not None else {})
    return SignatureInvalid(message, context=context, hint="do not trust this file; get it again from its source")
