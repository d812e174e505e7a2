# SPDX-License-Identifier: BSD-3-Clause
"""Registries, token services and names that look like NVIDIA's want an NGC API key: only NVIDIA's own hosts get it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kedge.errors import RegistryProtocolError, UsageError
from kedge.image.registry.auth import Authenticator, Challenge
from kedge.image.registry.credentials import NGC_USER, Credential, CredentialSources, login_file
from kedge.image.registry.docker_config import Login
from kedge.image.registry.response_errors import Situation
from kedge.image.registry.secret import Secret
from kedge.image.registry.transport import HttpRequest, Response
from tests.builders.rows import each_row
from tests.wording import assert_says

KEY = "nvapi-a-key-that-nobody-else-may-see"
OLD_KEY = "b2xkLWtleXMtaGF2ZS1uby1wcmVmaXg="
LOOKALIKES = (
    *("nvcr.io.evil.org", "evil-nvcr.io", "evil.nvcr.io", "nvcr.io.", "nvcr.io:5000", "nvcr.io:80", "nvcr.iox"),
    *(
        "nvcr.com",
        "nvidia.com",
        "nvcr-io.example.org",
        "localhost:5000",
        "docker.io",
        "quay.io",
        "registry.example.org",
    ),
    *("authn.nvidia.com.evil.org", "[::1]:5000", "nvcr.io@evil.org", "nvcr.io%2eevil.org"),
)
REALMS = (
    *("https://evil.org/token", "https://nvcr.io.evil.org/proxy_auth", "https://evil-nvcr.io/proxy_auth"),
    *("https://nvcr.io@evil.org/proxy_auth", "https://evil.org@nvcr.io/x", "https://nvcr.io:8443/proxy_auth"),
    *("https://nvcr.io./proxy_auth", "https://authn.nvidia.com.evil.org/token", "https://evil.org/?nvcr.io"),
    *("https://evil.org#@nvcr.io/", "https://nvcr.io:x/proxy_auth", "https://sub.nvcr.io/proxy_auth"),
)


class Listener:
    """A transport that keeps what it would have sent, and answers with a refusal."""

    def __init__(self) -> None:
        self.sent: list[HttpRequest] = []

    def send(self, request: HttpRequest) -> Response:
        self.sent.append(request)
        raise ConnectionError


def find(home: Path, registry: str, *, is_mirror: bool = False, **environ: str) -> Credential | None:
    sources = CredentialSources(environ=environ, home=home)
    return sources.find(registry, "nvidia/pytorch", is_mirror=is_mirror).credential


def file_login(home: Path, host: str, user: str, password: str) -> None:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    login_file(home).parent.mkdir(parents=True, exist_ok=True)
    login_file(home).write_text(json.dumps({"auths": {host: {"auth": encoded}}}))


@each_row("host", LOOKALIKES)
@each_row(
    "environ",
    [
        {"NGC_API_KEY": KEY},
        {"NGC_CLI_API_KEY": OLD_KEY},
        {"APPTAINER_DOCKER_USERNAME": NGC_USER, "APPTAINER_DOCKER_PASSWORD": OLD_KEY},
        {"DOCKER_USERNAME": "me", "DOCKER_PASSWORD": KEY},
        {"KEDGE_USERNAME": "me", "KEDGE_PASSWORD": OLD_KEY, "NGC_API_KEY": OLD_KEY},
    ],
)
def test_key_of_the_environment_goes_to_no_other_registry(tmp_path: Path, host: str, environ: dict[str, str]) -> None:
    assert find(tmp_path, host, **environ) is None


@each_row("host", ["nvcr.io", "NVCR.IO", "Nvcr.Io:443"])
def test_key_of_the_environment_goes_to_nvidia(tmp_path: Path, host: str) -> None:
    found = find(tmp_path, host, NGC_API_KEY=KEY)
    assert found is not None
    assert found.login.username == NGC_USER


def test_key_does_not_go_to_a_mirror(tmp_path: Path) -> None:
    file_login(tmp_path, "mirror.example.org", NGC_USER, KEY)
    assert find(tmp_path, "mirror.example.org", is_mirror=True, NGC_API_KEY=KEY) is None


def test_key_filed_under_another_host_is_not_sent_and_the_note_says_so(tmp_path: Path) -> None:
    file_login(tmp_path, "evil-nvcr.io", "me", KEY)
    found = CredentialSources(home=tmp_path).find("evil-nvcr.io", "nvidia/pytorch")
    assert found.credential is None
    assert_says(found.notes[0], "pull/sends-nvcr-io-only")
    assert KEY not in repr(found)


def test_another_registry_that_uses_the_same_user_name_keeps_its_login(tmp_path: Path) -> None:
    file_login(tmp_path, "quay.io", NGC_USER, "a-token-of-quay")
    assert find(tmp_path, "quay.io", NGC_API_KEY=KEY) is not None


def test_key_that_is_typed_for_another_host_is_refused(tmp_path: Path) -> None:
    typed = Credential(Login(NGC_USER, Secret(KEY)), "--docker-login")
    with pytest.raises(UsageError, match=r"does not send an NGC API key to nvcr\.io\.evil\.org") as caught:
        CredentialSources(explicit=typed, home=tmp_path).find("nvcr.io.evil.org", "a")
    assert KEY not in repr(caught.value.context)


def ask_for_token(base: str, realm: str) -> Listener:
    listener = Listener()
    credential = Credential(Login(NGC_USER, Secret(KEY)), "NGC_API_KEY")
    trusted = frozenset({"evil.org", "sub.nvcr.io", "nvcr.io"})
    situation = Situation(registry="nvcr.io", repository="a")
    # the transport is given by its one method
    authenticator = Authenticator(listener, base, credential, situation, trusted_realms=trusted)  # type: ignore[arg-type]
    assert authenticator.answer([Challenge("bearer", {"realm": realm})], "repository:a:pull", None)
    with pytest.raises((ConnectionError, RegistryProtocolError)):  # the second: no address at all
        authenticator.header("repository:a:pull")
    return listener


@each_row("realm", REALMS)
def test_key_does_not_follow_a_challenge_to_another_host(realm: str) -> None:
    for request in ask_for_token("https://nvcr.io", realm).sent:
        assert request.authorization is None
        assert not request.body


@each_row("realm", ["https://nvcr.io/proxy_auth?scope=a", "https://AUTHN.nvidia.com/token"])
def test_key_goes_to_nvidias_token_services(realm: str) -> None:
    (request,) = ask_for_token("https://nvcr.io", realm).sent
    assert request.authorization is not None


def test_key_is_not_sent_in_clear() -> None:
    listener = Listener()
    credential = Credential(Login(NGC_USER, Secret(KEY)), "NGC_API_KEY")
    plain = Authenticator(listener, "http://nvcr.io", credential, Situation(registry="nvcr.io", repository="a"))  # type: ignore[arg-type]
    plain.answer([Challenge("basic", {})], "", None)
    assert plain.header("") is None
