# SPDX-License-Identifier: BSD-3-Clause
"""Git repositories that ADD names, by the git of this host: one commit, without history, with its submodules.

Who writes a recipe, a base image or a repository must not decide what git does here. As in BuildKit, git runs without
the user's settings, filters, hooks, keys and passwords. `--ssh` lends it the user's SSH,
`--secret id=GIT_AUTH_TOKEN.HOST` a token for one host.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import NOTHING, frozen
from kedge.builds.addresses import GitAddress, read_git_address
from kedge.builds.step_values import CopyStep, refuse_recipe
from kedge.errors import KedgeError, ProgramFailed, ProgramMissing
from kedge.image.registry.secret import Secret, redact_url
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained
from kedge.system.outside import Outside
from kedge.system.process import make_memory_file, run_program
from kedge.system.views import DirectoryView

TOKEN_SECRET = "GIT_AUTH_TOKEN."  # with a host behind it: the id of a secret
_PATIENCE = 1800.0  # seconds for one fetch
_MOST_SUBMODULES = 500
_KEPT_VARIABLES = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_NO_VERIFY")
_SSH_VARIABLES = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT")
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "credential.helper=",  # forgets those that others named
    "advice.detachedHead=false",
)
# gives the token to git, which asks for its host alone; it is in memory, and in no file or command line
_TOKEN_HELPER = '!f() {{ test "$1" != get || cat /proc/self/fd/{}; }}; f'
_ORIGIN = Outside("origin")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")
_PART_OF_COMMIT = re.compile(r"[0-9a-f]{4,64}\Z")


@frozen
class GitAccess:
    """What the command line lends to git: the user's SSH, and tokens by host."""

    uses_ssh: bool = False
    tokens: Mapping[str, Secret] = NOTHING


def clone_repository(address: GitAddress, parent: Path, step: CopyStep, access: GitAccess) -> Path:
    """Fetch a repository into a new directory below `parent`; returns the directory that is copied."""
    _require_ssh(address, step, access)
    git = _Git(parent, parent / "repository", step, access)
    try:
        git.prepare()
        git.fetch(address)
        git.update_submodules()
        git.check_commit()
    except ProgramMissing as problem:
        raise refuse_recipe(
            step.place,
            f"{redact_url(address.url.text)} is a Git repository, and this host has no git",
            "load a module that has git, or ADD an archive of the repository instead",
        ) from problem
    except ProgramFailed as problem:
        problem.context.setdefault("recipe", str(step.place))
        problem.hint = (
            "check the address and the branch or tag behind '#'; for a private repository use --ssh default, "
            f"or --secret id={TOKEN_SECRET}{address.host},src=FILE"
        )
        raise
    if not step.keeps_git:
        remove_tree(git.folder / ".git")
    return _enter(git.folder, address, step)


def _require_ssh(address: GitAddress, step: CopyStep, access: GitAccess) -> None:
    if address.uses_ssh and not access.uses_ssh:
        raise refuse_recipe(
            step.place,
            f"{redact_url(address.url.text)} needs your SSH keys, and a recipe may not use them by itself",
            "allow it with --ssh default, or write https://HOST/PATH.git",
        )


def _enter(folder: Path, address: GitAddress, step: CopyStep) -> Path:
    view = DirectoryView(str(folder))
    with explained(folder):
        place = Path(view.locate(f"/{address.directory}"))
        if not place.is_dir():
            raise refuse_recipe(step.place, f"{redact_url(address.url.text)} has no directory '{address.directory}'")
    return place


