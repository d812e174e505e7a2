# SPDX-License-Identifier: BSD-3-Clause
"""Imports go down only, there are no cycles, and each outside thing has one owner. Late imports count."""

from __future__ import annotations

import ast
import graphlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeGuard

from tests.architecture.source_tree import dotted_call, read_modules

# The rooms from the top: each imports only what stands below it. docs/architecture.md tells them.
ROOMS = (
    "__main__",
    "cli",
    "",  # the package itself, which offers the calls of `api`
    "tools",
    "api",  # the verbs as typed functions
    "answers",
    "jobs",
    "launch",
    "builds",
    "container",
    "compat",
    "image",
    "cluster",
    "system",
    "base",
    "errors",
)
RANK = {room: index for index, room in enumerate(ROOMS)}
FILES = {"__main__", "", "api", "errors"}  # one module each; the others are packages with a list of what is public
# Parts of image/ that do not know each other: `image/pull.py` and its kind join them.
STRANGERS = ("registry", "store", "layers", "trust", "host_programs")

# Who may import what is not ours: a module, or a package made for it. A module that is not named here is free for all.
OWNERS = {
    "subprocess": "kedge.system.process",
    "multiprocessing": "nobody",
    "asyncio": "kedge.tools.jupyter",  # connections of kernels in jobs
    "ctypes": "kedge.system",  # libc.py, and nvml.py for the GPU driver
    "_ctypes": "kedge.system.libc",
    "_frozen_importlib": "nobody",  # modules come in Python's own way (docs/adr/0004)
    "_frozen_importlib_external": "nobody",
    "_imp": "kedge.container.env_scripts",  # a hash that every interpreter has built in
    "marshal": "nobody",
    "_json": "kedge.launch.order",
    "urllib3": "kedge.image.registry.transport",
    "socket": "kedge.image.registry.transport",
    "http.client": "kedge.image.registry.transport",
    "urllib.request": "nobody",
    "requests": "nobody",
    "zlib_ng": "kedge.image.formats.compression",
    "zstandard": "kedge.image.formats.compression",
    "lz4": "kedge.image.formats.compression",
    "lzma": "kedge.image.formats.compression",
    "gzip": "kedge.image.formats.compression",
    "cryptography": "kedge.image.trust.crypto",
    "rich": "kedge.cli.console",
    "shtab": "kedge.cli.completion",
    "matplotlib": "nobody",
}
DEPENDENCY_MODULES = {"urllib3", "zlib_ng", "zstandard", "lz4", "cryptography", "rich", "shtab"}
CALL_OWNERS = {
    "print": "kedge.cli",
    "input": "kedge.cli",
    "sys.exit": "kedge.cli",
    "exit": "nobody",
    "os.system": "nobody",
    "os.popen": "nobody",
    "os.fork": "kedge.system",
    "os.posix_spawn": "kedge.system",
    "os.execv": "kedge.system",
    "os.execve": "kedge.system",
    "os.execvp": "kedge.system",
    "os.execvpe": "kedge.system",
    "shutil.which": "nobody",  # it takes programs from the current directory: kedge.system.programs does not
    "os.get_exec_path": "nobody",
    "eval": "nobody",
    "exec": "nobody",
    "pickle.load": "kedge.tools.functions.runner",
    "pickle.loads": "kedge.tools.functions",  # what the user's own jobs wrote into a directory that is theirs alone
}

# Who starts processes, and why it is not `run_program` of the first that does.
STARTS = ("os.fork", "os.forkpty", "os.posix_spawn", "os.posix_spawnp")
STARTERS = {
    "kedge.system.process": "one program by subprocess: captured, streamed, into files, beside us, kedge's own",
    "kedge.system.lean_programs": "the programs of a submission, which cost less than the import of subprocess",
    "kedge.system.spawn": "the processes of a container's start, which loads next to nothing",
    "kedge.system.child_group": "many programs at once, whose outputs and ends one poll watches",
    "kedge.system.piped_worker": "kedge itself beside a process that has threads, with memory that both share",
    "kedge.system.forked_workers": "no program: work of this process that its memory is forked for",
    "kedge.system.bounded_children": "no program: calls that may hang for ever, each in a child that is left behind",
}

