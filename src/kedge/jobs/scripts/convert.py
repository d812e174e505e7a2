# SPDX-License-Identifier: BSD-3-Clause
"""A script -> a job, with a list of everything that could not be carried over. Nothing is dropped without a word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kedge.base.frozen import replace
from kedge.base.secret_text import mask_secrets
from kedge.base.shell_text import KEYWORDS, Command, Word
from kedge.cluster.job import Job, Parallel
from kedge.cluster.schedulers.choose import find_facts, list_facts
from kedge.cluster.schedulers.directive import Directive
from kedge.cluster.schedulers.script_request import Left, ScriptRequest
from kedge.cluster.schedulers.slurm.language import LANGUAGE, READERS
from kedge.cluster.site import Site
from kedge.errors import InvalidJob
from kedge.jobs.scripts.read_request import read_request
from kedge.jobs.scripts.script import BatchScript, ContainerCall
from kedge.jobs.scripts.shell_differences import (
    find_change,
    find_doubt,
    find_expanded,
    find_run_doubt,
    is_module_setup,
    is_only_arguments,
    sets_arguments,
)
from kedge.jobs.scripts.variables import (
    find_names,
    find_own_names,
    find_values,
    resolve_word,
    resolve_words,
    uses_arguments,
)

_SAME = """name nodes tasks tasks_per_node cpus_per_task gpu_type memory memory_per_cpu memory_per_gpu time exclusive
account queue qos reservation constraint array dependencies begin mail mail_on output error directory environment"""
# names that mean something on one cluster only
_LOCAL = {
    "queue": "the queue",
    "qos": "the QOS",
    "reservation": "the reservation",
    "constraint": "the constraint",
    "gpu_type": "the GPU type",
    "begin": "the start time",
    "dependencies": "the list of jobs it depends on",
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """The job, what is lost, and what was decided on the way; both with their lines."""

    job: Job
    left: tuple[Left, ...]
    remarks: tuple[tuple[int, str], ...]


def convert_script(script: BatchScript, *, target: str = "", site: Site | None = None) -> Conversion:
    """The job that a script describes. `target` is the scheduler it is for, `site` the place; empty: as before.

    Raises InvalidJob for what no job of kedge's can be: one of LSF or Flux, or a heterogeneous one.
    """
    _refuse(script)
    target = target or script.scheduler
    request = read_request(script, site)
    body = convert_body(script, request)
    fields = _take_fields(request, body.remarks)
    fields["environment"] = tuple(
        {**dict(fields.get("environment") or ()), **body.fields.pop("environment", {})}.items()
    )
    fields |= {key: value for key, value in body.fields.items() if value or value is False}
    left = [*_find_ignored(script), *body.left]
    if target == script.scheduler:
        kept = [loss for loss in request.left if loss.words and not loss.is_refused]
        fields["directives"] = tuple(_quote(directive.words) for directive in kept)
        left += [loss for loss in request.left if loss not in kept]
    else:
        left += request.left
        left += _drop_local(fields, request, site)
        left += _find_foreign(script, fields, target)
    fields.pop("parallel_environment", None)
    job = Job(**fields)
    _note_gpus(script, job, body.remarks)
    lost = [replace(loss, words=mask_secrets(loss.words), why=mask_secrets(loss.why)) for loss in left]
    return Conversion(job, tuple(sorted(lost, key=lambda each: each.line)), tuple(sorted(body.remarks)))


def _refuse(script: BatchScript) -> None:
    language = script.language
    if not language.is_read:
        title, prefix = language.facts.title, language.facts.prefix
        raise InvalidJob(
            f"kedge cannot convert a script for {title}: it does not read {prefix} lines",
            context={"scheduler": title},
            hint=f"replace the {prefix} lines by #SBATCH, #PBS or #$ lines that request the same",
        )
    between = next((directive for directive in script.live if directive.option in language.separators), None)
    if between is not None:
        raise InvalidJob(
            f"kedge cannot describe a heterogeneous job: line {between.line} begins a second part",
            context={"line": str(between.line), "directive": between.raw.strip()},
            hint=f"submit it with {language.facts.submit}, or split it into one job for each part",
        )


def _take_fields(request: ScriptRequest, remarks: list[tuple[int, str]]) -> dict[str, Any]:
    fields = {key: request.get(key) for key in _SAME.split() if key in request.asked}
    per_node = request.gpus_per_node
    if per_node:
        fields["gpus_per_node"] = per_node
    total = request.number("gpus")
    if total and "gpus_per_node" not in request.asked and request.nodes > 1:
        remarks.append((request.line("gpus"), f"{total} GPUs per job became {per_node} per node"))
    if limit := request.number("array_limit"):
        fields["array"] = replace(fields["array"], limit=limit) if "array" in fields else None
    if "mail_on" in fields and not fields.get("mail"):
        remarks.append((request.line("mail_on"), "kedge sends no mail: the script gives no address"))
        del fields["mail_on"]
    if request.get("join") and "output" in fields:
        fields.pop("error", None)
    return {key: value for key, value in fields.items() if value not in (None, "")}


def _quote(words: str) -> str:
    """A directive whose value has blanks or a # needs quotes."""
    name, equals, value = words.partition("=")
    if name.startswith("--") and equals and (" " in value or "#" in value) and '"' not in value:
        return f'{name}="{value}"'
    return words


