# SPDX-License-Identifier: BSD-3-Clause
"""Doctor against real services: registries behind a proxy, keys that are taken and refused, networks that swallow.

Images of a registry and of files are judged, too, and nodes are remembered.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.answers.doctor.doctor import diagnose
from kedge.answers.doctor.network import check_logins, check_registries
from kedge.answers.doctor.run_checks import run_checks
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding, Surroundings
from kedge.base.frozen import replace
from kedge.cluster.sites.profile import SHIPPED, ProfileDirectory, load_site
from kedge.jobs.seen_nodes import recall_nodes
from kedge.system.settings import Settings
from tests.builders.certificates import make_authority
from tests.builders.own_etc import make_etc
from tests.fakes.ngc import NgcSite, open_ngc
from tests.fakes.proxy import ConnectProxy
from tests.fakes.registry import FakeRegistry, Policy, nvcr
from tests.programs import read_program
from tests.requirements import require_program, require_user_namespaces
from tests.wording import assert_begins, assert_reads, assert_says

KEY = "nvapi-" + "pl4nted" * 8
PATIENCE = 20.0  # for what answers: other tests keep this machine busy
LONG = 30.0  # seconds, in which what never answers must have been given up
NAMES = ["proxies", "registries", "certificates", "credentials", "logins", "scheduler", "site"]


class World:
    """nvcr.io and Docker Hub behind a proxy, with certificates of an authority of their own."""

    def __init__(self, folder: Path, ngc: FakeRegistry, hub: FakeRegistry, proxy: ConnectProxy, bundle: Path) -> None:
        self.folder, self.ngc, self.hub, self.proxy = folder, ngc, hub, proxy
        self.environ = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "https_proxy": proxy.url,
            "KEDGE_CA_BUNDLE": str(bundle),
            "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        }

    def surround(self, **environ: str) -> Surroundings:
        full = {name: value for name, value in {**self.environ, **environ}.items() if value}
        return Surroundings(full, Settings.load(environ=full), patience=PATIENCE)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    authority = make_authority(tmp_path / "ca")
    tls = authority.issue("nvcr.io", "registry-1.docker.io", "auth.docker.io")
    with (
        FakeRegistry(nvcr(users={"$oauthtoken": KEY}), tls=tls, name="nvcr.io") as ngc,
        FakeRegistry(Policy(auth="bearer"), tls=tls, name="registry-1.docker.io") as hub,
        ConnectProxy({"nvcr.io:443": ngc.server.port, "registry-1.docker.io:443": hub.server.port}) as proxy,
    ):
        assert isinstance(proxy, ConnectProxy)
        yield World(tmp_path, ngc, hub, proxy, authority.certificate)


def test_registries_answer_through_the_proxy(world: World) -> None:
    findings = check_registries(world.surround())
    assert [each.level for each in findings] == [OK, OK]
    assert findings[0].what.startswith("nvcr.io answers in ")
    assert findings[0].what.endswith(f"s, through {world.proxy.url} (https_proxy)")
    assert all("authorization" not in each.lower() for each in world.proxy.log)


def test_registries_with_an_authority_that_nobody_told_kedge(world: World) -> None:
    (finding,) = check_registries(world.surround(KEDGE_CA_BUNDLE=""))
    assert finding.level == WARNING
    assert_says(finding.what, "doctor/host-does-not-trust-authority")
    assert "KEDGE_CA_BUNDLE=FILE" in finding.fix


def test_registries_that_the_proxy_does_not_let_through(world: World) -> None:
    world.proxy.routes = {"nvcr.io:443": world.ngc.server.port}
    findings = check_registries(world.surround())
    assert [each.level for each in findings] == [OK, WARNING]
    assert_begins(findings[1].what, "doctor/docker-io-proxy-refuses-connection")


def test_registries_behind_a_proxy_that_wants_a_login(world: World) -> None:
    world.proxy.authorization = "Basic never"
    (finding,) = check_registries(world.surround(https_proxy=world.proxy.url.replace("//", f"//me:{KEY}@")))
    assert_says(finding.what, "pull/proxy-requires-login")
    assert KEY not in repr(finding)


def test_logins_key_that_is_taken(world: World) -> None:
    findings = check_logins(world.surround(NGC_API_KEY=KEY))
    assert findings == [Finding("logins", OK, "nvcr.io accepts the login")]
    assert not world.hub.server.log  # a key for nvcr.io is nobody else's business


def test_logins_key_that_is_refused(world: World) -> None:
    wrong = KEY.replace("pl4nted", "expired", 1)
    (finding,) = check_logins(world.surround(NGC_API_KEY=wrong))
    assert finding.level == FAIL
    assert_begins(finding.what, "pull/nvcr-io-refused-api-key", "NGC_API_KEY")
    assert_says(finding.why, "doctor/public-images-cannot-pulled")
    assert wrong not in repr(finding)


def test_checks_of_services_end_in_time_when_everything_stalls(world: World, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sinfo", "docker-credential-own"):
        (programs / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (programs / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        world.proxy.routes = dict.fromkeys(("nvcr.io:443", "registry-1.docker.io:443"), silent.getsockname()[1])
        (tmp_path / ".docker").mkdir()
        (tmp_path / ".docker/config.json").write_text(json.dumps({"credHelpers": {"nvcr.io": "own"}}))
        began = time.monotonic()
        surroundings = world.surround(PATH=f"{programs}:{os.environ['PATH']}", NGC_API_KEY=KEY)
        diagnosis = run_checks(replace(surroundings, patience=3.0), NAMES)
        assert time.monotonic() - began < LONG
    assert KEY not in repr(diagnosis.findings)
    assert any(each.check == "registries" and each.level == WARNING for each in diagnosis.findings)


BLACK_HOLE = read_program("reach_a_host_that_is_silent")


def test_checks_of_services_end_in_time_where_packets_vanish(tmp_path: Path) -> None:
    """A network of our own: questions to the name server are swallowed, and so are connections to nvcr.io."""
    require_user_namespaces()
    files = {"resolv.conf": "nameserver 127.0.0.1\n", "hosts": "127.0.0.9 nvcr.io\n"}
    etc = make_etc(tmp_path / "etc", (), **files)
    script = f'mount --bind {etc} /etc && {require_program("ip")} link set lo up && exec "$@"'
    command = ["unshare", "-rnm", "sh", "-c", script, "sh", sys.executable, "-c", BLACK_HOLE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    seconds, *told = done.stdout.splitlines()
    assert float(seconds) < LONG
    assert_says(told, "doctor/warning-nvcr-io-no-answer")
    assert_says(told, "doctor/warning-docker-io-name-server")
    assert any(line.startswith("note unknown whether nvcr.io accepts the login") for line in told)


@pytest.fixture(scope="module")
def ngc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NgcSite]:
    with open_ngc(tmp_path_factory.mktemp("ngc")) as site:
        yield site


@pytest.fixture
def user(ngc: NgcSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a user who reaches that nvcr.io."""
    environ = {**ngc.environment, "HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "cache")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return {**environ, "PATH": os.environ["PATH"]}


def check_image(user: dict[str, str], image: str, site: str = "", patience: float = PATIENCE) -> list[Finding]:
    environ = {**user, **({"KEDGE_SITE": site} if site else {})}
    surroundings = Surroundings(environ, Settings.load(environ=environ), patience=patience)
    return [each for each in diagnose(surroundings, ["site"], image=image).findings if each.check == "image"]


@pytest.mark.parametrize(
    ("tag", "driver", "said"),
    [
        ("24.03-py3", "565.57.01", "ok: runs natively on NVIDIA L40S with driver 565.57.01"),
        ("26.07-py3", "450.36.06", "fail: does not run on NVIDIA L40S with driver 450.36.06"),
    ],
)
def test_image_of_a_registry_is_judged_for_a_site(
    user: dict[str, str], tmp_path: Path, tag: str, driver: str, said: str
) -> None:
    folder = tmp_path / ".config/kedge/sites"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        'inherits = "nvidia"\ntitle = "Mine"\n[[queues]]\nname = "gpu"\ngpu = "L40S"\narch = "amd64"\n'
        f'driver = "{driver}"\n'
    )
    findings = check_image(user, f"nvcr.io/nvidia/pytorch:{tag}", "mine")
    assert findings[0].what.startswith(f"nvcr.io/nvidia/pytorch:{tag}: PyTorch ")
    assert f"{findings[1].level}: {findings[1].what}".startswith(said)
    assert any("pip" in each.what for each in findings)
    assert_says("\n".join(each.what for each in findings), "doctor/exec-shell-do-not")


