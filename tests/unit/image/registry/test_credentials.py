# SPDX-License-Identifier: BSD-3-Clause
"""Credentials: every source, their order, key spellings, helpers, Enroot's netrc; and that no secret is ever shown."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kedge.errors import InvalidSetting
from kedge.image.registry.credentials import Credential, CredentialSources, login_file, parse_netrc
from kedge.image.registry.docker_config import (
    Login,
    list_keys,
    normalize_key,
    read_auth_file,
    remove_login,
    store_login,
)
from kedge.image.registry.secret import Secret, encode_basic, redact_url, scrub
from kedge.system.exclusive_change import lock_beside
from tests.builders.rows import each_row
from tests.wording import assert_says

PASSWORD = "s3cr3t-Passw0rd"


def encode(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def write_config(path: Path, **document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def sources(home: Path, **environ: str) -> CredentialSources:
    return CredentialSources(environ=environ, home=home)


def found_user(where: CredentialSources, registry: str, repository: str = "a/b") -> str | None:
    credential = where.find(registry, repository).credential
    return credential.login.username if credential else None


def test_credentials_order_is_options_environment_files(tmp_path: Path) -> None:
    write_config(tmp_path / ".docker/config.json", auths={"r.example": {"auth": encode("docker", "x")}})
    assert found_user(sources(tmp_path), "r.example") == "docker"
    write_config(
        tmp_path / ".singularity/docker-config.json", auths={"r.example": {"auth": encode("singularity", "x")}}
    )
    assert found_user(sources(tmp_path), "r.example") == "singularity"
    write_config(login_file(tmp_path), auths={"r.example": {"auth": encode("apptainer", "x")}})
    assert found_user(sources(tmp_path), "r.example") == "apptainer"
    authfile = write_config(tmp_path / "auth.json", auths={"r.example": {"auth": encode("named", "x")}})
    assert found_user(CredentialSources(authfile=authfile, home=tmp_path), "r.example") == "named"
    environ: dict[str, str] = {}
    for prefix in ("DOCKER_", "SINGULARITY_DOCKER_", "APPTAINER_DOCKER_", "KEDGE_", "KEDGE_DOCKER_"):
        environ |= {f"{prefix}USERNAME": prefix, f"{prefix}PASSWORD": "x"}
        assert found_user(CredentialSources(authfile=authfile, environ=environ, home=tmp_path), "r.example") == prefix
    explicit = Credential(Login("typed", Secret("x")), "--docker-login")
    assert found_user(CredentialSources(explicit=explicit, environ=environ, home=tmp_path), "r.example") == "typed"


def test_credentials_of_environment_never_go_to_a_mirror(tmp_path: Path) -> None:
    where = sources(tmp_path, DOCKER_USERNAME="u", DOCKER_PASSWORD="p", NGC_API_KEY="k")
    assert where.find("mirror.example", "a", is_mirror=True).credential is None
    write_config(login_file(tmp_path), auths={"mirror.example": {"auth": encode("mirror", "x")}})
    credential = where.find("mirror.example", "a", is_mirror=True).credential
    assert credential.login.username == "mirror"


def test_credentials_ngc_key_is_for_nvcr_only(tmp_path: Path) -> None:
    where = sources(tmp_path, NGC_API_KEY="nvapi-key")
    assert found_user(where, "nvcr.io") == "$oauthtoken"
    assert found_user(where, "docker.io") is None
    assert found_user(where, "nvcr.io.evil.example") is None


def test_credentials_exported_ngc_login_is_not_sent_to_docker_hub(tmp_path: Path) -> None:
    where = sources(tmp_path, APPTAINER_DOCKER_USERNAME="$oauthtoken", APPTAINER_DOCKER_PASSWORD=PASSWORD)
    assert found_user(where, "nvcr.io") == "$oauthtoken"
    outcome = where.find("docker.io", "library/ubuntu")
    assert outcome.credential is None
    assert "nvcr.io" in outcome.notes[0]
    assert PASSWORD not in repr(outcome)


def test_credentials_expanded_oauthtoken_is_explained(tmp_path: Path) -> None:
    outcome = sources(tmp_path, SINGULARITY_DOCKER_USERNAME="", SINGULARITY_DOCKER_PASSWORD=PASSWORD).find(
        "nvcr.io", "a"
    )
    assert outcome.credential is None
    assert "single quotes" in outcome.notes[0]


@each_row(
    ("key", "registry", "repository", "fits"),
    [
        ("https://index.docker.io/v1/", "docker.io", "library/ubuntu", True),
        ("docker.io", "docker.io", "library/ubuntu", True),
        ("registry-1.docker.io", "docker.io", "x/y", True),
        ("https://r.example", "r.example", "x", True),
        ("http://r.example/v2/", "r.example", "x", True),
        ("r.example:5000", "r.example:5000", "x", True),
        ("r.example:5000", "r.example", "x", False),
        ("r.example", "r.example:5000", "x", False),
        ("R.Example", "r.example", "x", True),
        ("r.example/team", "r.example", "team/app", True),
        ("r.example/team/app", "r.example", "team/app", True),
        ("r.example/tea", "r.example", "team/app", False),
        ("r.example/other", "r.example", "team/app", False),
        ("example", "r.example", "x", False),
        ("r.example.evil", "r.example", "x", False),
    ],
)
def test_credentials_key_spellings(tmp_path: Path, key: str, registry: str, repository: str, fits: bool) -> None:
    write_config(tmp_path / ".docker/config.json", auths={key: {"auth": encode("u", "p")}})
    assert (found_user(sources(tmp_path), registry, repository) == "u") is fits


def test_credentials_longest_repository_key_wins(tmp_path: Path) -> None:
    auths = {name: {"auth": encode(name, "p")} for name in ("r.example", "r.example/a", "r.example/a/b")}
    write_config(tmp_path / ".docker/config.json", auths=auths)
    assert [found_user(sources(tmp_path), "r.example", path) for path in ("a/b/c", "a/x", "z")] == [
        "r.example/a/b", "r.example/a", "r.example",
    ]  # fmt: skip


def test_credentials_entry_forms(tmp_path: Path) -> None:
    auths = {
        "plain.example": {"username": "u", "password": "p:with:colons"},
        "coded.example": {"auth": encode("u", "p:with:colons")},
        "identity.example": {"auth": encode("00000000", ""), "identitytoken": "refresh"},
        "token-user.example": {"auth": encode("<token>", "refresh")},
        "bearer.example": {"registrytoken": "bearer"},
        "stored.example": {},
        "broken.example": {"auth": "%%%not base64"},
        "wrong.example": ["not", "an", "object"],
    }
    write_config(tmp_path / ".docker/config.json", auths=auths)

    def login(host: str) -> Login | None:
        credential = sources(tmp_path).find(host, "x").credential
        return credential.login if credential else None

    for host in ("plain.example", "coded.example"):
        assert login(host) == Login("u", Secret("p:with:colons"))
    for host in ("identity.example", "token-user.example"):
        found = login(host)
        assert found.identity_token == Secret("refresh")
    assert login("bearer.example") == Login(registry_token=Secret("bearer"))
    assert [login(f"{name}.example") for name in ("stored", "broken", "wrong")] == [None, None, None]


def install_helper(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / f"docker-credential-{name}"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_credentials_helper_answers_for_its_host_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = '{"ServerURL":"%s","Username":"%s","Secret":"s"}'
    script = f'test "$1" = get || exit 9\nread -r key\nprintf \'{answer}\' "$key" "$key"\n'
    install_helper(tmp_path / "bin", "echo", script, monkeypatch)
    write_config(tmp_path / ".docker/config.json", credHelpers={"r.example": "echo"})
    assert found_user(sources(tmp_path), "r.example") == "r.example"
    assert found_user(sources(tmp_path), "other.example") is None
    write_config(tmp_path / ".docker/config.json", credsStore="echo")
    assert found_user(sources(tmp_path), "docker.io") == "https://index.docker.io/v1/"


def test_credentials_helper_gives_identity_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_helper(tmp_path / "bin", "tok", 'echo \'{"Username":"<token>","Secret":"refresh"}\'\n', monkeypatch)
    write_config(tmp_path / ".docker/config.json", credsStore="tok")
    credential = sources(tmp_path).find("r.example", "x").credential
    assert credential.login.identity_token == Secret("refresh")


@each_row(
    ("script", "note"),
    [
        ('echo "credentials not found in native keychain"; exit 1\n', None),
        (f"echo boom {PASSWORD}; exit 1\n", "status 1"),
        (f"echo not json {PASSWORD}\n", "not a login"),
        ("echo '[\"list\"]'\n", "not a login"),
    ],
)
def test_credentials_failing_helper_is_noted_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, note: str | None
) -> None:
    install_helper(tmp_path / "bin", "bad", script, monkeypatch)
    write_config(tmp_path / ".docker/config.json", credsStore="bad", auths={"r.example": {"auth": encode("kept", "p")}})
    outcome = sources(tmp_path).find("r.example", "x")
    assert outcome.credential.login.username == "kept"
    assert (note is None and not outcome.notes) or (note is not None and note in outcome.notes[0])
    assert PASSWORD not in repr(outcome)


def test_credentials_missing_helper_does_not_stop_a_public_image(tmp_path: Path) -> None:
    write_config(tmp_path / ".docker/config.json", credsStore="desktop-not-here")
    outcome = sources(tmp_path).find("docker.io", "library/ubuntu")
    assert outcome.credential is None
    assert "docker-credential-desktop-not-here" in outcome.notes[0]


@each_row("content", ["{", "[]", '"x"', "null", "{" * 100_000, '{"auths": 5, "credHelpers": [], "credsStore": 3}'])
def test_credentials_broken_file_is_noted_and_named_when_explicit(tmp_path: Path, content: str) -> None:
    path = write_config(tmp_path / ".docker/config.json")
    path.write_text(content)
    outcome = sources(tmp_path).find("r.example", "x")
    assert outcome.credential is None
    if not content.startswith('{"auths"'):
        assert str(path) in outcome.notes[0]
        with pytest.raises(InvalidSetting, match=r"config\.json"):
            CredentialSources(authfile=path, home=tmp_path).find("r.example", "x")


def test_credentials_named_authfile_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="does not exist"):
        CredentialSources(authfile=tmp_path / "none.json", home=tmp_path).find("r.example", "x")


def test_credentials_other_files_by_variable(tmp_path: Path) -> None:
    podman = write_config(tmp_path / "run/containers/auth.json", auths={"p.example": {"auth": encode("podman", "x")}})
    named = write_config(tmp_path / "named.json", auths={"n.example": {"auth": encode("named", "x")}})
    docker = write_config(tmp_path / "elsewhere/config.json", auths={"d.example": {"auth": encode("docker", "x")}})
    where = sources(
        tmp_path,
        XDG_RUNTIME_DIR=str(podman.parent.parent),
        REGISTRY_AUTH_FILE=str(named),
        DOCKER_CONFIG=str(docker.parent),
    )
    assert [found_user(where, f"{letter}.example") for letter in "pnd"] == ["podman", "named", "docker"]


ENROOT = """# NGC
machine nvcr.io login $oauthtoken password nvapi-enroot
machine authn.nvidia.com login $oauthtoken password nvapi-enroot
machine registry-1.docker.io
    login hub
    password "two words"
