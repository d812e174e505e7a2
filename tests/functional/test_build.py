# SPDX-License-Identifier: BSD-3-Clause
"""Whole builds as an ordinary user, of both kinds of recipes: steps, cache, stages, results."""

from __future__ import annotations

import json
import os

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.builders.containers import each_role
from tests.builders.old_kernels import play_refusals

shop = warm_shop


@pytest.mark.parametrize("role", ["user", "root"])
def test_dockerfile_gives_an_image_that_runs(role: str) -> None:
    for runner in each_role(role, is_warm=True):
        check_dockerfile(Workshop.open(runner))


def check_dockerfile(shop: Workshop) -> None:
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


def test_unchanged_steps_are_not_done_again(shop: Workshop) -> None:
    shop.write("data", "1\n")
    shop.write("Dockerfile", f"{SHELL}RUN cat /proc/sys/kernel/random/uuid > /first\nCOPY data /\nRUN echo 1 > /last\n")
    assert shop.states("a.sif", "Dockerfile") == ["cached", "cached", "done", "done", "done"]
    assert set(shop.states("b.sif", "Dockerfile")) == {"cached"}
    (shop.context / "data").touch()  # times do not count
    assert set(shop.states("-F", "b.sif", "Dockerfile")) == {"cached"}
    assert (shop.context / "a.sif").read_bytes() == (shop.context / "b.sif").read_bytes()
    shop.write("data", "2\n")
    assert shop.states("d.sif", "Dockerfile") == ["cached", "cached", "cached", "done", "done"]
    assert shop.read("d.sif", "/first", "/data") == shop.read("a.sif", "/first") + "2\n"
    assert set(shop.states("--no-cache", "e.sif", "Dockerfile")) == {"done"}
    assert shop.read("e.sif", "/first") != shop.read("a.sif", "/first")


def test_stages_that_nobody_needs_are_not_built(shop: Workshop) -> None:
    shop.write(
        "Dockerfile",
        f"{SHELL}FROM base AS broken\nRUN false\nFROM base AS one\nRUN echo 1 > /one\nFROM base AS two\n"
        "RUN echo 2 > /two\nFROM scratch\nCOPY --from=one /one /\nCOPY --from=two /two /\n",
    )
    result = shop.build("--format", "sandbox", "out", "Dockerfile")
    assert {step["label"]["stage"] for step in result["steps"]} == {"base", "one", "two", "stage-4"}
    files = {path.name for path in (shop.context / "out").iterdir() if path.is_file() and not path.is_symlink()}
    assert {"one", "two"} <= files
    assert not (shop.context / "out/bin/busybox").exists()
    assert shop.start("--target", "broken", "x.sif", "Dockerfile").returncode == 91


def test_build_works_without_overlays(shop: Workshop) -> None:
    refused = play_refusals(shop.runner.folder, "overlay", "fuse.fuse-overlayfs", "in children")
    shop.write("data", "1\n")
    shop.write(
        "Dockerfile",
        f"{SHELL}RUN mkdir -p /x/y && echo 1 > /x/y/z\nCOPY data /x/\nRUN rm -r /x/y /bin/stat && cat /x/data > /x/w\n",
    )
    assert shop.states("a.sif", "Dockerfile", env=refused) == ["cached", "cached", "done", "done", "done"]
    assert set(shop.states("b.sif", "Dockerfile")) == {"cached"}
    assert shop.exec("a.sif", "sh", "-c", "ls /x; ls /bin/stat /x/y 2>&1 | wc -l; cat /x/w") == "data\nw\n2\n1\n"
    shop.write(
        "Dockerfile",
        f"{SHELL}FROM base AS one\nRUN echo 1 > /one\nFROM base AS two\nRUN echo 2 > /two\n"
        "FROM base\nCOPY --from=one /one /\nCOPY --from=two /two /\nRUN cat /one /two > /both\n",
    )
    shop.build("c.sif", "Dockerfile", env=refused)
    assert shop.read("c.sif", "/both") == "1\n2\n"
    assert shop.list_builds() == []


def test_results_in_all_formats_are_the_same_image(shop: Workshop) -> None:
    shop.write("Dockerfile", f'{SHELL}RUN echo 1 > /one && rm /bin/stat\nENV A=b\nCMD ["cat", "/one"]\n')
    for form in ("sandbox", "oci", "squashfs"):  # archives: test_formats_hold_the_same_files in test_build_odd_bases.py
        place = shop.context / form
        assert shop.build("--format", form, str(place), "Dockerfile")["size"] > 100_000, form
        reference = f"oci:{place}" if form == "oci" else str(place)
        command = "ls /bin/stat 2>/dev/null; cat /one"
        assert shop.runner.read("exec", "--no-home", reference, "sh", "-c", command) == "1\n", form


