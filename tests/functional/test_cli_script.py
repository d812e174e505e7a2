# SPDX-License-Identifier: BSD-3-Clause
"""`kedge script` from the command line: what it prints, its status, and files that are no scripts."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.main import main
from kedge.errors import FileProblem, InvalidJob, OutputExists, RequestRefused, SiteProblem, UsageError
from kedge.jobs.description import read_description
from tests.builders.rows import each_row
from tests.requirements import open_way, require_program
from tests.wording import assert_says

GOOD = "#!/bin/bash\n#SBATCH -J good -N 1 -n 1 -t 0:10:00\nsingularity exec x.sif hostname\n"
BAD = "#!/bin/bash\n#SBATCH -p rtx -N 1 -n 4 -t 0:10:00\n#SBATCH --gres=gpu:4\nibrun apptainer exec --nv x.sif a\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEDGE_SITE", "SLURM_CONF", "SGE_ROOT", "PBS_CONF_FILE", "KEDGE_SITES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sif").touch()


def write(text: str, name: str = "job.sh") -> str:
    Path(name).write_bytes(text.encode())
    return name


def test_script_check_says_nothing_about_a_good_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "check", write(GOOD)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert_says(shown.err, "script/slurm-script-because-sbatch-lines")


def test_script_check_shows_file_line_rule_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "check", write(BAD)]) == 1
    shown = capsys.readouterr()
    assert shown.out == (
        "job.sh:3: error: tacc-frontera refuses --gres=gpu:4: GPUs come with the queue (refused-by-site)\n"
        "    delete it\n"
    )
    assert_says(shown.err, "submit/site-tacc-frontera-queue-rtx")


def test_script_check_takes_the_site_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "check", "--site", "zih-capella", write(GOOD)]) == 0
    assert "(little-memory)" in capsys.readouterr().out
    assert main(["script", "check", "--site", "zih-capela", write(GOOD)]) == SiteProblem.exit_code
    assert "zih-capella" in capsys.readouterr().err


def test_script_check_gives_json_for_one_and_for_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "script", "check", write(BAD)]) == 1
    one = json.loads(capsys.readouterr().out)
    assert (one["scheduler"], one["site"], one["errors"]) == ("slurm", "tacc-frontera", True)
    assert (one["findings"][0]["rule"], one["findings"][0]["line"]) == ("refused-by-site", 3)
    assert main(["--json", "script", "check", "job.sh", write(GOOD, "good.sh")]) == 1
    assert [each["errors"] for each in json.loads(capsys.readouterr().out)] == [True, False]


def test_script_check_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    assert main(["script", "check", "-"]) == 1
    assert capsys.readouterr().out.startswith("-:3: error:")


def test_script_check_looks_for_files_where_the_script_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = GOOD.replace("x.sif", "gone.sif").replace("-N 1", "-N 1 -o logs/%j.out")
    main(["script", "check", "--site", "zih-capella", write(text)])
    assert "missing" not in capsys.readouterr().out
    os.environ["SLURM_CONF"] = "/nowhere"  # the fixture takes it away again
    try:
        main(["script", "check", "job.sh"])
    finally:
        del os.environ["SLURM_CONF"]
    shown = capsys.readouterr().out
    assert "(missing-image)" in shown
    assert "(output-folder-missing)" in shown


@pytest.mark.parametrize("command", ["check", "convert"])
def test_script_refuses_what_is_no_script(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    Path("binary").write_bytes(b"\x7fELF\0\0")
    Path("large").write_bytes(b"#" * (2 << 20))
    Path("empty").write_bytes(b"\n")
    for name in ("folder", "binary", "large", "empty", "gone"):
        assert main(["script", command, name]) == FileProblem.exit_code
        shown = capsys.readouterr().err
        assert name in shown
        assert "Traceback" not in shown


def test_script_check_reads_other_encodings_and_convert_refuses_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("latin.sh").write_bytes(GOOD.replace("good", "g\xf6\xf6d").encode("latin1"))
    assert main(["script", "check", "latin.sh"]) == 0
    capsys.readouterr()
    assert main(["script", "convert", "latin.sh"]) == FileProblem.exit_code
    assert "UTF-8" in capsys.readouterr().err


def test_script_check_shows_control_characters_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    main(["script", "check", write(GOOD.replace("-N 1", "--job-name=$X\x1b[31m"))])
    assert "\x1b" not in capsys.readouterr().out


def test_script_convert_writes_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "convert", write(GOOD), "-o", "kedge.toml"]) == 0
    assert capsys.readouterr().out == ""
    job = read_description(Path("kedge.toml")).job()
    assert (job.name, job.image, job.command, job.time) == ("good", "x.sif", ("hostname",), 600)
    assert main(["script", "convert", "job.sh", "-o", "kedge.toml"]) == OutputExists.exit_code
    assert main(["script", "convert", "job.sh", "-o", "kedge.toml", "--force"]) == 0


def test_script_convert_names_a_job_as_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "convert", write(GOOD.replace("-J good", ""), "train.sbatch")]) == 0
    assert "[jobs.train]" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["slurm", "gridengine", "pbs", "local"])
def test_script_convert_writes_for_every_scheduler(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "convert", write(GOOD), "--to", target, "-o", "out.sh"]) == 0
    assert os.access("out.sh", os.X_OK)
    done = subprocess.run([require_program("shellcheck"), "out.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    capsys.readouterr()
    assert main(["--json", "script", "convert", "job.sh", "--to", target]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["text"] == Path("out.sh").read_text()


def test_script_convert_says_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    text = BAD.replace("-p rtx", "-p rtx --licenses=a:1")
    assert main(["script", "convert", write(text), "--to", "pbs"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("#!/bin/bash\n#PBS ")
    assert_says(shown.err, "script/not-carried-over", "job.sh:2", "--licenses=a:1")
    assert_says(shown.err, "script/queue-belongs-old-cluster-rtx")


def test_script_convert_refuses_what_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD)
    assert main(["script", "convert", "job.sh", "--to", "pbs", "--site", "zih-alpha"]) == UsageError.exit_code
    assert main(["script", "convert", write("#!/bin/bash\n#SBATCH -N 1\n", "idle.sh")]) == InvalidJob.exit_code
    big = write(GOOD.replace("-N 1 -n 1", "-p gpu-a100 -N 99 -n 99"), "big.sh")
    assert main(["script", "convert", big, "--to", "slurm", "--site", "tacc-lonestar6"]) == RequestRefused.exit_code
    assert "Traceback" not in capsys.readouterr().err


def test_script_convert_takes_what_it_says_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "script",
        "convert",
        write(GOOD.replace("-N 1", "-N 1 --gpus-per-node=1")),
        "--to",
        "pbs",
        "--site",
        "abci3",
    ]
    assert main(argv) == RequestRefused.exit_code
    assert "--account PROJECT" in capsys.readouterr().err
    assert main([*argv, "--account", "PROJECT", "--queue", "rt_HG", "--mem", "4G"]) == 0
    shown = capsys.readouterr()
    assert "#PBS -P PROJECT\n" in shown.out
    assert "no memory" not in shown.err


def test_script_convert_and_check_name_the_same_default_memory(capsys: pytest.CaptureFixture[str]) -> None:
    text = write(GOOD.replace("-N 1", "-p capella -N 1 --gres=gpu:1"))
    main(["script", "check", "--site", "zih-capella", text])
    main(["script", "convert", text, "--to", "slurm", "--site", "zih-capella"])
    shown = capsys.readouterr()
    assert "get 300M per CPU" in shown.out
    assert "get 300M per CPU" in shown.err


def test_script_check_says_that_there_are_no_directives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "check", write("#!/bin/bash\nls\n")]) == 0
    shown = capsys.readouterr().err
    assert "job.sh: no directives" in shown
    assert "no problems found" not in shown


def test_script_check_says_that_no_directive_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "check", write("#!/bin/bash\nls\n#SBATCH -N 1\n#SBATCH -t 5\n")]) == 0
    shown = capsys.readouterr().err
    assert_says(shown, "script/job-sh-slurm-ignores-all", "#SBATCH")
    assert "no directives" not in shown


@each_row("option", ["--job-name=", '--job-name=""', "-N 1"])
def test_script_convert_names_a_job_without_a_name_after_its_file(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["script", "convert", write(f"#!/bin/bash\n#SBATCH {option}\nsingularity exec x.sif a\n")]) == 0
    assert "[jobs.job]" in capsys.readouterr().out


def test_script_arguments_arrive_in_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    write('#!/bin/bash\n#SBATCH -N 1\nfor x in "$@"; do echo "<$x>"; done\necho "first: $1"\n')
    assert main(["script", "convert", "job.sh", "-o", "kedge.toml"]) == 0
    capsys.readouterr()
    assert main(["submit", "-f", "kedge.toml", "--site", "local", "--script", "-", "--dry-run", "--", "A", "B"]) == 0
    shown = capsys.readouterr().out
    Path("run.sh").write_text(shown[shown.index("bash -c") :])
    done = subprocess.run(["bash", "run.sh"], capture_output=True, text=True, check=False)
    assert "<A>\n<B>\nfirst: A" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_script_works_for_an_ordinary_user(tmp_path: Path) -> None:
    open_way(tmp_path)
    tmp_path.chmod(0o777)
    write(GOOD)
    argv = [sys.executable, "-m", "kedge", "script", "convert", "job.sh", "--to", "local", "-o", "mine.sh"]
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    ids: dict[str, Any] = {"user": 1501, "group": 1501, "extra_groups": []}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ, **ids)
    assert done.returncode == 0, done.stderr
    assert Path("mine.sh").stat().st_uid == 1501
