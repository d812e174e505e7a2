# SPDX-License-Identifier: BSD-3-Clause
"""A Dockerfile, or the base image that it names, wants directories of the host: `--from` and FROM with a path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.builds.bases.named_contexts import settle_origin
from kedge.builds.step_values import Base, CopyOrigin, RecipePlace
from kedge.errors import InvalidRecipe
from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import give_to, make_sandbox
from tests.builders.rows import each_row
from tests.builders.strangers import KEY, find_key, make_base, plant_key
from tests.wording import assert_says

STEPS = (
    "COPY --from={home} /.ssh/id_ed25519 /x",
    "COPY --from=../.. /home/.ssh/id_ed25519 /x",
    "RUN --mount=type=bind,from={home}/.ssh,target=/m cat /m/id_ed25519 > /x; cat /x",
    "RUN --mount=type=cache,from={home}/.ssh,target=/m cat /m/id_ed25519 > /x; cat /x",
)
LOCAL = (
    *("/home", "./x", "../x", "oci:x", "oci-archive:x.tar", "docker-archive:x.tar", "docker-daemon:x:latest"),
    *("host:sh", "host:sh,cat", "oci:/home/me:tag"),
)
PLACE = RecipePlace("Dockerfile", 3)


@pytest.fixture(name="home")
def open_home(shop: Workshop) -> Path:
    plant_key(shop)
    return shop.runner.home


def attack(shop: Workshop, recipe: str, *words: str, name: str = "Dockerfile") -> str:
    """Build what has to fail without the key; returns what was said."""
    shop.write(name, recipe)
    done = shop.start(*words, "--progress", "plain", "--format", "sandbox", "out", name)
    assert KEY not in done.stdout + done.stderr
    assert not (shop.context / "out").exists() or find_key(shop.context / "out") == []
    assert done.returncode == 90, done.stderr
    assert f"{name}:" in done.stderr
    assert "bug" not in done.stderr
    return done.stderr


# What ONBUILD brings is settled by the same function, which knows whose it is: a copy and a mount show that
@each_row("step,way", [*((step, "recipe") for step in STEPS), *((step, "ONBUILD") for step in STEPS[::2])])
def test_path_in_from_of_a_step(shop: Workshop, home: Path, step: str, way: str) -> None:
    text = step.format(home=home)
    recipe = f"{SHELL}{text}\n" if way == "recipe" else f"FROM {make_base(shop, text)}\nRUN true\n"
    said = attack(shop, recipe)
    assert_says(said, "build/lies-host")
    assert ("--build-context NAME=" in said) == (way == "recipe")


@each_row("name", LOCAL)
@each_row("is_trigger", [False, True])
def test_only_images_of_registries_are_origins(name: str, is_trigger: bool) -> None:
    with pytest.raises(InvalidRecipe, match=r"Dockerfile:3:1: .* lies on this host"):
        settle_origin(CopyOrigin(image=name, is_trigger=is_trigger), {}, PLACE)
    for other in ("ubuntu", "docker://ubuntu:24.04", "host:5000/a/b", "oras://h/x:1", "https://h/x.sif"):
        assert isinstance(settle_origin(CopyOrigin(image=other), {}, PLACE), Base)


@each_row("value", ["/data", "local:/data", "oci:/data", "oci-archive:/data.tar", "oci-layout:///data"])
def test_contexts_of_the_host_are_not_for_onbuild(value: str) -> None:
    contexts = {"data": value, "image": "docker-image://ubuntu"}
    assert settle_origin(CopyOrigin(name="data"), contexts, PLACE) is not None
    with pytest.raises(InvalidRecipe, match="ONBUILD of the base image copies from the context 'data'"):
        settle_origin(CopyOrigin(name="data", is_trigger=True), contexts, PLACE)
    assert isinstance(settle_origin(CopyOrigin(name="image", is_trigger=True), contexts, PLACE), Base)


def test_context_of_the_command_line_is_for_the_recipe_alone(shop: Workshop, home: Path) -> None:
    shop.write("data/file", "mine\n")
    words = ("--build-context", f"data={home}/context/data")
    shop.write("Dockerfile", f"{SHELL}COPY --from=data file /x\nRUN --mount=from=data,target=/m cat /m/file > /y\n")
    shop.build(*words, "fine.sif", "Dockerfile")
    assert shop.exec("fine.sif", "/bin/busybox", "cat", "/x", "/y") == "mine\nmine\n"
    base = make_base(shop, "COPY --from=data file /x")
    assert_says(attack(shop, f"FROM {base}\nRUN true\n", *words), "build/your-own-recipe-copy-data")
    own = f"{SHELL}FROM base AS parent\nONBUILD COPY --from=data file /x\nFROM parent\nRUN cat /x\n"
    shop.write("Dockerfile", own)  # of the same author
    shop.build(*words, "own.sif", "Dockerfile")


NAMES = ("{home}", "../", "/", "link", "{home}/bin", "data")


# The directory is judged in one place for both; a definition file asks there once by a path and once by a name
@each_row("name,kind", [*((name, "recipe") for name in NAMES), *((name, "definition") for name in NAMES[::5])])
def test_directory_that_is_no_root_file_system_is_no_base(shop: Workshop, home: Path, name: str, kind: str) -> None:
    shop.write("data/file", KEY)
    (home / "bin").mkdir(exist_ok=True)
    (shop.context / "link").unlink(missing_ok=True)
    (shop.context / "link").symlink_to(home)
    give_to(shop.runner, home)
    path = name.format(home=home)
    path = path if path.startswith(("/", ".")) else f"./{path}"
    if kind == "definition":
        said = attack(shop, f"Bootstrap: localimage\nFrom: {path}\n", name="x.def")
    else:
        said = attack(shop, f"FROM {path}\nCOPY busybox /busybox\n")
    assert_says(said, "build/not-root-file-system")
    assert "--build-context NAME=DIRECTORY" in said


def test_sandbox_is_a_base_and_is_named(shop: Workshop) -> None:
    make_sandbox(shop.context / "sandbox")
    give_to(shop.runner, shop.context)
    shop.write("Dockerfile", "FROM ./sandbox\nRUN echo 1 > /x\n")
    done = shop.start("out.sif", "Dockerfile")
    assert done.returncode == 0, done.stderr
    assert_says(done.stderr, "build/begins-sandbox-host", "Dockerfile:1:6", os.path.realpath(shop.context))
    shop.write("Dockerfile", "FROM extra\nCOPY busybox /bin/busybox\n")
    shop.write("plain/file", "1")
    shop.build("--build-context", "extra=plain", "plain.sif", "Dockerfile")  # by the user's word
