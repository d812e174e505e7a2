# SPDX-License-Identifier: BSD-3-Clause
"""Verdicts over the shipped tables: real releases on real GPUs and drivers, and the sentences that users read."""

from __future__ import annotations

from kedge.base.frozen import replace
from kedge.compat.contents.known_traits import read_known_traits
from kedge.compat.contents.read_traits import read_traits
from kedge.compat.judge import judge
from kedge.compat.rules.driver_lookup import takes_forward_compat
from kedge.compat.rules.libcuda_choice import is_data_center
from kedge.compat.tables.gpu_names import find_gpu, make_gpu
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Gpu, Target
from kedge.compat.traits import Fact, ImageTraits
from kedge.compat.verdict import FAIL, FORWARD, MINOR, NATIVE, NO, NOTE, OPEN, PTX, UNKNOWN, Verdict
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_ends, assert_reads, assert_says

TABLES = load_tables()
DRIVERS = ("418.87.00", "450.80.02", "470.57.02", "525.60.13", "535.104.05", "550.54.14", "570.86.10", "580.95.05")
LETTERS = {"N": NATIVE, "m": MINOR, "f": FORWARD, "p": PTX, "-": NO, "?": UNKNOWN}
# 418 450 470 525 535 550 570 580; `?`: the table knows too little of 26.07 to say more
MATRIX = {
    "K40": {"20.06": "--------", "21.06": "--------", "22.03": "--------", "24.01": "--------", "24.12": "--------",
            "25.10": "--------", "26.07": "--------"},
    "P100": {"20.06": "fNNNNNNN", "21.06": "ffNNNNNN", "22.03": "fffNNNNN", "24.01": "--fffNNN", "24.12": "--------",
             "25.10": "--------", "26.07": "--------"},
    "V100": {"20.06": "fNNNNNNN", "21.06": "ffNNNNNN", "22.03": "fffNNNNN", "24.01": "--fffNNN", "24.12": "--fmffNN",
             "25.10": "--------", "26.07": "--------"},
    "T4": {"20.06": "fNNNNNNN", "21.06": "ffNNNNNN", "22.03": "fffNNNNN", "24.01": "--fffNNN", "24.12": "--fmffNN",
           "25.10": "----fffN", "26.07": "???????m"},
    "A100": {"20.06": "-NNNNNNN", "21.06": "-fNNNNNN", "22.03": "-ffNNNNN", "24.01": "--fffNNN", "24.12": "--fmffNN",
             "25.10": "----fffN", "26.07": "-??????m"},
    "RTX 3090": {"20.06": "--NNNNNN", "21.06": "--NNNNNN", "22.03": "--mNNNNN", "24.01": "---mmNNN",
                 "24.12": "---mmmNN", "25.10": "-------N", "26.07": "-------m"},
    "H200": {"20.06": "---ppppp", "21.06": "---ppppp", "22.03": "---ppppp", "24.01": "---ffNNN", "24.12": "---mffNN",
             "25.10": "----fffN", "26.07": "---????m"},
    "B200": {"20.06": "------pp", "21.06": "------pp", "22.03": "------pp", "24.01": "------pp", "24.12": "------pp",
             "25.10": "------fN", "26.07": "------?m"},
}  # fmt: skip


def read(tag: str, image: str = "nvcr.io/nvidia/pytorch", architecture: str = "amd64") -> ImageTraits:
    name = f"{image}:{tag}"
    return read_traits(name, environment={}, labels={}, history=(), tables=TABLES, architecture=architecture)


def make_target(gpu: str, driver: str, **facts: object) -> Target:
    found = find_gpu(gpu, TABLES)
    values: dict[str, object] = {"architecture": "amd64", **facts}
    return Target(f"{found.name} with driver {driver}", "named", (found,), driver=driver, **values)  # type: ignore[arg-type]


def ask(tag: str, gpu: str, driver: str) -> Verdict:
    return judge(read(f"{tag}-py3"), make_target(gpu, driver), TABLES)


@each_row(("gpu", "tag"), [(gpu, tag) for gpu, tags in MATRIX.items() for tag in tags])
def test_judge_releases_on_gpus_and_drivers(gpu: str, tag: str) -> None:
    found = [ask(tag, gpu, driver).outcome for driver in DRIVERS]
    assert found == [LETTERS[letter] for letter in MATRIX[gpu][tag]]


