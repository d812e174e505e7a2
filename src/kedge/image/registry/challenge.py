# SPDX-License-Identifier: BSD-3-Clause
"""WWW-Authenticate headers, read as RFC 9110 section 11 writes them.

nvcr.io sends a realm that is one quoted string holding a query, `=` and a comma, so splitting at commas does not do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kedge.base.frozen import NOTHING, frozen
from kedge.base.patterns import late_pattern

_MAXIMUM = 16 << 10  # bytes of one header that are looked at
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SEPARATORS = late_pattern(r"[\s,]*")
_PARAMETER = late_pattern(rf'({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)(?:"|\Z)|([^\s,"]*))', re.DOTALL)
_SCHEME = late_pattern(rf"({_TOKEN})(?=[\s,]|\Z)")
_TOKEN68 = late_pattern(r"[ \t]+([A-Za-z0-9\-._~+/]+=*)[ \t]*(?=,|\Z)")
_ESCAPED = late_pattern(r"\\(.)", re.DOTALL)


@frozen
class Challenge:
    """One way the server offers to authenticate; scheme and parameter names are lower case."""

    scheme: str
    parameters: Mapping[str, str] = NOTHING

    @property
    def realm(self) -> str:
        """Where a token is fetched (bearer), or the name of the protected area (basic)."""
        return self.parameters.get("realm", "")

    @property
    def service(self) -> str:
        """The name the token service knows this registry by."""
        return self.parameters.get("service", "")

    @property
    def scope(self) -> str:
        """What the registry says is needed."""
        return self.parameters.get("scope", "")


def parse_challenges(headers: Sequence[str]) -> list[Challenge]:
    """Parse all challenges of all WWW-Authenticate headers, in order; what cannot be read is passed over."""
    return [challenge for header in headers for challenge in _parse_header(header[:_MAXIMUM])]


def _parse_header(header: str) -> list[Challenge]:
    challenges: list[Challenge] = []
    parameters: dict[str, str] = {}
    position = 0
    while position < len(header):
        position = _skip(header, position)
        parameter = _PARAMETER.match(header, position)
        if parameter and challenges:
            name, quoted, bare = parameter.groups()
            parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted is not None else bare)
            position = parameter.end()
            continue
        scheme = _SCHEME.match(header, position)
        if scheme is None:
            position += 1  # a stray character: go on behind it
            continue
        parameters = {}
        challenges.append(Challenge(scheme[1].lower(), parameters))
        position = scheme.end()
        token68 = _TOKEN68.match(header, position)
        if token68:  # as `Negotiate YII=` has: of no use to us
            position = token68.end()
    return challenges


def _skip(header: str, position: int) -> int:
    match = _SEPARATORS.match(header, position)
    return match.end() if match else position
