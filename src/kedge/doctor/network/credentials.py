# SPDX-License-Identifier: BSD-3-Clause
"""Logins for registries: where they are from, whether they are whole, for the right host, safe, and still taken.

No secret is in any finding, and no user name either: people put keys into the wrong variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.network.key_formats import (
    find_blemish,
    find_expiry,
    is_host,
    is_ngc_key,
    is_stand_in,
    may_be_ngc_host,
)
from kedge.doctor.network.registries import SECONDS, open_access
from kedge.doctor.surroundings import Surroundings
from kedge.errors import KedgeError
from kedge.frozen import frozen
from kedge.model.login_sources import NGC_VARIABLES, PAIRS
from kedge.posix.bounded_threads import answer_within
from kedge.posix.programs import find_program
from kedge.registry.credentials import CredentialSources
from kedge.registry.docker_config import AuthFile, normalize_key, read_auth_file
from kedge.registry.ngc_keys import NGC_USER
from kedge.registry.probe import LoginAnswer, try_login
from kedge.registry.secret import Secret
from kedge.settings import home_directory

_DOCS = "kedge help doctor credentials"
_LOGIN = "kedge registry login -u '$oauthtoken' nvcr.io (in single quotes)"
_ASKED = ("nvcr.io", "docker.io")  # whose logins are tried


@frozen
class Held:
    """A login as it was found: `where` names variables or a file, `host` is * where it goes to whoever is asked."""

    where: str
    host: str
    username: str
    secret: Secret


def check_credentials(surroundings: Surroundings) -> list[Finding]:
    """Everything about logins that can be known without sending one."""
    sources = CredentialSources(environ=surroundings.environ, home=home_directory(surroundings.environ))
    findings = [*_judge_variables(sources), *_judge_files(sources)]
    held = list(_list_held(sources))
    for each in held:
        findings += _judge_held(each)
    findings += _judge_precedence(held)
    return [*findings, *_describe_present(held, sources)]


def check_logins(surroundings: Surroundings) -> list[Finding]:
    """Whether nvcr.io and Docker Hub take the login that would be sent to them; asked only where there is one."""
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
    """Whether a login is meant for this registry: one for whoever is asked counts by its user's name."""
    is_ngc = name == "nvcr.io"
    if any(x.host == name or (x.host == "*" and (x.username == NGC_USER) == is_ngc) for x in _list_held(sources)):
        return True
    helpers = [file.find_helper(name, "") for _, file in _read_files(sources) if file is not None]
    return any(each is not None and _has_helper(each[0]) for each in helpers)


def _has_helper(name: str) -> bool:
    return "/" not in name and find_program(f"docker-credential-{name}") is not None


def _explain_answer(name: str, answer: LoginAnswer | None) -> Finding:
    if answer is None or answer.is_valid is None:
        why = answer.said if answer is not None and answer.said else "it does not answer in time"
        what = f"whether {name} takes the login is not known: {why}"
        wait = "a login that has expired is noticed only when an image is pulled"
        return Finding("logins", NOTE, what, wait, "ask again where the registry can be reached", _DOCS)
    if answer.is_valid:
        return Finding("logins", OK, f"{name} takes the login")
    fix = f"kedge registry login {name}; for public images alone: kedge registry logout {name}"
    if name == "nvcr.io":
        fix = f"make a new key at https://org.ngc.nvidia.com/setup/api-keys, and type: {_LOGIN}"
    return Finding(
        "logins",
        FAIL,
        answer.said or f"{name} refuses the login",
        "it is sent with every request, so that public images cannot be pulled from there either",
        fix,
        _DOCS,
    )


