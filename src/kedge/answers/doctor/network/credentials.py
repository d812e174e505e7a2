# SPDX-License-Identifier: BSD-3-Clause
"""Logins for registries: their source, whether they are complete, for the right host, private, and still accepted.

No finding contains a secret, nor a user name: people put keys into the wrong variable.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.network.registries import SECONDS, open_access
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.frozen import frozen
from kedge.base.login_sources import NGC_VARIABLES, PAIRS
from kedge.errors import KedgeError
from kedge.image.registry.credentials import NGC_USER, CredentialSources
from kedge.image.registry.docker_config import AuthFile, normalize_key, read_auth_file
from kedge.image.registry.probe import LoginAnswer, try_login
from kedge.image.registry.secret import Secret
from kedge.system.bounded_threads import answer_within
from kedge.system.programs import find_program
from kedge.system.settings import home_directory

_DOCS = "kedge help doctor credentials"
_LOGIN = "kedge registry login -u '$oauthtoken' nvcr.io (in single quotes)"
_ASKED = ("nvcr.io", "docker.io")  # whose logins are tried


@frozen
class Held:
    """A login: `where` names its variables or file, `host` is * if it goes to every registry."""

    where: str
    host: str
    username: str
    secret: Secret


def check_credentials(surroundings: Surroundings) -> list[Finding]:
    """Check logins without sending one."""
    sources = CredentialSources(environ=surroundings.environ, home=home_directory(surroundings.environ))
    findings = [*_judge_variables(sources), *_judge_files(sources)]
    logins = list(_list_held(sources))
    for login in logins:
        findings += _judge_held(login)
    findings += _judge_precedence(logins)
    return [*findings, *_describe_present(logins, sources)]


def check_logins(surroundings: Surroundings) -> list[Finding]:
    """Check whether nvcr.io and Docker Hub accept the login that kedge would send, if there is one."""
    if surroundings.is_offline:
        return []
    try:
        access = open_access(surroundings)
    except KedgeError:
        return []  # the check of registries says so
    seconds = SECONDS * surroundings.patience
    with access:
        wanted = [name for name in _ASKED if _has_login(name, access.sources)]
        answers = answer_within(seconds, {name: partial(try_login, name, access, seconds) for name in wanted})
    return [_explain_answer(name, answers.get(name)) for name in wanted]


def _has_login(name: str, sources: CredentialSources) -> bool:
    """Whether a login is meant for this registry; for one of every registry the user name decides."""
    is_ngc = name == "nvcr.io"
    if any(x.host == name or (x.host == "*" and (x.username == NGC_USER) == is_ngc) for x in _list_held(sources)):
        return True
    helpers = [file.find_helper(name, "") for _, file in _read_files(sources) if file is not None]
    return any(helper is not None and _has_helper(helper[0]) for helper in helpers)


def _has_helper(name: str) -> bool:
    return "/" not in name and find_program(f"docker-credential-{name}") is not None


def _explain_answer(name: str, answer: LoginAnswer | None) -> Finding:
    if answer is None or answer.is_valid is None:
        reason = answer.said if answer is not None and answer.said else "it did not answer in time"
        what = f"unknown whether {name} accepts the login: {reason}"
        why = "an expired login then fails only at the next pull"
        return Finding(
            "logins",
            NOTE,
            what,
            why=why,
            fix="run 'kedge doctor' again on a host that reaches the registry",
            docs=_DOCS,
        )
    if answer.is_valid:
        return Finding("logins", OK, f"{name} accepts the login")
    fix = f"kedge registry login {name}; for public images alone: kedge registry logout {name}"
    if name == "nvcr.io":
        fix = f"create a new key at https://org.ngc.nvidia.com/setup/api-keys, then: {_LOGIN}"
    return Finding(
        "logins",
        FAIL,
        answer.said or f"{name} refuses the login",
        why="kedge sends it with every request, so even public images cannot be pulled from there",
        fix=fix,
        docs=_DOCS,
    )


def _judge_variables(sources: CredentialSources) -> Iterator[Finding]:
    """Report pairs with one half missing: mostly $oauthtoken, which the shell expands to nothing."""
    for user, password in PAIRS:
        has_user, has_password = bool(sources.environ.get(user)), bool(sources.environ.get(password))
        if has_password and not has_user:
            yield Finding(
                "credentials",
                WARNING,
                f"{password} is set, but {user} is empty",
                why="kedge ignores the login. Without single quotes the shell replaces $oauthtoken by nothing",
                fix=f"export {user}='$oauthtoken' (in single quotes)",
                docs=_DOCS,
            )
        elif has_user and not has_password:
            yield Finding(
                "credentials",
                WARNING,
                f"{user} is set, but {password} is empty",
                why="kedge ignores the login: registries refuse images that need one",
                fix=f"set {password} too, or unset {user}; or store the login in a file: {_LOGIN}",
                docs=_DOCS,
            )


def _list_held(sources: CredentialSources) -> Iterator[Held]:
    environ = sources.environ
    for user, password in PAIRS:
        if environ.get(user) and environ.get(password):
            yield Held(f"{user} and {password}", "*", environ[user], Secret(environ[password]))
    for name in NGC_VARIABLES:
        if environ.get(name):
            yield Held(name, "nvcr.io", NGC_USER, Secret(environ[name]))
    for path, file in _read_files(sources):
        for key, login in (file.logins if file is not None else {}).items():
            secret = login.password or login.identity_token or login.registry_token
            if secret and not login.is_empty:
                yield Held(str(path), normalize_key(key), login.username, secret)
    for path, entry in sources.read_enroot([]):
        if not entry.is_command:
            yield Held(str(path), entry.machine or "*", entry.login, entry.password)


def _read_files(sources: CredentialSources) -> Iterator[tuple[Path, AuthFile | None]]:
    """Each file of logins that exists; None for one that kedge cannot read."""
    for path in dict.fromkeys(path for path, _ in sources.list_files()):
        try:
            file = read_auth_file(path)
        except KedgeError:
            yield path, None
            continue
        if file is not None:
            yield path, file


def _judge_held(held: Held) -> Iterator[Finding]:
    secret, host = held.secret.reveal(), held.host
    is_ngc = host in ("nvcr.io", "authn.nvidia.com") or held.username == NGC_USER
    blemish = find_blemish(secret)
    if blemish:
        why = "kedge sends it unchanged, and the registry refuses it"
        fix = f"copy the key again without it; from a file: export {_first_word(held.where)}=$(cat FILE)"
        yield _warn(f"the secret in {held.where} {blemish}", why, fix)
    elif is_ngc and not is_ngc_key(secret):
        shown = "is a placeholder, not a key" if is_stand_in(secret) else "does not look like an NGC API key"
        why = "nvcr.io refuses it; keys begin with nvapi-, old keys have about 80 letters and digits"
        yield _warn(
            f"the secret in {held.where} {shown}", why, "copy it from https://org.ngc.nvidia.com/setup/api-keys"
        )
    elif not is_ngc and is_ngc_key(secret) and secret.startswith("nvapi-"):
        yield from _judge_stray_key(held)
    if host in ("nvcr.io", "authn.nvidia.com") and held.username not in (NGC_USER, ""):
        why = "nvcr.io accepts an API key only with the user name $oauthtoken"
        yield _warn(f"the user name for nvcr.io in {held.where} is not $oauthtoken", why, _LOGIN)
    if held.username == NGC_USER and is_host(host) and host not in ("nvcr.io", "authn.nvidia.com"):
        why = f"$oauthtoken is the user name for nvcr.io; {host} does not know it, and nvcr.io gets no login"
        yield _warn(f"the login for {host} in {held.where} is $oauthtoken", why, _LOGIN)
    elif may_be_ngc_host(host):
        why = "images come from nvcr.io, and kedge sends a login only to the host it is for"
        yield _warn(f"{held.where} has a login for {host}, which is not a registry", why, _LOGIN)
    expiry = find_expiry(secret)
    if expiry:
        yield _warn(
            f"the token in {held.where} expired on {expiry}", "the registry refuses it", f"log in again: {_LOGIN}"
        )


def _judge_stray_key(held: Held) -> Iterator[Finding]:
    if held.host == "*":
        why = "nvcr.io accepts an API key only with the user name $oauthtoken"
        fix = f"export {_first_word(held.where)}='$oauthtoken' (in single quotes)"
        yield _warn(f"{held.where} hold an NGC API key with another user name", why, fix)
    elif is_host(held.host):
        why = f"kedge sends NGC API keys to nvcr.io only: {held.host} gets no login"
        yield _warn(f"the login for {held.host} in {held.where} holds an NGC API key", why, _LOGIN)


def _judge_precedence(held: Iterable[Held]) -> Iterator[Finding]:
    """A login of the environment goes to every registry, and overrides those of files."""
    logins = list(held)
    everywhere = next((login for login in logins if login.host == "*" and " and " in login.where), None)
    if everywhere is None:
        return
    hidden = [login for login in logins if login.host == "nvcr.io" and everywhere.username != NGC_USER]
    for login in hidden:
        what = f"kedge sends {everywhere.where} to {login.host}, not the login in {login.where}"
        why = "these variables apply to every registry and override files: the login in the file is never used"
        yield _warn(what, why, f"unset {everywhere.where.replace(' and ', ' ')}, and log in: kedge registry login HOST")


def _judge_files(sources: CredentialSources) -> Iterator[Finding]:
    for path, file in _read_files(sources):
        if file is None:
            what = f"{path} is not a valid file of logins"
            yield _warn(what, "kedge ignores the logins in it", "correct it, or move it away and log in again")
            continue
        yield from _judge_helpers(file)
        yield from _judge_mode(path)
    notes: list[str] = []
    for path in dict.fromkeys(path for path, _ in sources.read_enroot(notes)):
        yield from _judge_mode(path)
    for path, entry in sources.read_enroot([]):
        if entry.is_command:
            what = f"a password in {path} is a command, which kedge does not run"
            yield Finding(
                "credentials", NOTE, what, why="Enroot runs it; kedge ignores this login", fix=_LOGIN, docs=_DOCS
            )
    for note in notes:
        yield _warn(note, "kedge ignores the logins in it", "check its owner and mode")


def _judge_helpers(file: AuthFile) -> Iterator[Finding]:
    named = dict.fromkeys([*([file.store] if file.store else []), *file.helpers.values()])
    for name in named:
        if not _has_helper(name):
            shown = f"the helper docker-credential-{name}" if is_host(name) else "a helper with an invalid name"
            what = f"{file.path} names {shown}, which is not installed"
            why = "kedge cannot read the logins that the helper keeps, and sends those hosts no login"
            fix = f"remove 'credsStore' or 'credHelpers' from {file.path}, and log in: kedge registry login HOST"
            yield _warn(what, why, fix)


def _judge_mode(path: Path) -> Iterator[Finding]:
    """Report a file of secrets that others can read, by its mode and that of every parent directory."""
    try:
        mode = path.stat().st_mode
        parent_modes = [parent.stat().st_mode for parent in path.resolve().parents]
    except OSError:
        return
    for who, read, enter in (("everybody", 0o004, 0o001), ("your group", 0o040, 0o010)):
        if mode & read and all(parent_mode & enter for parent_mode in parent_modes):
            what = f"{path} is readable by {who} on this host"
            yield _warn(what, "other users can read your logins", f"chmod 600 '{path}', and create new keys")
            return


def _describe_present(held: Iterable[Held], sources: CredentialSources) -> list[Finding]:
    logins = [login for login in held if login.host == "*" or is_host(login.host)]
    shown = [f"{'any registry' if login.host == '*' else login.host} from {login.where}" for login in logins]
    for _, file in _read_files(sources):
        names = {**file.helpers, **({"any registry": file.store} if file.store else {})} if file is not None else {}
        kept = [(key, name) for key, name in names.items() if _has_helper(name)]
        shown += [f"{_show_host(key)} from docker-credential-{name}" for key, name in kept]
    if shown:
        return [Finding("credentials", OK, f"logins: {', '.join(dict.fromkeys(shown))}")]
    what = "no login for any registry; public images need none"
    return [Finding("credentials", OK, what)]


def _show_host(key: str) -> str:
    host = normalize_key(key)
    return host if is_host(host) or key == "any registry" else "a host with an invalid name"


def _first_word(where: str) -> str:
    return where.partition(" ")[0] if not where.startswith("/") else "NGC_API_KEY"


def _warn(what: str, why: str, fix: str) -> Finding:
    return Finding("credentials", WARNING, what, why=why, fix=fix, docs=_DOCS)


# The formats of keys, tokens and host names, checked without showing them. Pure, apart from the clock for tokens.

# https://docs.nvidia.com/ngc: keys of today begin with nvapi-; those of before are base64 of about 60 bytes
_NGC_KEY = re.compile(r"nvapi-[A-Za-z0-9_-]{20,}|[A-Za-z0-9+/]{40,}={0,2}")
_STAND_IN = re.compile(
    r"<.*>|\$.*|\{.*\}|x+|\*+|.*(your|my|api)[-_ ]?(api)?[-_ ]?(key|token).*|changeme", re.IGNORECASE
)
_HOST = re.compile(
    r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)(:[0-9]{1,5})?(/[\w./-]{0,200})?"
)
_NGC_LOOKALIKES = frozenset(
    {
        "ngc.nvidia.com",
        "api.ngc.nvidia.com",
        "catalog.ngc.nvidia.com",
        "org.ngc.nvidia.com",
        "nvidia.com",
        "nvcr.com",
        "nvcr.nvidia.com",
        "nvrc.io",
        "ncvr.io",
        "ncr.io",
        "www.nvcr.io",
    }
)


def is_ngc_key(secret: str) -> bool:
    """Whether a secret has the format of an NGC API key, old or new."""
    return _NGC_KEY.fullmatch(secret) is not None


def is_stand_in(secret: str) -> bool:
    """Whether a secret is a placeholder of a manual: YOUR_API_KEY, <key>, $NGC_API_KEY."""
    return _STAND_IN.fullmatch(secret) is not None


def find_blemish(secret: str) -> str:
    """What does not belong into a secret: `ends with a newline`; empty if nothing."""
    if secret != secret.rstrip("\r\n"):
        return "ends with a newline"
    if secret != secret.strip():
        return "has a space before or behind it"
    if len(secret) > 1 and secret[0] == secret[-1] and secret[0] in "\"'`":
        return "stands in quotes, which count as a part of it"
    if secret.startswith(("nvapi-", "Bearer ", "Basic ")) and re.search(r"\s", secret):
        return "has a space in it"
    return "" if secret.isprintable() else "has a character in it that cannot be seen"


def find_expiry(secret: str) -> str:
    """The day on which a token expired that says so itself (a JWT); empty where it did not, or says nothing."""
    parts = secret.split(".")
    if len(parts) != 3 or not secret.startswith("ey"):
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        moment = claims["exp"]
        if isinstance(moment, int | float) and 0 < moment < time.time():
            return time.strftime("%Y-%m-%d", time.gmtime(moment))
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return ""


def is_host(text: str) -> bool:
    """Whether a text is safe to show as the name of a registry, perhaps with a path: it contains no login."""
    return _HOST.fullmatch(text) is not None


def may_be_ngc_host(host: str) -> bool:
    """Whether the user probably meant nvcr.io: NVIDIA's web pages, and common typing errors."""
    return host.partition(":")[0].partition("/")[0] in _NGC_LOOKALIKES
