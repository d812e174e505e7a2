# SPDX-License-Identifier: BSD-3-Clause
"""Checks batch scripts against the site they are for, and converts them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kedge.base.frozen import replace
from kedge.cluster.job import Job
from kedge.cluster.schedulers.choose import SCHEDULERS, find_facts, find_language
from kedge.cluster.site import Site
from kedge.cluster.sites.detect import detect_site
from kedge.cluster.sites.find_site import detect_here, look_around
from kedge.cluster.sites.profile import find_folders, list_signs, list_sites, load_site
from kedge.errors import FileProblem, KedgeError, UsageError
from kedge.jobs.scripts.convert import Conversion, convert_script
from kedge.jobs.scripts.findings import ScriptFinding, Severity
from kedge.jobs.scripts.read_request import find_resource
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script, know_nothing
from kedge.jobs.scripts.script import BatchScript
from kedge.system.files import atomic_output, explained, refuse_existing_text
from kedge.system.settings import Settings

_MOST_BYTES = 1 << 20  # far more than a batch script has
TARGETS = ("toml", *SCHEDULERS)


@dataclass(frozen=True, slots=True)
class CheckedScript:
    """A script, the site it is for if known, and the findings of the rules."""

    name: str
    script: BatchScript
    site: Site | None
    site_reason: str
    findings: tuple[ScriptFinding, ...]

    @property
    def has_errors(self) -> bool:
        """Whether the job would be refused, or could not run."""
        return any(each.severity is Severity.ERROR for each in self.findings)

    def as_dict(self) -> dict[str, object]:
        """Return the fields for --json; nothing of the script's text, which may hold secrets."""
        return {
            "file": self.name,
            "scheduler": self.script.scheduler,
            "reason": self.script.reason,
            "site": self.site.name if self.site else None,
            "site_reason": self.site_reason,
            "errors": self.has_errors,
            "findings": [each.as_dict() for each in self.findings],
        }


@dataclass(frozen=True, slots=True)
class ConvertedScript:
    """The converted text, and what was lost."""

    name: str
    target: str
    site: Site | None
    text: str
    conversion: Conversion
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the fields for --json."""
        return {
            "file": self.name,
            "to": self.target,
            "site": self.site.name if self.site else None,
            "text": self.text,
            "lost": [{"line": each.line, "option": each.words, "why": each.why} for each in self.conversion.left],
            "notes": [{"line": line, "note": note} for line, note in self.conversion.remarks],
            "warnings": list(self.warnings),
        }


def _keep_job(job: Job) -> Job:
    return job


def check_file(name: str, settings: Settings, environ: Mapping[str, str]) -> CheckedScript:
    """Check the script in a file, or on standard input for `-`."""
    script = read_script(read_text(name))
    site, reason, is_here = _find_site(script, settings, environ)
    has_file = _has_file if is_here else know_nothing
    return CheckedScript(name, script, site, reason, tuple(check_script(script, site, has_file)))


def convert_file(
    name: str, target: str, settings: Settings, environ: Mapping[str, str], change: Callable[[Job], Job] = _keep_job
) -> ConvertedScript:
    """Convert a script to a kedge.toml, or to a script for another scheduler; writes nothing.

    `change` adds to the job what the script lacks, such as the account that another site requires.
    """
    script = read_script(read_text(name, strict=True))
    folders = find_folders(environ)
    site = load_site(settings.site, folders) if settings.site else None
    if target == "toml":
        scheduler = site.scheduler if site else ""
        conversion = _convert(script, scheduler, site, name, change)
        return ConvertedScript(
            name=name,
            target=target,
            site=site,
            text=_write_description(conversion.job, site),
            conversion=conversion,
            warnings=(),
        )
    if site is not None and site.scheduler != target:
        raise UsageError(
            f"{site.name} has {find_facts(site.scheduler).title}, not {find_facts(target).title}",
            hint=f"give --to {site.scheduler}, or another site",
        )
    site = site or load_site("local" if target == "local" else f"generic-{target}", folders)
    conversion = _convert(script, target, site, name, change)
    text, warnings = _render(conversion.job, site, environ)
    return ConvertedScript(name=name, target=target, site=site, text=text, conversion=conversion, warnings=warnings)


def _convert(
    script: BatchScript, target: str, site: Site | None, name: str, change: Callable[[Job], Job]
) -> Conversion:
    conversion = _name_job(convert_script(script, target=target, site=site), script, name)
    return replace(conversion, job=change(conversion.job))


def _name_job(conversion: Conversion, script: BatchScript, name: str) -> Conversion:
    """Name a job without a name after its file, as sbatch and qsub do."""
    named = script.find("--job-name", "-N")
    if name == "-" or (named is not None and named.value):  # an empty one is none
        return conversion
    return replace(conversion, job=replace(conversion.job, name=Path(name).stem or "kedge"))


def write_text(path: Path, text: str, *, is_script: bool, force: bool) -> None:
    """Write the result; replaces an existing file only with `force`."""
    refuse_existing_text(path, force=force)
    with atomic_output(path, mode=0o755 if is_script else 0o644, force=force) as stream:
        stream.write(text.encode())


def _find_site(script: BatchScript, settings: Settings, environ: Mapping[str, str]) -> tuple[Site | None, str, bool]:
    """The site a script is for, the reason, and whether this host belongs to it."""
    here = detect_here(settings, environ)
    if settings.site:
        first = detect_site(look_around(environ), list_signs(find_folders(environ)))[0]
        return here.site, here.reason, first.site == settings.site
    is_generic = here.site.name.startswith("generic-") or here.site.name == "local"
    if here.site.scheduler == script.scheduler and not is_generic:
        return here.site, here.reason, True
    guessed = guess_site(script, _load_sites(environ))
    if guessed is not None:
        return guessed[0], guessed[1], False
    if here.site.scheduler == script.scheduler:
        return here.site, here.reason, True
    return None, "the script does not name a site", False


def read_text(name: str, *, strict: bool = False) -> str:
    """The text of a file, or of standard input for `-`."""
    data = _read_stream() if name == "-" else _read_file(Path(name))
    if len(data) > _MOST_BYTES:
        raise FileProblem(f"{name} is too large for a batch script", context={"limit": f"{_MOST_BYTES >> 20} MB"})
    if b"\0" in data:
        raise FileProblem(f"{name} is not a text file, so not a batch script", context={"path": name})
    if not data.strip():
        raise FileProblem(f"{name} is empty", context={"path": name})
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        if strict:
            raise FileProblem(
                f"{name} is not UTF-8: byte {problem.start}",
                context={"path": name},
                hint="convert it first: iconv -f latin1 -t utf-8",
            ) from None
        return data.decode(errors="replace")


def _read_stream() -> bytes:
    return sys.stdin.buffer.read(_MOST_BYTES + 1)


def _read_file(path: Path) -> bytes:
    with explained(path):
        if path.is_dir():
            raise FileProblem(f"{path} is a directory", context={"path": str(path)}, hint="name a script inside it")
        with path.open("rb") as stream:
            return stream.read(_MOST_BYTES + 1)


def _has_file(path: str) -> bool | None:
    if path.startswith("~") or "$" in path:
        return None
    if "%" in path:
        return _has_pattern(path)
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):  # a directory that may not be looked into, or a name that no file can have
        return None
    return True


def _has_pattern(path: str) -> bool | None:
    """Whether a file matches a path with Slurm's patterns: %u is the user, others match any text."""
    import pwd  # late: few scripts have such names
    from glob import escape

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = "*"
    known = {"%": "%", "u": escape(user)}
    parts = re.split(r"%\d*([%A-Za-z])", path)
    names = [escape(part) if index % 2 == 0 else known.get(part, "*") for index, part in enumerate(parts)]
    pattern = "".join(names)
    base = Path("/") if pattern.startswith("/") else Path()
    return next(base.glob(pattern.strip("/")), None) is not None