@each_row("month", range(2, 11))
def test_judge_every_release_with_pytorch_2_3_and_python_3_10_on_volta(month: int) -> None:
    assert ask(f"24.{month:02}", "V100", "570.86.10").outcome == NATIVE


@each_row(("tag", "gpu", "driver", "headline"), [
    ("24.01", "H200", "580.95.05", "runs natively on NVIDIA H200 with driver 580.95.05"),
    ("24.01", "V100", "470.57.02",
     "runs on Tesla V100 with driver 470.57.02 by forward compatibility: kedge uses the image's own libcuda 545.23.08"),
    ("24.01", "RTX 3090", "535.104.05",
     "runs on GeForce RTX 3090 with driver 535.104.05 by minor-version compatibility: the driver cannot compile PTX "
     "at run time"),
    ("24.01", "B200", "580.95.05",
     "runs on NVIDIA B200 with driver 580.95.05: its kernels are compiled from PTX when a program starts"),
    ("25.10", "V100", "580.95.05",
     "does not run on Tesla V100 with driver 580.95.05: it has no kernels for that GPU"),
    ("25.10", "RTX 3090", "550.54.14",
     "does not run on GeForce RTX 3090 with driver 550.54.14: driver 550.54.14 is too old for CUDA 13.0.2"),
    ("22.03", "K40", "535.104.05",
     "does not run on Tesla K40 with driver 535.104.05: driver 535.104.05 is too new for that GPU"),
    ("25.10", "B200", "535.104.05",
     "does not run on NVIDIA B200 with driver 535.104.05: driver 535.104.05 is too old for that GPU"),
    ("26.07", "A100", "550.54.14",
     "unknown whether it runs on NVIDIA A100 with driver 550.54.14: the drivers that the image's own libcuda works "
     "with are unknown"),
    ("21.06", "V100", "470.57.02", "runs natively on Tesla V100 with driver 470.57.02"),
    ("22.05", "V100", "470.57.02",
     "unknown whether it runs on Tesla V100 with driver 470.57.02: its CUDA version is unknown"),
    ("22.03", "H200", "550.54.14",
     "runs on NVIDIA H200 with driver 550.54.14: its kernels are compiled from PTX when a program starts"),
    ("20.03", "K40", "470.57.02",
     "does not run on Tesla K40 with driver 470.57.02: it has no kernels for that GPU"),
    ("20.03", "A100", "470.57.02",
     "runs on NVIDIA A100 with driver 470.57.02: its kernels are compiled from PTX when a program starts"),
])  # fmt: skip
def test_judge_headlines(tag: str, gpu: str, driver: str, headline: str) -> None:
    assert ask(tag, gpu, driver).headline == headline


def test_judge_release_without_a_list_is_judged_by_those_around_it() -> None:
    verdict = ask("22.03", "V100", "525.60.13")
    gpu = next(each for each in verdict.judgements if each.subject == "gpu")
    assert (gpu.level, gpu.outcome) == (NOTE, NATIVE)
    assert_reads(gpu.sentence, "compat/list-kernels-release-unknown-but")
    traits = read("21.07-tf2-py3", "nvcr.io/nvidia/tensorflow")
    verdict = judge(traits, make_target("V100", "535.104.05"), TABLES)
    gpu = next(each for each in verdict.judgements if each.subject == "gpu")
    assert verdict.outcome == NATIVE
    assert_says(gpu.sentence, "compat/nvidia-states-releases-before-after")
    assert_ends(gpu.sentence, "compat/support-compute-capability-newer-includes")
    verdict = ask("22.03", "K40", "470.57.02")
    assert verdict.runs is False
    assert_reads([each.sentence for each in verdict.failures], "compat/list-kernels-release-unknown-but-earlier")
    # 25.03 has CUDA 12.8, which makes code for B200: whether it has any, PTX of the release before does not tell
    ptx, unknown = ask("22.03", "H200", "550.54.14"), ask("25.03", "B200", "580.95.05")
    assert (ptx.outcome, unknown.outcome) == (PTX, UNKNOWN)
    remedy = next(each.remedy for each in ptx.judgements if each.subject == "gpu")
    assert_begins(remedy, "compat/take-tag-cuda-newer-cudnn", "11.8")


