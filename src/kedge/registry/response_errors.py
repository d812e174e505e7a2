# SPDX-License-Identifier: BSD-3-Clause
"""What to say when a registry says no: one honest sentence about why, and the next thing to type."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kedge.errors import (
    AccessDenied,
    AuthenticationFailed,
    ImageNotFound,
    KedgeError,
    NetworkFailed,
    RateLimited,
    RegistryProtocolError,
)
from kedge.registry.secret import Secret, redact_url, scrub
from kedge.registry.transport import Response

BODY_LIMIT = 64 << 10
_SHOWN = 400  # characters of a server's own words


@dataclass(frozen=True, slots=True)
class Situation:
    """What was asked of which registry, and with whose credentials."""

    registry: str  # as the user wrote it: nvcr.io
    repository: str = ""
    reference: str = ""  # tag or digest, where there is one
    action: str = "read"  # "read" or "write", as in: may not read
    credential: str | None = None  # where the credentials came from
    notes: tuple[str, ...] = ()  # what was odd while looking for credentials
    secrets: tuple[Secret, ...] = ()  # hidden wherever a server echoes them
    has_token: bool = False  # the token service gave a token, so it took the login if there was one

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
    """The error for an answer that is not what was asked for; reads at most 64 KiB of its body and closes it."""
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
            f"{situation.registry} is in trouble: it answers {status} for {situation.image}",
            context=context,
            hint="this is the registry's side; try again later",
            is_transient=True,
        )
    return _explain_unexpected(status, situation, body, context)


def _explain_unexpected(status: int, situation: Situation, body: bytes, context: dict[str, str]) -> KedgeError:
    if status == 405 and situation.action == "write":
        return AccessDenied(
            f"{situation.registry} takes no pushes: it is read-only, a mirror or a cache of another registry",
            context=context,
            hint="push to the registry that it mirrors, or ask its operator",
        )
    if status == 400 and b"HTTP request to an HTTPS server" in body:
        return RegistryProtocolError(
            f"{situation.registry} speaks HTTPS, but was asked in plain HTTP",
            context=context,
            hint="leave out --no-https",
        )
    return RegistryProtocolError(
        f"{situation.registry} answers {status} for {situation.image}, which was not expected", context=context
    )


@dataclass(frozen=True, slots=True)
class _ErrorBody:
    """A registry's own explanation: codes such as MANIFEST_UNKNOWN, and words."""

    codes: frozenset[str] = frozenset()
    text: str = ""
    is_page: bool = False


def read_error_body(body: bytes, content_type: str) -> _ErrorBody:
    """Read `{"errors": [{"code", "message"}]}`, a bare message, plain text, or see that it is a web page."""
    if is_web_page(body, content_type):
        return _ErrorBody(is_page=True)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return _ErrorBody(text=_printable(body.decode(errors="replace")))
    if not isinstance(document, dict):
        return _ErrorBody(text=_printable(str(document)))
    entries = document.get("errors")
    found = [entry for entry in entries if isinstance(entry, dict)][:5] if isinstance(entries, list) else []
    if found:
        codes = frozenset(str(entry.get("code") or "").upper() for entry in found)
        return _ErrorBody(codes, _printable("; ".join(_describe_entry(entry) for entry in found)))
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
    """The error for an answer that should be JSON and is a web page."""
    return RegistryProtocolError(
        f"{situation.registry} answers with a web page where the data of {situation.image} should be",
        context={"request": redact_url(address), "Content-Type": content_type or "none"},
        hint="a network's login page or a proxy may stand in between (see HTTPS_PROXY), or this is no registry",
    )


def _explain_page(response: Response, situation: Situation, context: dict[str, str]) -> KedgeError:
    if response.status == 404:
        return ImageNotFound(
            f"{situation.registry} has no page for {situation.image}, and seems to be no registry",
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
            f"{situation.registry} takes the login from {situation.credential}, but does not let it {situation.action} "
            f"{situation.image}: it does not exist there, or is not for this user",
            context=context,
            hint="check the spelling of the whole path, or ask the owner of the repository for access",
        )
    if situation.credential:
        return explain_refused(situation, context)
    if situation.is_ngc:
        return AuthenticationFailed(
            f"nvcr.io wants an API key for {situation.image}, and none was found",
            context={**context, "page": ngc_page(situation.repository)},
            hint=f"{_NGC_KEY_HINT}; if the image should be public, check its name on its page",
        )
    what = f"no login for {situation.registry} was found"
    if situation.registry == "docker.io":
        what += "; Docker Hub says the same of repositories that do not exist"
    return AuthenticationFailed(
        f"{situation.registry} wants a login before it lets you {situation.action} {situation.image}: {what}",
        context=context,
        hint=f"check the name, or log in: kedge registry login {situation.registry}",
    )


