# SPDX-License-Identifier: BSD-3-Clause
"""`kedge build` as people type it and see it: both shapes, logs, terminals, JSON, failures, names in the cache."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kedge.base.frozen import replace
from kedge.base.platform import Platform
from kedge.container.shim_file import make_shim
from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import each_role
from tests.fakes.registry import FakeRegistry
from tests.fakes.terminal import run_on_terminal
from tests.requirements import REPOSITORY
from tests.wording import assert_says

RECIPE = f'{SHELL}FROM base\nRUN echo working; echo made > /made\nCMD ["/bin/cat", "/made"]\n'
STEPS = ["[base 1/2] COPY busybox /bin/busybox", "[stage-1 1/1] RUN echo working; echo made > /made"]


@pytest.fixture
def shop() -> Iterator[Workshop]:
    for runner in each_role("user", is_warm=True):
        made = Workshop.open(runner)
        made.write("Dockerfile", RECIPE)
        yield made


def as_docker(shop: Workshop) -> Workshop:
    """The same user, who types `docker`."""
    path = shop.runner.folder / "docker"
    path.write_text(make_shim("docker", shop.runner.program[0], str(REPOSITORY / "src")))
    path.chmod(0o755)
    return Workshop(replace(shop.runner, program=(str(path),)), shop.context)


def test_plain_lines_name_the_step(shop: Workshop) -> None:
    done = shop.start("out.sif", ".")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert set(STEPS) <= set(lines)
    assert any(line.startswith("[stage-1 1/1] ") and line.endswith(" working") for line in lines)
    assert any(line.startswith("[stage-1 1/1] DONE ") for line in lines)
    assert lines[-1].startswith("out.sif (")
    assert "3 steps, 2 cached" in lines[-1]
    again = shop.start("-F", "out.sif", "Dockerfile").stderr.splitlines()
    assert "[stage-1 1/1] CACHED" in again
    assert "3 steps, 3 cached" in again[-1]


def test_json_lines_are_one_object_each(shop: Workshop) -> None:
    done = shop.start("--progress", "json", "--json", "-t", "tools", ".")
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"begin", "output", "end"} <= {event["event"] for event in events}
    assert any(event.get("line") == "working" for event in events)
    result = json.loads(done.stdout)
    assert (result["reference"], result["path"]) == ("tools", None)
    assert [step["state"] for step in result["steps"]] == ["cached", "cached", "done"]


def test_quiet_prints_the_digest_alone(shop: Workshop) -> None:
    done = shop.start("-q", "-t", "tools", ".")
    assert done.stderr == ""
    assert done.stdout.startswith("sha256:")
    assert len(done.stdout.splitlines()) == 1


def test_a_terminal_shows_running_steps_and_survives_hostile_output(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}FROM base\nRUN printf '\\033]0;title\\007\\033[2Jred\\n'; sleep 1\n")
    argv = shop.runner.argv("build", "-t", "tools", str(shop.context))
    status, shown = run_on_terminal(argv, shop.runner.variables({"TERM": "xterm"}))
    assert status == 0, shown
    assert "\033]0;" not in shown
    assert "\033[2J" not in shown
    assert "| \033[0mred" in shown or "|\033[0m red" in shown
    assert "DONE" in shown


def test_dry_run_says_what_would_be_done_and_does_nothing(shop: Workshop) -> None:
    done = shop.start("--dry-run", "out.sif", ".")
    assert done.returncode == 0, done.stderr
    assert "  run    1/1 RUN echo working; echo made > /made" in done.stdout.splitlines()
    assert not (shop.context / "out.sif").exists()
    shop.build("out.sif", ".")
    shop.write("Dockerfile", RECIPE.replace("working", "other"))
    shown = json.loads(shop.start("--dry-run", "--json", "out2.sif", ".").stdout)
    states = {(stage["name"], step["number"]): step["state"] for stage in shown["stages"] for step in stage["steps"]}
    assert states == {("base", 1): "cached", ("base", 2): "cached", ("stage-1", 1): "run"}
    assert not (shop.context / "out2.sif").exists()


def test_a_step_that_fails_shows_its_end_and_its_place(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}FROM base\nRUN echo before >&2 && \\\n    false\nRUN true\n")
    done = shop.start("out.sif", ".")
    assert done.returncode == 91
    lines = done.stderr.splitlines()
    assert "  | before" in lines
    assert "status 1" in done.stderr
    log = next((shop.runner.home / ".local/state/kedge/builds").glob("*.log"))
    assert "before" in log.read_text()
    assert str(log) in done.stderr
    assert ">    5 | RUN echo before >&2 && \\" in lines
    assert ">    6 |     false" in lines
    assert any(line.startswith("kedge: Dockerfile:5:1: ") for line in lines)
    assert any(line.startswith("hint: ") and "--shell-on-error" in line for line in lines)
    assert shop.list_builds() == []
    assert not (shop.context / "out.sif").exists()


def test_a_step_that_dies_of_a_signal_names_it(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}FROM base\nRUN kill -SEGV $$\n")
    assert_says(shop.start("out.sif", ".").stderr, "build/run-kill-segv-killed-sigsegv")
    shop.write("Dockerfile", f"{SHELL}FROM base\nRUN kill -9 $$\n")
    killed = shop.start("out.sif", ".")
    assert killed.returncode == 91
    assert_says(killed.stderr, "schedulers/killed-sigkill-memory-ran-out")
    assert_says(killed.stderr, "build/let-step-use-fewer-processes")


def test_a_copy_from_a_stage_does_not_count_the_wait_for_it(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}FROM base AS slow\nRUN sleep 2; echo 1 > /a\nFROM base\nCOPY --from=slow /a /b\n")
    result = json.loads(shop.start("--json", "out.sif", ".").stdout)
    seconds = {step["label"]["text"]: step["seconds"] for step in result["steps"]}
    assert seconds["RUN sleep 2; echo 1 > /a"] >= 2
    assert seconds["COPY --from=slow /a /b"] < 1.5


def test_a_recipe_of_standard_input(shop: Workshop) -> None:
    done = shop.runner.run("build", "-t", "tools", "-f", "-", ".", stdin=RECIPE, cwd=shop.context)
    assert done.returncode == 0, done.stderr
    assert shop.runner.read("run", "docker://tools") == "made\n"


def test_a_name_means_the_newest_build(shop: Workshop) -> None:
    shop.build("-t", "tools", "-t", "team/tools:1", ".")
    shop.write("second.Dockerfile", "FROM tools\nRUN cat /made > /again\n")  # no registry has it
    shop.build("out.sif", "second.Dockerfile")
    assert shop.read("out.sif", "/again") == "made\n"
    assert shop.runner.read("run", "docker://team/tools:1") == "made\n"
    shop.write("Dockerfile", RECIPE.replace("echo made", "echo new"))
    shop.build("-t", "tools", ".")
    assert shop.runner.read("run", "docker://tools") == "new\n"
    assert shop.runner.read("run", "docker://team/tools:1") == "made\n"
    shop.runner.read("image", "tag", "tools", "team/tools:1")
    assert shop.runner.read("run", "docker://team/tools:1") == "new\n"
    shown = json.loads(shop.runner.read("image", "list", "--json"))
    assert {image["reference"] for image in shown} == {"docker.io/library/tools:latest", "docker.io/team/tools:1"}


def test_a_push_goes_to_the_registry_of_the_name(shop: Workshop) -> None:
    with FakeRegistry() as registry:
        name = f"{registry.host}/team/tools"
        result = shop.build("--no-https", "-t", f"{name}:1", "-t", f"{name}:2", "--push", ".")
        assert {tag for repository, tag in registry.manifests if repository == "team/tools"} >= {"1", "2"}
        shop.runner.read("image", "tag", f"{name}:1", f"{name}:3")
        shop.runner.read("push", "--no-https", f"docker://{name}:3", f"docker://{name}:3")
        assert ("team/tools", "3") in registry.manifests
        fresh = {"KEDGE_CACHEDIR": str(shop.runner.home / "other"), "KEDGE_NODEDIR": str(shop.runner.home / "far")}
        assert shop.runner.read("run", "--no-https", f"docker://{name}:3", env=fresh) == "made\n"
        assert shop.runner.read("run", "--no-https", f"docker://{name}@{result['digest']}", env=fresh) == "made\n"


def test_docker_words_build_and_run(shop: Workshop) -> None:
    docker = as_docker(shop)
    done = docker.runner.run("build", "-t", "me/tools:1", "-f", "Dockerfile", ".", cwd=shop.context)
    assert done.returncode == 0, done.stderr
    assert "me/tools" in docker.runner.read("images")
    assert docker.runner.read("run", "--rm", "me/tools:1") == "made\n"
    words = ("run", "--rm", "-e", "A=1,2", "-v", f"{shop.context}:/here", "-w", "/here", "me/tools:1")
    shown = docker.runner.read(*words, "sh", "-c", "echo $A; id -u; ls Dockerfile; echo x > /new && cat /new; ls ~")
    assert shown.split() == ["1,2", "0", "Dockerfile", "x"]
    uid = str(shop.runner.uid)
    assert docker.runner.read("run", "--entrypoint", "id", "-u", uid, "me/tools:1", "-u") == f"{uid}\n"
    failed = docker.runner.run("run", "-d", "me/tools:1")
    assert (failed.returncode, "kedge instance" in failed.stderr) == (125, True)  # as Docker's own failures
    assert docker.runner.run("run", "--rm", "me/tools:1", "sh", "-c", "exit 2").returncode == 2
    assert docker.runner.run("rmi", "x").returncode == 1


def test_apptainer_words_build_definitions(shop: Workshop) -> None:
    shop.write("x.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%post\nmkdir /made\n")
    path = shop.runner.folder / "apptainer"
    path.write_text(make_shim("apptainer", shop.runner.program[0], str(REPOSITORY / "src")))
    path.chmod(0o755)
    apptainer = replace(shop.runner, program=(str(path),))
    done = apptainer.run("build", "--fakeroot", "-F", "x.sif", "x.def", cwd=shop.context)
    assert done.returncode == 0, done.stderr
    assert "INFO:    [" in done.stderr
    assert apptainer.read("exec", "x.sif", "ls", "-d", "/made", cwd=shop.context) == "/made\n"


def test_platform_of_a_base_for_another_one_is_refused(shop: Workshop) -> None:
    """Whether its steps are in the cache or not: the image would be for this host, under another one's name."""
    other = "amd64" if Platform.host().architecture == "arm64" else "arm64"
    shop.write("x.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%post\ntrue\n")
    shop.build("base.sif", "x.def")
    shop.write("x.def", "Bootstrap: localimage\nFrom: base.sif\n%post\ntrue\n")
    shop.build("here.sif", "x.def")
    done = shop.start("--platform", f"linux/{other}", "there.sif", "x.def")
    assert done.returncode != 0
    assert_says(done.stderr, "build/and-the-build-for", other)
    assert not (shop.context / "there.sif").exists()
