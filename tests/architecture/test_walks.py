# SPDX-License-Identifier: BSD-3-Clause
"""One walker: whoever reads a tree of files does it by `system/tree_walk.py`, which no link leads out. Needs nothing.

Python's own ways follow paths: between two looks a directory becomes a link. They are left to those who read what only
the user, root or kedge itself can change, or who open nothing; `shutil.rmtree` goes by descriptors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import Module, dotted_call, parse_module, read_modules

WALKERS = {"kedge.system.tree_walk", "kedge.system.confined_paths"}
WALKS = ("os.walk", "os.fwalk", "shutil.copytree", "shutil.move")
METHODS = ("rglob", "walk", "copytree")  # of a path, or of shutil

_KERNEL = "/proc and /sys: files of the kernel"
_STORE = "one directory of the cache, which is the user's alone or shared with people who are trusted"
_OWN = "one directory that kedge made for itself"
# Who may list a directory by its path with os.scandir, and why nobody leads it elsewhere.
LISTINGS = {
    "kedge.system.process_tree": _KERNEL,
    "kedge.system.host.limits": _KERNEL,
    "kedge.system.host.private_places": "which directories hold homes: names and owners, nothing in it is opened",
    "kedge.image.store.held_images": _STORE,
    "kedge.image.store.build_steps": _STORE,
    "kedge.image.store.use_marks": _STORE,
    "kedge.image.store.resolved_names": _STORE,
    "kedge.image.store.layout": _STORE,
    "kedge.image.store.cache_mounts": _STORE,
    "kedge.image.store.eviction": _STORE,
    "kedge.image.store.lease": _STORE,
    "kedge.jobs.records": _OWN,
    "kedge.jobs.seen_nodes": _OWN,
    "kedge.image.node.node_cache_writer": _OWN,
    "kedge.image.image_file": "looks whether a directory is empty, and opens nothing in it",
    "kedge.container.mount_operations": "whether a name of a layer begins with '.wh.'; opens no file",
    "kedge.image.registry.tls": "whether a directory of certificates, made by the administrator, has names of a kind",
    "kedge.cli.shims.srun_words": _OWN,
    "kedge.tools.bundle.gather": "the installation that runs",
}
# Who may go through a tree by paths.
TREES = {"kedge.tools.bundle.gather": "the installation that runs"}


def find_calls(module: Module) -> Iterator[tuple[int, str]]:
    """Lines that walk or list, by what name."""
    for node in module.find(ast.Call):
        name = dotted_call(node)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        is_walk = name in WALKS or (method in METHODS and name != "ast.walk")
        if is_walk or name == "os.scandir" or (method in ("glob", "iglob") and "**" in ast.unparse(node)):
            yield node.lineno, name or method


def test_trees_are_read_by_the_one_walker() -> None:
    wrong, used = [], set()
    for module in read_modules().values():
        for line, name in find_calls(module):
            allowed = LISTINGS if name == "os.scandir" else TREES
            used.add((module.name, allowed is TREES))
            if module.name not in WALKERS and module.name not in allowed:
                wrong.append(f"{module.shown}:{line}: {name}: use walk_tree or ConfinedTree of system/tree_walk.py")
    assert not wrong, "\n".join(wrong)
    idle = [name for name in LISTINGS if (name, False) not in used] + [
        name for name in TREES if (name, True) not in used
    ]
    assert not idle, f"these list nothing any more: {idle}"


def test_python_ways_are_found() -> None:
    walks = "os.walk(p)\np.rglob('*')\np.glob('**/x')\nshutil.copytree(a, b)\nos.scandir(p)\nos.fwalk(p)\np.walk()\n"
    text = walks + "p.glob('*.py')\nwalk(tree)\nos.listdir(p)\nast.walk(tree)\n"
    module = parse_module("x", Path("x.py"), text, is_package=False, known=set())
    assert sorted(line for line, _ in find_calls(module)) == [1, 2, 3, 4, 5, 6, 7]
