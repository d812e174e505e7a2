# SPDX-License-Identifier: BSD-3-Clause
"""The grammar of registry image names: `[USER@]REGISTRY(/|#)REPOSITORY[:TAG][@DIGEST]`.

The rules are those of the distribution specification; Docker Hub's defaults (`docker.io`, `library/`) are applied here.
"""

from __future__ import annotations

import re

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.errors import InvalidReference

DOCKER_HUB = "docker.io"
_HUB_ALIASES = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})
_MAXIMUM_REPOSITORY = 255
_MAXIMUM_TAG = 128

_COMPONENT = late_pattern(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*\Z")
_LIBRARY_COMPONENT = late_pattern(r"[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*\Z")
_TAG = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_HOST = late_pattern(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?)*\Z")
_PASSWORD = late_pattern(r"(://[^/@:\s]*):[^/@\s]*@")
_IPV6 = late_pattern(r"\[[0-9A-Fa-f:.]{2,45}(?:%25[A-Za-z0-9._-]+)?\]\Z")


@frozen
class _ImageName:
    """The parts of an image name, defaults filled in except the tag."""

    registry: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None
    user: str | None = None


def refuse(text: str, why: str, hint: str | None = None) -> InvalidReference:
    """The error for the reference `text`, shown without a password, and shortened when it is very long."""
    text = hide_password(text)
    shown = text if len(text) <= 200 else text[:200] + "…"
    return InvalidReference(f"'{shown}' is not a valid image reference: {why}", context={"reference": shown}, hint=hint)


def hide_password(text: str) -> str:
    """The text with the password of a `://USER:PASSWORD@` masked."""
    return _PASSWORD.sub(r"\1:***@", text)


def parse_image_name(name: str, text: str, *, registry_first: bool = False) -> _ImageName:
    """Read an image name; `text` is the whole reference for messages.

    With `registry_first` the first part is the registry whatever it looks like, as ORAS clients have it.
    """
    user, location = _split_user(name, text)
    registry, hash_sign, image = location.partition("#")
    if hash_sign:
        if not registry:
            raise refuse(text, "no registry before the '#'", "Enroot's format is docker://[USER@]REGISTRY#IMAGE:TAG")
        _check_registry(registry, text)
    else:
        registry, image = _split_registry(location, text, registry_first=registry_first)
    repository, tag, digest = split_repository(image, text)
    check_path_shape(repository, text)
    registry = registry.lower()
    if registry in _HUB_ALIASES or not registry:
        registry = DOCKER_HUB
        repository = repository if "/" in repository else f"library/{repository}"
    check_repository(repository, text)
    return _ImageName(registry, repository, tag, digest, user)


def split_repository(image: str, text: str) -> tuple[str, str | None, Digest | None]:
    """`REPOSITORY[:TAG][@DIGEST]` into its parts; tag and digest are checked, the repository is not."""
    path, at_sign, digest_text = image.partition("@")
    digest = None
    if at_sign:
        digest = _parse_digest(digest_text, text)
    folder, slash, last = path.rpartition("/")
    last, colon, tag = last.partition(":")
    if tag.startswith("sha256:") and digest is None:  # Enroot's IMAGE:sha256:HEX
        return folder + slash + last, None, _parse_digest(tag, text)
    if colon:
        _check_tag(tag, text)
    return folder + slash + last, tag if colon else None, digest


def is_tag(text: str) -> bool:
    """Whether the distribution specification allows it as a tag."""
    return len(text) <= _MAXIMUM_TAG and _TAG.match(text) is not None


def _check_tag(tag: str, text: str) -> None:
    """Raise unless `tag` is one the distribution specification allows."""
    if not tag:
        raise refuse(text, "it ends with ':' but no tag follows", "add a tag, or leave the ':' out")
    if len(tag) > _MAXIMUM_TAG:
        raise refuse(text, f"its tag has {len(tag)} characters; {_MAXIMUM_TAG} are allowed")
    if not _TAG.match(tag):
        wrong = next((c for c in tag if not re.match(r"[A-Za-z0-9_.-]", c)), tag[0])
        why = f"'{wrong}' is not allowed in a tag" if wrong not in ".-" else f"a tag may not begin with '{wrong}'"
        raise refuse(text, why, "use letters, digits, '_', '.' and '-'")


def _lower_parts(text: str, repository: str) -> str:
    """The text with a lower-case repository; tags may be upper case, and the registry may have been left out."""
    for part in repository.split("/"):
        text = text.replace(part, part.lower(), 1)
    return text


def check_repository(repository: str, text: str) -> None:
    """Raise unless every part of the repository's path follows the grammar."""
    if len(repository) > _MAXIMUM_REPOSITORY:
        raise refuse(text, f"its repository name has {len(repository)} characters; {_MAXIMUM_REPOSITORY} are allowed")
    for part in repository.split("/"):
        if _COMPONENT.match(part):
            continue
        if part != part.lower() and _COMPONENT.match(part.lower()):
            raise refuse(
                text,
                f"repository names are lower case, '{part}' is not",
                f"did you mean {_lower_parts(text, repository)}?",
            )
        raise refuse(
            text,
            f"'{part}' is not a valid part of a repository name",
            "parts are lower-case letters and digits, with single '.', '_', '__' or '-' between them",
        )


def check_library_path(parts: list[str], text: str) -> None:
    """Raise unless each part is a name a library server takes."""
    for part in parts:
        if not _LIBRARY_COMPONENT.match(part):
            raise refuse(
                text,
                f"'{part}' is not a valid part of a library path",
                "the format is library://[HOST/]ENTITY/COLLECTION/CONTAINER:TAG",
            )


def check_path_shape(path: str, text: str) -> None:
    """Raise for empty parts: nothing at all, `a//b`, `/a`, `a/`."""
    if not path:
        raise refuse(
            text, "it names no repository", "write REGISTRY/REPOSITORY:TAG, such as nvcr.io/nvidia/pytorch:24.03-py3"
        )
    if path.endswith("/"):
        raise refuse(text, "it ends with '/'", "name the image after the slash, or leave the slash out")
    if "//" in path:
        raise refuse(text, "its path has two slashes in a row")
    if path.startswith("/"):
        raise refuse(text, "its path begins with '/'", "write exactly two slashes after the scheme's colon")


def looks_like_registry(part: str) -> bool:
    """Whether the first part of a path is a host: it has a dot or a port, is bracketed, or is localhost."""
    return "." in part or ":" in part or part.lower() == "localhost" or part.startswith("[")


def _split_user(name: str, text: str) -> tuple[str | None, str]:
    head, at_sign, tail = name.partition("@")
    if not at_sign or "/" in head or "#" in head or not ("/" in tail or "#" in tail):
        return None, name
    if ":" in head:
        # The text may hold a password, so it is not repeated.
        raise InvalidReference(
            "the image reference has a ':' before its '@'; a password does not belong into a reference",
            hint="store it with 'kedge registry login', or set KEDGE_DOCKER_USERNAME and KEDGE_DOCKER_PASSWORD",
        )
    if not head:
        raise refuse(text, "no user name before the '@'")
    return head, tail


def _split_registry(name: str, text: str, *, registry_first: bool) -> tuple[str, str]:
    first, slash, image = name.partition("/")
    if not slash and (_looks_like_bare_host(first) or (registry_first and first)):
        raise refuse(text, f"'{first}' is a registry, and no repository follows", "write REGISTRY/REPOSITORY:TAG")
    if not slash or not (registry_first or looks_like_registry(first)) or first.startswith("@"):
        return "", name
    _check_registry(first, text)
    if not image:
        raise refuse(text, f"'{first}' is a registry, and no repository follows", "write REGISTRY/REPOSITORY:TAG")
    return first, image


def _looks_like_bare_host(part: str) -> bool:
    """Whether a name without any slash can only be a registry: `nvcr.io`, `localhost:5000`, `[::1]:5000`."""
    host = part.partition(":")[0].lower()
    return host in _HUB_ALIASES or host in ("nvcr.io", "ghcr.io", "quay.io", "localhost") or part.startswith("[")


def _check_registry(registry: str, text: str) -> None:
    host, port = registry, ""
    bracket = registry.rfind("]")
    colon = registry.rfind(":")
    if colon > bracket:
        host, port = registry[:colon], registry[colon + 1 :]
        if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
            raise refuse(text, f"'{port}' is not a port number", "ports are 1 to 65535: REGISTRY:PORT/REPOSITORY")
    if host.startswith("["):
        if not _IPV6.match(host):
            raise refuse(text, f"'{host}' is not an IPv6 address in brackets")
    elif not _HOST.match(host) or len(host) > 253:
        raise refuse(text, f"'{host}' is not a host name")


def _parse_digest(digest_text: str, text: str) -> Digest:
    try:
        return Digest.parse(digest_text)
    except InvalidReference as problem:
        raise refuse(text, problem.message, "a digest is '@sha256:' and 64 hexadecimal digits") from None
