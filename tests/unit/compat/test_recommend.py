# SPDX-License-Identifier: BSD-3-Clause
"""Recommendations over the shipped tables: the newest that runs natively, the next best, or why there is none."""

from __future__ import annotations

import itertools

import pytest

from kedge.compat.contents.read_traits import read_traits
from kedge.compat.judge import judge
from kedge.compat.recommend import NO_KERNELS, Recommendation, advise, recommend
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.tables.load import Tables, load_tables
from kedge.compat.tables.rows import NgcRelease
from kedge.compat.tag_candidates import resolve_image
from kedge.compat.target import Target
from kedge.compat.verdict import FORWARD, MINOR, NATIVE
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_ends, assert_reads, assert_says

TABLES = load_tables()


def make_target(gpu: str, driver: str, architecture: str = "amd64") -> Target:
    found = find_gpu(gpu, TABLES)
    title = f"{found.name} with driver {driver}" if driver else found.name
    return Target(title, "named", (found,), driver=driver, architecture=architecture)


def ask(image: str, gpu: str, driver: str, **more: object) -> Recommendation:
    return recommend(image, make_target(gpu, driver), TABLES, **more)  # type: ignore[arg-type]


@each_row(("text", "image"), [
    ("pytorch", "nvcr.io/nvidia/pytorch"),
    ("torch", "nvcr.io/nvidia/pytorch"),
    ("PyTorch", "nvcr.io/nvidia/pytorch"),
    ("tf", "nvcr.io/nvidia/tensorflow"),
    ("cuda", "nvcr.io/nvidia/cuda"),
    ("jax", "nvcr.io/nvidia/jax"),
    ("rapidsai", "nvcr.io/nvidia/rapidsai/rapidsai"),
    ("nvidia/pytorch", "nvcr.io/nvidia/pytorch"),
    ("docker://nvcr.io/nvidia/pytorch:24.03-py3", "nvcr.io/nvidia/pytorch"),
    ("docker.io/nvidia/cuda", "nvcr.io/nvidia/cuda"),
    ("nothing-known", "nvcr.io/nvidia/nothing-known"),
])  # fmt: skip
def test_recommend_short_names(text: str, image: str) -> None:
    assert resolve_image(text, TABLES) == image


@each_row(("image", "gpu", "driver", "sentence"), [
    ("pytorch", "H200", "580.95.05",
     "nvcr.io/nvidia/pytorch:25.11-py3 is the newest tag that runs natively on NVIDIA H200 with driver 580.95.05. "
     "Newer tags, up to 26.07-py3, run by minor-version compatibility."),
    ("pytorch", "V100", "535.104.05",
     "nvcr.io/nvidia/pytorch:23.10-py3 is the newest tag that runs natively on Tesla V100 with driver 535.104.05. "
     "Newer tags, up to 24.12-py3, run by forward compatibility."),
    ("pytorch", "P100", "580.95.05",
     "nvcr.io/nvidia/pytorch:24.01-py3 is the newest tag that runs natively on Tesla P100 with driver 580.95.05."),
    ("pytorch", "B200", "570.86.10",
     "No tag is known to run natively on NVIDIA B200 with driver 570.86.10; nvcr.io/nvidia/pytorch:26.02-py3 is the "
     "newest tag that runs by forward compatibility."),
    ("cuda", "K40", "470.57.02",
     "nvcr.io/nvidia/cuda:11.4.3-devel-ubuntu20.04 is the newest tag that runs natively on Tesla K40 with driver "
     "470.57.02. Newer tags, up to 11.8.0-devel-ubuntu22.04, run by minor-version compatibility."),
    ("cuda", "P100", "418.87.00",
     "No tag that NVIDIA keeps is known to run natively on Tesla P100 with driver 418.87.00; "
     "nvcr.io/nvidia/cuda:11.6.2-devel-ubuntu20.04 is the newest tag that runs by forward compatibility. "
     "10.1-devel-ubuntu18.04 runs natively, but NVIDIA deletes tags of its release line."),
    ("pytorch", "K40", "470.57.02",
     "No PyTorch image of NGC is known to have kernels for Tesla K40 (Kepler, 3.5): 83 of 90 surely have none."),
    ("pytorch", "K40", "535.104.05",
     "No PyTorch image of NGC runs on Tesla K40 with driver 535.104.05. Driver 535.104.05 no longer supports Tesla "
     "K40: 470 is the last branch that does. Programs see no GPU."),
    ("jax", "V100", "535.104.05",
     "The tables have too little data on the JAX images of NGC to choose one for Tesla V100 with driver 535.104.05."),
])  # fmt: skip
def test_recommend_sentences(image: str, gpu: str, driver: str, sentence: str) -> None:
    assert ask(image, gpu, driver).sentence == sentence


