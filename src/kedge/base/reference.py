# SPDX-License-Identifier: BSD-3-Clause
"""Image references: every way people name an image, read once into one value.

An explicit scheme always decides (`image_argument`). Text without one is a file where such a file exists (even
`pytorch:21.06-py3`), a file where it can only be one (`./x`, `x.sif`), and otherwise a name on a registry, Docker Hub
by default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import StrEnum
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kedge.base import image_name
from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.image_argument import PATHS, PLAIN, SLASHED, find_path, is_address
from kedge.base.image_name import refuse
from kedge.base.patterns import late_pattern
from kedge.errors import InvalidReference

_MAXIMUM_LENGTH = 16384  # signed download addresses reach a few thousand characters
_SCHEME = late_pattern(r"([A-Za-z][A-Za-z0-9+.-]*):")
_INSTANCE = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_ARCHIVE_TAG = late_pattern(r"[A-Za-z0-9_@][A-Za-z0-9_.:@/+-]*\Z")
_IMAGE_SUFFIXES = (".sif", ".simg", ".sqsh", ".sqfs", ".squashfs", ".img", ".tar", ".tar.gz", ".tgz", ".oci")


class Transport(StrEnum):
    """Where an image comes from."""

    DOCKER = "docker"
    ORAS = "oras"
    LIBRARY = "library"
    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"
    DOCKER_DAEMON = "docker-daemon"
    HTTP = "http"
    HTTPS = "https"
    INSTANCE = "instance"
    HOST = "host"
    FILE = "file"


@frozen
class Reference:
    """One image: a transport and the parts that transport has; the others are empty."""

    transport: Transport
    registry: str = ""  # host[:port]; docker, oras; library: '' means the configured server
    repository: str = ""  # also the name of an instance or of an image in a daemon
    tag: str | None = None  # None when absent; for archives the whole name inside the archive
    digest: Digest | None = None
    path: str = ""  # file, directory or archive; http and https: the whole address
    programs: tuple[str, ...] = ()  # host
    user: str | None = None  # Enroot's USER@
    engine: str = ""  # docker-daemon: 'docker' or 'podman'

    @classmethod
    def parse(cls, text: str, *, exists: Callable[[str], bool] = os.path.lexists) -> Reference:
        """Read a reference; InvalidReference says what is wrong and what was probably meant."""
        _check_text(text)
        scheme, name = _split_scheme(text)
        if scheme is None:
            return _parse_bare(text, exists)
        if scheme in ("oci", "oci-archive", "docker-archive"):
            return _parse_archive(Transport(scheme), name, text, exists)
        return _PARSERS[scheme](name, text)

    def __str__(self) -> str:
        if self.transport in (Transport.HTTP, Transport.HTTPS):
            return self.path
        if self.transport is Transport.FILE:
            return self.path if self.path.startswith(("/", "./", "../")) else f"file:{self.path}"
        if self.transport is Transport.HOST:
            return "host:" + ",".join(self.programs)
        if self.transport is Transport.INSTANCE:
            return f"instance://{self.repository}"
        if self.path:
            return f"{self.transport}:{self.path}" + (f":{self.tag}" if self.tag else "")
        if self.transport is Transport.DOCKER_DAEMON:
            return ("podman://" if self.engine == "podman" else "docker-daemon:") + (self.name or str(self.digest))
        user = f"{self.user}@" if self.user else ""
        # A one-word host such as `docker://registry#a` would read as a directory on Docker Hub with a slash.
        one_word = self.transport is Transport.DOCKER and not image_name.looks_like_registry(self.registry)
        separator = ("#" if self.user or one_word else "/") if self.registry else ""
        return f"{self.transport}://{user}{self.registry}{separator}{self.name}"

    @property
    def name(self) -> str:
        """`REPOSITORY[:TAG][@DIGEST]`: the reference without transport and registry."""
        if not self.repository:
            return ""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def redacted(self) -> str:
        """The reference as labels and logs may show it: addresses without password and query (which hold tokens)."""
        if self.transport not in (Transport.HTTP, Transport.HTTPS):
            return str(self)
        return image_name.hide_password(self.path).partition("?")[0].partition("#")[0]

    @property
    def shown(self) -> str:
        """Return the text as `redacted`, but a file is its path, as users type it."""
        return self.path if self.transport is Transport.FILE else self.redacted

    @property
    def is_local(self) -> bool:
        """Whether nothing needs to be fetched over a network."""
        return self.transport not in (
            Transport.DOCKER,
            Transport.ORAS,
            Transport.LIBRARY,
            Transport.HTTP,
            Transport.HTTPS,
        )

    def default_name(self, extension: str = ".sif") -> str:
        """The output name Apptainer would choose: `pytorch_24.03-py3.sif`; '' as extension for a directory."""
        if self.transport is Transport.HOST:
            return "-".join(program.rpartition("/")[2] for program in self.programs) + extension
        if self.transport is Transport.INSTANCE:
            return self.repository + extension
        if self.transport in (Transport.HTTP, Transport.HTTPS):
            last = split_address(self.path).path.rpartition("/")[2]
            return last if extension == ".sif" else _replace_suffix(last, extension)
        if self.transport is Transport.FILE:
            return _replace_suffix(self._last_element(), extension)
        return _name_from_text(self._naming_text(), extension)

    def _last_element(self) -> str:
        last = self.path.rstrip("/").rpartition("/")[2]
        return "image" if last in ("", ".", "..") else last

    def _naming_text(self) -> str:
        if self.path:
            return self.path.rstrip("/") + (f":{self.tag}" if self.tag else "")
        if not self.repository:
            return str(self.digest)
        digest = f"@{self.digest}" if self.digest and not self.tag else ""
        return f"{self.repository}" + (f":{self.tag}" if self.tag else "") + digest


def _name_from_text(text: str, extension: str) -> str:
    """Apptainer's rule: the last path element, split at its first colon; a digest gives `name@sha256_<hex>`."""
    last, colon, tag = text.rpartition("/")[2].partition(":")
    return f"{last}_{tag.partition(':')[0] if colon else 'latest'}{extension}"


