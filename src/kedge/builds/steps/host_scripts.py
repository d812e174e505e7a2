# SPDX-License-Identifier: BSD-3-Clause
"""%pre and %setup: scripts of a definition file that run with the programs of this host.

They see the host's programs, the directories that `script_folders.py` chooses and the image, and change the image only.
With `--setup-on-host` they run as Apptainer runs them: as the user, with all that the user may do.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from kedge.base.tree import NodeKind, walk
from kedge.builds.copies.context import open_context, open_host_files
from kedge.builds.host_reach import HostReach
from kedge.builds.patterns import BadPattern, expand_braces
from kedge.builds.request import HostItem, StepLabel
from kedge.builds.states.roots import StepWorkspace
from kedge.builds.step_values import SCRIPT_PATH, CopyStep, HostScriptStep, Stage, Step, name_place, refuse_recipe
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.session import BuildSession
from kedge.container.facts import Bind
from kedge.container.start.build_step import StepContext
from kedge.container.start.host_script import HostScript, run_host_script
from kedge.errors import BuildFailed, FileProblem, InvalidRecipe, KedgeError
from kedge.system.files import explained
from kedge.system.process import describe_status, relay_program
from kedge.system.tree_walk import ConfinedTree, walk_tree

_SCRIPT_FOLDER = "/run/kedge"  # where a confined script stands
_NAME = "script.sh"
_MOST_FILES = 20_000
_MOST_BYTES = 1 << 30
_GO_TO = 'cd "$1" && shift && exec "$@"'


def run_host_step(session: BuildSession, step: HostScriptStep, workspace: StepWorkspace, label: StepLabel) -> None:
    """Run the script; raises BuildFailed unless it succeeds."""
    folder = session.place.make_folder("script")
    with explained(folder):
        (folder / _NAME).write_bytes(step.script)
        (folder / _NAME).chmod(0o755)
    output = session.open_output(label)
    run = _run_on_host if session.request.uses_host else _run_confined
    try:
        status = run(session, step, workspace, folder, output.write)
    finally:
        output.finish()
    session.cancellation.check()
    if status:
        raise _explain_failure(session, step, status, output.last)


def _run_confined(
    session: BuildSession, step: HostScriptStep, workspace: StepWorkspace, folder: Path, write: Callable[[bytes], None]
) -> int:
    argv = _put_path(step.argv, f"{_SCRIPT_FOLDER}/{_NAME}")
    return run_host_script(
        workspace.root,
        HostScript(argv, choose_folders(session.reach, step)),
        write,
        binds=[Bind(str(folder), _SCRIPT_FOLDER, readonly=True)],
        is_cancelled=session.cancellation.is_requested,
    )


def _run_on_host(
    session: BuildSession, step: HostScriptStep, workspace: StepWorkspace, folder: Path, write: Callable[[bytes], None]
) -> int:
    """Run a script as the user, on the host itself; the image's root is a directory."""
    root = str(workspace.root.base)
    environment = {**os.environ, "APPTAINER_ROOTFS": root, "SINGULARITY_ROOTFS": root}
    argv = _put_path(step.argv, str(folder / _NAME))
    return relay_program(
        ["/bin/sh", "-c", _GO_TO, "sh", str(session.context.resolve()), *argv],
        write,
        environment=environment,
        is_cancelled=session.cancellation.is_requested,
        name=f"%{step.section}",
    )


def _put_path(argv: tuple[str, ...], path: str) -> list[str]:
    return [word.replace(SCRIPT_PATH, path) for word in argv]


def _explain_failure(session: BuildSession, step: HostScriptStep, status: int, last: Iterable[str]) -> BuildFailed:
    context = {"file": step.place.file, "line": str(step.place.line), "status": str(status), "step": step.text}
    if text := "\n".join(last):
        context["output"] = text
    log = f"; the whole output is in {session.log.path}" if session.log.path else ""
    hint = f"%{step.section} may change $APPTAINER_ROOTFS only; --setup-on-host lets it change this host{log}"
    if session.request.uses_host:
        hint = f"run the commands of %{step.section} by hand to see why{log}"
    return BuildFailed(f"{step.place}: %{step.section} {describe_status(status)}", context=context, hint=hint)


def identify_surroundings(session: BuildSession, step: HostScriptStep) -> str:
    """What a script can read of this host, for its key: all files of its directories, if few and readable.

    Otherwise, or where a script may do anything, no key fits a second time, and the script runs in every build.
    """
    if session.request.uses_host:
        return secrets.token_hex(16)
    found = [_identify_folder(session, Path(path)) for path, *_ in choose_folders(session.reach, step).shown]
    return "".join(found) if all(found) else secrets.token_hex(16)


