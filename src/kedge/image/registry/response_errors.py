# SPDX-License-Identifier: BSD-3-Clause
"""Errors for a registry's refusals: the reason, and the command to type next."""

from __future__ import annotations

import json
from typing import Any

from kedge.base.frozen import frozen
from kedge.errors import (
    AccessDenied,
    AuthenticationFailed,
    ImageNotFound,
    KedgeError,
    NetworkFailed,
    RateLimited,
    RegistryProtocolError,
)
from kedge.image.registry.secret import Secret, redact_url, scrub
from kedge.image.registry.transport import Response

BODY_LIMIT = 64 << 10
_SHOWN = 400  # characters quoted from a server's answer


@frozen
class Situation:
    """A request to a registry, and the credentials it was made with."""

    registry: str  # as the user wrote it: nvcr.io
    repository: str = ""
    reference: str = ""  # tag or digest, where there is one
    action: str = "read"  # "read" or "write", as in: may not read
    credential: str | None = None  # where the credentials came from
    notes: tuple[str, ...] = ()  # problems while looking for credentials
    secrets: tuple[Secret, ...] = ()  # hidden wherever a server echoes them
    has_token: bool = False  # the token service gave a token, so it accepted the login if there was one

    @property
    def image(self) -> str:
        """The image as a user would write it."""
        if not self.repository:
            return self.registry
        mark = "@" if self.reference.partition(":")[0] in ("sha256", "sha384", "sha512") else ":"
        return f"{self.registry}/{self.repository}" + (f"{mark}{self.reference}" if self.reference else "")

    @property
    def is_ngc(self) -> bool:
        """Whether this is NVIDIA's registry."""
        return self.registry == "nvcr.io"


def explain_response(response: Response, situation: Situation) -> KedgeError:
    """The error for an unexpected answer; reads at most 64 KiB of its body and closes it."""
    with response:
        body = response.read_start(BODY_LIMIT)
    said = read_error_body(body, response.header("Content-Type") or "")
    context = {"request": redact_url(response.url), "status": str(response.status)}
    if said.text:
        context["registry says"] = scrub(said.text, situation.secrets)
    for number, note in enumerate(situation.notes, 1):
        context[f"credentials {number}"] = note
    if said.is_page:
        return _explain_page(response, situation, context)
    status = response.status
    if status == 401:
        return _explain_unauthorized(situation, context)
    if status == 403:
        return _explain_denied(situation, context)
    if status == 404:
        return _explain_missing(situation, said, context)
    if status == 429:
        return _explain_limit(response, situation, context)
    if status >= 500:
        return NetworkFailed(
            f"{situation.registry} has a server error: status {status} for {situation.image}",
            context=context,
            hint="the problem is on the registry's side: try again later",
            is_transient=True,
        )
    return _explain_unexpected(status, situation, body, context)


def _explain_unexpected(status: int, situation: Situation, body: bytes, context: dict[str, str]) -> KedgeError:
    if status == 405 and situation.action == "write":
        return AccessDenied(
            f"{situation.registry} does not accept pushes: it is read-only, or a mirror of another registry",
            context=context,
            hint="push to the original registry, or ask its operator",
        )
    if status == 400 and b"HTTP request to an HTTPS server" in body:
        return RegistryProtocolError(
            f"{situation.registry} speaks HTTPS, but got a plain HTTP request",
            context=context,
            hint="leave out --no-https",
        )
    return RegistryProtocolError(
        f"unexpected answer from {situation.registry} for {situation.image}: status {status}", context=context
    )


@frozen
class _ErrorBody:
    """A registry's own explanation: codes such as MANIFEST_UNKNOWN, and text."""

    codes: frozenset[str] = frozenset()
    text: str = ""
    is_page: bool = False