def _replace_suffix(name: str, extension: str) -> str:
    for suffix in sorted(_IMAGE_SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)] + extension
    return name + extension


def _check_text(text: str) -> None:
    if not text.strip():
        raise InvalidReference(
            "the image reference is empty", hint="name an image, such as docker://ubuntu:22.04 or ./image.sif"
        )
    if len(text) > _MAXIMUM_LENGTH:
        raise refuse(text, f"it has {len(text)} characters; {_MAXIMUM_LENGTH} are allowed")
    for character in text:
        if ord(character) < 32 or ord(character) == 127 or 0xD800 <= ord(character) < 0xE000:
            raise refuse(ascii(text)[1:-1], "it contains a control character", "type the reference by hand")


def _split_scheme(text: str) -> tuple[str | None, str]:
    match = _SCHEME.match(text)
    if match is None:
        return None, text
    scheme, name = match[1].lower(), text[match.end() :]
    if scheme in SLASHED:
        if name.startswith("//"):
            return scheme, name[2:]
        raise _missing_slashes(scheme, name, text)
    if scheme in PLAIN:
        return scheme, name
    if name.startswith("//"):
        raise _unknown_scheme(scheme, name, text)
    return None, text


def _missing_slashes(scheme: str, name: str, text: str) -> InvalidReference:
    wanted = f"{scheme}://{name.lstrip('/')}"
    also = f"; for the image called '{scheme}' write docker://{text}" if scheme in ("docker", "podman") and name else ""
    return refuse(text, f"'{scheme}:' must be followed by '//'", f"did you mean {wanted}?{also}; a file is ./{text}")


