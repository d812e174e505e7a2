# SPDX-License-Identifier: BSD-3-Clause
"""`kedge rerun`: the same run again, and what it says where something differs or the record is not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, warm_runner
from tests.builders.images import make_config
from tests.builders.layers import compress, file, layer
from tests.fakes.registry import FakeRegistry

runner = warm_runner

_RUN_DIFFERS, _INVALID = 87, 86


def make_record(runner: Runner, root: str, name: str, /, **changes: Any) -> Path:
    """A record of a real run, which is made once, with some of it changed."""
    place, real = runner.home / name, runner.home / "real.json"
    if not real.exists():
        done = runner.run(
            *("exec", "--record-to", str(real), "--env", "A=1", root),
            *("sh", "-c", 'echo "$A $OMP_NUM_THREADS" "$1"; exit 4', "sh", "it's"),
            env={"OMP_NUM_THREADS": "3"},
        )
        assert done.returncode == 4, done.stderr
    document = json.loads(real.read_text())
    for key, value in changes.items():
        document[key] = {**document[key], **value} if isinstance(value, dict) else value
    place.write_text(json.dumps(document))
    return place


def test_rerun_repeats_command_options_variables_and_status(runner: Runner, image: str) -> None:
    place = make_record(runner, image, "same.json")
    done = runner.run("rerun", str(place), env={"OMP_NUM_THREADS": "64"}, cwd="/")
    assert (done.returncode, done.stdout) == (4, "1 3 it's\n"), done.stderr


def test_rerun_records_again(runner: Runner, image: str) -> None:
    place, again = make_record(runner, image, "first.json"), runner.home / "again.json"
    assert runner.run("rerun", "--record-to", str(again), str(place)).returncode == 4
    first, second = json.loads(place.read_text()), json.loads(again.read_text())
    assert [second[name] for name in ("verb", "options", "command")] == [
        first[name] for name in ("verb", "options", "command")
    ]


def test_rerun_dry_run_shows_the_command(runner: Runner, image: str) -> None:
    place = make_record(runner, image, "dry.json")
    shown = runner.read("rerun", "--dry-run", str(place))
    assert shown.startswith("Nothing differs\n")
    assert f"kedge exec --env A=1 {image} sh -c" in shown
    assert json.loads(runner.read("rerun", "--dry-run", "--json", str(place)))["differences"] == []


DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"host": {"machine": "s390x"}}, "architecture: s390x then"),
    ({"driver": "999.1", "gpus": [{"name": "NVIDIA Z9"}]}, "1 × NVIDIA Z9 then"),
    ({"directory": "/no/such/directory"}, "directory: /no/such/directory then, missing now"),
    ({"options": ["--bind", "/no/such:/data"]}, "bind: /no/such then, missing now"),
    ({"options": ["-B/no/such:/data"]}, "bind: /no/such then, missing now"),
    ({"environment": {"HF_TOKEN": "***"}}, "variable: HF_TOKEN set then, not set now"),
    ({"image": {"path": "/no/such.sif", "name": "/no/such.sif"}}, "image: /no/such.sif then, missing now"),
    ({"image": {"fingerprint": "sha256:0000"}}, "fingerprint sha256:0000 then"),
]


def test_rerun_says_what_differs(runner: Runner, image: str) -> None:
    for changes, said in DIFFERENT:
        place = make_record(runner, image, "other.json", **changes)
        done = runner.run("rerun", str(place))
        assert (done.returncode, done.stdout) == (_RUN_DIFFERS, ""), f"{changes}: {done.stderr}"
        assert said in done.stderr
        assert "kedge rerun --anyway" in done.stderr
        assert said in runner.read("rerun", "--dry-run", str(place))


def test_rerun_anyway_runs_what_differs(runner: Runner, image: str) -> None:
    place = make_record(runner, image, "anyway.json", host={"machine": "s390x"})
    done = runner.run("rerun", "--anyway", str(place))
    assert (done.returncode, done.stdout) == (4, "1 3 it's\n")
    assert "architecture differs: s390x then" in done.stderr


def test_rerun_cannot_guess_a_hidden_word(runner: Runner, image: str) -> None:
    place = runner.home / "secret.json"
    runner.run("exec", "--record-to", str(place), image, "echo", "--password", "hunter2", "HF_TOKEN=abcdefgh")
    assert "hunter2" not in place.read_text()
    assert "abcdefgh" not in place.read_text()
    done = runner.run("rerun", "--anyway", str(place))
    assert done.returncode == _RUN_DIFFERS
    assert "hides a secret" in done.stderr


NO_RECORDS = (
    b"",
    b"not JSON \x1b[2J",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"kedge_record": 99}',
    b'{"kedge_record": 1}',
    b'{"kedge_record": "1"}',
    b'{"kedge_record": 1, "verb": "exec\\u001b[2J", "directory": "/", "options": [1], "command": []}',
    b" " * (5 << 20),
)


def test_rerun_refuses_what_is_no_record(runner: Runner) -> None:
    place = runner.home / "hostile.json"
    for content in NO_RECORDS:
        place.write_bytes(content)
        done = runner.run("rerun", str(place))
        assert done.returncode == _INVALID, f"{content[:80]!r}: {done.stderr}"
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stderr


def test_rerun_shows_no_escape_sequence(runner: Runner, image: str) -> None:
    place = make_record(runner, image, "escape.json", command=["echo", "\x1b]0;owned\x07"], directory="/tmp/\x1b[2J")
    for words in (["rerun", "--dry-run"], ["rerun"], ["rerun", "--dry-run", "--json"]):
        done = runner.run(*words, str(place))
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_rerun_of_a_missing_file_and_of_an_unknown_verb(runner: Runner, image: str) -> None:
    assert runner.run("rerun", "missing.json").returncode == 30
    place = make_record(runner, image, "verb.json", verb="shell")
    assert runner.run("rerun", str(place)).returncode == _RUN_DIFFERS


def test_rerun_of_a_tag_takes_the_image_that_it_was(runner: Runner) -> None:
    shell = file("bin/sh", read_busybox(), mode=0o755)
    with FakeRegistry() as registry:
        for text in (b"first", b"second"):
            tar = layer(shell, file("which", text))
            digest = registry.add_image("team/tool", "1", [compress(tar)], make_config([tar], {}))
            if text == b"first":
                words = (f"docker://{registry.host}/team/tool:1", "/bin/sh", "-c", "read x </which; echo $x")
                place = runner.home / "tag.json"
                assert runner.read("exec", "--record-to", str(place), *words) == "first\n"
                assert json.loads(place.read_text())["image"]["digest"] == str(digest)
        assert runner.read("rerun", str(place)) == "first\n"
        assert runner.read("exec", "--pull", "always", *words) == "second\n"


def test_rerun_of_a_file_that_was_built_again_says_so(runner: Runner, image: str) -> None:
    sif, place = runner.home / "tool.sif", runner.home / "sif.json"
    runner.read("convert", image, str(sif))
    runner.read("exec", "--record-to", str(place), str(sif), "true")
    assert runner.read("rerun", str(place)) == ""
    with sif.open("ab") as stream:
        stream.write(b"changed")
    done = runner.run("rerun", str(place))
    assert done.returncode == _RUN_DIFFERS
    assert "image: fingerprint sha256:" in done.stderr
