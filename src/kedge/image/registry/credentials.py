# SPDX-License-Identifier: BSD-3-Clause
"""Where credentials for a registry come from, in order; the first that fits is used, and its source is remembered.

Options, then the environment, then files. The environment's login is for the registry that is being pulled from, as in
Apptainer, and never goes to a mirror. In a build, where a recipe names registries, it is for those that the caller
says. `~/.netrc` is not read: it is not about registries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kedge.base.frozen import NOTHING, frozen
from kedge.base.login_sources import NGC_VARIABLES, PAIRS, list_auth_files
from kedge.base.patterns import late_pattern
from kedge.errors import InvalidSetting, KedgeError, ProgramFailed, UsageError
from kedge.image.registry.docker_config import AuthFile, Login, normalize_key, read_auth_file
from kedge.image.registry.secret import Secret, encode_basic
from kedge.system.private_files import find_foreign_hand
from kedge.system.settings import apptainer_directory

_ENROOT_NAMES = {
    "nvcr.io": ("nvcr.io", "authn.nvidia.com"),
    "docker.io": ("registry-1.docker.io", "auth.docker.io", "docker.io", "index.docker.io"),
}
_HELPER_NAME = late_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_HELPER_SECONDS = 30.0
_TOKEN_USER = "<token>"  # the user name that marks an identity token


@frozen
class Credential:
    """A login and where it was found; its repr shows no secret."""

    login: Login
    source: str

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Everything in it that must not be shown."""
        login = self.login
        basic = encode_basic(login.username, login.password) if login.password else None
        held = (basic, login.password, login.identity_token, login.registry_token)
        return tuple(secret for secret in held if secret)


@frozen
class CredentialSearch:
    """The result of a search: a credential or none, and notes about problems."""

    credential: Credential | None = None
    notes: tuple[str, ...] = ()


