# SPDX-License-Identifier: BSD-3-Clause
"""Variables of this shell that kedge reads: misspelled, contradicting and old names, binds, and PATH."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.answers.doctor.storage import find_existing
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding, Surroundings
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.base.nearest import propose
from kedge.base.size import format_size
from kedge.cluster.host_memory import count_memory_kills, suggest_job
from kedge.container.env_scripts import REQUEST_PREFIXES
from kedge.container.flags import collect_binds
from kedge.container.options import FLAGS, RunOptions
from kedge.container.payload import has_locale, has_plain_utf8, is_guarded
from kedge.errors import KedgeError
from kedge.system.host.limits import Limits, read_limits
from kedge.system.programs import find_program
from kedge.system.settings import PREFIXES, SETTINGS, home_directory
from kedge.system.start_kedge import own_interpreter, own_package
from kedge.system.views import DirectoryView

if TYPE_CHECKING:
    from kedge.system.views import View

# read elsewhere than by settings and flags
_OWN = (
    *("SITE_CONFIG", "SITES", "TRUSTED_REALMS", "SQUASHFUSE", "UNPACK_LIMIT", "KEYSDIR", "GLOBAL_KEYSDIR", "KEYSERVER"),
    *("SIGN_PASSPHRASE", "DOCKER_USERNAME", "DOCKER_PASSWORD", "USERNAME", "PASSWORD", "LINES", "CONFIGDIR"),
    *("PREPEND_LD_LIBRARY_PATH", "APPEND_LD_LIBRARY_PATH"),
)
_DOCS = "kedge help doctor variables"
_SET_BY_KEDGE = (
    "JOB_",
    "ARRAY_",
    "LOCAL_",
    "LAUNCH_",
    "ACTION_",
    "CONTAINER",
    "NAME",
    "COMMAND",
    "ENVIRONMENT",
    "INSTANCE",
    "UNPACKED_",
    "SIGNALS_",
)


def list_known() -> set[str]:
    """The names after KEDGE_, APPTAINER_ and SINGULARITY_ that kedge reads."""
    known = set(_OWN)
    for setting in SETTINGS.values():
        known |= {name.removeprefix("KEDGE_") for name in setting.variables}
    for flag in FLAGS:
        known |= {name.removeprefix("KEDGE_") for name in flag.variables}
    return known


def check_variables(surroundings: Surroundings) -> list[Finding]:
    """Check all variables with one of the three prefixes."""
    return judge_variables(surroundings.environ, list_known())


def judge_variables(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    """Report misspelled names, contradictions and old names, in this order."""
    findings = [*_judge_misspelled(environ, known), *_judge_contradictions(environ, known)]
    old = sorted(name for name in environ if name.startswith("SINGULARITY_") and name[12:] in known)
    if old:
        why = "kedge uses them unless the same name with KEDGE_ or APPTAINER_ is set; a script may have set them"
        fix = f"if you do not need them: unset {' '.join(old)}"
        findings.append(
            Finding("variables", NOTE, f"old names are set: {', '.join(old)}", why=why, fix=fix, docs=_DOCS)
        )
    if findings:
        return findings
    count = sum(name.startswith(PREFIXES) for name in environ)
    shown = f"{count_things(count, 'variable')} of kedge, Apptainer or Singularity {'is' if count == 1 else 'are'} set"
    return [Finding("variables", OK, shown if count else "none set")]


def _judge_misspelled(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    findings = []
    for name in sorted(environ):
        bare = name.removeprefix("KEDGE_")
        if bare == name or bare in known or bare.startswith(_SET_BY_KEDGE):
            continue
        near = propose(name, [f"KEDGE_{suffix}" for suffix in known])
        why = "the variable has no effect; its name may be misspelled"
        fix = near or "list the settings and their sources: kedge config show"
        findings.append(
            Finding("variables", WARNING, f"kedge does not know the variable {name}", why=why, fix=fix, docs=_DOCS)
        )
    return findings


def _judge_contradictions(environ: Mapping[str, str], known: set[str]) -> list[Finding]:
    findings = []
    for bare in sorted(known):
        names = [prefix + bare for prefix in PREFIXES if environ.get(prefix + bare)]
        if len({environ[name] for name in names}) > 1 and "PASSWORD" not in bare:
            why = f"kedge uses {names[0]} only"
            fix = f"unset {' '.join(names[1:])}, or set them to the same value"
            findings.append(Finding("variables", NOTE, f"{' and '.join(names)} differ", why=why, fix=fix, docs=_DOCS))
    return findings


def check_binds(surroundings: Surroundings) -> list[Finding]:
    """Check the directories that variables bind: with a missing one no container starts."""
    docs = "kedge help doctor binds"
    try:
        binds = collect_binds(RunOptions(), surroundings.environ, "/")
    except KedgeError as problem:
        why = "no container starts with it"
        return [
            Finding(
                "binds", FAIL, problem.message, why=why, fix=problem.hint or "correct or unset the variable", docs=docs
            )
        ]
    missing = [bind for bind in binds if not os.path.lexists(bind.source)]
    if missing:
        shown = ", ".join(f"{bind.source} ({bind.origin})" for bind in missing)
        why = "no container starts while a directory to bind is missing"
        fix = f"unset {' '.join(sorted({bind.origin for bind in missing}))}, or name directories that every node has"
        return [Finding("binds", FAIL, f"missing on this host: {shown}", why=why, fix=fix, docs=docs)]
    return [Finding("binds", OK, f"{len(binds)} from variables" if binds else "none from variables")]


def check_search_path(surroundings: Surroundings) -> list[Finding]:
    """Check PATH."""
    path = surroundings.environ.get("PATH", "")
    return [judge_search_path(path, find_program("kedge", path, also="") or "", sysconfig.get_path("scripts"))]


def judge_search_path(path: str, own: str, installed: str) -> Finding:
    """Check whether PATH has kedge, and whether it has entries that depend on the current directory."""
    docs = "kedge help doctor search-path"
    if not path:
        why = "the shell finds no program, neither the scheduler's nor kedge"
        return Finding(
            "search-path", WARNING, "PATH is empty", why=why, fix="export PATH=/usr/local/bin:/usr/bin:/bin", docs=docs
        )
    if not own:
        why = "jobs and the shims 'apptainer' and 'singularity' start kedge by its name"
        fix = f"add to ~/.bashrc: export PATH={installed}:$PATH; or install kedge in a directory of PATH"
        return Finding("search-path", WARNING, "the command 'kedge' is not in PATH", why=why, fix=fix, docs=docs)
    if any(not entry.startswith("/") for entry in path.split(":")):
        why = "kedge skips them, but your shell starts programs from the current directory"
        fix = "remove '.', empty and relative entries from PATH"
        return Finding(
            "search-path", NOTE, "PATH has entries that depend on the current directory", why=why, fix=fix, docs=docs
        )
    return Finding("search-path", OK, f"kedge is {own}")


# The clock: certificates have dates, and hosts that share a file system compare file times.

_CLOCK_DOCS = "kedge help doctor clock"
_EARLIEST, _LATEST = 2025, 2050  # this program is not older, and no root certificate of today lives longer
_SKEW = 30.0  # seconds; a lease of another host is taken over after a minute


def check_clock(surroundings: Surroundings) -> list[Finding]:
    """Check the year, and the time that the cache's file system gives a new file."""
    year = judge_year(time.gmtime().tm_year)
    if year.level != OK:
        return [year]
    return [judge_skew(measure_skew(str(find_existing(surroundings.settings.cache_directory))))]


