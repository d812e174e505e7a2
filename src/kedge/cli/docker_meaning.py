# SPDX-License-Identifier: BSD-3-Clause
"""What a command line of docker means to kedge: words of its own, or the text that answers it."""

from __future__ import annotations

from kedge.release import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The release whose command line is spoken; see `shim_words.SPOKEN`.
SPOKEN = f"27.0.0+kedge.{VERSION}"


class Meaning:
    """Kedge's words for a command line, with the variables for the program inside; or the text that answers it."""

    def __init__(
        self,
        words: Sequence[str] = (),
        *,
        text: str = "",
        environ: Mapping[str, str] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.words = list(words)
        self.text = text
        self.environ = dict(environ or {})
        self.warnings = list(warnings)
