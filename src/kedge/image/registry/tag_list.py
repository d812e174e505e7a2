# SPDX-License-Identifier: BSD-3-Clause
"""The list of a repository's tags, which the registry pages: read with limits on pages, tags, bytes and time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from urllib.parse import urljoin

from kedge.base.frozen import frozen
from kedge.base.image_name import is_tag
from kedge.base.patterns import late_pattern
from kedge.errors import RegistryProtocolError
from kedge.image.registry.response_errors import explain_web_page, is_web_page
from kedge.image.registry.secret import redact_url
from kedge.image.registry.session import Call, Session

_OK = frozenset({200})
_LINK = late_pattern(r'<([^<>]*)>((?:[^<>"]|"[^"]*")*)')  # an address may hold commas, which part links, too
_NEXT = late_pattern(r';\s*rel\s*=\s*"?next"?\s*(?:[;,]|\Z)', re.IGNORECASE)


@frozen
class TagLimits:
    """How much of a list of tags is read; no honest repository has more."""

    pages: int = 2000
    tags: int = 200_000
    size: int = 32 << 20  # bytes of all pages
    seconds: float = 120.0
    fruitless: int = 5  # pages in a row without a tag that is new


class TagWalk:
    """One reading of a list of tags, which a registry pages: it must end, and stay on that registry."""

    def __init__(self, limits: TagLimits) -> None:
        self._limits = limits
        self._end = time.monotonic() + limits.seconds
        self._size = 0
        self._fruitless = 0
        self._seen = set[str]()
        self._visited = set[str]()
        self._following: str | None = None
        self._session: Session

    def begin(self, session: Session) -> list[str]:
        """The first page."""
        self._session = session
        return self._read_page(f"{session.repository}/tags/list?n=1000")

    def finish(self) -> Iterator[str]:
        """The pages behind the first one."""
        while self._following is not None:
            if self._following in self._visited or not self._session.is_own_host(self._following):
                raise self._refuse("goes in a circle or leaves the registry")
            self._visited.add(self._following)
            yield from self._read_page(self._following)

    def _read_page(self, target: str) -> list[str]:
        left = self._end - time.monotonic()
        if left <= 0:
            raise self._refuse(f"has no end after {self._limits.seconds:.0f} s")
        document = self._get(target, left)
        tags = document.get("tags") or []  # null where there is none
        if not isinstance(tags, list):
            raise RegistryProtocolError(f"the list of tags of {self._session.repository} is not a JSON list")
        # what is no tag cannot be pulled, and may steer terminals
        usable = dict.fromkeys(tag for tag in tags if isinstance(tag, str) and is_tag(tag))
        fresh = [tag for tag in usable if tag not in self._seen]
        self._seen.update(fresh)
        self._fruitless = 0 if fresh else self._fruitless + 1
        self._check()
        return fresh

    def _get(self, target: str, seconds: float) -> dict[str, object]:
        session = self._session
        what = f"the list of tags of {session.repository}"
        call = Call("GET", target, _OK, {"Accept": "application/json"})
        with session.call(call) as response:
            content_type = response.header("Content-Type") or ""
            raw = response.read_all(self._limits.size - self._size, what, seconds=seconds)
            if is_web_page(raw, content_type):
                raise explain_web_page(session.situation(call), response.url, content_type)
            link = next_link(response.header_list("Link"))
            self._following = urljoin(response.url, link) if link else None
        self._size += len(raw)
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise RegistryProtocolError(f"{what} is not a JSON object")
        return document

    def _check(self) -> None:
        limits = self._limits
        if self._following is None:
            return
        if len(self._visited) >= limits.pages or len(self._seen) > limits.tags or self._size >= limits.size:
            raise self._refuse(f"has no end: {len(self._seen)} tags on {len(self._visited) + 1} pages, and more follow")
        if self._fruitless >= limits.fruitless:
            raise self._refuse(f"has no end: {self._fruitless} pages without a new tag, and more follow")

    def _refuse(self, why: str) -> RegistryProtocolError:
        return RegistryProtocolError(
            f"the list of tags of {self._session.repository} {why}",
            context={"next page": redact_url(self._following or "")},
            hint="tell the registry's operator; pulling an image by its tag still works",
        )


def next_link(headers: list[str]) -> str | None:
    """The target of the Link header with rel="next", or None."""
    for header in headers:
        for address, parameters in _LINK.findall(header):
            if _NEXT.search(parameters):
                return str(address)
    return None
