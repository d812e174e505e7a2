# SPDX-License-Identifier: BSD-3-Clause
"""The Library API, which library:// references mean: SIF files by name and architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kedge.base.digest import Digest
from kedge.errors import ImageNotFound, InvalidReference, InvalidSetting, KedgeError, RegistryProtocolError
from kedge.image.registry.blob_stream import BlobStream, open_stream
from kedge.image.registry.remote_yaml import Remote, active_remote, find_services
from kedge.image.registry.response_errors import Situation, explain_response, explain_web_page, is_web_page
from kedge.image.registry.secret import Secret
from kedge.image.registry.transport import HttpRequest, HttpTransport, Response, split_url

KNOWN_LIBRARY = "https://library.sylabs.io"
_MAXIMUM = 1 << 20


@dataclass(frozen=True, slots=True)
class _LibraryImage:
    """What the library says about an image."""

    path: str  # entity/collection/container:tag
    size: int | None
    digest: Digest | None
    architecture: str


@dataclass(frozen=True, slots=True)
class LibraryFind:
    """An image that a search found."""

    name: str  # entity/collection/container
    tags: tuple[str, ...]
    description: str
    fingerprints: tuple[str, ...]  # of the keys that signed it


class LibraryClient:
    """A client of one library server."""

    def __init__(self, base: str, transport: HttpTransport, token: Secret | None = None) -> None:
        self.base = base.rstrip("/")
        self._host = split_url(self.base).netloc
        self._transport = transport
        self._authorization = Secret(f"Bearer {token.reveal()}") if token else None

    def describe(self, path: str, architecture: str) -> _LibraryImage:
        """Size and digest of an image, before it is downloaded."""
        url = f"{self.base}/v1/images/{quote(path, safe='/:.')}?arch={quote(architecture)}"
        response = self._transport.send(
            HttpRequest("GET", url, {"Accept": "application/json"}, authorization=self._authorization)
        )
        if response.status != 200:
            raise self._explain(response, path, architecture)
        with response:
            raw = response.read_all(_MAXIMUM, f"the description of {path}")
            content_type = response.header("Content-Type") or ""
        if is_web_page(raw, content_type):
            raise explain_web_page(self._situation(path), url, content_type)
        return _parse_image(raw, path, architecture, self._host)

    def open_image(self, image: _LibraryImage, offset: int = 0) -> BlobStream:
        """The SIF's bytes from `offset`; the caller verifies and closes. The token does not follow the redirect."""
        url = f"{self.base}/v1/imagefile/{quote(image.path, safe='/:.')}?arch={quote(image.architecture)}"

        def request(start: int) -> Response:
            headers = {"Range": f"bytes={start}-"} if start else {}
            response = self._transport.send(HttpRequest("GET", url, headers, self._authorization))
            if response.status not in ((200, 206, 416) if start else (200,)):
                raise self._explain(response, image.path, image.architecture)
            return response

        return open_stream(request, offset, image.size)

    def delete(self, path: str, architecture: str) -> None:
        """Delete an image; raises if the library refuses."""
        url = f"{self.base}/v1/images/{quote(path, safe='/:.')}?arch={quote(architecture)}"
        response = self._transport.send(HttpRequest("DELETE", url, authorization=self._authorization))
        if response.status not in (200, 202, 204):
            raise self._explain(response, path, architecture)
        response.close()

    def search(self, text: str, architecture: str, *, only_signed: bool = False) -> list[LibraryFind]:
        """The images whose names have a word."""
        signed = "&signed=true" if only_signed else ""
        url = f"{self.base}/v1/search?arch={quote(architecture)}{signed}&value={quote(text)}"
        response = self._transport.send(
            HttpRequest("GET", url, {"Accept": "application/json"}, authorization=self._authorization)
        )
        if response.status != 200:
            raise explain_response(response, self._situation(text))
        with response:
            return _parse_finds(response.read_all(_MAXIMUM, f"the images of {self._host}"), self._host)

    def _situation(self, path: str) -> Situation:
        secrets = (self._authorization,) if self._authorization else ()
        source = "remote.yaml" if self._authorization else None
        name, _, tag = path.rpartition(":")
        return Situation(self._host, name or path, tag if name else "", credential=source, secrets=secrets)

    def _explain(self, response: Response, path: str, architecture: str) -> Exception:
        problem = explain_response(response, self._situation(path))
        if isinstance(problem, ImageNotFound):
            return ImageNotFound(
                f"the library {self._host} has no {path} for {architecture}",
                context=problem.context,
                hint="check the name, the tag and --arch, or choose another library with --library",
            )
        return problem


