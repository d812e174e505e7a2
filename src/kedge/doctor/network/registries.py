# SPDX-License-Identifier: BSD-3-Clause
"""The way to registries: proxies as they are written and whether they listen, and whether registries answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from kedge.doctor.finding import FAIL, NOTE, OK, SKIPPED, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.errors import KedgeError
from kedge.registry.client_setup import Access, AccessOptions
from kedge.registry.connection_errors import FailureKind
from kedge.registry.mirrors import Endpoint, Registries
from kedge.registry.probe import ProbeResult, is_listening_within, probe_registries
from kedge.registry.proxies import Proxy, parse_proxy
from kedge.schedulers.current_job import find_current_job

_USUAL_REGISTRIES = ("nvcr.io", "docker.io")
SECONDS = 1.0  # for what is asked over the network; the check has a little more
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
    """The proxy variables: what is written in them, and whether somebody listens there."""
    environ = surroundings.environ
    findings = [*_judge_spelling(environ), *_judge_exceptions(environ)]
    proxies: dict[str, Proxy] = {}
    for name in _list_set(environ, _PROXY_VARIABLES):
        try:
            proxies[name] = parse_proxy(environ[name], name)
        except KedgeError as problem:
            fix = problem.hint or "write http://proxy.example.org:3128"
            findings.append(Finding("proxies", FAIL, problem.message, "every pull ends with this error", fix, _PROXIES))
    if surroundings.is_offline:
        findings += [Finding("proxies", OK, f"{name} is set (not asked)") for name in proxies]
    else:
        findings += _judge_listening(proxies, SECONDS * surroundings.patience)
    return findings or [Finding("proxies", OK, "none are set")]


def _list_set(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Of each variable the spelling that counts: the lower one, as in curl."""
    found = []
    for name in names:
        found += [each for each in (name, name.upper()) if environ.get(each)][:1]
    return found


def _judge_spelling(environ: Mapping[str, str]) -> list[Finding]:
    findings = []
    for name in (*_PROXY_VARIABLES, "no_proxy"):
        lower, upper = environ.get(name, ""), environ.get(name.upper(), "")
        if lower and upper and lower != upper:
            findings.append(
                Finding(
                    "proxies",
                    WARNING,
                    f"{name} and {name.upper()} are both set, and differ",
                    "kedge and curl take the lower-case one, other programs the other: some work, and some do not",
                    f'set both to the same: export {name.upper()}="${name}"',
                    _PROXIES,
                )
            )
    has_https = any(_list_set(environ, ("https_proxy", "all_proxy")))
    if any(_list_set(environ, ("http_proxy",))) and not has_https:
        findings.append(
            Finding(
                "proxies",
                WARNING,
                "http_proxy is set, and https_proxy is not",
                "registries are reached over https, for which http_proxy does not count: they are asked straight",
                'if the proxy serves https too, as most do: export https_proxy="$http_proxy"',
                _PROXIES,
            )
        )
    return findings


def _judge_exceptions(environ: Mapping[str, str]) -> list[Finding]:
    """Forms of no_proxy that look right and exempt nothing."""
    name = next(iter(_list_set(environ, ("no_proxy",))), "")
    wrong = [_find_odd(item) for item in environ.get(name, "").split(",") if item.strip()]
    reasons = list(dict.fromkeys(reason for reason in wrong if reason))
    return [
        Finding(
            "proxies",
            WARNING,
            f"{name} has an entry that exempts nothing: {reason}",
            "the hosts that it means are asked through the proxy, which may not reach them",
            f"write it as: export {name}=localhost,127.0.0.1,.example.org,10.0.0.0/8",
            _PROXIES,
        )
        for reason in reasons
    ]


def _find_odd(item: str) -> str:
    text = item.strip()
    if re.search(r"\s|;", text):
        return "entries are parted by commas, and this one has a space or a semicolon in it"
    if "://" in text:
        return "it has a scheme (http://), and only the host's name counts"
    if "*" in text.removeprefix("*") or (text.startswith("*") and text != "*" and not text.startswith("*.")):
        return "a star counts at the beginning only, as in *.example.org"
    return ""