@frozen
class CredentialSources:
    """Where to look."""

    explicit: Credential | None = None  # --docker-login and --username
    authfile: Path | None = None
    username: str | None = None  # USER@ of an Enroot reference: only entries of this user fit
    environ: Mapping[str, str] = NOTHING
    home: Path = Path("/")
    registries: frozenset[str] | None = None  # who may get a login that names no registry; None: who is asked

    def find(self, registry: str, repository: str, *, is_mirror: bool = False) -> CredentialSearch:
        """The credential for a repository; what is not tied to a host is kept from mirrors."""
        notes: list[str] = []
        sources: list[Iterator[Credential]] = []
        if not is_mirror:
            sources = [self._from_options(registry, notes), self._from_environment(registry, notes)]
        sources.append(self._from_files(registry, repository, notes))
        sources.append(self._from_enroot(registry, notes))
        for source in sources:
            for credential in source:
                if self.username and credential.login.username not in ("", self.username):
                    continue
                if self._is_misdirected(credential, registry):
                    notes.append(f"{credential.source} holds an NGC API key, which kedge sends to nvcr.io only")
                    continue
                return CredentialSearch(credential, tuple(notes))
        return CredentialSearch(None, tuple(notes))

    def _is_misdirected(self, credential: Credential, registry: str) -> bool:
        """Whether a credential is a key of NGC and the registry is not NVIDIA's."""
        return holds_ngc_key(credential.login, self.environ) and not is_ngc_registry(normalize_key(registry))

    def _may_get(self, registry: str, source: str, notes: list[str]) -> bool:
        """Whether a login that names no registry is for this one; a note says it where not."""
        host = normalize_key(registry)
        if self.registries is None or host in map(normalize_key, self.registries):
            return True
        owner = f"is for {', '.join(sorted(self.registries))}" if self.registries else "is for the base of the build"
        notes.append(
            f"{source} {owner}, and kedge does not send it to {host}; log in there: kedge registry login {host}"
        )
        return False

    def _from_options(self, registry: str, notes: list[str]) -> Iterator[Credential]:
        if self.explicit is None or not self._may_get(registry, self.explicit.source, notes):
            return
        if self._is_misdirected(self.explicit, registry):
            raise UsageError(
                f"kedge does not send an NGC API key to {registry}",
                context={"registry": registry},
                hint="use the key for nvcr.io: kedge registry login -u '$oauthtoken' nvcr.io",
            )
        yield self.explicit

    def _from_environment(self, registry: str, notes: list[str]) -> Iterator[Credential]:
        host = normalize_key(registry)
        for user_variable, password_variable in PAIRS:
            user, password = self.environ.get(user_variable, ""), self.environ.get(password_variable, "")
            if user == NGC_USER and not is_ngc_registry(host):
                notes.append(f"{user_variable} is $oauthtoken, which kedge sends to nvcr.io only, not to {host}")
            elif user and password:
                source = f"{user_variable} and {password_variable}"
                if self._may_get(registry, source, notes):
                    yield Credential(make_login(user, Secret(password)), source)
            elif password:
                notes.append(
                    f"{password_variable} is set, but {user_variable} is empty: write '$oauthtoken' with single quotes"
                )
            elif user:
                notes.append(f"{user_variable} is set, but {password_variable} is empty")
        if is_ngc_registry(host):
            for variable in NGC_VARIABLES:
                if self.environ.get(variable):
                    yield Credential(Login(NGC_USER, Secret(self.environ[variable])), variable)

    def _from_files(self, registry: str, repository: str, notes: list[str]) -> Iterator[Credential]:
        for path, is_explicit in self.list_files():
            auth_file = _read(path, notes, is_explicit=is_explicit)
            if auth_file is None:
                if is_explicit:
                    raise InvalidSetting(f"the auth file {path} does not exist", hint="check --authfile")
                continue
            yield from _search_file(auth_file, registry, repository, notes)

    def list_files(self) -> Iterator[tuple[Path, bool]]:
        """The auth files that are looked into, in order, and whether the user named them."""
        if self.authfile is not None:
            yield self.authfile, True
        runtime = self.environ.get("XDG_RUNTIME_DIR", "")
        for path in list_auth_files(self.environ, str(self.home)):
            if not runtime or not path.startswith(f"{runtime}/containers/") or _is_ours(runtime):
                yield Path(path), False

    def _from_enroot(self, registry: str, notes: list[str]) -> Iterator[Credential]:
        host = normalize_key(registry)
        wanted = _ENROOT_NAMES.get(host, (host, host.partition(":")[0]))
        for path, entry in self.read_enroot(notes):
            if entry.machine not in wanted:
                continue
            if entry.is_command:
                notes.append(f"the password for {entry.machine} in {path} is a command, which kedge does not run")
                continue
            yield Credential(make_login(entry.login, entry.password), str(path))

    def read_enroot(self, notes: list[str]) -> Iterator[tuple[Path, NetrcEntry]]:
        """The entries of Enroot's credentials file."""
        folder = self.environ.get("ENROOT_CONFIG_PATH")
        named = self.environ.get("XDG_CONFIG_HOME", "")
        base = Path(named) if named.startswith("/") else self.home / ".config"
        path = (Path(folder) if folder else base / "enroot") / ".credentials"
        try:
            with path.open("rb") as file:
                text = file.read(1 << 20).decode(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            notes.append(f"cannot read {path}: {problem.strerror}")
            return
        for entry in parse_netrc(text):
            yield path, entry


def _is_ours(folder: str) -> bool:
    """Whether a directory is the user's or root's: one such as /tmp/runtime-USER can be made by anybody first."""
    try:
        return not find_foreign_hand(Path(folder).stat())
    except OSError:
        return False


def make_login(username: str, password: Secret) -> Login:
    """A login from a user name and a password; the user `<token>` marks an identity token."""
    return Login(identity_token=password) if username == _TOKEN_USER else Login(username, password)


def login_file(home: Path, environ: Mapping[str, str] = NOTHING) -> Path:
    """The file that `registry login` writes: Apptainer's own, so that it sees the login too."""
    return apptainer_directory(environ, home) / "docker-config.json"


def _read(path: Path, notes: list[str], *, is_explicit: bool) -> AuthFile | None:
    try:
        return read_auth_file(path)
    except InvalidSetting as problem:
        if is_explicit:
            raise
        notes.append(problem.message)  # somebody else's broken file must not stop a public image
        return None


def _search_file(auth_file: AuthFile, registry: str, repository: str, notes: list[str]) -> Iterator[Credential]:
    helper = auth_file.find_helper(registry, repository)
    if helper:
        name, key = helper
        login, note = _try_helper(name, key)
        if note:
            notes.append(f"{auth_file.path}: {note}")
        if login is not None:
            yield Credential(login, f"docker-credential-{name} (named in {auth_file.path})")
    stored = auth_file.find_login(registry, repository)
    if stored is not None:
        if stored.username == _TOKEN_USER and stored.password:
            stored = Login(identity_token=stored.password)
        yield Credential(stored, str(auth_file.path))


def list_logins(sources: CredentialSources, authfile: Path | None = None) -> list[tuple[str, str, str]]:
    """Registry, user and source of every login that can be seen, in search order; `*` means whichever is asked for."""
    logins: list[tuple[str, str, str]] = []
    environ = sources.environ
    for user, password in PAIRS:
        if environ.get(user) and environ.get(password):
            where = NGC_REGISTRY if environ[user] == NGC_USER else "*"
            logins.append((where, environ[user], f"{user} and {password}"))
    logins += [(NGC_REGISTRY, NGC_USER, name) for name in NGC_VARIABLES if environ.get(name)]
    paths = [authfile] if authfile else [path for path, _ in sources.list_files()]
    for path in dict.fromkeys(paths):
        auth_file = _read(path, [], is_explicit=authfile is not None)
        if auth_file is not None:
            logins += _describe_file(auth_file)
    logins += [(entry.machine or "*", entry.login, str(path)) for path, entry in sources.read_enroot([])]
    return logins


def _describe_file(auth_file: AuthFile) -> list[tuple[str, str, str]]:
    shown = [
        (normalize_key(key), login.username or "(token)", str(auth_file.path))
        for key, login in auth_file.logins.items()
        if not login.is_empty
    ]
    shown += [
        (normalize_key(key), "(asked when needed)", f"docker-credential-{name} (named in {auth_file.path})")
        for key, name in auth_file.helpers.items()
    ]
    if auth_file.store:
        shown.append(("*", "(asked when needed)", f"docker-credential-{auth_file.store} (named in {auth_file.path})"))
    return shown


def _ask_helper(name: str, key: str) -> Login | None:
    """The helper's login for `key`, or None; the error of a failed helper does not repeat its output."""
    if not _HELPER_NAME.match(name):
        raise ProgramFailed(f"'{name}' is not a valid name of a credential helper")
    program = f"docker-credential-{name}"
    from kedge.system.process import run_program  # late: few have such a helper

    done = run_program([program, "get"], stdin=key.encode(), timeout=_HELPER_SECONDS, check=False)
    if done.status:
        said = (done.output + done.errors)[:2000].decode(errors="replace").lower()
        if "not found" in said:  # every helper says so in its own way; status 1 alone can mean anything
            return None
        raise ProgramFailed(f"{program} failed with status {done.status} for {key}")
    return _parse_helper(done.output, program)


def _parse_helper(output: bytes, program: str) -> Login | None:
    try:
        answer = json.loads(output[: 1 << 20])
        username, password = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ProgramFailed(f"{program} sent an answer that is not a login") from None
    if not isinstance(username, str) or not isinstance(password, str):
        raise ProgramFailed(f"{program} sent an answer that is not a login")
    return make_login(username, Secret(password)) if password else None


def _try_helper(name: str, key: str) -> tuple[Login | None, str | None]:
    """Ask a helper as `_ask_helper`, but a failure is only noted: a public image needs none."""
    try:
        return _ask_helper(name, key), None
    except KedgeError as problem:
        return None, problem.message


# Enroot's credentials file, which has the syntax of netrc.
#
# Not the standard library's reader: that one refuses files by owner and mode, and gives up at the first odd line.

_WORD = late_pattern(r'"((?:[^"\\]|\\.)*)"|(\S+)')


@frozen
class NetrcEntry:
    """One machine; `machine` is empty for the default entry."""

    machine: str
    login: str
    password: Secret

    @property
    def is_command(self) -> bool:
        """Whether the password is a shell command, which Enroot would run and we do not."""
        return self.password.reveal().startswith("$(")


def parse_netrc(text: str) -> list[NetrcEntry]:
    """Return all entries with a login and a password, in order; anything else is passed over."""
    entries: list[NetrcEntry] = []
    fields: dict[str, str] = {}
    words = _read_words(text)
    for word in words:
        if word in ("machine", "default"):
            _finish(entries, fields)
            fields = {"machine": next(words, "") if word == "machine" else ""}
        elif word in ("login", "password", "account"):
            fields[word] = next(words, "")
    _finish(entries, fields)
    return entries


def _finish(entries: list[NetrcEntry], fields: dict[str, str]) -> None:
    if "machine" in fields and fields.get("login") and fields.get("password"):
        entries.append(NetrcEntry(fields["machine"].lower(), fields["login"], Secret(fields["password"])))


def _read_words(text: str) -> Iterator[str]:
    in_macro = False
    for line in text.splitlines():
        if in_macro:
            in_macro = bool(line.strip())  # a macro ends at the next empty line
            continue
        if line.lstrip().startswith("#"):
            continue
        position = 0
        while match := _next_word(line, position):
            word, position = match
            if word == "macdef":
                in_macro = True
                break
            yield word


def _next_word(line: str, position: int) -> tuple[str, int] | None:
    while position < len(line) and line[position].isspace():
        position += 1
    if position >= len(line):
        return None
    if line.startswith("$(", position):  # a command may hold spaces; it ends at the last bracket
        end = line.rfind(")") + 1 or len(line)
        return line[position:end], end
    match = _WORD.match(line, position)
    if match is None:
        return None
    return (re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2]), match.end()