IMAGES = ("pytorch", "tensorflow", "cuda", "tritonserver")
GPUS = ("K40", "K80", "P100", "V100", "A100", "H200", "B200")
DRIVERS = ("", "390.46", "470.57.02", "535.104", "580.95.05")
# Every GPU with every driver, of which every other one is asked; the images take turns.
IN_TURN = [
    (IMAGES[(row + column) % len(IMAGES)], gpu, driver)
    for row, gpu in enumerate(GPUS)
    for column, driver in enumerate(DRIVERS)
]


@pytest.mark.parametrize(
    "asked", [IN_TURN[::2], pytest.param([*itertools.product(IMAGES, GPUS, DRIVERS)], marks=pytest.mark.long)]
)
def test_recommend_in_brief_says_the_same(asked: list[tuple[str, str, str]]) -> None:
    each_row(("image", "gpu", "driver"), asked)(check_brief)()


def check_brief(image: str, gpu: str, driver: str) -> None:
    whole, brief = ask(image, gpu, driver), ask(image, gpu, driver, is_brief=True)
    for part in ("sentence", "best", "other", "by_driver", "reason"):
        assert getattr(brief, part) == getattr(whole, part), part
    assert bool(brief.judged) == bool(whole.judged)


def test_recommend_best_and_other_are_judged_by_the_same_rules() -> None:
    found = ask("pytorch", "V100", "535.104.05")
    assert found.best is not None
    assert found.other is not None
    assert (found.reference, found.best.outcome) == ("nvcr.io/nvidia/pytorch:23.10-py3", NATIVE)
    assert (found.other.tag, found.other.outcome) == ("24.12-py3", FORWARD)
    assert_reads(found.best.verdict.headline, "compat/runs-natively-tesla-driver")
    assert found.judged + found.skipped == 90
    (note,) = found.notes
    assert_begins(note, "recommend/skipped-tags-lack-data-kernels", found.skipped)
    assert found.as_dict()["reference"] == found.reference
    found = ask("pytorch", "RTX 3090", "535.104.05")
    assert found.other is not None
    assert (found.other.tag, found.other.outcome) == ("25.06-py3", MINOR)
    brief = ask("pytorch", "V100", "535.104.05", is_brief=True)
    assert brief.judged + brief.skipped < ask("pytorch", "V100", "535.104.05").judged


def test_recommend_without_a_driver_names_a_tag_for_each_branch_and_claims_none() -> None:
    found = ask("pytorch", "H100", "")
    assert (found.best, found.other, found.reference) == (None, None, "")
    assert [(each.branch, each.tag) for each in found.by_driver] == [
        (525, "23.02-py3"), (535, "23.10-py3"), (550, "24.05-py3"), (570, "25.03-py3"), (580, "25.11-py3"),
        (590, "26.02-py3"), (595, "26.05-py3"), (610, "26.07-py3"), (615, "26.07-py3"),
    ]  # fmt: skip
    assert {each.outcome for each in found.by_driver} == {NATIVE}
    assert found.by_driver[1].cuda == "12.2"
    assert_says(found.sentence, "compat/depends-driver-unknown-driver", "NVIDIA H100")
    assert "; 535: 23.10-py3; 550: 24.05-py3; " in found.sentence
    document = found.as_dict()
    assert (document["tag"], document["reference"], document["best"]) == (None, None, None)
    assert document["by_driver"][1] == {"branch": 535, "cuda": "12.2", "tag": "23.10-py3", "outcome": NATIVE}  # type: ignore[index]


@each_row(("image", "gpu"), [("pytorch", "V100"), ("pytorch", "B200"), ("cuda", "A100")])
def test_recommend_by_branch_is_what_each_branch_gives_by_itself(image: str, gpu: str) -> None:
    found = ask(image, gpu, "")
    assert found.by_driver
    for each in found.by_driver:
        alone = ask(image, gpu, str(each.branch)).best
        assert (alone.tag, alone.outcome) == (each.tag, each.outcome)


