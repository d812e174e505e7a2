# SPDX-License-Identifier: BSD-3-Clause
"""The header of a definition file wants options, commands or files of the host in the words for a package manager."""

from __future__ import annotations

import pytest

from kedge.builds.bases import bootstrap
from kedge.builds.bases.bootstrap import plan_bootstrap
from kedge.builds.read_recipe import read_recipe
from kedge.errors import InvalidRecipe
from tests.builders.builds import Workshop
from tests.builders.rows import each_row
from tests.wording import assert_says

AGENTS = ("debootstrap", "yum", "dnf", "zypper", "arch")
ADDRESS = "http://127.0.0.1:1/x"
ADDRESSES = (
    *("--customize-hook=id", "-c", "file:///etc", "copy:///etc", "/etc", "./x", "x", "http://", "deb http://h x main"),
    *("http://h/x y", "http://h/'x", "http://h/`id`", "http://-h/x", "dir:///etc", "http://h/\\n\\\nEND"),
)
VERSIONS = ("--hook-dir=/x", "-x", "../x", "a b", "a;id", "5000/evil/image:1", "x@sha256:0", "$(id)", "9\\n\\\nEND")
PACKAGES = ("--hook-dir=/x", "vim --setopt=x", "-c", "/etc/x.deb", "./x.deb", "http://h/x.rpm", "a'b", "a;id", "$(id)")
HEADERS = [
    *(("MirrorURL", text) for text in ADDRESSES),
    *(("UpdateURL", text) for text in ADDRESSES),
    *(("OSVersion", text) for text in VERSIONS),
    *(("Include", text) for text in PACKAGES),
]
READ = {"UpdateURL": ("yum", "dnf"), "MirrorURL": AGENTS[:-1], "OSVersion": AGENTS[:-1], "Include": AGENTS}


def write_header(agent: str, name: str, text: str) -> str:
    lines = {"Bootstrap": agent, "OSVersion": "9", "MirrorURL": ADDRESS} | {name: text}
    return "".join(f"{key}: {value}\n" for key, value in lines.items()) + "%post\ntrue\n"


@each_row(("name", "text"), HEADERS)
def test_words_of_a_header(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "find_program", lambda name, path=None: f"/usr/bin/{name}")
    for agent in READ[name]:
        recipe = read_recipe(write_header(agent, name, text).encode(), "x.def")
        with pytest.raises(InvalidRecipe, match=f"'{name}: "):
            plan_bootstrap(recipe.stages[0].base)


def test_build_stops_before_anything_runs(shop: Workshop) -> None:
    shop.write("x.def", write_header("debootstrap", "Include", "--hook-dir=/x"))
    for words in ((), ("--dry-run",)):
        done = shop.start(*words, "x.sif", "x.def")
        assert done.returncode == 90, done.stderr
        assert_says(done.stderr, "base/include-hook-dir-x-not-name")