def _find_ignored(script: BatchScript) -> list[Left]:
    """What the scheduler did not read is not carried over either; that of the same kind is worth a word."""
    return [
        Left(directive.line, "", f"the scheduler ignored it already: {directive.raw.strip()} ({directive.reason})")
        for directive in script.directives
        if not directive.is_live and directive.reason != "it is a comment"
    ]


def _drop_local(fields: dict[str, Any], request: ScriptRequest, site: Site | None) -> list[Left]:
    left = []
    for key, what in _LOCAL.items():
        if key not in fields or (key == "queue" and site is not None and site.find_queue(fields[key]) is not None):
            continue
        value = fields.pop(key)
        shown = ", ".join(each.job for each in value) if key == "dependencies" else value
        left.append(
            Left(
                request.line(key),
                "",
                f"{what} belongs to the old cluster: {shown}",
            )
        )
    return left


def _find_foreign(script: BatchScript, fields: dict[str, Any], target: str) -> list[Left]:
    """Variables that only the old scheduler sets, and the job still uses."""
    words = "\n".join([*fields.get("setup", ()), *fields.get("command", ()), *fields.get("container_options", ())])
    left = []
    for name in find_own_names(script.scheduler, words):
        line = next((number for number, text in script.body if name in text), 1)
        left.append(Left(line, "", f"{find_facts(target).title} does not set {name}, which the job uses"))
    return left


def _note_gpus(script: BatchScript, job: Job, remarks: list[tuple[int, str]]) -> None:
    if not job.image or not script.containers:
        return
    call = script.containers[0]
    if job.wants_gpus and not call.gives_gpus:
        remarks.append((call.line, "kedge adds --nv, because the script requests GPUs"))


# The commands of a script as fields of a job: one container and what comes before it, or the whole script as it is.