def judge_year(year: int) -> Finding:
    """Check whether the date is plausible."""
    if _EARLIEST <= year <= _LATEST:
        return Finding("clock", OK, str(year))
    return Finding(
        "clock",
        FAIL,
        f"the clock of this host is wrong: its year is {year}",
        why="registry certificates are not yet valid or expired at that date: every download fails with a TLS error",
        fix="an administrator can set it: chronyc makestep, or timedatectl set-ntp true",
        docs=_CLOCK_DOCS,
    )


def measure_skew(directory: str) -> float | None:
    """Seconds by which the file system's clock is ahead of ours; None if kedge cannot create a file."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"0")
            file.flush()
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return None


def judge_skew(seconds: float | None) -> Finding:
    """Check whether the server of a shared file system has another time."""
    if seconds is None:
        return Finding("clock", OK, "the date is plausible")
    if abs(seconds) < _SKEW:
        return Finding("clock", OK, "agrees with the file system of the cache")
    direction = "ahead of" if seconds > 0 else "behind"
    return Finding(
        "clock",
        WARNING,
        f"the clock of the cache's file system is {abs(seconds):.0f} s {direction} this host's",
        why="kedge, make and rsync then take files that other hosts wrote for old or abandoned",
        fix="tell the administrators: the clocks of this node and of the file server differ",
        docs=_CLOCK_DOCS,
    )


# Whether Python has kedge's modules compiled: if not, and if it may not keep them, it compiles them at every start.

_NAME = "compiled-modules"
_OF_STARTS = (
    "cli/entry.py",
    "cli/container.py",
    "system/libc.py",
    "system/spawn.py",
    "system/views.py",
    "container/*.py",
)
_HEAD = 16  # bytes: magic number, flags, and the time and size of the source or its hash


def check_compiled_modules(_: Surroundings) -> list[Finding]:
    """Check the modules that every start of a container loads."""
    return [judge_modules(Path(own_package()), may_write=not sys.dont_write_bytecode)]


def judge_modules(package: Path, *, may_write: bool) -> Finding:
    """Check whether the modules of a package are compiled, or will be by whoever loads them first."""
    sources = [path for pattern in _OF_STARTS for path in sorted(package.glob(pattern))]
    missing = [path for path in sources if not _is_compiled(path)]
    if not sources:
        return Finding(_NAME, OK, "the bundle has them")
    if not missing or (may_write and all(_can_be_kept(path) for path in missing)):
        return Finding(_NAME, OK, "compiled" if not missing else "compiled when they are first loaded")
    owner = package.stat().st_uid
    return Finding(
        _NAME,
        NOTE,
        f"{len(missing)} of the {len(sources)} modules that a start loads are not compiled, and cannot be by you",
        why="Python compiles them at every start of a container: it takes three times as long, about 0.1 s more",
        fix=f"{_name_user(owner)}, who owns the installation, can run: {shlex.join(_words(package))}",
        docs=f"kedge help doctor {_NAME}",
    )


def _is_compiled(source: Path) -> bool:
    """Whether the compiled file is of this source, by Python's own rule: its time and its size, or a hash."""
    found = source.stat()
    try:
        with open(cache_from_source(str(source)), "rb") as file:  # noqa: PTH123 - a text path
            head = file.read(_HEAD)
    except OSError:
        return False
    if len(head) == _HEAD and head[4] & 1:
        return True
    noted = (int(found.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (found.st_size & 0xFFFFFFFF).to_bytes(
        4, "little"
    )
    return head[8:] == noted


def _can_be_kept(source: Path) -> bool:
    """Whether Python may write the compiled file."""
    folder = Path(cache_from_source(str(source))).parent
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(existing, os.W_OK | os.X_OK)


def _words(package: Path) -> list[str]:
    return [own_interpreter(), "-m", "compileall", "-q", str(package)]


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


# Settings of this shell that would affect programs in a container: Python's paths and packages, loader variables.

_LOADER = ("LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "LOCPATH")
_QUIET = ("BASH_ENV", "ENV", "BASH_FUNC_")  # every login on a cluster has these
_HARMLESS = ("VIRTUAL_ENV", "CONDA_", "MAMBA_", "_CE_")  # kedge itself may be installed in one


def check_python_leaks(surroundings: Surroundings) -> list[Finding]:
    """Check PYTHONPATH and similar variables, active environments, and packages below ~/.local."""
    environ = surroundings.environ
    guarded = sorted(name for name in environ if is_guarded(name) and not name.startswith((*_QUIET, *_LOADER)))
    return _judge_python_leaks(environ, guarded, list_user_sites(home_directory(environ)))


def list_user_sites(home: Path) -> list[str]:
    """`python3.10 (12 packages)` for each directory below ~/.local/lib that has any."""
    sites: list[str] = []
    try:
        for directory in sorted((home / ".local/lib").glob("python*/site-packages")):
            count = sum(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(directory))  # noqa: PTH208
            if count:
                sites.append(f"{directory.parent.name} ({count} {'package' if count == 1 else 'packages'})")
    except OSError:
        return sites
    return sites


def _judge_python_leaks(environ: Mapping[str, str], variables: list[str], sites: list[str]) -> list[Finding]:
    """kedge passes them into containers only with KEDGE_KEEP; other runtimes always pass them."""
    docs = "kedge help doctor python-leaks"
    kept = {name.strip() for name in environ.get("KEDGE_KEEP", "").split(",")}
    variables = [name for name in variables if not name.startswith(_HARMLESS)]
    parts = [", ".join(variables)] if variables else []
    if sites and not environ.get("PYTHONNOUSERSITE"):
        parts.append(f"packages in ~/.local/lib/{', '.join(sites)}")
    if not parts:
        return [Finding("python-leaks", OK, "no Python setting of this shell affects containers")]
    is_passed = "all" in kept or (bool(sites) and "user-site" in kept) or bool(kept & set(variables))
    what = "; ".join(parts)
    why = "programs of an image would load modules of this host instead of their own: wrong versions, "
    why += "'undefined symbol', 'No module named'"
    if is_passed:
        fix = "unset KEDGE_KEEP, or name in it only the variables that the image needs"
        return [Finding("python-leaks", WARNING, f"{what} (KEDGE_KEEP passes them on)", why=why, fix=fix, docs=docs)]
    fix = "no action needed: kedge does not pass them on (--keep NAME does). For Apptainer and Singularity: "
    fix += f"unset {' '.join(variables)}; export PYTHONNOUSERSITE=1" if variables else "export PYTHONNOUSERSITE=1"
    return [Finding("python-leaks", NOTE, what, why=why, fix=fix, docs=docs)]


def check_loader_leaks(surroundings: Surroundings) -> list[Finding]:
    """Check LD_PRELOAD, and library directories that variables force into containers."""
    return judge_loader_leaks(surroundings.environ)


def judge_loader_leaks(environ: Mapping[str, str]) -> list[Finding]:
    """Report variables that change which libraries programs and containers load."""
    docs = "kedge help doctor loader-leaks"
    findings = []
    forced = [f"{prefix}{name}" for prefix in REQUEST_PREFIXES for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")]
    names = [name for name in forced if environ.get(name)]
    if names:
        why = "programs of the image then load libraries of this host, which may need a newer C library: "
        why += '"version `GLIBC_2.38\' not found", or crashes'
        fix = f"unset {' '.join(names)}; --nv provides the libraries that GPUs need"
        findings.append(
            Finding("loader-leaks", WARNING, f"{', '.join(names)} set for every container", why=why, fix=fix, docs=docs)
        )
    if environ.get("LD_PRELOAD"):
        why = "every program of this shell loads it; kedge does not pass it into containers, other runtimes do"
        what = f"LD_PRELOAD={environ['LD_PRELOAD']}"
        findings.append(
            Finding("loader-leaks", NOTE, what, why=why, fix="if nothing needs it: unset LD_PRELOAD", docs=docs)
        )
    searched = environ.get("LD_LIBRARY_PATH", "")
    if searched and any(not entry.startswith("/") for entry in searched.split(":")):
        why = "programs of this shell, including kedge's Python, load libraries from the current directory"
        fix = "remove '.', empty and relative entries from LD_LIBRARY_PATH; a trailing colon is an empty entry"
        what = "LD_LIBRARY_PATH has entries that depend on the current directory"
        findings.append(Finding("loader-leaks", NOTE, what, why=why, fix=fix, docs=docs))
    if findings:
        return findings
    directories = [entry for entry in searched.split(":") if entry]
    shown = (
        f"LD_LIBRARY_PATH ({count_things(len(directories), 'directory')}) is not passed into containers"
        if directories
        else "no loader variable is set"
    )
    return [Finding("loader-leaks", OK, shown)]


# The locale: programs complain about one that is not installed; one that is not UTF-8 breaks file names.

_FOLDER = "/usr/lib/locale"
_LOCALES_DOCS = "kedge help doctor locale"
_PLAIN = ("C", "POSIX")


def check_locale(surroundings: Surroundings) -> list[Finding]:
    """Compare LANG and the LC_ variables with the installed locales."""
    return [judge_locale(surroundings.environ, DirectoryView(surroundings.root))]


def judge_locale(environ: Mapping[str, str], view: View) -> Finding:
    """Report a locale that is not installed or not UTF-8."""
    wanted = {name: value for name, value in environ.items() if (name == "LANG" or name.startswith("LC_")) and value}
    there = view.names(_FOLDER)
    missing = {name: value for name, value in wanted.items() if not _exists(value, view, there)}
    if missing:
        shown = ", ".join(f"{name}={value}" for name, value in sorted(missing.items()))
        return Finding(
            "locale",
            WARNING,
            f"locale not installed on this host: {shown}",
            why="programs warn ('cannot change locale', 'Setting locale failed') or stop; usually ssh passed it "
            "on from "
            "your own computer. In containers kedge uses C.UTF-8 instead",
            fix="add to ~/.bashrc: export LC_ALL=C.UTF-8 LANG=C.UTF-8",
            docs=_LOCALES_DOCS,
        )
    value = wanted.get("LC_ALL") or wanted.get("LC_CTYPE") or wanted.get("LANG") or ""
    if value.partition("@")[0].lower().replace("-", "").endswith("utf8"):
        return Finding("locale", OK, value)
    if not value or value in _PLAIN:
        return Finding("locale", OK, f"{value or 'not set'} (Python uses UTF-8)")
    return Finding(
        "locale",
        NOTE,
        f"{value} is not UTF-8",
        why="file names and output with non-ASCII characters are garbled, also in containers",
        fix=f"export LANG={value.partition('.')[0]}.UTF-8, if 'locale -a' lists it; else export LANG=C.UTF-8",
        docs=_LOCALES_DOCS,
    )


def _exists(value: str, view: View, there: list[str]) -> bool:
    if value in _PLAIN or any(name.startswith("ld-musl-") for name in view.names("/lib")):
        return True
    if value in ("C.UTF-8", "C.utf8"):
        return has_plain_utf8(view, there)
    return has_locale(view, value, there)


# How much memory this session may use, what sets the limit, and which processes were killed for it.

_PULL_NEEDS = 512 << 20  # docs/guides/pull.md says so, and a test holds it
_EXAMPLE = ("kedge", "pull", "IMAGE")


def check_memory(surroundings: Surroundings) -> list[Finding]:
    """Check the smallest limit of control groups, `ulimit -v` and the host, and count memory kills."""
    root = Path(surroundings.root)
    kills, source = count_memory_kills(root)
    return judge_memory(read_limits(root), kills or 0, source)


def judge_memory(limits: Limits, kills: int, source: str) -> list[Finding]:
    """Report limits that are too low, and memory kills."""
    findings = [_judge_amount(limits)]
    if limits.address_space is not None:
        findings.append(_explain_address_space(limits.address_space))
    if kills:
        findings.append(
            Finding(
                "memory",
                NOTE,
                f"the kernel has killed {kills} {'process' if kills == 1 else 'processes'} because memory ran out",
                why=f"programs of this session or job needed more than its limit (counted in {source})",
                fix=f"request more memory (--memory 64G, or srun --mem=64G){_add_job(' or work in a job: ')}",
                docs="kedge help doctor memory",
            )
        )
    return findings


def _judge_amount(limits: Limits) -> Finding:
    if limits.memory is None:
        return Finding("memory", OK, "limit unknown")
    what = f"{format_size(limits.memory)} ({limits.memory_from})"
    if limits.memory >= _PULL_NEEDS:
        return Finding("memory", OK, what)
    return Finding(
        "memory",
        WARNING,
        what,
        why=f"a pull needs up to {format_size(_PULL_NEEDS)}; with less the kernel may kill it",
        fix=f"work in a job{_add_job(': ')}, or pull with --threads 1 --connections 1",
        docs="kedge help doctor memory",
    )


def _explain_address_space(limit: int) -> Finding:
    return Finding(
        "memory",
        WARNING,
        f"the address space is limited to {format_size(limit)} (ulimit -v)",
        why="CUDA reserves addresses for all memory of the host and the GPUs, so programs fail with 'out of memory' or "
        "cannot initialise; Java and Go fail, too",
        fix="ulimit -v unlimited, if the hard limit allows it; else work in a job, which has other limits",
        docs="kedge help doctor memory",
    )


def _add_job(before: str) -> str:
    job = suggest_job(_EXAMPLE)
    return f"{before}{job}" if job else ""


# Limits that programs inherit from this shell: processes, open files, locked memory, core files.

_PULL_PROCESSES = 64  # docs/guides/pull.md says so, and a test holds it
_FEW_FILES = 1024
_UNLIMITED = "unlimited"
_RDMA_FOLDER = "sys/class/infiniband"


@frozen
class Limit:
    """A line of /proc/self/limits."""

    soft: str
    hard: str


def _read_limit(root: Path, name: str) -> Limit | None:
    """Read a limit by its name, as in `Max open files   1024   524288   files`; None if there is no such line."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/limits").read_text(errors="replace").splitlines():
            words = line[26:].split()
            if line[:26].strip() == name and len(words) >= 2:
                return Limit(words[0], words[1])
    return None


def check_processes(surroundings: Surroundings) -> list[Finding]:
    """Check how many more processes and threads may start."""
    limits = read_limits(Path(surroundings.root))
    return [judge_processes(limits.processes, limits.processes_from)]


def judge_processes(left: int | None, source: str) -> Finding:
    """Check whether that is enough for a pull, and for programs with a thread per core."""
    if left is None:
        return Finding("processes", OK, "limit unknown")
    if left >= _PULL_PROCESSES:
        return Finding("processes", OK, f"{left} more may start ({source})")
    return Finding(
        "processes",
        WARNING,
        f"only {left} more may start ({source})",
        why="threads count, too: numerical libraries start one per core, and data loaders and MPI start "
        "processes; they "
        "fail with 'Resource temporarily unavailable' or 'cannot allocate memory'",
        fix="stop processes you do not need (ps -u $USER), raise the limit (ulimit -u), start fewer threads "
        "(OMP_NUM_THREADS=4) or work in a job",
        docs="kedge help doctor processes",
    )


def check_open_files(surroundings: Surroundings) -> list[Finding]:
    """Check ulimit -n."""
    limit = _read_limit(Path(surroundings.root), "Max open files")
    if limit is None:
        return [Finding("open-files", OK, "limit unknown")]
    what = f"{limit.soft} (at most {limit.hard})"
    if not limit.soft.isdecimal() or int(limit.soft) >= _FEW_FILES:
        return [Finding("open-files", OK, what)]
    return [
        Finding(
            "open-files",
            WARNING,
            what,
            why="data loaders with many workers and MPI with many ranks open more: 'Too many open files'",
            fix=_raise_open_files(limit),
            docs="kedge help doctor open-files",
        )
    ]


def _raise_open_files(limit: Limit) -> str:
    if limit.hard == limit.soft:
        return "this shell cannot raise it: work in a job, which has other limits, or ask the administrators"
    return f"ulimit -n {limit.hard}"


def check_locked_memory(surroundings: Surroundings) -> list[Finding]:
    """Check ulimit -l, which must be unlimited for RDMA."""
    root = Path(surroundings.root)
    limit = _read_limit(root, "Max locked memory")
    has_rdma = False
    with contextlib.suppress(OSError):
        has_rdma = any((root / _RDMA_FOLDER).iterdir())
    if limit is None or limit.soft == _UNLIMITED:
        return [Finding("locked-memory", OK, "unlimited")]
    what = format_size(int(limit.soft)) if limit.soft.isdecimal() else limit.soft
    if not has_rdma:
        return [Finding("locked-memory", OK, f"{what}; enough, as this node has no RDMA network")]
    fix = "ulimit -l unlimited" if limit.hard == _UNLIMITED else "only administrators can raise it"
    return [
        Finding(
            "locked-memory",
            WARNING,
            f"only {what} may be locked, too little for the RDMA network of this node",
            why="MPI, NCCL and UCX lock the memory that the network card reads: they fail ('Cannot allocate memory', "
            "'ibv_reg_mr') or fall back to slow TCP",
            fix=f"{fix}; for Slurm jobs: LimitMEMLOCK=infinity for slurmd and PropagateResourceLimitsExcept=MEMLOCK. "
            "Compute nodes may have another limit: run 'kedge doctor' in a job, too",
            docs="kedge help doctor locked-memory",
        )
    ]


def check_core_files(surroundings: Surroundings) -> list[Finding]:
    """Check ulimit -c: the core file of a large program may fill a quota."""
    root = Path(surroundings.root)
    limit = _read_limit(root, "Max core file size")
    pattern = ""
    with contextlib.suppress(OSError):
        pattern = (root / "proc/sys/kernel/core_pattern").read_text(errors="replace").strip()
    if limit is None or limit.soft == "0" or pattern.startswith("|"):
        return [Finding("core-files", OK, "not written" if limit and limit.soft == "0" else "left to the system")]
    return [
        Finding(
            "core-files",
            NOTE,
            f"a program that crashes writes a core file (size limit: {limit.soft})",
            why="a crashed training program leaves a file as large as its memory in the current directory, one "
            "per rank; "
            "that fills quotas",
            fix="add to the job script: ulimit -c 0",
            docs="kedge help doctor core-files",
        )
    ]
