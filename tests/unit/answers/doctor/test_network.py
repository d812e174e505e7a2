# SPDX-License-Identifier: BSD-3-Clause
"""Proxies, registries and certificates, judged: each trap has its sentence, and no password is in any."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.answers.doctor.network import check_certificates, check_proxies, check_registries, judge_reach, list_mirrors
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, SKIPPED, WARNING, Finding, Surroundings
from kedge.base.frozen import replace
from kedge.cluster.sites.profile import SHIPPED, ProfileDirectory, load_site
from kedge.image.registry.connection_errors import ConnectionFailure, FailureKind
from kedge.image.registry.mirrors import Endpoint, load_registries
from kedge.image.registry.probe import ProbeResult
from kedge.image.registry.tls import SYSTEM_BUNDLES
from kedge.system.settings import Settings
from tests.builders.certificates import make_authority
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_reads, assert_says

PASSWORD = "pl4nted-s3cret"
JOB = {"SLURM_JOB_ID": "4711", "SLURM_JOB_PARTITION": "alpha"}


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def surround(tmp_path: Path, environ: dict[str, str] | None = None, *, is_offline: bool = False) -> Surroundings:
    full = {"HOME": str(tmp_path), "CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf"), **(environ or {})}
    return Surroundings(full, Settings.load(environ=full), is_offline=is_offline)


def find(findings: list[Finding], level: str) -> Finding:
    found = [each for each in findings if each.level == level]
    assert len(found) == 1, findings
    assert found[0].what
    if level in (WARNING, FAIL):
        assert found[0].why
        assert found[0].fix
        assert found[0].docs.startswith("kedge help doctor ")
    return found[0]


def test_proxies_that_are_fine(tmp_path: Path) -> None:
    assert check_proxies(surround(tmp_path)) == [Finding("proxies", OK, "none set")]
    good = "localhost, 127.0.0.1,.example.org,*.example.net,10.0.0.0/8,[::1],r.example:5000,*"
    assert check_proxies(surround(tmp_path, {"NO_PROXY": good})) == [Finding("proxies", OK, "none set")]


def test_proxies_that_listen_but_are_not_what_registries_need(tmp_path: Path, silent_port: int) -> None:
    findings = check_proxies(surround(tmp_path, {"http_proxy": f"http://127.0.0.1:{silent_port}"}))
    assert_reads(find(findings, WARNING).what, "doctor/http-proxy-set-but-https")
    assert find(findings, OK).what == f"http_proxy: http://127.0.0.1:{silent_port} listens"
    findings = check_proxies(surround(tmp_path, {"https_proxy": f"https://127.0.0.1:{silent_port}"}))
    assert f"export https_proxy=http://127.0.0.1:{silent_port}" in find(findings, NOTE).fix


def test_proxies_that_nobody_serves_or_that_differ(tmp_path: Path) -> None:
    environ = {"https_proxy": f"http://me:{PASSWORD}@127.0.0.1:9"}
    finding = find(check_proxies(surround(tmp_path, environ)), FAIL)
    assert_reads(finding.what, "doctor/https-proxy-no-answer-http")
    assert "unset https_proxy" in finding.fix
    assert "me" not in finding.what.split("//")[1]
    environ = {"https_proxy": "http://a.example:1", "HTTPS_PROXY": f"http://x:{PASSWORD}@b.example:1"}
    findings = check_proxies(surround(tmp_path, environ, is_offline=True))
    assert "https_proxy and HTTPS_PROXY differ" in find(findings, WARNING).what
    assert PASSWORD not in repr(findings)


@each_row("value", ["http://", "socks5://127.0.0.1:1080", f"http://u:{PASSWORD}@:x", f"http://a#{PASSWORD}@h"])
def test_proxies_that_cannot_be_read_never_show_what_is_in_them(tmp_path: Path, value: str) -> None:
    findings = check_proxies(surround(tmp_path, {"https_proxy": value}))
    assert any(each.level == FAIL for each in findings)
    assert PASSWORD not in repr(findings)


@each_row(("value", "said"), [
    ("localhost 127.0.0.1", "commas separate entries"),
    ("localhost;nvcr.io", "commas separate entries"),
    ("https://nvcr.io", "it has a scheme"),
    ("*nvcr.io", "a star works only at the beginning"),
    ("reg*.example.org", "a star works only at the beginning"),
])  # fmt: skip
def test_proxies_exceptions_that_exempt_nothing(tmp_path: Path, value: str, said: str) -> None:
    findings = check_proxies(surround(tmp_path, {"no_proxy": value}))
    assert said in find(findings, WARNING).what


def reach(host: str, kind: FailureKind | None = None, *, proxy: str = "", is_page: bool = False) -> ProbeResult:
    return ProbeResult(host, 0.2, ConnectionFailure(kind) if kind else None, is_page, proxy)


def test_registries_that_answer_or_trouble_have_a_sentence(tmp_path: Path) -> None:
    findings = judge_reach([reach("nvcr.io", proxy="http://p:3128 (https_proxy)")], {}, surround(tmp_path))
    assert findings == [Finding("registries", OK, "nvcr.io answers in 0.2 s, through http://p:3128 (https_proxy)")]
    for kind in FailureKind:
        for proxy in ("", "http://p:1 (https_proxy)"):
            find(judge_reach([reach("nvcr.io", kind, proxy=proxy)], {}, surround(tmp_path)), WARNING)
    assert "web page" in find(judge_reach([reach("nvcr.io", is_page=True)], {}, surround(tmp_path)), WARNING).what
    assert [each.level for each in check_registries(surround(tmp_path, is_offline=True))] == [SKIPPED]


@each_row(
    "kind",
    [FailureKind.NAME, FailureKind.NAME_LATER, FailureKind.UNREACHABLE, FailureKind.TIMEOUT, FailureKind.REFUSED],
)
def test_registries_silence_on_a_login_node_says_three_ways_out(tmp_path: Path, kind: FailureKind) -> None:
    finding = find(
        judge_reach([reach("nvcr.io", kind), reach("registry-1.docker.io", kind)], {}, surround(tmp_path)), WARNING
    )
    assert finding.what.startswith("nvcr.io and registry-1.docker.io: ")
    for word in ("https_proxy", "registries.conf", "--pull in-job"):
        assert word in finding.fix
    assert "on disk still run" in finding.why


def test_registries_silence_in_jobs_says_where_to_pull(tmp_path: Path) -> None:
    finding = find(judge_reach([reach("nvcr.io", FailureKind.NAME)], {}, surround(tmp_path, JOB)), WARNING)
    assert_says(finding.fix, "doctor/pull-login-node")
    site = replace(load_site("nvidia", (ProfileDirectory(SHIPPED, "shipped"),)), internet_on_nodes=False)
    known = replace(surround(tmp_path, JOB), site=site)
    assert judge_reach([reach("nvcr.io", FailureKind.NAME)], {}, known)[0].level == NOTE
    site = load_site("zih-alpha", (ProfileDirectory(SHIPPED, "shipped"),))
    assert site.pull == "in-job"
    finding = judge_reach([reach("nvcr.io", FailureKind.TIMEOUT)], {}, replace(surround(tmp_path), site=site))[0]
    assert finding.level == NOTE
    assert "in-job" in finding.fix


@each_row(("kind", "said"), [
    (FailureKind.CERTIFICATE, "KEDGE_CA_BUNDLE"),
    (FailureKind.CERTIFICATE_NAME, "KEDGE_CA_BUNDLE"),
    (FailureKind.CERTIFICATE_TIME, "date -u"),
    (FailureKind.PROXY_LOGIN, "USER:PASSWORD@HOST:PORT"),
    (FailureKind.PROXY, "whether the proxy allows it"),
    (FailureKind.NOT_TLS, "http://"),
])  # fmt: skip
def test_registries_trouble_has_its_remedy(tmp_path: Path, kind: FailureKind, said: str) -> None:
    assert said in find(judge_reach([reach("nvcr.io", kind)], {}, surround(tmp_path)), WARNING).fix


def test_registries_mirror_that_answers_covers_for_its_registry(tmp_path: Path) -> None:
    mirrors = {"docker.io": [Endpoint("m.example", "", is_mirror=True)]}
    reached = [reach("registry-1.docker.io", FailureKind.NAME), reach("m.example")]
    findings = judge_reach(reached, mirrors, surround(tmp_path))
    assert "which answers" in find(findings, NOTE).why
    reached = [reach("registry-1.docker.io", FailureKind.NAME), reach("m.example", FailureKind.TIMEOUT)]
    assert {each.level for each in judge_reach(reached, mirrors, surround(tmp_path))} == {WARNING}


def test_registries_file_names_mirrors_or_stops_every_pull(tmp_path: Path) -> None:
    text = '[[registry]]\nprefix = "docker.io"\n[[registry.mirror]]\nlocation = "m.example:5000/hub"\ninsecure = true\n'
    (tmp_path / "registries.conf").write_text(text + '[[registry]]\nprefix = "nvcr.io"\nlocation = "n.example/nv"\n')
    environ = {"CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf")}
    mirrors = list_mirrors(load_registries(environ, tmp_path))
    assert mirrors == {
        "docker.io": [Endpoint("m.example:5000", "", insecure=True, is_mirror=True)],
        "nvcr.io": [Endpoint("n.example", "", is_mirror=True)],
    }
    (tmp_path / "registries.conf").write_text("this is not TOML")
    assert "is not TOML" in find(check_registries(surround(tmp_path)), FAIL).what


def surround_system(root: Path, environ: dict[str, str] | None = None) -> Surroundings:
    """A system that has authorities, whatever this machine has."""
    bundle = root / SYSTEM_BUNDLES[0].relative_to("/")
    bundle.parent.mkdir(parents=True)
    bundle.write_text("certificates")
    return replace(surround(root, environ), root=str(root))


def test_certificates_of_the_system(tmp_path: Path) -> None:
    finding = check_certificates(surround_system(tmp_path))[-1]
    assert finding.level == OK
    assert_begins(finding.what, "doctor/systems-authorities", "/")


def test_certificates_setting_and_variable_that_are_good(tmp_path: Path) -> None:
    path = make_authority(tmp_path / "ca").certificate
    environ = {"KEDGE_CA_BUNDLE": str(path), "SSL_CERT_FILE": str(path)}
    findings = check_certificates(surround_system(tmp_path, environ))
    assert [each.level for each in findings] == [OK] * 3
    assert_reads(findings[0].what, "doctor/ca-bundle-environment-ca-bundle", path)


@each_row(
    ("content", "said"),
    [(None, "does not exist"), (b"", "holds no readable certificate"), (b"no PEM\n", "holds no readable certificate")],
)
@each_row("variable", ["KEDGE_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_files_that_cannot_be_used(
    tmp_path: Path, variable: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / f"{content!r}.pem"
    if content is not None:
        path.write_bytes(content)
    finding = find(check_certificates(surround(tmp_path, {variable: str(path)})), FAIL)
    assert said in finding.what
    assert f"unset {variable}" in finding.fix


def test_certificates_of_folders_other_programs_and_none(tmp_path: Path) -> None:
    findings = check_certificates(surround(tmp_path, {"SSL_CERT_FILE": str(tmp_path), "SSL_CERT_DIR": "/no/where"}))
    assert [each.what.split()[0] for each in findings if each.level == FAIL] == ["SSL_CERT_FILE", "SSL_CERT_DIR"]
    path = make_authority(tmp_path / "ca").certificate
    findings = check_certificates(surround(tmp_path, {"REQUESTS_CA_BUNDLE": str(path)}))
    assert find(findings, NOTE).fix == 'export KEDGE_CA_BUNDLE="$REQUESTS_CA_BUNDLE"'
    finding = check_certificates(replace(surround(tmp_path), root=str(tmp_path)))[-1]
    assert finding.level == FAIL
    assert "ca-certificates" in finding.fix


def test_certificates_that_are_of_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"KEDGE_CA_BUNDLE": str(make_authority(tmp_path / "ca").certificate)}
    now = time.time()
    monkeypatch.setattr("kedge.answers.doctor.network.time.time", lambda: now - 10 * 86400)
    assert_says(find(check_certificates(surround(tmp_path, environ)), FAIL).why, "doctor/clock-host-behind")
    monkeypatch.setattr("kedge.answers.doctor.network.time.time", lambda: now + 10 * 86400)
    assert "has expired" in find(check_certificates(surround(tmp_path, environ)), WARNING).what
