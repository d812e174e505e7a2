# SPDX-License-Identifier: BSD-3-Clause
"""Submits a job: plans it, writes its script and record, hands it to the scheduler, notes its id."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.cluster.job import NOW, Dependency, Job, Parallel, StagedImage
from kedge.cluster.output_pattern import fill_pattern
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import list_facts
from kedge.cluster.site import Site
from kedge.cluster.sites.check_request import check_request
from kedge.cluster.sites.rules import find_hidden_root
from kedge.errors import (
    FileProblem,
    InvalidJob,
    JobNotFound,
    KedgeError,
    ProgramMissing,
    RequestRefused,
    SchedulerFailed,
)
from kedge.jobs.cluster import Cluster
from kedge.jobs.encoding import encode_job
from kedge.jobs.records import Draft, Record
from kedge.jobs.stage_image import (
    FileStaging,
    ImageWords,
    place_image,
    pull_image,
    read_architecture,
)
from kedge.jobs.submitted_ids import recover_id, show_output
from kedge.system.files import require_writable
from kedge.system.lean_programs import Finished, run_into_files_here
from kedge.system.programs import find_program
from kedge.system.settings import Settings
from kedge.system.start_kedge import own_program

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.jobs.check_learning import LearningCheck

_DEFAULT_OUTPUT = "{name}-{id}.out"
_LOADER = ("LD_", "PYTHON")  # variables of the loader and of kedge's own Python
_DEFAULT_ARRAY_OUTPUT = "{name}-{id}_{index}.out"


@frozen
class SubmitPlan:
    """All that a submission will do; `--dry-run` shows it."""

    job: Job  # with what the site filled in
    cluster: Cluster
    key: str
    place: ScriptContext
    image: StagedImage
    script: str
    argv: tuple[str, ...]
    warnings: tuple[str, ...]  # likely problems
    notes: tuple[str, ...]  # what the site adds unasked


@frozen
class Submitted:
    """A submitted job."""

    record: Record
    argv: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The submission as `--json` prints it."""
        record = self.record
        return {
            "id": record.id,
            "name": record.name,
            "site": record.site,
            "scheduler": record.scheduler,
            "key": record.key,
            "script": str(record.script),
            "output": show_output(record),
            "submit": list(self.argv),
        }


def plan_submit(job: Job, cluster: Cluster, settings: Settings, environ: Mapping[str, str], folder: str) -> SubmitPlan:
    """Plan everything: look up tags, pull and submit nothing. Relative paths begin in `folder`."""
    directory = str(Path(folder, job.directory)) if job.directory else folder
    if not Path(directory).is_dir():
        raise FileProblem(f"the working directory {directory} does not exist", context={"path": directory})
    image = place_image(job, cluster.site, settings, environ, folder)
    output = Path(directory, job.output or (_DEFAULT_ARRAY_OUTPUT if job.array else _DEFAULT_OUTPUT))
    error = str(Path(directory, job.error)) if job.error else ""
    for path in (str(output), error):
        if path not in ("", os.devnull):
            require_writable(_find_output_folder(path, job.name))
    seen = [path for path in (directory, image.path if "://" not in image.path else "", str(output)) if path]
    architecture = read_architecture(image, cluster.site)
    checked = check_request(job, cluster.site, environ=environ, paths=seen, architecture=architecture)
    ready = replace(checked.job, dependencies=tuple(_resolve(awaited, cluster) for awaited in job.dependencies))
    pinned = _pin(ready, image, cluster.site, settings, environ)
    known = image if pinned.image.reference else pinned.image
    about_image = judge_image(ready, cluster.site, known, settings, environ)
    needs = _check_learning(ready, cluster.site, pinned.image, environ, directory)
    ready, image = pinned.job, pinned.image
    key, record = cluster.records.place()
    kedge = find_kedge()
    if image.path:
        _require_seen(kedge, cluster.site, environ)
    staging = _plan_staging(ready, cluster.site, kedge, image)
    place = ScriptContext(
        record=str(record),
        kedge=kedge,
        image=image.path,
        pull_from="" if image.when == NOW else image.reference,
        directory=directory,
        output=str(output),
        error=error,
        inside_only=_find_inside_only(ready),
        build_from=image.recipe,
        stages_kedge=staging.kedge,
        stages_image=staging.image,
        torch_launcher=needs.starter if needs else ("torchrun",),
        source=ready.image if "@" in ready.image and "://" in ready.image else "",
    )
    script = cluster.backend.render(ready, cluster.site, place)
    argv = cluster.backend.submit_argv(str(record / "script.sh"), ready, cluster.site)
    warnings = (*checked.warnings, *pinned.warnings, *about_image.warnings, *(needs.warnings if needs else ()))
    notes = (*checked.notes, *staging.notes, *about_image.notes, *(needs.notes if needs else ()))
    return SubmitPlan(
        job=ready,
        cluster=cluster,
        key=key,
        place=place,
        image=image,
        script=script,
        argv=tuple(argv),
        warnings=warnings,
        notes=notes,
    )


