# SPDX-License-Identifier: BSD-3-Clause
"""Definition files mean to us what they mean to the real Apptainer: what it takes or refuses, and what it writes.

Apptainer built every case on a base with next to nothing, and what its sections became is recorded (`recorded.py`);
it is compared with the files of our plan.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kedge.builds.definition.plan import make_recipe
from kedge.builds.definition.settle_files import settle_files
from kedge.builds.step_values import BuildArguments, WriteFilesStep
from kedge.errors import InvalidRecipe
from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.builders.busybox import read_busybox
from tests.interop.recorded import find_changes, recall

HEADER = "Bootstrap: scratch\n"
FOLDER = "/.singularity.d/"
PREAMBLE = b"# Custom environment shell code should follow\n"


@dataclass(frozen=True)
class Case:
    """A definition file, and values for its arguments."""

    text: str
    arguments: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "sections": Case(
        HEADER
        + "%help\n  help\n%runscript\necho run\n%startscript\nstart\n%test\ntest\n"
        + "%environment\nexport A=b\n%labels\nA  b c\nB\n#C d\nE\tf\nG=h\n"
    ),
    "repeated": Case(HEADER + "%runscript -e\na\n%runscript\nb\n%runscript -u # c\nc\n%labels\nA b\n%labels\nA c\n"),
    "shebang": Case(HEADER + "%runscript -x # why\n  #!/bin/bash -e\nrun\n%startscript\n\n#!/bin/no\nx\n"),
    "leading comments": Case("# a\n\n#b\n" + HEADER + "%runscript\nx"),
    "no last newline": Case(HEADER + "%runscript\nx"),
    "windows": Case((HEADER + "# c\n%runscript\nx\n%labels\nA b\n").replace("\n", "\r\n")),
    "keys": Case("BootStrap : scratch # c\nosVERSION: 7 \\\n  8\n\n# c\nOtherURL3: x\n%labels\nA b\n"),
    "capitals": Case(HEADER + "%RunScript\nx\n%%startscript\ny\n"),
    "apps": Case(
        "Bootstrap: localimage\nFrom: box\n%runscript\nx\n"  # apps need a shell
        + "%apprun my-app\nrun\n%appenv my-app\nexport A=b\n%apphelp my-app x\nhelp\n%applabels my-app\nC d\n"
        + "%apptest two\ntest\n%appstart two\nstart\n%appinstall two\n%apprun my-app\nmore\n"
    ),
    "two stages": Case(HEADER + "Stage: one\n%labels\nA b\n# between\n" + HEADER + "%runscript\nx\n"),
    "arguments": Case(
        HEADER
        + "%arguments\nA=1\n B = {{ A }}2 \nC={{ B }}\nno\n%runscript\n{{ A }} {{B}} {{ C }} #{{ A }}\n# {{ D }}\n"
        + "x#y {{ D }}\n#!{{ E }}\n%labels\nL {{ E }}\n",
        {"E": "e {{ A }}", "A": "one"},
    ),
    "argument in header": Case("Bootstrap: {{ B }}\n%arguments\nB=scratch\n%labels\nA b\n"),
    "undefined argument": Case(HEADER + "%runscript\n{{ A }}\n"),
    "unknown section": Case(HEADER + "%configure\nx\n"),
    "blank before section": Case(HEADER + " %runscript\nx\n"),
    "blank after sign": Case(HEADER + "% runscript\nx\n"),
    "tab after section": Case(HEADER + "%runscript\t-e\nx\n"),
    "app without name": Case(HEADER + "%apprun\nx\n"),
    "app with two blanks": Case(HEADER + "%apprun  x\ny\n"),
    "app in capitals": Case(HEADER + "%AppRun x\ny\n"),
    "unknown key": Case(HEADER + "Foo: bar\n"),
    "no colon": Case(HEADER + "hello\n"),
    "no header": Case("%runscript\nx\ny\n"),
    "late bootstrap": Case("From: x\n" + HEADER),
    "empty": Case("\n# nothing\n"),
    "bad interpreter": Case(HEADER + "%setup -c\nx\n"),
    "unknown stage": Case(HEADER + "%files from one\n/x\n"),
}
PIECES = (
    *("%runscript\n", "%labels\n", "%environment\n", "%help\n", "%arguments\n", "%startscript -e\n", "A b\n"),
    *("x=1\n", "{{ x }} {{y}}\n", "# {{ x }}\n", "#{{x}}\n", "a # b\n", "\n", "\r\n", "  ", "\t", "Stage: s\n"),
    *("Bootstrap: scratch\n", "bootstrap:scratch\n", "x: y\n", "%help more # c\n", "#!/bin/bash\n", "z\n"),
    *("export A=b\n",),
)


def generate_cases(count: int) -> dict[str, Case]:
    """Files put together by chance, the same ones every time."""
    chance = random.Random(13)
    cases = {}
    for number in range(count):
        text = HEADER + "".join(chance.choices(PIECES, k=chance.randint(2, 12)))
        cases[f"generated {number}"] = Case(text, {"y": "2"} if "{{y}}" in text and "# {{" not in text else {})
    return cases


CASES |= generate_cases(30)


QUESTIONS = {name: (case.text, dict(case.arguments)) for name, case in CASES.items()}


def ask_apptainer(names: list[str]) -> dict[str, Any]:
    """What Apptainer makes of some cases; None where it refuses."""
    with apptainer_folder() as peer:
        return build_all(peer, names)


def build_all(peer: Apptainer, names: list[str]) -> dict[str, Any]:
    programs = peer.folder / "box/bin"
    programs.mkdir(parents=True)
    (programs / "busybox").write_bytes(read_busybox())
    (programs / "busybox").chmod(0o755)
    (programs / "sh").symlink_to("busybox")
    peer.own(peer.folder / "box")
    commands: list[tuple[str | Path, ...]] = []
    for number, case in enumerate(CASES[name] for name in names):
        (peer.folder / f"{number}.def").write_bytes(case.text.encode())
        given = [f"--build-arg={key}={value}" for key, value in case.arguments.items()]
        commands.append(("build", "--notest", *given, "--sandbox", f"out{number}", f"{number}.def"))
    answers = peer.answer(*commands)
    return {
        name: read_own_parts(read_files(peer.folder / f"out{number}")) if answers[number][0] == 0 else None
        for number, name in enumerate(names)
    }


def read_files(tree: Path) -> dict[str, bytes]:
    """All files of a directory, by their paths in it."""
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    return {f"/{path.relative_to(tree)}": path.read_bytes() for path in files}


def write_ours(case: Case) -> dict[str, bytes] | None:
    """The files of our plan; None where we refuse."""
    try:
        recipe = make_recipe(case.text, "x.def", BuildArguments(case.arguments))
    except InvalidRecipe:
        return None
    if recipe.unused_arguments:
        return None
    tree: dict[str, bytes] = {}
    for step in recipe.target.plan({}).steps:
        if isinstance(step, WriteFilesStep):
            tree |= {file.path: file.data for file in settle_files(step, tree.get).files}
    return tree


def read_own_parts(tree: Mapping[str, bytes]) -> dict[str, Any]:
    """What the sections decide, as JSON can hold it: no text that every image has."""
    parts: dict[str, Any] = {
        path.removeprefix(FOLDER): data
        for path, data in tree.items()
        if path.startswith("/scif/") or path.removeprefix(FOLDER) in ("test", "runscript.help", "Singularity")
    }
    for name in ("runscript", "startscript"):
        lines = tree[FOLDER + name].split(b"\n")
        parts[name] = [line for line in lines if line and not line.startswith(b"# ")]
    parts["environment"] = tree[FOLDER + "env/90-environment.sh"].partition(PREAMBLE)[2].strip(b"\n")
    labels = json.loads(tree[FOLDER + "labels.json"])
    parts["labels"] = {key: value for key, value in labels.items() if not _is_automatic(key)}
    parts["apps"] = tree[FOLDER + "env/94-appsbase.sh"]
    return {key: _sort_exports(value) for key, value in parts.items()}


def _is_automatic(label: str) -> bool:
    return label.startswith("org.") and ".deffile." not in label


def _sort_exports(value: Any) -> Any:
    """Text instead of bytes, names behind `export` in any order."""
    if isinstance(value, list):
        return [line.decode() for line in value]
    if not isinstance(value, bytes):
        return value
    lines = value.decode().split("\n")
    return [" ".join(sorted(line.split())) if line.startswith("export SCIF") else line for line in lines]


def test_definitions_mean_the_same_to_apptainer() -> None:
    theirs = recall("definitions", QUESTIONS, ask_apptainer)
    assert len(theirs) > 50
    wrong = []
    for name, case in CASES.items():
        tree = write_ours(case)
        ours = None if tree is None else read_own_parts(tree)
        if ours != theirs[name]:
            wrong.append(f"{name}:\n{case.text}\nmeans to kedge:   {ours}\nto Apptainer: {theirs[name]}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.root
def test_definitions_are_recorded_as_apptainer_takes_them() -> None:
    assert find_changes("definitions", QUESTIONS, ask_apptainer) == []