def test_judge_libcuda_of_an_image_is_what_is_known_of_it() -> None:
    verdict = ask("22.03", "V100", "470.57.02")
    assert_ends(verdict.headline, "compat/forward-compatibility-uses-images-own")
    assert "kedge uses the image's own libcuda (/usr/local/cuda/compat)." in verdict.judgements[0].sentence
    traits = read("22.03-py3")
    own = replace(traits, compat_branches=Fact("470", "image config, NVIDIA_REQUIRE_CUDA"))
    target = make_target("V100", "450.80.02")
    assert judge(traits, target, TABLES).outcome == FORWARD
    assert judge(own, target, TABLES).outcome == MINOR


def test_judge_unknown_driver_or_gpu_says_what_is_needed() -> None:
    verdict = judge(read("24.01-py3"), replace(make_target("H200", ""), title="NVIDIA H200"), TABLES)
    assert verdict.outcome == UNKNOWN
    assert_reads(verdict.headline, "compat/unknown-whether-runs-nvidia-driver")
    driver = next(each for each in verdict.judgements if each.subject == "driver")
    assert driver.level == OPEN
    assert_begins(driver.sentence, "compat/needs-driver-newer-newer", "CUDA 12.3.2", "545.23.08", "525.60.13")
    assert_reads(driver.remedy, "compat/give-driver-version-nvidia-smi-shows")
    target = Target("node", gpus=(Gpu("NVIDIA X9000"),), driver="580.95.05", architecture="amd64")
    verdict = judge(read("24.01-py3"), target, TABLES)
    assert verdict.outcome == UNKNOWN
    assert_ends(verdict.headline, "compat/compute-capability-gpu-unknown")


def test_judge_login_node_is_told_to_name_a_gpu() -> None:
    target = Target("this machine (login1)", has_gpus=False, architecture="amd64")
    verdict = judge(read("24.01-py3"), target, TABLES)
    assert verdict.outcome == UNKNOWN
    assert_reads(verdict.headline, "compat/unknown-whether-gpu-programs-run", "login1")
    gpu = next(each for each in verdict.judgements if each.subject == "gpu")
    assert_reads(gpu.sentence, "compat/machine-no-nvidia-gpu-only", "login1")
    assert_reads(gpu.remedy, "compat/give-queue-site-queue-gpu")


def test_judge_images_of_which_little_is_known() -> None:
    target = Target("this machine (login1)", has_gpus=False, architecture="amd64")
    traits = read("22.05-py3")
    assert not traits.cuda
    verdict = judge(traits, target, TABLES)
    assert verdict.outcome == UNKNOWN
    assert_reads(verdict.headline.partition(":")[0], "compat/unknown-whether-gpu-programs-run-compute")
    target = Target("this machine (login1)", has_gpus=False, architecture="amd64")
    verdict = judge(ImageTraits("ubuntu:24.04", architecture="amd64", size=30_000_000), target, TABLES)
    assert verdict.outcome == NATIVE
    assert_reads(verdict.headline, "compat/runs-machine-does-not-need", "login1")
    verdict = judge(ImageTraits("ubuntu:24.04", architecture="amd64"), make_target("A100", "535.104.05"), TABLES)
    assert verdict.outcome == UNKNOWN
    driver = next(each for each in verdict.judgements if each.subject == "driver")
    assert driver.level == NOTE
    assert_reads(driver.sentence, "compat/cuda-version-image-unknown-needs")


@each_row(("name", "headline"), [
    ("nvidia/caffe:latest", "unknown whether it runs on {}: whether it needs a GPU is unknown"),
    ("nvcr.io/partners/chainer:4.0.0b1", "unknown whether it runs on {}: whether it needs a GPU is unknown"),
    ("tacc/tacc-ubuntu18-impi19.0.7-common:latest", "runs on {}; it does not need a GPU"),
])  # fmt: skip
def test_judge_image_of_which_only_tables_tell(name: str, headline: str) -> None:
    target = Target("this machine (login1)", has_gpus=False, architecture="amd64")
    traits = read_known_traits(name, TABLES, "amd64")
    assert traits is not None
    assert judge(traits, target, TABLES).headline == headline.format(target.title)


def test_judge_several_kinds_of_gpu() -> None:
    gpus = (find_gpu("A100", TABLES), find_gpu("V100", TABLES))
    target = Target("queue gpu of site x", "queue", gpus, driver="580.95.05", architecture="amd64")
    verdict = judge(read("25.10-py3"), target, TABLES)
    assert verdict.outcome == NO
    assert_reads(verdict.headline, "compat/does-not-run-tesla-driver-no")
    assert_reads(verdict.judgements[0].sentence, "compat/several-kinds-gpu-worst-decides")
    assert_reads(verdict.judgements[0].remedy, "compat/request-one-kind-gpu-job")
    gpus = (find_gpu("A100", TABLES), find_gpu("V100", TABLES))
    verdict = judge(read("24.11-py3"), Target("x", "named", gpus, driver="580.95.05", architecture="amd64"), TABLES)
    assert_reads(verdict.headline, "compat/runs-natively-nvidia-tesla-driver")
    assert not any("several kinds" in each.sentence for each in verdict.judgements)