_SUBMIT_DIRECTORIES = "|".join(filter(None, (facts.submit_directory for facts in list_facts())))
_SUBMIT_FOLDER = re.compile(rf"\"?\$\{{?({_SUBMIT_DIRECTORIES})\}}?\"?/?\Z")
_RENDEZVOUS = re.compile(r"\s*(?:export\s+)?(?:MASTER_ADDR|MASTER_PORT|WORLD_SIZE)=[^;&|]*(?:\|[^;&]*)?\Z")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)=(?:[\w./:@+,${}-]*|\"[\w./:@+,$ {}-]*\"|'[^']*')\s*(?:(?<=\s)#.*)?\Z")
_MOST_COMMANDS = 1000  # among which exports are told apart
_MOST_LINES = 200  # that are looked at for variables that nothing uses
_OPEN_DOCUMENT = re.compile(r"\d*<<-?[^<'\"\\]*\Z")
_READS_OTHERS = re.compile(r"(?:^|[;&|\s])(?:source|\.|eval)\s")
# variables that the shell itself or programs look at, though no line names them
_KNOWN = re.compile(r"IFS|HOME|TMPDIR|LANG|GLOBIGNORE|\w*PATH|(?:LC|LD|PYTHON|OMP|SINGULARITY|APPTAINER|SLURM)\w*")
_OURS = ("export APPTAINER_BIND=",)  # what the conversion itself adds to 'setup'
_AFTER = ("wait", "exit", "echo", "date", "printf", "hostname")
_ARGUMENTS = "the script takes arguments ($1, ...): pass them with 'kedge submit -f FILE -- ARGUMENT ...'"
_INTERPRETERS = {"python": "-c", "perl": "-e", "ruby": "-e"}
_SHELLS = ("bash", "sh", "dash", "ksh", "zsh")


@dataclass(slots=True)
class Body:
    """Fields of the job, what could not be kept, and what was decided."""

    fields: dict[str, Any] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)


def convert_body(script: BatchScript, request: ScriptRequest) -> Body:
    """A container where there is exactly one and it ends the script; otherwise all of it, unchanged."""
    call, why = _find_single_call(script)
    if call is not None:
        asked = dict(request.asked)
        body = _convert_call(script, call, request)
        if isinstance(body, Body):
            return body
        why, request.asked = body, asked  # what a launcher asks for is its own again
    return _keep_whole(script, why)


def _find_single_call(script: BatchScript) -> tuple[ContainerCall | None, str]:
    """The one container that a script is for, or why there is none."""
    if _interpreter_of(script)[0] not in _SHELLS:
        return None, "it is not a shell script"
    if len(script.containers) != 1:
        return None, f"it starts {len(script.containers) or 'no'} containers"
    call = script.containers[0]
    if call.program not in ("singularity", "apptainer", "kedge", "singularity-ce", "srun") or call.verb in _OTHER_VERBS:
        return None, f"'{call.program} {call.verb}'".replace(" '", "'") + " has no counterpart"
    index = script.commands.index(call.source)
    if any(command.depth or (command.words and command.words[0].raw in KEYWORDS) for command in script.commands):
        return None, "it has loops, conditions or functions"
    if call.source.redirects or call.source.end not in ("\n", "", ";"):
        return None, "the container's input or output is redirected"
    if any(command.name not in _AFTER or command.end == "|" for command in script.commands[index + 1 :]):
        return None, "commands follow the container"
    if any(command.line == call.line and command.end not in ("&&", ";") for command in script.commands[:index]):
        return None, "the container's command is part of a larger one"
    if call.image is None:
        return None, "the container has no image"
    return call, ""


_OTHER_VERBS = ("shell", "test", "start")


def _convert_call(script: BatchScript, call: ContainerCall, request: ScriptRequest) -> Body | str:
    index = script.commands.index(call.source)
    before, after = script.commands[:index], script.commands[index + 1 :]
    values = find_values(before)
    image = resolve_word(call.image, values) if call.image else None
    if image is None or not image or image.startswith("-"):  # options in a variable look like the image
        return "the image name is unknown before the job runs"
    if problem := _find_problem(script, call, request, values, before):
        return problem
    if any(word.is_assignment for word in call.source.words[:1]):
        return "a variable is set for this command only"
    launch = read_launcher(call, request, values)
    if launch is None:
        return "another command stands between the launcher and the container"
    body = Body(left=list(launch.left), remarks=list(launch.remarks))
    body.fields["image"] = _name_image(image, call)
    _convert_before(script, before, call, body)
    problem = _convert_options(call, values, body)
    if problem:
        return problem
    _convert_command(call, values, launch, request, body)
    _set_launcher(call, launch, request, body)
    _drop_unused(body)
    if any(not line.startswith(_OURS) for line in body.fields["setup"]):
        body.remarks.append((call.line, "lines before the container became 'setup', where a failing line ends the job"))
    _note_folder(call, image, body)
    if call.has_option("--nv") and (not request.wants_gpus or call.has_option("--rocm")):
        body.fields["nv"] = True
    elif call.has_option("--rocm", "--nvccli") and request.wants_gpus:
        body.fields["nv"] = False  # which GPUs would bring along
    body.left += [Left(command.line, "", f"a command after the container: {command.source}") for command in after]
    return body


