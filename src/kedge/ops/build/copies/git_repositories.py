# SPDX-License-Identifier: BSD-3-Clause
"""Git repositories that ADD names, by the git of this host: one commit, without history, with its submodules."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kedge.errors import ProgramFailed, ProgramMissing
from kedge.posix.confined_paths import remove_tree
from kedge.posix.files import explained
from kedge.posix.process import run_program
from kedge.posix.views import DirectoryView
from kedge.recipe.steps import CopyStep, refuse_recipe
from kedge.registry.secret import redact_url

_PATIENCE = 1800.0  # seconds for one fetch
# No hook and no helper that a repository brings along is run, and nobody is asked for a password.
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")


def clone_repository(address: str, parent: Path, step: CopyStep) -> Path:
    """Fetch `URL[#REF[:DIRECTORY]]` into a new directory below `parent`; returns the directory that is copied."""
    url, _, fragment = address.partition("#")
    revision, _, inside = fragment.partition(":")
    folder = parent / "repository"
    try:
        _git(folder, "init", "-q", str(folder), at_folder=False)
        _git(folder, "remote", "add", "origin", url)
        _fetch(folder, revision)
        _git(folder, "submodule", "update", "-q", "--init", "--recursive", "--depth=1")
    except ProgramMissing as problem:
        raise refuse_recipe(
            step.place,
            f"{redact_url(url)} is a Git repository, and this host has no git",
            "load a module that has git, or ADD an archive of the repository instead",
        ) from problem
    except ProgramFailed as problem:
        problem.context.setdefault("recipe", str(step.place))
        problem.hint = "check the address and the branch or tag behind '#'; private repositories need your ssh agent"
        raise
    _check_commit(folder, step)
    if not step.keeps_git:
        remove_tree(folder / ".git")
    return _enter(folder, inside, address, step)


def _fetch(folder: Path, revision: str) -> None:
    """The commit of a branch, tag or commit id; the default branch without one."""
    try:
        _git(folder, "fetch", "-q", "--depth=1", "--no-tags", "origin", revision or "HEAD")
        _git(folder, "checkout", "-q", "FETCH_HEAD")
        return
    except ProgramFailed as problem:  # not all servers give any commit, or one without its history
        first = problem
    try:
        _git(folder, "fetch", "-q", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*", "+HEAD:refs/kedge/head")
        _git(folder, "checkout", "-q", "--detach", revision or "refs/kedge/head")
    except ProgramFailed:
        raise first from None


def _check_commit(folder: Path, step: CopyStep) -> None:
    """`--checksum` of a repository is the beginning of its commit id."""
    if not step.checksum:
        return
    commit = _git(folder, "rev-parse", "HEAD").strip()
    if not commit.startswith(step.checksum) or not _COMMIT.match(commit):
        raise refuse_recipe(step.place, f"the repository is at commit {commit}, and --checksum wants {step.checksum}")


def _enter(folder: Path, inside: str, address: str, step: CopyStep) -> Path:
    view = DirectoryView(str(folder))
    with explained(folder):
        place = Path(view.locate(f"/{inside}"))
        if not place.is_dir():
            raise refuse_recipe(step.place, f"{redact_url(address)} has no directory '{inside}'")
    return place


def _git(folder: Path, *words: str, at_folder: bool = True) -> str:
    place = ("-C", str(folder)) if at_folder else ()
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "0", "LC_ALL": "C"}
    argv = ["git", *_OPTIONS, *place, *words]
    return run_program(argv, environment=environment, timeout=_PATIENCE, name=f"git {words[0]}").text
