# SPDX-License-Identifier: BSD-3-Clause
"""PAX extended header records and what they say about the next member: names, sizes, owners, times, attributes.

Problems are raised as ValueError; the reader adds layer and offset.
"""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
from dataclasses import dataclass

from kedge.base.tree import Xattrs

MAXIMUM_EXTENSION = 1 << 20  # bytes of one extended header, long name or sparse map
_MAXIMUM_XATTR = 65536  # XATTR_SIZE_MAX
_MAXIMUM_XATTR_NAME = 255
_SCHILY = b"SCHILY.xattr."
_LIBARCHIVE = b"LIBARCHIVE.xattr."
_KEPT_KEYS = frozenset((b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime"))
_KEPT_PREFIXES = (_SCHILY, _LIBARCHIVE, b"GNU.sparse.")
_TIME = re.compile(rb"(-?)([0-9]{1,18})(?:\.([0-9]*))?\Z")

Records = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Attributes:
    """Values that replace the header's; None where there is none."""

    path: bytes | None
    linkpath: bytes | None
    size: int | None
    uid: int | None
    gid: int | None
    mtime: int | None  # nanoseconds
    xattrs: Xattrs


def parse_records(data: bytes) -> Records:
    """Read `LENGTH KEY=VALUE\\n` records; keys without meaning here are dropped, empty values stay (they delete)."""
    records: Records = {}
    position, end = 0, len(data)
    while position < end:
        space = data.find(b" ", position, position + 9)
        digits = data[position:space] if space > 0 else b""
        stop = position + int(digits) if digits.isdigit() else 0
        if stop <= space + 2 or stop > end or data[stop - 1] != 0x0A:
            raise ValueError(f"a PAX record is malformed at byte {position} of {end}")
        key, equals, value = data[space + 1 : stop - 1].partition(b"=")
        if not equals or not key:
            raise ValueError(f"a PAX record without a key or '=' at byte {position}")
        if key in _KEPT_KEYS or key.startswith(_KEPT_PREFIXES):
            _keep_record(records, key, value)
        position = stop
    return records


def _keep_record(records: Records, key: bytes, value: bytes) -> None:
    if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
        # sparse format 0.0 repeats these two keys; together they are what 0.1 writes as one map
        key = b"GNU.sparse.map"
        value = records[key] + b"," + value if key in records else value
    records[key] = value


def read_attributes(records: Records) -> Attributes:
    """What the merged records (global, then local) say about a member."""
    path = records.get(b"path") or None
    linkpath = records.get(b"linkpath") or None
    for name in (path, linkpath):
        if name is not None and b"\0" in name:
            raise ValueError(f"the name {name[:80]!r} contains a NUL byte")
    return Attributes(
        path=path,
        linkpath=linkpath,
        size=_read_integer(records, b"size"),
        uid=_read_integer(records, b"uid"),
        gid=_read_integer(records, b"gid"),
        mtime=_read_time(records.get(b"mtime", b"")),
        xattrs=_read_xattrs(records),
    )


def _read_integer(records: Records, key: bytes) -> int | None:
    text = records.get(key, b"")
    if not text:
        return None
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"PAX {key.decode()} is {text[:40]!r}, not a number")
    return int(text)


def _read_time(text: bytes) -> int | None:
    """Nanoseconds; what is finer is rounded down, as the kernel does."""
    if not text:
        return None
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"PAX mtime is {text[:40]!r}, not a time")
    sign, seconds, fraction = match.groups()
    digits = fraction or b""
    time = int(seconds) * 10**9 + int(digits[:9].ljust(9, b"0"))
    return time if not sign else -time - bool(digits[9:].strip(b"0"))


def _read_xattrs(records: Records) -> Xattrs:
    xattrs: dict[bytes, bytes] = {}
    for key, value in records.items():
        if key.startswith(_LIBARCHIVE):
            name = urllib.parse.unquote_to_bytes(key[len(_LIBARCHIVE) :])
            xattrs.setdefault(name, _decode_base64(value))
        elif key.startswith(_SCHILY) and value:
            xattrs[key[len(_SCHILY) :]] = value
    for name, value in xattrs.items():
        if not name or len(name) > _MAXIMUM_XATTR_NAME or b"\0" in name or len(value) > _MAXIMUM_XATTR:
            raise ValueError(f"the extended attribute {name[:80]!r} of {len(value)} bytes is more than Linux allows")
    return tuple(sorted(xattrs.items()))


def _decode_base64(value: bytes) -> bytes:
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)  # libarchive leaves the padding out
    except binascii.Error:
        raise ValueError("a LIBARCHIVE.xattr value is not base64") from None