@frozen
class _Git:
    """One clone on its way: `home` is git's home directory, `folder` the work tree."""

    home: Path
    folder: Path
    step: CopyStep
    access: GitAccess

    def prepare(self) -> None:
        """An empty repository."""
        with explained(self.home):
            self.folder.mkdir()
        self._run(self.folder, "init", "-q", "--template=")

    def fetch(self, address: GitAddress) -> None:
        """The commit of a branch, tag or commit id; the default branch without one."""
        folder = self.folder
        self._run(folder, "remote", "add", outside=(_ORIGIN, address.url))
        try:
            self._run(
                folder, "fetch", "-q", "--depth=1", "--no-tags", outside=(_ORIGIN, address.revision or Outside("HEAD"))
            )
            self._run(folder, "checkout", "-q", "--detach", "FETCH_HEAD")
            return
        except ProgramFailed as problem:  # not all servers give any commit, or one without its history
            first = problem
        everything = (Outside("+refs/heads/*:refs/remotes/origin/*"), Outside("+HEAD:refs/kedge/head"))
        try:
            self._run(folder, "fetch", "-q", "--tags", outside=(_ORIGIN, *everything))
            self._run(folder, "checkout", "-q", "--detach", self._find_commit(address.revision.text))
        except ProgramFailed:
            raise first from None

    def _find_commit(self, revision: str) -> str:
        """The commit that a fetched name means: a whole reference or a commit id, which no option looks like."""
        names = [f"refs/tags/{revision}", f"refs/remotes/origin/{revision}"] if revision else ["refs/kedge/head"]
        names += [revision] if _PART_OF_COMMIT.match(revision) else []
        for name in names[:-1]:
            try:
                return self._run(self.folder, "rev-parse", "-q", "--verify", f"{name}^{{commit}}").strip()
            except ProgramFailed:
                continue
        return self._run(self.folder, "rev-parse", "-q", "--verify", f"{names[-1]}^{{commit}}").strip()

    def update_submodules(self) -> None:
        """Update all submodules, level by level; their addresses are the repository's words, and read as strictly."""
        pending, count = [self.folder], 0
        while pending:
            folder = pending.pop()
            if not (folder / ".gitmodules").is_file():
                continue
            self._run(folder, "submodule", "-q", "init")
            for address in self._list_addresses(folder):
                _require_ssh(address, self.step, self.access)
            try:
                self._run(folder, "submodule", "-q", "update", "--checkout", "--depth=1")
            except ProgramFailed:  # as for `fetch`
                self._run(folder, "submodule", "-q", "update", "--checkout")
            below = list(self._list_submodules(folder))
            count += len(below)
            if count > _MOST_SUBMODULES:
                raise refuse_recipe(self.step.place, f"the repository has more than {_MOST_SUBMODULES} submodules")
            pending += below

    def _list_addresses(self, folder: Path) -> Iterator[GitAddress]:
        """The addresses of a repository's submodules, relative ones already resolved by git."""
        listed = self._run(folder, "config", "--null", "--list", "--local")
        for entry in listed.split("\0"):
            name, _, value = entry.partition("\n")
            if name.startswith("submodule.") and name.endswith(".url"):
                try:
                    yield read_git_address(value, self.step.place)
                except KedgeError as problem:
                    problem.context["submodule"] = name
                    raise

    def _list_submodules(self, folder: Path) -> Iterator[Path]:
        """Where the submodules of a repository are, as its commit says: never through a link."""
        for entry in self._run(folder, "ls-files", "-z", "--stage").split("\0"):
            mode, _, path = entry.partition("\t")
            place = folder / path
            if mode.startswith("160000 ") and path and not place.is_symlink() and (place / ".git").exists():
                yield place

    def check_commit(self) -> None:
        """`--checksum` of a repository is the beginning of its commit id."""
        if not self.step.checksum:
            return
        commit = self._run(self.folder, "rev-parse", "HEAD").strip()
        if not commit.startswith(self.step.checksum) or not _COMMIT.match(commit):
            message = f"the repository is at commit {commit}, and --checksum wants {self.step.checksum}"
            raise refuse_recipe(self.step.place, message)

    def _run(self, folder: Path, *words: str, outside: Sequence[Outside] = ()) -> str:
        """The one place that starts git; words that others wrote are `outside`, which git never takes for options."""
        with contextlib.ExitStack() as closing:
            settings, descriptors = list(_SETTINGS), []
            for host, token in self.access.tokens.items():
                descriptor = make_memory_file(f"username=x-access-token\npassword={token.reveal()}\n".encode())
                closing.callback(os.close, descriptor)
                descriptors.append(descriptor)
                settings.append(f"credential.https://{host}.helper={_TOKEN_HELPER.format(descriptor)}")
            chosen = [word for setting in settings for word in ("-c", setting)]
            argv = ["git", *chosen, "-C", str(folder), *words]
            environment = _choose_environment(os.environ, self.home, self.access)
            return run_program(
                argv,
                environment=environment,
                timeout=_PATIENCE,
                descriptors=descriptors,
                name=f"git {words[0]}",
                outside=outside,
            ).text


def _choose_environment(environ: Mapping[str, str], home: Path, access: GitAccess) -> dict[str, str]:
    """The variables of git: the user's, but those that change what git does, and a home of its own."""
    foreign = ("GIT_", "SSH_", "XDG_")
    kept = {name: value for name, value in environ.items() if not name.startswith(foreign)}
    names = (*_KEPT_VARIABLES, *(("SSH_AUTH_SOCK", *_SSH_VARIABLES) if access.uses_ssh else ()))
    kept |= {name: environ[name] for name in names if name in environ}
    if access.uses_ssh and "GIT_SSH" not in kept:
        kept.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    return kept | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "git:http:https" + (":ssh" if access.uses_ssh else ""),
    }