def _identify_folder(session: BuildSession, folder: Path) -> str:
    """Return a digest of what is in a directory; empty where that is too much, or cannot be read."""
    if _is_large(folder):
        return ""
    try:
        origin = open_context(folder, output=session.request.output.path, ignores=False, reach=session.reach)
        tree = origin.read_tree("/")
        if tree is not None and sum(node.size for _, node in walk(tree) if node.kind is NodeKind.FILE) <= _MOST_BYTES:
            return origin.digest_tree(tree)
    except FileProblem:  # a file that cannot be read, such as the work directory of an overlay
        pass
    return ""


def _is_large(folder: Path) -> bool:
    counts = itertools.accumulate(len(entries) for _, entries in walk_tree(folder))
    return any(count > _MOST_FILES for count in counts)


# Which directories %pre and %setup see: the current one, or the recipe's, and those of --context; never a home.

_PROGRAMS = ("/usr/", "/etc/")  # which such a script sees anyway; few sites have homes there


def choose_folders(reach: HostReach, step: HostScriptStep) -> StepContext:
    """What a script sees; raises InvalidRecipe where that would be a home, /, /tmp or a place of secrets."""
    given = [path for path in reach.allowed if os.path.isdir(path)]  # noqa: PTH112
    reasons = {path: _explain(reach, path) for path in (reach.folder, reach.recipe_folder, *given) if path}
    fitting = [path for path, reason in reasons.items() if not reason]
    if not fitting:
        raise _refuse(reach, step, reasons[reach.folder])
    folder = fitting[0]
    if folder != reach.folder:
        text = f"sees {folder}, not the current directory {reach.folder}: {reasons[reach.folder]}"
        reach.add(HostItem(step.section, step.place.line, text, folder))
    shown = dict.fromkeys((folder, *(path for path in given if path in fitting)))
    hidden = [path for place in shown for path in reach.places.list_secrets(place) if _is_closed(reach, path)]
    for path in hidden:
        reach.leave_out(path, step.place)
    hidden += [home for home in reach.places.homes if home.startswith(_PROGRAMS)]
    hidden += [path for place in _PROGRAMS for path in reach.places.list_secrets(place) if _is_closed(reach, path)]
    return StepContext(folder, tuple(_identify(path) for path in shown), tuple(dict.fromkeys(hidden)))


def _explain(reach: HostReach, path: str) -> str:
    """Why a script must not see a directory; empty: it may."""
    return reach.places.explain_width(path) or ("it holds secrets" if _is_closed(reach, path) else "")


def _is_closed(reach: HostReach, path: str) -> bool:
    return not reach.admits(path, reach.places.judge(path))


def _identify(path: str) -> tuple[str, int, int]:
    """The directory by device and inode: whoever exchanges it, or one above it, for a link gets an error."""
    with explained(path):
        status = ConfinedTree(b"/").find(os.fsencode(path).strip(b"/"))
    return path, status.st_dev, status.st_ino


def _refuse(reach: HostReach, step: HostScriptStep, reason: str) -> InvalidRecipe:
    recipe = shlex.quote(reach.file) if reach.recipe_folder else ""
    line = f"mkdir recipe && mv {recipe} builds/ && cd recipe" if recipe else "mkdir recipe && cd recipe"
    return refuse_recipe(
        step.place,
        f"%{step.section} would see all of {reach.folder}: {reason}",
        f"build in a directory of the recipe's own: {line}; or name what it may read: --context DIRECTORY",
    )


# Before the first step of a definition file: what it takes of this host is looked at, named, or refused.


def name_host_files(session: BuildSession, origins: FileOrigins, stages: Sequence[Stage]) -> None:
    """Say what lies outside and what is left out, one line each; raises InvalidRecipe for what must not be taken."""
    if origins.is_definition:
        for step in _list_host_steps(stages):
            try:
                _look_at(session, step)
            except KedgeError as problem:
                name_place(problem, step.place)
                raise
    session.reach.settle()


def _list_host_steps(stages: Sequence[Stage]) -> Iterator[CopyStep | HostScriptStep]:
    """What a definition file takes does not depend on the configs of its bases."""
    steps: Iterator[Step] = (step for stage in stages for step in stage.plan({}).steps)
    for step in steps:
        if isinstance(step, HostScriptStep) or (isinstance(step, CopyStep) and step.origin.stage is None):
            yield step


def _look_at(session: BuildSession, step: CopyStep | HostScriptStep) -> None:
    reach = session.reach
    if isinstance(step, HostScriptStep):
        if session.request.uses_host:
            text = "runs on this host with all that you may do (--setup-on-host)"
            reach.add(HostItem(step.section, step.place.line, text, "/"))
        else:
            choose_folders(reach, step)
        return
    origin = open_host_files(session.context, reach)  # of its own: a script may yet make what is copied
    with contextlib.suppress(BadPattern):
        for pattern in (pattern for source in step.sources for pattern in expand_braces(source)):
            origin.read_ahead(pattern, step.place)
