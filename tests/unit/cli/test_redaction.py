# SPDX-License-Identifier: BSD-3-Clause
"""Redaction: what must not be shown is not, and what helps is kept."""

from __future__ import annotations

from kedge.cli.redaction import redact, redact_arguments
from tests.builders.rows import each_row


@each_row(("text", "shown"), [
    ("https://me:pw@host/v2/", "https://me:***@host/v2/"),
    ("docker://$oauthtoken:nvapi-x@nvcr.io/a", "docker://$oauthtoken:***@nvcr.io/a"),
    ("https://me:p@ss@system/host/", "https://me:***@system/host/"),
    ("https://host/blob?X-Amz-Signature=abc&X-Amz-Date=2024",
     "https://host/blob?X-Amz-Signature=***&X-Amz-Date=2024"),
    ("https://host/?scope=a&access_token=abc#top", "https://host/?scope=a&access_token=***#top"),
    ("https://host/x?sig=abc%3D", "https://host/x?sig=***"),
    ("Authorization: Bearer eyJhbGciOi.J9.x", "Authorization: Bearer ***"),
    ("authorization: Basic bWU6cGFzc3dvcmQ=", "authorization: Basic ***"),
    ("https://host:5000/v2/a/manifests/1", "https://host:5000/v2/a/manifests/1"),
    ("user@host.example:22 has 3 files", "user@host.example:22 has 3 files"),
])  # fmt: skip
def test_redact_hides_secrets_only(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_redact_arguments_hides_the_values_of_secret_options() -> None:
    words = [
        "registry", "login", "-u", "me", "-p", "pw", "--password", "pw", "--passphrase=pw", "--password-stdin",
        "host",
    ]  # fmt: skip
    shown = [
        "registry", "login", "-u", "me", "-p", "***", "--password", "***", "--passphrase=***", "--password-stdin",
        "host",
    ]  # fmt: skip
    assert redact_arguments(words) == shown


@each_row(("words", "shown"), [
    (["registry", "login", "-ppw", "host"], ["registry", "login", "-p***", "host"]),
    (["key", "newpair", "-P", "pw", "-N", "me"], ["key", "newpair", "-P", "***", "-N", "me"]),
    (["key", "newpair", "-Ppw"], ["key", "newpair", "-P***"]),
    (["key", "remove", "-p", "--json"], ["key", "remove", "-p", "--json"]),
    (["pull", "--compress", "zstd"], ["pull", "--compress", "zstd"]),
])  # fmt: skip
def test_redact_arguments_knows_the_short_options(words: list[str], shown: list[str]) -> None:
    assert redact_arguments(words) == shown


@each_row(("words", "shown"), [
    (["exec", "--env", "NGC_API_KEY=pw", "x.sif"], ["exec", "--env", "NGC_API_KEY=***", "x.sif"]),
    (["exec", "--env", "A=1,B=pw", "x.sif"], ["exec", "--env", "A=***", "x.sif"]),
    (["submit", "--env=PLAIN=pw", "x.sif"], ["submit", "--env=PLAIN=***", "x.sif"]),
    (["exec", "--env"], ["exec", "--env"]),
    (["exec", "-e", "A=pw", "x.sif"], ["exec", "-e", "A=***", "x.sif"]),
    (["exec", "--env", "my-name=pw"], ["exec", "--env", "my-name=***"]),
    (["submit", "--option=--env=A=pw"], ["submit", "--option=--env=A=***"]),
    (["submit", "--option", "--env", "--option", "A=pw", "x.sif"],
     ["submit", "--option", "--env", "--option", "A=***", "x.sif"]),
    (["submit", "--option", "--password", "--option", "pw", "x.sif"],
     ["submit", "--option", "--password", "--option", "***", "x.sif"]),
    (["submit", "--option=--password=pw"], ["submit", "--option=--password=***"]),
    (["submit", "--option=--password", "pw"], ["submit", "--option=--password", "***"]),
    (["submit", "--directive", "--export=A=pw"], ["submit", "--directive", "--export=A=***"]),
    (["submit", "--directive=--export=ALL,A=pw"], ["submit", "--directive=--export=ALL,A=***"]),
    (["submit", "--setup", "export A=pw"], ["submit", "--setup", "export A=***"]),
    (["submit", "--setup=export A='p w'; true"], ["submit", "--setup=export A=***"]),
    (["build", "--build-arg", "A=pw"], ["build", "--build-arg", "A=***"]),
    (["submit", "-", "env", "A=pw"], ["submit", "-", "env", "A=***"]),
    (["submit", "--gpus=4", "--queue=short", "x.sif"], ["submit", "--gpus=4", "--queue=short", "x.sif"]),
    (["exec", "x.sif", "tool", "HF_TOKEN=pw"], ["exec", "x.sif", "tool", "HF_TOKEN=***"]),
    (["exec", "x.sif", "env", "DB_PASSWORD=20417"], ["exec", "x.sif", "env", "DB_PASSWORD=***"]),
    (["exec", "x.sif", "env", "API_KEY=ab/cd"], ["exec", "x.sif", "env", "API_KEY=***"]),
])  # fmt: skip
def test_redact_arguments_hides_variables_of_programs(words: list[str], shown: list[str]) -> None:
    assert redact_arguments(words) == shown
