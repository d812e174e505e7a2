# SPDX-License-Identifier: BSD-3-Clause
"""Joins what the rules say about an image on a target into one verdict: the worst of driver, GPU and CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.base.versions import order
from kedge.cluster.mpi import DOUBTFUL, FAILS, SINGLETONS, WORKS, MpiHost, MpiImage
from kedge.compat.mpi.judge_hybrid import judge_hybrid
from kedge.compat.mpi.pmi import choose_mpi_type
from kedge.compat.mpi.stated import parse_title, read_stated_mpi
from kedge.compat.rules.gpu_judgement import RANKS, GpuJudgement, judge_gpu
from kedge.compat.rules.nvidia_require_rule import judge_requirements
from kedge.compat.target import THIS_MACHINE, Gpu, join_names
from kedge.compat.verdict import (
    FAIL,
    FORWARD,
    MINOR,
    NATIVE,
    NO,
    NOTE,
    OK,
    OPEN,
    PTX,
    UNKNOWN,
    WARNING,
    Judgement,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits

_WAYS = {
    NATIVE: "runs natively on",
    MINOR: "runs by minor-version compatibility on",
    FORWARD: "runs by forward compatibility on",
    PTX: "runs with kernels compiled from PTX on",
    UNKNOWN: "may run on",
    NO: "does not run on",
}
_NO_GPU = "Give the queue with --on SITE:QUEUE, or GPU and driver with --gpu and --driver."
_OF_GPUS = ("cuda", "driver", "cudnn", "nccl", "tensorrt", "capabilities", "release")  # what only images for GPUs have


def judge(traits: ImageTraits, target: Target, tables: Tables) -> Verdict:
    """Whether the image runs on the target, and why."""
    processor = judge_processor(traits, target)
    others = [*processor, *judge_glibc(traits, target), *judge_mpi(traits, target)]
    wrong = next((judgement for judgement in processor if judgement.level == FAIL), None)
    if target.has_gpus is False:
        return _judge_without_gpu(traits, target, others, wrong)
    by_gpu = [judge_gpu(traits, target, gpu, tables) for gpu in target.gpus or (Gpu(""),)]
    worst = max(by_gpu, key=lambda answer: RANKS.index(answer.outcome))
    judgements = _order_judgements(by_gpu)
    judgements += judge_requirements(traits, target, tables, outcome=worst.outcome)
    if wrong is not None:
        headline = f"does not run on {target.title}: {_shorten(wrong)}"
        return _make_verdict(NO, headline, [*others, *judgements], traits, target)
    headline = _make_headline(worst, by_gpu, target)
    return _make_verdict(worst.outcome, headline, [*judgements, *others], traits, target)


def _judge_without_gpu(
    traits: ImageTraits, target: Target, others: Sequence[Judgement], wrong: Judgement | None
) -> Verdict:
    needs = bool(traits.requires or any(getattr(traits, name) for name in _OF_GPUS))
    judgements = list(others)
    if needs:
        sentence = f"{target.title} has no NVIDIA GPU, so only its CPU is judged."
        judgements.append(Judgement("gpu", NOTE, sentence, _NO_GPU, UNKNOWN))
    if wrong is not None:
        return _make_verdict(NO, f"does not run on {target.title}: {_shorten(wrong)}", judgements, traits, target)
    if needs:
        headline = f"unknown whether its GPU programs run on the compute nodes: {target.title} has no NVIDIA GPU"
        return _make_verdict(UNKNOWN, headline, judgements, traits, target)
    if not traits.tells_processors and not traits.cuda.source:  # the image was not asked, and no table states it
        headline = f"unknown whether it runs on {target.title}: whether it needs a GPU is unknown"
        return _make_verdict(UNKNOWN, headline, judgements, traits, target)
    return _make_verdict(NATIVE, f"runs on {target.title}; it does not need a GPU", judgements, traits, target)


def _order_judgements(by_gpu: Sequence[GpuJudgement]) -> list[Judgement]:
    """Each sentence once; where kinds of GPU differ, first one that says which of them decides."""
    judgements: list[Judgement] = []
    for answer in sorted(by_gpu, key=lambda answer: -RANKS.index(answer.outcome)):
        judgements += [
            judgement for judgement in dict.fromkeys((answer.driver, answer.kernels)) if judgement not in judgements
        ]
    outcomes = sorted({answer.outcome for answer in by_gpu}, key=RANKS.index)
    if len(outcomes) > 1:
        ways = "; ".join(f"{_WAYS[outcome]} {_name_gpus(by_gpu, outcome)}" for outcome in outcomes)
        sentence = f"There are several kinds of GPU, and the worst decides. The image {ways}."
        judgements.insert(0, Judgement("gpu", NOTE, sentence, "Request one kind of GPU in the job."))
    return judgements


def _name_gpus(by_gpu: Sequence[GpuJudgement], *outcomes: str) -> str:
    return join_names(answer.gpu.name for answer in by_gpu if answer.outcome in outcomes)


def _make_headline(worst: GpuJudgement, by_gpu: Sequence[GpuJudgement], target: Target) -> str:
    where = _name_gpus(by_gpu, worst.outcome) or target.title
    if target.driver and target.driver not in where:
        where += f" with driver {target.driver}"
    reason = f": {worst.reason}" if worst.reason else ""
    headline = {
        NATIVE: f"runs natively on {where}",
        MINOR: f"runs on {where} by minor-version compatibility{reason}",
        FORWARD: f"runs on {where} by forward compatibility{reason}",
        PTX: f"runs on {where}{reason}",
        NO: f"does not run on {where}{reason}",
        UNKNOWN: f"unknown whether it runs on {where}{reason}",
    }[worst.outcome]
    better = _name_gpus(by_gpu, *RANKS[: min(RANKS.index(UNKNOWN), RANKS.index(worst.outcome))])
    return f"{headline}; it runs on {better}" if worst.outcome in (NO, UNKNOWN) and better else headline


def _make_verdict(
    outcome: str, headline: str, judgements: Sequence[Judgement], traits: ImageTraits, target: Target
) -> Verdict:
    return Verdict(outcome, headline, tuple(judgements), target=target.title, image=traits.name)


def _shorten(judgement: Judgement) -> str:
    """A sentence as the end of another one: its first part."""
    first = judgement.sentence.partition(". ")[0].partition(": ")[0].rstrip(".")
    return first[:1].lower() + first[1:]


# CPU: the architecture of an image against that of a host, and the instructions that NGC images need.


def judge_processor(traits: ImageTraits, target: Target) -> list[Judgement]:
    """Judgements about the CPU; none where nothing is known."""
    ours, offered = target.architecture, traits.architectures or (traits.architecture,)
    if not ours or not any(offered):
        return []
    if ours not in offered:
        return [_refuse(" and ".join(architecture for architecture in offered if architecture), offered[0], target)]
    if not traits.tells_processors:
        return _judge_unseen(traits, target)
    if traits.architecture and traits.architecture != ours:
        sentence = f"This describes the image for {traits.architecture}; there is also one for {ours}."
        return [Judgement("processor", OPEN, sentence, f"Add --arch {ours} to see that one.")]
    sentence = f"There is an image for {ours}." if len(offered) > 1 else f"The image is for {ours}."
    return [Judgement("processor", OK, sentence), *_judge_instructions(traits, target)]


def _refuse(offered: str, first: str, target: Target) -> Judgement:
    ours = target.architecture
    if target.architecture_source == THIS_MACHINE:
        sentence = f"The image is for {offered}, and this host is {ours}: programs fail with 'Exec format error'."
        remedy = f"If the compute nodes are {first}, add --arch {first}; else take a tag for {ours}."
        return Judgement("processor", FAIL, sentence, remedy)
    sentence = f"The image is for {offered}, and {target.title} is {ours}: programs fail with 'Exec format error'."
    return Judgement("processor", FAIL, sentence, f"Take a tag for {ours}, or a node with {first}.")


def _judge_unseen(traits: ImageTraits, target: Target) -> list[Judgement]:
    """By the tables alone, which do not say it of most tags; all of NVIDIA's have an image for amd64."""
    ours = target.architecture
    if ours == "amd64":
        return _judge_instructions(traits, target)
    return [Judgement("processor", OPEN, f"It is unknown whether there is an image for {ours}.")]


