# SPDX-License-Identifier: BSD-3-Clause
"""Access to registries: the proxy variables, whether proxies listen, and whether registries answer."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, SKIPPED, WARNING, Finding, Surroundings
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.base.login_sources import NGC_VARIABLES, PAIRS
from kedge.cluster.schedulers.current_job import find_current_job
from kedge.errors import KedgeError
from kedge.image.registry.access_options import AccessOptions
from kedge.image.registry.client_setup import Access
from kedge.image.registry.connection_errors import FailureKind
from kedge.image.registry.credentials import NGC_USER, CredentialSources
from kedge.image.registry.docker_config import AuthFile, normalize_key, read_auth_file
from kedge.image.registry.mirrors import Endpoint, Registries
from kedge.image.registry.probe import LoginAnswer, ProbeResult, is_listening_within, probe_registries, try_login
from kedge.image.registry.proxies import Proxy, parse_proxy
from kedge.image.registry.secret import Secret
from kedge.image.registry.tls import SYSTEM_BUNDLES, list_own_authorities
from kedge.system.programs import find_program
from kedge.system.settings import home_directory
from kedge.system.threads import answer_within

_USUAL_REGISTRIES = ("nvcr.io", "docker.io")
SECONDS = 1.0  # for network requests; the check has a little more
_MOST_MIRRORS = 6
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
_OFFLINE = frozenset(
    {
        FailureKind.NAME,
        FailureKind.NAME_LATER,
        FailureKind.REFUSED,
        FailureKind.UNREACHABLE,
        FailureKind.TIMEOUT,
        FailureKind.BROKEN,
    }
)
_PROXIES, _REGISTRIES = "kedge help doctor proxies", "kedge help doctor registries"


def check_proxies(surroundings: Surroundings) -> list[Finding]:
    """Check the values of the proxy variables, and whether the proxies listen."""
    environ = surroundings.environ
    findings = [*_judge_spelling(environ), *_judge_exceptions(environ)]
    proxies: dict[str, Proxy] = {}
    for name in _list_set(environ, _PROXY_VARIABLES):
        try:
            proxies[name] = parse_proxy(environ[name], name)
        except KedgeError as problem:
            fix = problem.hint or "write http://proxy.example.org:3128"
            findings.append(
                Finding(
                    "proxies", FAIL, problem.message, why="every pull fails with this error", fix=fix, docs=_PROXIES
                )
            )
    if surroundings.is_offline:
        findings += [Finding("proxies", OK, f"{name} is set (not contacted)") for name in proxies]
    else:
        findings += _judge_listening(proxies, SECONDS * surroundings.patience)
    return findings or [Finding("proxies", OK, "none set")]


def _list_set(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """The spelling of each variable that takes effect: lower case first, as in curl."""
    spellings = []
    for name in names:
        spellings += [spelling for spelling in (name, name.upper()) if environ.get(spelling)][:1]
    return spellings


def _judge_spelling(environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    for name in (*_PROXY_VARIABLES, "no_proxy"):
        lower, upper = environ.get(name, ""), environ.get(name.upper(), "")
        if lower and upper and lower != upper:
            findings.append(
                Finding(
                    "proxies",
                    WARNING,
                    f"{name} and {name.upper()} differ",
                    why="kedge and curl use the lower-case one, other programs the other: some work, some do not",
                    fix=f'set both to the same value: export {name.upper()}="${name}"',
                    docs=_PROXIES,
                )
            )
    has_https = any(_list_set(environ, ("https_proxy", "all_proxy")))
    if any(_list_set(environ, ("http_proxy",))) and not has_https:
        findings.append(
            Finding(
                "proxies",
                WARNING,
                "http_proxy is set, but https_proxy is not",
                why="registries use https, which ignores http_proxy: kedge connects to them without the proxy",
                fix='if the proxy also serves https, as most do: export https_proxy="$http_proxy"',
                docs=_PROXIES,
            )
        )
    return findings


def _judge_exceptions(environ: Mapping[str, str]) -> list[Finding]:
    """Report entries of no_proxy that look right but exempt no host."""
    name = next(iter(_list_set(environ, ("no_proxy",))), "")
    wrong = [_find_odd(item) for item in environ.get(name, "").split(",") if item.strip()]
    reasons = list(dict.fromkeys(reason for reason in wrong if reason))
    return [
        Finding(
            "proxies",
            WARNING,
            f"{name} has an entry without effect: {reason}",
            why="kedge reaches the hosts of that entry through the proxy, which may not reach them",
            fix=f"use this format: export {name}=localhost,127.0.0.1,.example.org,10.0.0.0/8",
            docs=_PROXIES,
        )
        for reason in reasons
    ]


def _find_odd(item: str) -> str:
    text = item.strip()
    if re.search(r"\s|;", text):
        return "it contains a space or a semicolon; commas separate entries"
    if "://" in text:
        return "it has a scheme (http://); write the host name only"
    if "*" in text.removeprefix("*") or (text.startswith("*") and text != "*" and not text.startswith("*.")):
        return "a star works only at the beginning, as in *.example.org"
    return ""


def _judge_listening(proxies: Mapping[str, Proxy], seconds: float) -> list[Finding]:
    listening = is_listening_within({proxy.url for proxy in proxies.values()}, seconds)
    findings = []
    for name, proxy in proxies.items():
        if listening[proxy.url]:
            findings.append(Finding("proxies", OK, f"{name}: {proxy.url} listens"))
            continue
        fix = f"check its name and port; if registries are reachable without it: unset {name}"
        if name.lower() == "http_proxy":
            level, why = WARNING, "requests over plain http fail"
        else:
            level, why = FAIL, "kedge reaches registries through it, so every pull fails"
        findings.append(
            Finding("proxies", level, f"{name}: no answer from {proxy.url}", why=why, fix=fix, docs=_PROXIES)
        )
    return [*findings, *_judge_schemes(proxies)]


def _judge_schemes(proxies: Mapping[str, Proxy]) -> list[Finding]:
    return [
        Finding(
            "proxies",
            NOTE,
            f"the address in {name} begins with https:",
            why="kedge then uses TLS to the proxy, which few proxies support; https to registries does not need it",
            fix=f"if pulls fail: export {name}=http://{urlsplit(proxy.url).netloc}",
            docs=_PROXIES,
        )
        for name, proxy in proxies.items()
        if proxy.url.startswith("https:")
    ]


def check_registries(surroundings: Surroundings) -> list[Finding]:
    """Check whether nvcr.io, Docker Hub and configured mirrors answer; no login is sent."""
    if surroundings.is_offline:
        return [Finding("registries", SKIPPED, "not contacted (--offline)")]
    try:
        access = open_access(surroundings)
    except KedgeError as problem:
        fix = problem.hint or "correct the setting"
        return [
            Finding(
                "registries", FAIL, problem.message, why="every pull fails with this error", fix=fix, docs=_REGISTRIES
            )
        ]
    findings = [
        Finding(
            "registries",
            NOTE,
            note,
            why="kedge ignores its mirrors",
            fix="write it in format version 2",
            docs=_REGISTRIES,
        )
        for note in access.registries.notes
    ]
    with access:
        mirrors = list_mirrors(access.registries)
        places = [Endpoint(name, "") for name in _USUAL_REGISTRIES]
        places += [mirror for group in mirrors.values() for mirror in group]
        reached = probe_registries(dict.fromkeys(places), access, SECONDS * surroundings.patience)
    return findings + judge_reach(reached, mirrors, surroundings)


def open_access(surroundings: Surroundings) -> Access:
    """Access to registries as other commands have it; raises InvalidSetting as they do."""
    settings = surroundings.settings
    options = AccessOptions(no_https=settings.no_https, ca_bundle=settings.ca_bundle, retries=0)
    return Access.open(options, environ=surroundings.environ)


def list_mirrors(registries: Registries) -> dict[str, list[Endpoint]]:
    """The mirrors of registries.conf, by registry."""
    mirrors: dict[str, list[Endpoint]] = {}
    count = 0
    for rule in registries.rules:
        registry = rule.prefix.partition("/")[0]
        places = [(mirror.location, mirror.insecure) for mirror in rule.mirrors]
        if rule.location and rule.location.partition("/")[0] != registry:
            places.append((rule.location, rule.insecure))
        for location, insecure in places:
            count += 1
            if count <= _MOST_MIRRORS:
                endpoint = Endpoint(location.partition("/")[0], "", insecure, is_mirror=True)
                mirrors.setdefault(registry, []).append(endpoint)
    return mirrors


def judge_reach(
    reached: Iterable[ProbeResult], mirrors: Mapping[str, list[Endpoint]], surroundings: Surroundings
) -> list[Finding]:
    """One finding for each registry that answers, and one for each reason why others do not."""
    results = list(reached)
    answering = {result.host for result in results if result.failure is None and not result.is_page}
    findings = [
        Finding("registries", OK, f"{result.host} answers in {result.seconds:.1f} s" + _say_proxy(result))
        for result in results
        if result.host in answering
    ]
    findings += [_explain_page(result) for result in results if result.is_page]
    by_reason: dict[tuple[FailureKind, str], list[ProbeResult]] = {}
    for result in results:
        if result.failure is not None:
            by_reason.setdefault((result.failure.kind, result.proxy), []).append(result)
    covered = {Endpoint(name, "").host for name, places in mirrors.items() if any(x.host in answering for x in places)}
    return findings + [
        _explain_silence(kind, group, surroundings, is_covered=all(result.host in covered for result in group))
        for (kind, _), group in by_reason.items()
    ]


def _explain_silence(
    kind: FailureKind, group: list[ProbeResult], surroundings: Surroundings, *, is_covered: bool
) -> Finding:
    hosts = " and ".join(result.host for result in group)
    reason = f"no answer within {SECONDS * surroundings.patience:g} s" if kind is FailureKind.TIMEOUT else str(kind)
    what = f"{hosts}: {_SENTENCES.get(kind, reason)}" + _say_proxy(group[0])
    if is_covered:
        why = "kedge pulls from the mirror in registries.conf, which answers"
        return Finding(
            "registries",
            NOTE,
            what,
            why=why,
            fix="no action needed as long as the mirror has the images",
            docs=_REGISTRIES,
        )
    if kind in _OFFLINE and not group[0].proxy:
        return _explain_offline(what, surroundings)
    why, fix = _TLS_REMEDIES.get(kind, ("kedge cannot pull images from there", "check the proxy and the host name"))
    return Finding("registries", WARNING, what, why=why, fix=fix, docs=_REGISTRIES)


def _explain_offline(what: str, surroundings: Surroundings) -> Finding:
    site, job = surroundings.site, find_current_job(surroundings.environ)
    why = "this host cannot pull images from there; images on disk still run"
    if job is not None:
        level = NOTE if site is not None and site.internet_on_nodes is False else WARNING
        fix = "pull on a login node before the job: kedge pull IMAGE; or set https_proxy to the site's proxy"
        return Finding("registries", level, what, why=why, fix=fix, docs=_REGISTRIES)
    if site is not None and site.pull == "in-job":
        fix = "no action needed for jobs, which pull their images themselves (--pull in-job); for a shell: kedge alloc"
        return Finding("registries", NOTE, what, why=why, fix=fix, docs=_REGISTRIES)
    fix = (
        "set https_proxy to the site's proxy; or name a mirror in ~/.config/containers/registries.conf; or, if compute "
        "nodes have internet access, let the job pull: kedge submit --pull in-job"
    )
    return Finding("registries", WARNING, what, why=why, fix=fix, docs=_REGISTRIES)


def _explain_page(reach: ProbeResult) -> Finding:
    return Finding(
        "registries",
        WARNING,
        f"{reach.host} answers with a web page, not as a registry" + _say_proxy(reach),
        why="a login page of the network or a proxy answers instead: pulls fail",
        fix="open that page in a browser on this network, or ask the site which proxy to use (https_proxy)",
        docs=_REGISTRIES,
    )


def _say_proxy(reach: ProbeResult) -> str:
    return f", through {reach.proxy}" if reach.proxy else ""


_SENTENCES = {
    FailureKind.CERTIFICATE: "this host does not trust the authority that signed the certificate",
    FailureKind.CERTIFICATE_TIME: "the certificate is not valid at this host's time",
    FailureKind.CERTIFICATE_NAME: "the certificate is for another name",
}
_PRIVATE = (
    "pulls fail: a proxy of the site decrypts TLS, or the registry has its own authority",
    "ask the site for its certificate authority (PEM), then: export KEDGE_CA_BUNDLE=FILE",
)
_TLS_REMEDIES = {
    FailureKind.CERTIFICATE: _PRIVATE,
    FailureKind.CERTIFICATE_NAME: _PRIVATE,
    FailureKind.CERTIFICATE_TIME: (
        "pulls fail: the clock of this host is wrong, or the certificate has expired",
        "compare 'date -u' with a watch; if the clock is wrong, tell the administrators",
    ),
    FailureKind.PROXY: (
        "pulls fail: the proxy does not allow this host, or cannot find it",
        "ask the site whether the proxy allows it; list hosts to reach without the proxy in no_proxy",
    ),
    FailureKind.PROXY_LOGIN: (
        "pulls fail: the proxy requires a user name and a password",
        "write special characters as %XX: export https_proxy=http://USER:PASSWORD@HOST:PORT",
    ),
    FailureKind.NOT_TLS: (
        "pulls fail: another server answers, or the proxy's address begins with https: by mistake",
        "check https_proxy: most proxies need http://",
    ),
    FailureKind.TIMEOUT: (
        "pulls fail: the proxy accepts connections but does not answer",
        "ask the site whether the proxy works, and whether this network has another one",
    ),
}


# Certificate authorities: the files that settings and variables name, and the system's own.

_CERTIFICATE_DOCS = "kedge help doctor certificates"
_PEM = "use a PEM file of certificates: a text with lines '-----BEGIN CERTIFICATE-----'"
_OTHERS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # of other programs


@frozen
class _Bundle:
    """A file of authorities: how many it has, and how many are valid today; `problem` says why kedge cannot use it."""

    count: int = 0
    expired: int = 0
    early: int = 0  # not valid yet
    problem: str = ""


def check_certificates(surroundings: Surroundings) -> list[Finding]:
    """Check the bundle of the settings, SSL_CERT_FILE, SSL_CERT_DIR, and the system's authorities."""
    settings, environ = surroundings.settings, surroundings.environ
    findings = []
    if settings.ca_bundle is not None:
        findings += _judge_setting(settings.ca_bundle, f"ca_bundle ({settings.sources['ca_bundle']})")
    if environ.get("SSL_CERT_FILE"):
        findings += _judge_variable("SSL_CERT_FILE", Path(environ["SSL_CERT_FILE"]))
    searched = environ.get("SSL_CERT_DIR")
    if searched and not any(os.path.isdir(entry) for entry in searched.split(":")):  # noqa: PTH112 - may be anything
        findings.append(_refuse_variable("SSL_CERT_DIR", "names no existing directory"))
    findings += _judge_others(environ, has_own=settings.ca_bundle is not None or bool(environ.get("SSL_CERT_FILE")))
    return [*findings, _judge_system(surroundings, environ)]


