# SPDX-License-Identifier: BSD-3-Clause
"""Catalogues that find images by words: what they share, and NVIDIA's.

They are asked without credentials, once, and with little patience: nothing depends on them, and their interfaces may
change any day.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import urlencode

from kedge.base.image_name import is_tag
from kedge.errors import NetworkFailed, RateLimited, RegistryProtocolError
from kedge.image.clean_config import clean_text
from kedge.image.registry.response_errors import is_web_page
from kedge.image.registry.secret import redact_url
from kedge.image.registry.transport import HttpRequest, HttpTransport, Response, split_url

_NGC_ADDRESS = "https://api.ngc.nvidia.com"
LARGEST_ANSWER = 8 << 20  # bytes; a hundred results have about 300 kB
SECONDS = 15.0  # for one answer, to its last byte
MOST_RESULTS = 100  # that are asked for at once
LONGEST_TEXT = 300  # characters of a description
_NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*){0,3}\Z")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One image that a catalogue knows; what it does not tell is empty or None."""

    name: str  # to pull with: nvcr.io/nvidia/pytorch
    catalog: str  # NGC, Docker Hub, or `tables`
    title: str = ""
    description: str = ""  # one line
    latest_tag: str = ""
    known_tag: str = ""  # the newest one in kedge's own tables
    updated: str = ""  # 2026-08-31
    stars: int | None = None
    pulls: int | None = None
    is_official: bool = False
    multi_gpu: bool | None = None  # known to use several GPUs, or nodes; None: unknown
    multi_node: bool | None = None
    warning: str = ""  # what to beware of
    source: str = ""  # of what kedge's tables say


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """The first results of a search, in the catalogue's order, and how many there are in all."""

    entries: tuple[CatalogEntry, ...]
    total: int


class NgcCatalog:
    """NVIDIA's catalogue of containers."""

    title = "NGC"

    def __init__(self, transport: HttpTransport, address: str = _NGC_ADDRESS) -> None:
        self._transport = transport
        self._address = address.rstrip("/")

    def search(self, words: str, limit: int) -> CatalogAnswer:
        """The containers that the catalogue finds for some words."""
        # Any other form of `q`, plain text too, is answered with 400.
        asked = {"query": words, "page": 0, "pageSize": min(limit, MOST_RESULTS)}
        query = urlencode({"q": json.dumps(asked, ensure_ascii=False, separators=(",", ":"))})
        url = f"{self._address}/v2/search/catalog/resources/CONTAINER?{query}"
        document = ask_catalog(self._transport, url, "the NGC catalogue")
        unique: dict[str, CatalogEntry] = {}
        for group in list_mappings(document.get("results")):
            for resource in list_mappings(group.get("resources")):
                entry = _read_resource(resource)
                if entry is not None:
                    unique.setdefault(entry.name, entry)
        entries = tuple(unique.values())
        return CatalogAnswer(entries[:limit], max(read_count(document.get("resultTotal")) or 0, len(entries)))


def _read_resource(resource: dict[str, object]) -> CatalogEntry | None:
    path = read_name(resource.get("resourceId"))
    if "/" not in path:
        return None
    attributes = {
        str(attribute.get("key")): attribute.get("value") for attribute in list_mappings(resource.get("attributes"))
    }
    tags = (resource.get("latestTag"), attributes.get("latestTag"))
    tag = next((tag for tag in tags if isinstance(tag, str) and is_tag(tag)), "")
    updated = clean_text(resource.get("dateModified") or resource.get("updatedDate"), 40)
    return CatalogEntry(
        name=f"nvcr.io/{path}",
        catalog=NgcCatalog.title,
        title=clean_text(resource.get("displayName"), 80),
        description=clean_text(resource.get("description") or resource.get("shortDescription"), LONGEST_TEXT),
        latest_tag=tag,
        updated=updated[:10] if re.match(r"\d{4}-\d\d-\d\d", updated) else "",
    )


def ask_catalog(transport: HttpTransport, url: str, who: str) -> dict[str, object]:
    """The JSON object at an address; KedgeError, within bounded time and memory, for whatever else comes."""
    request = HttpRequest("GET", url, {"Accept": "application/json"}, retries=0, read_timeout=SECONDS)
    with transport.send(request) as response:
        if response.status != 200:
            raise _refuse(response, who)
        raw = response.read_all(LARGEST_ANSWER, f"the answer of {who}", seconds=SECONDS)
        content_type = response.header("Content-Type") or ""
    if is_web_page(raw, content_type):
        raise RegistryProtocolError(
            f"{who} answers with a web page, not with data: it may come from a proxy or a network login",
            context={"request": redact_url(url)},
            hint="check HTTPS_PROXY, or run the command on a login node",
        )
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise RegistryProtocolError(f"the answer of {who} is not a JSON object", context={"request": redact_url(url)})
    return document


def _refuse(response: Response, who: str) -> NetworkFailed | RateLimited | RegistryProtocolError:
    host = split_url(response.url).hostname or ""
    context = {"request": redact_url(response.url), "status": str(response.status)}
    if response.status == 429:
        return RateLimited(f"rate limit of {who} reached", context=context)
    if response.status >= 500:
        return NetworkFailed(f"{who} has a server error: {host} answers with status {response.status}", context=context)
    return RegistryProtocolError(f"unexpected answer from {who}: status {response.status}", context=context)


# Answers hold whatever somebody else put there: each value is taken only where it is what it should be.


def list_mappings(value: object) -> list[dict[str, object]]:
    """The objects of a list; what is none is passed over."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read_count(value: object) -> int | None:
    """A number that counts something."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 1 << 53 else None


def read_name(value: object) -> str:
    """The path of a repository, where it is one that could be pulled; else nothing."""
    return value if isinstance(value, str) and len(value) <= 255 and _NAME.match(value) else ""


# Docker Hub's search for images by words.

_HUB_ADDRESS = "https://hub.docker.com"


class HubCatalog:
    """Docker Hub's repositories."""

    title = "Docker Hub"

    def __init__(self, transport: HttpTransport, address: str = _HUB_ADDRESS) -> None:
        self._transport = transport
        self._address = address.rstrip("/")

    def search(self, words: str, limit: int) -> CatalogAnswer:
        """The repositories that Docker Hub finds for some words."""
        query = urlencode({"query": words, "page_size": min(limit, MOST_RESULTS)})
        document = ask_catalog(self._transport, f"{self._address}/v2/search/repositories/?{query}", "Docker Hub")
        entries = [
            entry for repository in list_mappings(document.get("results")) if (entry := _read_repository(repository))
        ]
        return CatalogAnswer(tuple(entries[:limit]), max(read_count(document.get("count")) or 0, len(entries)))


def _read_repository(result: dict[str, object]) -> CatalogEntry | None:
    path = read_name(result.get("repo_name"))
    if not path or path.count("/") > 1:
        return None
    return CatalogEntry(
        name=f"docker.io/{path}" if "/" in path else f"docker.io/library/{path}",
        catalog=HubCatalog.title,
        description=clean_text(result.get("short_description"), LONGEST_TEXT),
        stars=read_count(result.get("star_count")),
        pulls=read_count(result.get("pull_count")),
        is_official=result.get("is_official") is True,
    )
