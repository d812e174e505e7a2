# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of catalog pages that people copy from a browser, turned into the image names they show.

NGC has three generations of addresses, Docker Hub and Quay one each; the mapping of paths is in `_PAGES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kedge.base.image_name import refuse

# Names of tabs that stand where newer addresses have a tag.
_TABS = frozenset(
    ("-", "tags", "layers", "overview", "security", "security-scanning", "signing", "dockerfile", "builds", "general")
)
_NGC_OTHER = frozenset(("models", "resources", "helm-charts", "collections"))


def read_page_address(text: str) -> str | None:
    """The image name behind a catalog page or a registry's own address; None for any other address."""
    parts = split_address(text)
    reader = _PAGES.get((parts.hostname or "").lower())
    if reader is None:
        return None
    path = [unquote(part) for part in parts.path.split("/") if part]
    return reader(path, parts, text)


def split_address(text: str) -> SplitResult:
    """`urlsplit` with an error for what it cannot read."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises for a port that is no number
    except ValueError as problem:
        raise refuse(text, f"it is not a valid address ({problem})") from None
    return parts


def is_page_host(host: str) -> bool:
    """Whether bare text beginning with this host is a page address pasted without https://."""
    return host.lower() in ("catalog.ngc.nvidia.com", "ngc.nvidia.com", "hub.docker.com", "www.docker.com")


def _read_ngc(path: list[str], parts: SplitResult, text: str) -> str:
    """`orgs/O/teams/T/containers/N`, `orgs/O/containers/N`, `orgs/O/(T|-)/containers/N/(TAG|-)`."""
    if "containers" not in path or len(path) < 4 or path[0] != "orgs":
        raise _not_a_container(path, text)
    place = path.index("containers")
    owners = [part for part in path[1:place] if part not in ("teams", "-")]
    if not 1 <= len(owners) <= 2 or place + 1 >= len(path):
        raise _not_a_container(path, text)
    after = path[place + 2] if place + 2 < len(path) else "-"
    wanted = parse_qs(parts.query).get("version", [""])[0]
    tag = wanted or ("" if after in _TABS else after)
    return "/".join(["nvcr.io", *owners, path[place + 1]]) + (f":{tag}" if tag else "")


def _read_old_ngc(path: list[str], parts: SplitResult, text: str) -> str:
    """`catalog/containers/ORG[:TEAM]:NAME`, the addresses of before 2021."""
    if path[:1] == ["catalog"]:
        path = path[1:]
    if len(path) < 2 or path[0] != "containers":
        return _read_ngc(path, parts, text)
    return "/".join(["nvcr.io", *path[1].split(":")])


def _not_a_container(path: list[str], text: str) -> Exception:
    other = next((part for part in path if part in _NGC_OTHER), None)
    why = (
        f"it is the page of one of NGC's {other}, not of a container" if other else "it is not the page of a container"
    )
    return refuse(text, why, "open the container's page, or use its name: nvcr.io/ORG/[TEAM/]NAME:TAG")


def _read_hub(path: list[str], parts: SplitResult, text: str) -> str:  # noqa: ARG001 - one signature for all readers
    """`r/OWNER/NAME`, `_/NAME`, `repository/docker/OWNER/NAME`, `layers/OWNER/NAME/TAG/…`."""
    if path[:1] == ["_"] and len(path) >= 2:
        return f"docker.io/library/{path[1]}"
    if path[:1] == ["r"] and len(path) >= 3:
        return f"docker.io/{path[1]}/{path[2]}"
    if path[:2] == ["repository", "docker"] and len(path) >= 4:
        return f"docker.io/{path[2]}/{path[3]}"
    if path[:1] == ["layers"] and len(path) >= 4:
        return f"docker.io/{path[1]}/{path[2]}:{path[3]}"
    raise refuse(
        text, "it is a page of Docker Hub, but not an image's", "an image's page is hub.docker.com/r/OWNER/NAME"
    )


def _read_quay(path: list[str], parts: SplitResult, text: str) -> str:
    """`repository/OWNER/NAME[/tag/TAG]`, or the registry's own name written as an address."""
    if path[:1] != ["repository"]:
        return _read_registry(path, parts, text)
    tag = path[4] if len(path) >= 5 and path[3] == "tag" else parse_qs(parts.query).get("tag", [""])[0]
    return "/".join(["quay.io", *path[1:3]]) + (f":{tag}" if tag else "")


def _read_registry(path: list[str], parts: SplitResult, text: str) -> str:
    """A registry that serves no files, so an address on it can only mean the image."""
    if not path or re.search(r"[?#]", text):
        raise refuse(text, f"{parts.netloc} is a registry, and this address names no image on it")
    return "/".join([parts.netloc, *path])


_PAGES: dict[str, Callable[[list[str], SplitResult, str], str]] = {
    "catalog.ngc.nvidia.com": _read_ngc,
    "ngc.nvidia.com": _read_old_ngc,
    "hub.docker.com": _read_hub,
    "quay.io": _read_quay,
    "nvcr.io": _read_registry,
    "docker.io": _read_registry,
    "index.docker.io": _read_registry,
    "ghcr.io": _read_registry,
}
