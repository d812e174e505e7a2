# SPDX-License-Identifier: BSD-3-Clause
"""What `docker ...` means in kedge's words, when kedge has taken that name: build, pull, push, run, images, a few more.

What kedge cannot do it says, with its own way. `docker run` and its kind are in `docker_run`, other verbs in
`docker_verbs`.
"""

from __future__ import annotations

import os

from kedge.base.release import VERSION
from kedge.cli.shims.shim_meaning import DOCKER_SPOKEN, Meaning, run_shim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IDLE_VALUES = (
    "-H",
    "--host",
    "-c",
    "--context",
    "--config",
    "-l",
    "--log-level",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
)
_IDLE = ("--tls", "--tlsverify")
# `docker image pull` is `docker pull`; the family alone names no command
_FAMILIES = {
    "image": {"build", "pull", "push", "ls", "list", "inspect", "tag", "rm", "save", "load", "history", "prune"},
    "container": {"run", "exec", "ls", "list", "ps", "logs", "stop", "kill", "rm", "stats", "inspect"},
    "buildx": {"build", "version"},
    "builder": {"build", "prune"},
    "system": {"info"},
}
_RENAMED = {("image", "ls"): "images", ("image", "list"): "images", ("image", "rm"): "rmi", ("container", "ls"): "ps"}
_RENAMED |= {("container", "list"): "ps"}


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Do what the words say to docker; the exit status is as Docker's: 125 for a container that kedge cannot start."""
    return run_shim(program, argv, lambda words: translate(program, words, os.environ), own_failure=125)


def translate(program: str, words: Sequence[str], environ: Mapping[str, str]) -> Meaning:
    """Translate a docker command to kedge's words; raises an error that names kedge's own way where there is none."""
    leading: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        if word in ("-v", "--version"):
            return Meaning(text=f"Docker version {DOCKER_SPOKEN}, build kedge\n")
        if word in ("-h", "--help"):
            return Meaning(text=_explain(program))
        if word in ("-D", "--debug"):
            leading.append("--debug")
        elif word in _IDLE_VALUES:
            position += 1
        elif word.partition("=")[0] not in (*_IDLE_VALUES, *_IDLE):
            from kedge.errors import UsageError  # late: only for an error

            raise UsageError(f"'{program}' has no option {word}", hint=f"to list the verbs: {program} --help")
    verb, rest = "".join(words[position : position + 1]), list(words[position + 1 :])
    if verb in ("", "help"):
        return Meaning(["help", *rest]) if rest else Meaning(text=_explain(program))
    if verb in _FAMILIES and rest and rest[0] in _FAMILIES[verb]:
        verb, rest = _RENAMED.get((verb, rest[0]), rest[0]), rest[1:]
    if verb in ("run", "exec", "create"):
        from kedge.cli.shims.docker_run import translate_run  # late: other verbs need none of it

        meant = translate_run(program, verb, rest, environ)
    else:
        from kedge.cli.shims.docker_verbs import translate_verb  # late: containers need none of it

        meant = translate_verb(program, verb, rest)
    meant.words = [*leading, *meant.words] if meant.words else []
    return meant


def _explain(program: str) -> str:
    return (
        f"usage: {program} VERB ...\n\n"
        f"This {program} is kedge {VERSION}, which accepts a part of Docker's command line. There is no daemon.\n"
        "build pull push run exec images tag login logout inspect ps logs stop save search info version.\n"
        "More verbs: kedge --help. To remove this command: kedge shim remove docker\n"
    )
