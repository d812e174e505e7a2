# SPDX-License-Identifier: BSD-3-Clause
"""What must not leave the machine in a report does not, and what help desks need does."""

from __future__ import annotations

from pathlib import Path

from kedge.answers.report import Censor, is_secret_name, show_environment
from kedge.cli.redaction import redact
from tests.builders.rows import each_row


@each_row("name", [
    *("NGC_API_KEY", "NGC_CLI_API_KEY", "DOCKER_PASSWORD", "SINGULARITY_DOCKER_PASSWORD", "HF_TOKEN", "SLURM_JWT"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "WANDB_API_KEY", "PGPASSWORD", "MYSQL_PWD_FILE", "SSH_AUTH_SOCK"),
    *("GITHUB_PAT", "OPENAI_API_KEY", "KEDGE_SIGN_PASSPHRASE", "APPTAINER_ENCRYPTION_PASSPHRASE", "XAUTHORITY"),
])  # fmt: skip
def test_names_that_speak_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@each_row("name", ["PWD", "PATH", "KEDGE_KEYSDIR", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "KEDGE_KEYSERVER"])
def test_names_that_help_desks_need_are_shown(name: str) -> None:
    assert not is_secret_name(name)


def test_environment_shows_what_matters_and_nothing_else() -> None:
    shown = list(
        show_environment(
            {
                "SLURM_JOB_ID": "7", "EDITOR": "vim", "NGC_API_KEY": "nvapi-secret", "MY_DIARY": "private",
                "SINGULARITYENV_OMP_NUM_THREADS": "4", "SINGULARITYENV_DIARY": "private",
                "SINGULARITYENV_API_KEY": "private", "no_proxy": "localhost",
                "ALL_PROXY": "socks5://ada:p@ss@proxy:1080",
            }
        )
    )  # fmt: skip
    assert shown == [
        "ALL_PROXY='***@proxy:1080'", "NGC_API_KEY=***", "SINGULARITYENV_API_KEY is set",
        "SINGULARITYENV_DIARY is set", "SINGULARITYENV_OMP_NUM_THREADS='4'", "SLURM_JOB_ID='7'",
        "no_proxy='localhost'",
    ]  # fmt: skip


@each_row(
    ("text", "expected"),
    [
        ("https://ada:pass@host/x", "https://ada:***@host/x"),
        ("proxy ada:pass@host:3128", "proxy ***@host:3128"),
        ("https://abcdefghijklmnop@host/x.git", "https://***@host/x.git"),
        ("key nvapi-abcdefgh12345678", "key ***"),
        ("a eyJhbGciOiJIUzI1.eyJleHAiOjE3MDAw.c2lnbmF0dXJl b", "a *** b"),
        ("at /home/ada/x and /home/ada", "at ~/x and ~"),
        ("at /home/ada2/x", "at /home/ada2/x"),
        ("said s3cret-in-a-file", "said ***"),
        ("sha256:" + "0123456789abcdef" * 4, "sha256:" + "0123456789abcdef" * 4),
        ("PATH='/opt/python@3.11/bin:/usr/bin'", "PATH='/opt/python@3.11/bin:/usr/bin'"),
    ],
)
def test_censor_takes_out_secrets_and_leaves_the_rest(text: str, expected: str) -> None:
    censor = Censor({"X_TOKEN": "s3cret-in-a-file", "Y_TOKEN": "no"}, redact, home=Path("/home/ada"))
    assert censor.clean(text) == expected


def test_censor_leaves_the_home_to_its_owner() -> None:
    assert Censor({}, redact).clean("/home/ada/x") == "/home/ada/x"
    assert Censor({}, redact, home=Path("/")).clean("/usr/x") == "/usr/x"
