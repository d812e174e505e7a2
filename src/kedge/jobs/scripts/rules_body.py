# SPDX-License-Identifier: BSD-3-Clause
"""Rules about what a script runs: containers, ranks, images and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kedge.base.secret_text import has_secret
from kedge.base.shell_text import Word, find_commands
from kedge.cluster.job import LAUNCHERS
from kedge.cluster.launchers.known import list_launchers
from kedge.jobs.scripts.containers import SINGULARITY, find_pulls
from kedge.jobs.scripts.findings import Case, CheckResult
from kedge.jobs.scripts.script import ContainerCall
from kedge.jobs.scripts.variables import find_values, resolve_word

_PORT = re.compile(
    r"(?:\bMASTER_PORT=|--master[_-]port[= ]|--rdzv[_-]endpoint[= ]\S*:|--main_process_port[= ])[\"']?(\d+)\b(?!\$)"
)
_PLACEHOLDER = re.compile(r"(?<![<>&\w])<[A-Za-z](?:[\w .-]{0,30}\w)?>(?=[\s:/,;'\".]|$)")
# lines whose angle brackets are meant: messages, patterns, includes, tags
_BRACKETS = re.compile(r"\s*(?:echo|printf|sed|grep|egrep|awk|perl|tee|cat|[%#]include|<)|.*(?:</|/>)")
# commands that show their words, by their own names and by those that people give to functions
_SHOWS = re.compile(
    r"(?:\w*_)?(?:echo|printf?|die|fail|err|error|warn|warning|info|debug|log|logger|usage|help|abort|fatal|panic|msg|"
    r"message|note|say)(?:_\w*)?",
    re.IGNORECASE,
)
_MARK = re.compile(r"([\"'])<[\w.-]+>\1")
_MESSAGE = re.compile(r"\$\{\w+:?\?[^}]*\}")  # ${1:?text}
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_MOST_CALLS = 100  # whose images are looked for
# GPUs of AMD: images for them bring what they need, and singularity shows all devices anyway
_AMD = re.compile(r"rocm|ROCR_|HIP_VISIBLE|MIOPEN|\blumi\b|mi[23]\d\d[ax]?\b|\b(?:standard|small|dev)-g\b", re.I)
_GPU_OPTIONS = re.compile(r"--gpus|--gres|--gpu-bind|--tres-per|-G")
_OWN = re.compile(rf"(?:{'|'.join(map(re.escape, list_launchers('own')))})(?:\.\w+)?")
_REMOTE = ("docker://", "oras://", "library://", "shub://", "http://", "https://")


def _check_missing_nv(case: Case) -> Iterator[CheckResult]:
    if not case.will_have_gpus or _AMD.search(case.script.text):
        return
    for call in case.script.containers:
        if not call.gives_gpus:
            yield CheckResult(
                call.line,
                f"the job has GPUs, but the container does not see them: {call.program} {call.verb} has no --nv",
            )


def _check_needless_nv(case: Case) -> Iterator[CheckResult]:
    if case.will_have_gpus or not case.script.live or _may_have_gpus(case):
        return
    for call in case.script.containers:
        if call.has_option("--nv", "--nvccli", "--rocm"):
            yield CheckResult(call.line, "the container uses --nv, but the job requests no GPUs")
            return


def _may_have_gpus(case: Case) -> bool:
    """Whether GPUs may come without a word of the directives: with a queue or node, or asked for by srun alone."""
    words = [word.text for command in case.script.launchers for word in command.words]
    if case.request.get("exclusive") or any(_GPU_OPTIONS.match(word) for word in words):
        return True
    if any(_GPU_OPTIONS.match(directive.option) for directive in case.script.live):  # in a way that is not understood
        return True
    return case.queue is None and (
        not case.script.language.has_gpu_options or {"queue", "constraint"} & set(case.request.asked) != set()
    )


def _check_port(case: Case) -> Iterator[CheckResult]:
    for number, line in list_code(case):
        if (match := _PORT.search(line)) and match[1] != "0":
            yield CheckResult(
                number, f"the port {match[1]} is fixed: two jobs on one node collide there, and one of them hangs"
            )


def _check_inner_mpi(case: Case) -> Iterator[CheckResult]:
    if case.request.nodes < 2:
        return
    for call in case.script.containers:
        names = [word.text.rpartition("/")[2] for word in call.command[:1]]
        if names and names[0] in list_launchers("ranks") and not call.launcher:
            yield CheckResult(
                call.line,
                f"{names[0]} runs inside one container, and cannot start ranks on the other "
                f"{case.request.nodes - 1} nodes",
            )


def _check_first_node(case: Case) -> Iterator[CheckResult]:
    """Several nodes, one container without a launcher."""
    script = case.script
    if case.request.nodes < 2 or script.launchers or not script.containers:
        return
    if re.search(rf"\b({'|'.join(list_launchers('nodes'))})\b", script.text):
        return
    call = script.containers[0]
    own = find_own_starter(call.command)
    # srun before it would start it once per task, and it would not know of the other nodes all the same
    remedy = (
        f"start {own} once on each node, and tell it the others: kedge submit --torchrun --nodes N does" if own else ""
    )
    yield CheckResult(
        call.line, f"{case.request.nodes} nodes are requested, but the container runs on the first one only", remedy
    )


def find_own_starter(words: Sequence[Word]) -> str:
    """The program among these that starts the processes of its node itself; empty where there is none."""
    names = (part.rpartition("/")[2] for word in words for part in word.text.split())
    return next((name for name in names if _OWN.fullmatch(name)), "")


def _check_placeholders(case: Case) -> Iterator[CheckResult]:
    live = case.script.live_lines
    for number, line in enumerate(case.script.text.split("\n"), 1):
        if number in case.script.inner_lines or _BRACKETS.match(line):
            continue
        code = line[:1] + _COMMENT.sub("", line[1:]) if number in live else _COMMENT.sub("", line)
        if number not in live and _PLACEHOLDER.search(code):
            code = _drop_messages(code)
        if match := _PLACEHOLDER.search(code):
            yield CheckResult(number, f"{match.group()} is a placeholder: replace it")


def _drop_messages(line: str) -> str:
    """A line without texts that are shown to users, and without quoted words such as "<s>", which are meant so."""
    line = _MESSAGE.sub(" ", line)
    for command in find_commands(line):
        shows = _SHOWS.fullmatch(command.name)
        for word in command.words:
            if _MARK.fullmatch(word.raw) or (shows and word.raw[:1] in ("'", '"')):
                line = line.replace(word.raw, " ")
    return line


def _check_image(case: Case) -> Iterator[CheckResult]:
    commands = case.script.commands
    made = " ".join(command.source for command in find_pulls(commands))
    values = find_values(commands)
    moved = next((each.line for each in commands if each.name in ("cd", "pushd")), None)
    seen = set()
    for call in case.script.containers[:_MOST_CALLS]:
        name = _image_file(call, values)
        if not name or name in seen or name.rpartition("/")[2] in made:
            continue
        seen.add(name)
        moves = moved is not None and moved <= call.line
        if (name.startswith("/") or not moves) and case.has_file(name) is False:
            yield CheckResult(
                call.line, f"the image {name} does not exist", f"get it first: kedge pull {name} REFERENCE"
            )


def _image_file(call: ContainerCall, values: Mapping[str, str]) -> str:
    """The file of the image, when there is one and its name is certain."""
    name = resolve_word(call.image, values) if call.image else None
    if not name or "://" in name or call.program not in (*SINGULARITY, "srun"):
        return ""
    return "" if call.program == "srun" and not name.startswith(("/", "./")) else name


def _check_remote_image(case: Case) -> Iterator[CheckResult]:
    for call in case.script.containers:
        if call.program == "srun" or call.image is None or not call.image.text.startswith(_REMOTE):
            continue
        launched = bool(call.launcher) and call.launcher[0].text in LAUNCHERS
        many = "array" in case.request.asked or (launched and (case.request.tasks_per_node * case.request.nodes) > 1)
        if many:
            yield CheckResult(call.line, f"every task downloads {call.image.text} at the same time")


def _check_pull(case: Case) -> Iterator[CheckResult]:
    for command in find_pulls(case.script.commands):
        if case.site is not None and case.site.pull == "in-job":
            continue  # which is what the site wants
        yield CheckResult(command.line, "the job pulls or builds the image while its GPUs and nodes are idle")


def _check_binds(case: Case) -> Iterator[CheckResult]:
    for call in case.script.containers:
        for name, value in call.options:
            if name != "--bind" or value is None:
                continue
            for bind in value.text.split(","):
                target = bind.split(":")[1] if ":" in bind else ""
                if target and not target.startswith(("/", "$", "~")):
                    yield CheckResult(call.line, f"the bind {bind} has a relative target, which no runtime accepts")


def _check_secrets(case: Case) -> Iterator[CheckResult]:
    for number, line in enumerate(case.script.text.split("\n"), 1):
        if has_secret(line):
            yield CheckResult(
                number, "the script contains a password, token or key: everyone who can read it or a copy sees it"
            )


def list_code(case: Case) -> Iterator[tuple[int, str]]:
    """The lines of the script that are no comments."""
    return ((number, line) for number, line in case.script.body if not line.lstrip().startswith("#"))


CHECKS = {
    "missing-nv": _check_missing_nv,
    "nv-without-gpus": _check_needless_nv,
    "fixed-port": _check_port,
    "mpirun-inside": _check_inner_mpi,
    "first-node-only": _check_first_node,
    "placeholder": _check_placeholders,
    "missing-image": _check_image,
    "remote-image": _check_remote_image,
    "pull-in-job": _check_pull,
    "relative-bind": _check_binds,
    "secret-in-script": _check_secrets,
}
