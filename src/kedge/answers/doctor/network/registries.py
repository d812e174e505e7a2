# SPDX-License-Identifier: BSD-3-Clause
"""Access to registries: the proxy variables, whether proxies listen, and whether registries answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from kedge.answers.doctor.finding import FAIL, NOTE, OK, SKIPPED, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.cluster.schedulers.current_job import find_current_job
from kedge.errors import KedgeError
from kedge.image.registry.access_options import AccessOptions
from kedge.image.registry.client_setup import Access
from kedge.image.registry.connection_errors import FailureKind
from kedge.image.registry.mirrors import Endpoint, Registries
from kedge.image.registry.probe import ProbeResult, is_listening_within, probe_registries
from kedge.image.registry.proxies import Proxy, parse_proxy

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