def _unknown_scheme(scheme: str, name: str, text: str) -> InvalidReference:
    from kedge.base.nearest import find_near  # late: only a mistake needs it

    known = sorted({*SLASHED, *PLAIN} - {"shub"})
    near = find_near(scheme, known)
    slashes = "//" if near in SLASHED else ""
    hint = f"did you mean {near}:{slashes}{name.lstrip('/')}?" if near else f"known schemes: {', '.join(known)}"
    return refuse(text, f"unknown scheme '{scheme}://'", hint)


def _parse_bare(text: str, exists: Callable[[str], bool]) -> Reference:
    may_be_file = not is_address(text)  # `a b://c` is a mistake
    if may_be_file and (exists(text) or text.startswith(PATHS) or text in (".", "..")):
        return Reference(Transport.FILE, path=text)
    _refuse_spaces(text)
    if is_page_host(text.partition("/")[0]):
        return _parse_address("https", text, text)
    if text.lower().endswith(_IMAGE_SUFFIXES) and "@" not in text and may_be_file:
        return Reference(Transport.FILE, path=text)
    return _parse_docker(text, text)


def _refuse_spaces(text: str) -> None:
    if not any(character.isspace() for character in text):
        return
    words = text.split()
    hint = "remove the spaces, or quote the name of a file"
    if len(words) > 1 and words[0] in ("docker", "podman", "apptainer", "singularity", "enroot", "kedge"):
        hint = f"give the image alone: {words[-1]}"
    raise refuse(text, "it contains a space, and no such file exists", hint)


def _parse_docker(image: str, text: str) -> Reference:
    _refuse_spaces(text)
    name = image_name.parse_image_name(image, text)
    return Reference(Transport.DOCKER, name.registry, name.repository, name.tag, name.digest, user=name.user)


def _parse_oras(image: str, text: str) -> Reference:
    _refuse_spaces(text)
    name = image_name.parse_image_name(image, text, registry_first=True)
    return Reference(Transport.ORAS, name.registry, name.repository, name.tag, name.digest, user=name.user)


def _parse_library(image: str, text: str) -> Reference:
    """`[HOST/]ENTITY/COLLECTION/CONTAINER[:TAG]`, with `library` and `default` for what is left out."""
    _refuse_spaces(text)
    image = image.removeprefix("///").removeprefix("//").removeprefix("/")
    image_name.check_path_shape(image, text)
    host, slash, path = image.partition("/")
    if not slash or not (image_name.looks_like_registry(host) or image.count("/") == 3):
        host, path = "", image
    path, tag, digest = image_name.split_repository(path, text)
    parts = path.split("/")
    if len(parts) > 3:
        raise refuse(text, "its path has too many parts", "write library://[HOST/]ENTITY/COLLECTION/CONTAINER:TAG")
    image_name.check_path_shape(path, text)
    image_name.check_library_path(parts, text)
    if host:
        host = image_name.parse_image_name(f"{host}/x", text, registry_first=True).registry
    full = ["library", "default"][: 3 - len(parts)] + parts
    return Reference(Transport.LIBRARY, host, "/".join(full), tag, digest)


def _parse_shub(image: str, text: str) -> Reference:  # noqa: ARG001 - one signature for all parsers
    raise refuse(
        text,
        "Singularity Hub was shut down in April 2021",
        "look for the same image on docker:// or oras://, or build it again from its definition file",
    )


def _parse_archive(transport: Transport, location: str, text: str, exists: Callable[[str], bool]) -> Reference:
    """`[//]PATH[:NAME]`: the longest existing path wins, else the first colon ends the path as in other tools."""
    location = location.removeprefix("//")  # Apptainer takes both; the path is relative unless one slash more follows
    colons = [place for place, character in enumerate(location) if character == ":"]
    ends = [len(location), *reversed(colons)]
    end = next((place for place in ends if exists(location[:place])), colons[0] if colons else len(location))
    path, tag = location[:end], location[end + 1 :]
    if not path:
        raise refuse(text, f"no path follows '{transport}:'", f"write {transport}:PATH or {transport}:PATH:TAG")
    if end < len(location) and not tag:
        raise refuse(text, "it ends with ':' but no tag follows", "add a tag, or leave the ':' out")
    if tag and not _ARCHIVE_TAG.match(tag):
        raise refuse(text, f"'{tag}' is not a valid name in an archive")
    return Reference(transport, path=path, tag=tag or None)


