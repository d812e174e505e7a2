# SPDX-License-Identifier: BSD-3-Clause
"""Certificate authorities: the files that settings and variables name, and whether this machine has any at all."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.frozen import frozen
from kedge.model.counting import count_things
from kedge.registry.tls import SYSTEM_BUNDLES

_DOCS = "kedge help doctor certificates"
_PEM = "it must be a PEM file of certificates: a text with lines '-----BEGIN CERTIFICATE-----'"
_OTHERS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # of other programs


@frozen
class _Bundle:
    """A file of authorities: how many it has, and how many of them count today; `problem` is why it cannot be used."""

    count: int = 0
    expired: int = 0
    early: int = 0  # not valid yet
    problem: str = ""


def check_certificates(surroundings: Surroundings) -> list[Finding]:
    """The bundle of the settings, SSL_CERT_FILE and SSL_CERT_DIR, and the system's own authorities."""
    settings, environ = surroundings.settings, surroundings.environ
    findings = []
    if settings.ca_bundle is not None:
        findings += _judge_setting(settings.ca_bundle, f"ca_bundle ({settings.sources['ca_bundle']})")
    if environ.get("SSL_CERT_FILE"):
        findings += _judge_variable("SSL_CERT_FILE", Path(environ["SSL_CERT_FILE"]))
    folder = environ.get("SSL_CERT_DIR")
    if folder and not any(os.path.isdir(each) for each in folder.split(":")):  # noqa: PTH112 - may be anything
        findings.append(_refuse_variable("SSL_CERT_DIR", "names no directory that is there"))
    findings += _judge_others(environ, has_own=settings.ca_bundle is not None or bool(environ.get("SSL_CERT_FILE")))
    return [*findings, _judge_system(surroundings, environ)]


def _read_bundle(path: Path) -> _Bundle:
    """What a file of authorities holds."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if not path.exists():
            return _Bundle(problem="is not there")
        if not path.is_file():
            return _Bundle(problem="is not a file")
        context.load_verify_locations(path)
    except ssl.SSLError:
        return _Bundle(problem="holds no certificate that can be read")
    except OSError as problem:
        return _Bundle(problem=f"cannot be read: {problem.strerror}")
    now, found = time.time(), context.get_ca_certs()
    expired = sum(ssl.cert_time_to_seconds(str(each["notAfter"])) < now for each in found if "notAfter" in each)
    early = sum(ssl.cert_time_to_seconds(str(each["notBefore"])) > now for each in found if "notBefore" in each)
    return _Bundle(context.cert_store_stats()["x509"], expired, early)


def _judge_setting(path: Path, name: str) -> list[Finding]:
    bundle = _read_bundle(path)
    if bundle.problem:
        what = f"{name}: {path} {bundle.problem}"
        why = "every pull over https ends with this error"
        fix = f"{_PEM}; or leave it out: unset KEDGE_CA_BUNDLE, or take ca_bundle out of config.toml"
        return [Finding("certificates", FAIL, what, why, fix, _DOCS)]
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
        "it takes the place of the system's authorities, and nothing is said about it: no registry is trusted then",
        f"unset {name}, or let it name the right place; it was often set by another computer's settings",
        _DOCS,
    )


def _judge_times(path: Path, bundle: _Bundle) -> list[Finding]:
    if bundle.early and bundle.early == bundle.count:
        return [
            Finding(
                "certificates",
                FAIL,
                f"no authority in {path} is valid yet",
                "the clock of this machine is behind: every certificate looks as if it were of the future",
                "compare 'date -u' with a watch, and tell the administrators",
                _DOCS,
            )
        ]
    if bundle.expired and bundle.expired == bundle.count:
        return [
            Finding(
                "certificates",
                WARNING,
                f"every authority in {path} has expired",
                "registries that they vouch for are refused",
                "ask the site for its present authority; if they should be valid, compare 'date -u' with a watch",
                _DOCS,
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
            f"{named[0]} names a file of authorities, and kedge does not read that variable",
            "it is for other programs; if this site has an authority of its own, kedge has to be told, too",
            f'export KEDGE_CA_BUNDLE="${named[0]}"',
            _DOCS,
        )
    ]


def _judge_system(surroundings: Surroundings, environ: Mapping[str, str]) -> Finding:
    root = Path(surroundings.root)
    paths = ssl.get_default_verify_paths()
    places = [Path(each) for each in (paths.openssl_cafile, paths.openssl_capath) if each]
    present = [each for each in (*places, *SYSTEM_BUNDLES) if _has_something(root / str(each).lstrip("/"))]
    if present:
        return Finding("certificates", OK, f"the system's authorities are in {present[0]}")
    has_own = bool(environ.get("SSL_CERT_FILE") or environ.get("SSL_CERT_DIR") or surroundings.settings.ca_bundle)
    return Finding(
        "certificates",
        NOTE if has_own else FAIL,
        "this system has no certificate authorities",
        "no registry is trusted but those that your own bundle vouches for",
        "ask the administrators for the package ca-certificates, or copy a bundle here: export SSL_CERT_FILE=FILE",
        _DOCS,
    )


def _has_something(place: Path) -> bool:
    try:
        return any(place.iterdir()) if place.is_dir() else place.stat().st_size > 0
    except OSError:
        return False