def _find_problem(
    script: BatchScript,
    call: ContainerCall,
    request: ScriptRequest,
    values: Mapping[str, str],
    before: Sequence[Command],
) -> str:
    """Why the script must stay whole: something would be expanded in another way, or not at all."""
    command = _cut_torchrun(call, request)
    if why := find_change(call, command, values, before, script.scheduler):
        return why
    options = [word.raw for _, word in call.options if word is not None]
    text = "\n".join([*(each.source for each in before), *_find_documents(script, call, before)])
    if uses_arguments("\n".join([text, *options, *(word.raw for word in call.launcher)])):
        return "lines before the container use the script's arguments"
    return find_doubt(call, values, before) or find_run_doubt(call, command, values)


def _find_documents(script: BatchScript, call: ContainerCall, before: Sequence[Command]) -> list[str]:
    """Lines of here documents in which the shell expands variables: those whose end has no quotes."""
    if not any(_OPEN_DOCUMENT.match(redirect) for command in before for redirect in command.redirects):
        return []
    return [line for number, line in script.body if number < call.line and number in script.inner_lines]


def _cut_torchrun(call: ContainerCall, request: ScriptRequest) -> Sequence[Word]:
    """The container's command without torchrun and its options, which kedge gives itself."""
    torchrun = read_torchrun(call.command, call.line) if request.tasks_per_node == 1 else None
    return call.command if torchrun is None else torchrun[1]


def _name_image(image: str, call: ContainerCall) -> str:
    """Pyxis writes REGISTRY#IMAGE:TAG for a reference."""
    if call.program != "srun" or image.startswith(("/", "./", "../")) or image.endswith((".sqsh", ".squashfs")):
        return image
    return "docker://" + image.removeprefix("docker://").replace("#", "/", 1).replace(":sha256:", "@sha256:")


def _convert_before(script: BatchScript, before: Sequence[Command], call: ContainerCall, body: Body) -> None:
    """Modules and literal exports get fields of their own; every other line is kept as it is, to run before.

    Fields come before lines, so that only what does not mind the order becomes one.
    """
    directives = {directive.line for directive in script.directives}  # some stand too late, among the commands
    lines = {number: text for number, text in script.body if number < call.line and number not in directives}
    modules: list[str] = []
    environment: dict[str, str] = {}
    alone = _find_alone(before)
    has_plain_modules = all(_is_load(each) or each.name not in ("module", "ml") for each in before)
    for index, command in enumerate(before):
        if command.line not in lines or command.line not in alone:
            continue
        words = [word.text for word in command.words]
        if _is_load(command) and has_plain_modules:
            modules += words[2:]
        elif words[:1] == ["export"] and _is_movable(command, index, before):
            environment |= dict(word.text.partition("=")[::2] for word in command.words[1:])
        elif words[:1] == ["cd"] and len(words) == 2 and _SUBMIT_FOLDER.match(command.words[1].raw):
            body.remarks.append((command.line, "dropped: jobs of kedge run in the directory they are submitted from"))
        elif is_module_setup(words) and has_plain_modules:
            body.remarks.append((command.line, "dropped: kedge's scripts set up modules themselves"))
        else:
            continue
        del lines[command.line]
    inner = script.inner_lines  # where a # is text
    lines = {number: text for number, text in lines.items() if number in inner or not text.lstrip().startswith("#")}
    setup = [text for _, text in sorted(lines.items())]
    setup += [each.source for each in before if each.line == call.line]
    body.fields["modules"] = tuple(modules)
    body.fields["environment"] = environment
    body.fields["setup"] = _trim(setup)


