# SPDX-License-Identifier: BSD-3-Clause
"""Mirrors and relocations from registries.conf (version 2), as containers-registries.conf(5) describes them.

A missing file is fine. One in the old form (`[registries.search]`) says nothing about mirrors and is only noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.errors import AccessDenied, InvalidSetting

_MAXIMUM = 1 << 20
_LOCATION = late_pattern(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(:\d{1,5})?(/[A-Za-z0-9._-]+)*/?\Z")
_HUB_HOST = "registry-1.docker.io"


@frozen
class Endpoint:
    """One place that may have a repository."""

    registry: str  # host[:port]
    repository: str
    insecure: bool = False
    is_mirror: bool = False  # or relocated: any host other than the one the user named

    @property
    def host(self) -> str:
        """The host to connect to: Docker Hub's is not the one in its name."""
        return _HUB_HOST if self.registry in ("docker.io", "index.docker.io") else self.registry


@frozen
class _Mirror:
    """One `[[registry.mirror]]` table."""

    location: str
    insecure: bool = False
    pull: str = "all"  # all, digest-only or tag-only


@frozen
class _MirrorRule:
    """One `[[registry]]` table."""

    prefix: str
    location: str
    insecure: bool = False
    blocked: bool = False
    mirrors: tuple[_Mirror, ...] = ()
    path: Path = Path()

    def match_length(self, name: str) -> int:
        """How much of `host/repository` the prefix covers; 0 when it does not fit."""
        if self.prefix.startswith("*."):
            host = name.partition("/")[0]
            suffix, _, path = self.prefix[1:].partition("/")
            fits = host.endswith(suffix) and (not path or _starts(name.partition("/")[2], path))
            return len(host) + (1 + len(path) if path else 0) if fits else 0
        return len(self.prefix) if _starts(name, self.prefix) else 0


@frozen
class Registries:
    """All rules, and notes about problems in the files."""

    rules: tuple[_MirrorRule, ...] = ()
    notes: tuple[str, ...] = ()

    def list_endpoints(self, registry: str, repository: str, *, by_digest: bool = False) -> list[Endpoint]:
        """Where to look for a repository, in order; raises AccessDenied when the site blocks it."""
        name = f"{registry}/{repository}"
        rule = max(self.rules, key=lambda rule: rule.match_length(name), default=None)
        matched = rule.match_length(name) if rule else 0
        if rule is None or not matched:
            return [Endpoint(registry, repository)]
        if rule.blocked:
            raise AccessDenied(
                f"this site blocks {name}",
                context={"file": str(rule.path), "prefix": rule.prefix},
                hint="ask the administrators of this site",
            )
        endpoints = [
            _relocate(name, matched, mirror.location, insecure=mirror.insecure)
            for mirror in rule.mirrors
            if mirror.pull == "all" or (mirror.pull == "digest-only") == by_digest
        ]
        if not rule.location:
            return [*endpoints, Endpoint(registry, repository, insecure=rule.insecure)]
        own = _relocate(name, matched, rule.location, insecure=rule.insecure)
        is_same = own.registry == registry
        return [*endpoints, Endpoint(own.registry, own.repository, rule.insecure, is_mirror=not is_same)]


def load_registries(environ: Mapping[str, str], home: Path, system: Path = Path("/etc/containers")) -> Registries:
    """Read the files that Podman and skopeo would read; a later file's rule replaces an earlier one of its prefix."""
    rules: dict[str, _MirrorRule] = {}
    notes: list[str] = []
    for path in _list_files(environ, home, system):
        for rule in _read_file(path, notes):
            rules[rule.prefix] = rule
    return Registries(tuple(rules.values()), tuple(notes))


def user_configuration(environ: Mapping[str, str], home: Path) -> Path:
    """The user's settings directory for container tools. A relative one would be the current one's: mirrors and
    certificate authorities that whoever filled that directory chose.
    """
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else home / ".config") / "containers"


def _list_files(environ: Mapping[str, str], home: Path, system: Path) -> list[Path]:
    named = environ.get("CONTAINERS_REGISTRIES_CONF") or environ.get("REGISTRIES_CONFIG_PATH")
    if named:
        return [Path(named)]
    user = user_configuration(environ, home)
    main = user / "registries.conf"
    files = [main if main.is_file() else system / "registries.conf"]
    for folder in (system / "registries.conf.d", user / "registries.conf.d"):
        try:
            files.extend(sorted(folder.glob("*.conf")))
        except OSError:
            continue
    return files


def _read_file(path: Path, notes: list[str]) -> list[_MirrorRule]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAXIMUM + 1)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        notes.append(f"cannot read {path}: {problem.strerror}")
        return []
    try:
        if len(raw) > _MAXIMUM:
            raise ValueError("it is too large")
        import tomllib  # late: few hosts have such a file

        document = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as problem:
        raise _refuse(path, f"it is not TOML: {problem}") from None
    if isinstance(document.get("registries"), dict):
        notes.append(f"{path} has the old format (version 1), which kedge ignores: mirrors need [[registry]] tables")
        return []
    tables = document.get("registry", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _refuse(path, "'registry' must be an array of tables, [[registry]]")
    return [_parse_rule(table, path) for table in tables]


def _parse_rule(table: dict[str, Any], path: Path) -> _MirrorRule:
    location = _text(table, "location", path)
    prefix = _text(table, "prefix", path) or location
    if not prefix:
        raise _refuse(path, "a [[registry]] needs a prefix or a location")
    mirrors = table.get("mirror", [])
    if not isinstance(mirrors, list) or not all(isinstance(mirror, dict) for mirror in mirrors):
        raise _refuse(path, "'mirror' must be an array of tables, [[registry.mirror]]")
    only_digests = _flag(table, "mirror-by-digest-only", path)
    return _MirrorRule(
        prefix=prefix.rstrip("/"),
        location=_check_location(location, path) if location else "",
        insecure=_flag(table, "insecure", path),
        blocked=_flag(table, "blocked", path),
        mirrors=tuple(_parse_mirror(mirror, path, only_digests=only_digests) for mirror in mirrors),
        path=path,
    )


def _parse_mirror(table: dict[str, Any], path: Path, *, only_digests: bool) -> _Mirror:
    pull = _text(table, "pull-from-mirror", path) or ("digest-only" if only_digests else "all")
    if pull not in ("all", "digest-only", "tag-only"):
        raise _refuse(path, f"pull-from-mirror must be all, digest-only or tag-only, not '{pull}'")
    location = _text(table, "location", path)
    if not location:
        raise _refuse(path, "a [[registry.mirror]] needs a location")
    return _Mirror(_check_location(location, path), _flag(table, "insecure", path), pull)


def _check_location(location: str, path: Path) -> str:
    if not _LOCATION.match(location):
        raise _refuse(path, f"the location '{location}' is not HOST[:PORT][/PATH]; it has no scheme")
    return location.rstrip("/")


def _relocate(name: str, matched: int, location: str, *, insecure: bool) -> Endpoint:
    registry, _, repository = (location + name[matched:]).partition("/")
    return Endpoint(registry, repository, insecure, is_mirror=True)


def _starts(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + "/")


def _text(table: dict[str, Any], key: str, path: Path) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise _refuse(path, f"'{key}' must be text")
    return value


def _flag(table: dict[str, Any], key: str, path: Path) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise _refuse(path, f"'{key}' must be true or false")
    return value


def _refuse(path: Path, why: str) -> InvalidSetting:
    return InvalidSetting(
        f"{path}: {why}",
        context={"file": str(path)},
        hint="correct the file, or ignore it: CONTAINERS_REGISTRIES_CONF=/dev/null",
    )
