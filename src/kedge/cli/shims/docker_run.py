# SPDX-License-Identifier: BSD-3-Clause
"""`docker run` and `docker exec` in kedge's words: a container as Docker's users expect it, without a daemon.

Nothing of the host is inside but what -v names; the root can be written, and changes are lost at the end; the user is
root. The host's network is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.nearest import propose
from kedge.base.words_of_other_tools import CONTAINER_HABITS
from kedge.cli.shims.shim_meaning import Meaning
from kedge.errors import UsageError
from kedge.system.files import explained

_IDLE = (
    *("--rm", "-i", "--interactive", "-t", "--tty", "--init", "--privileged", "--no-healthcheck", "-q", "--quiet"),
    *("--oom-kill-disable", "--sig-proxy", "--disable-content-trust"),
)
_IDLE_VALUES = (
    *("--name", "--shm-size", "--ulimit", "--restart", "--security-opt", "--cap-add", "--cap-drop", "-l", "--label"),
    *("--log-driver", "--log-opt", "--stop-signal", "--stop-timeout", "--add-host", "--cidfile", "--label-file"),
    *("--runtime", "--userns", "--cgroupns", "--cgroup-parent", "--device-cgroup-rule", "--detach-keys", "--group-add"),
    *(
        "--health-cmd",
        "--health-interval",
        "--health-retries",
        "--health-timeout",
        "--isolation",
        "--memory-swappiness",
    ),
    *("--mac-address", "--ip", "--oom-score-adj", "--sysctl", "--storage-opt", "--uts", "--expose", "--link", "--dns"),
)
_PASSED_VALUES = {
    **{"-w": "--pwd", "--workdir": "--pwd", "-h": "--hostname", "--hostname": "--hostname", "--mount": "--mount"},
    **{"-m": "--memory", "--memory": "--memory", "--cpus": "--cpus", "--pids-limit": "--pids-limit"},
    **{"--cpuset-cpus": "--cpuset-cpus", "--cpuset-mems": "--cpuset-mems", "-c": "--cpu-shares"},
    **{"--cpu-shares": "--cpu-shares", "--memory-swap": "--memory-swap"},
    **{"--tmpfs": "--scratch", "--platform": "--arch", "--pull": "--pull"},
}
_READ_VALUES = (
    *(
        "-v",
        "--volume",
        "-e",
        "--env",
        "--gpus",
        "-u",
        "--user",
        "--entrypoint",
        "-p",
        "--publish",
        "--network",
        "--net",
    ),
    *("--ipc", "--pid", "--device", "--env-file"),
)
_READ = ("-d", "--detach", "-P", "--publish-all", "--read-only")
_LETTERS = "itdqP"  # short options without a value, which may stand together
_PORTS = "-p is ignored: containers use the host's network, so every port is open already"


@dataclass(slots=True)
class _Run:
    """The options of one `docker run`, as far as they were read."""

    program: str
    environ: Mapping[str, str]
    words: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    entrypoint: str | None = None
    is_root: bool = True
    is_written: bool = True
    shares: set[str] = field(default_factory=set)  # namespaces of the host that stay: ipc, pid

    def take(self, name: str, value: str) -> None:
        """Take one option that has a value."""
        takers = {
            **dict.fromkeys(("-v", "--volume"), self._take_volume),
            **dict.fromkeys(("-e", "--env"), self._set_variable),
            "--env-file": self._take_file,
            "--gpus": self._take_gpus,
            "--device": self._take_device,
        }
        if name in _PASSED_VALUES:
            self.words += [_PASSED_VALUES[name], value.partition(":")[0] if name == "--tmpfs" else value]
        elif name in takers:
            takers[name](value)
        elif name in ("-p", "--publish"):
            self.warnings = [*(text for text in self.warnings if text != _PORTS), _PORTS]
        else:
            self._take_place(name, value)

    def _take_place(self, name: str, value: str) -> None:
        """Take an option that says as whom, what and in which namespaces to run."""
        if name in ("-u", "--user"):
            self.is_root = value.partition(":")[0] in ("0", "root")
        elif name == "--entrypoint":
            self.entrypoint = value
        elif name in ("--network", "--net") and value == "none":
            self.words += ["--net", "--network", "none"]
        elif name in ("--ipc", "--pid") and value == "host":
            self.shares.add(name[2:])

    def switch(self, name: str) -> None:
        """Take one option without a value."""
        if name in ("-d", "--detach"):
            raise UsageError(
                f"'{self.program} run -d' needs a daemon, which kedge has not",
                hint="to start a container in the background: kedge instance run docker://IMAGE NAME",
            )
        if name == "--read-only":
            self.is_written = False
        elif name in ("-P", "--publish-all"):
            self.take("-p", "")

    def _take_volume(self, value: str) -> None:
        source = value.partition(":")[0]
        if not source.startswith(("/", "./", "../", "~")) and source not in (".", ".."):
            raise UsageError(f"kedge has no volume '{source}'", hint="name a directory: -v /path/on/host:/path/inside")
        if ":" not in value:
            raise UsageError(
                f"kedge has no anonymous volumes: -v {value}", hint=f"for an empty directory: --tmpfs {value}"
            )
        _, inside, *options = value.split(":", 2)
        kept = [option for option in "".join(options).split(",") if option in ("ro", "rw")]
        folder = Path.cwd() / Path(source).expanduser()
        self.words += ["--bind", ":".join([str(folder), inside, *kept])]

    def _take_file(self, value: str) -> None:
        """Docker's files have no quotes and no shell: a line is a name and all that follows."""
        with explained(value):
            text = Path(value).read_text(encoding="utf-8", errors="surrogateescape")
        for line in text.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                self._set_variable(line.lstrip())

    def _set_variable(self, value: str) -> None:
        """Set variables by kedge's own: a value may have commas, which --env takes for the next name."""
        name, equals, text = value.partition("=")
        if equals or name in self.environ:
            self.variables[f"KEDGEENV_{name}"] = text if equals else self.environ[name]

    def _take_gpus(self, value: str) -> None:
        """`all`, `2`, `device=0,1`, `"device=0,1"`."""
        text = value.strip("\"'")
        self.words.append("--nv")
        if text.startswith("device="):
            self._set_variable(f"CUDA_VISIBLE_DEVICES={text.partition('=')[2]}")
        elif text.isdigit():
            self._set_variable(f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(int(text))))}")

    def _take_device(self, value: str) -> None:
        if "=" in value:  # CDI: vendor.com/class=name
            self.words += ["--device", value]
        else:
            self.words += ["--bind", value.partition(":")[0]]


