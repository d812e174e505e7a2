# SPDX-License-Identifier: BSD-3-Clause
"""Takes passwords and tokens out of text before it is shown or written to a log, and what would steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"

_USER_INFO = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^\s/:@#?'\"]*):(?P<secret>[^\s/'\"]+)@", re.IGNORECASE
)
_QUERY = re.compile(
    r"(?P<name>[?&](?:[\w.-]*(?:token|signature|secret|password|passwd|credential|key)[\w.-]*|sig)=)[^\s&#'\"]+",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(?P<name>\b(?:bearer|basic|authorization:)\s+)(?!bearer|basic)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE
)
# the short forms of `registry login --password` and `key newpair --password`, with their values or before them
_SHORT_SECRETS = {"login": "-p", "newpair": "-P"}
_SECRET_OPTION = re.compile(r"--?[\w-]*(?:password|passphrase|secret|token)[\w-]*", re.IGNORECASE)


def redact(text: str) -> str:
    """The text without the secrets that addresses and headers carry."""
    text = _USER_INFO.sub(rf"\g<scheme>\g<user>:{HIDDEN}@", text)
    text = _QUERY.sub(rf"\g<name>{HIDDEN}", text)
    return _HEADER.sub(rf"\g<name>{HIDDEN}", text)


def escape_controls(text: str) -> str:
    """The text with control characters, newlines and tabs apart, written as escapes."""
    return "".join(c if (c >= " " and not "\x7f" <= c < "\xa0") or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def redact_arguments(argv: Sequence[str]) -> list[str]:
    """A command line without the values of options that carry secrets."""
    shown: list[str] = []
    hide_next = False
    short = next((option for word, option in _SHORT_SECRETS.items() if word in argv), None)
    for word in argv:
        option, equals, _ = word.partition("=")
        is_secret = _SECRET_OPTION.fullmatch(option) is not None and "stdin" not in option
        if hide_next and not word.startswith("-"):
            shown.append(HIDDEN)
        elif is_secret and equals:
            shown.append(f"{option}={HIDDEN}")
        elif short is not None and word.startswith(short) and word != short:
            shown.append(f"{short}{HIDDEN}")
        else:
            shown.append(redact(word))
        hide_next = (is_secret and not equals) or word == short
    return shown
