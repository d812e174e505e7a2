# SPDX-License-Identifier: BSD-3-Clause
"""One text file about this host and this user's kedge, to attach to a request for help; without secrets.

Files with credentials are never read. All text goes through the rules for secrets of `report_secrets`.
"""

from __future__ import annotations

import contextlib
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from kedge.answers.doctor.diagnosis import Diagnosis
from kedge.answers.doctor.surroundings import OK, Surroundings
from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.base.secret_text import mask_secrets
from kedge.cluster.host_memory import describe_killed, list_attempts
from kedge.container.env_scripts import REQUEST_PREFIXES
from kedge.image.registry.secret import HIDDEN, Secret, scrub
from kedge.system.bounded_children import ANSWERED, LATE, BoundedTask, run_bounded
from kedge.system.config import list_settings
from kedge.system.host.space import find_mount
from kedge.system.settings import home_directory, xdg_directory
from kedge.system.start_kedge import own_interpreter

_SECTION_SECONDS = 1.0
_LONGEST_LOG = 8000  # characters of the newest log of a bug
_MOST_ATTEMPTS = 5


def make_report(diagnosis: Diagnosis, surroundings: Surroundings, *, command: str, redact: Callable[[str], str]) -> str:
    """The report; `redact` removes secrets as it does from every message of the command line."""
    sections: dict[str, Callable[[], Iterator[str]]] = {
        "Findings": partial(_show_findings, diagnosis),
        "This machine": partial(_show_machine, diagnosis),
        "Limits": _show_limits,
        "Mounts": partial(_show_mounts, surroundings),
        "Settings": partial(_show_settings, surroundings),
        "Environment": partial(show_environment, surroundings.environ),
        "Work that was killed, or is under way": partial(_show_attempts, surroundings),
        "The newest log of a bug": partial(_show_log, surroundings.environ),
    }
    tasks = [BoundedTask(title, partial(_write, lines), _SECTION_SECONDS) for title, lines in sections.items()]
    outcomes = run_bounded(tasks, seconds=_SECTION_SECONDS)
    made = time.strftime("%Y-%m-%d %H:%M:%S %z")
    parts = [f"kedge doctor: report of {made}\n\nkedge {VERSION}\ncommand: {command}\n{diagnosis.summary}"]
    for title, outcome in outcomes.items():
        text = outcome.answer.decode(errors="replace").strip() if outcome.state == ANSWERED else ""
        if outcome.state != ANSWERED:
            text = "did not answer in time" if outcome.state == LATE else "unknown: the check failed"
        parts.append(f"{title}\n{'-' * len(title)}\n{text or 'none'}")
    censor = Censor(surroundings.environ, redact, home=home_directory(surroundings.environ))
    return censor.clean("\n\n".join(parts) + "\n")


def clean_diagnosis(
    diagnosis: Diagnosis, surroundings: Surroundings, redact: Callable[[str], str], *, is_sent: bool
) -> Diagnosis:
    """The diagnosis without secrets; if it is for others (`is_sent`), also without the name of the home directory."""
    home = home_directory(surroundings.environ) if is_sent else None
    censor = Censor(surroundings.environ, redact, home=home)
    findings = tuple(
        replace(finding, what=censor.clean(finding.what), why=censor.clean(finding.why), fix=censor.clean(finding.fix))
        for finding in diagnosis.findings
    )
    machine = {name: censor.clean(text) for name, text in diagnosis.machine.items()}
    return replace(diagnosis, findings=findings, machine=machine)


def _write(lines: Callable[[], Iterator[str]]) -> bytes:
    return "\n".join(lines()).encode(errors="replace")


def _show_findings(diagnosis: Diagnosis) -> Iterator[str]:
    for finding in diagnosis.findings:
        yield f"{finding.level:8}{finding.check}: {finding.what}  [{diagnosis.seconds.get(finding.check, 0.0):.3f} s]"
        if finding.level != OK:
            parts = (("why", finding.why), ("fix", finding.fix))
            yield from (f"        {name}: {text}" for name, text in parts if text)


def _show_machine(diagnosis: Diagnosis) -> Iterator[str]:
    yield from (f"{name}: {value}" for name, value in diagnosis.machine.items())
    yield f"Python: {platform.python_version()} ({own_interpreter()})"
    yield f"C library: {' '.join(platform.libc_ver()) or 'unknown'}"
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model")):
            yield f"CPU: {line.partition(':')[2].strip()}"
            break
    yield f"kernel: {_read('/proc/version').strip()}"
    yield f"control groups: {' '.join(_read('/proc/self/cgroup').split())}"
    for name in ("nvidia", "fuse", "overlay", "squashfs", "lustre", "nfs", "mmfs"):
        if Path(f"/sys/module/{name}").exists():
            yield f"module of the kernel: {name} {_read(f'/sys/module/{name}/version').strip()}".rstrip()


def _show_limits() -> Iterator[str]:
    for line in _read("/proc/self/limits").splitlines()[1:]:
        yield line.rstrip()


def _show_mounts(surroundings: Surroundings) -> Iterator[str]:
    """The file systems of the directories that kedge uses."""
    settings = surroundings.settings
    places = {
        "root": Path("/"),
        "home": home_directory(surroundings.environ),
        "store": settings.cache_directory,
        "temporary": settings.temporary_directory,
        "unpacked images": settings.node_directory or Path("/var/tmp"),
        "shared memory": Path("/dev/shm"),
        "current directory": Path.cwd(),
    }
    for name, path in places.items():
        mount = find_mount(path)
        shown = f"{mount.kind} {mount.source} on {mount.point}" if mount else "unknown"
        yield f"{name}: {path}: {shown}"


