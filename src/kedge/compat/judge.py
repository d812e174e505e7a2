# SPDX-License-Identifier: BSD-3-Clause
"""Joins what the rules say about an image on a target into one verdict: the worst of driver, GPU and CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.compat.rules.cpu_rule import judge_processor
from kedge.compat.rules.glibc_rule import judge_glibc
from kedge.compat.rules.gpu_judgement import RANKS, GpuJudgement, judge_gpu
from kedge.compat.rules.mpi_rule import judge_mpi
from kedge.compat.rules.nvidia_require_rule import judge_requirements
from kedge.compat.target import Gpu, join_names
from kedge.compat.verdict import FAIL, FORWARD, MINOR, NATIVE, NO, NOTE, PTX, UNKNOWN, Judgement, Verdict

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