def _is_load(command: Command) -> bool:
    words = [word.text for word in command.words]
    return words[:2] in (["module", "load"], ["module", "add"], ["ml", "load"]) and _is_plain(command)


def _is_movable(command: Command, index: int, commands: Sequence[Command]) -> bool:
    """Whether an export can come before all other lines: literal, the only one of its names, unused before."""
    if (
        len(commands) > _MOST_COMMANDS
        or not _is_plain(command)
        or not all(word.is_assignment for word in command.words[1:])
    ):
        return False
    names = [word.text.partition("=")[0] for word in command.words[1:]]
    used = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    set_again = re.compile(rf"(?<![\w$])(?:{'|'.join(map(re.escape, names))})\+?=")
    before, after = commands[:index], commands[index + 1 :]
    return not any(used.search(each.source) for each in before) and not any(
        set_again.search(each.source) for each in after
    )


def _find_alone(commands: Sequence[Command]) -> set[int]:
    """Lines that hold one command, and nothing of another."""
    lines = Counter(command.line + offset for command in commands for offset in range(command.source.count("\n") + 1))
    return {command.line for command in commands if lines[command.line] == 1 and command.end in ("\n", "", ";")}


def _is_plain(command: Command) -> bool:
    """Whether nothing in it is expanded, redirected or spread over lines."""
    return all(word.is_literal for word in command.words) and not command.redirects and "\n" not in command.source


def _trim(lines: Sequence[str]) -> tuple[str, ...]:
    kept = [line.rstrip() for line in lines]
    while kept and not kept[0].strip():
        kept.pop(0)
    while kept and not kept[-1].strip():
        kept.pop()
    return tuple(line for index, line in enumerate(kept) if line.strip() or kept[index - 1].strip())


def _convert_options(call: ContainerCall, values: Mapping[str, str], body: Body) -> str:
    binds: list[str] = []
    later: list[str] = []  # binds that only the shell on the node can tell
    words: list[str] = []
    for name, value in call.options:
        known = None if value is None else resolve_word(value, values)
        if name in ("--bind", "--container-mounts") and value is not None:
            if known is None:
                later.append(value.raw)
            else:
                binds += [part for part in known.split(",") if part]
        elif name in ("--nv", "--no-container-mount-home", "--container-mount-home") and value is None:
            if name != "--nv":
                body.left.append(Left(call.line, "", f"the Pyxis option: {name}"))
        elif value is not None and known is None:
            return f"the value of {name} is unknown before the job runs"
        elif name.startswith("--container-"):
            words += {"--container-workdir": ["--pwd", known or ""]}.get(name, [])
            if name != "--container-workdir":
                body.left.append(Left(call.line, "", f"the Pyxis option: {name}={known or ''}"))
        else:
            words += [name] if known is None else [name, known]
    body.fields["binds"] = tuple(binds)
    body.fields["container_options"] = tuple(words)
    if later:
        body.fields["setup"] = (*body.fields["setup"], _write_binds(later))
        body.remarks.append(
            (call.line, "binds with variables became APPTAINER_BIND in 'setup', where the shell expands them")
        )
    return ""


def _write_binds(binds: Sequence[str]) -> str:
    """Binds with variables, which quotes in any other place would keep from being expanded."""
    plain = [bind[1:-1] if re.fullmatch(r'"[^"]*"', bind) else bind for bind in binds]
    if any("'" in bind or '"' in bind for bind in plain):
        return 'export APPTAINER_BIND="${APPTAINER_BIND:+$APPTAINER_BIND,}"' + ",".join(binds)
    return f'export APPTAINER_BIND="${{APPTAINER_BIND:+$APPTAINER_BIND,}}{",".join(plain)}"'