def _parse_daemon(name: str, text: str, engine: str = "docker") -> Reference:
    _refuse_spaces(text)
    name = name.removeprefix("//")
    if name.startswith(("sha256:", "@sha256:")):
        return Reference(Transport.DOCKER_DAEMON, digest=Digest.parse(name.removeprefix("@")), engine=engine)
    path, tag, digest = image_name.split_repository(name, text)
    image_name.check_path_shape(path, text)
    first, slash, image = path.partition("/")
    if slash and image_name.looks_like_registry(first):
        image_name.parse_image_name(f"{path}:x", text)  # for its checks: a daemon keeps the name as it is
        image_name.check_repository(image, text)
    else:
        image_name.check_repository(path, text)
    return Reference(Transport.DOCKER_DAEMON, repository=path, tag=tag, digest=digest, engine=engine)


def _parse_podman(name: str, text: str) -> Reference:
    return _parse_daemon(name, text, "podman")


def _parse_address(scheme: str, location: str, text: str) -> Reference:
    _refuse_spaces(text)
    address = f"{scheme}://{location}"
    name = read_page_address(address)
    if name is not None:
        return _parse_docker(name, text)
    parts = split_address(address)
    if not parts.hostname:
        raise refuse(text, "it names no host", f"write {scheme}://HOST/PATH/IMAGE.sif")
    if parts.path.rpartition("/")[2] in ("", ".", ".."):
        raise refuse(text, "the address names no file", f"write {scheme}://HOST/PATH/IMAGE.sif")
    return Reference(Transport(scheme), path=address)


def _parse_http(location: str, text: str) -> Reference:
    return _parse_address("http", location, text)


def _parse_https(location: str, text: str) -> Reference:
    return _parse_address("https", location, text)


def _parse_instance(name: str, text: str) -> Reference:
    if not name:
        raise refuse(text, "it names no instance", "write it as instance://NAME")
    if not _INSTANCE.match(name):
        raise refuse(text, "an instance name has letters, digits, '_', '.' and '-'")
    return Reference(Transport.INSTANCE, repository=name)


def _parse_host(names: str, text: str) -> Reference:
    programs = tuple(names.split(","))
    if not names:
        raise refuse(text, "it names no program", "write host:PROGRAM[,PROGRAM…], such as host:bash,python3")
    for program in programs:
        if not program or program != program.strip() or program.endswith("/") or program.startswith("+"):
            raise refuse(text, f"'{program}' is not a program name", "write host:PROGRAM[,PROGRAM…]")
    return Reference(Transport.HOST, programs=programs)


def _parse_file(path: str, text: str) -> Reference:
    if not path.removeprefix("//"):
        raise refuse(text, "no path follows 'file:'")
    return Reference(Transport.FILE, path=find_path(text))


_PARSERS: dict[str, Callable[[str, str], Reference]] = {
    "docker": _parse_docker,
    "dockerd": _parse_daemon,
    "docker-daemon": _parse_daemon,
    "podman": _parse_podman,
    "containers-storage": _parse_podman,
    "oras": _parse_oras,
    "library": _parse_library,
    "shub": _parse_shub,
    "http": _parse_http,
    "https": _parse_https,
    "instance": _parse_instance,
    "host": _parse_host,
    "file": _parse_file,
}


# Addresses of catalog pages that people copy from a browser, turned into the image names they show.
#
# NGC has three generations of addresses, Docker Hub and Quay one each; the mapping of paths is in `_PAGES`.

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
