# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA_REQUIRE_*: real values of images on real drivers, what is malformed, and what is not known."""

from __future__ import annotations

from kedge.compat.rules.nvidia_require_rule import (
    Evaluation,
    ExpressionValues,
    evaluate,
    judge_requirements,
    list_requirements,
)
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Gpu, Target
from kedge.compat.traits import Fact, ImageTraits
from kedge.compat.verdict import MINOR, NATIVE, NO, NOTE, WARNING
from tests.builders.rows import each_row

R_10_2 = "cuda>=10.2 brand=tesla,driver>=396,driver<397 brand=tesla,driver>=418,driver<419"
R_11_6 = "cuda>=11.6 brand=tesla,driver>=418,driver<419 brand=geforce,driver>=470,driver<471"
R_12_8 = "cuda>=12.8 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536"
ADVICE = ", please update your driver to a newer version, or use an earlier cuda container"
A100 = ExpressionValues(cuda="12.2", driver="535.104.05", arch="8.0", brand="nvidia")
K80 = ExpressionValues(cuda="10.1", driver="418.87.00", arch="3.7", brand="tesla")
RTX = ExpressionValues(cuda="12.2", driver="535.104.05", arch="8.6", brand="geforce")


@each_row(("expression", "there", "holds"), [
    ("cuda>=9.0", A100, True), (R_10_2, K80, True), (R_10_2, A100, True), (R_11_6, K80, True), (R_12_8, A100, True),
    (R_12_8, RTX, False), (R_12_8, K80, False),
    ("CUDA>=12.3", A100, False),  # names in capitals, as the arm64 images of 12.3 have them
    ("cuda=12.2", A100, True), ("cuda=12.2.0", A100, True), ("cuda!=12.2", A100, False),
    ("cuda!12.3", A100, True),  # a lone ! counts as !=
    ("cuda<12.2", A100, False), ("cuda<=12.2", A100, True), ("cuda>12.1", A100, True),
    ("driver>=535.104.05", A100, True), ("driver>=535.104.06", A100, False), ("arch>=8.0,brand=NVIDIA", A100, True),
    ("brand!=tesla", A100, True), ("arch<3.5", K80, False), ("", A100, True), ("  cuda>=9.0", A100, True),
    ("cuda>=99 ,", A100, False), (",,cuda>=9.0,,", A100, True),
    ("cuda>=9.0 nonsense", A100, True),  # what follows a part that holds is not looked at
    ("cuda>=99,nonsense cuda>=9.0", A100, True),
])  # fmt: skip
def test_requirements_hold_as_nvidia_evaluates_them(expression: str, there: ExpressionValues, holds: bool) -> None:
    assert evaluate(expression, there).holds is holds


@each_row("expression", [
    *("nonsense", "cuda", "cuda>=", ">=9.0", "cuda==9.0", "cuda=>9.0", "cuda>=x", "cuda>=.9", "os=linux"),
    *("brand>tesla", "brand<=tesla", "cuda>=99 vendor=x", "cuda>=9.0,bad", "brand=" + "x" * 130, "cuda><9"),
])  # fmt: skip
def test_requirements_malformed_are_named(expression: str) -> None:
    assert evaluate(expression, A100) == Evaluation(False, "invalid expression")


def test_requirements_message_and_what_is_not_known() -> None:
    assert evaluate(R_12_8, RTX).problem == f"unsatisfied condition: cuda>=12.8{ADVICE}"
    assert evaluate("driver>=999", RTX).problem == "unsatisfied condition: driver>=999"
    assert evaluate("arch>=9.0,brand=tesla", ExpressionValues(has_gpu=False)).holds is True
    unknown = ExpressionValues(cuda="12.2", driver="535.104.05")
    assert evaluate(R_12_8, unknown).holds is None
    assert evaluate("cuda>=99,brand=tesla", unknown).holds is False
    assert evaluate("brand=tesla cuda>=9.0", unknown).holds is True
    assert evaluate("brand=tesla,nonsense", unknown).holds is None
    assert evaluate("brand=tesla nonsense", unknown).holds is None
    assert evaluate("driver>=535.104.05", ExpressionValues(driver="535")).holds is None
    assert evaluate("driver>=535,driver<536", ExpressionValues(driver="535")).holds is True


TABLES = load_tables()


