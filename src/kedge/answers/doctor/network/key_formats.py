# SPDX-License-Identifier: BSD-3-Clause
"""The formats of keys, tokens and host names, checked without showing them. Pure, apart from the clock for tokens."""

from __future__ import annotations

import base64
import json
import re
import time

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
