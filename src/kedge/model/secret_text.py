# SPDX-License-Identifier: BSD-3-Clause
"""Passwords, tokens and keys in the text of a script or recipe: found, and never shown."""

from __future__ import annotations

import re

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