def _judge_listening(proxies: Mapping[str, Proxy], seconds: float) -> list[Finding]:
    listening = is_listening_within({each.url for each in proxies.values()}, seconds)
    findings = []
    for name, proxy in proxies.items():
        if listening[proxy.url]:
            findings.append(Finding("proxies", OK, f"{name}: {proxy.url} listens"))
            continue
        fix = f"check its name and port; where registries are reached without it: unset {name}"
        if name.lower() == "http_proxy":
            level, why = WARNING, "what is asked over plain http does not get through"
        else:
            level, why = FAIL, "registries are asked through it: no image can be pulled"
        findings.append(Finding("proxies", level, f"{name}: nobody answers at {proxy.url}", why, fix, _PROXIES))
    return [*findings, *_judge_schemes(proxies)]


def _judge_schemes(proxies: Mapping[str, Proxy]) -> list[Finding]:
    return [
        Finding(
            "proxies",
            NOTE,
            f"the address in {name} begins with https:",
            "the proxy itself is then spoken to in TLS, which few proxies do; registries are asked over https anyway",
            f"if pulls fail, write it with http: export {name}=http://{urlsplit(proxy.url).netloc}",
            _PROXIES,
        )
        for name, proxy in proxies.items()
        if proxy.url.startswith("https:")
    ]


def check_registries(surroundings: Surroundings) -> list[Finding]:
    """Whether nvcr.io, Docker Hub and the mirrors that are configured answer from here; no login is sent."""
    if surroundings.is_offline:
        return [Finding("registries", SKIPPED, "not asked, because of --offline")]
    try:
        access = open_access(surroundings)
    except KedgeError as problem:
        fix = problem.hint or "correct it"
        return [Finding("registries", FAIL, problem.message, "every pull ends with this error", fix, _REGISTRIES)]
    findings = [
        Finding("registries", NOTE, note, "mirrors in it are not used", "write it in version 2", _REGISTRIES)
        for note in access.registries.notes
    ]
    with access:
        mirrors = list_mirrors(access.registries)
        places = [Endpoint(name, "") for name in _USUAL_REGISTRIES] + [
            each for group in mirrors.values() for each in group
        ]
        reached = probe_registries(dict.fromkeys(places), access, SECONDS * surroundings.patience)
    return findings + judge_reach(reached, mirrors, surroundings)


def open_access(surroundings: Surroundings) -> Access:
    """Access to registries as commands here have it; raises InvalidSetting where they would."""
    settings = surroundings.settings
    options = AccessOptions(no_https=settings.no_https, ca_bundle=settings.ca_bundle, retries=0)
    return Access.open(options, environ=surroundings.environ)


def list_mirrors(registries: Registries) -> dict[str, list[Endpoint]]:
    """The mirrors that registries.conf names, by the registry that they are for."""
    found: dict[str, list[Endpoint]] = {}
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
                found.setdefault(registry, []).append(endpoint)
    return found


def judge_reach(
    reached: Iterable[ProbeResult], mirrors: Mapping[str, list[Endpoint]], surroundings: Surroundings
) -> list[Finding]:
    """One finding for those that answer, and one for each reason why others do not."""
    known = list(reached)
    answering = {each.host for each in known if each.failure is None and not each.is_page}
    findings = [
        Finding("registries", OK, f"{each.host} answers in {each.seconds:.1f} s" + _say_proxy(each))
        for each in known
        if each.host in answering
    ]
    findings += [_explain_page(each) for each in known if each.is_page]
    by_reason: dict[tuple[FailureKind, str], list[ProbeResult]] = {}
    for each in known:
        if each.failure is not None:
            by_reason.setdefault((each.failure.kind, each.proxy), []).append(each)
    covered = {Endpoint(name, "").host for name, places in mirrors.items() if any(x.host in answering for x in places)}
    return findings + [
        _explain_silence(kind, group, surroundings, is_covered=all(each.host in covered for each in group))
        for (kind, _), group in by_reason.items()
    ]


