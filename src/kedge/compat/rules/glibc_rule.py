# SPDX-License-Identifier: BSD-3-Clause
"""C library: what happens to host libraries inside an image. kedge brings in the driver's own, which need little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.versions import order
from kedge.compat.verdict import NOTE, WARNING, Judgement

if TYPE_CHECKING:
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits

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
