# SPDX-License-Identifier: BSD-3-Clause
"""The answer to `will it run there`: one outcome, one sentence, and the judgements it is made of."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen

# Outcomes, from best to worst; `unknown` where too little is known to say.
NATIVE = "native"  # the driver is new enough, and there are kernels for the GPU
MINOR = "minor-version"  # an older driver of the same CUDA major: runs, but PTX cannot be compiled at run time
FORWARD = "forward-compatible"  # the image's own libcuda runs on the older driver
PTX = "ptx"  # no kernels for this GPU; the driver compiles them from PTX when the program starts
NO = "no"
UNKNOWN = "unknown"
OUTCOMES = (NATIVE, MINOR, FORWARD, PTX, NO, UNKNOWN)

# Levels of judgements
OK, NOTE, WARNING, FAIL, OPEN = "ok", "note", "warning", "fail", "open"  # open: unknown


@frozen
class Judgement:
    """One rule's answer, in sentences that a user reads."""

    subject: str  # driver, gpu, requirement, processor, glibc, mpi, image
    level: str
    sentence: str  # what is so, and why
    remedy: str = ""  # what to do; empty where nothing is needed
    outcome: str = ""  # of driver and gpu: one of OUTCOMES


@frozen
class Verdict(JsonValue):
    """Of one image on one target."""

    json_also = ("runs",)

    outcome: str
    headline: str  # `runs natively on NVIDIA H200 with driver 580.95.05`
    judgements: tuple[Judgement, ...] = ()
    target: str = ""
    image: str = ""

    @property
    def runs(self) -> bool | None:
        """Whether the image runs; None where that is unknown."""
        return None if self.outcome == UNKNOWN else self.outcome != NO

    @property
    def failures(self) -> tuple[Judgement, ...]:
        """The judgements that keep it from running."""
        return tuple(judgement for judgement in self.judgements if judgement.level == FAIL)