def translate_run(program: str, verb: str, words: list[str], environ: Mapping[str, str]) -> Meaning:
    """Kedge's words for `docker run` or `docker exec`."""
    if {"-h", "--help"} & set(words[:1]):
        return Meaning(["exec" if verb == "exec" else "run", "--help"])
    if verb == "create":
        raise UsageError(
            f"'{program} create' needs a daemon, which kedge has not",
            hint=f"to run a command: {program} run IMAGE COMMAND",
        )
    run = _Run(program, environ)
    rest = _read_options(run, verb, words)
    if not rest:
        raise UsageError(f"'{program} {verb}' needs an image", hint=f"{program} {verb} IMAGE COMMAND")
    if verb == "exec":
        return Meaning(["exec", *run.words, f"instance://{rest[0]}", *rest[1:]], environ=run.variables)
    image, *command = rest
    container = ["--contain", *(f"--{name}" for name in ("ipc", "pid") if name not in run.shares), "--cleanenv"]
    container += ["--no-umask", "--no-eval", *(["--writable-tmpfs"] if run.is_written else [])]
    container += ["--fakeroot"] if run.is_root else []
    options = [*container, *run.words]
    reference = image if "://" in image else f"docker://{image}"
    if run.entrypoint is not None:
        inside = ([run.entrypoint] if run.entrypoint else []) + command
        return Meaning(["exec", *options, reference, *inside], environ=run.variables, warnings=run.warnings)
    return Meaning(["run", *options, reference, *command], environ=run.variables, warnings=run.warnings)


def _read_options(run: _Run, verb: str, words: list[str]) -> list[str]:
    """Read the options before the image; what is left begins with it."""
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        name, equals, value = words[position].partition("=")
        position += 1
        if name == "--":
            break
        if not name.startswith("--") and len(name) > 2:  # -it, -w/dir, -eA=1
            name, equals, value = _split_letters(run, words[position - 1])
        if name in _IDLE or name == "":
            continue
        if name in _READ:
            run.switch(name)
        elif name in _PASSED_VALUES or name in _READ_VALUES or name in _IDLE_VALUES:
            if not equals:
                value = "".join(words[position : position + 1])
                position += 1
            run.take(name, value)
        else:
            _refuse(run.program, verb, name)
    return words[position:]


def _split_letters(run: _Run, word: str) -> tuple[str, str, str]:
    """The option with a value in a word of letters, after those without; an empty name where there is none."""
    for index, letter in enumerate(word[1:], 1):
        if letter not in _LETTERS:
            value = word[index + 1 :].removeprefix("=")
            return f"-{letter}", value, value
        if letter in "dP":
            run.switch(f"-{letter}")
    return "", "", ""


def _refuse(program: str, verb: str, name: str) -> None:
    known = [*_IDLE, *_IDLE_VALUES, *_PASSED_VALUES, *_READ_VALUES, *_READ]
    hint = CONTAINER_HABITS.get(name) or propose(name, known) or "to list kedge's options: kedge run --help-all"
    raise UsageError(f"'{program} {verb} {name}' is not supported", hint=hint)