def _read_bundle(path: Path) -> _Bundle:
    """Read a file of authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if not path.exists():
            return _Bundle(problem="does not exist")
        if not path.is_file():
            return _Bundle(problem="is not a file")
        context.load_verify_locations(path)
    except ssl.SSLError:
        return _Bundle(problem="holds no readable certificate")
    except OSError as problem:
        return _Bundle(problem=f"cannot be read: {problem.strerror}")
    now, authorities = time.time(), context.get_ca_certs()
    expired = sum(ssl.cert_time_to_seconds(str(ca["notAfter"])) < now for ca in authorities if "notAfter" in ca)
    early = sum(ssl.cert_time_to_seconds(str(ca["notBefore"])) > now for ca in authorities if "notBefore" in ca)
    return _Bundle(context.cert_store_stats()["x509"], expired, early)


def _judge_setting(path: Path, name: str) -> list[Finding]:
    bundle = _read_bundle(path)
    if bundle.problem:
        what = f"{name}: {path} {bundle.problem}"
        why = "every pull over https fails with this error"
        fix = f"{_PEM}; or unset KEDGE_CA_BUNDLE, or remove ca_bundle from config.toml"
        return [Finding("certificates", FAIL, what, why=why, fix=fix, docs=_CERTIFICATE_DOCS)]
    return [
        Finding("certificates", OK, f"{name}: {path} has {count_things(bundle.count, 'certificate')}"),
        *_judge_times(path, bundle),
    ]


def _judge_variable(name: str, path: Path) -> list[Finding]:
    bundle = _read_bundle(path)
    if bundle.problem:
        return [_refuse_variable(name, f"names {path}, which {bundle.problem}")]
    return [
        Finding("certificates", OK, f"{name}: {path} has {count_things(bundle.count, 'certificate')}"),
        *_judge_times(path, bundle),
    ]


def _refuse_variable(name: str, what: str) -> Finding:
    return Finding(
        "certificates",
        FAIL,
        f"{name} {what}",
        why="it silently replaces the system's authorities: kedge trusts no registry",
        fix=f"unset {name}, or set it to the right path; settings copied from another computer often set it",
        docs=_CERTIFICATE_DOCS,
    )


def _judge_times(path: Path, bundle: _Bundle) -> list[Finding]:
    if bundle.early and bundle.early == bundle.count:
        return [
            Finding(
                "certificates",
                FAIL,
                f"no authority in {path} is valid yet",
                why="the clock of this host is behind, so every certificate seems to begin in the future",
                fix="compare 'date -u' with a watch, and tell the administrators",
                docs=_CERTIFICATE_DOCS,
            )
        ]
    if bundle.expired and bundle.expired == bundle.count:
        return [
            Finding(
                "certificates",
                WARNING,
                f"every authority in {path} has expired",
                why="kedge refuses the registries that they sign",
                fix="ask the site for its current authority; if they should be valid, compare 'date -u' with a watch",
                docs=_CERTIFICATE_DOCS,
            )
        ]
    return []


def _judge_others(environ: Mapping[str, str], *, has_own: bool) -> list[Finding]:
    named = [name for name in _OTHERS if environ.get(name) and os.path.isfile(environ[name])]  # noqa: PTH113 - any text
    if has_own or not named:
        return []
    return [
        Finding(
            "certificates",
            NOTE,
            f"kedge does not read {named[0]}, which names a file of authorities",
            why="the variable is for other programs; if this site has its own authority, kedge needs it, too",
            fix=f'export KEDGE_CA_BUNDLE="${named[0]}"',
            docs=_CERTIFICATE_DOCS,
        )
    ]


def _judge_system(surroundings: Surroundings, environ: Mapping[str, str]) -> Finding:
    root = Path(surroundings.root)
    paths = ssl.get_default_verify_paths()
    places = [Path(place) for place in (paths.openssl_cafile, paths.openssl_capath) if place]
    present = [place for place in (*places, *SYSTEM_BUNDLES) if _has_content(root / str(place).lstrip("/"))]
    if present:
        return Finding("certificates", OK, f"the system's authorities are in {present[0]}")
    own = [place for place in list_own_authorities() if _has_content(place)]
    if own:
        return Finding("certificates", OK, "this system has no authorities; kedge brings its own")
    has_own = bool(environ.get("SSL_CERT_FILE") or environ.get("SSL_CERT_DIR") or surroundings.settings.ca_bundle)
    return Finding(
        "certificates",
        NOTE if has_own else FAIL,
        "this system has no certificate authorities",
        why="kedge trusts only registries that your own bundle covers",
        fix="ask the administrators for the package ca-certificates, or copy a bundle to FILE: export "
        "SSL_CERT_FILE=FILE",
        docs=_CERTIFICATE_DOCS,
    )


def _has_content(place: Path) -> bool:
    try:
        return any(place.iterdir()) if place.is_dir() else place.stat().st_size > 0
    except OSError:
        return False


# Logins for registries: their source, whether they are complete, for the right host, private, and still accepted.
#
# No finding contains a secret, nor a user name: people put keys into the wrong variable.

_LOGIN_DOCS = "kedge help doctor credentials"
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
            docs=_LOGIN_DOCS,
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
        docs=_LOGIN_DOCS,
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
                docs=_LOGIN_DOCS,
            )
        elif has_user and not has_password:
            yield Finding(
                "credentials",
                WARNING,
                f"{user} is set, but {password} is empty",
                why="kedge ignores the login: registries refuse images that need one",
                fix=f"set {password} too, or unset {user}; or store the login in a file: {_LOGIN}",
                docs=_LOGIN_DOCS,
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
                "credentials",
                NOTE,
                what,
                why="Enroot runs it; kedge ignores this login",
                fix=_LOGIN,
                docs=_LOGIN_DOCS,
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
    return Finding("credentials", WARNING, what, why=why, fix=fix, docs=_LOGIN_DOCS)


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
