# SPDX-License-Identifier: BSD-3-Clause
"""Processor: the architecture of an image against that of a machine, and the instructions that NGC images ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.compat.verdict import FAIL, OK, OPEN, WARNING, Judgement

if TYPE_CHECKING:
    from kedge.compat.image.traits import ImageTraits
    from kedge.compat.target import Target


def judge_processor(traits: ImageTraits, target: Target) -> list[Judgement]:
    """What is to be said about the processor; nothing where nothing is known."""
    ours, offered = target.architecture, traits.architectures or (traits.architecture,)
    if not ours or not any(offered):
        return []
    if ours not in offered:
        what = " and ".join(each for each in offered if each)
        sentence = f"The image is for {what}, and {target.title} has {ours}: programs stop with 'Exec format error'."
        return [Judgement("processor", FAIL, sentence, f"Take a tag that has {ours}, or a node with {offered[0]}.")]
    if traits.architecture and traits.architecture != ours:
        sentence = f"What is told here is the image for {traits.architecture}; there is one for {ours}, too."
        return [Judgement("processor", OPEN, sentence, f"Ask for that one with --arch {ours}.")]
    return [Judgement("processor", OK, f"There is an image for {ours}."), *_judge_instructions(traits, target)]


def _judge_instructions(traits: ImageTraits, target: Target) -> list[Judgement]:
    """NVIDIA's monthly images look for AVX when they start, and warn where there is none."""
    if target.architecture != "amd64" or not traits.release or target.cpu_features is None:
        return []
    if "avx" in target.cpu_features:
        return []
    cpu = f" ({target.cpu})" if target.cpu else ""
    sentence = f"NVIDIA's images ask for a processor with AVX, and {target.title}{cpu} has none."
    remedy = "Should a program stop with 'Illegal instruction', take another node."
    return [Judgement("processor", WARNING, sentence, remedy)]