def _parse_image(raw: bytes, path: str, architecture: str, host: str) -> _LibraryImage:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        raise RegistryProtocolError(f"kedge cannot read how the library {host} describes {path}")
    if data.get("uploaded") is False:
        raise ImageNotFound(f"{path} on {host} was never uploaded completely", hint="ask its owner to push it again")
    size = data.get("size")
    is_number = isinstance(size, int) and not isinstance(size, bool) and 0 < size < 1 << 63
    return _LibraryImage(
        path,
        size if is_number else None,
        _parse_hash(data.get("hash")),
        str(data.get("architecture") or architecture),
    )


def _parse_finds(raw: bytes, host: str) -> list[LibraryFind]:
    try:
        images = json.loads(raw)["data"]["image"] or []
        return [
            LibraryFind(
                "/".join(str(image[name]) for name in ("entityName", "collectionName", "containerName")),
                tuple(str(tag) for tag in image.get("tags") or ()),
                str(image.get("description") or ""),
                tuple(str(fingerprint) for fingerprint in image.get("fingerprints") or ()),
            )
            for image in images
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RegistryProtocolError(f"kedge cannot read the search results of the library {host}") from None


def _parse_hash(value: object) -> Digest | None:
    """The library writes `sha256.HEX`; older images have `sif.UUID`, which says nothing about their bytes."""
    try:
        return Digest.parse(str(value or "").replace("sha256.", "sha256:", 1))
    except InvalidReference:
        return None


def find_library(
    transport: HttpTransport, home: Path, *, address: str | None = None, environ: Mapping[str, str] | None = None
) -> LibraryClient:
    """The library to use: `address`, KEDGE_, APPTAINER_ or SINGULARITY_LIBRARY, or what remote.yaml says.

    InvalidSetting, with the address of a known library, when nothing names one.
    """
    environ = environ or {}
    named = address or next(
        (
            environ[f"{prefix}_LIBRARY"]
            for prefix in ("KEDGE", "APPTAINER", "SINGULARITY")
            if environ.get(f"{prefix}_LIBRARY")
        ),
        None,
    )
    remote = active_remote(home, environ)
    if named:
        return LibraryClient(named, transport, _token_for(named, transport, remote))
    discovered = _discover(transport, remote) if remote else None
    if remote and discovered:
        return LibraryClient(discovered, transport, remote.token)
    raise InvalidSetting(
        "cannot resolve library://: no library server is configured",
        hint=f"choose one: --library {KNOWN_LIBRARY}, or: kedge config set library_url {KNOWN_LIBRARY}",
    )


def _token_for(address: str, transport: HttpTransport, remote: Remote | None) -> Secret | None:
    """The remote's token, if the address is that remote's own library: it goes to no other."""
    if remote is None or remote.token is None:
        return None
    try:
        return remote.token if _discover(transport, remote) == address.rstrip("/") else None
    except KedgeError:  # the remote is out of reach; public images need no token
        return None


def _discover(transport: HttpTransport, remote: Remote) -> str | None:
    """The library address that a remote announces; None when it has no library."""
    if remote.uri.rstrip("/").endswith("cloud.sylabs.io"):
        return KNOWN_LIBRARY
    return find_services(transport, remote).get("libraryAPI")
