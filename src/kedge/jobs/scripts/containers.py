# SPDX-License-Identifier: BSD-3-Clause
"""The containers, launchers and modules in the commands of a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kedge.base.shell_text import KEYWORDS, Command, Word
from kedge.cluster.launchers.known import list_launchers
from kedge.cluster.schedulers.slurm.options import srun_wants_value
from kedge.jobs.scripts.script import ContainerCall

_LAUNCHERS = list_launchers("tasks")
SINGULARITY = ("singularity", "apptainer", "kedge", "singularity-ce")
_VERBS = ("exec", "run", "shell", "test", "start")
# options of apptainer and singularity that are followed by a value
_VALUE_OPTIONS = """
--bind --env --env-file --home --overlay --scratch --workdir --pwd --cwd --app --mount --network --network-args
--dns --hostname --fusemount --security --add-caps --drop-caps --apply-cgroups --cpus --memory --shell --pem-path
--blkio-weight --blkio-weight-device --cpu-shares --cpuset-cpus --cpuset-mems --memory-reservation --memory-swap
--pids-limit --device --cdi-dirs --docker-host --authfile --no-mount --no-tmp-sandbox-dir --netns-path --arch
--runtime
"""
_VALUES = frozenset(_VALUE_OPTIONS.split())
_LETTERS = {
    "-B": "--bind",
    "-H": "--home",
    "-o": "--overlay",
    "-S": "--scratch",
    "-W": "--workdir",
    "-s": "--shell",
    "-e": "--cleanenv",
    "-c": "--contain",
    "-C": "--containall",
    "-i": "--ipc",
    "-p": "--pid",
    "-u": "--userns",
    "-w": "--writable",
    "-f": "--fakeroot",
    "-n": "--net",
}
_SHIFTER_VALUES = ("--image", "--volume", "-V", "--workdir", "-w", "--env", "-e", "--module", "-m", "--env-file")
_ENROOT_VALUES = ("--mount", "-m", "--env", "-e", "--rc", "--conf", "-c", "--output", "-o", "--arch", "-a", "--name")


def find_containers(commands: Iterable[Command]) -> tuple[ContainerCall, ...]:
    """Every container that is started, not those that are only pulled or built."""
    return tuple(call for command in commands if (call := _read_call(command)) is not None)


def find_launchers(commands: Iterable[Command]) -> tuple[Command, ...]:
    """The commands that start others on nodes or tasks."""
    return tuple(
        command for command in commands if any(word.text in _LAUNCHERS for word in skip_prefix(command.words)[:1])
    )


def find_modules(commands: Iterable[Command]) -> tuple[tuple[int, str], ...]:
    """Line and name of everything that `module load`, `module add` or `ml` loads."""
    return tuple((command.line, name) for command in commands for name in _read_modules(command))


def find_pulls(commands: Iterable[Command]) -> tuple[Command, ...]:
    """The commands that get or build an image."""
    return tuple(command for command in commands if _is_pull([word.text for word in skip_prefix(command.words)]))


def _is_pull(words: Sequence[str]) -> bool:
    program = ""
    for word in words:
        if word.startswith("-"):
            continue
        if (program in SINGULARITY and word in ("pull", "build")) or (program == "enroot" and word == "import"):
            return True
        program = word.rsplit("/", 1)[-1]
    return False


def skip_prefix(words: Sequence[Word]) -> Sequence[Word]:
    """The words behind keywords and assignments, as in `if A=1 srun ...`."""
    index = 0
    while index < len(words) and (
        words[index].raw in KEYWORDS or words[index].is_assignment or _is_wrapper(words[index])
    ):
        index += 1
    return words[index:]


def _is_wrapper(word: Word) -> bool:
    return word.text in ("exec", "nohup", "command", "env")


def _read_modules(command: Command) -> Iterator[str]:
    words = [word.text for word in skip_prefix(command.words)]
    if not words:
        return
    if words[0] == "module":
        rest = [word for word in words[1:] if not word.startswith("-")]
        names = rest[1:] if rest[:1] in (["load"], ["add"]) else []
    elif words[0] == "ml":
        rest = words[1:]
        names = rest[1:] if rest[:1] in (["load"], ["add"]) else [] if rest[:1] == ["purge"] else rest
    else:
        return
    yield from (name for name in names if not name.startswith("-"))


def _read_call(command: Command) -> ContainerCall | None:
    words = skip_prefix(command.words)
    if words and words[0].text == "srun" and (call := _read_pyxis(command, words)) is not None:
        return call
    for index, word in enumerate(words):
        name = word.text.rsplit("/", 1)[-1]
        if name in SINGULARITY and (call := _read_singularity(command, words, index, name)) is not None:
            return call
        if name == "enroot" and index + 1 < len(words) and words[index + 1].text == "start":
            return _read_other(command, words, index, _ENROOT_VALUES, skip=2)
        if name == "shifter":
            return _read_other(command, words, index, _SHIFTER_VALUES, skip=1)
        if index and word.text in ("echo", "printf"):
            return None
    return None


def _read_singularity(command: Command, words: Sequence[Word], index: int, name: str) -> ContainerCall | None:
    """`apptainer [GLOBAL] exec|run [OPTIONS] IMAGE [COMMAND...]`."""
    position = index + 1
    while position < len(words) and words[position].text.startswith("-"):
        position += 1
    if position < len(words) and words[position].text == "instance":
        position += 1
    if position >= len(words) or words[position].text not in _VERBS:
        return None
    verb = words[position].text
    options, rest = _cut_container_options(words[position + 1 :])
    return ContainerCall(
        line=command.line,
        program=name,
        verb=verb,
        options=tuple(options),
        image=rest[0] if rest else None,
        command=tuple(rest[1:]),
        launcher=tuple(words[:index]),
        source=command,
    )


def _cut_container_options(words: Sequence[Word]) -> tuple[list[tuple[str, Word | None]], Sequence[Word]]:
    """Options of `apptainer exec` by their long names, and the words from the image on."""
    options: list[tuple[str, Word | None]] = []
    position = 0
    while position < len(words) and words[position].text.startswith("-"):
        word = words[position]
        position += 1
        if word.text == "--":
            break
        name, equals, _ = word.text.partition("=")
        if not name.startswith("--") and len(name) > 2:  # -B/data, or flags in a bunch: -ce
            options += _cut_letters(word)
            continue
        name = _LETTERS.get(name, name)
        if equals:
            options.append((name, _cut_value(word, len(word.text) - len(word.text.partition("=")[2]))))
        elif name in _VALUES and position < len(words):
            options.append((name, words[position]))
            position += 1
        else:
            options.append((name, None))
    return options, words[position:]


def _cut_letters(word: Word) -> list[tuple[str, Word | None]]:
    found: list[tuple[str, Word | None]] = []
    for index, letter in enumerate(word.text[1:], 1):
        name = _LETTERS.get(f"-{letter}", f"-{letter}")
        if name in _VALUES:
            return [*found, (name, _cut_value(word, index + 1))]
        found.append((name, None))
    return found


def _cut_value(word: Word, start: int) -> Word:
    """The part of a word behind its first characters, which are no quotes in practice."""
    text = word.text[start:].removeprefix("=")
    raw = word.raw[start:].removeprefix("=") if word.raw.startswith(word.text[:start]) else text
    return Word(raw, text, word.is_literal)


def _read_pyxis(command: Command, words: Sequence[Word]) -> ContainerCall | None:
    """`srun --container-image=IMAGE [OPTIONS] COMMAND...`; the options of srun itself stay with the launcher."""
    options: list[tuple[str, Word | None]] = []
    launcher, position, image = [words[0]], 1, None
    while position < len(words) and words[position].text.startswith("-"):
        word = words[position]
        name, equals, _ = word.text.partition("=")
        position += 1
        value: Word | None = _cut_value(word, len(name)) if equals else None
        if not equals and srun_wants_value(name) and position < len(words):
            value = words[position]
            position += 1
        if name == "--container-image":
            image = value
        elif "container-" in name:
            options.append((name, value))
        else:
            launcher += [word] if equals or value is None else [word, value]
    if image is None:
        return None
    return ContainerCall(
        line=command.line,
        program="srun",
        verb="",
        options=tuple(options),
        image=image,
        command=tuple(words[position:]),
        launcher=tuple(launcher),
        source=command,
    )


def _read_other(
    command: Command, words: Sequence[Word], index: int, values: Sequence[str], *, skip: int
) -> ContainerCall:
    """`enroot start [OPTIONS] NAME COMMAND...` and `shifter [--image=IMAGE] COMMAND...`."""
    options: list[tuple[str, Word | None]] = []
    position, image = index + skip, None
    while position < len(words) and words[position].text.startswith("-"):
        word = words[position]
        name, equals, _ = word.text.partition("=")
        position += 1
        value = _cut_value(word, len(name)) if equals else None
        if not equals and name in values and position < len(words):
            value = words[position]
            position += 1
        if name == "--image":
            image = value
        else:
            options.append((name, value))
    program = words[index].text.rsplit("/", 1)[-1]
    rest = words[position:]
    if program == "enroot" and rest:
        image, rest = rest[0], rest[1:]
    verb = "start" if program == "enroot" else ""
    return ContainerCall(
        line=command.line,
        program=program,
        verb=verb,
        options=tuple(options),
        image=image,
        command=tuple(rest),
        launcher=tuple(words[:index]),
        source=command,
    )
