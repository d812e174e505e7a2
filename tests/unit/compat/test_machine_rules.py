# SPDX-License-Identifier: BSD-3-Clause
"""Processor, C library and MPI of an image against those of a machine, with the sentences that users read."""

from __future__ import annotations

from kedge.compat.judge import judge_glibc, judge_mpi, judge_processor
from kedge.compat.target import Target
from kedge.compat.traits import Fact, ImageTraits
from kedge.compat.verdict import FAIL, NOTE, OK, OPEN, WARNING, Judgement
from tests.builders.rows import each_row
from tests.wording import assert_reads


def make_image(**facts: object) -> ImageTraits:
    values = {name: Fact(value, "x") if isinstance(value, str) else value for name, value in facts.items()}
    if "architecture" in facts:
        values["architecture"] = facts["architecture"]
    return ImageTraits("image", **values)  # type: ignore[arg-type]


def tell(found: list[Judgement]) -> list[tuple[str, str]]:
    return [(each.level, each.sentence) for each in found]


def test_processor_rules() -> None:
    found = judge_processor(
        make_image(architecture="amd64", architectures=("amd64",)), Target("gh1", architecture="arm64")
    )
    assert tell(found) == [
        (FAIL, ("The image is for amd64, and gh1 is arm64: programs fail with 'Exec format error'."))
    ]
    assert_reads(found[0].remedy, "compat/take-tag-node", "arm64", "amd64")
    both = make_image(architecture="arm64", architectures=("amd64", "arm64"))
    assert tell(judge_processor(both, Target("gh1", architecture="arm64"))) == [(OK, "There is an image for arm64.")]
    assert tell(judge_processor(both, Target("n1", architecture="amd64"))) == [
        (OPEN, "This describes the image for arm64; there is also one for amd64.")
    ]
    assert judge_processor(make_image(), Target("n1", architecture="amd64")) == []
    assert judge_processor(make_image(architecture="amd64"), Target("n1")) == []
    image = make_image(architecture="amd64", release="24.01")
    old = Target("n1", architecture="amd64", cpu_features=frozenset({"sse4_2"}), cpu="Xeon X5670")
    assert tell(judge_processor(image, old)) == [
        (WARNING, "NVIDIA's images need a CPU with AVX, and n1 (Xeon X5670) has none.")
    ]
    new = Target("n1", architecture="amd64", cpu_features=frozenset({"avx", "avx2"}))
    assert tell(judge_processor(image, new)) == []
    assert tell(judge_processor(make_image(architecture="amd64"), old)) == []


def test_glibc_rules() -> None:
    found = judge_glibc(make_image(glibc="2.31"), Target("n1", glibc="2.35", has_gpus=True))
    assert tell(found) == [
        (
            NOTE,
            "The image has glibc 2.31, older than the 2.35 of n1. With 'apptainer --nv', which mounts graphics "
            "libraries of the host, programs can fail with 'GLIBC_2.34 not found'. kedge mounts the driver's own "
            "libraries only, which avoids this.",
        )
    ]
    found = judge_glibc(make_image(glibc="2.27"), Target("n1", glibc="2.28", mpi="Open MPI 4.1.4", has_gpus=False))
    assert tell(found) == [
        (
            WARNING,
            "The image has glibc 2.27, older than the 2.28 of n1. The host's Open MPI 4.1.4, if bound into the "
            "image, may need the newer one and not load.",
        )
    ]
    expected = (
        "The image (Alpine 3.19) uses the C library musl. The driver's libraries are built for glibc "
        "and do not load in it, so programs cannot use GPUs."
    )
    assert tell(judge_glibc(make_image(os="Alpine 3.19"), Target("n1", has_gpus=True))) == [(WARNING, expected)]
    assert judge_glibc(make_image(os="Alpine 3.19"), Target("n1", has_gpus=False)) == []


@each_row(("image", "host"), [("2.35", "2.31"), ("2.35", "2.35"), ("2.28", "2.31"), ("", "2.35"), ("2.31", "")])
def test_glibc_that_is_no_matter_says_nothing(image: str, host: str) -> None:
    assert judge_glibc(make_image(glibc=image), Target("n1", glibc=host, has_gpus=True)) == []


@each_row(("inside", "outside", "level", "sentence", "remedy"), [
    ("Open MPI 4.1.7", "Open MPI 4.1.4", OK,
     "The host's mpirun (Open MPI 4.1.4) can start ranks of the image (Open MPI 4.1.7).", ""),
    ("Open MPI 4.0.5", "Open MPI 4.1.4", NOTE,
     "The host's Open MPI 4.1.4 is newer than the image's Open MPI 4.0.5: within one major version this usually "
     "works; safest is a host that is not newer.",
     "If ranks do not find each other, start them with srun --mpi=pmix."),
    ("Open MPI 5.0.10", "Open MPI 4.1.4", WARNING,
     "The image has Open MPI 5.0.10, the host Open MPI 4.1.4: mpirun starts ranks of its own major version only.",
     "Start ranks with srun --mpi=pmix, or load Open MPI 5 on the host."),
    ("MPICH 4.0.2", "Open MPI 4.1.4", WARNING,
     "Open MPI 4.1.4 of the host cannot start ranks of MPICH 4.0.2: each rank would be rank 0 of 1, and nothing "
     "would say so.", "Start ranks with srun --mpi=pmi2, or with the image's own mpirun on one node."),
])  # fmt: skip
def test_mpi_of_image_and_host(inside: str, outside: str, level: str, sentence: str, remedy: str) -> None:
    (found,) = judge_mpi(make_image(mpi=inside), Target("n1", mpi=outside))
    assert (found.level, found.sentence, found.remedy) == (level, sentence, remedy)


def test_mpi_that_is_not_known_says_nothing() -> None:
    assert judge_mpi(make_image(), Target("n1", mpi="Open MPI 4.1.4")) == []
    assert judge_mpi(make_image(mpi="Open MPI 4.1.7"), Target("n1")) == []