APART = {("kedge.tools.functions.runner", "exec")}  # not in this process: the file is started by the image's Python

OURSELVES = "kedge.system.start_kedge"
ALONE = ("kedge.__main__", "kedge.cli.bundle_start")  # they run before any module of ours can be loaded


def room_of(module: str) -> str:
    """`image` for kedge.image.registry.client, the empty string for kedge itself."""
    return [*module.split("."), ""][1]


def imports_between_rooms() -> Iterator[tuple[str, str, str]]:
    """Who imports what of another room: the place, the importing module, the imported one."""
    for module in read_modules().values():
        for imported in module.imports:
            is_ours = imported.name.split(".")[0] == "kedge"
            if is_ours and room_of(module.name) != room_of(imported.name):
                yield f"{module.shown}:{imported.line}", module.name, imported.name


def test_imports_every_module_stands_in_a_room() -> None:
    unknown = sorted({room_of(name) for name in read_modules()} - set(RANK))
    assert not unknown, f"give these a place in ROOMS and in docs/architecture.md: {unknown}"


def test_imports_go_down_only() -> None:
    wrong = [
        f"{place} imports {there}, which is not below it"
        for place, here, there in imports_between_rooms()
        if RANK[room_of(there)] <= RANK[room_of(here)]
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def list_public(room: str) -> list[str]:
    """`PUBLIC` of a room, read from its source; its `__init__` imports nothing."""
    module = read_modules()[f"kedge.{room}"]
    assert not module.imports, f"{module.shown} imports something"
    assigned = [each for each in module.tree.body if isinstance(each, ast.Assign)]
    return [name for each in assigned for name in ast.literal_eval(each.value)]


def test_imports_of_another_room_are_of_what_it_offers() -> None:
    used = defaultdict(set)
    for _, _, there in imports_between_rooms():
        if room_of(there) not in FILES:
            used[room_of(there)].add(there.removeprefix(f"kedge.{room_of(there)}."))
    rooms = [room for room in ROOMS if room not in FILES]
    assert {room: list_public(room) for room in rooms} == {room: sorted(used[room]) for room in rooms}


def test_imports_of_strangers_inside_of_image() -> None:
    wrong = []
    for module in read_modules().values():
        here = module.name.split(".")[2:3]
        for imported in module.imports:
            there = imported.name.split(".")[2:3]
            is_image = module.name.startswith("kedge.image.") and imported.name.startswith("kedge.image.")
            if is_image and here != there and here[0] in STRANGERS and there[0] in STRANGERS:
                wrong.append(f"{module.shown}:{imported.line} imports {imported.name}: they do not know each other")
    assert not wrong, "\n" + "\n".join(wrong)


def test_imports_parts_of_a_package_stand_in_an_order() -> None:
    """Modules and packages side by side: what one needs never needs it, however deep inside."""
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module in read_modules().values():
        for imported in module.imports:
            here, there = module.name.split("."), imported.name.split(".")
            depth = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
            if depth > 0:
                graphs[".".join(here[:depth])][here[depth]].add(there[depth])
    circles = []
    for package, graph in sorted(graphs.items()):
        try:
            list(graphlib.TopologicalSorter(graph).static_order())
        except graphlib.CycleError as problem:
            circles.append(f"{package}: {' -> '.join(problem.args[1])}")
    assert not circles, "\n" + "\n".join(circles)


def test_imports_have_no_cycle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for module in read_modules().values():
        graph[module.name] |= {each.name for each in module.imports if each.name in read_modules()}
        graph[module.name].discard(module.name)
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as problem:
        raise AssertionError(f"modules import each other: {' -> '.join(problem.args[1])}") from None


# Packages that import their own modules; one thread alone comes to them.
GATHERING = {"kedge.container.others", "kedge.tools.bundle"}


def test_imports_of_packages_hold_up_no_thread() -> None:
    """Two threads that import a package and a module of it wait for each other: Python ends one with _DeadlockError."""
    wrong = []
    for module in read_modules().values():
        own = [each for each in module.imports if each.name.startswith(f"{module.name}.")]
        first = {node.lineno for node in module.tree.body if isinstance(node, ast.ImportFrom)}
        if module.path.name == "__init__.py" and module.name not in GATHERING:
            wrong += [f"{module.shown}:{each.line} imports {each.name}" for each in own if each.line in first]
    assert not wrong, "\n" + "\n".join(wrong)


def reach(name: str, package: str, apart: tuple[str, ...] = ()) -> set[str]:
    """The modules of a package that one of them needs, all the way down."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        if module.rpartition(".")[0] == package and module not in found and module not in apart:
            found.add(module)
            waiting += [each.name for each in read_modules()[module].imports if each.name in read_modules()]
    return found


def test_imports_the_look_at_an_image_shares_only_the_layout_with_its_writer() -> None:
    package = "kedge.image.formats.squashfs"
    looks = (f"{package}.check_image", f"{package}.compare_contents")
    written = reach(f"{package}.writer", package, apart=looks)
    assert len(written) > 5
    assert written & reach(looks[0], package) == {f"{package}.layout"}


def test_imports_outside_things_have_one_owner() -> None:
    wrong = []
    for module in read_modules().values():
        for imported in module.imports:
            for thing, owner in OWNERS.items():
                if (imported.name + ".").startswith(thing + ".") and not (module.name + ".").startswith(owner + "."):
                    wrong.append(f"{module.shown}:{imported.line} imports {thing}, which belongs to {owner}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_imports_owners_use_what_they_own() -> None:
    used = {each.name.split(".")[0] for module in read_modules().values() for each in module.imports}
    idle = [f"{OWNERS[thing]} owns {thing}, but nobody imports it" for thing in sorted(DEPENDENCY_MODULES - used)]
    assert not idle, "\n" + "\n".join(idle)


def test_imports_processes_are_started_where_there_is_a_reason() -> None:
    starting = {
        module.name
        for module in read_modules().values()
        if any(imported.name.split(".")[0] == "subprocess" for imported in module.imports)
        or any(dotted_call(node) in STARTS for node in module.find(ast.Call))
    }
    assert starting == set(STARTERS)


def test_imports_one_module_starts_kedge() -> None:
    """Another `python -m kedge` would load modules of the current directory: `system/start_kedge.py` says why."""
    wrong = []
    for module in read_modules().values():
        for node in module.find(ast.ImportFrom, ast.Attribute, ast.Constant, ast.List, ast.Tuple):
            if module.name != OURSELVES and _names_interpreter(node):
                wrong.append(f"{module.shown}:{node.lineno} names the interpreter, which belongs to {OURSELVES}")
            if isinstance(node, (ast.List, ast.Tuple)) and any(
                _is_text(first, "-m") and _is_text(second, "kedge") for first, second in pairwise(node.elts)
            ):
                wrong.append(
                    f"{module.shown}:{node.lineno} starts kedge by its name, which {OURSELVES} does by its path"
                )
    assert not wrong, "\n" + "\n".join(wrong)


def _names_interpreter(node: ast.AST) -> TypeGuard[ast.expr | ast.ImportFrom]:
    """`sys.executable`, by whatever name `sys` has, or imported from there."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and any(each.name in ("executable", "_base_executable") for each in node.names)
    is_attribute = isinstance(node, ast.Attribute) and node.attr in ("executable", "_base_executable")
    return is_attribute or (_is_text(node, "executable") or _is_text(node, "_base_executable"))


def _is_text(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def test_imports_printing_and_starting_programs_have_one_owner() -> None:
    wrong = []
    for module in read_modules().values():
        for node in module.find(ast.Call):
            owner = CALL_OWNERS.get(dotted_call(node))
            if owner is None or (module.name + ".").startswith(owner + ".") or module.name in ALONE:
                continue
            if (module.name, dotted_call(node)) in APART:
                continue
            wrong.append(f"{module.shown}:{node.lineno} calls {dotted_call(node)}, which belongs to {owner}")
    assert not wrong, "\n" + "\n".join(wrong)
