# SPDX-License-Identifier: BSD-3-Clause
"""Whole builds as an ordinary user, of both kinds of recipes: steps, cache, stages, results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import each_role
from tests.builders.old_kernels import play_refusals


@pytest.fixture(params=["user", "root"])
def shop(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    for runner in each_role(request.param):
        yield Workshop.open(runner)


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    del request
    for runner in each_role("user"):
        yield Workshop.open(runner)


def test_dockerfile_gives_an_image_that_runs(shop: Workshop) -> None:
    shop.write("greeting", "hello\n")
    shop.write(
        "Dockerfile",
        f"{SHELL}ENV A=1 PATH=/bin\nWORKDIR /place\nRUN echo $A > made && rm /bin/stat\n"
        'COPY greeting /etc/\nCMD ["cat", "/etc/greeting", "/place/made"]\n',
    )
    shop.build("out.sif", "Dockerfile")
    assert shop.runner.read("run", str(shop.context / "out.sif")) == "hello\n1\n"
    assert "/bin/stat" not in shop.exec("out.sif", "sh", "-c", "ls /bin/* /place").split()
    shown = shop.runner.read("inspect", "--deffile", str(shop.context / "out.sif"))
    assert shown.strip() == (shop.context / "Dockerfile").read_text().strip()


def test_definition_gives_an_image_that_runs(shop: Workshop) -> None:
    shop.write("greeting", "hello\n")
    shop.write(
        "x.def",
        f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%files\ngreeting /etc/greeting\n%environment\nexport A=1\n"
        "%post\necho 'export B=2' >> $APPTAINER_ENVIRONMENT\necho 'extra label' >> $APPTAINER_LABELS\nmkdir /made\n"
        '%runscript\necho "$A $B $*"; cat /etc/greeting\n%labels\nAuthor me\n%test\ntest -d /made\n%help\nread me\n',
    )
    shop.build("out.sif", "x.def")
    assert shop.runner.read("run", str(shop.context / "out.sif"), "word") == "1 2 word\nhello\n"
    labels = shop.runner.read("inspect", str(shop.context / "out.sif"))
    assert "Author: me" in labels
    assert "extra: label" in labels
    assert "read me" in shop.runner.read("run-help", str(shop.context / "out.sif"))
    assert shop.exec("out.sif", "ls", "-a", "/").count(".build.labels") == 0


def test_unchanged_steps_are_not_done_again(own: Workshop) -> None:
    own.write("data", "1\n")
    own.write("Dockerfile", f"{SHELL}RUN cat /proc/sys/kernel/random/uuid > /first\nCOPY data /\nRUN echo 1 > /last\n")
    assert set(own.states("a.sif", "Dockerfile")) == {"done"}
    assert set(own.states("b.sif", "Dockerfile")) == {"cached"}
    assert (own.context / "a.sif").read_bytes() == (own.context / "b.sif").read_bytes()
    (own.context / "data").touch()  # times do not count
    assert set(own.states("c.sif", "Dockerfile")) == {"cached"}
    own.write("data", "2\n")
    assert own.states("d.sif", "Dockerfile") == ["cached", "cached", "cached", "done", "done"]
    assert own.exec("d.sif", "cat", "/first", "/data") == own.exec("a.sif", "cat", "/first") + "2\n"
    assert set(own.states("--no-cache", "e.sif", "Dockerfile")) == {"done"}
    assert own.exec("e.sif", "cat", "/first") != own.exec("a.sif", "cat", "/first")


def test_stages_that_nobody_needs_are_not_built(own: Workshop) -> None:
    own.write(
        "Dockerfile",
        f"{SHELL}FROM base AS broken\nRUN false\nFROM base AS one\nRUN echo 1 > /one\nFROM base AS two\n"
        "RUN echo 2 > /two\nFROM scratch\nCOPY --from=one /one /\nCOPY --from=two /two /\n",
    )
    result = own.build("--format", "sandbox", "out", "Dockerfile")
    assert {step["label"]["stage"] for step in result["steps"]} == {"base", "one", "two", "stage-4"}
    files = {path.name for path in (own.context / "out").iterdir() if path.is_file() and not path.is_symlink()}
    assert {"one", "two"} <= files
    assert not (own.context / "out/bin/busybox").exists()
    assert own.start("--target", "broken", "x.sif", "Dockerfile").returncode == 91


def test_build_works_without_overlays(own: Workshop) -> None:
    refused = play_refusals(own.runner.folder, "overlay", "fuse.fuse-overlayfs", "in children")
    own.write("data", "1\n")
    own.write(
        "Dockerfile",
        f"{SHELL}RUN mkdir -p /x/y && echo 1 > /x/y/z\nCOPY data /x/\nRUN rm -r /x/y /bin/stat && cat /x/data > /x/w\n",
    )
    assert set(own.states("a.sif", "Dockerfile", env=refused)) == {"done"}
    assert set(own.states("b.sif", "Dockerfile")) == {"cached"}
    assert own.exec("a.sif", "sh", "-c", "ls /x; ls /bin/stat /x/y 2>&1 | wc -l; cat /x/w") == "data\nw\n2\n1\n"
    own.write(
        "Dockerfile",
        f"{SHELL}FROM base AS one\nRUN echo 1 > /one\nFROM base AS two\nRUN echo 2 > /two\n"
        "FROM base\nCOPY --from=one /one /\nCOPY --from=two /two /\nRUN cat /one /two > /both\n",
    )
    own.build("c.sif", "Dockerfile", env=refused)
    assert own.exec("c.sif", "cat", "/both") == "1\n2\n"
    assert own.list_builds() == []


def test_a_step_sees_nothing_of_the_host(own: Workshop) -> None:
    own.write(
        "Dockerfile",
        f"{SHELL}RUN ls -a /root /tmp /home /var/tmp 2>&1; env; ls /dev; grep -c . /proc/mounts >/dev/null\n",
    )
    done = own.start("--progress", "plain", "out.sif", "Dockerfile", env={"SEEN": "nothing", "APPTAINERENV_B": "c"})
    assert done.returncode == 0, done.stderr
    assert "SEEN" not in done.stderr
    assert "context" not in done.stderr.replace("context)", "")


def test_images_say_how_they_were_built(own: Workshop) -> None:
    own.write("Dockerfile", f"{SHELL}ARG WHAT=1\nRUN echo $WHAT > /what\n")
    own.build("--build-arg", "WHAT=2", "out.sif", "Dockerfile")
    report = json.loads(own.runner.read("inspect", "--json", str(own.context / "out.sif")))
    note = report["data"]["attributes"]["build"]
    assert note["arguments"] == {"WHAT": "2"}
    assert note["recipe"]["kind"] == "dockerfile"
    assert "RUN echo $WHAT > /what" in note["steps"]


@pytest.mark.parametrize("form", ["sandbox", "oci", "oci-archive", "docker-archive", "squashfs"])
def test_results_in_all_formats_are_the_same_image(own: Workshop, form: str) -> None:
    own.write("Dockerfile", f'{SHELL}RUN echo 1 > /one && rm /bin/stat\nENV A=b\nCMD ["cat", "/one"]\n')
    assert own.build("--format", form, "out", "Dockerfile")["size"] > 100_000
    reference = str(own.context / "out") if form in ("sandbox", "squashfs") else f"{form}:{own.context / 'out'}"
    command = "ls /bin/stat 2>/dev/null; cat /one"
    assert own.runner.read("exec", "--no-home", reference, "sh", "-c", command) == "1\n"


def test_an_image_instead_of_a_recipe_is_converted(own: Workshop) -> None:
    base = own.make_base()
    own.build("out.sif", str(base))
    assert own.exec("out.sif", "echo", "there") == "there\n"
    own.build("--sandbox", "again", "out.sif")
    assert (own.context / "again/bin/busybox").exists()


def test_source_date_epoch_gives_the_same_bytes_twice(own: Workshop) -> None:
    own.write("Dockerfile", f"{SHELL}WORKDIR /a/b\nRUN echo 1 > /one\n")
    env = {"SOURCE_DATE_EPOCH": "1000000000"}
    for name in ("a.sif", "b.sif"):
        own.build("--no-cache", name, "Dockerfile", env=env)
    assert (own.context / "a.sif").read_bytes() == (own.context / "b.sif").read_bytes()


def test_definition_from_nothing_has_mount_points(own: Workshop) -> None:
    own.write("x.def", "Bootstrap: scratch\n%files\nbusybox /bin/\n")
    own.build("--sandbox", "out", "x.def")
    assert {path.name for path in (own.context / "out").iterdir()} >= {
        "bin",
        "dev",
        "proc",
        "sys",
        "tmp",
        "etc",
        "home",
    }


def test_labels_of_the_command_line_are_in_both_kinds(own: Workshop) -> None:
    own.write("x.def", f"Bootstrap: localimage\nFrom: {own.make_base()}\n%labels\nA 1\nB 1\n")
    own.write("Dockerfile", f"{SHELL}LABEL A=1 B=1\n")
    for recipe in ("x.def", "Dockerfile"):
        own.build("--label", "B=2", "-F", "out.sif", recipe)
        assert {"A: 1", "B: 2"} <= set(own.runner.read("inspect", str(own.context / "out.sif")).splitlines())


def test_programs_of_another_architecture_are_refused_before_they_run(own: Workshop) -> None:
    foreign = "amd64" if os.uname().machine == "aarch64" else "arm64"
    own.write("Dockerfile", 'FROM scratch\nCOPY busybox /x\nRUN ["/x"]\n')
    done = own.start("--platform", f"linux/{foreign}", "out.sif", "Dockerfile")
    assert done.returncode in (0, 17)
    assert foreign in done.stderr
    own.write("Dockerfile", "FROM scratch\nCOPY busybox /x\n")
    own.build("--platform", f"linux/{foreign}", "out.sif", "Dockerfile")


def test_bytes_that_are_no_text_are_built(own: Workshop) -> None:
    path = own.write("Dockerfile", "")
    path.write_bytes(SHELL.encode() + b"ENV A=\xff\xfe\nLABEL b=\xe9\nRUN echo \xe9 > /x && echo $A > /a\n")
    own.build("out.sif", "Dockerfile")
    own.build("--format", "oci", "out", "Dockerfile")
    assert own.exec("out.sif", "sh", "-c", "wc -c < /x; wc -c < /a").split() == [
        "2",
        "7",
    ]  # as docker build, which puts U+FFFD into variables
    own.runner.read("inspect", "--all", "--json", str(own.context / "out.sif"))


UPDATE = """Bootstrap: localimage
From: /no/such/image
%environment
export B=2
%files
more /more
%post
cat /made > /post
%labels
Second yes
%runscript
echo second
%help
read me
"""


def test_an_update_runs_the_sections_in_the_sandbox(shop: Workshop) -> None:
    shop.write("more", "more\n")
    first = f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%post\necho first > /made\n%labels\nFirst yes\n"
    shop.write("first.def", first)
    shop.write("update.def", UPDATE)
    shop.build("--sandbox", "box", "first.def")
    (shop.context / "box/by-hand").write_text("kept")
    shop.build("--update", "--sandbox", "box", "update.def")
    assert shop.exec("box", "sh", "-c", "cat /made /post /more; echo $B") == "first\nfirst\nmore\n2\n"
    assert (shop.context / "box/by-hand").read_text() == "kept"
    labels = shop.runner.read("inspect", str(shop.context / "box"))
    assert "First: yes" in labels
    assert "Second: yes" in labels
    assert "/no/such/image" not in labels
    assert shop.runner.read("inspect", "--deffile", str(shop.context / "box")).strip() == UPDATE.strip()
    assert (shop.context / "box/.singularity.d/bootstrap_history/Apptainer0").read_text() == first


def test_an_update_that_fails_leaves_the_sandbox(own: Workshop) -> None:
    own.write("more", "more\n")
    own.write("first.def", f"Bootstrap: localimage\nFrom: {own.make_base()}\n")
    own.write("update.def", UPDATE)
    own.build("--sandbox", "box", "first.def")
    done = own.start("--update", "box", "update.def")  # there is no /made
    assert done.returncode == 91
    assert not (own.context / "box/more").exists()
    assert own.start("--update", "--sandbox", "other", "update.def").returncode == 2


def test_chosen_sections_alone_run_and_are_noted(own: Workshop) -> None:
    own.write("more", "more\n")
    own.write("x.def", UPDATE.replace("/no/such/image", str(own.make_base())).replace("/made", "/etc/passwd"))
    own.build("--section", "post,environment", "out.sif", "x.def")
    assert own.exec("out.sif", "sh", "-c", "ls /more /post; echo $B").endswith("/post\n2\n")
    report = json.loads(own.runner.read("inspect", "--all", "--json", str(own.context / "out.sif")))
    attributes = report["data"]["attributes"]
    assert attributes["build"]["sections"] == ["post", "environment"]
    assert "Second" not in attributes["labels"]
    assert "second" not in attributes.get("runscript", "")
    assert not attributes.get("helpfile")
    wrong = own.start("--section", "psot", "b.sif", "x.def")
    assert "has no section 'psot'" in wrong.stderr
    assert "'post'" in wrong.stderr
    own.write("Dockerfile", SHELL)
    assert "--section works with definition files" in own.start("--section", "post", "b.sif", "Dockerfile").stderr


def test_verify_is_quiet_after_builds_that_replaced_a_file(own: Workshop) -> None:
    for number in range(3):
        own.write("Dockerfile", f"{SHELL}RUN echo {number} > /number\n")
        own.build("--force", "out.sif", "Dockerfile")
    done = own.runner.run("cache", "verify")
    assert "changed" not in done.stderr
    assert done.stdout == "Removed 0 damaged items (0 B)\n"
    with (own.context / "out.sif").open("ab") as file:
        file.write(b"more")
    warned = own.runner.run("cache", "verify").stderr
    assert warned.count("out.sif has changed since kedge wrote it") == 1
