# SPDX-License-Identifier: BSD-3-Clause
"""Docker Hub's search for images by words."""

from __future__ import annotations

from urllib.parse import urlencode

from kedge.image.clean_config import clean_text
from kedge.image.registry.catalog import (
    LONGEST_TEXT,
    MOST_RESULTS,
    CatalogAnswer,
    CatalogEntry,
    ask_catalog,
    list_mappings,
    read_count,
    read_name,
)
from kedge.image.registry.transport import HttpTransport

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
