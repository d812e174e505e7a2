# SPDX-License-Identifier: BSD-3-Clause
"""Limits, clock, locale and variables of a shell: from files and values that are written down here."""

from __future__ import annotations

import compileall
import os
from pathlib import Path

from kedge.answers.doctor.environment import (
    check_binds,
    check_clock,
    check_compiled_modules,
    check_core_files,
    check_locked_memory,
    check_memory,
    check_open_files,
    check_processes,
    check_python_leaks,
    judge_loader_leaks,
    judge_locale,
    judge_memory,
    judge_modules,
    judge_processes,
    judge_search_path,
    judge_skew,
    judge_variables,
    judge_year,
    list_known,
    list_user_sites,
    measure_skew,
)
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Surroundings
from kedge.system.host.limits import Limits
from kedge.system.settings import Settings
from kedge.system.views import TableView
from tests.builders.findings import require_whole
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_reads

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max core file size        {core}               unlimited            bytes
Max open files            {files}              524288               files
Max locked memory         {locked}             {hard}               bytes
"""


def make_surroundings(root: Path, environ: dict[str, str] | None = None) -> Surroundings:
    return Surroundings(environ or {}, Settings.load({}, {"HOME": str(root)}), root=str(root))


def write_limits(root: Path, core: str = "0", files: str = "1024", locked: str = "unlimited", hard: str = "1") -> None:
    path = root / "proc/self/limits"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LIMITS.format(core=core, files=files, locked=locked, hard=hard))


def test_memory_findings(tmp_path: Path) -> None:
    (finding,) = judge_memory(Limits(4, 256 << 20, None, memory_from="/sys/fs/cgroup/user/memory.max"), 0, "")
    require_whole(finding, WARNING)
    assert finding.what == "268 MB (/sys/fs/cgroup/user/memory.max)"
    assert "--threads 1" in finding.fix
    _, finding = judge_memory(Limits(4, 8 << 30, None, 8 << 30, memory_from="RLIMIT_AS (ulimit -v)"), 0, "")
    assert "CUDA reserves addresses" in require_whole(finding, WARNING).why
    _, finding = judge_memory(Limits(4, 8 << 30, None), 3, "/sys/fs/cgroup/job/memory.events")
    assert "killed 3 processes" in require_whole(finding, NOTE).what
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/user.slice\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cg/user.slice").mkdir(parents=True)
    (tmp_path / "cg/user.slice/memory.max").write_text("104857600\n")
    (tmp_path / "cg/user.slice/memory.events").write_text("oom 1\noom_kill 2\n")
    amount, kills = check_memory(make_surroundings(tmp_path))
    assert "105 MB" in amount.what
    assert "killed 2 processes" in kills.what


def test_process_limits_are_judged(tmp_path: Path) -> None:
    assert judge_processes(None, "").level == OK
    assert_reads(judge_processes(4000, "RLIMIT_NPROC (ulimit -u)").what, "doctor/more-start-rlimit-nproc-ulimit")
    assert "only 12 more" in require_whole(judge_processes(12, "pids.max"), WARNING).what
    assert check_processes(make_surroundings(tmp_path))[0].level == OK
    write_limits(tmp_path, files="256")
    finding = require_whole(check_open_files(make_surroundings(tmp_path))[0], WARNING)
    assert finding.fix == "ulimit -n 524288"
    write_limits(tmp_path)
    assert check_open_files(make_surroundings(tmp_path))[0].level == OK
    write_limits(tmp_path, files="256")
    path = tmp_path / "proc/self/limits"
    path.write_text(path.read_text().replace("524288", "256   "))
    finding = require_whole(check_open_files(make_surroundings(tmp_path))[0], WARNING)
    assert "ulimit" not in finding.fix
    assert "administrators" in finding.fix
    surroundings = make_surroundings(tmp_path)
    write_limits(tmp_path, core="unlimited")
    assert require_whole(check_core_files(surroundings)[0], NOTE).fix.endswith("ulimit -c 0")
    pattern = tmp_path / "proc/sys/kernel/core_pattern"
    pattern.parent.mkdir(parents=True)
    pattern.write_text("|/usr/lib/systemd/systemd-coredump %P\n")
    assert check_core_files(surroundings)[0].level == OK


def test_locked_memory_matters_where_there_is_rdma(tmp_path: Path) -> None:
    write_limits(tmp_path, locked="65536", hard="unlimited")
    surroundings = make_surroundings(tmp_path)
    assert check_locked_memory(surroundings)[0].level == OK
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    finding = require_whole(check_locked_memory(surroundings)[0], WARNING)
    assert finding.fix.startswith("ulimit -l unlimited")
    write_limits(tmp_path, locked="65536", hard="65536")
    assert "administrators" in check_locked_memory(surroundings)[0].fix
    write_limits(tmp_path)
    assert check_locked_memory(surroundings)[0].level == OK


@each_row("year", [1970, 2019, 2071])
def test_clock_with_an_impossible_year_is_a_problem(year: int) -> None:
    assert "TLS error" in require_whole(judge_year(year), FAIL).why


def test_clock_of_a_file_server(tmp_path: Path) -> None:
    assert judge_skew(2.0).level == OK
    assert "95 s ahead of" in require_whole(judge_skew(95.0), WARNING).what
    assert "95 s behind" in require_whole(judge_skew(-95.0), WARNING).what
    skew = measure_skew(str(tmp_path))
    assert skew is not None
    assert abs(skew) < 5
    assert not list(tmp_path.iterdir())
    assert measure_skew(str(tmp_path / "gone")) is None
    assert check_clock(make_surroundings(tmp_path))[0].level == OK


def test_modules_that_cannot_be_compiled_are_named_with_the_command_that_mends_it(tmp_path: Path) -> None:
    package = tmp_path / "kedge"
    for name in ("cli/entry.py", "cli/container.py", "system/libc.py", "container/facts.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("VALUE = 1\n")
    finding = require_whole(judge_modules(package, may_write=False), NOTE)
    assert_begins(finding.what, "doctor/of-the-modules", 4, 4)
    assert finding.fix.endswith(f" -m compileall -q {package}")
    assert_reads(judge_modules(package, may_write=True).what, "doctor/compiled-first-loaded")
    assert compileall.compile_dir(package, quiet=1)
    assert (judge_modules(package, may_write=False).level, judge_modules(package, may_write=False).what) == (
        OK,
        "compiled",
    )
    os.utime(package / "system/libc.py", (1, 1))  # another source than the one that was compiled
    assert_begins(judge_modules(package, may_write=False).what, "doctor/of-the-modules", 1, 4)
    assert judge_modules(tmp_path / "bundle", may_write=False).level == OK
    assert check_compiled_modules(make_surroundings(tmp_path))[0].check == "compiled-modules"


HOST = TableView({"/usr/lib/locale/C.utf8/LC_CTYPE": b"", "/usr/lib/locale/en_US.utf8/LC_CTYPE": b""})


def test_locale_that_is_missing_or_not_utf8() -> None:
    finding = require_whole(judge_locale({"LANG": "de_DE.UTF-8", "LC_ALL": ""}, HOST), WARNING)
    assert_reads(finding.what, "doctor/locale-not-installed-host", "LANG=de_DE.UTF-8")
    assert "LC_ALL=C.UTF-8" in finding.fix
    host = TableView({"/usr/lib/locale/de_DE.iso88591/LC_CTYPE": b""})
    finding = require_whole(judge_locale({"LANG": "de_DE.ISO-8859-1"}, host), NOTE)
    assert "LANG=de_DE.UTF-8" in finding.fix


@each_row("value", ["en_US.UTF-8", "C.UTF-8", "C", "POSIX", ""])
def test_locale_that_works_is_well(value: str) -> None:
    assert judge_locale({"LANG": value} if value else {}, HOST).level == OK


def test_python_leaks_are_notes_that_say_kedge_keeps_them_outside(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PYTHONPATH": "/x", "KEDGE_KEEP": "PYTHONPATH"}
    assert "KEDGE_KEEP" in require_whole(check_python_leaks(make_surroundings(tmp_path, environ))[0], WARNING).fix
    environ = {"HOME": str(tmp_path), "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c"}
    assert check_python_leaks(make_surroundings(tmp_path, environ))[0].level == OK
    environ = {"HOME": str(tmp_path), "PYTHONPATH": "/x", "CONDA_PREFIX": "/c", "BASH_ENV": "/b"}
    for version, name in (("3.10", "torch-2.1.dist-info"), ("3.10", "numpy.egg-info"), ("3.12", "readme")):
        (tmp_path / f".local/lib/python{version}/site-packages/{name}").mkdir(parents=True)
    (finding,) = check_python_leaks(make_surroundings(tmp_path, environ))
    require_whole(finding, NOTE)
    assert_reads(finding.what, "doctor/pythonpath-packages-local-lib-packages")
    assert "kedge does not pass them on" in finding.fix
    assert list_user_sites(tmp_path / "gone") == []


def test_loader_leaks_that_are_forced_into_containers_are_warnings() -> None:
    (finding,) = judge_loader_leaks({"APPTAINERENV_LD_LIBRARY_PATH": "/usr/lib64"})
    assert "GLIBC_2.38" in require_whole(finding, WARNING).why
    assert finding.fix.startswith("unset APPTAINERENV_LD_LIBRARY_PATH")
    (finding,) = judge_loader_leaks({"LD_PRELOAD": "/usr/lib/x.so"})
    require_whole(finding, NOTE)
    for searched in ("/a:/b:", ":/a", "/a::/b", ".", "lib:/a"):
        (finding,) = judge_loader_leaks({"LD_LIBRARY_PATH": searched})
        assert "current directory" in require_whole(finding, NOTE).what
    (finding,) = judge_loader_leaks({"LD_LIBRARY_PATH": "/a:/b"})
    assert_reads(finding.what, "doctor/ld-library-path-directories-not")


def test_variables_are_known_and_mistakes_proposed() -> None:
    (finding,) = judge_variables({"KEDGE_CACHDIR": "/x"}, list_known())
    assert require_whole(finding, WARNING).fix == "did you mean 'KEDGE_CACHEDIR'?"
    environ = {"APPTAINER_CACHEDIR": "/a", "SINGULARITY_CACHEDIR": "/b"}
    contradiction, old = judge_variables(environ, list_known())
    assert contradiction.why == "kedge uses APPTAINER_CACHEDIR only"
    assert "SINGULARITY_CACHEDIR" in require_whole(old, NOTE).what
    # Every variable that the sources read, or a page names, is no misspelling
    import re

    from tests.requirements import REPOSITORY

    pages = [*REPOSITORY.glob("docs/**/*.md"), *(REPOSITORY / "src").rglob("*.py")]
    text = "\n".join(path.read_text() for path in pages if "cli.md" not in path.name)
    names = set(re.findall(r"[\"'`]\$?(KEDGE_[A-Z_]*[A-Z])[\"'`=]", text)) - {"KEDGE_X", "KEDGE_CACHDIR"}
    assert len(names) > 20
    assert judge_variables(dict.fromkeys(names, "1"), list_known())[0].level == OK


def test_binds_of_variables_that_cannot_be_are_problems(tmp_path: Path) -> None:
    environ = {"APPTAINER_BIND": f"{tmp_path}:/data,/no/such/folder"}
    (finding,) = check_binds(make_surroundings(tmp_path, environ))
    require_whole(finding, FAIL)
    assert_reads(finding.what, "doctor/missing-host-no-such-folder")
    assert finding.fix.startswith("unset APPTAINER_BIND")
    assert check_binds(make_surroundings(tmp_path, {"KEDGE_BIND": str(tmp_path)}))[0].what == "1 from variables"
    (finding,) = check_binds(make_surroundings(tmp_path, {"KEDGE_BIND": "/a:/b:/c:/d"}))
    assert require_whole(finding, FAIL)


def test_search_path_without_kedge_is_a_warning() -> None:
    finding = require_whole(judge_search_path("/usr/bin", "", "/home/ada/venv/bin"), WARNING)
    assert "export PATH=/home/ada/venv/bin:$PATH" in finding.fix
    assert require_whole(judge_search_path("", "", "/x"), WARNING).what == "PATH is empty"
    require_whole(judge_search_path("/usr/bin:.", "/usr/bin/kedge", "/usr/bin"), NOTE)
    assert judge_search_path("/usr/bin", "/usr/bin/kedge", "/usr/bin").what == "kedge is /usr/bin/kedge"
