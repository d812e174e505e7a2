# SPDX-License-Identifier: BSD-3-Clause
"""Passwords, tokens and keys in the text of a script, recipe, command or address: found, and never shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"

_NAMES = r"PASSWORD|PASSWD|API_?KEY|SECRET|SECRET_KEY|ACCESS_KEY|TOKEN"
# a number, a path, a word in small letters or one that says "put yours here" is no secret
_PLAIN = r"\d+[kKmM]?\b|true\b|false\b|[a-z_-]+(?![\w@!%^&+./-])|\S*/|\S*(?:your|xxx|change|example|\.\.\.)"
# the part that is secret is the last group
_SURE = (
    re.compile(r"\b()(nvapi-[\w-]{8,})"),
    re.compile(r"((?:--docker-password|--password)[= ][\"']?)(?![$<\"'-])([^\s;\"']+)"),
    re.compile(r"\b()(AKIA[0-9A-Z]{16})\b"),
)
# what is worth an alarm: others' scripts have many names and values that only look like these
_ALARMING = (
    *_SURE,
    re.compile(r"\b()((?:gh[pos]_|hf_)[A-Za-z0-9]{30,}|github_pat_\w{22,}|glpat-[\w-]{20,}|dckr_pat_[\w-]{20,})"),
    re.compile(rf"(\b(?:\w+_)?(?:{_NAMES})=[\"']?)(?![$<\"'\s]|$)(?!(?i:{_PLAIN}))([^\s;,\"']{{6,}})", re.I),
)
# what is not shown: a false alarm costs nothing here, and a secret that is shown cannot be taken back
_HIDDEN = (
    *_SURE,
    re.compile(r"\b()((?:ghp|gho|ghs|github_pat|glpat|hf|dckr_pat)[_-][A-Za-z0-9_-]{20,})"),
    re.compile(rf"(\b(?:\w+_)?(?:{_NAMES})=[\"']?)(?![$<\"'\s]|$)([^\s;,\"']+)", re.I),
)

_USER_INFO = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,30}://)(?P<user>[^\s/:@#?'\"]*):(?P<secret>[^\s/'\"]+)@", re.IGNORECASE
)
_QUERY = re.compile(
    r"(?P<name>[?&](?:[\w.-]*(?:token|signature|secret|password|passwd|credential|key)[\w.-]*|sig)=)[^\s&#'\"]+",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(?P<name>\b(?:bearer|basic|authorization:)\s+)(?!bearer|basic)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE
)
_SECRET_OPTION = re.compile(r"--?[\w-]*(?:password|passphrase|secret|token)[\w-]*", re.IGNORECASE)


def has_secret(line: str) -> bool:
    """Whether something in a line looks like a secret that is written out."""
    return any(pattern.search(line) for pattern in _ALARMING)


def mask_value(name: str, value: str) -> str:
    """The value of a variable, or stars where its name or the value itself says that it is a secret."""
    return value if mask_secrets(f"{name}={value}") == f"{name}={value}" else "***"


def mask_secrets(text: str) -> str:
    """The text with stars instead of secrets, and of what may be one."""
    for pattern in _HIDDEN:
        text = pattern.sub(r"\1***", text)
    return text


def redact(text: str) -> str:
    """The text without the secrets that addresses and headers carry."""
    text = _USER_INFO.sub(rf"\g<scheme>\g<user>:{HIDDEN}@", text)
    text = _QUERY.sub(rf"\g<name>{HIDDEN}", text)
    return _HEADER.sub(rf"\g<name>{HIDDEN}", text)


def mask_words(words: Sequence[str]) -> list[str]:
    """A command line with stars for secrets: in addresses, in `TOKEN=…`, and behind options such as --password."""
    shown: list[str] = []
    for index, word in enumerate(words):
        is_value = index > 0 and is_secret_option(words[index - 1]) and not word.startswith("-")
        name, equals, _ = word.partition("=")
        if is_value:
            shown.append(HIDDEN)
        else:
            shown.append(f"{name}={HIDDEN}" if equals and is_secret_option(name) else mask_secrets(redact(word)))
    return shown


def is_secret_option(word: str) -> bool:
    """Whether the value of this option of a command line is a secret."""
    return _SECRET_OPTION.fullmatch(word) is not None and "stdin" not in word
