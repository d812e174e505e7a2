# SPDX-License-Identifier: BSD-3-Clause
"""Settings merged from the site's file, the user's file, the environment and flags, each remembering its source.

A flag beats the environment, which beats the user's file, which beats the site's file, which beats the default.
In the environment KEDGE_X beats APPTAINER_X, which beats SINGULARITY_X.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import NOTHING, frozen
from kedge.base.setting_values import PARSERS, LinkMode, ValueRefused
from kedge.errors import FileProblem, InvalidSetting
from kedge.system.files import explained
from kedge.system.private_files import find_foreign_hand, make_refusal

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

FILE_LIMIT = 1 << 20  # a configuration file larger than this is something else


@frozen
class SettingSource:
    """Where a value came from."""

    kind: str  # default, site, user, environment or flag
    where: str  # /etc/kedge/config.toml line 3, KEDGE_CACHEDIR, --tmpdir, or what the default follows

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}" if self.where else self.kind


@frozen
class Setting:
    """One setting: its kind, default, variables and flags."""

    name: str
    kind: str
    summary: str
    default: str | None
    variables: tuple[str, ...] = ()  # names after the KEDGE_, APPTAINER_ and SINGULARITY_ prefixes; KEDGE_X is itself
    flags: tuple[str, ...] = ()
    metavar: str = ""
    in_files: bool = True


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "cache_directory",
            "path",
            "directory of the cache",
            None,
            variables=("CACHEDIR",),
            flags=("--cache-dir",),
            metavar="DIR",
        ),
        Setting("scratch_directory", "path", "scratch directory; the cache goes below it", None),
        Setting(
            "temporary_directory",
            "path",
            "directory for temporary files",
            None,
            variables=("TMPDIR",),
            flags=("--tmpdir",),
            metavar="DIR",
        ),
        Setting(
            "cache_limit",
            "size",
            "size limit of the cache",
            "20G",
            variables=("CACHE_LIMIT",),
            flags=("--cache-limit",),
            metavar="SIZE",
        ),
        Setting(
            "disable_cache",
            "yes or no",
            "keep nothing in the cache",
            "no",
            variables=("DISABLE_CACHE",),
            flags=("--disable-cache",),
        ),
        Setting(
            "shared_cache",
            "yes or no",
            "share the cache with other users, as the umask allows",
            "no",
            ("SHARED_CACHE",),
        ),
        Setting(
            "link_mode",
            "link mode",
            "how pulled images share bytes with the cache: auto, copy or hardlink",
            "auto",
            variables=("LINK_MODE",),
            flags=("--link-mode",),
            metavar="MODE",
        ),
        Setting(
            "compression",
            "codec",
            "gzip, zstd[:LEVEL], lz4 or none",
            "zstd",
            variables=("COMPRESS",),
            flags=("--compress",),
            metavar="CODEC",
        ),
        Setting(
            "threads",
            "count or auto",
            "number of compression threads",
            "auto",
            variables=("THREADS",),
            flags=("--threads",),
            metavar="N",
        ),
        Setting(
            "download_connections",
            "count",
            "number of parallel downloads",
            "4",
            variables=("DOWNLOAD_CONNECTIONS",),
            flags=("--connections",),
            metavar="N",
        ),
        Setting(
            "pull_directory",
            "path",
            "directory for pulled images",
            None,
            variables=("PULLDIR", "PULLFOLDER"),
            flags=("--dir",),
            metavar="DIR",
        ),
        Setting(
            "library_url",
            "url",
            "address of the library server",
            "https://library.sylabs.io",
            variables=("LIBRARY",),
            flags=("--library",),
            metavar="URL",
        ),
        Setting(
            "keyserver",
            "text",
            "key servers, separated by commas; the first that has a key wins",
            "https://keys.openpgp.org",
            ("KEDGE_KEYSERVER",),
        ),
        Setting(
            "ca_bundle",
            "path",
            "PEM file of private certificate authorities",
            None,
            variables=("CA_BUNDLE",),
            flags=("--ca",),
            metavar="FILE",
        ),
        Setting(
            "no_https",
            "yes or no",
            "use http, not https",
            "no",
            variables=("NOHTTPS", "NO_HTTPS"),
            flags=("--no-https", "--nohttps"),
        ),
        Setting(
            "retries",
            "count or zero",
            "number of retries",
            "5",
            variables=("RETRIES",),
            flags=("--retries",),
            metavar="N",
        ),
        Setting(
            "stall_timeout",
            "count",
            "seconds without data before a download retries",
            "60",
            variables=("STALL_TIMEOUT",),
            flags=("--stall-timeout",),
            metavar="SECONDS",
        ),
        Setting(
            "minimum_speed",
            "size",
            "retry downloads below this speed, in bytes per second, such as 100K",
            "none",
            variables=("MINIMUM_SPEED",),
            flags=("--minimum-speed",),
            metavar="SIZE",
        ),
        Setting(
            "tag_lifetime",
            "count or zero",
            "seconds before a node asks again for the digest of a tag",
            "120",
            ("KEDGE_TAG_LIFETIME",),
        ),
        Setting(
            "architecture",
            "text",
            "architecture of the image, such as amd64 or arm64",
            None,
            variables=("PULL_ARCH", "ARCH"),
            flags=("--arch",),
            metavar="ARCH",
        ),
        Setting(
            "node_directory",
            "path",
            "directory for unpacked images on this node",
            None,
            variables=("NODEDIR",),
            flags=("--node-dir",),
            metavar="DIR",
        ),
        Setting(
            "node_limit",
            "size",
            "size limit of unpacked images on this node (default: half of the free space, at most 50G)",
            None,
            variables=("NODE_LIMIT",),
            flags=("--node-limit",),
            metavar="SIZE",
        ),
        Setting(
            "node_days",
            "count or zero",
            "days before an unused unpacked image is removed (0: never)",
            "14",
            ("NODE_DAYS",),
        ),
        Setting(
            "job_directory",
            "path",
            "directory for job records",
            None,
            variables=("JOBDIR",),
            flags=("--job-dir",),
            metavar="DIR",
        ),
        Setting("runtime", "text", "container runtime (default: kedge itself)", None, ("KEDGE_RUNTIME",)),
        Setting(
            "keep",
            "text",
            "host variables to pass into containers: names, user-site, locale or all",
            None,
            ("KEDGE_KEEP",),
            metavar="NAMES",
        ),
        Setting(
            "root_from",
            "root",
            "how to provide an image's files: auto, unpack, squashfuse or kernel",
            "auto",
            ("KEDGE_ROOT_FROM",),
        ),
        Setting(
            "tmpfs_size", "text", "size of the tmpfs for --writable-tmpfs and --contain", None, ("KEDGE_TMPFS_SIZE",)
        ),
        Setting(
            "site",
            "text",
            "cluster profile (default: detected)",
            None,
            variables=("KEDGE_SITE",),
            flags=("--site",),
            metavar="SITE",
        ),
        Setting(
            "registry_login",
            "presence",
            "whether the environment sets a user name for registries",
            None,
            ("DOCKER_USERNAME",),
            in_files=False,
        ),
    )
}
PREFIXES = ("KEDGE_", "APPTAINER_", "SINGULARITY_")


@frozen
class Settings:
    """The merged values; `sources` tells where each came from."""

    cache_directory: Path
    scratch_directory: Path | None
    temporary_directory: Path
    cache_limit: int | None
    disable_cache: bool
    shared_cache: bool
    link_mode: LinkMode
    compression: str
    threads: int | None
    download_connections: int
    pull_directory: Path | None
    library_url: str
    keyserver: str
    ca_bundle: Path | None
    no_https: bool
    retries: int
    stall_timeout: int
    minimum_speed: int | None
    tag_lifetime: int
    architecture: str | None
    node_directory: Path | None
    node_limit: int | None
    node_days: int
    job_directory: Path | None
    runtime: str | None
    keep: str | None
    root_from: str
    tmpfs_size: str | None
    site: str | None
    registry_login: bool
    sources: Mapping[str, SettingSource] = NOTHING

    @classmethod
    def load(cls, flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
        """Merge everything; a value that cannot be used raises InvalidSetting with the place it stands in."""
        environ = os.environ if environ is None else environ
        merged = _Merged(environ)
        merged.add_file("site", site_file(environ))
        merged.add_file("user", user_file(environ))
        merged.add_environment()
        merged.add_flags(flags or {})
        merged.add_defaults()
        return cls(**merged.values, sources=merged.sources)


def site_file(environ: Mapping[str, str]) -> Path:
    """The site's configuration file, whether or not it exists."""
    return Path(environ.get("KEDGE_SITE_CONFIG") or "/etc/kedge/config.toml")


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's configuration file, whether or not it exists."""
    return xdg_directory(environ, "XDG_CONFIG_HOME", ".config") / "config.toml"