def _convert_command(
    call: ContainerCall, values: Mapping[str, str], launch: Launch, request: ScriptRequest, body: Body
) -> None:
    command: Sequence[Word] = call.command
    torchrun = read_torchrun(command, call.line) if request.tasks_per_node == 1 else None
    if torchrun is not None:
        options, command, left = torchrun
        body.left += left
        launch.parallel = Parallel.TORCHRUN
        processes = str(options.get("nproc_per_node", ""))
        if processes.isdecimal() and not request.wants_gpus:
            body.left.append(
                Left(call.line, "", f"kedge starts one process per GPU, and the script requests no GPUs: {processes}")
            )
    known = [resolve_words(word, values) for word in command]
    if all(words is not None for words in known):
        body.fields["command"] = tuple(word for words in known if words is not None for word in words)
    elif call.verb == "run" and is_only_arguments(command) and torchrun is None:
        body.fields |= {"command": (), "runscript": True}  # what is given at submission goes to the image's own script
        body.remarks.append((call.line, _ARGUMENTS))
    else:
        source = " ".join(word.raw for word in command)
        named = ("sh",) if uses_arguments(source) else ()  # $0: what is given at submission begins with $1
        body.fields["command"] = ("sh", "-c", f"exec {source}", *named)
        if launch.parallel is Parallel.TORCHRUN:
            body.fields["command"] = ("--no-python", "sh", "-c", f"exec python -u {source}", *named)
        if named:
            body.remarks.append((call.line, _ARGUMENTS))
        _export_names(find_expanded(command), call, body)
    if call.verb == "run" and body.fields["command"] and launch.parallel is not Parallel.TORCHRUN:
        body.fields["runscript"] = True


def _export_names(used: Sequence[str], call: ContainerCall, body: Body) -> None:
    """Variables in the command are now the container's to expand, so it must see them."""
    if used:
        body.remarks.append((call.line, "sh expands the command's variables inside the container"))
    setup = "\n".join(body.fields["setup"])
    names = [name for name in used if re.search(rf"(?<![\w$]){name}\+?=", setup)]
    if names:
        body.fields["setup"] = (*body.fields["setup"], f"export {' '.join(names)}")


def _note_folder(call: ContainerCall, image: str, body: Body) -> None:
    changes = any(re.match(r"\s*(cd|pushd)\s", line) for line in body.fields["setup"])
    if changes and not image.startswith("/") and "://" not in image:
        text = f"'kedge submit' looks for {image} in the directory you submit from, but 'setup' changes the directory"
        body.remarks.append((call.line, text))


def _drop_unused(body: Body) -> None:
    """Variables that held the name of the image, say, and that nothing uses any more; nobody else sees them."""
    setup = list(body.fields["setup"])
    if any(_READS_OTHERS.search(line) for line in setup):
        return  # what is read there sees them
    kept = find_names("\n".join(body.fields["command"]))  # a shell in the container may know them from outside
    dropped = True
    while dropped and len(setup) <= _MOST_LINES:  # one that is dropped may have been the last to use another
        dropped = False
        for index in reversed(range(len(setup))):
            match = _ASSIGNMENT.match(setup[index])
            rest = "\n".join(setup[:index] + setup[index + 1 :])
            if match is None or match[1] in kept or _KNOWN.fullmatch(match[1]):
                continue
            if not re.search(rf"\b{match[1]}\b", rest):
                del setup[index]
                dropped = True
    body.fields["setup"] = _trim(setup)


def _set_launcher(call: ContainerCall, launch: Launch, request: ScriptRequest, body: Body) -> None:
    parallel = launch.parallel
    if parallel is Parallel.TASKS and request.tasks_per_node * request.nodes == 1:
        parallel = Parallel.SINGLE
    body.fields["parallel"] = parallel
    if parallel is Parallel.TORCHRUN:
        body.fields["setup"] = tuple(line for line in body.fields["setup"] if not _RENDEZVOUS.match(line))
        body.remarks.append((call.line, "kedge itself sets MASTER_ADDR, MASTER_PORT and WORLD_SIZE for torchrun"))
    elif parallel is Parallel.MPI and launch.program != "srun":
        body.fields["launcher"] = launch.program


