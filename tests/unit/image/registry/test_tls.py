# SPDX-License-Identifier: BSD-3-Clause
"""Which authorities are read, and when: one by one from the system's directory, all of them where that has too few."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import NetworkFailed
from kedge.image.registry import tls
from kedge.image.registry.transport import HttpRequest, HttpTransport, TransportOptions
from tests.builders.certificates import Authority, make_authority
from tests.fakes.http_server import FakeServer, Reply
from tests.requirements import require_program


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    require_program("openssl")
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[FakeServer]:
    with FakeServer(lambda _: Reply(200, b"here"), tls=authority.issue("127.0.0.1")) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's directory, in which there is one authority that signed nothing."""
    place = tmp_path / "certs"
    place.mkdir()
    other = make_authority(tmp_path / "other")
    add_authority(place, other)
    paths = ssl.get_default_verify_paths()._replace(cafile=None, capath=str(place))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return place


def add_authority(folder: Path, authority: Authority) -> None:
    """Under the hash of its name, as distributions do it."""
    asked = ["openssl", "x509", "-hash", "-noout", "-in", str(authority.certificate)]
    name = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    number = len(list(folder.glob(f"{name}.*")))
    (folder / f"{name}.{number}").write_bytes(authority.certificate.read_bytes())


def put_in_bundle(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> list[ssl.SSLContext]:
    """Let the bundle of the system have it; who reads the bundle is in the list."""
    readers: list[ssl.SSLContext] = []

    def read(context: ssl.SSLContext, *_: object) -> None:
        readers.append(context)
        context.load_verify_locations(authority.certificate)

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
    return readers


def ask(server: FakeServer) -> bytes:
    transport = HttpTransport(TransportOptions(retries=0, certificate_folders=()))
    with transport.send(HttpRequest("GET", f"{server.url}/")) as response:
        return response.read_start(100)


def test_tls_authority_of_the_directory_is_found_without_reading_the_bundle(
    folder: Path, authority: Authority, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = put_in_bundle(monkeypatch, authority)
    add_authority(folder, authority)
    assert ask(server) == b"here"
    assert not readers


def test_tls_authority_of_the_bundle_alone_is_found_too(
    folder: Path, authority: Authority, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = put_in_bundle(monkeypatch, authority)
    assert tls.find_hashed_folder() == folder
    assert ask(server) == b"here"
    assert len(readers) == 1


def test_tls_other_is_refused(
    folder: Path, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = put_in_bundle(monkeypatch, make_authority(tmp_path / "third"))
    before = server.connections
    with pytest.raises(NetworkFailed, match="certificate"):
        ask(server)
    assert len(readers) == 1
    assert server.connections - before <= 2
    assert folder.is_dir()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_tls_files_of_openssl_s_variables_are_read(
    folder: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(authority.certificate))
    assert tls.find_hashed_folder() is None
    assert folder.is_dir()


def test_tls_directory_without_hashes_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = folder.with_name("system")
    other.mkdir()
    monkeypatch.setattr(tls, "SYSTEM_FOLDERS", (folder / "nowhere", other))
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
        path.rename(folder / f"{path.stem}.pem")
    assert tls.find_hashed_folder() is None  # not the system's either, where the interpreter has its own
    paths = ssl.get_default_verify_paths()
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths._replace(capath=None))
    assert tls.find_hashed_folder() == other
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths._replace(capath=None, cafile="/own.pem"))
    assert tls.find_hashed_folder() is None


def test_certificates_need_not_say_more_than_curl_and_docker_ask_for() -> None:
    assert not tls.make_context(tls.HostCertificates(), verify=True).verify_flags & ssl.VERIFY_X509_STRICT