def _judge_instructions(traits: ImageTraits, target: Target) -> list[Judgement]:
    """NVIDIA's monthly images look for AVX when they start, and warn where there is none."""
    if target.architecture != "amd64" or not traits.release or target.cpu_features is None:
        return []
    if "avx" in target.cpu_features:
        return []
    cpu = f" ({target.cpu})" if target.cpu else ""
    sentence = f"NVIDIA's images need a CPU with AVX, and {target.title}{cpu} has none."
    remedy = "If a program fails with 'Illegal instruction', use another node."
    return [Judgement("processor", WARNING, sentence, remedy)]


# C library: what happens to host libraries inside an image. kedge brings in the driver's own, which need little.

_MUSL_SYSTEMS = ("alpine", "void", "chimera")
_GLVND_SINCE = (2, 34)  # hosts from here on have graphics loaders that older images cannot load


def judge_glibc(traits: ImageTraits, target: Target) -> list[Judgement]:
    """Judge how libraries of the host get on with the image's C library; empty where nothing is known."""
    if _is_musl(traits):
        sentence = (
            f"The image ({traits.os.value or 'musl'}) uses the C library musl. The driver's libraries are built for "
            f"glibc and do not load in it, so programs cannot use GPUs."
        )
        remedy = "Take an image based on Ubuntu, Debian or Rocky Linux."
        return [Judgement("glibc", WARNING, sentence, remedy)] if target.has_gpus is not False else []
    ours, theirs = order(traits.glibc.value), order(target.glibc)
    if not ours or not theirs or theirs <= ours:
        return []
    older = f"The image has glibc {traits.glibc.value}, older than the {target.glibc} of {target.title}."
    judgements = []
    if target.has_gpus is not False and theirs >= _GLVND_SINCE > ours:
        sentence = (
            f"{older} With 'apptainer --nv', which mounts graphics libraries of the host, programs can fail with "
            f"'GLIBC_2.34 not found'. kedge mounts the driver's own libraries only, which avoids this."
        )
        judgements.append(Judgement("glibc", NOTE, sentence))
    if target.mpi:
        sentence = f"{older} The host's {target.mpi}, if bound into the image, may need the newer one and not load."
        judgements.append(Judgement("glibc", WARNING, sentence, "Use the image's own MPI, or a newer image."))
    return judgements