def test_source_date_epoch_gives_the_same_bytes_twice(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}WORKDIR /a/b\nRUN echo 1 > /one\n")
    env = {"SOURCE_DATE_EPOCH": "1000000000"}
    for name in ("a.sif", "b.sif"):
        shop.build("--no-cache", name, "Dockerfile", env=env)
    assert (shop.context / "a.sif").read_bytes() == (shop.context / "b.sif").read_bytes()


def test_definition_from_nothing_has_mount_points(shop: Workshop) -> None:
    shop.write("x.def", "Bootstrap: scratch\n%files\nbusybox /bin/\n")
    shop.build("--sandbox", "out", "x.def")
    assert {"bin", "dev", "proc", "sys", "tmp", "etc", "home"} <= {
        path.name for path in (shop.context / "out").iterdir()
    }


def test_labels_of_the_command_line_are_in_both_kinds(shop: Workshop) -> None:
    shop.write("x.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n%labels\nA 1\nB 1\n")
    shop.write("Dockerfile", f"{SHELL}LABEL A=1 B=1\n")
    for recipe in ("x.def", "Dockerfile"):
        shop.build("--label", "B=2", "-F", "--sandbox", "out.sif", recipe)
        assert {"A: 1", "B: 2"} <= set(shop.runner.read("inspect", str(shop.context / "out.sif")).splitlines())


def test_programs_of_another_architecture_are_refused_before_they_run(shop: Workshop) -> None:
    foreign = "amd64" if os.uname().machine == "aarch64" else "arm64"
    shop.write("Dockerfile", 'FROM scratch\nCOPY busybox /x\nRUN ["/x"]\n')
    done = shop.start("--platform", f"linux/{foreign}", "out.sif", "Dockerfile")
    assert done.returncode in (0, 17)
    assert foreign in done.stderr
    shop.write("Dockerfile", "FROM scratch\nCOPY busybox /x\n")
    shop.build("--platform", f"linux/{foreign}", "out.sif", "Dockerfile")


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


def test_an_update_that_fails_leaves_the_sandbox(shop: Workshop) -> None:
    shop.write("more", "more\n")
    shop.write("first.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n")
    shop.write("update.def", UPDATE)
    shop.build("--sandbox", "box", "first.def")
    done = shop.start("--update", "box", "update.def")  # there is no /made
    assert done.returncode == 91
    assert not (shop.context / "box/more").exists()
    assert shop.start("--update", "--sandbox", "other", "update.def").returncode == 2


def test_chosen_sections_alone_run_and_are_noted(shop: Workshop) -> None:
    shop.write("more", "more\n")
    shop.write("x.def", UPDATE.replace("/no/such/image", str(shop.make_base())).replace("/made", "/etc/passwd"))
    shop.build("--section", "post,environment", "out.sif", "x.def")
    assert shop.exec("out.sif", "sh", "-c", "ls /more /post; echo $B").endswith("/post\n2\n")
    report = json.loads(shop.runner.read("inspect", "--all", "--json", str(shop.context / "out.sif")))
    attributes = report["data"]["attributes"]
    assert attributes["build"]["sections"] == ["post", "environment"]
    assert "Second" not in attributes["labels"]
    assert "second" not in attributes.get("runscript", "")
    assert not attributes.get("helpfile")
    wrong = shop.start("--section", "psot", "b.sif", "x.def")
    assert "has no section 'psot'" in wrong.stderr
    assert "'post'" in wrong.stderr
    shop.write("Dockerfile", SHELL)
    assert "--section works with definition files" in shop.start("--section", "post", "b.sif", "Dockerfile").stderr


def test_verify_is_quiet_after_builds_that_replaced_a_file(shop: Workshop) -> None:
    for number in range(2):
        shop.write("Dockerfile", f"{SHELL}RUN echo {number} > /number\n")
        shop.build("--force", "out.sif", "Dockerfile")
    done = shop.runner.run("cache", "verify")
    assert "changed" not in done.stderr
    assert done.stdout == "Removed 0 damaged items (0 B)\n"
    with (shop.context / "out.sif").open("ab") as file:
        file.write(b"more")
    warned = shop.runner.run("cache", "verify").stderr
    assert warned.count("out.sif has changed since kedge wrote it") == 1
