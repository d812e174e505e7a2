# SPDX-License-Identifier: BSD-3-Clause
"""Secrets of a build are in nothing that it leaves: results of every format, unpacked; cache, node, log, temporary.

Also when a step that prints one fails, and when a build with one is killed.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.builds import SHELL, Workshop
from tests.builders.busybox import read_busybox
from tests.builders.containers import each_role
from tests.builders.images import make_config
from tests.builders.old_kernels import play_refusals
from tests.builders.sleepers import find_sleepers, make_seconds
from tests.builders.text_search import find_text
from tests.builders.waiting import wait_until
from tests.fakes.registry import FakeRegistry, Policy

SECRET = "kedge-test-secret-9f2d61"
OTHER = "kedge-test-other-77aa10"
FORMATS = ("sif", "sandbox", "oci", "oci-archive", "docker-archive")
# copied, printed, part of a file name in a place that is not kept
USE = (
    "RUN --mount=type=secret,id=token,required=true --mount=type=secret,id=other,env=OTHER "
    "--mount=type=tmpfs,target=/mem "
    'cp /run/secrets/token /mem/ && touch "/mem/$OTHER" && cat /run/secrets/token && echo "$OTHER"'
)
WORDS = ("--secret", "id=token,src=../token", "--secret", "id=other,env=MY_OTHER")


@pytest.fixture
def shop() -> Iterator[Workshop]:
    for runner in each_role("user", is_warm=True):
        made = Workshop.open(runner)
        made.write("../token", f"{SECRET}\n")
        yield made


@pytest.fixture
def way(request: pytest.FixtureRequest, shop: Workshop) -> dict[str, str]:
    own = {"MY_OTHER": OTHER}
    if getattr(request, "param", "overlay") == "overlay":
        return own
    return own | play_refusals(shop.runner.folder, "overlay", "fuse.fuse-overlayfs", "in children")


def assert_nowhere(shop: Workshop, *texts: str) -> None:
    (shop.runner.home / "token").unlink(missing_ok=True)
    for text in texts:
        assert find_text(text.encode(), shop.runner.folder) == []
        for place in ("/dev/shm", "/tmp", "/var/tmp"):
            found = [path for path in Path(place).glob("kedge-*.*") if path.is_dir()]
            own = [path for path in found if path.stat().st_uid == shop.runner.uid]
            assert [name for path in own for name in find_text(text.encode(), path)] == []


def test_search_looks_into_everything(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}COPY given /given\n")
    shop.write("given", SECRET)
    for form in FORMATS:
        shop.build("--format", form, f"../{form}", "Dockerfile")
    places = "\n".join(find_text(SECRET.encode(), shop.runner.folder))
    for form in FORMATS:
        assert f"{shop.runner.home}/{form}" in places
    assert "cache/" in places


@pytest.mark.parametrize("way", ["overlay", "directory"], indirect=True)
def test_secrets_are_in_no_result_and_no_cache(shop: Workshop, way: dict[str, str]) -> None:
    shop.write("Dockerfile", f"{SHELL}{USE} && wc -c < /run/secrets/token > /size && ! echo > /run/secrets/token\n")
    for form in FORMATS:
        done = shop.start("--progress", "plain", "--format", form, *WORDS, f"../{form}", ".", env=way)
        assert done.returncode == 0, done.stderr
        assert ("***" in done.stderr) == (form == FORMATS[0])  # the others have the step from the cache
        for text in (SECRET, OTHER):
            assert text not in done.stdout + done.stderr
    assert (shop.runner.home / "sandbox/size").read_text().strip() == str(len(SECRET) + 1)
    assert_nowhere(shop, SECRET, OTHER)


@pytest.mark.parametrize("way", ["directory"], indirect=True)
def test_failing_step_shows_no_secret(shop: Workshop, way: dict[str, str]) -> None:
    shop.write("Dockerfile", f"{SHELL}{USE} && exit 3\n")
    done = shop.start("--json", *WORDS, "../out.sif", ".", env=way)
    assert done.returncode == 91
    for text in (SECRET, OTHER):
        assert text not in done.stdout + done.stderr
    assert_nowhere(shop, SECRET, OTHER)
    assert shop.list_builds() == []


def test_killed_build_leaves_no_secret(shop: Workshop, way: dict[str, str]) -> None:
    seconds = make_seconds()
    shop.write("Dockerfile", f"{SHELL}{USE} && sleep {seconds}\n")
    child = shop.begin(*WORDS, "../out.sif", ".", env=way)
    wait_until("the step runs", lambda: bool(find_sleepers(seconds)))
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=30)
    wait_until("the step has ended", lambda: not find_sleepers(seconds), timeout=20)
    assert_nowhere(shop, SECRET, OTHER)


def test_agent_is_a_socket_of_one_step(shop: Workshop) -> None:
    shop.write("Dockerfile", f'{SHELL}RUN --mount=type=ssh test -S "$SSH_AUTH_SOCK"\nRUN [ -z "$SSH_AUTH_SOCK" ]\n')
    place = shop.runner.folder / f"agent-{OTHER}"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(place))
        place.chmod(0o777)
        shop.build("--ssh", "default", "--format", "sandbox", "../out", ".", env={"SSH_AUTH_SOCK": str(place)})
    assert not list((shop.runner.home / "out").rglob("*agent*"))
    place.unlink()
    assert_nowhere(shop, place.name)


def test_credentials_of_registries_are_sent_and_kept_nowhere(shop: Workshop) -> None:
    tar = build.layer(build.file("bin/sh", read_busybox(), mode=0o755))
    policy = Policy(auth="bearer", users={"me": SECRET}, private=frozenset({"team/base"}))
    auth = base64.b64encode(f"me:{SECRET}".encode()).decode()
    with FakeRegistry(policy) as registry:
        registry.add_image("team/base", "1", [build.compress(tar)], make_config([tar]))
        login = shop.write("../.docker/config.json", json.dumps({"auths": {registry.host: {"auth": auth}}}))
        shop.write("Dockerfile", f"FROM {registry.host}/team/base:1\nRUN set; cat /root/.docker/config.json; true\n")
        for form in FORMATS:
            shop.build("--format", form, f"../{form}", ".")
        done = shop.start("-t", f"{registry.host}/team/base:2", "--push", ".")
        assert done.returncode == 0, done.stderr
        pushed = b"\n".join(registry.blobs.values())
    login.unlink()
    for text in (SECRET, auth):
        assert text not in done.stderr + done.stdout
        assert text.encode() not in pushed
    assert_nowhere(shop, SECRET, auth)


@pytest.mark.parametrize("kind", ["Dockerfile", "x.def"])
def test_argument_that_looks_like_a_secret_is_warned_of_and_not_noted(shop: Workshop, kind: str) -> None:
    shop.write("Dockerfile", f"{SHELL}ARG API_TOKEN\nARG PLAIN\nRUN echo $API_TOKEN | wc -c\n")
    shop.write("x.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%post\necho {{{{ API_TOKEN }}}} | wc -c\n")
    plain = ("--build-arg", "PLAIN=visible") if kind == "Dockerfile" else ()
    done = shop.start("--build-arg", f"API_TOKEN={SECRET}", *plain, "--format", "sandbox", "../out", kind)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("API_TOKEN") >= 1
    assert "warning" in done.stderr.lower()
    if kind == "Dockerfile":  # in a definition file the value stands in the text of its section, as with Apptainer
        assert "visible" in shop.runner.read("inspect", "--json", str(shop.runner.home / "out"))
        assert_nowhere(shop, SECRET)


def test_job_that_builds_has_no_secret_in_its_script(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN echo built\n")
    done = shop.runner.run(
        "submit", "--site", "local", "--time", "5m", "--wait", "--build", "Dockerfile", "out.sif", "true",
        cwd=shop.context, env={"MY_OTHER": OTHER, "API_TOKEN": SECRET},
    )  # fmt: skip
    shop.runner.run("cancel", "--site", "local", "--all")
    assert done.returncode == 0, done.stdout + done.stderr
    for path in shop.runner.home.glob(".local/state/kedge/local-queue/*/ended/*/environment"):
        assert path.stat().st_mode & 0o777 == 0o600  # what the job was submitted with
        path.unlink()
    assert_nowhere(shop, SECRET, OTHER)
