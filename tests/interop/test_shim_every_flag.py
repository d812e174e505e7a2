# SPDX-License-Identifier: BSD-3-Clause
"""Every verb and flag that the real Apptainer lists: a shim does something for it, or refuses it with a reason.

What it lists is recorded (`recorded.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kedge.cli.main import make_parser
from kedge.cli.shims.shim_words import translate
from kedge.container.flags import HelpWanted, parse_words
from kedge.container.options import FLAGS
from kedge.errors import KedgeError
from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.interop.recorded import find_changes, recall

# What stands behind the flags of each verb: an image, a name, an address.
OPERANDS = {
    **dict.fromkeys(("run", "shell", "test", "inspect", "run-help", "sign", "verify", "sif list"), "i.sif"),
    **dict.fromkeys(("sif header", "sif new"), "i.sif"),
    **dict.fromkeys(("sif info", "sif dump", "sif del", "sif setprim"), "1 i.sif"),
    **dict.fromkeys(("instance list", "instance stop", "instance stats", "instance logs"), "name"),
    **dict.fromkeys(("instance start", "instance run"), "i.sif name"),
    **dict.fromkeys(("key pull", "key push", "key remove"), "A" * 40),
    **dict.fromkeys(("key import", "key export"), "file"),
    **dict.fromkeys(("remote use", "remote remove", "remote login", "remote logout", "remote status"), "name"),
    **dict.fromkeys(("keyserver add", "keyserver remove", "remote add-keyserver"), "https://k.example"),
    **dict.fromkeys(("registry login", "registry logout"), "docker://r.example"),
    "exec": "i.sif true",
    "sif add": "i.sif file",
    "build": "o.sif docker://x",
    "pull": "docker://x",
    "push": "i.sif oras://r/x",
    "key search": "text",
    "remote add": "name r.example",
    "delete": "library://a/b/c",
    "search": "text",
    "overlay create": "o.img",
}
VALUES = {"--arch": "amd64", "--signal": "TERM", "--env": "A=1", "--mount": "type=bind,src=/a,dst=/b", "--type": "blob"}
# Verbs that end in a reason as a whole, so that their flags need none of their own.
ABSENT = ("capability", "checkpoint", "config", "oci", "completion")
UNKNOWN = "no reason: "
VERBS = re.compile(r"^  ([a-z][a-z-]*) {2,}\S", re.MULTILINE)
FLAG = re.compile(r"^ {2,6}(?:-(\w), )?--([\w-]+)( [a-z][\w]*)? {2,}", re.MULTILINE)


QUESTIONS = {"flags": "letter, name and kind of value of each flag, by verb"}


def ask_apptainer(names: list[str]) -> dict[str, dict[str, list[list[str]]]]:
    """The flags of each verb that has some of its own, by its help text."""
    with apptainer_folder() as peer:
        texts = dict(list_verbs(peer))
    flags = {verb: [list(each) for each in FLAG.findall(text.partition("Options:")[2])] for verb, text in texts.items()}
    return {name: flags for name in names}


def list_verbs(peer: Apptainer) -> Iterator[tuple[str, str]]:
    top = peer.run("help").stdout
    for verb in VERBS.findall(top.partition("Available Commands:")[2]):
        if verb in ("help", "version"):
            continue
        text = ask(peer, verb)
        below = VERBS.findall(text.partition("Available Commands:")[2].partition("Examples:")[0])
        for command in below:
            yield f"{verb} {command}", ask(peer, verb, command)
        if not below:
            yield verb, text


def ask(peer: Apptainer, *words: str) -> str:
    done = peer.run(*words, "--help", check=False)
    return str(done.stdout + done.stderr)


def judge(verb: str, words: list[str]) -> str:
    """'taken', or the reason for a refusal, which begins with UNKNOWN where it is none."""
    try:
        meant = translate("apptainer", [*verb.split(), *words])
        if meant.text:
            return "taken"
        name, *rest = meant.words
        if name in ("exec", "run", "shell", "test"):
            parse_words(name, rest, {})
        elif (name, rest[:1]) in (("instance", ["start"]), ("instance", ["run"])):
            parse_words("start", rest[1:], {})
        else:
            make_parser(name).parse_args(rest)
    except HelpWanted:
        return "taken"
    except KedgeError as problem:
        unknown = re.search(r"has no option|has no verb|unrecognized|is not known", problem.message)
        return f"{UNKNOWN if unknown or not problem.hint else ''}{problem.message}"
    return "taken"


def test_every_flag_of_apptainer_is_taken_or_refused_with_a_reason() -> None:
    taken: set[str] = set()
    refused: dict[str, str] = {}
    for verb, flags in recall("help", QUESTIONS, ask_apptainer)["flags"].items():
        family = verb.split()[0]
        if family in ABSENT:
            assert "does not support" in judge(verb, []), verb
            continue
        operands = OPERANDS.get(verb, "").split()
        for letter, name, value in flags:
            if name == "help":
                continue
            given = [VALUES.get(f"--{name}", "1")] if value else []
            for spelled in (f"--{name}", *([f"-{letter}"] if letter else [])):
                told = judge(verb, [spelled, *given, *operands])
                if told == "taken":
                    taken.add(f"{verb} {spelled}")
                else:
                    refused[f"{verb} {spelled}"] = told
    unknown = {flag: told for flag, told in refused.items() if told.startswith(UNKNOWN)}
    assert not unknown, "\n".join(f"{flag}: {told}" for flag, told in unknown.items())
    assert len(taken) > 500, sorted(taken)


def test_idle_flags_of_containers_say_why_they_change_nothing() -> None:
    idle = [flag for flag in FLAGS if flag.group == "idle"]
    assert idle
    assert all(len(flag.help) > 20 for flag in idle)


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.root
def test_flags_are_recorded_as_apptainer_lists_them() -> None:
    assert find_changes("help", QUESTIONS, ask_apptainer) == []
