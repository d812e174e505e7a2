# SPDX-License-Identifier: BSD-3-Clause
"""A few lines of a recipe want all memory and all time: values that hold others many times (billion laughs)."""

from __future__ import annotations

import pytest

from kedge.builds.dockerfile.expand import LARGEST_SUM, LARGEST_VALUE
from kedge.builds.lint.lint_recipe import lint_recipe
from kedge.builds.read_recipe import read_recipe
from kedge.builds.step_values import BuildArguments
from kedge.errors import InvalidRecipe
from tests.builders.builds import SHELL, Workshop
from tests.builders.rows import each_row
from tests.builders.strangers import make_base


def laugh(keyword: str, levels: int, width: int = 10) -> str:
    """Lines that each name the one before many times."""
    lines = [f"{keyword} v0=0123456789\n"]
    lines += [f"{keyword} v{level}={f'$v{level - 1}' * width}\n" for level in range(1, levels + 1)]
    return "".join(lines)


RECIPES = {
    "before FROM": f"{laugh('ARG', 12)}FROM $v12\n",
    "ARG": f"FROM scratch\n{laugh('ARG', 12)}RUN $v12\n",
    "ARG, seven levels": f"FROM scratch\n{laugh('ARG', 7)}",
    "ENV": f"FROM scratch\n{laugh('ENV', 12)}",
    "LABEL": f"FROM scratch\nARG v={'x' * 1000}\nLABEL a={'$v' * 1000}\n",
    "many pairs": f"FROM scratch\nENV v={'x' * 60000}\n" + "".join(f"ENV w{i}=$v\n" for i in range(4000)),
    "many uses": f"FROM scratch\nARG v={'x' * 60000}\n" + "LABEL a=${v%%y*}\n" * 4000,
    "replacement": f"FROM scratch\nARG v={'x' * 30000}\nARG w=${{v//x/$v}}\n",
    "heredoc": f"FROM scratch\nARG v={'x' * 1000}\nCOPY <<EOF /x\n{'$v' * 10000}\nEOF\n",
    "default": f"FROM scratch\n{laugh('ARG', 3)}ARG x=${{y:-{'$v3' * 100}}}\n",
    "COPY": f"FROM scratch\n{laugh('ARG', 3)}COPY {'$v3' * 100} /x\n",
}
DEFINITIONS = {
    "one level": f"Bootstrap: docker\nFrom: x\n%arguments\na={'x' * 60000}\nb={'{{a}}' * 10000}\n%post\n{{{{ b }}}}\n",
    "by each other": "Bootstrap: docker\nFrom: x\n%arguments\n"
    + "".join(f"a{i}={{{{a{i + 1}}}}}{{{{a{i + 1}}}}}\n" for i in range(40))
    + "a40=x\nb=" + "".join(f"{{{{a{i}}}}}" for i in range(40)) + "\n%post\n{{ b }}\n",
    "many uses": f"Bootstrap: docker\nFrom: x\n%arguments\na={'x' * 60000}\n%post\n" + "{{ a }}\n" * 4000,
}  # fmt: skip


def lint_values(text: str) -> list[str]:
    """What `recipe lint` says of values that are too long."""
    found = lint_recipe(text.encode(), "Recipe")
    return [f"{finding.place}: {finding.message}" for finding in found if finding.rule == "values-too-long"]


def read_all(text: str) -> None:
    for stage in read_recipe(text.encode(), "Recipe", BuildArguments()).stages:
        stage.plan({})


@each_row("name", RECIPES)
def test_values_of_a_dockerfile_are_bounded(name: str) -> None:
    with pytest.raises(InvalidRecipe, match=r"Recipe:\d+:\d+: .*put in more than") as raised:
        read_all(RECIPES[name])
    assert "shorter values" in (raised.value.hint or "")
    assert len(raised.value.message) < 1000
    assert lint_values(RECIPES[name]) == [raised.value.message]


@each_row("name", DEFINITIONS)
def test_values_of_a_definition_file_are_bounded(name: str) -> None:
    with pytest.raises(InvalidRecipe, match=r"Recipe:\d+:\d+: the value of '\w+' is too long") as raised:
        read_all(DEFINITIONS[name])
    assert len(raised.value.message) < 1000
    assert lint_values(DEFINITIONS[name]) == [raised.value.message]


NAMES = ("before FROM", "ARG, seven levels", "ARG", "ENV")
VERBS = (("recipe", "show"), ("recipe", "lint"), ("recipe", "convert"), ("build", "--dry-run", "o.sif"))


# What each verb does with such a value; and each place of one, for the verb that goes furthest
@each_row("name,words", [*(("ARG", words) for words in VERBS), *((name, VERBS[-1]) for name in NAMES if name != "ARG")])
def test_commands_end(shop: Workshop, name: str, words: tuple[str, ...]) -> None:
    """Those that look at what is in a variable refuse it; none fills the memory."""
    path = shop.write("Dockerfile", RECIPES[name])
    done = shop.runner.run(*words, str(path))
    assert done.returncode in (0, 1, 90), done.stderr[-2000:]
    if words[1] != "convert":
        said = done.stdout if words[1] == "lint" else done.stderr
        assert "put in more than" in said
        assert "Dockerfile:" in said
    assert "bug" not in done.stderr
    assert len(done.stdout) < 1 << 20


def test_onbuild_of_the_base_is_bounded(shop: Workshop) -> None:
    base = make_base(shop, *laugh("ENV", 12).splitlines())
    shop.write("Dockerfile", f"FROM {base}\nRUN true\n")
    done = shop.start("out.sif", "Dockerfile")
    assert done.returncode == 90, done.stderr[-2000:]
    assert "put in more than" in done.stderr


def test_directory_that_grows_is_bounded() -> None:
    with pytest.raises(InvalidRecipe, match="Recipe:3:1: WORKDIR is longer than 4096 characters"):
        read_all("FROM scratch\n" + f"WORKDIR {'x' * 4000}\n" * 10000)


def test_long_values_that_people_have_are_fine(shop: Workshop) -> None:
    longest = "x" * (LARGEST_VALUE // 2 - 100)
    assert LARGEST_VALUE < LARGEST_SUM
    read_all(f"FROM scratch\nARG v={longest[:60000]}\nENV w=$v$v PATH=/a:/b\n" + "ENV PATH=$PATH:/opt/x\n" * 300)
    document = "line $v\n" * 20000
    read_all(f"FROM scratch\nARG v=12345\nCOPY <<EOF /x\n{document}EOF\n")
    assert lint_values(f"FROM scratch\nARG v=12345\nCOPY <<EOF /x\n{document}EOF\n") == []
    shop.write("Dockerfile", f"{SHELL}ARG v={'y' * 30000}\nENV w=$v$v\nRUN echo ${{#w}} > /length\n")
    shop.build("out.sif", "Dockerfile")
    assert shop.exec("out.sif", "/bin/busybox", "cat", "/length") == "60000\n"
