# SPDX-License-Identifier: BSD-3-Clause
"""CPU: the architecture of an image against that of a host, and the instructions that NGC images need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.compat.target import THIS_MACHINE
from kedge.compat.verdict import FAIL, OK, OPEN, WARNING, Judgement

if TYPE_CHECKING:
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits


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