def test_image_of_a_registry_that_stalls_is_told_from_the_tables(ngc: NgcSite, user: dict[str, str]) -> None:
    ngc.registry.server.fail("GET", delay=10.0, times=20)
    try:
        findings = check_image(user, "nvcr.io/nvidia/pytorch:24.05-py3", patience=3.0)
    finally:
        ngc.registry.server.faults.clear()
    assert findings[0].what.startswith("nvcr.io/nvidia/pytorch:24.05-py3: PyTorch ")
    assert_reads(findings[-1].what, "doctor/did-not-describe-within-s", "nvcr.io", "nvidia/pytorch:24.05-py3", "3.6")


def test_nodes_that_a_job_saw_are_known_on_the_login_node(user: dict[str, str]) -> None:
    site = load_site("zih-alpha", (ProfileDirectory(SHIPPED, "shipped"),))
    login = {**user, "KEDGE_SITE": "zih-alpha"}
    settings = Settings.load(environ=login)
    findings = diagnose(Surroundings(login, settings, site=site, patience=PATIENCE), ["compute-nodes"]).findings
    assert [(each.level, "in a job of the queue alpha" in each.fix) for each in findings] == [(NOTE, True)]
    job = {**login, "SLURM_JOB_ID": "1", "SLURM_JOB_PARTITION": "alpha"}
    findings = diagnose(Surroundings(job, settings, site=site, patience=PATIENCE), ["compute-nodes"]).findings
    assert [each.level for each in findings] == [OK]
    assert_begins(findings[0].what, "doctor/saved-login-node")
    (seen,) = recall_nodes("zih-alpha", "alpha", login, settings)
    assert seen.facts.architecture
    assert seen.facts.glibc
    findings = diagnose(Surroundings(login, settings, site=site, patience=PATIENCE), ["compute-nodes"]).findings
    assert [each.level for each in findings] == [OK]
    assert findings[0].what.startswith("alpha: ")
    assert_says(findings[0].what, "submit/seen-job", os.uname().nodename)