def _load_sites(environ: Mapping[str, str]) -> list[Site]:
    folders = find_folders(environ)
    return [load_site(each.name, folders) for each in list_sites(folders) if not each.problem]


def _write_description(job: Job, site: Site | None) -> str:
    from kedge.jobs.description import write_description

    return write_description([job], site=site.name if site else "")


def _render(job: Job, site: Site, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The script that `kedge submit` would write, without a record, for the current directory."""
    from kedge.cluster.job_rules import check_job
    from kedge.cluster.schedulers.backend import ScriptContext
    from kedge.cluster.schedulers.choose import find_backend
    from kedge.cluster.sites.check_request import check_request
    from kedge.jobs.submit import find_kedge

    checked = check_request(check_job(job), site, environ=environ)
    directory = str(Path.cwd() / job.directory)
    default = "{name}-{id}_{index}.out" if job.array else "{name}-{id}.out"
    try:
        kedge = find_kedge()
    except KedgeError:
        kedge = "kedge"
    place = ScriptContext(
        record="",
        kedge=kedge,
        image=job.image,
        pull_from="",
        directory=directory,
        output=str(Path(directory, job.output or default)),
        error=str(Path(directory, job.error)) if job.error else "",
    )
    text = find_backend(site.scheduler).render(checked.job, site, place)
    return text, (*checked.warnings, *checked.notes)


# Which site a script was written for, from the queues it names and what it loads.

# names that half of all clusters have, which alone prove nothing
_COMMON = ("gpu", "cpu", "normal", "small", "large", "long", "short", "development", "debug", "batch", "interactive")
_ENOUGH = 3


def guess_site(script: BatchScript, sites: Sequence[Site]) -> tuple[Site, str] | None:
    """The likeliest site, and why; None when nothing speaks for one more than for others."""
    found = [(*_weigh(script, site), site) for site in sites if site.scheduler == script.scheduler]
    best = max((weight for weight, _, _ in found), default=0)
    if best < _ENOUGH:
        return None
    tied = [(reason, site) for weight, reason, site in found if weight == best]
    live = [(reason, site) for reason, site in tied if not all(queue.is_retired for queue in site.queues)] or tied
    if len(live) > 1:
        return None
    reason, site = live[0]
    return site, reason


def _weigh(script: BatchScript, site: Site) -> tuple[int, str]:
    """How much speaks for a site, and what most."""
    weight, reason = 0, ""
    for name in _find_queues(script):
        if site.find_queue(name) is not None or find_resource(site, name) is not None:
            weight += 1 if name in _COMMON else _ENOUGH
            reason = f"it has a queue '{name}'"
    for name in {name.partition("/")[0] for _, name in script.modules} & set(site.runtime_modules):
        weight += 2
        reason = reason or f"its module '{name}' is loaded"
    if site.launcher == "ibrun" and any(command.name == "ibrun" for command in script.launchers):
        weight += 2
        reason = reason or "it starts tasks with ibrun"
    for path in site.hidden_paths:
        if f"{path.rstrip('/')}/" in script.text:
            weight += 1
    return weight, reason


def _find_queues(script: BatchScript) -> list[str]:
    names = []
    for directive in script.live:
        language, values = find_language(directive.scheduler), (directive.value or "").split(",")
        if directive.option in language.queue_options:
            names += [value.partition("@")[0] for value in values]
        elif directive.option == language.resource_option:
            names += [value.partition("=")[0] for value in values]
    return names