def test_recommend_by_branch_of_one_driver_or_none() -> None:
    rows = [NgcRelease("nvcr.io/nvidia/pytorch", "20.05-py3", "PyTorch", cuda="11.0.2", capabilities="7.0 8.0")]
    found = recommend("pytorch", make_target("V100", ""), Tables(TABLES.cuda, TABLES.gpus, rows))
    assert found.reference == "nvcr.io/nvidia/pytorch:20.05-py3"
    assert_reads(
        found.sentence, "recommend/newest-tag-runs-natively-4", "nvcr.io/nvidia/pytorch:20.05-py3", "Tesla V100"
    )
    assert found.notes == ("the driver is unknown; the tag is the same for all branches in use, 470 to 580",)
    assert found.as_dict()["tag"] == "20.05-py3"
    none = ask("pytorch", "K40", "")
    assert (none.best, none.by_driver) == (None, ())
    assert_begins(none.sentence, "recommend/no-image-ngc-known-kernels-tesla", "PyTorch")
    assert none.reason == NO_KERNELS
    cuda = ask("cuda", "K40", "")
    assert cuda.reference == "nvcr.io/nvidia/cuda:11.4.3-devel-ubuntu20.04"
    assert cuda.notes == ("the driver is unknown; of the branches in use, only 470 runs any tag",)
    assert_reads(ask("jax", "V100", "").sentence, "recommend/tables-too-little-data-images", "JAX", "Tesla V100")
    found = ask("pytorch", "B200", "")
    assert_says(found.sentence, "recommend/driver-forward-compatibility")


def test_recommend_tags_that_are_there_and_fit() -> None:
    found = ask("pytorch", "A100", "580.95.05", tags=["24.01-py3", "23.10-py3", "latest", "99.01-py3"])
    assert found.reference == "nvcr.io/nvidia/pytorch:24.01-py3"
    assert (found.judged, found.skipped) == (2, 1)  # 99.01 exists, and nothing is known of it
    tags = ["12.4.1-devel-ubuntu22.04", "12.2.9-devel-ubuntu22.04"]
    best = ask("cuda", "A100", "535.104.05", tags=tags).best
    assert (best.tag, best.outcome) == (tags[0], "forward-compatible")
    rows = [
        NgcRelease("nvcr.io/nvidia/pytorch", "24.06-py3-igpu", "PyTorch", cuda="12.4.1", capabilities="8.0 9.0"),
        NgcRelease("nvcr.io/nvidia/pytorch", "24.05-py2", "PyTorch", cuda="12.4.1", capabilities="8.0 9.0"),
        NgcRelease("nvcr.io/nvidia/pytorch", "24.05-py3", "PyTorch", cuda="12.4.1", capabilities="8.0 9.0"),
    ]
    tables = Tables(TABLES.cuda, TABLES.gpus, rows)
    assert recommend("pytorch", make_target("H200", "580.95.05"), tables).reference.endswith(":24.05-py3")
    amd = ask("pytorch", "MI300X", "")
    assert (amd.reason, amd.best) == ("maker", None)
    jetson = recommend("pytorch", make_target("Jetson AGX Orin", "540.4.0", "arm64"), TABLES)
    assert_reads(jetson.sentence, "recommend/tables-no-tags-jetson-boards", "nvcr.io/nvidia/pytorch")


def test_recommend_end_of_life_only_where_nothing_else_fits() -> None:
    image = "nvcr.io/nvidia/cuda"
    old = NgcRelease(image, "12.4.1-devel-ubuntu22.04", "CUDA", cuda="12.4.1", notes="end-of-life (tags get deleted)")
    lasting = NgcRelease(image, "12.2.2-devel-ubuntu22.04", "CUDA", cuda="12.2.2")
    target = make_target("A100", "550.54.14")
    both = recommend("cuda", target, Tables(TABLES.cuda, TABLES.gpus, [old, lasting]))
    assert both.reference.endswith(":12.2.2-devel-ubuntu22.04")
    alone = recommend("cuda", target, Tables(TABLES.cuda, TABLES.gpus, [old]))
    assert alone.reference.endswith(":12.4.1-devel-ubuntu22.04")
    assert_ends(alone.sentence, "recommend/no-other-tag-fits-keep")


def test_recommend_for_other_processors() -> None:
    stated = [NgcRelease("nvcr.io/nvidia/pytorch", "24.05-py3", "PyTorch", cuda="12.4.1", capabilities="6.0+ (stated)")]
    found = recommend("pytorch", make_target("GH200", "550.54.14", "arm64"), Tables(TABLES.cuda, TABLES.gpus, stated))
    assert found.best is not None
    assert_ends(found.sentence, "recommend/unknown-whether-image", "arm64")
    known = recommend("pytorch", make_target("GH200", "595.58.03", "arm64"), TABLES)
    assert known.reference == "nvcr.io/nvidia/pytorch:26.04-py3"
    assert "arm64" not in known.sentence
    rows = [NgcRelease("nvcr.io/nvidia/pytorch", "24.05-py3", "PyTorch", cuda="12.4.1", capabilities="8.0 9.0")]
    tables = Tables(TABLES.cuda, TABLES.gpus, rows)
    assert recommend("pytorch", make_target("H200", "550.54.15"), tables).best is not None
    assert recommend("pytorch", make_target("GH200", "550.54.15", "arm64"), tables).best is None


