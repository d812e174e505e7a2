# SPDX-License-Identifier: BSD-3-Clause
"""What is said of one image: whether it runs, and the traps that its kind is known for. Pure, apart from the home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kedge.compat.image.traits import ImageTraits
from kedge.compat.target import Target
from kedge.compat.verdict import FORWARD, MINOR, NATIVE, NO, PTX, UNKNOWN, Judgement, Verdict
from kedge.compat.versions import is_at_least
from kedge.doctor.environment.leaks import list_user_sites
from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.errors import KedgeError
from kedge.settings import home_directory

NAME = "image"
# levels of judgements have the names of those of findings, but for `open`, which is no more than a note
_DOCS = "kedge help doctor image"
_HEADLINES = {NATIVE: OK, MINOR: NOTE, FORWARD: NOTE, PTX: WARNING, NO: FAIL, UNKNOWN: NOTE}
_FIRST_CONSTRAINED = "25.03"  # the first release of PyTorch images that pins its packages for pip
_EMPTY_DRIVER = "is empty: the image was made in a container"  # a note of traits that is a trap


def judge_image(
    traits: ImageTraits, verdict: Verdict | None, target: Target | None, environ: Mapping[str, str]
) -> list[Finding]:
    """All findings about an image that could be read."""
    findings = [_describe(traits)]
    if verdict is not None:
        findings += _judge_verdict(verdict)
    findings += _judge_notes(traits)
    findings += _judge_libraries(traits, target)
    findings += _judge_entrypoint(traits)
    findings += _judge_packages(traits, environ)
    return findings


def explain_problem(name: str, problem: KedgeError) -> Finding:
    """The finding for an image that could not be read: damaged, cut short, not there, or not ours."""
    return Finding(
        NAME, FAIL, problem.message, f"nothing can be said about {name}, and it cannot be run", problem.hint or
        "try 'kedge explain' with --verbose", _DOCS
    )  # fmt: skip


def _describe(traits: ImageTraits) -> Finding:
    words = [f"{traits.framework.value} {traits.framework_version.value}".strip()]
    words += [f"CUDA {traits.cuda.value}"] if traits.cuda else []
    words += [f"Python {traits.python.value}"] if traits.python else []
    words += [traits.os.value, ", ".join(traits.architectures) or traits.architecture]
    return Finding(
        NAME, OK, f"{traits.name}: {', '.join(word for word in words if word) or 'what is in it is not known'}"
    )


def _judge_verdict(verdict: Verdict) -> Iterator[Finding]:
    """The verdict, and those of its judgements that say more than `fine`."""
    level = _HEADLINES.get(verdict.outcome, NOTE)
    main = next((each for each in verdict.judgements if each.level == FAIL), None)
    why = main.sentence if main is not None else "this is what the other findings of this image come to"
    below = "the findings below say what to do, where something is to be done"
    fix = (_tell_fix(main) if main is not None else "") or below
    yield Finding(NAME, level, verdict.headline, *(("", "") if level == OK else (why, fix)), _DOCS)
    for each in verdict.judgements:
        if each.level == OK or each is main:
            continue
        told = each.level if each.level in (FAIL, WARNING) else NOTE
        yield Finding(NAME, told, each.sentence, "", _tell_fix(each), _DOCS)


def _tell_fix(judgement: Judgement) -> str:
    """The remedy; options that it names are those of `explain`."""
    is_option = any(word in judgement.remedy for word in ("--on ", "--gpu", "--driver", "--arch"))
    return f"{judgement.remedy} These are options of 'kedge explain'." if is_option else judgement.remedy


def _judge_notes(traits: ImageTraits) -> Iterator[Finding]:
    for note in traits.notes:
        if _EMPTY_DRIVER in note:
            what, _, rest = note.partition(": ")
            fix = "delete such files and build the image again; --nv of kedge puts the host's libraries before them"
            yield Finding(NAME, WARNING, what, rest, fix, _DOCS)
        else:
            yield Finding(NAME, NOTE, note, "", "", _DOCS)


def _judge_libraries(traits: ImageTraits, target: Target | None) -> Iterator[Finding]:
    if traits.glibc.value == "musl":
        yield Finding(
            NAME,
            WARNING if target is not None and target.has_gpus else NOTE,
            "the image is built with musl (Alpine), not with glibc",
            "NVIDIA's driver libraries, and host libraries of MPI and fast networks, need glibc: --nv does not help",
            "for GPUs take an image made of Debian, Ubuntu or Rocky Linux",
            _DOCS,
        )
    cards = [gpu.name for gpu in target.gpus if gpu.takes_forward_compat is False] if target is not None else []
    if traits.compat and cards:
        yield Finding(
            NAME,
            NOTE,
            f"the image brings a libcuda of its own ({traits.driver.value or 'version not known'}) for older drivers",
            f"it refuses cards such as {cards[0]}: 'forward compatibility was attempted on non supported HW' (804)",
            "kedge uses the host's there; with other runtimes take /usr/local/cuda/compat out of LD_LIBRARY_PATH",
            _DOCS,
        )


def _judge_entrypoint(traits: ImageTraits) -> Iterator[Finding]:
    if not any("nvidia_entrypoint" in word for word in traits.entrypoint):
        return
    yield Finding(
        NAME,
        NOTE,
        "'kedge run' starts NVIDIA's entrypoint script; 'exec' and 'shell' do not",
        "what it prints (driver, licence, warnings) and what shells source from it (shinit) is missing with exec",
        "kedge chooses the libcuda itself, so exec is fine; where a program misses a setting, use 'kedge run'",
        _DOCS,
    )


def _judge_packages(traits: ImageTraits, environ: Mapping[str, str]) -> Iterator[Finding]:
    release = traits.release.value
    if traits.framework.value == "PyTorch" and release:
        yield _explain_pip(release)
    minor = ".".join(traits.python.value.split(".")[:2])
    sites = [each for each in list_user_sites(home_directory(environ)) if each.startswith(f"python{minor} ")]
    if not minor or not sites or environ.get("PYTHONNOUSERSITE"):
        return
    kept = {name.strip() for name in environ.get("KEDGE_KEEP", "").split(",")}
    is_let_in = bool(kept & {"all", "user-site"})
    yield Finding(
        NAME,
        WARNING if is_let_in else NOTE,
        f"your home has packages for the Python of this image: ~/.local/lib/{sites[0]}",
        "where they are let in, they come before those of the image: another torch or numpy than it was made for",
        "unset KEDGE_KEEP" if is_let_in else "kedge keeps them outside; with Apptainer: export PYTHONNOUSERSITE=1",
        _DOCS,
    )


def _explain_pip(release: str) -> Finding:
    if is_at_least(release, _FIRST_CONSTRAINED):
        return Finding(
            NAME,
            NOTE,
            "pip in this image is bound to the versions it was built with (PIP_CONSTRAINT=/etc/pip/constraint.txt)",
            "'pip install' of something that wants other versions ends with 'ResolutionImpossible'",
            "pip install --no-deps NAME; or a copy of the file without the lines in question: PIP_CONSTRAINT=COPY",
            _DOCS,
        )
    return Finding(
        NAME,
        NOTE,
        f"nothing keeps pip in this image ({release}) from replacing NVIDIA's build of torch",
        "its version counts as older than the one that packages ask for: 'pip install' brings another torch",
        "write its 'pip list --format=freeze' to a file, and install with PIP_CONSTRAINT=FILE; or with --no-deps",
        _DOCS,
    )