# API keys of NGC, NVIDIA's catalog: how to recognize one, and the few hosts that may get it.

NGC_USER = "$oauthtoken"
NGC_REGISTRY = "nvcr.io"
_PREFIX = "nvapi-"
# Who is not on this list gets no key, whatever a challenge, a redirect, a mirror or a login file says.
_HOSTS = frozenset({NGC_REGISTRY, "authn.nvidia.com"})


def is_ngc_registry(host: str) -> bool:
    """Whether a registry, as docker_config.normalize_key spells it, is NVIDIA's."""
    return host in (NGC_REGISTRY, f"{NGC_REGISTRY}:443")


def is_ngc_address(url: str) -> bool:
    """Whether an address is one of NVIDIA's that take keys; https proves it, and nothing else does."""
    parts = urlsplit(url)
    try:
        is_usual_port = parts.port in (None, 443)
    except ValueError:
        return False
    return parts.scheme == "https" and (parts.hostname or "") in _HOSTS and is_usual_port and "@" not in parts.netloc


def holds_ngc_key(login: Login, environ: Mapping[str, str]) -> bool:
    """Whether the secret of a login is a key: by its form or, as old keys have none, because a variable says so."""
    secrets = (login.password, login.identity_token, login.registry_token)
    known = [environ[name] for name in NGC_VARIABLES if environ.get(name)]
    return any(secret.reveal().startswith(_PREFIX) or secret.reveal() in known for secret in secrets if secret)
