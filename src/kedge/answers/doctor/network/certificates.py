# SPDX-License-Identifier: BSD-3-Clause
"""Certificate authorities: the files that settings and variables name, and the system's own."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.image.registry.tls import SYSTEM_BUNDLES, list_own_authorities

_DOCS = "kedge help doctor certificates"
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
        return [Finding("certificates", FAIL, what, why=why, fix=fix, docs=_DOCS)]
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
        docs=_DOCS,
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
                docs=_DOCS,
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
                docs=_DOCS,
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
            docs=_DOCS,
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
        docs=_DOCS,
    )


def _has_content(place: Path) -> bool:
    try:
        return any(place.iterdir()) if place.is_dir() else place.stat().st_size > 0
    except OSError:
        return False
