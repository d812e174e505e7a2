# SPDX-License-Identifier: BSD-3-Clause
"""Which sources of ADD are addresses."""

from __future__ import annotations


def is_address(source: str) -> bool:
    """Whether a source of ADD is fetched from elsewhere."""
    return source.lower().startswith(("http://", "https://")) or is_git_address(source)


def is_git_address(source: str) -> bool:
    """Whether an address names a Git repository."""
    address = source.partition("#")[0].lower()
    return address.startswith(("git://", "git@", "ssh://")) or (
        address.startswith(("http://", "https://")) and address.endswith(".git")
    )