def _judge_variables(sources: CredentialSources) -> Iterator[Finding]:
    """Pairs of which one half is missing: mostly $oauthtoken, which the shell takes for a variable of its own."""
    for user, password in PAIRS:
        has_user, has_password = bool(sources.environ.get(user)), bool(sources.environ.get(password))
        if has_password and not has_user:
            yield Finding(
                "credentials",
                WARNING,
                f"{password} is set, and {user} is empty",
                "the login does not count. In double quotes, or none, the shell makes nothing of $oauthtoken",
                f"export {user}='$oauthtoken' (in single quotes)",
                _DOCS,
            )
        elif has_user and not has_password:
            yield Finding(
                "credentials",
                WARNING,
                f"{user} is set, and {password} is empty",
                "the login does not count: images that need one are refused",
                f"set {password} too, or unset {user}; '{_LOGIN}' keeps it in a file instead",
                _DOCS,
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
    """Each file of logins that is there; None for one that cannot be read."""
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
        why = "it is sent as it stands, and refused"
        fix = f"copy the key again without it; from a file: export {_first_word(held.where)}=$(cat FILE)"
        yield _warn(f"the secret in {held.where} {blemish}", why, fix)
    elif is_ngc and not is_ngc_key(secret):
        shown = "is a stand-in, not a key" if is_stand_in(secret) else "does not look like an NGC API key"
        why = "nvcr.io refuses what is no key; one begins with nvapi-, old ones are about 80 letters and digits"
        yield _warn(
            f"the secret in {held.where} {shown}", why, "copy it from https://org.ngc.nvidia.com/setup/api-keys"
        )
    elif not is_ngc and is_ngc_key(secret) and secret.startswith("nvapi-"):
        yield from _judge_stray_key(held)
    if host in ("nvcr.io", "authn.nvidia.com") and held.username not in (NGC_USER, ""):
        why = "nvcr.io takes an API key with the user name $oauthtoken and no other"
        yield _warn(f"the user name for nvcr.io in {held.where} is not $oauthtoken", why, _LOGIN)
    if held.username == NGC_USER and is_host(host) and host not in ("nvcr.io", "authn.nvidia.com"):
        why = f"that is NVIDIA's user name; {host} does not know it, and nvcr.io gets no login"
        yield _warn(f"the login for {host} in {held.where} is $oauthtoken", why, _LOGIN)
    elif may_be_ngc_host(host):
        why = "images come from nvcr.io, and a login counts only for the host it is filed under"
        yield _warn(f"{held.where} has a login for {host}, which is no registry", why, _LOGIN)
    expiry = find_expiry(secret)
    if expiry:
        yield _warn(f"the token in {held.where} expired on {expiry}", "it is refused", f"log in again: {_LOGIN}")


def _judge_stray_key(held: Held) -> Iterator[Finding]:
    if held.host == "*":
        why = "nvcr.io takes an API key with the user name $oauthtoken and no other"
        fix = f"export {_first_word(held.where)}='$oauthtoken' (in single quotes)"
        yield _warn(f"{held.where} hold an NGC API key with another user name", why, fix)
    elif is_host(held.host):
        why = f"kedge sends NGC API keys to nvcr.io only: {held.host} gets no login"
        yield _warn(f"the login for {held.host} in {held.where} holds an NGC API key", why, _LOGIN)


def _judge_precedence(held: Iterable[Held]) -> Iterator[Finding]:
    """A login of the environment goes to every registry, before those of files."""
    known = list(held)
    everywhere = next((each for each in known if each.host == "*" and " and " in each.where), None)
    if everywhere is None:
        return
    hidden = [each for each in known if each.host == "nvcr.io" and everywhere.username != NGC_USER]
    for each in hidden:
        what = f"{everywhere.where} are sent to {each.host}, not the login in {each.where}"
        why = "variables hold for every registry, and before files: the login that is meant is never used"
        yield _warn(what, why, f"unset {everywhere.where.replace(' and ', ' ')}, and log in: kedge registry login HOST")


def _judge_files(sources: CredentialSources) -> Iterator[Finding]:
    for path, file in _read_files(sources):
        if file is None:
            what = f"{path} cannot be read as a file of logins"
            yield _warn(what, "logins in it do not count", "correct it, or move it away and log in again")
            continue
        yield from _judge_helpers(file)
        yield from _judge_mode(path)
    notes: list[str] = []
    for path in dict.fromkeys(path for path, _ in sources.read_enroot(notes)):
        yield from _judge_mode(path)
    for path, entry in sources.read_enroot([]):
        if entry.is_command:
            what = f"a password in {path} is a command, which kedge does not run"
            yield Finding("credentials", NOTE, what, "Enroot runs it; here this login does not count", _LOGIN, _DOCS)
    for note in notes:
        yield _warn(note, "logins in it do not count", "check its owner and mode")


def _judge_helpers(file: AuthFile) -> Iterator[Finding]:
    named = dict.fromkeys([*([file.store] if file.store else []), *file.helpers.values()])
    for name in named:
        if not _has_helper(name):
            shown = f"docker-credential-{name}" if is_host(name) else "that cannot be the name of a program"
            what = f"{file.path} names the helper {shown}, which is not here"
            why = "the logins that it keeps are on another computer: those hosts are asked without a login"
            fix = f"take 'credsStore' or 'credHelpers' out of {file.path}, and log in here: kedge registry login HOST"
            yield _warn(what, why, fix)


def _judge_mode(path: Path) -> Iterator[Finding]:
    """A file of secrets that others can read: by its own mode, and that of every directory above it."""
    try:
        mode = path.stat().st_mode
        folders = [each.stat().st_mode for each in path.resolve().parents]
    except OSError:
        return
    for who, read, enter in (("everybody", 0o004, 0o001), ("your group", 0o040, 0o010)):
        if mode & read and all(each & enter for each in folders):
            what = f"{path} can be read by {who} on this system"
            yield _warn(what, "who reads it has your logins", f"chmod 600 '{path}', and make new keys")
            return


def _describe_present(held: Iterable[Held], sources: CredentialSources) -> list[Finding]:
    known = [each for each in held if each.host == "*" or is_host(each.host)]
    shown = [f"{'any registry' if each.host == '*' else each.host} from {each.where}" for each in known]
    for _, file in _read_files(sources):
        names = {**file.helpers, **({"any registry": file.store} if file.store else {})} if file is not None else {}
        kept = [(key, name) for key, name in names.items() if _has_helper(name)]
        shown += [f"{_show_host(key)} from docker-credential-{name}" for key, name in kept]
    if shown:
        return [Finding("credentials", OK, f"logins: {', '.join(dict.fromkeys(shown))}")]
    what = "no login for any registry: public images need none"
    return [Finding("credentials", OK, what)]


def _show_host(key: str) -> str:
    host = normalize_key(key)
    return host if is_host(host) or key == "any registry" else "a host with an odd name"


def _first_word(where: str) -> str:
    return where.partition(" ")[0] if not where.startswith("/") else "NGC_API_KEY"


def _warn(what: str, why: str, fix: str) -> Finding:
    return Finding("credentials", WARNING, what, why, fix, _DOCS)
