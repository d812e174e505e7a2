# SPDX-License-Identifier: BSD-3-Clause
"""Apptainer's remote.yaml: which servers are known, which of them is in use, and the user's token for each.

Of the file only what is about remotes is read. What is changed is changed line by line, so that whatever else Apptainer
keeps there stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.frozen import NOTHING
from kedge.base.yaml_text import YamlError, parse_yaml
from kedge.errors import InvalidSetting
from kedge.image.registry.response_errors import Situation, explain_response
from kedge.image.registry.secret import Secret
from kedge.image.registry.transport import HttpRequest, HttpTransport
from kedge.system.settings import apptainer_directory

DEFAULT = "DefaultRemote"
FILE_NAME = "remote.yaml"
SITE_FILES = tuple(
    Path(base, name, FILE_NAME) for name in ("apptainer", "singularity") for base in ("/etc", "/usr/local/etc")
)
_LINE = re.compile(r"( *)([^\s:#][^:]*|\"[^\"]*\"):(?:\s+(.*?))?\s*\Z")
_SECTIONS = ("Active", "Remotes")
_MAXIMUM = 1 << 20


@dataclass(frozen=True, slots=True)
class Remote:
    """One endpoint: `uri` is a host such as cloud.sylabs.io, whose services are announced under a known address."""

    name: str
    uri: str
    token: Secret | None = None
    is_site: bool = False  # of the site's file, which kedge does not change
    is_exclusive: bool = False
    is_insecure: bool = False  # reached by http

    @property
    def base(self) -> str:
        """The address whose services are asked for."""
        if "://" in self.uri:
            return self.uri.rstrip("/")
        return f"{'http' if self.is_insecure else 'https'}://{self.uri.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Remotes:
    """The remotes of a file, or of the site's and the user's file together."""

    active: str = ""
    known: Mapping[str, Remote] = field(default_factory=dict)

    @property
    def chosen(self) -> Remote | None:
        """The remote in use, if it is described."""
        return self.known.get(self.active)


# what Apptainer itself knows where nobody configured anything; it has key servers and no library
BUILT_IN = Remotes(DEFAULT, {DEFAULT: Remote(DEFAULT, "cloud.apptainer.org", is_site=True)})


def active_remote(home: Path, environ: Mapping[str, str] = NOTHING) -> Remote | None:
    """The remote that Apptainer or SingularityCE has in use for this user; None when there is none."""
    for directory in (apptainer_directory(environ, home), home / ".singularity"):
        chosen = _read_remotes(directory / FILE_NAME).chosen
        if chosen is not None:
            return chosen
    return None


def list_remotes(user_file: Path, site_files: tuple[Path, ...] = SITE_FILES) -> Remotes:
    """The site's remotes and the user's, and which of them is in use, as Apptainer sees them."""
    site = next((_read_remotes(path, is_site=True) for path in site_files if path.is_file()), BUILT_IN)
    own = _read_remotes(user_file)
    known = {**{name: remote for name, remote in own.known.items() if not remote.is_site}, **site.known}
    for name, remote in own.known.items():
        if name in site.known and remote.token is not None:  # a login to the site's remote is the user's
            known[name] = Remote(name, site.known[name].uri, remote.token, is_site=True)
    exclusive = next((name for name, remote in site.known.items() if remote.is_exclusive), "")
    active = exclusive or (own.active if own.active in known else site.active)
    return Remotes(active, dict(sorted(known.items())))


def _read_remotes(path: Path, *, is_site: bool = False) -> Remotes:
    """The remotes of a remote.yaml; none if the file is missing."""
    try:
        with path.open("rb") as file:
            return parse_remotes(file.read(_MAXIMUM).decode(errors="replace"), is_site=is_site)
    except OSError:
        return Remotes()


def parse_remotes(text: str, *, is_site: bool = False) -> Remotes:
    """The remotes of a remote.yaml; those without an address are left out, and all of a file that is no YAML."""
    try:
        content = parse_yaml(_cut_sections(text))
    except YamlError:
        return Remotes()
    if not isinstance(content, dict):
        return Remotes()
    active, described = content.get("Active"), content.get("Remotes")
    known: dict[str, Remote] = {}
    for name, values in described.items() if isinstance(described, dict) else ():
        fields = (
            {key: value for key, value in values.items() if isinstance(value, str)} if isinstance(values, dict) else {}
        )
        if fields.get("URI"):
            known[name] = _make_remote(name, fields, is_site)
    return Remotes(active if isinstance(active, str) else "", known)


def _cut_sections(text: str) -> str:
    """The lines about remotes: Apptainer breaks long logins, which are beside them, into several lines."""
    kept: list[str] = []
    is_wanted = False
    for line in text.splitlines():
        if line and line[0] not in " \t#-":
            is_wanted = line.partition(":")[0] in _SECTIONS
        if is_wanted:
            kept.append(line)
    return "\n".join(kept)


def _make_remote(name: str, fields: Mapping[str, str], is_site: bool) -> Remote:
    def is_on(key: str) -> bool:
        return fields.get(key, "").lower() == "true"

    token = Secret(fields["Token"]) if fields.get("Token") else None
    return Remote(
        name=name,
        uri=fields["URI"],
        token=token,
        is_site=is_site or is_on("System"),
        is_exclusive=is_on("Exclusive"),
        is_insecure=is_on("Insecure"),
    )


def _unquote(value: str) -> str:
    text = value.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text.split(" #", 1)[0].rstrip()


def set_active(text: str, name: str) -> str:
    """The text with another remote in use; `""` for none."""
    lines = [line for line in text.splitlines() if not line.startswith("Active:")]
    return _join([f"Active: {name}", *lines] if name else lines)


def put_remote(text: str, remote: Remote) -> str:
    """The text with a remote, in place of one of that name."""
    lines = drop_remote(text, remote.name).splitlines()
    top = next((index for index, line in enumerate(lines) if line.startswith("Remotes:")), -1)
    if top < 0:
        lines.append("Remotes:")
        top = len(lines) - 1
    lines[top] = "Remotes:"  # `Remotes: {}` where the last one was removed
    return _join([*lines[: top + 1], *_write_remote(remote, _inner_width(lines, top)), *lines[top + 1 :]])


def drop_remote(text: str, name: str) -> str:
    """The text without a remote; if it was in use, none is."""
    lines = text.splitlines()
    start, end = _find_block(lines, name)
    left = lines[:start] + lines[end:]
    top = next((index for index, line in enumerate(left) if line.startswith("Remotes:")), -1)
    if top >= 0 and (top + 1 == len(left) or not left[top + 1].startswith(" ")):
        left[top] = "Remotes: {}"
    return _join(left)


def _write_remote(remote: Remote, width: int) -> list[str]:
    inner = " " * (2 * width)
    fields = {"URI": remote.uri, "Token": remote.token.reveal() if remote.token else ""}
    switches = {"System": remote.is_site, "Exclusive": remote.is_exclusive}
    if remote.is_insecure:
        switches["Insecure"] = True
    return [
        f"{' ' * width}{remote.name}:",
        *(f"{inner}{key}: {value}" for key, value in fields.items() if value),
        *(f"{inner}{key}: {str(value).lower()}" for key, value in switches.items()),
    ]


def _inner_width(lines: list[str], top: int) -> int:
    """How far the names of remotes are indented."""
    following = lines[top + 1] if top + 1 < len(lines) else ""
    return len(following) - len(following.lstrip(" ")) or 4


def _find_block(lines: list[str], name: str) -> tuple[int, int]:
    """Where the lines of a remote begin and end; an empty range where it is not there."""
    section = ""
    for index, line in enumerate(lines):
        match = _LINE.match(line)
        if match is not None and not match[1]:
            section = match[2]
        elif match is not None and section == "Remotes" and _unquote(match[2]) == name and not match[3]:
            width = len(match[1])
            end = next((at for at in range(index + 1, len(lines)) if _indent(lines[at]) <= width), len(lines))
            return index, end
    return len(lines), len(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _join(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# The services that a remote announces: the addresses of its library, its key server and its tokens.

SERVICES = {"libraryAPI": "Library", "keystoreAPI": "Keystore", "tokenAPI": "Token", "consentAPI": "Consent"}


def find_services(transport: HttpTransport, remote: Remote) -> dict[str, str]:
    """The addresses of the services that a remote announces, by their names in `SERVICES`."""
    url = f"{remote.base}/assets/config/config.prod.json"
    response = transport.send(HttpRequest("GET", url, {"Accept": "application/json"}))
    if response.status != 200:
        raise explain_response(response, Situation(remote.uri))
    with response:
        raw = response.read_all(_MAXIMUM, f"the list of services of {remote.uri}")
    try:
        services = json.loads(raw)
        return {name: str(services[name]["uri"]).rstrip("/") for name in SERVICES if services.get(name, {}).get("uri")}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidSetting(f"{remote.uri} is not a remote: kedge cannot read its list of services") from None