def xdg_directory(environ: Mapping[str, str], variable: str, beside_home: str) -> Path:
    """kedge's own directory below an XDG base directory; relative values are ignored, as the XDG specification asks."""
    base = environ.get(variable, "")
    return (Path(base) if base.startswith("/") else home_directory(environ) / beside_home) / "kedge"


def home_directory(environ: Mapping[str, str]) -> Path:
    """HOME, or what the user database says, or / when neither knows."""
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    return Path(home) if home.startswith("/") else Path("/")


def apptainer_directory(environ: Mapping[str, str], home: Path | None = None) -> Path:
    """Apptainer's directory of this user, which kedge shares: logins, remotes and keys."""
    chosen = environ.get("APPTAINER_CONFIGDIR") or environ.get("SINGULARITY_CONFIGDIR")
    return Path(chosen).absolute() if chosen else (home or home_directory(environ)) / ".apptainer"


class _Merged:
    """The values so far; later `add_` calls overwrite earlier ones."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.values: dict[str, Any] = {}
        self.sources: dict[str, SettingSource] = {}

    def put(self, name: str, value: object, source: SettingSource) -> None:
        self.values[name] = parse_value(SETTINGS[name], value, source, self.environ)
        self.sources[name] = source

    def add_file(self, kind: str, path: Path) -> None:
        if kind == "user":
            _refuse_foreign(path)
        for name, (value, line) in read_file(path).items():
            self.put(name, value, SettingSource(kind, f"{path} line {line}" if line else str(path)))

    def add_environment(self) -> None:
        for setting in SETTINGS.values():
            variable = find_variable(setting, self.environ)
            if variable is None:
                continue
            value: object = self.environ[variable]
            if setting.name == "cache_directory" and not variable.startswith("KEDGE_"):
                value = f"{value}/kedge"  # Apptainer cleans its own directory; ours is apart in it
            self.put(setting.name, value, SettingSource("environment", variable))

    def add_flags(self, flags: Mapping[str, object]) -> None:
        for name, value in flags.items():
            flag = (SETTINGS[name].flags or ("command line",))[0]
            self.put(name, value, SettingSource("flag", flag))

    def add_defaults(self) -> None:
        for setting in SETTINGS.values():
            if setting.name not in self.values and setting.default is not None:
                self.put(setting.name, setting.default, SettingSource("default", ""))
        self._default_cache()
        if "temporary_directory" not in self.values:
            variable = "TMPDIR" if self.environ.get("TMPDIR", "").startswith("/") else ""
            self.put(
                "temporary_directory",
                self.environ.get("TMPDIR") if variable else "/tmp",
                SettingSource("default", variable),
            )
        for name, setting in SETTINGS.items():
            if name not in self.values:
                self.values[name] = False if setting.kind == "presence" else None
                self.sources[name] = SettingSource("default", "")

    def _default_cache(self) -> None:
        if "cache_directory" in self.values:
            return
        scratch = self.values.get("scratch_directory")
        if scratch is not None and _is_usable(scratch):
            self.put("cache_directory", str(scratch / "kedge"), self.sources["scratch_directory"])
            return
        variable = "XDG_CACHE_HOME" if self.environ.get("XDG_CACHE_HOME", "").startswith("/") else ""
        where = xdg_directory(self.environ, "XDG_CACHE_HOME", ".cache")
        self.values["cache_directory"], self.sources["cache_directory"] = where, SettingSource("default", variable)


def _is_usable(directory: Path) -> bool:
    """Whether we can write there, or make it: scratch is often on compute nodes only."""
    return os.access(directory if directory.exists() else directory.parent, os.W_OK | os.X_OK)


def find_variable(setting: Setting, environ: Mapping[str, str]) -> str | None:
    """The variable that decides a setting, or None; an empty variable counts as absent."""
    own = [name for name in setting.variables if name.startswith("KEDGE_")]
    candidates = own + [prefix + name for prefix in PREFIXES for name in setting.variables if name not in own]
    if setting.name == "registry_login":
        candidates.append("DOCKER_USERNAME")
    return next((name for name in candidates if environ.get(name)), None)


def _refuse_foreign(path: Path) -> None:
    """Settings choose programs and directories: refuse a file that another user wrote."""
    try:
        reason = find_foreign_hand(path.stat())
    except OSError:
        return  # reading it says what is wrong
    if reason:
        own = f"cp {path} {path}.own && mv -f {path}.own {path} && chmod go-w {path}"
        raise make_refusal(path, reason, f"read it; to make it yours, type: {own}")


def read_file(path: Path) -> dict[str, tuple[object, int | None]]:
    """Key to value and line number; {} when there is no such file. Unknown keys are refused by name."""
    try:
        with explained(path), path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except FileProblem as problem:
        if problem.context.get("errno") in ("ENOENT", "ENOTDIR"):
            return {}
        raise
    import tomllib  # late: most users have no configuration file

    if len(data) > FILE_LIMIT:
        raise InvalidSetting(
            f"{path} is too large for a configuration file", hint="write a few lines of TOML, such as: threads = 4"
        )
    try:
        text = data.decode()
        table = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InvalidSetting(f"{path} is not TOML: {problem}", hint="correct the line; such as: threads = 4") from None
    lines = _line_numbers(text)
    for name in table:
        check_key(name, where=f"{path} line {lines[name]}" if name in lines else str(path))
    return {name: (value, lines.get(name)) for name, value in table.items()}


def _line_numbers(text: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*\[*\s*[\"']?([A-Za-z0-9_-]+)", line)
        if match:
            numbers.setdefault(match.group(1), number)
    return numbers


def check_key(name: str, *, where: str, writable: bool = True) -> Setting:
    """The setting called `name`, or InvalidSetting that names the place and the nearest key."""
    setting = SETTINGS.get(name)
    if setting is not None and (setting.in_files or not writable):
        return setting
    from kedge.base.nearest import propose  # late: only a mistake needs it

    known = [setting.name for setting in SETTINGS.values() if setting.in_files or not writable]
    hint = propose(name, known) or f"known settings: {', '.join(known)}"
    raise InvalidSetting(f"{where}: unknown setting '{name}'", context={"key": name}, hint=hint)


def parse_value(setting: Setting, value: object, source: SettingSource, environ: Mapping[str, str]) -> Any:
    """The typed value of a setting, from TOML or from text; InvalidSetting names the key and the source."""
    is_file = source.kind in ("site", "user")
    parsed = _parse_path(value, environ, is_file) if setting.kind == "path" else PARSERS[setting.kind](value)
    if isinstance(parsed, ValueRefused):
        raise InvalidSetting(
            f"{source.where or setting.name}: {setting.name} = {value!r} is not valid: {parsed.expected}",
            context={"key": setting.name, "source": str(source)},
        )
    return parsed


def _parse_path(value: object, environ: Mapping[str, str], is_file: bool) -> Path | ValueRefused:
    expected = ValueRefused("it must be a path")
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        return expected
    unknown: list[str] = []

    def expand(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name not in environ and name != "USER":
            unknown.append(name)
        return environ.get(name) or (_user_name(environ) if name == "USER" else "")

    text = re.sub(r"\$(?:(\w+)|\{(\w+)\})", expand, value) if "$" in value else value
    if unknown:
        return ValueRefused(f"its variable {unknown[0]} is not set")
    if text == "~" or text.startswith("~/"):
        text = str(home_directory(environ)) + text[1:]
    if is_file and not text.startswith("/"):
        return ValueRefused("in a file the path must begin with '/', '~/' or a variable")
    return Path(text).absolute()


def _user_name(environ: Mapping[str, str]) -> str:
    return environ.get("LOGNAME") or str(os.getuid())