def _keep_whole(script: BatchScript, why: str) -> Body:
    body = Body()
    program, *arguments = _interpreter_of(script)
    text = "\n".join(line for _, line in script.body).strip("\n")
    if text:
        flag = next((flag for name, flag in _INTERPRETERS.items() if program.startswith(name)), "-c")
        named = (program,) if program in _SHELLS and (uses_arguments(text) or "$0" in text) else ()
        body.fields["command"] = (program, *arguments, flag, text, *named)
        if uses_arguments(_cut_at_set(script, text)):
            body.remarks.append((script.body[0][0], _ARGUMENTS))
        body.remarks.append((script.body[0][0], f"the commands stay unchanged and run on the node, because {why}"))
    return body


def _cut_at_set(script: BatchScript, text: str) -> str:
    """The text up to a `set` that replaces the arguments for certain: from there on $1 is the script's own."""
    end = "\n"
    for index, command in enumerate(script.commands):
        if command.depth or (command.words and command.words[0].raw in KEYWORDS):
            return text
        if sets_arguments(command) and end in ("\n", ";"):
            lines = [line for number, line in script.body if number < command.line]
            same = [each.source for each in script.commands[: index + 1] if each.line == command.line]
            return "\n".join([*lines, *same])
        end = command.end
    return text


def _interpreter_of(script: BatchScript) -> list[str]:
    """The program of the first line, without its directory, and its arguments; bash when there is none."""
    words = script.shebang.removeprefix("#!").split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-")]
    if not words:
        return ["bash"]
    return [words[0].rpartition("/")[2], *words[1:]]


# The launcher before a container's command, as fields of a job.

_SRUN_SIZES = {
    "--ntasks": "tasks",
    "--nodes": "nodes",
    "--ntasks-per-node": "tasks_per_node",
    "--cpus-per-task": "cpus_per_task",
    "--gpus-per-node": "gpus_per_node",
    "--gpus-per-task": "gpus_per_task",
    "--gpus": "gpus",
    "--gres": "gpus_per_node",
    "--mem": "memory",
    "--time": "time",
    "--partition": "queue",
    "--account": "account",
}
_MPIRUN_COUNTS = {
    "-np": "tasks",
    "-n": "tasks",
    "--np": "tasks",
    "-npernode": "tasks_per_node",
    "--npernode": "tasks_per_node",
    "-ppn": "tasks_per_node",
    "-N": "tasks_per_node",
}
_MPIRUN_ONE = """
-x -hostfile --hostfile -machinefile --machinefile -host --host -H -f -map-by --map-by -bind-to --bind-to
-rank-by --rank-by -wdir --wdir -env -genvlist -launcher -bootstrap -hosts --prefix -o
"""
_MPIRUN_TWO = ("-mca", "--mca", "-genv", "-gmca", "--gmca")
_TORCHRUN_OURS = """
nnodes nproc_per_node rdzv_id rdzv_backend rdzv_endpoint master_addr master_port node_rank standalone
rdzv_conf
"""


@dataclass(slots=True)
class Launch:
    """How the command is started, and what of that could not be kept."""

    parallel: Parallel = Parallel.SINGLE
    program: str = ""
    left: list[Left] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)


def read_launcher(call: ContainerCall, request: ScriptRequest, values: Mapping[str, str]) -> Launch | None:
    """Reads the words before the container's, and adds sizes they give to the request; None when they are too much."""
    words = _resolve(call, request, values)
    if words is None:
        return None
    if not words:
        return Launch()
    if words[0] == "srun":
        return _read_srun(call, words[1:], request)
    if words[0] in ("mpirun", "mpiexec", "orterun", "ibrun"):
        return _read_mpirun(call, words, request)
    return None


def _resolve(call: ContainerCall, request: ScriptRequest, values: Mapping[str, str]) -> list[str] | None:
    """The launcher's words; a variable of the scheduler's repeats what directives say, others must be certain."""
    words = []
    for word in call.launcher:
        known = resolve_word(word, values)
        if known is None and set(find_names(word.text)) - set(find_own_names(request.scheduler, word.text)):
            return None
        words.append(word.text if known is None else known)
    return words


