# SPDX-License-Identifier: BSD-3-Clause
"""`kedge doctor` as users call it: what it prints, its status, and files that hold no secrets."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kedge.errors import DoctorFailed
from tests.builders.warm_kedge import run_kedge
from tests.requirements import REPOSITORY, open_way, require_program, require_root
from tests.wording import assert_reads, assert_says

KEDGE = [sys.executable, "-m", "kedge"]
NOBODY = "64321"  # a user that no database knows
PATIENCE = ("--patience", "8")  # other tests keep this machine busy


def make_environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    own = str(Path(sys.executable).parent)
    return {**kept, "PATH": f"{own}:{kept['PATH']}", "HOME": str(home), "TMPDIR": "/tmp", **more}


def run_doctor(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    words = ("doctor", "--offline", *PATIENCE, *words)
    return run_kedge([*words], environment=make_environment(home, **more), folder=Path.cwd(), timeout=60)


def read_findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in json.loads(done.stdout)["findings"]}


def test_doctor_lists_its_checks(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--list")
    assert done.returncode == 0
    assert "user-namespaces" in done.stdout
    listed = json.loads(run_doctor(tmp_path, "--list", "--json").stdout)
    assert {"name": "clock", "title": "clock", "group": "Environment"} in listed


def test_doctor_only_takes_a_group_as_the_list_names_it(tmp_path: Path) -> None:
    found = read_findings(run_doctor(tmp_path, "--json", "--only", "Containers,locale"))
    assert {"kernel", "user-namespaces", "locale"} <= set(found)
    assert "store" not in found
    assert set(read_findings(run_doctor(tmp_path, "--json", "--only", "gpu"))) >= {"gpu-driver"}


def test_doctor_report_and_page_are_two_files(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--report", "same", "--html", "same", "--force")
    assert done.returncode == 2
    assert "name the same file" in done.stderr


def test_doctor_report_and_page_on_standard_output(tmp_path: Path) -> None:
    report = run_doctor(tmp_path, "--only", "locale", "--report", "-")
    assert report.stdout.startswith("kedge doctor: report of ")
    page = run_doctor(tmp_path, "--only", "locale", "--html", "-")
    assert page.stdout.startswith("<!DOCTYPE html>")
    assert run_doctor(tmp_path, "--json", "--html", "-").returncode == 2
    assert not Path("-").exists()


def test_doctor_counts_one_variable_as_one(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--json", "--only", "variables", KEDGE_RETRIES="1")
    assert_reads(read_findings(done)["variables"]["what"], "doctor/variable-apptainer-singularity-set")


def test_doctor_text_has_problems_first_with_their_remedy(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--only", "binds,kernel", APPTAINER_BIND="/no/such/folder")
    assert done.returncode == DoctorFailed.exit_code
    lines = done.stdout.splitlines()
    assert lines[2] == "Problems"
    assert "binds: missing on this host: /no/such/folder (APPTAINER_BIND)" in lines[3]
    assert any(line.strip().startswith("fix:  unset APPTAINER_BIND") for line in lines)
    assert any(line.strip() == "docs: kedge help doctor binds" for line in lines)
    assert any(line.startswith("  ok  kernel") for line in lines)
    assert lines[-1].startswith("2 checks, 1 problem, 0 warnings, ")


def test_doctor_warnings_do_not_fail(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--only", "variables", KEDGE_CACHDIR="/x")
    assert done.returncode == 0
    assert "1 warning" in done.stdout
    assert "did you mean 'KEDGE_CACHEDIR'?" in done.stdout


def test_doctor_json_is_one_document_also_when_something_fails(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--json", "--only", "binds", APPTAINER_BIND="/no/such/folder")
    assert done.returncode == DoctorFailed.exit_code
    told = json.loads(done.stdout)
    assert told["failed"] is True
    assert told["machine"]["kernel"]
    assert told["findings"][0]["level"] == "fail"
    assert told["findings"][0]["docs"] == "kedge help doctor binds"
    assert told["seconds"]["binds"] > 0


def test_doctor_all_checks_answer_here_and_none_is_broken(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--json")
    assert done.returncode in (0, DoctorFailed.exit_code), done.stderr
    broken = [each for each in read_findings(done).values() if "could not be checked" in each["what"]]
    assert not broken
    for each in json.loads(done.stdout)["findings"]:
        assert each["level"] in ("ok", "note", "warning", "fail", "skipped")
        if each["level"] in ("warning", "fail"):
            assert each["why"], each
            assert each["fix"], each
            assert each["docs"], each


def test_doctor_unknown_check_proposes_the_nearest(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, "--only", "clok")
    assert done.returncode == 2
    assert "did you mean 'clock'?" in done.stderr


def test_doctor_ends_although_a_file_never_answers(tmp_path: Path) -> None:
    """Logins are read from a pipe that nobody writes to: that check hangs, and the program does not."""
    (tmp_path / ".docker").mkdir()
    os.mkfifo(tmp_path / ".docker/config.json")
    done = run_doctor(tmp_path, "--json", "--only", "credentials,kernel")
    found = read_findings(done)
    assert found["credentials"]["what"].startswith("did not answer in ")
    assert found["kernel"]["level"] == "ok"


def test_doctor_runs_for_an_unprivileged_user(tmp_path: Path) -> None:
    require_root()
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, int(NOBODY), int(NOBODY))
    open_way(tmp_path)
    words = [require_program("setpriv"), "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    done = subprocess.run(
        [*words, *KEDGE, "doctor", "--json", "--offline", *PATIENCE],
        env=make_environment(home, PYTHONPATH=str(REPOSITORY / "src")),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=60,
    )
    found = read_findings(done)
    tried = subprocess.run([*words, require_program("unshare"), "--user", "--mount", "true"], check=False, cwd="/")
    can = tried.returncode == 0  # where the system allows it to users at all
    assert (found["user-namespaces"]["level"] == "ok") == can, found["user-namespaces"]
    assert found["overlay"]["level"] in (("ok", "note", "warning") if can else ("skipped",)), found["overlay"]
    assert found["home"]["level"] == "ok", found["home"]
    assert not list(home.iterdir())  # it has changed nothing


SECRETS = {
    "NGC_API_KEY": "nvapi-Yx7pQmZk3vTnB2sLd9wRf4hJc6gA8eUo",
    "NGC_CLI_API_KEY": "bWFkZS11cC1rZXktZm9yLXRlc3RzOjAxMjM0NTY3LTg5YWItY2RlZi0wMTIzLTQ1Njc4OWFiY2RlZg",
    "DOCKER_PASSWORD": "correct-horse-battery",
    "APPTAINER_DOCKER_PASSWORD": "tr0ub4dor-and-three",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyzABCDEF",
    "SLURM_JWT": "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3MDAwMDAwMDAsInN1biI6ImFkYSJ9.c2lnbmF0dXJlLW9mLWl0",
    "APPTAINERENV_MY_SETTING": "only-i-know-what-this-is",
    "KEDGE_SIGN_PASSPHRASE": "open-sesame-now",
}


def plant_secrets(home: Path) -> dict[str, str]:
    """A user whose shell and home are full of them; returns the variables."""
    login = base64.b64encode(b"ada:docker-file-password").decode()
    (home / ".docker").mkdir()
    (home / ".docker/config.json").write_text(json.dumps({"auths": {"nvcr.io": {"auth": login}}}))
    (home / ".netrc").write_text("machine example.org login ada password netrc-password\n")
    for path in (home / ".docker/config.json", home / ".netrc"):
        path.chmod(0o600)
    state = home / ".local/state/kedge"
    state.mkdir(parents=True)
    (state / "bug-20250101-000000-1.md").write_text(
        "- command: kedge pull https://ada:url-password@example.org/x\n"
        f"GET https://example.org/v2/?token=query-token-123 {SECRETS['HF_TOKEN']}\n"
        f"Authorization: Bearer header-bearer-token-123\n{home}/.cache/kedge\n"
    )
    proxies = {
        "https_proxy": "http://ada:proxy-pass/word@proxy.example.org:3128",
        "HTTP_PROXY": "ada:bare-proxy-pw@proxy.example.org:3128",
        "KEDGE_BIND": f"/no/{SECRETS['WANDB_API_KEY']}/folder",
    }
    return {**SECRETS, **proxies}


PLANTED = (
    *SECRETS.values(),
    *("docker-file-password", "netrc-password", "url-password", "query-token-123", "header-bearer-token-123"),
    *("proxy-pass", "word@proxy", "bare-proxy-pw", base64.b64encode(b"ada:docker-file-password").decode()),
)


@pytest.mark.parametrize("form", ["files and text", "json"])
def test_doctor_shows_no_planted_secret(tmp_path: Path, form: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    variables = plant_secrets(home)
    report, page = tmp_path / "report", tmp_path / "page"
    words = ["--json"] if form == "json" else ["-v", "--report", str(report), "--html", str(page)]
    done = run_doctor(home, *words, **variables)
    assert done.returncode in (0, DoctorFailed.exit_code), done.stderr
    text = done.stdout + done.stderr
    if form != "json":
        assert "Problems" in done.stdout or "ok  " in done.stdout
        text += report.read_text() + page.read_text()
    assert not [secret for secret in PLANTED if secret in text]


def test_doctor_report_has_what_a_help_desk_asks_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    output = tmp_path / "report.txt"
    done = run_doctor(home, "--report", str(output), **plant_secrets(home), SLURM_JOB_ID="4711")
    text = output.read_text()
    for wanted in (
        "command: kedge doctor --offline --patience 8 --report",
        os.uname().release,
        os.uname().nodename,
        "cache_directory = ~/.cache/kedge  (default)",
        "SLURM_JOB_ID='4711'",
        "NGC_API_KEY=***",
        "APPTAINERENV_MY_SETTING is set",
        "https_proxy='***@proxy.example.org:3128'",
        "Max open files",
        "home: ~:",
        "kedge pull https://ada:***@example.org/x",
        "ok      kernel: ",
    ):
        assert wanted in text, wanted
    assert str(home) not in text
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert_says(done.stderr, "doctor/read-before-you-send")


def test_doctor_report_refuses_to_replace_a_file_unless_forced(tmp_path: Path) -> None:
    output = tmp_path / "report.txt"
    output.write_text("mine")
    done = run_doctor(tmp_path, "--only", "kernel", "--report", str(output))
    assert done.returncode == 31
    assert output.read_text() == "mine"
    output.write_text("kedge doctor: report of yesterday\n")
    done = run_doctor(tmp_path, "--only", "kernel", "--report", str(output), "--force")
    assert done.returncode == 0
    assert output.read_text().startswith("kedge doctor: report of 2")


def test_doctor_page_is_one_document(tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    done = run_doctor(tmp_path, "--only", "kernel,binds", "--html", str(output), APPTAINER_BIND="/no/such/folder")
    assert done.returncode == DoctorFailed.exit_code
    text = output.read_text()
    assert text.lower().startswith("<!doctype html>")
    assert "/no/such/folder" in text
    assert stat.S_IMODE(output.stat().st_mode) == 0o600


def test_doctor_namespaces_that_are_refused_are_a_problem(tmp_path: Path) -> None:
    """For real: in a user namespace in which no further ones may be made."""
    unshare = require_program("unshare")
    home = tmp_path / "home"
    home.mkdir()
    open_way(tmp_path)
    words = [*KEDGE, "doctor", "--json", "--offline", "--only", "user-namespaces,overlay"]
    argv = [unshare, "--user", "--map-current-user", "--keep-caps", "sh", "-c"]
    argv.append(f"echo 0 >/proc/sys/user/max_user_namespaces && exec {' '.join(words)}")
    if os.getuid() == 0:
        os.chown(home, int(NOBODY), int(NOBODY))
        argv = [require_program("setpriv"), "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", *argv]
    environment = make_environment(home, PYTHONPATH=str(REPOSITORY / "src"))
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, cwd="/", timeout=60)
    if not done.stdout:
        pytest.skip(f"the limit cannot be set here: {done.stderr.strip()[:80]}")
    found = read_findings(done)
    assert "user.max_user_namespaces is 0" in found["user-namespaces"]["what"]
    assert "sysctl user.max_user_namespaces=15000" in found["user-namespaces"]["fix"]
    assert found["overlay"]["level"] == "skipped"
    has_setuid = "which is setuid root" in found["user-namespaces"]["why"]
    assert found["user-namespaces"]["level"] == ("warning" if has_setuid else "fail")
    assert done.returncode == (0 if has_setuid else DoctorFailed.exit_code)


def test_doctor_page_of_an_image_shows_its_verdict_and_chart(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--offline", "nvcr.io/nvidia/pytorch:24.03-py3", "--site", "zih-alpha", "--html", str(page))
    run_doctor(tmp_path, *words)
    text = page.read_text()
    assert "24.03-py3" in text
    assert 'class="chart"' in text
    assert 'id="verdict"' in text