def _show_settings(surroundings: Surroundings) -> Iterator[str]:
    for setting in list_settings(surroundings.settings):
        yield f"{setting.key} = {setting.text}  ({setting.source})"
    if surroundings.site is not None:
        yield f"the site in use: {surroundings.site.name} ({surroundings.site.scheduler}, {surroundings.site.origin})"


def _show_attempts(surroundings: Surroundings) -> Iterator[str]:
    attempts = list_attempts(surroundings.settings.cache_directory / "attempts")
    for attempt in sorted(attempts, key=lambda attempt: attempt.began)[-_MOST_ATTEMPTS:]:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(attempt.began))
        yield f"began {began} on {attempt.host}; if it is not at work any more: {describe_killed(attempt)}"


def _show_log(environ: Mapping[str, str]) -> Iterator[str]:
    directory = xdg_directory(environ, "XDG_STATE_HOME", ".local/state")
    newest = max(directory.glob("bug-*.md"), default=None, key=lambda path: path.name)
    if newest is not None:
        yield str(newest)
        yield _read(str(newest))[:_LONGEST_LOG]


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read(1 << 20)
    return ""


# Which variables a report may show, and the removal of secrets from its text.

_SECRET_NAME = re.compile(
    r"PASS(WORD|WD|PHRASE|_|$)|PWD_|TOKEN|SECRET|(API|ACCESS|PRIVATE|LICENSE|ENCRYPTION|SIGNING)_?KEY|_KEY\d*$|^KEY$|"
    r"CREDENTIAL|AUTH|COOKIE|JWT|BEARER|SIGNATURE|_PAT$|_PIN$|OAUTH|MUNGE",
    re.IGNORECASE,
)
_RELEVANT = re.compile(
    r"(KEDGE|APPTAINER|SINGULARITY|ENROOT|PYXIS|SLURM|SBATCH|SRUN|PBS|SGE|LSB|CUDA|NVIDIA|NV_|GPU|ROCR|HIP|NCCL|UCX|OMPI|OPAL|"
    r"PMIX?|PRTE|MPI|I_MPI|FI|OMP|LD|LC|PYTHON|CONDA|MAMBA|XDG|SSL|MODULE|LMOD)_?\w*|"
    r"PATH|LANG|LANGUAGE|HOME|USER|LOGNAME|SHELL|TERM|PWD|HOSTNAME|TMPDIR|TMP|TEMP|SCRATCH|PSCRATCH|WORK|SCRATCHDIR|"
    r"LOADEDMODULES|_LMFILES_|VIRTUAL_ENV|JOB_ID|NSLOTS|PE_HOSTFILE|QUEUE|DOCKER_CONFIG|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|"
    r"(HTTPS?|FTP|ALL|NO)_PROXY|(https?|ftp|all|no)_proxy|NO_COLOR|CI"
)
_JSON_WEB_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(\.[\w-]+)?")
_LONG_BLOB = re.compile(r"(?<![\w/+=.:~-])(?=\w*\d)(?=\w*[A-Z])(?=\w*[a-z])[A-Za-z0-9+_-]{60,}={0,2}(?![\w/.])")
_USER_INFO = re.compile(
    r"(?P<before>^|[\s'\"=(,;])(?P<scheme>[a-z][a-z0-9+.-]{0,30}://)?[^\s@/'\"=:]+:(?!//|\*\*\*@)[^\s@'\"]+@(?=[\w.\[-])",
    re.I,
)
_LONE_USER = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,30}://)[^\s@/'\":]{12,}@", re.IGNORECASE)  # a token, mostly
_LONGEST_VALUE = 4000


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def show_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """The variables that matter to containers and jobs; of secret ones the name alone."""
    for name in sorted(environ):
        prefix = next((each for each in REQUEST_PREFIXES if name.startswith(each)), "")
        inner = name[len(prefix) :]
        if prefix and _RELEVANT.fullmatch(inner) is None:
            yield f"{name} is set"  # a variable of the user's own programs: what is in it is nobody's business
        elif is_secret_name(inner):
            yield f"{name}={HIDDEN}"
        elif _RELEVANT.fullmatch(name):
            value = environ[name][:_LONGEST_VALUE]
            if name.lower().endswith("_proxy") and "@" in value:
                value = f"{HIDDEN}@{value.rpartition('@')[2]}"
            yield f"{name}={value!r}"


class Censor:
    """Removes from text known secrets, what looks like one, and the name of a `home`."""

    def __init__(self, environ: Mapping[str, str], redact: Callable[[str], str], *, home: Path | None = None) -> None:
        values = {environ[name].strip() for name in environ if is_secret_name(name)}
        self._secrets = [Secret(value) for value in sorted(values, key=len, reverse=True) if len(value) >= 6]
        self._home = str(home or "").rstrip("/")
        self._redact = redact

    def clean(self, text: str) -> str:
        """The text as it may be sent."""
        text = mask_secrets(self._redact(scrub(text, self._secrets)))
        text = _USER_INFO.sub(lambda match: f"{match['before']}{match['scheme'] or ''}{HIDDEN}@", text)
        text = _LONE_USER.sub(rf"\g<scheme>{HIDDEN}@", text)
        text = _LONG_BLOB.sub(HIDDEN, _JSON_WEB_TOKEN.sub(HIDDEN, text))
        if len(self._home) > 1:
            text = re.sub(rf"{re.escape(self._home)}(?![\w.-])", "~", text)
        return text
