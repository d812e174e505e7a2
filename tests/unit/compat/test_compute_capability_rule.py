# SPDX-License-Identifier: BSD-3-Clause
"""GPU × kernels: lists in every form that images have, and the sentence for every answer."""

from __future__ import annotations

from kedge.compat.rules import compute_capability_rule as rule
from kedge.compat.rules.compute_capability_rule import judge_kernels, read_kernels
from kedge.compat.rules.compute_capability_text import Subject, tell_kernels
from tests.builders.rows import each_row
from tests.wording import assert_reads

LIST_2006 = "5.2 6.0 6.1 7.0 7.5 8.0+PTX (image env); 6.0+ (stated)"
LIST_2401 = "5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX"
LIST_2510 = "amd64: 7.5 8.0 8.6 9.0 10.0 12.0+PTX; arm64: 8.0 8.6 9.0 10.0 11.0 12.0+PTX (image env)"
LIST_2607 = "7.5 8.0 8.6 9.0 10.0 12.0 (CUDA_ARCH_LIST, amd64)"
ERROR_209 = "Programs fail with error 209, 'no kernel image is available for execution on the device'."


def ask(text: str, gpu: str, capability: str, **facts: object) -> tuple[str, str, str]:
    driver = str(facts.pop("driver", ""))
    answer = judge_kernels(text, capability, **facts)  # type: ignore[arg-type]
    cuda, cuda_range = facts.get("cuda", ""), facts.get("cuda_range", ("", ""))
    subject = Subject(gpu, capability, cuda=str(cuda), cuda_range=cuda_range, driver=driver)  # type: ignore[arg-type]
    return answer.mode, *tell_kernels(answer, subject)


@each_row(("text", "architecture", "shown", "stated"), [
    (LIST_2006, "", "5.2 6.0 6.1 7.0 7.5 8.0+PTX", (6, 0)),
    (LIST_2401, "amd64", "5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX", None),
    (LIST_2510, "", "7.5 8.0 8.6 9.0 10.0 12.0+PTX", None),
    (LIST_2510, "arm64", "8.0 8.6 9.0 10.0 11.0 12.0+PTX", None),
    (LIST_2607, "amd64", "7.5 8.0 8.6 9.0 10.0 12.0", None),
    ("7.5;8.0;8.6+PTX", "", "7.5 8.0 8.6+PTX", None),
    ("7.5, 8.0", "", "7.5 8.0", None),
    ("sm_70 sm_80 sm_90a compute_90", "", "7.0 8.0 9.0a+PTX", None),
    ("70 80 90 120", "", "7.0 8.0 9.0 12.0", None),
    ("9.0a 10.0f", "", "9.0a 10.0", None),
    ("compute_80", "", "8.0 as PTX", None),
    ("6.0+ (stated)", "", "", (6, 0)),
    ("", "", "", None),
    ("Ampere;Hopper nonsense 1.2.3 x.y 99999", "", "", None),
])  # fmt: skip
def test_capability_lists_of_every_form(text: str, architecture: str, shown: str, stated: object) -> None:
    kernels = read_kernels(text, architecture)
    assert (kernels.show(), kernels.stated) == (shown, stated)


def test_capability_kernels_that_serve() -> None:
    assert ask(LIST_2401, "NVIDIA H200", "9.0") == (
        rule.NATIVE,
        "The image has kernels for NVIDIA H200 (compute capability 9.0).",
        "",
    )
    assert ask(LIST_2510, "NVIDIA L40S", "8.9") == (
        rule.NATIVE,
        "The image's kernels for 8.6 run on NVIDIA L40S (compute capability 8.9).",
        "",
    )
    assert judge_kernels("8.6 9.0", "8.0").mode == rule.NO
    assert judge_kernels("9.0a 10.0a", "9.0").mode == rule.NATIVE
    assert judge_kernels("9.0a 10.0a", "10.3").mode == rule.NO


def test_capability_ptx_serves_where_the_driver_compiles_it() -> None:
    mode, sentence, remedy = ask(LIST_2401, "NVIDIA B200", "10.0", cuda="12.3.2.001", cuda_range=("12.8", ""))
    assert mode == rule.PTX
    assert_reads(sentence, "compat/image-no-kernels-nvidia-compute", "9.0", "12.3.2", "12.8")
    assert_reads(remedy, "compat/take-image-cuda-newer", "12.8")
    facts = {"accepts_ptx": False, "driver": "535.104.05", "cuda": "12.6.3"}
    mode, sentence, remedy = ask("7.0 7.5 8.0 8.6 9.0+PTX", "GeForce RTX 5090", "12.0", **facts)
    assert mode == rule.NO
    assert_reads(sentence, "compat/image-no-kernels-geforce-rtx", "535.104.05")
    assert_reads(remedy, "compat/take-image-kernels-newer-driver", "12.0")
    mode, sentence, _ = ask("9.0+PTX", "NVIDIA B200", "10.0", accepts_ptx=None, driver="580.65.06")
    assert mode == rule.UNKNOWN
    assert_reads(sentence, "compat/image-no-kernels-nvidia-compute-capability", "9.0+PTX", "580.65.06")