def test_judge_processors() -> None:
    traits = replace(read("24.01-py3"), architectures=("amd64",))
    target = replace(
        make_target("V100", "550.54.14", architecture="arm64"), architecture_source="this machine", origin="named"
    )
    verdict = judge(traits, target, TABLES)
    assert_reads(verdict.headline, "compat/does-not-run-tesla-driver-image")
    assert_reads(verdict.failures[0].remedy, "compat/if-compute-nodes-add-arch", "amd64", "arm64")
    traits = replace(read("25.10-py3"), architecture="arm64")
    verdict = judge(traits, make_target("GH200", "580.95.05", architecture="arm64"), TABLES)
    told = [each for each in verdict.judgements if each.subject == "processor"]
    assert_reads([each.sentence for each in told], "compat/unknown-whether-image", "arm64")
    seen = judge(
        replace(traits, architectures=("amd64", "arm64")), make_target("GH200", "580", architecture="arm64"), TABLES
    )
    assert_says([each.sentence for each in seen.judgements], "compat/there-is-an-image-for", "arm64")
    traits = replace(read("24.01-py3"), architectures=("amd64",))
    verdict = judge(traits, make_target("GH200", "550.54.14", architecture="arm64"), TABLES)
    assert verdict.outcome == NO
    assert_reads(verdict.headline, "compat/does-not-run-nvidia-driver")
    assert_reads(verdict.failures[0].remedy, "compat/take-tag-node", "arm64", "amd64")


def test_judge_framework_that_asks_for_cuda_9_is_not_taken_at_its_word() -> None:
    traits = replace(read("25.10-py3"), requires=(("NVIDIA_REQUIRE_CUDA", "cuda>=9.0"),))
    verdict = judge(traits, make_target("RTX 3090", "470.57.02"), TABLES)
    assert verdict.outcome == NO
    requirement = next(each for each in verdict.judgements if each.subject == "requirement")
    assert_says(requirement.sentence, "compat/does-not-mean-programs-run")


def test_judge_gpus_of_the_table_take_forward_compatibility_as_a_start_decides() -> None:
    differing = {
        name
        for row in TABLES.gpus
        for name in row.smi_names
        if row.kind != "embedded" and takes_forward_compat(make_gpu(name, TABLES)) is not is_data_center(name)
    }
    assert differing == set()


def test_judge_every_release_on_every_gpu_gives_sentences() -> None:
    gpus = [find_gpu(name, TABLES) for name in ("K40", "V100", "RTX 3090", "H200", "Jetson AGX Orin")]
    for row in TABLES.releases[::7]:
        traits = read(row.tag, row.image)
        for gpu in gpus:
            for driver in ("418.87.00", "535", "580.95.05", ""):
                verdict = judge(traits, Target("x", gpus=(gpu,), driver=driver, architecture="amd64"), TABLES)
                assert verdict.headline
                for each in verdict.judgements:
                    assert each.sentence.endswith((".", "'."))
                    assert "None" not in each.sentence
                    assert "  " not in each.sentence
                    assert "()" not in each.sentence
                assert bool(verdict.failures) is (verdict.outcome == NO)
                assert all(each.level == FAIL for each in verdict.failures)


@each_row(("tag", "headline"), [
    ("centos7-cuda10-tf2.4-pt1.7", "CUDA 10 does not support that GPU yet"),
    ("ubuntu20.04-cuda11-tf2.6-pt1.10", "its list of kernels is unknown"),
])  # fmt: skip
def test_judge_reads_cuda_10_of_a_tag_that_names_no_minor(tag: str, headline: str) -> None:
    """TACC's base images on the A100 of Lonestar6; its table has them for Frontera's RTX alone."""
    traits = read(tag, "tacc/tacc-ml")
    verdict = judge(traits, make_target("A100", "470.57.02"), TABLES)
    assert traits.cuda.source == "the tag"
    assert headline in " ".join((verdict.headline, *(each.sentence for each in verdict.judgements))), verdict
