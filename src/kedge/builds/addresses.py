# SPDX-License-Identifier: BSD-3-Clause
"""Which sources of ADD are addresses, and what the address of a Git repository may be.

The words of such an address reach git, which takes some words for options and others for directories of this host. So
nothing is passed on but what a `GitAddress` holds, and that is made by a strict grammar only.
"""

from __future__ import annotations

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.builds.step_values import RecipePlace, refuse_recipe
from kedge.system.outside import Outside

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.+~%-]{0,127}"
_WORD = r"[A-Za-z0-9_.~%/+@:=,;!$&'()*?-]"  # of paths
# a line break or a NUL that is written with a percent sign would end the line that git sends
_PATH = rf"(?!{_WORD}*%(?:0|1|7[fF])){_WORD}{{1,2000}}"
_URL = late_pattern(
    rf"(?P<scheme>https?|git|ssh)://(?:{_USER}(?::[^\s@/\x00-\x1f]{{0,500}})?@)?(?P<host>{_HOST}(?::[0-9]{{1,5}})?)"
    rf"/(?!-){_PATH}\Z"
)
_SCP = late_pattern(rf"git@(?P<host>{_HOST}):(?!-){_PATH}\Z")
_REVISION = late_pattern(r"(?![-+^./])(?!.*(?:\.\.|@\{|//))[^\x00-\x20\x7f~^:?*\[\\]{1,500}\Z")


@frozen
class GitAddress:
    """`URL[#REVISION[:DIRECTORY]]`, made by `read_git_address` alone: no part of it is an option or a local path."""

    url: Outside
    host: str  # with the port, where there is one
    revision: Outside = Outside("")  # a branch, tag or commit; the default branch without one
    directory: str = ""  # in the repository
    uses_ssh: bool = False


def is_address(source: str) -> bool:
    """Whether a source of ADD is fetched from elsewhere."""
    return source.lower().startswith(("http://", "https://")) or is_git_address(source)


def is_git_address(source: str) -> bool:
    """Whether a source is meant as the address of a Git repository."""
    address = source.partition("#")[0].lower()
    return address.startswith(("git://", "git@", "ssh://")) or (
        address.startswith(("http://", "https://")) and address.endswith(".git")
    )


def read_git_address(source: str, place: RecipePlace) -> GitAddress:
    """The parts of an address that `is_git_address` finds; raises InvalidRecipe for any other text."""
    url, _, fragment = source.partition("#")
    revision, _, directory = fragment.partition(":")
    scheme, sign, rest = url.partition("://")
    url = scheme.lower() + sign + rest if sign else url
    match = _URL.match(url) or _SCP.match(url)
    if not match:
        raise refuse_recipe(
            place,
            f"'{_hide_login(source)}' is not the address of a Git repository",
            "write https://HOST/PATH.git, git@HOST:PATH or ssh://HOST/PATH; for a file of the context write ./NAME",
        )
    if revision and not _REVISION.match(revision):
        raise refuse_recipe(
            place, f"'{revision}' is not a branch, tag or commit", f"write {url}#BRANCH or {url}#BRANCH:DIRECTORY"
        )
    uses_ssh = not sign or scheme.lower() == "ssh"
    return GitAddress(Outside(url), match["host"].lower(), Outside(revision), directory, uses_ssh)


def _hide_login(source: str) -> str:
    """What messages show of an address that cannot be read: no user and password before its host."""
    scheme, sign, rest = source.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if sign else source
