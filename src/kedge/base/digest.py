# SPDX-License-Identifier: BSD-3-Clause
"""Content digests, `algorithm:hex`, as OCI descriptors write them."""

from __future__ import annotations

import hashlib

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.errors import InvalidReference

_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
_HEX = late_pattern(r"[0-9a-f]+\Z")


@frozen
class Digest:
    """An algorithm and a lower-case hexadecimal value; `str()` gives the usual form."""

    algorithm: str
    hex: str
    json_text = True  # `--json` prints `str()` of it

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read `sha256:…`; raises InvalidReference that names what is wrong."""
        algorithm, colon, value = text.partition(":")
        if not colon or algorithm not in _LENGTHS:
            raise InvalidReference(
                f"'{text}' is not a digest: it must begin with sha256:, sha384: or sha512:", context={"digest": text}
            )
        if len(value) != _LENGTHS[algorithm] or not _HEX.match(value):
            raise InvalidReference(
                f"'{text}' is not a {algorithm} digest: {_LENGTHS[algorithm]} lower-case hexadecimal digits needed, "
                f"got {len(value)} characters",
                context={"digest": text},
            )
        return cls(algorithm, value)

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """The sha256 digest of `data`."""
        return cls("sha256", hashlib.sha256(data).hexdigest())

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"

    def __hash__(self) -> int:
        return hash(self.hex)

    def __lt__(self, other: Digest) -> bool:
        return (self.algorithm, self.hex) < (other.algorithm, other.hex)