_NGC_KEY_HINT = (
    "make a key with the 'NGC Catalog' permission at https://org.ngc.nvidia.com/setup/api-keys, then type: "
    "kedge registry login -u '$oauthtoken' nvcr.io (in single quotes), or put the key into NGC_API_KEY"
)


def explain_refused(situation: Situation, context: dict[str, str] | None = None) -> AuthenticationFailed:
    """The error for credentials that were sent and not accepted."""
    context = {**(context or {}), "credentials from": situation.credential or "nowhere"}
    if situation.is_ngc:
        return AuthenticationFailed(
            f"nvcr.io refused the API key from {situation.credential} for {situation.image}: it is wrong, expired, "
            "revoked, or lacks the 'NGC Catalog' permission; or the image is not yours to read",
            context=context,
            hint=f"the user name must be exactly $oauthtoken; {_NGC_KEY_HINT}",
        )
    return AuthenticationFailed(
        f"{situation.registry} refused the login from {situation.credential} for {situation.image}",
        context=context,
        hint=f"log in again: kedge registry login {situation.registry}; for a public image log out instead",
    )


def _explain_denied(situation: Situation, context: dict[str, str]) -> KedgeError:
    if situation.is_ngc:
        page = ngc_page(situation.repository)
        who = (
            "the account of your API key has not accepted"
            if situation.credential
            else "without an API key nobody has accepted"
        )
        return AccessDenied(
            f"nvcr.io does not let you {situation.action} {situation.image}: {who} its licence, or is not in its team",
            context={**context, "page": page},
            hint=f"open {page}, sign in, accept the terms there and try again"
            + ("" if situation.credential else f"; {_NGC_KEY_HINT}"),
        )
    who = f"the login from {situation.credential}" if situation.credential else "an anonymous user"
    return AccessDenied(
        f"{situation.registry} does not let {who} {situation.action} {situation.image}",
        context=context,
        hint="ask the owner of the repository for access, or log in as somebody else: "
        f"kedge registry login {situation.registry}",
    )


def _explain_missing(situation: Situation, said: _ErrorBody, context: dict[str, str]) -> KedgeError:
    name = f"{situation.registry}/{situation.repository}"
    tags = f"kedge tags {name}"
    if "BLOB_UNKNOWN" in said.codes:
        return ImageNotFound(
            f"{situation.registry} has lost a part of an image in '{situation.repository}': {situation.reference}",
            context=context,
            hint="the manifest names it, but the registry does not have it: push the image again, or ask its owner",
        )
    if not situation.reference or "NAME_UNKNOWN" in said.codes:
        page = f"; its page would be {ngc_page(situation.repository)}" if situation.is_ngc else ""
        return ImageNotFound(
            f"{situation.registry} has no repository '{situation.repository}'",
            context=context,
            hint=f"check the spelling of the whole path{page}",
        )
    if situation.is_ngc:
        extra = "CUDA tags are deleted some months after their version's end of life, and there is no 'latest'"
        return ImageNotFound(
            f"nvcr.io has no {situation.image} (any more): {extra}",
            context={**context, "page": ngc_page(situation.repository)},
            hint=f"list what is there: {tags}",
        )
    return ImageNotFound(
        f"{situation.registry} has no {situation.image}", context=context, hint=f"list what is there: {tags}"
    )


def _explain_limit(response: Response, situation: Situation, context: dict[str, str]) -> KedgeError:
    for name in ("ratelimit-limit", "ratelimit-remaining", "docker-ratelimit-source", "retry-after"):
        value = response.header(name)
        if value:
            context[name] = _printable(value)
    remaining = response.header("ratelimit-remaining")
    counted = f" ({_printable(remaining)} pulls left; ';w=' is the window in seconds)" if remaining else ""
    waiting = response.header("retry-after")
    when = f"; it asks to wait {_printable(waiting)} s" if waiting and waiting.strip().isdigit() else ""
    hint = "wait and try again"
    if situation.registry == "docker.io":
        hint = (
            "everybody behind the cluster's address shares the anonymous limit: log in with "
            "'kedge registry login docker.io', or use a mirror (registries.conf)"
        )
    return RateLimited(
        f"{situation.registry} limits how often it is asked, and the limit is reached{counted}{when}",
        context=context,
        hint=hint,
    )


def ngc_page(repository: str) -> str:
    """The catalog page of an nvcr.io repository: where its licence is accepted and its tags are shown."""
    parts = repository.split("/")
    if len(parts) == 2:
        return f"https://catalog.ngc.nvidia.com/orgs/{parts[0]}/containers/{parts[1]}"
    if len(parts) == 3:
        return f"https://catalog.ngc.nvidia.com/orgs/{parts[0]}/teams/{parts[1]}/containers/{parts[2]}"
    return "https://catalog.ngc.nvidia.com/containers"