def _is_musl(traits: ImageTraits) -> bool:
    """Whether the image's C library is musl."""
    return "musl" in traits.glibc.value.lower() or traits.os.value.lower().startswith(_MUSL_SYSTEMS)


# MPI: whether the launcher of a host starts ranks with the MPI of an image, as `compat/mpi` judges it.
#
# `kedge mpi check` and `kedge launch` know more, because they read files; what is certain by names is said here.

_LEVELS = {WORKS: OK, DOUBTFUL: NOTE, FAILS: WARNING, SINGLETONS: WARNING}
_USUAL = ("pmix", "pmi2")  # what srun has at most sites


def judge_mpi(traits: ImageTraits, target: Target) -> list[Judgement]:
    """Judge jobs of several ranks; no judgement where either MPI is unknown."""
    inside = read_stated_mpi(traits)
    outside = replace(parse_title(target.mpi), launcher=target.mpi) if target.mpi else None
    if inside is None or outside is None or not inside.abi or not outside.abi:
        return []
    verdict = judge_hybrid(MpiImage(traits.name, (inside,)), MpiHost(outside))
    remedy = verdict.remedy
    if verdict.level == SINGLETONS:
        word = choose_mpi_type(inside, _USUAL)
        remedy = f"start ranks with srun --mpi={word}, or with the image's own mpirun on one node"
    level = _LEVELS.get(verdict.level, NOTE)
    return [Judgement("mpi", level, _make_sentence(verdict.reason), _make_sentence(remedy))]


def _make_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