def _plan_staging(job: Job, site: Site, kedge: str, image: StagedImage) -> FileStaging:
    """What the job copies to its nodes first."""
    if job.node_count == 1:
        return FileStaging()
    from kedge.jobs.stage_files import plan_staging  # late: most jobs have one node

    return plan_staging(job, site, kedge, image)


@frozen
class _Pinned:
    """The job with its image pinned to a digest, and where that image is."""

    job: Job
    image: StagedImage
    warnings: tuple[str, ...] = ()


def _pin(job: Job, image: StagedImage, site: Site, settings: Settings, environ: Mapping[str, str]) -> _Pinned:
    """Replace a tag by the digest it has now."""
    if not job.image or (not image.reference and "://" not in image.path):
        return _Pinned(job, image)
    from kedge.image.pin_digest import pin_image  # late: most jobs name a file

    queue = site.find_queue(job.queue)
    pin = pin_image(job.image, image, settings, queue.arch if queue else "")
    if pin.path:
        return _Pinned(job, StagedImage(pin.path), pin.warnings)
    if not pin.reference:
        return _Pinned(job, image, pin.warnings)
    job = replace(job, image=pin.reference)
    return _Pinned(job, place_image(job, site, settings, environ, ""), pin.warnings)


def judge_image(job: Job, site: Site, image: StagedImage, settings: Settings, environ: Mapping[str, str]) -> ImageWords:
    """What to say of the image on the GPUs of the queue, and of its MPI; raises WillNotRun or LaunchRefused."""
    if image.recipe:  # nobody knows it yet
        return ImageWords()
    about_mpi: tuple[str, ...] = ()
    if job.parallel is Parallel.MPI:
        from kedge.jobs.check_mpi import advise_unpulled, check_job_mpi  # late: other jobs need none of it

        unpulled = advise_unpulled(job, site, image, settings, environ)
        about_mpi = tuple(dict.fromkeys((*check_job_mpi(job, site, image, environ), *unpulled)))
    queue = site.find_queue(job.queue)
    has_unseen = job.nv is None and not job.wants_gpus and queue is not None and queue.gives_gpus_unasked
    if not job.uses_gpus and not has_unseen:
        return ImageWords(about_mpi)
    from kedge.jobs.check_image import check_image, warn_unseen_gpus  # late: other jobs need none of it

    check = warn_unseen_gpus if has_unseen else check_image
    words = check(job, site, image, settings, environ)
    return replace(words, warnings=(*words.warnings, *about_mpi))


def _find_inside_only(job: Job) -> tuple[str, ...]:
    """Variables of the job that would also affect programs of the node, such as kedge and srun."""
    if not job.image or not job.environment:
        return ()
    from kedge.container.env_scripts import NEVER_PASSED  # late: most jobs set no variables
    from kedge.container.payload import is_guarded

    names = (name for name, _ in job.environment)
    return tuple(name for name in names if name in NEVER_PASSED or is_guarded(name) or name.startswith(_LOADER))


def _require_seen(kedge: str, site: Site, environ: Mapping[str, str]) -> None:
    """Refuse if compute nodes do not see this kedge, which jobs use to start containers."""
    if find_hidden_root(kedge, site, environ) is not None:
        raise RequestRefused(
            f"compute nodes of {site.name} do not see {kedge}, which jobs need",
            context={"site": site.name, "path": kedge},
            hint=f"install kedge on {site.scratch or 'a file system that they see'} and submit with that one",
        )


def _find_output_folder(pattern: str, name: str) -> Path:
    """The directory of an output file; it must exist before the job starts, as schedulers create none."""
    folder = str(Path(pattern).parent)
    if "{id}" in folder or "{index}" in folder:
        raise InvalidJob(
            f"the directory of the output '{pattern}' contains the job's id: schedulers create no directories",
            hint="use {id} and {index} in the file name only: logs/{name}-{id}.out",
        )
    return Path(fill_pattern(folder, name=name, id="", index=None))


