# SPDX-License-Identifier: BSD-3-Clause
"""Logins, judged without being shown: the classic traps are named, and no secret or user name is in any finding."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from kedge.answers.doctor.network import (
    check_credentials,
    check_logins,
    find_blemish,
    find_expiry,
    is_host,
    is_ngc_key,
    is_stand_in,
)
from kedge.answers.doctor.surroundings import NOTE, OK, WARNING, Finding, Surroundings
from kedge.system.settings import Settings
from tests.builders.rows import each_row
from tests.requirements import open_way
from tests.wording import assert_begins, assert_reads, assert_says

KEY = "nvapi-" + "Abc1_-" * 10
OLD_KEY = base64.b64encode(b"some-sixty-bytes-of-an-older-key:00000000-0000-0000-0000-000000").decode()
USER = "$oauthtoken"


def surround(tmp_path: Path, environ: dict[str, str] | None = None) -> Surroundings:
    full = {"HOME": str(tmp_path), **(environ or {})}
    return Surroundings(full, Settings.load(environ=full))


def check(tmp_path: Path, environ: dict[str, str] | None = None) -> list[Finding]:
    return check_credentials(surround(tmp_path, environ))


def warnings(findings: list[Finding]) -> list[str]:
    for each in findings:
        assert each.level in (OK, NOTE, WARNING)
        assert each.level == OK or (each.why and each.fix and each.docs == "kedge help doctor credentials")
    return [each.what for each in findings if each.level == WARNING]


def write_config(tmp_path: Path, document: object, *, mode: int = 0o600) -> Path:
    path = tmp_path / ".docker" / "config.json"
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    path.chmod(mode)
    return path


def entry(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_credentials_none_or_without_password(tmp_path: Path) -> None:
    assert check(tmp_path) == [Finding("credentials", OK, "no login for any registry; public images need none")]
    environ = {"SINGULARITY_DOCKER_USERNAME": USER}
    assert_reads(warnings(check(tmp_path, environ)), "doctor/singularity-docker-username-set-but")


@each_row("key", [KEY, OLD_KEY])
def test_credentials_that_are_good(tmp_path: Path, key: str) -> None:
    environ = {"NGC_API_KEY": key, "APPTAINER_DOCKER_USERNAME": USER, "APPTAINER_DOCKER_PASSWORD": key}
    path = write_config(tmp_path, {"auths": {"nvcr.io": entry(USER, key), "docker.io": entry("jane", "hunter22")}})
    findings = check(tmp_path, environ)
    assert warnings(findings) == []
    assert_reads(findings[-1].what, "doctor/logins-any-registry-apptainer-docker", path)


@each_row("prefix", ["SINGULARITY", "APPTAINER", "KEDGE"])
def test_credentials_user_name_that_the_shell_took_away(tmp_path: Path, prefix: str) -> None:
    user, password = f"{prefix}_DOCKER_USERNAME", f"{prefix}_DOCKER_PASSWORD"
    findings = check(tmp_path, {user: "", password: KEY})
    assert_reads(warnings(findings), "doctor/set-but-empty", password, user)
    assert findings[0].fix == f"export {user}='$oauthtoken' (in single quotes)"
    assert_says(findings[0].why, "doctor/shell-replaces-oauthtoken-nothing")


@each_row(("value", "said"), [
    (f"{KEY}\n", "ends with a newline"),
    (f" {KEY}", "has a space before or behind it"),
    (f'"{KEY}"', "stands in quotes, which count as a part of it"),
    (f"nvapi- {KEY}", "has a space in it"),
    (f"{KEY}\u200b", "has a character in it that cannot be seen"),
    ("<YOUR_API_KEY>", "is a placeholder, not a key"),
    ("$NGC_API_KEY", "is a placeholder, not a key"),
    ("your-api-key", "is a placeholder, not a key"),
    ("hunter22", "does not look like an NGC API key"),
])  # fmt: skip
def test_credentials_keys_that_are_none(tmp_path: Path, value: str, said: str) -> None:
    assert_reads(warnings(check(tmp_path, {"NGC_API_KEY": value})), "doctor/the-secret-in", "NGC_API_KEY", said)


def test_credentials_user_name_other_than_the_one(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"auths": {"nvcr.io": entry("oauthtoken", KEY)}})
    assert_reads(warnings(check(tmp_path)), "doctor/user-name-nvcr-io-not", path)
    environ = {"DOCKER_USERNAME": "jane", "DOCKER_PASSWORD": KEY}
    path.unlink()
    assert_reads(warnings(check(tmp_path, environ)), "doctor/docker-username-docker-password-hold")


@each_row(("host", "user", "said"), [
    ("docker.io", USER, "the login for docker.io in {} is $oauthtoken"),
    ("https://index.docker.io/v1/", "jane", "the login for docker.io in {} holds an NGC API key"),
    ("ngc.nvidia.com", "jane", "{} has a login for ngc.nvidia.com, which is not a registry"),
    ("nvrc.io", "jane", "{} has a login for nvrc.io, which is not a registry"),
])  # fmt: skip
def test_credentials_for_the_wrong_host(tmp_path: Path, host: str, user: str, said: str) -> None:
    path = write_config(tmp_path, {"auths": {host: entry(user, KEY)}})
    assert said.format(path) in warnings(check(tmp_path))


def test_credentials_of_the_environment_that_hide_the_ones_that_are_meant(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"auths": {"nvcr.io": entry(USER, KEY)}})
    environ = {"SINGULARITY_DOCKER_USERNAME": "jane", "SINGULARITY_DOCKER_PASSWORD": "hunter22"}
    names = "SINGULARITY_DOCKER_USERNAME and SINGULARITY_DOCKER_PASSWORD"
    findings = check(tmp_path, environ)
    assert warnings(findings) == [f"kedge sends {names} to nvcr.io, not the login in {path}"]
    assert "unset SINGULARITY_DOCKER_USERNAME SINGULARITY_DOCKER_PASSWORD" in findings[0].fix


def test_credentials_helpers_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config(tmp_path, {"credsStore": "desktop", "credHelpers": {"nvcr.io": "../../bin/sh"}, "auths": {}})
    said = warnings(check(tmp_path))
    assert_reads(said[0], "doctor/names-helper-docker-credential-desktop-not-installed", path)
    assert len(said) == 2
    program = tmp_path / "docker-credential-own"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    write_config(tmp_path, {"credHelpers": {"nvcr.io": "own"}})
    findings = check(tmp_path)
    assert warnings(findings) == []
    assert findings[-1].what == "logins: nvcr.io from docker-credential-own"


@each_row(("mode", "who"), [(0o644, "everybody"), (0o640, "your group"), (0o600, "")])
def test_credentials_that_others_can_read(tmp_path: Path, mode: int, who: str) -> None:
    open_way(tmp_path)
    path = write_config(tmp_path, {"auths": {"nvcr.io": entry(USER, KEY)}}, mode=mode)
    said = warnings(check(tmp_path))
    assert said == ([f"{path} is readable by {who} on this host"] if who else [])


def test_credentials_in_a_closed_folder_are_safe_whatever_their_mode(tmp_path: Path) -> None:
    open_way(tmp_path)
    path = write_config(tmp_path, {"auths": {"nvcr.io": entry(USER, KEY)}}, mode=0o644)
    path.parent.chmod(0o700)
    assert warnings(check(tmp_path)) == []


def test_credentials_of_enroot(tmp_path: Path) -> None:
    open_way(tmp_path)
    folder = tmp_path / "enroot"
    folder.mkdir()
    folder.chmod(0o755)
    path = folder / ".credentials"
    path.write_text(f"machine nvcr.io login {USER} password {KEY}\nmachine r.example login a password $(cat {KEY})\n")
    path.chmod(0o644)
    findings = check(tmp_path, {"ENROOT_CONFIG_PATH": str(folder)})
    assert_reads(warnings(findings), "doctor/readable-everybody-host", path)
    assert_reads([each.what for each in findings if each.level == NOTE], "doctor/password-command-does-not-run", path)


@each_row("content", [b"{", b"[]", b"\xff", b'{"auths": [' + b"[" * 5000])
def test_credentials_files_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    path = write_config(tmp_path, {})
    path.write_bytes(content)
    assert_reads(warnings(check(tmp_path)), "doctor/not-valid-file-logins", path)


def make_token(moment: float) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": moment}).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{payload}.c2lnbmF0dXJl"


def test_tokens_and_keys_say_what_they_are(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"auths": {"r.example": {"registrytoken": make_token(1_700_000_000)}}})
    assert_reads(warnings(check(tmp_path)), "doctor/token-expired", path, "2023-11-14")
    assert find_expiry(make_token(time.time() + 1000)) == ""
    assert find_expiry("ey.ey.ey") == ""
    assert find_expiry(make_token(float("nan"))) == ""
    assert is_ngc_key(KEY)
    assert is_ngc_key(OLD_KEY)
    assert not is_ngc_key("hunter22")
    assert not is_ngc_key(f"{KEY}\n")
    assert not find_blemish(KEY)
    assert not is_stand_in(KEY)


def test_key_formats_what_is_no_host_is_not_shown() -> None:
    hosts = ["nvcr.io", "localhost:5000", "[::1]:5000", "r.example/team/image"]
    others = ["", "u:p@nvcr.io", "a b", "nvcr.io\n", "x" * 300, "\x1b[2J"]
    assert [text for text in hosts + others if is_host(text)] == hosts


SECRETS = {name: f"pl4nted-{number}-{'s3cret' * 6}" for number, name in enumerate("ABCDEFGHIJKLMNOP")}


def plant(tmp_path: Path) -> dict[str, str]:
    """Secrets in every place that is looked at, in the right field and in the wrong one."""
    write_config(
        tmp_path,
        {
            "auths": {
                "nvcr.io": entry(SECRETS["A"], SECRETS["B"]),
                f"https://{SECRETS['C']}:{SECRETS['D']}@r.example/v2/": entry("u", "p" * 8),
                f"{SECRETS['C']}:{SECRETS['D']}@nvcr.io": entry(USER, SECRETS["E"]),
                "ngc.nvidia.com": {"identitytoken": SECRETS["F"]},
                "docker.io": {"username": SECRETS["G"], "password": f"nvapi-{SECRETS['H']}\n"},
            },
            "credHelpers": {f"{SECRETS['C']}@x": f"x {SECRETS['I']}"},
            "credsStore": f"{SECRETS['J']} ",
        },
    )
    enroot = tmp_path / ".config/enroot"
    enroot.mkdir(parents=True)
    (enroot / ".credentials").write_text(
        f"machine nvcr.io login {SECRETS['K']} password {SECRETS['L']}\nmachine a login b password $({SECRETS['M']})\n"
    )
    return {
        "NGC_API_KEY": f'"{SECRETS["N"]}"',
        "SINGULARITY_DOCKER_USERNAME": SECRETS["O"],
        "SINGULARITY_DOCKER_PASSWORD": f"nvapi-{SECRETS['P']}",
        "DOCKER_PASSWORD": SECRETS["P"],
        "https_proxy": f"http://{SECRETS['A']}:{SECRETS['B']}@127.0.0.1:9",
    }


def list_forms(secret: str) -> set[str]:
    raw = secret.encode()
    return {secret, quote(secret, safe=""), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}


def test_credentials_planted_secrets_are_in_no_finding(tmp_path: Path) -> None:
    environ = plant(tmp_path)
    findings = [*check(tmp_path, environ), *check_logins(surround(tmp_path, environ))]
    assert len(warnings([each for each in findings if each.check == "credentials"])) >= 8
    told = repr(findings)
    shown = {name for name, secret in SECRETS.items() for form in list_forms(secret) if form in told}
    assert not shown


def test_logins_are_tried_only_where_there_is_one(tmp_path: Path) -> None:
    assert check_logins(surround(tmp_path)) == []
    offline = Surroundings({"NGC_API_KEY": KEY}, Settings.load(environ={"HOME": str(tmp_path)}), is_offline=True)
    assert check_logins(offline) == []
    environ = {"NGC_API_KEY": KEY, "https_proxy": "http://127.0.0.1:9"}
    (finding,) = check_logins(surround(tmp_path, environ))
    assert finding.level == NOTE
    assert_begins(finding.what, "doctor/unknown-whether-accepts-login-cannot", "nvcr.io")
