# SPDX-License-Identifier: BSD-3-Clause
"""Whether a word that names an image is a file or a reference: decided here for every verb, by the text alone.

What `docker://x` means must not depend on the current directory, where somebody may have put a directory `docker:`.
So text with a known scheme, or with `://` in it, is never the path of a file; `./docker:x` is. Lean: starts ask.
"""

from __future__ import annotations

SLASHED = ("docker", "dockerd", "podman", "oras", "shub", "http", "https", "instance")  # nothing without `//`
PLAIN = ("docker-daemon", "docker-archive", "oci", "oci-archive", "library", "containers-storage", "host", "file")
PATHS = ("/", "./", "../", "~")  # with these a path begins, whatever follows


def is_address(word: str) -> bool:
    """Whether a word has `://`: never a file, whatever stands before it."""
    return "://" in word and not word.startswith(PATHS)


def is_reference(word: str) -> bool:
    """Whether a word names an image by a scheme, known or not."""
    return is_address(word) or (word.partition(":")[0].lower() in (*SLASHED, *PLAIN) and ":" in word)


def find_path(word: str) -> str:
    """The path that the word is, or names with `file:`; empty for all other references."""
    if not is_reference(word):
        return word
    scheme, _, path = word.partition(":")
    return path.removeprefix("//") if scheme.lower() == "file" else ""