def fetch_image(plan: SubmitPlan) -> SubmitPlan:
    """Pull the image, if that is to be done now, and look into it; the notes of the result are those of this look."""
    if plan.image.when != NOW:
        return replace(plan, notes=())
    site = plan.cluster.site
    queue = site.find_queue(plan.job.queue)
    pull_image(plan.image, queue.arch if queue else "")
    image = StagedImage(plan.image.path)
    needs = _check_learning(plan.job, site, image, os.environ, plan.place.directory)
    if needs is None:
        return replace(plan, image=image, notes=())
    place = replace(plan.place, torch_launcher=needs.starter)
    script = plan.cluster.backend.render(plan.job, site, place)
    return replace(plan, image=image, place=place, script=script, notes=(*needs.notes, *needs.warnings))


def _check_learning(
    job: Job, site: Site, image: StagedImage, environ: Mapping[str, str], directory: str
) -> LearningCheck | None:
    """Whether the image has what the job starts or imports on each node; None for jobs that need nothing there."""
    if not job.contract and job.parallel is not Parallel.TORCHRUN:
        return None
    from kedge.jobs.check_learning import check_learning  # late: other jobs need none of it

    return check_learning(job, site, image, environ, directory)


def submit(plan: SubmitPlan) -> Submitted:
    """Carry out the plan: pull, write the record, hand the script to the scheduler, note the id."""
    plan = fetch_image(plan)
    cluster, place = plan.cluster, plan.place
    draft = Draft(
        name=plan.job.name,
        site=cluster.site.name,
        scheduler=cluster.backend.name,
        job=encode_job(plan.job),
        directory=place.directory,
        output=place.output,
        error=place.error,
        submit=plan.argv,
    )
    cluster.require_configuration(os.environ)
    record = cluster.records.create(plan.key, draft, plan.script)
    out, err = record.folder / "submit.out", record.folder / "submit.err"
    try:
        done = _run_submit_command(plan, out, err)
    except ProgramMissing as problem:
        cluster.records.forget(record)
        raise cluster.explain_missing(plan.argv[0], problem) from None
    except KedgeError:
        cluster.records.forget(record)  # the command did not start: nothing is in the queue
        raise
    named = recover_id(record, cluster)  # a submit command can fail after the scheduler took the job
    if named is not None:
        return Submitted(named, plan.argv)
    if done.status:
        cluster.records.forget(record)
        refusal = cluster.explain_failure(done)
        refusal.context |= {"command": f"{plan.argv[0]}, with the script that --dry-run prints"}  # this one is gone
        raise refusal
    raise SchedulerFailed(
        f"{plan.argv[0]} printed no job id: {done.text.strip()[-200:]!r}",
        context={"record": str(record.folder)},
        hint="the job may be in the queue nevertheless; list your jobs: kedge jobs",
    )


def _run_submit_command(plan: SubmitPlan, out: Path, err: Path) -> Finished:
    environment, directory = _make_environment(os.environ), plan.place.directory
    if _is_here(directory):
        return run_into_files_here(plan.argv, out, err, environment)
    from kedge.system.process import run_into_files  # late: it costs more, and most submit from where the job runs

    return run_into_files(plan.argv, out, err, environment=environment, directory=directory)


def _is_here(directory: str) -> bool:
    try:
        return directory == str(Path.cwd())
    except OSError:  # it is gone
        return False


def find_kedge() -> str:
    """The path of the kedge command for scripts: the installation of this Python, else from PATH."""
    path = own_program() or find_program("kedge")
    if not path:
        raise FileProblem(
            "the command 'kedge' was not found, and jobs need it",
            context={"PATH": os.environ.get("PATH", "")},
            hint="install kedge where compute nodes see it: kedge help install",
        )
    return path


def _resolve(dependency: Dependency, cluster: Cluster) -> Dependency:
    """The dependency with the scheduler's id instead of a name."""
    try:
        record = cluster.records.find(dependency.job, cluster.site.name)
    except JobNotFound:
        if dependency.job[:1].isdecimal():
            return dependency  # a job that was not submitted with kedge
        raise InvalidJob(
            f"no job '{dependency.job}' to wait for",
            context={"key": "after"},
            hint="list your jobs: kedge jobs; ids of the scheduler are accepted too",
        ) from None
    if not record.id:
        raise InvalidJob(f"job '{dependency.job}' was never submitted, so no job can wait for it")
    return replace(dependency, job=record.id, record=str(record.folder))


def _make_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables of an allocation: a job submitted inside another must not inherit its size."""
    facts = list_facts()
    kept = [name for scheduler in facts for name in scheduler.lasting]
    left = (*(name for scheduler in facts for name in scheduler.inherited), "KEDGE_ARRAY_INDEX", "KEDGE_JOB_")
    return {name: value for name, value in environ.items() if not name.startswith(left) or name in kept}
