# SPDX-License-Identifier: BSD-3-Clause
"""A tag is looked up when its job is submitted: what it meant then is what the job runs, and nobody is asked again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cluster.job import Job
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.site import Site
from tests.builders.queue_user import QueueUser
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_user_namespaces
from tests.wording import assert_says

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class User(QueueUser):
    """Somebody with an image in a registry, and a queue on this machine."""

    def __init__(self, folder: Path, registry: FakeRegistry, box: Path) -> None:
        node = str(folder / "node")
        super().__init__(folder, KEDGE_SITE="local", KEDGE_NODEDIR=node, CONTAINERS_REGISTRIES_CONF="/dev/null")
        self.registry = registry
        self.name = f"docker://{registry.host}/team/app:1.0"
        shutil.copytree(box, folder / "box", symlinks=True)

    def publish(self, mark: str) -> None:
        (self.folder / "box/mark").write_text(mark)
        self.run("push", "box", self.name)

    def read_job(self, *words: str) -> str:
        self.run("submit", "--wait", *words)
        return self.run("logs").stdout.splitlines()[-1]

    def count_requests(self) -> int:
        return len(self.registry.server.seen("/manifests/"))


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the image, but for its mark."""
    maker = QueueUser(tmp_path_factory.mktemp("maker"))
    maker.run("convert", "--format", "sandbox", "host:sh,cat", "box")
    return maker.folder / "box"


@pytest.fixture
def user(tmp_path: Path, box: Path) -> Iterator[User]:
    require_user_namespaces()
    with FakeRegistry() as registry:
        made = User(tmp_path, registry, box)
        made.publish("one")
        yield made


def test_a_tag_that_moved_is_another_image_for_the_next_job(user: User) -> None:
    assert user.read_job(user.name, "cat", "/mark") == "one"
    user.publish("two")
    assert user.read_job(user.name, "cat", "/mark") == "two"
    images = sorted(each.name for each in (user.folder / ".local/share/kedge/images").rglob("*.sif"))
    assert len(images) == 2
    assert all(re.fullmatch(r"app_1\.0@[0-9a-f]{12}\.sif", name) for name in images)


def test_a_job_that_waits_runs_what_the_tag_was(user: User) -> None:
    held = user.run("submit", "-J", "first", "-", "sh", "-c", "while ! [ -e go ]; do sleep 0.1; done").stdout
    user.run("submit", "--after", held.strip(), "--pull", "in-job", "-J", "second", user.name, "cat", "/mark")
    user.publish("two")
    (user.folder / "go").touch()
    user.run("wait", "second")
    assert user.run("logs", "second").stdout.endswith("one")


def test_script_and_record_say_tag_and_digest(user: User) -> None:
    shown = user.run("submit", "--dry-run", user.name, "cat", "/mark").stdout
    pinned = re.search(rf"^# {re.escape(user.name)}@({DIGEST.pattern})$", shown, re.MULTILINE)
    assert pinned is not None
    assert f"app_1.0@{pinned[1][7:19]}.sif" in shown
    shown = user.run("submit", "--dry-run", "--pull", "in-job", user.name, "cat", "/mark").stdout
    assert f'"$kedge" pull --if-missing "$image" {user.name}@{pinned[1]}\n' in shown
    told = json.loads(user.run("submit", "--json", user.name, "cat", "/mark").stdout)
    record = json.loads((Path(told["script"]).parent / "job.json").read_text())
    assert record["job"]["image"] == f"{user.name}@{pinned[1]}"


def test_one_question_for_each_job(user: User) -> None:
    user.read_job(user.name, "cat", "/mark")
    before = user.count_requests()
    user.read_job("--array", "1-3", user.name, "cat", "/mark")
    assert user.count_requests() == before + 1


def test_jobs_of_a_description_and_of_python_are_pinned(user: User) -> None:
    job = f'image = "{user.name}"\ncommand = ["cat", "/mark"]\n'
    (user.folder / "kedge.toml").write_text(f'[jobs.a]\n{job}[jobs.b]\n{job}after = ["a"]\n')
    for told in json.loads(user.run("submit", "--all", "--json").stdout):
        assert DIGEST.search(Path(told["script"]).read_text())
    program = f"import kedge; print(kedge.submit({user.name!r}, ['cat', '/mark']).description.image)"
    environment = {**os.environ, **user.environment, "KEDGE_CACHEDIR": str(user.cache)}
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, env=environment, cwd=user.folder, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"{user.name}@sha256:")