def test_recommend_what_is_not_known_is_said() -> None:
    for target in (
        Target("a machine", driver="535.104.05", architecture="amd64"),
        Target("the login node", has_gpus=False, driver="535.104.05", architecture="amd64"),
    ):
        for image in ("cuda", "pytorch"):
            found = recommend(image, target, TABLES)
            assert (found.best, found.judged) == (None, 0)
            assert_reads(found.sentence, "recommend/gpu-unknown-give-gpu-queue", target.title)
    image = "nvcr.io/nvidia/jax"
    rows = [NgcRelease(image, "24.05-py3", "JAX", cuda="12.4.1"), NgcRelease(image, "24.04-py3", "JAX")]
    both = recommend("jax", make_target("H200", "580.95.05"), Tables(TABLES.cuda, TABLES.gpus, rows))
    assert both.notes == ("skipped 2 of 2 tags for lack of data (kernels: 2, CUDA: 1)",)
    one = recommend("jax", make_target("H200", "580.95.05"), Tables(TABLES.cuda, TABLES.gpus, rows[:1]))
    assert one.notes[0].startswith("skipped 1 of 1 tag")
    nothing = recommend("pytorch", Target("this machine", has_gpus=False), TABLES)
    assert_begins(nothing.sentence, "recommend/gpu-machine-unknown")
    unknown = ask("nothing-known", "A100", "535.104.05")
    assert_begins(unknown.sentence, "recommend/tables-no-tags-those-cuda", "nvcr.io/nvidia/nothing-known")


def test_recommend_advice() -> None:
    name, target = "nvcr.io/nvidia/pytorch:24.03-py3", make_target("K40", "470.57.02")
    traits = read_traits(name, environment={}, labels={}, history=(), tables=TABLES, architecture="amd64")
    verdict = advise(judge(traits, target, TABLES), traits, target, TABLES)
    assert [each.remedy for each in verdict.failures] == ["", ""]
    remedy = verdict.judgements[-1].remedy
    assert_begins(remedy, "recommend/take-another-gpu-run-recommend")
    assert "docker.io/lucasfernandoaes/pytorch-legacy:1.6.0 (PyTorch 1.6.0, " in remedy
    assert_says(remedy, "recommend/warning-published-person-not-nvidia")
    assert recommend("cuda", target, TABLES).best is not None
    name = "nvcr.io/nvidia/pytorch:25.10-py3"
    traits = read_traits(name, environment={}, labels={}, history=(), tables=TABLES, architecture="amd64")
    target = make_target("V100", "535.104.05")
    verdict = advise(judge(traits, target, TABLES), traits, target, TABLES)
    assert verdict.judgements[-1].remedy == "Take nvcr.io/nvidia/pytorch:23.10-py3."
    assert_begins(
        advise(judge(traits, make_target("V100", ""), TABLES), traits, make_target("V100", ""), TABLES)
        .judgements[-1]
        .sentence,
        "compat/newest-tag-runs-natively-depends",
        "nvcr.io/nvidia/pytorch",
    )
    fine = make_target("H200", "580.95.05")
    native = judge(traits, fine, TABLES)
    assert advise(native, traits, fine, TABLES) is native
    traits = read_traits("pytorch", environment={"CUDA_VERSION": "13.0.2"}, labels={}, history=(), tables=TABLES)
    target = make_target("V100", "470.57.02")
    verdict = judge(traits, target, TABLES)
    assert verdict.outcome != NATIVE
    assert advise(verdict, traits, target, TABLES) is verdict
    name, target = "nvcr.io/nvidia/pytorch:24.03-py3", make_target("V100", "535.104.05")
    traits = read_traits(name, environment={}, labels={}, history=(), tables=TABLES, architecture="amd64")
    verdict = advise(judge(traits, target, TABLES), traits, target, TABLES)
    assert (verdict.outcome, verdict.judgements[-1].remedy) == (
        FORWARD,
        "To run natively, take nvcr.io/nvidia/pytorch:23.10-py3.",
    )