def make_traits(expression: str, cuda: str = "12.8.1", **changes: object) -> ImageTraits:
    return ImageTraits(
        "nvcr.io/nvidia/cuda:12.8.1-base-ubuntu22.04",
        cuda=Fact(cuda, "image config, CUDA_VERSION"),
        requires=(("NVIDIA_REQUIRE_CUDA", expression),) if expression else (),
        **changes,  # type: ignore[arg-type]
    )


def make_target(gpu: str, driver: str) -> Target:
    return Target(f"{gpu} with driver {driver}", "named", (find_gpu(gpu, TABLES),), driver=driver)


def test_requirements_are_told_by_what_the_image_does() -> None:
    found = judge_requirements(make_traits(R_12_8), make_target("RTX 3090", "535.104.05"), TABLES, outcome=MINOR)
    assert [(each.level, each.sentence, each.remedy) for each in found] == [
        (
            WARNING,
            "docker, podman and enroot refuse the image on GeForce RTX 3090 with driver 535.104.05: its "
            "NVIDIA_REQUIRE_CUDA requires cuda>=12.8 or one of the drivers it lists. kedge and 'apptainer --nv' do "
            "not check that, and start it.",
            "With docker, podman or enroot, set NVIDIA_DISABLE_REQUIRE=1.",
        )
    ]
    found = judge_requirements(make_traits("cuda>=12.8"), make_target("V100", "470.57.02"), TABLES, outcome=NO)
    assert [(each.level, each.sentence) for each in found] == [
        (
            NOTE,
            "docker, podman and enroot refuse the image on Tesla V100 with driver 470.57.02: its NVIDIA_REQUIRE_CUDA "
            "requires cuda>=12.8.",
        )
    ]
    target = make_target("V100", "470.57.02")
    found = judge_requirements(make_traits("cuda>=9.0"), target, TABLES, outcome=NO)
    assert [(each.level, each.sentence) for each in found] == [
        (
            NOTE,
            "docker, podman and enroot start the image on Tesla V100 nevertheless, because its NVIDIA_REQUIRE_CUDA "
            "requires cuda>=9.0 only. That does not mean that its programs run.",
        )
    ]
    assert judge_requirements(make_traits("cuda>=9.0"), target, TABLES, outcome=NATIVE) == []
    found = judge_requirements(make_traits("cuda"), make_target("V100", "580.95.05"), TABLES, outcome=NATIVE)
    assert [(each.level, each.sentence) for each in found] == [
        (
            WARNING,
            "docker, podman and enroot refuse the image: its NVIDIA_REQUIRE_CUDA is malformed ('invalid expression').",
        )
    ]


def test_requirements_of_each_gpu_and_variable() -> None:
    gpus = (find_gpu("A100", TABLES), find_gpu("RTX 3090", TABLES))
    target = Target("queue gpu", "queue", gpus, driver="535.104.05")
    found = judge_requirements(make_traits(R_12_8), target, TABLES, outcome=MINOR)
    assert len(found) == 1
    assert "on GeForce RTX 3090" in found[0].sentence
    old = make_traits("", "11.0.167")
    assert list_requirements(old) == [("CUDA_VERSION", "cuda>=11.0")]
    found = judge_requirements(old, make_target("V100", "418.87.00"), TABLES, outcome=MINOR)
    assert "its CUDA_VERSION requires cuda>=11.0." in found[0].sentence
    from_table = ImageTraits("x", cuda=Fact("11.0.167", "table, CUDA 11.0"))
    assert list_requirements(from_table) == []  # what the image itself says is not known
    traits = ImageTraits(
        "x",
        requires=(
            ("NVIDIA_REQUIRE_CUDA", "cuda>=9.0"),
            ("NVIDIA_REQUIRE_DRIVER", "driver>=999"),
            ("NVIDIA_REQUIRE_JETPACK", "csv-mounts=all"),
        ),
    )
    found = judge_requirements(traits, make_target("V100", "580.95.05"), TABLES, outcome=NATIVE)
    assert ["NVIDIA_REQUIRE_DRIVER requires driver>=999" in each.sentence for each in found] == [True]
    off = make_traits(R_12_8, disables_requires=True)
    assert judge_requirements(off, make_target("RTX 3090", "535.104.05"), TABLES, outcome=MINOR) == []
    assert judge_requirements(make_traits(R_12_8), Target("x", gpus=(Gpu("y"),)), TABLES, outcome=NATIVE) == []