def _explain_silence(
    kind: FailureKind, group: list[ProbeResult], surroundings: Surroundings, *, is_covered: bool
) -> Finding:
    hosts = " and ".join(each.host for each in group)
    told = f"no answer within {SECONDS * surroundings.patience:g} s" if kind is FailureKind.TIMEOUT else str(kind)
    what = f"{hosts}: {_SENTENCES.get(kind, told)}" + _say_proxy(group[0])
    if is_covered:
        why = "images are pulled from the mirror that registries.conf names, which answers"
        return Finding(
            "registries", NOTE, what, why, "nothing is to be done as long as the mirror has them", _REGISTRIES
        )
    if kind in _OFFLINE and not group[0].proxy:
        return _explain_offline(what, surroundings)
    why, fix = _TLS_REMEDIES.get(kind, ("images there cannot be pulled", "check the proxy and the host's name"))
    return Finding("registries", WARNING, what, why, fix, _REGISTRIES)


def _explain_offline(what: str, surroundings: Surroundings) -> Finding:
    site, job = surroundings.site, find_current_job(surroundings.environ)
    why = "images there cannot be pulled from this machine; those that are on disk run all the same"
    if job is not None:
        level = NOTE if site is not None and site.internet_on_nodes is False else WARNING
        fix = "pull on a login node before the job: kedge pull IMAGE; or set https_proxy to the site's proxy"
        return Finding("registries", level, what, why, fix, _REGISTRIES)
    if site is not None and site.pull == "in-job":
        fix = "jobs here pull their images themselves (--pull in-job), and 'kedge alloc' gives a shell that can"
        return Finding("registries", NOTE, what, why, fix, _REGISTRIES)
    fix = (
        "set https_proxy to the site's proxy; or name a mirror in ~/.config/containers/registries.conf; or leave the "
        "pull to the job, where nodes have a way out: kedge submit --pull in-job"
    )
    return Finding("registries", WARNING, what, why, fix, _REGISTRIES)


def _explain_page(reach: ProbeResult) -> Finding:
    return Finding(
        "registries",
        WARNING,
        f"{reach.host} answers with a web page, which no registry does" + _say_proxy(reach),
        "a network's login page or a proxy stands in between: pulls fail",
        "open that page in a browser on this network, or ask the site which proxy to use (https_proxy)",
        _REGISTRIES,
    )


def _say_proxy(reach: ProbeResult) -> str:
    return f", through {reach.proxy}" if reach.proxy else ""


_SENTENCES = {
    FailureKind.NAME: "the name is not known here",
    FailureKind.NAME_LATER: "the name service does not answer",
    FailureKind.CERTIFICATE: "the certificate is signed by an authority that is not trusted here",
    FailureKind.CERTIFICATE_TIME: "the certificate is not valid at this machine's time",
    FailureKind.CERTIFICATE_NAME: "the certificate is for another name",
}
_PRIVATE = (
    "a proxy of the site that opens TLS, or a registry with an authority of its own: pulls are refused",
    "ask the site for its certificate authority (PEM), and name it: export KEDGE_CA_BUNDLE=FILE",
)
_TLS_REMEDIES = {
    FailureKind.CERTIFICATE: _PRIVATE,
    FailureKind.CERTIFICATE_NAME: _PRIVATE,
    FailureKind.CERTIFICATE_TIME: (
        "the clock of this machine is wrong, or the certificate has expired: pulls are refused",
        "compare 'date -u' with a watch; if the clock is wrong, tell the administrators",
    ),
    FailureKind.PROXY: (
        "the proxy does not let this host through, or does not know it: pulls fail",
        "ask the site whether the proxy allows it; no_proxy names hosts that are reached without it",
    ),
    FailureKind.PROXY_LOGIN: (
        "the proxy wants a user name and a password: pulls fail",
        "write them into the variable, special characters as %XX: https_proxy=http://USER:PASSWORD@HOST:PORT",
    ),
    FailureKind.NOT_TLS: (
        "something that is no registry answers in its place, or the proxy's address begins with https: and should not",
        "check https_proxy: most proxies are written with http://",
    ),
    FailureKind.TIMEOUT: (
        "the proxy takes connections and does not answer: pulls wait, and fail",
        "ask the site whether the proxy works; other networks may have another one",
    ),
}
