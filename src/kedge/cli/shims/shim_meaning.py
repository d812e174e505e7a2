# SPDX-License-Identifier: BSD-3-Clause
"""What a command line of docker or enroot means to kedge: words of its own, a text that answers it, or an action."""

from __future__ import annotations

import os
import sys

from kedge.base.release import VERSION
from kedge.cli.entry import CONTAINER_VERBS, end_on_interrupt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# The releases whose command lines are spoken; see `shim_words.SPOKEN`.
DOCKER_SPOKEN = f"27.0.0+kedge.{VERSION}"
ENROOT_SPOKEN = f"4.0.1+kedge.{VERSION}"
_STARTING = {"run", "exec", "start"}  # verbs of both that start a container


class Meaning:
    """Kedge's words for a command line, with the variables for the program inside; or what answers it."""

    def __init__(
        self,
        words: Sequence[str] = (),
        *,
        text: str = "",
        environ: Mapping[str, str] | None = None,
        warnings: Sequence[str] = (),
        action: Callable[[], int] | None = None,
    ) -> None:
        self.words = list(words)
        self.text = text
        self.environ = dict(environ or {})
        self.warnings = list(warnings)
        self.action = action


def run_shim(
    program: str, argv: Sequence[str] | None, translate: Callable[[list[str]], Meaning], own_failure: int
) -> int:
    """Do what the words say to the program.

    A container that kedge could not start ends with `own_failure`; other verbs that fail end with 1.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        end_on_interrupt()
    try:
        return _do(translate(words), own_failure)
    except BaseException as problem:
        from kedge.cli.options import GlobalOptions  # late, both: only a mistake needs them
        from kedge.cli.report import report_failure

        status = report_failure(problem, [program, *words], GlobalOptions())
        is_container = bool(_STARTING & set(words[:2]))
        return status if status >= 128 else own_failure if is_container else 1


def _do(meant: Meaning, own_failure: int) -> int:
    if meant.action is not None:
        return meant.action()
    if meant.text:
        from kedge.cli.container import print_text  # late: few ask

        return print_text(meant.text)
    from kedge.cli.container import OWN_FAILURE, begin_message, write_message
    from kedge.cli.entry import main as run_kedge

    for text in meant.warnings:
        write_message(begin_message("warn", is_shim=False) + text)
    os.environ.update(meant.environ)
    verb = next((word for word in meant.words if not word.startswith("-")), "")
    if verb not in CONTAINER_VERBS:
        _load_site()
    status = run_kedge(meant.words)
    if verb in CONTAINER_VERBS:  # a program's own status comes back only where it is not kedge's
        return own_failure if status == OWN_FAILURE else status
    return status if status in (0, *range(128, 255)) else 1


def _load_site() -> None:
    """Let the libraries of the installation be found."""
    if sys.flags.no_site:
        import site  # late: only through the shim

        site.main()