def read_error_body(body: bytes, content_type: str) -> _ErrorBody:
    """Read `{"errors": [{"code", "message"}]}`, a bare message or plain text, or detect a web page."""
    if is_web_page(body, content_type):
        return _ErrorBody(is_page=True)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return _ErrorBody(text=_printable(body.decode(errors="replace")))
    if not isinstance(document, dict):
        return _ErrorBody(text=_printable(str(document)))
    entries = document.get("errors")
    errors = [entry for entry in entries if isinstance(entry, dict)][:5] if isinstance(entries, list) else []
    if errors:
        codes = frozenset(str(entry.get("code") or "").upper() for entry in errors)
        return _ErrorBody(codes, _printable("; ".join(_describe_entry(entry) for entry in errors)))
    words = document.get("details") or document.get("message") or document.get("error") or ""
    return _ErrorBody(text=_printable(str(words)))


def is_web_page(body: bytes, content_type: str) -> bool:
    """Whether the answer is HTML: a login page, a captive portal or a proxy's error."""
    start = body[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return content_type.lower().startswith("text/html") or start.startswith((b"<!doctype html", b"<html"))


def _describe_entry(entry: dict[str, Any]) -> str:
    code, message = str(entry.get("code") or ""), str(entry.get("message") or "")
    return f"{code}: {message}" if code and message else code or message


def _printable(text: str) -> str:
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return clean if len(clean) <= _SHOWN else clean[:_SHOWN] + "…"


def explain_web_page(situation: Situation, address: str, content_type: str) -> RegistryProtocolError:
    """The error for a web page in place of JSON."""
    return RegistryProtocolError(
        f"{situation.registry} answers with a web page, not with the data of {situation.image}",
        context={"request": redact_url(address), "Content-Type": content_type or "none"},
        hint="check the host name and HTTPS_PROXY: the page may come from a network login or a proxy",
    )


def _explain_page(response: Response, situation: Situation, context: dict[str, str]) -> KedgeError:
    if response.status == 404:
        return ImageNotFound(
            f"{situation.registry} does not look like a registry: it has no {situation.image}",
            context=context,
            hint="check the host name; a registry answers at https://HOST/v2/",
        )
    problem = explain_web_page(situation, response.url, response.header("Content-Type") or "")
    if response.status >= 500:
        return NetworkFailed(
            f"{problem.message} (status {response.status})", context=context, hint=problem.hint, is_transient=True
        )
    return RegistryProtocolError(f"{problem.message} (status {response.status})", context=context, hint=problem.hint)


def _explain_unauthorized(situation: Situation, context: dict[str, str]) -> KedgeError:
    if situation.credential and situation.has_token and situation.repository and not situation.is_ngc:
        return AccessDenied(
            f"the login from {situation.credential} may not {situation.action} {situation.image}: "
            "the image does not exist, or this user has no access",
            context=context,
            hint="check the spelling of the whole path, or ask the owner of the repository for access",
        )
    if situation.credential:
        return explain_refused(situation, context)
    if situation.is_ngc:
        return AuthenticationFailed(
            f"nvcr.io requires an API key for {situation.image}, and kedge found none",
            context={**context, "page": ngc_page(situation.repository)},
            hint=f"{_NGC_KEY_HINT}; for a public image check the name on its page",
        )
    what = f"kedge found no login for {situation.registry}"
    if situation.registry == "docker.io":
        what += "; Docker Hub gives the same answer for repositories that do not exist"
    return AuthenticationFailed(
        f"{situation.registry} requires a login to {situation.action} {situation.image}: {what}",
        context=context,
        hint=f"check the name, or log in: kedge registry login {situation.registry}",
    )


_NGC_KEY_HINT = (
    "make a key with the 'NGC Catalog' permission at https://org.ngc.nvidia.com/setup/api-keys, then log in: "
    "kedge registry login -u '$oauthtoken' nvcr.io (with single quotes), or set NGC_API_KEY to the key"
)


def explain_refused(situation: Situation, context: dict[str, str] | None = None) -> AuthenticationFailed:
    """The error for credentials that the registry refused."""
    context = {**(context or {}), "credentials from": situation.credential or "nowhere"}
    if situation.is_ngc:
        return AuthenticationFailed(
            f"nvcr.io refused the API key from {situation.credential} for {situation.image}: it is wrong, expired, "
            "revoked, or lacks the 'NGC Catalog' permission; or this account has no access to the image",
            context=context,
            hint=f"the user name must be exactly $oauthtoken; {_NGC_KEY_HINT}",
        )
    return AuthenticationFailed(
        f"{situation.registry} refused the login from {situation.credential} for {situation.image}",
        context=context,
        hint=f"log in again: kedge registry login {situation.registry}; "
        f"for a public image log out: kedge registry logout {situation.registry}",
    )


def _explain_denied(situation: Situation, context: dict[str, str]) -> KedgeError:
    if situation.is_ngc:
        page = ngc_page(situation.repository)
        who = (
            "the account of your API key has not accepted its licence, or is not in its team"
            if situation.credential
            else "it requires an API key of an account that has accepted its licence"
        )
        return AccessDenied(
            f"nvcr.io does not let you {situation.action} {situation.image}: {who}",
            context={**context, "page": page},
            hint=f"open {page}, sign in, and accept the terms" + ("" if situation.credential else f"; {_NGC_KEY_HINT}"),
        )
    who = f"the login from {situation.credential}" if situation.credential else "an anonymous user"
    return AccessDenied(
        f"{situation.registry} does not let {who} {situation.action} {situation.image}",
        context=context,
        hint="ask the owner of the repository for access, or log in as another user: "
        f"kedge registry login {situation.registry}",
    )


def _explain_missing(situation: Situation, said: _ErrorBody, context: dict[str, str]) -> KedgeError:
    name = f"{situation.registry}/{situation.repository}"
    tags = f"kedge tags {name}"
    if "BLOB_UNKNOWN" in said.codes:
        return ImageNotFound(
            f"{situation.registry} lacks a blob of an image in '{situation.repository}': {situation.reference}",
            context=context,
            hint="push the image again, or ask its owner: the manifest lists a blob that the registry does not have",
        )
    if not situation.reference or "NAME_UNKNOWN" in said.codes:
        page = f", or its page: {ngc_page(situation.repository)}" if situation.is_ngc else ""
        return ImageNotFound(
            f"{situation.registry} has no repository '{situation.repository}'",
            context=context,
            hint=f"check the spelling of the whole path{page}",
        )
    if situation.is_ngc:
        extra = "NVIDIA deletes CUDA tags some months after their end of life, and has no 'latest'"
        return ImageNotFound(
            f"nvcr.io has no {situation.image}. {extra}",
            context={**context, "page": ngc_page(situation.repository)},
            hint=f"list the tags: {tags}",
        )
    return ImageNotFound(
        f"{situation.registry} has no {situation.image}", context=context, hint=f"list the tags: {tags}"
    )


def _explain_limit(response: Response, situation: Situation, context: dict[str, str]) -> KedgeError:
    for name in ("ratelimit-limit", "ratelimit-remaining", "docker-ratelimit-source", "retry-after"):
        value = response.header(name)
        if value:
            context[name] = _printable(value)
    remaining = response.header("ratelimit-remaining")
    counted = f" ({_printable(remaining)} pulls left; ';w=' is the window in seconds)" if remaining else ""
    waiting = response.header("retry-after")
    when = f"; try again in {_printable(waiting)} s" if waiting and waiting.strip().isdigit() else ""
    hint = "try again later"
    if situation.registry == "docker.io":
        hint = (
            "log in (kedge registry login docker.io), or use a mirror (registries.conf): "
            "all users behind the cluster's address share the anonymous limit"
        )
    return RateLimited(
        f"rate limit of {situation.registry} reached{counted}{when}",
        context=context,
        hint=hint,
    )


def ngc_page(repository: str) -> str:
    """The catalog page of an nvcr.io repository, with its licence and its tags."""
    parts = repository.split("/")
    if len(parts) == 2:
        return f"https://catalog.ngc.nvidia.com/orgs/{parts[0]}/containers/{parts[1]}"
    if len(parts) == 3:
        return f"https://catalog.ngc.nvidia.com/orgs/{parts[0]}/teams/{parts[1]}/containers/{parts[2]}"
    return "https://catalog.ngc.nvidia.com/containers"
