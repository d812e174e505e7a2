# SPDX-License-Identifier: BSD-3-Clause
"""The check of one image for `kedge doctor IMAGE`: the answer of explain as findings, in bounded time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from kedge.answers.doctor.environment import list_user_sites
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Check, Finding, Surroundings
from kedge.answers.explain import Explanation, chart_explanation, explain
from kedge.answers.targets import find_target
from kedge.base.frozen import replace
from kedge.base.progress import Silent
from kedge.base.reference import Reference
from kedge.base.versions import is_at_least
from kedge.cluster.site import Site
from kedge.compat.driver_chart import Chart
from kedge.compat.known_tables import load_known_tables
from kedge.compat.tables.load import Tables
from kedge.compat.target import Target
from kedge.compat.traits import ImageTraits
from kedge.compat.verdict import FORWARD, MINOR, NATIVE, NO, PTX, UNKNOWN, Judgement, Verdict
from kedge.errors import KedgeError
from kedge.image.workplace import Workplace
from kedge.system.settings import home_directory
from kedge.system.threads import answer_within

_REGISTRY_SECONDS = 1.2  # then the tables alone are asked
_SECONDS = 1.7


def make_image_check(text: str) -> Check:
    """The check of the image that `text` names; raises InvalidReference at once where it names none."""
    reference = Reference.parse(text)
    return Check(NAME, "image", "Image", partial(_check_image, reference), _SECONDS)


def _check_image(reference: Reference, surroundings: Surroundings) -> list[Finding]:
    settings, environ = surroundings.settings, surroundings.environ
    try:
        tables = load_known_tables(environ, Silent())
        target = _choose_target(surroundings, tables)
        answer = _explain(reference, surroundings, target, tables)
    except KedgeError as problem:
        return [explain_problem(reference.redacted, problem)]
    late = []
    if isinstance(answer, str):
        why = "the findings lack the registry's data about the image; a pull would be slow, too"
        late = [
            Finding(
                NAME, WARNING, answer, why=why, fix="see the check 'registries'", docs="kedge help doctor registries"
            )
        ]
        try:
            answer = explain(reference, Workplace(settings), target=target, offline=True, tables=tables)
        except KedgeError:
            return late
    return [*judge_image(answer.traits, answer.verdict, answer.target, environ), *late]


def explain_checked(text: str, surroundings: Surroundings) -> tuple[Explanation, Chart | None] | None:
    """The explanation of a checked image for a page, from the cache, where the check left it, and the tables."""
    settings, environ = surroundings.settings, surroundings.environ
    try:
        tables = load_known_tables(environ, Silent())
        target = _choose_target(surroundings, tables)
        explanation = explain(Reference.parse(text), Workplace(settings), target=target, offline=True, tables=tables)
        return explanation, chart_explanation(explanation, tables)
    except KedgeError:
        return None  # the check has said why


def _explain(reference: Reference, surroundings: Surroundings, target: Target, tables: Tables) -> Explanation | str:
    """The explanation, or a sentence where the registry did not answer in time."""
    workplace = Workplace(replace(surroundings.settings, retries=0))
    seconds = _REGISTRY_SECONDS * surroundings.patience

    def ask() -> Explanation | KedgeError:
        try:
            return explain(reference, workplace, target=target, tables=tables)
        except KedgeError as problem:
            return problem

    if reference.is_local or surroundings.is_offline:
        return explain(reference, workplace, target=target, offline=surroundings.is_offline, tables=tables)
    answer = answer_within(seconds, {NAME: ask}).get(NAME)
    if isinstance(answer, KedgeError):
        raise answer
    return answer or f"{reference.registry} did not describe {reference.name} within {seconds:g} s"


def _choose_target(surroundings: Surroundings, tables: Tables) -> Target:
    """The target: the requested site, or this host; if the host has no GPU, the queues of its site."""
    settings, environ, site = surroundings.settings, surroundings.environ, surroundings.site
    name = settings.site if settings.site and settings.sources["site"].kind in ("flag", "environment") else ""
    if name:
        return find_target(site=name, environ=environ, settings=settings, tables=tables)
    here = find_target(environ=environ, settings=settings, tables=tables)
    if here.has_gpus is False and site is not None and _has_gpu_queues(site):
        return find_target(site=site.name, environ=environ, settings=settings, tables=tables)
    return here


def _has_gpu_queues(site: Site) -> bool:
    return any(queue.gpu and not queue.is_retired for queue in site.queues)


# Findings about one image: whether it runs, and known problems of such images. Reads nothing but the home.

NAME = "image"
# judgements have the levels of findings, and `open`, which is shown as a note
_DOCS = "kedge help doctor image"
_HEADLINES = {NATIVE: OK, MINOR: NOTE, FORWARD: NOTE, PTX: WARNING, NO: FAIL, UNKNOWN: NOTE}
_FIRST_CONSTRAINED = "25.03"  # the first release of PyTorch images that pins its packages for pip
_EMPTY_DRIVER = "is empty: the image was made in a container"  # a note of traits that is worth a warning


def judge_image(
    traits: ImageTraits, verdict: Verdict | None, target: Target | None, environ: Mapping[str, str]
) -> list[Finding]:
    """List all findings about an image that kedge could read."""
    findings = [_describe(traits)]
    if verdict is not None:
        findings += _judge_verdict(verdict)
    findings += _judge_notes(traits)
    findings += _judge_libraries(traits, target)
    findings += _judge_entrypoint(traits)
    findings += _judge_packages(traits, environ)
    return findings


def explain_problem(name: str, problem: KedgeError) -> Finding:
    """Explain why kedge cannot read an image: damaged, truncated, missing, or not accessible."""
    return Finding(
        NAME, FAIL, problem.message, why=f"kedge cannot judge or run {name}", fix=problem.hint or
        f"run: kedge explain --verbose {name}", docs=_DOCS
    )  # fmt: skip


def _describe(traits: ImageTraits) -> Finding:
    words = [f"{traits.framework.value} {traits.framework_version.value}".strip()]
    words += [f"CUDA {traits.cuda.value}"] if traits.cuda else []
    words += [f"Python {traits.python.value}"] if traits.python else []
    words += [traits.os.value, ", ".join(traits.architectures) or traits.architecture]
    return Finding(NAME, OK, f"{traits.name}: {', '.join(word for word in words if word) or 'content unknown'}")


def _judge_verdict(verdict: Verdict) -> Iterator[Finding]:
    """The verdict, and its judgements other than `ok`."""
    level = _HEADLINES.get(verdict.outcome, NOTE)
    main = next((judgement for judgement in verdict.judgements if judgement.level == FAIL), None)
    why = main.sentence if main is not None else "this sums up the other findings about this image"
    below = "see the findings below for remedies"
    fix = (_tell_fix(main) if main is not None else "") or below
    yield Finding(NAME, level, verdict.headline, *(("", "") if level == OK else (why, fix)), _DOCS)
    for judgement in verdict.judgements:
        if judgement.level == OK or judgement is main:
            continue
        shown_level = judgement.level if judgement.level in (FAIL, WARNING) else NOTE
        yield Finding(NAME, shown_level, judgement.sentence, why="", fix=_tell_fix(judgement), docs=_DOCS)


def _tell_fix(judgement: Judgement) -> str:
    """The remedy; its options belong to `kedge explain`."""
    is_option = any(word in judgement.remedy for word in ("--on ", "--gpu", "--driver", "--arch"))
    return f"{judgement.remedy} These are options of 'kedge explain'." if is_option else judgement.remedy


def _judge_notes(traits: ImageTraits) -> Iterator[Finding]:
    for note in traits.notes:
        if _EMPTY_DRIVER in note:
            what, _, why = note.partition(": ")
            fix = "delete these files and rebuild the image; kedge's --nv puts the host's libraries first"
            yield Finding(NAME, WARNING, what, why=why, fix=fix, docs=_DOCS)
        else:
            yield Finding(NAME, NOTE, note, why="", fix="", docs=_DOCS)


def _judge_libraries(traits: ImageTraits, target: Target | None) -> Iterator[Finding]:
    if traits.glibc.value == "musl":
        yield Finding(
            NAME,
            WARNING if target is not None and target.has_gpus else NOTE,
            "the image uses musl (Alpine), not glibc",
            why="NVIDIA's driver libraries and the host's MPI and network libraries need glibc, so --nv does not help",
            fix="for GPUs use an image based on Debian, Ubuntu or Rocky Linux",
            docs=_DOCS,
        )
    cards = [gpu.name for gpu in target.gpus if gpu.takes_forward_compat is False] if target is not None else []
    if traits.compat and cards:
        yield Finding(
            NAME,
            NOTE,
            f"the image contains its own libcuda ({traits.driver.value or 'version unknown'}) for older drivers",
            why=f"it refuses GPUs such as {cards[0]}: 'forward compatibility was attempted on non supported HW' (804)",
            fix="kedge uses the host's libcuda; with other runtimes remove /usr/local/cuda/compat from LD_LIBRARY_PATH",
            docs=_DOCS,
        )


def _judge_entrypoint(traits: ImageTraits) -> Iterator[Finding]:
    if not any("nvidia_entrypoint" in word for word in traits.entrypoint):
        return
    yield Finding(
        NAME,
        NOTE,
        "'kedge run' starts NVIDIA's entrypoint script; 'exec' and 'shell' do not",
        why="with exec and shell its output (driver, licence, warnings) and its shell settings (shinit) are missing",
        fix="exec works, because kedge selects libcuda itself; if a program misses a setting, use 'kedge run'",
        docs=_DOCS,
    )


def _judge_packages(traits: ImageTraits, environ: Mapping[str, str]) -> Iterator[Finding]:
    release = traits.release.value
    if traits.framework.value == "PyTorch" and release:
        yield _explain_pip(release)
    minor = ".".join(traits.python.value.split(".")[:2])
    sites = [site for site in list_user_sites(home_directory(environ)) if site.startswith(f"python{minor} ")]
    if not minor or not sites or environ.get("PYTHONNOUSERSITE"):
        return
    kept = {name.strip() for name in environ.get("KEDGE_KEEP", "").split(",")}
    is_passed = bool(kept & {"all", "user-site"})
    yield Finding(
        NAME,
        WARNING if is_passed else NOTE,
        f"your home has packages for the Python of this image: ~/.local/lib/{sites[0]}",
        why="if passed into the container, they override the image's packages, for example torch or numpy",
        fix="unset KEDGE_KEEP"
        if is_passed
        else "kedge does not pass them on; with Apptainer: export PYTHONNOUSERSITE=1",
        docs=_DOCS,
    )


def _explain_pip(release: str) -> Finding:
    if is_at_least(release, _FIRST_CONSTRAINED):
        return Finding(
            NAME,
            NOTE,
            "pip in this image is pinned to the versions it was built with (PIP_CONSTRAINT=/etc/pip/constraint.txt)",
            why="'pip install' of a package that needs other versions fails with 'ResolutionImpossible'",
            fix="pip install --no-deps NAME; or set PIP_CONSTRAINT to a copy of the file without the conflicting lines",
            docs=_DOCS,
        )
    return Finding(
        NAME,
        NOTE,
        f"pip in this image ({release}) may replace NVIDIA's build of torch",
        why="pip takes NVIDIA's pre-release version for older than packages require, and installs another torch",
        fix="save 'pip list --format=freeze' to FILE, and install with PIP_CONSTRAINT=FILE; or use --no-deps",
        docs=_DOCS,
    )
