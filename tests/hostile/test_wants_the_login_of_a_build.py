# SPDX-License-Identifier: BSD-3-Clause
"""A recipe names a registry of its author, which wants the login in the user's environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from kedge.builds.bases.named_contexts import bind_login
from kedge.builds.read_recipe import read_recipe
from kedge.builds.request import BuildOutput, BuildRequest
from kedge.builds.step_values import BuildArguments
from kedge.image.registry.credentials import Credential, CredentialSources
from kedge.image.registry.docker_config import Login
from kedge.image.registry.secret import Secret, encode_basic
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders.builds import SHELL, Workshop
from tests.builders.rows import each_row
from tests.builders.strangers import make_base
from tests.fakes.http_server import FakeServer, Recorded, Reply
from tests.wording import assert_says

PASSWORD = "a-password-that-nobody-else-may-see"
VARIABLES = ("APPTAINER_DOCKER", "SINGULARITY_DOCKER", "DOCKER", "KEDGE_DOCKER", "KEDGE")
SENT = encode_basic("me", Secret(PASSWORD)).reveal()


@pytest.fixture(name="stranger")
def serve_stranger() -> Iterator[FakeServer]:
    """A registry that asks everybody for a login, and keeps it."""

    def answer(request: Recorded) -> Reply:
        del request
        return Reply(401, headers={"WWW-Authenticate": 'Basic realm="stranger"'})

    with FakeServer(answer) as server:
        yield server


def start(shop: Workshop, *words: str, name: str = "APPTAINER_DOCKER") -> None:
    env = {f"{name}_USERNAME": "me", f"{name}_PASSWORD": PASSWORD, "KEDGE_RETRIES": "0"}
    done = shop.start(*words, env=env)
    assert done.returncode not in (0, 1), done.stderr
    assert "bug" not in done.stderr
    assert PASSWORD not in done.stderr


def list_logins(server: FakeServer) -> set[str]:
    assert server.log  # it was asked at all
    return {request.authorization for request in server.log} - {""}


STEPS = ("COPY --from=HOST/x:1 /a /b", "RUN --mount=from=HOST/x:1,target=/m true")


# A dry run asks the registries in the same way: once
@each_row("step,way", [*((step, "") for step in STEPS), (STEPS[0], "--dry-run")])
def test_login_is_not_for_the_registry_of_a_step(shop: Workshop, stranger: FakeServer, step: str, way: str) -> None:
    shop.write("Dockerfile", f"{SHELL}\n")
    shop.build("--force", "first.sif", "Dockerfile")  # a dry run asks for what comes behind the steps that are there
    shop.write("Dockerfile", f"{SHELL}{step.replace('HOST', stranger.host)}\n")
    start(shop, *filter(None, [way]), "out.sif", "Dockerfile")
    assert list_logins(stranger) == set()


@each_row("name", VARIABLES)
def test_login_is_not_for_the_registry_of_onbuild(shop: Workshop, stranger: FakeServer, name: str) -> None:
    base = make_base(shop, f"COPY --from={stranger.host}/x:1 /a /b")
    shop.write("Dockerfile", f"FROM {base}\nRUN true\n")
    start(shop, "out.sif", "Dockerfile", name=name)
    assert list_logins(stranger) == set()


def test_login_of_a_push_is_not_for_the_base(shop: Workshop, stranger: FakeServer) -> None:
    shop.write("Dockerfile", f"FROM {stranger.host}/x:1\nRUN true\n")
    start(shop, "-t", "localhost:1/mine:1", "--push", ".")
    assert list_logins(stranger) == set()


def test_login_is_for_the_first_base(shop: Workshop, stranger: FakeServer) -> None:
    shop.write("Dockerfile", f"FROM {stranger.host}/x:1\nRUN true\n")
    start(shop, "out.sif", "Dockerfile")
    assert list_logins(stranger) == {SENT}
    stranger.log.clear()
    shop.write("x.def", f"Bootstrap: docker\nFrom: {stranger.host}/x:1\n")
    start(shop, "out.sif", "x.def")
    assert list_logins(stranger) == {SENT}


@each_row(
    ("recipe", "contexts", "output", "owners"),
    [
        ("FROM a.org/x\nFROM b.org/y\nCOPY --from=c.org/z / /", {}, BuildOutput(), {"a.org"}),
        ("FROM scratch\nFROM b.org/y\n", {}, BuildOutput(), {"b.org"}),
        ("FROM scratch\nCOPY --from=c.org/z / /", {}, BuildOutput(), set()),
        ("FROM ./sandbox\nCOPY --from=c.org/z / /", {}, BuildOutput(), set()),
        ("FROM ubuntu", {}, BuildOutput(), {"docker.io"}),
        ("FROM base", {"base": "docker-image://d.org/x"}, BuildOutput(), {"d.org"}),
        ("FROM a.org/x", {}, BuildOutput(tag="p.org/x:1"), {"a.org"}),
        ("FROM a.org/x", {}, BuildOutput(tag="p.org/x:1", further_tags=("q.org/x",), push=True), {"p.org", "q.org"}),
        ("Bootstrap: docker\nRegistry: a.org\nFrom: x\n", {}, BuildOutput(), {"a.org"}),
        ("Bootstrap: library\nFrom: a/b/c:1\n", {}, BuildOutput(), set()),
    ],
)
def test_who_owns_the_login(recipe: str, contexts: Mapping[str, str], output: BuildOutput, owners: set[str]) -> None:
    read = read_recipe(recipe.encode(), "Recipe", BuildArguments(contexts=tuple(contexts)))
    request = BuildRequest("Recipe", contexts=contexts, output=output)
    bound = bind_login(Workplace(Settings.load({}, {})), request, read)
    assert bound.login_registries == owners


@each_row("is_typed", [True, False])
def test_login_without_a_registry_has_one_owner(is_typed: bool) -> None:
    typed = Credential(Login("me", Secret(PASSWORD)), "--docker-login") if is_typed else None
    environ = {} if is_typed else {"DOCKER_USERNAME": "me", "DOCKER_PASSWORD": PASSWORD}
    sources = CredentialSources(typed, environ=environ, registries=frozenset({"a.org"}))
    assert sources.find("a.org", "x").credential is not None
    assert sources.find("A.ORG", "x").credential is not None
    for other in ("b.org", "a.org.evil", "evil-a.org", "a.org:444", ""):
        found = sources.find(other, "x")
        assert found.credential is None
        assert_says(found.notes[0], "pull/org-does-not-send")
        assert PASSWORD not in repr(found)
