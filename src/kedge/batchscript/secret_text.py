# SPDX-License-Identifier: BSD-3-Clause
"""Passwords, tokens and keys in the text of a script: found, and never shown."""

from __future__ import annotations

import re

# the part that is secret is the last group
_SECRETS = (
    re.compile(r"\b()(nvapi-[\w-]{8,})"),
    re.compile(r"\b()((?:ghp|gho|ghs|github_pat|glpat|hf|dckr_pat)[_-][A-Za-z0-9_-]{20,})"),
    re.compile(
        r"(\b(?:\w+_)?(?:PASSWORD|PASSWD|API_?KEY|SECRET|SECRET_KEY|ACCESS_KEY|TOKEN)=[\"']?)(?![$<\"'\s]|$)([^\s;,\"']+)",
        re.I,
    ),
    re.compile(r"((?:--docker-password|--password)[= ][\"']?)(?![$<\"'-])([^\s;\"']+)"),
    re.compile(r"\b()(AKIA[0-9A-Z]{16})\b"),
)


def has_secret(line: str) -> bool:
    """Whether something in a line looks like a secret that is written out."""
    return any(pattern.search(line) for pattern in _SECRETS)


def mask_secrets(text: str) -> str:
    """The text with stars instead of secrets."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1***", text)
    return text
