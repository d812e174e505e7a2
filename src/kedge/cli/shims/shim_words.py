# SPDX-License-Identifier: BSD-3-Clause
"""What `apptainer ...` and `singularity ...` mean in kedge's words, when kedge has taken their names.

The four verbs that start containers go straight on, as in `entry`; the others are translated by `shim_verbs`.
"""

from __future__ import annotations

import os
import sys

from kedge.base.release import VERSION
from kedge.cli.entry import CONTAINER_VERBS, end_on_interrupt
from kedge.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# The release whose command line is spoken. As a version with build metadata it is honest, and whoever takes the last
# word of `apptainer --version` for the version can compare it.
SPOKEN = f"1.4.5+kedge.{VERSION}"

_GLOBALS = {
    **{"-d": "--debug", "--debug": "--debug", "-q": "--quiet", "--quiet": "--quiet", "-s": "--silent"},
    **{"--silent": "--silent", "-v": "--verbose", "--verbose": "--verbose", "--nocolor": "--nocolor"},
}
# Job scripts name files of the directory that they start in: `singularity run image.sif python train.py`.
# Apptainer judges no image: a script that lives with one that does not fit is warned, and goes on.
_CHANGED = {"run": ("--no-workdir", "--force")}
_SAME = ("--force",)


class _Translation:
    """Kedge's words for a command line, or the text that answers it."""

    def __init__(
        self, words: Sequence[str] = (), *, text: str = "", status: int = 0, warnings: Sequence[str] = ()
    ) -> None:
        self.words = list(words)
        self.text = text
        self.status = status
        self.warnings = list(warnings)


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Do what the words say to a program of this name; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        end_on_interrupt()
    try:
        meant = translate(program, words)
    except BaseException as problem:
        from kedge.cli.container import report  # late, both: only a mistake needs them
        from kedge.container.options import RunOptions

        return report(problem, [program, *words], RunOptions(shim=True))
    if meant.text:
        return _answer(meant)
    from kedge.cli.entry import main as run_kedge  # late: answers need none of it

    verb = next((word for word in meant.words if not word.startswith("-")), "")
    if verb not in CONTAINER_VERBS:
        _load_site()
    if meant.warnings and "--silent" not in meant.words:
        from kedge.cli.container import begin_message, write_message  # late: hardly anybody is warned

        for text in meant.warnings:
            write_message(begin_message("warn", is_shim=True) + text)
    status = run_kedge(["--shim", *meant.words])
    return status if verb in CONTAINER_VERBS else _speak_status(status)


def _speak_status(status: int) -> int:
    """The status of a verb as Apptainer's callers know it: 255 for whatever failed, 1 for words it cannot read."""
    return {0: 0, 2: 1}.get(status, 255 if status < 128 else status)


def _answer(meant: _Translation) -> int:
    """Print the text that is the answer; that nobody reads it is said as by every other verb."""
    from kedge.cli.container import print_text  # late: containers need none of it

    return print_text(meant.text) or meant.status


def translate(program: str, words: Sequence[str]) -> _Translation:
    """Translate Apptainer's words to kedge's; raises an error that explains what has no equivalent."""
    if program == "run-singularity":
        return _Translation(["run", *_CHANGED["run"], *words])
    leading: list[str] = []
    warnings: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        if word in ("--version", "-h", "--help"):
            return _Translation(text=f"apptainer version {SPOKEN}\n") if word == "--version" else _explain(program, [])
        if word in ("-c", "--config") or word.startswith("--config="):
            position += word in ("-c", "--config")
            warnings.append(
                f"{word.partition('=')[0]}: kedge does not read Apptainer's configuration; see kedge config"
            )
        elif word != "--build-config":
            leading += _read_globals(program, word)
    verb, rest = "".join(words[position : position + 1]), list(words[position + 1 :])
    if verb in CONTAINER_VERBS:
        return _Translation([*leading, verb, *_CHANGED.get(verb, _SAME), *rest], warnings=warnings)
    if verb in ("", "help"):
        return _explain(program, rest, is_wanted=bool(verb))
    if verb == "version":
        return _Translation(text=f"{SPOKEN}\n")
    if verb in ("buildcfg", "plugin"):
        return _Translation(text=answer(program, verb, rest))
    from kedge.cli.shims.shim_verbs import translate_verb  # late: containers need none of it

    return _Translation([*leading, *translate_verb(program, verb, rest)], warnings=warnings)


def _read_globals(program: str, word: str) -> list[str]:
    """`-d`, `--debug` or a cluster such as `-dv`."""
    if word in _GLOBALS:
        return [_GLOBALS[word]]
    letters = [f"-{letter}" for letter in word[1:]]
    if word.startswith("--") or not all(letter in _GLOBALS for letter in letters):
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"'{program}' has no option {word}", hint=f"write options of a verb after it: {program} exec {word} ..."
        )
    return [_GLOBALS[letter] for letter in letters]


def _explain(program: str, rest: list[str], *, is_wanted: bool = True) -> _Translation:
    if rest:
        return _Translation(["help", *rest])
    return _Translation(
        status=0 if is_wanted else 1,
        text=f"usage: {program} [global options] VERB ...\n\n"
        f"This {program} is kedge {VERSION}, which accepts Apptainer's command line.\n"
        "exec run shell test instance pull push build inspect run-help search delete cache sif sign verify key\n"
        "keyserver overlay registry remote buildcfg version. More verbs: kedge --help.\n"
        "To remove this command: kedge shim remove\n",
    )


def _load_site() -> None:
    """Let the libraries of the installation be found, which a start of a container does without."""
    if sys.flags.no_site:
        import site  # late: as said

        site.main()


# Questions to `apptainer` that a text answers: where things are, and which plugins there are.

_ANSWERS = ("buildcfg", "plugin")


def answer(program: str, verb: str, words: list[str]) -> str:
    """Return what another program's command prints; raises an error where kedge has no answer."""
    if verb == "buildcfg":
        return _show_build(program, words)
    if words[:1] == ["list"]:
        return "There are no plugins installed.\n"
    raise UsageError(f"kedge does not support '{program} plugin'", hint="kedge has no plugins")


def _show_build(program: str, words: list[str]) -> str:
    known = _list_build()
    if not words:
        return "".join(f"{name}={value}\n" for name, value in known.items())
    if words[0] not in known:
        raise UsageError(f'no variable named "{words[0]}"', hint=f"to list them: {program} buildcfg")
    return f"{known[words[0]]}\n"


def _list_build() -> dict[str, str]:
    """What scripts ask Apptainer's build for, as it is with kedge; what kedge has no such place for is left out."""
    return {
        "PACKAGE_NAME": "kedge",
        "PACKAGE_VERSION": VERSION,
        "PREFIX": sys.prefix,
        "BINDIR": os.path.dirname(sys.argv[0]) or f"{sys.prefix}/bin",  # noqa: PTH120 - a start has no pathlib
        "SYSCONFDIR": "/etc",
        "APPTAINER_CONFDIR": "/etc/apptainer",
        "SESSIONDIR": f"/var/tmp/kedge-{os.getuid()}/session",
        "APPTAINER_SUID_INSTALL": "0",
    }