def test_capability_without_kernels_is_refused() -> None:
    mode, sentence, remedy = ask(LIST_2006, "Tesla K40", "3.5", cuda="11.0.167", cuda_range=("5.0", "11.8"))
    assert mode == rule.NO
    assert_reads(sentence, "compat/tesla-compute-capability-older-all", ERROR_209)
    assert_reads(remedy, "compat/take-older-image-gpu-compute", "5.2")
    mode, sentence, remedy = ask("7.5 8.0", "NVIDIA H200", "9.0", cuda="11.7", cuda_range=("11.8", ""))
    assert mode == rule.NO
    assert_reads(sentence, "compat/nvidia-compute-capability-newer-all", ERROR_209)
    assert_reads(remedy, "compat/take-image-cuda-newer", "11.8")
    assert ask("7.0 8.0+PTX", "Tesla T4", "7.5")[0] == rule.NATIVE
    mode, sentence, _ = ask("6.0 8.0+PTX", "Tesla T4", "7.5")
    assert mode == rule.NO
    assert_reads(sentence, "compat/image-no-kernels-tesla-compute", ERROR_209)


def test_capability_by_the_toolkit() -> None:
    mode, sentence, remedy = ask("", "Tesla V100", "7.0", cuda="13.0.2.006", cuda_range=("9.0", "12.9"))
    assert mode == rule.NO
    assert_reads(sentence, "compat/cuda-no-longer-supports-tesla", ERROR_209)
    assert_reads(remedy, "compat/take-image-cuda-older-newer", "12.9")
    assert judge_kernels("", "3.5", cuda="12.0.1", cuda_range=("5.0", "11.8")).mode == rule.NO
    assert judge_kernels("", "3.5", cuda="11.8.0", cuda_range=("5.0", "11.8")).mode == rule.UNKNOWN
    mode, sentence, _ = ask("", "NVIDIA H200", "9.0", cuda="11.0.3", cuda_range=("11.8", ""))
    assert mode == rule.UNKNOWN
    assert_reads(sentence, "compat/cuda-does-not-support-nvidia", "11.0.3", "11.8")
    facts = {"cuda": "12.4.1", "cuda_range": ("11.8", ""), "is_toolkit": True}
    assert ask("", "NVIDIA H200", "9.0", **facts) == (
        rule.NATIVE,
        "CUDA 12.4.1 compiles code for NVIDIA H200 (compute capability 9.0); the image has no GPU programs of its own.",
        "",
    )


def test_capability_by_statement_or_unknown() -> None:
    facts = {"cuda": "12.0.1", "cuda_range": ("9.0", "12.9")}
    assert ask("6.0+ (stated)", "Tesla V100", "7.0", **facts)[:2] == (
        rule.NATIVE,
        "NVIDIA states that the image supports compute capability 6.0 and newer, which includes Tesla V100 (compute "
        "capability 7.0). Its list of kernels is unknown.",
    )
    assert judge_kernels("6.0+ (stated)", "8.0", cuda="10.2", cuda_range=("11.0", "")).mode == rule.UNKNOWN
    mode, sentence, _ = ask("6.0+ (stated)", "Tesla M40", "5.2", cuda="11.1.1", cuda_range=("6.5", "12.9"))
    assert mode == rule.UNKNOWN
    assert_reads(sentence, "compat/nvidia-states-image-supports-compute", "6.0")
    assert ask("", "NVIDIA A100", "8.0", cuda="11.6.1", cuda_range=("11.0", ""))[:2] == (
        rule.UNKNOWN,
        "The image's list of kernels is unknown, so kedge cannot judge NVIDIA A100 (compute capability 8.0).",
    )
    assert ask("8.0 9.0", "NVIDIA X1", "")[:2] == (
        rule.UNKNOWN,
        "The compute capability of NVIDIA X1 is unknown. The image has kernels for 8.0 9.0.",
    )


def test_capability_jetson_takes_its_own_kernels_only() -> None:
    assert judge_kernels(LIST_2401, "8.7", is_jetson=True).mode == rule.NATIVE
    mode, sentence, _ = ask("8.0 8.6 9.0", "Jetson AGX Orin", "8.7", is_jetson=True)
    assert mode == rule.UNKNOWN
    assert_reads(sentence, "compat/image-kernels-but-none-jetson", "8.0 8.6 9.0")


@each_row(("gpu", "capability", "text"), [
    ("NVIDIA A100", "8.0", "NVIDIA A100 (compute capability 8.0)"),
    ("NVIDIA A100 (40 or 80 GB)", "8.0", "NVIDIA A100 (40 or 80 GB; compute capability 8.0)"),
    ("GPU of compute capability 9.0", "9.0", "GPU of compute capability 9.0"),
    ("NVIDIA Z999", "", "NVIDIA Z999"),
])  # fmt: skip
def test_subject_has_one_bracket_and_says_nothing_twice(gpu: str, capability: str, text: str) -> None:
    assert str(Subject(gpu, capability)) == text