def _read_srun(call: ContainerCall, words: Sequence[str], request: ScriptRequest) -> Launch | None:
    launch = Launch(Parallel.TASKS, "srun")
    for option in LANGUAGE.cut_all(words):
        shown = option.name if option.value is None else f"{option.name}={option.value}"
        if not option.name or not option.name.startswith("-"):
            return None
        if option.name == "--mpi":
            launch.parallel = Parallel.TASKS if option.value == "none" else Parallel.MPI
            launch.remarks.append((call.line, f"srun {shown} is decided by the site's profile (mpi_type)"))
        elif option.name in _SRUN_SIZES:
            _add_size(call, request, option.name, option.value or "", launch)
        else:
            launch.left.append(Left(call.line, "", f"the srun option: {shown}"))
    return launch


def _add_size(call: ContainerCall, request: ScriptRequest, name: str, value: str, launch: Launch) -> None:
    key = _SRUN_SIZES[name]
    if "$" in value:  # it repeats what the directives say: --ntasks=$SLURM_NTASKS
        return
    before = request.get(key)
    directive = Directive(call.line, call.source.source, LANGUAGE.name, name, value)
    try:
        READERS[name](request, directive, value)
    except ValueError:
        launch.left.append(Left(call.line, "", f"the srun option: {name}={value}"))
        return
    if before is not None and request.get(key) != before:
        launch.remarks.append(
            (call.line, f"srun asks for {name}={value}, and the directives for {before}: srun's is kept")
        )


def _read_mpirun(call: ContainerCall, words: Sequence[str], request: ScriptRequest) -> Launch | None:
    launch = Launch(Parallel.MPI, "mpirun" if words[0] == "orterun" else words[0])
    directive = Directive(call.line, call.source.source, request.scheduler, words[0])
    position = 1
    while position < len(words):
        word = words[position]
        values = list(words[position + 1 : position + 3])
        position += 1
        if not word.startswith("-"):
            return None
        if word in _MPIRUN_COUNTS and values:
            position += 1
            if values[0].isdecimal() and int(values[0][:9]):
                request.put(_MPIRUN_COUNTS[word], int(values[0][:9]), directive)
            continue
        count = 2 if word in _MPIRUN_TWO else 1 if word in _MPIRUN_ONE.split() else 0
        position += count
        shown = " ".join([word, *values[:count]])
        launch.left.append(Left(call.line, "", f"the {words[0]} option: {shown}"))
    return launch


def read_torchrun(command: Sequence[Word], line: int) -> tuple[dict[str, Any], Sequence[Word], list[Left]] | None:
    """torchrun's own options, and the program behind them; None when it is no torchrun, or one with options of note."""
    words = _skip_python(command)
    if words is None:
        return None
    found: dict[str, Any] = {}
    position = 0
    while position < len(words) and words[position].text.startswith("-"):
        name, equals, value = words[position].text.partition("=")
        plain = name.lstrip("-").replace("-", "_")
        position += 1
        if plain not in _TORCHRUN_OURS.split():
            return None
        if not equals and plain != "standalone" and position < len(words):
            value = words[position].text
            position += 1
        found[plain] = value
    if position >= len(words):
        return None
    shown = ", ".join(f"--{name}={value}" if value else f"--{name}" for name, value in found.items())
    left = [Left(line, "", f"kedge gives torchrun options of its own, instead of {shown}")] if found else []
    return found, words[position:], left


def _skip_python(command: Sequence[Word]) -> Sequence[Word] | None:
    """The words behind `torchrun` or `python -m torch.distributed.run`."""
    texts = [word.text for word in command]
    if texts[:1] == ["torchrun"]:
        return command[1:]
    is_module = texts[1:3] in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"])
    return command[3:] if texts and texts[0].startswith("python") and is_module else None