def test_without_the_registry_the_cached_image_is_pinned(user: User) -> None:
    assert user.read_job(user.name, "cat", "/mark") == "one"
    user.registry.__exit__(None, None, None)
    done = user.run("submit", "--wait", "--time", "1m", user.name, "cat", "/mark")
    assert "sha256:" in done.stderr  # which one, and that it may be an old one
    assert user.run("logs").stdout.endswith("one")
    user.run("cache", "clean", "--force")
    done = user.run("submit", "--wait", "--time", "1m", user.name, "cat", "/mark")
    assert re.search(r"the job runs \S+app_1\.0@[0-9a-f]{12}\.sif, which may be older than", done.stderr)
    assert user.run("logs").stdout.endswith("one")


def test_without_the_registry_and_a_cache_the_job_may_still_pull(user: User) -> None:
    user.run("cache", "clean", "--force")
    user.registry.__exit__(None, None, None)
    done = user.run("submit", "--dry-run", "--pull", "in-job", user.name, "cat", "/mark")
    assert_says(done.stderr, "pull/tag-not-pinned-job-runs", user.name)
    assert f'"$image" {user.name}\n' in done.stdout
    refused = user.run("submit", user.name, "cat", "/mark", check=False)
    assert refused.returncode != 0


def test_what_no_registry_has_is_refused_at_once(user: User) -> None:
    name = f"docker://{user.registry.host}/team/nothing:1.0"
    done = user.run("submit", "--dry-run", name, "true", check=False)
    assert done.returncode != 0
    assert "team/nothing" in done.stderr


def test_exec_takes_a_tag_with_a_digest(user: User) -> None:
    shown = user.run("submit", "--dry-run", user.name, "cat", "/mark").stdout
    digest = DIGEST.search(shown)
    assert digest is not None
    user.publish("two")
    assert user.run("exec", f"{user.name}@{digest[0]}", "cat", "/mark").stdout == "one"


@pytest.mark.parametrize("image", ["docker://nvcr.io/nvidia/pytorch:24.03", "docker://ubuntu:22.04"])
def test_pyxis_is_given_the_digest_as_enroot_reads_it(image: str) -> None:
    job = Job(image=f"{image}@sha256:{'0' * 64}", command=("true",))
    site = Site(name="here", title="", scheduler="slurm", runtime="pyxis")
    text = find_backend("slurm").render(job, site, ScriptContext("", "/k", job.image, "", "/d", "/d/o", ""))
    name = "nvcr.io#nvidia/pytorch" if "nvcr" in image else "ubuntu"
    assert f":sha256:{'0' * 64}" in text
    assert f"{name}:sha256:" in text


def test_sif_files_in_a_registry_are_pinned_too(user: User) -> None:
    name = f"oras://{user.registry.host}/team/file:1.0"
    for mark in ("one", "two"):
        (user.folder / "box/mark").write_text(mark)
        user.run("convert", "--force", "box", "box.sif")
        user.run("push", "box.sif", name)
        assert user.read_job(name, "cat", "/mark") == mark
    script = Path(json.loads(user.run("status", "--json").stdout)["script"]).read_text()
    assert re.search(rf"^# {re.escape(name)}@{DIGEST.pattern}$", script, re.MULTILINE)


def test_an_image_that_was_pulled_is_looked_into_before_the_queue(user: User) -> None:
    shown = user.run("submit", "--dry-run", "--torchrun", user.name, "train.py").stderr
    assert_says(shown, "submit/not-host-yet-looks-pulled", user.name)
    done = user.run("submit", "--torchrun", user.name, "train.py", check=False)
    assert done.returncode == 93, done.stderr
    assert "has no PyTorch, which --torchrun needs" in done.stderr
    assert json.loads(user.run("jobs", "--json").stdout) == []
    torch = user.folder / "box/usr/lib/python3/dist-packages/torch"
    (torch / "distributed").mkdir(parents=True)
    (torch / "__init__.py").touch()
    (torch / "distributed/run.py").touch()
    user.publish("two")
    done = user.run("submit", "--script", "saved.sh", "--runtime", "apptainer", "--torchrun", user.name, "train.py")
    assert_says(done.stderr, "compat/python-m-torch-distributed-run", "PyTorch")
    for script in (user.folder / "saved.sh", *user.folder.rglob("script.sh")):
        assert "python -m torch.distributed.run --standalone" in script.read_text().replace("\\\n   ", "")