machine ecr.example login AWS password $(aws ecr get-login-password --region eu)
machine two.example login first password 1
machine two.example login second password 2
macdef init
machine fake.example login no password no

default login anybody password x
"""


def write_enroot(home: Path) -> Path:
    path = home / ".config/enroot/.credentials"
    path.parent.mkdir(parents=True)
    path.write_text(ENROOT)
    return path


def test_credentials_enroot_netrc(tmp_path: Path) -> None:
    path = write_enroot(tmp_path)
    where = sources(tmp_path)
    credential = where.find("nvcr.io", "nvidia/pytorch").credential
    assert credential == Credential(Login("$oauthtoken", Secret("nvapi-enroot")), str(path))
    hub = where.find("docker.io", "library/ubuntu").credential
    assert hub.login == Login("hub", Secret("two words"))
    assert where.find("fake.example", "x").credential is None
    assert where.find("unknown.example", "x").credential is None  # a default entry would go to anybody


def test_credentials_enroot_command_is_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "enroot/.credentials"
    path.parent.mkdir()
    path.write_text(f"machine ecr.example login AWS password $(touch {marker}; echo x)\n")
    outcome = sources(tmp_path, ENROOT_CONFIG_PATH=str(path.parent)).find("ecr.example", "x")
    assert outcome.credential is None
    assert_says(outcome.notes[0], "pull/does-not-run")
    assert not marker.exists()


def test_credentials_user_of_reference_chooses_entry(tmp_path: Path) -> None:
    write_enroot(tmp_path)
    assert found_user(CredentialSources(username="second", home=tmp_path), "two.example") == "second"
    assert found_user(CredentialSources(username="third", home=tmp_path), "two.example") is None


def test_credentials_home_netrc_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine r.example login u password p\n")
    assert found_user(sources(tmp_path), "r.example") is None


def test_netrc_survives_odd_files() -> None:
    for text in ("", "machine", "machine x login", "password y", "\0\0\0", "machine x login y password z extra words"):
        assert len(parse_netrc(text)) <= 1


def test_docker_config_store_keeps_everything_else(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles/docker-config.json"
    write_config(
        real, auths={"other.example": {"auth": encode("o", "p"), "email": "x@y"}}, HttpHeaders={"A": "b"}, psFormat=1
    )
    path = login_file(tmp_path)
    path.parent.mkdir()
    path.symlink_to(real)
    store_login(path, "https://r.example", "user", Secret(PASSWORD))
    assert path.is_symlink()
    document = json.loads(real.read_text())
    assert document["HttpHeaders"] == {"A": "b"}
    assert document["psFormat"] == 1
    assert document["auths"]["other.example"] == {"auth": encode("o", "p"), "email": "x@y"}
    assert document["auths"]["r.example"] == {"auth": encode("user", PASSWORD)}
    assert real.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in real.parent.iterdir()} == {"docker-config.json", lock_beside(real).name}
    assert remove_login(path, "r.example")
    assert not remove_login(path, "r.example")
    assert "r.example" not in json.loads(real.read_text())["auths"]


def test_docker_config_store_makes_a_private_folder_and_hub_key(tmp_path: Path) -> None:
    path = login_file(tmp_path)
    store_login(path, "docker.io", "u", Secret("p"))
    store_login(path, "index.docker.io", "v", Secret("p"))
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(json.loads(path.read_text())["auths"]) == ["https://index.docker.io/v1/"]
    auth_file = read_auth_file(path)
    assert auth_file.find_login("docker.io", "library/x") == Login("v", Secret("p"))


def test_docker_config_store_refuses_to_replace_a_broken_file(tmp_path: Path) -> None:
    path = login_file(tmp_path)
    path.parent.mkdir()
    path.write_text("precious but broken")
    with pytest.raises(InvalidSetting):
        store_login(path, "r.example", "u", Secret("p"))
    assert path.read_text() == "precious but broken"


def test_docker_config_keys_of_a_repository() -> None:
    assert list_keys("index.docker.io", "a/b") == ["docker.io/a/b", "docker.io/a", "docker.io"]
    assert normalize_key("https://r.example:5000/v2/") == "r.example:5000"


def test_secret_is_never_shown() -> None:
    secret = Secret(PASSWORD)
    credential = Credential(Login("u", secret, identity_token=Secret(PASSWORD)), "somewhere")
    for shown in (
        *(repr(secret), str(secret), f"{secret}", repr(credential), repr(encode_basic("u", secret))),
        f"{credential!r:>10}",
    ):
        assert PASSWORD not in shown
    assert secret == Secret(PASSWORD)
    assert secret != Secret("other")
    assert secret.reveal() == PASSWORD


def test_scrub_hides_encoded_secrets() -> None:
    basic = encode_basic("u", Secret(PASSWORD))
    text = f"a {PASSWORD} b {basic.reveal()} c {base64.b64encode(PASSWORD.encode()).decode()} d"
    assert scrub(text, [Secret(PASSWORD), basic]) == "a *** b *** c *** d"


@each_row(
    ("url", "shown"),
    [
        ("https://user:pass@h.example:8443/a/b?X-Amz-Signature=abc", "https://h.example:8443/a/b?…"),
        ("https://h/a", "https://h/a"),
        ("http://[::1]:5000/v2/", "http://[::1]:5000/v2/"),
        ("user:pass@proxy:3128", "proxy:3128"),
        ("https://[bad", "(an address that cannot be read)"),
    ],
)
def test_redact_url_hides_logins_and_signatures(url: str, shown: str) -> None:
    assert redact_url(url) == shown
