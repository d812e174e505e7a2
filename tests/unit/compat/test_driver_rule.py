# SPDX-License-Identifier: BSD-3-Clause
"""Driver × CUDA: every way in which an image runs, or does not, with the sentence that a user reads."""

from __future__ import annotations

import subprocess
import sys

from kedge.base.versions import order
from kedge.compat.rules import driver_rule as rule
from kedge.compat.rules.driver_rule import DriverNeed, HostDriver, compare_drivers, judge_driver
from kedge.compat.rules.driver_text import tell_driver
from kedge.compat.rules.libcuda_choice import CUDA_BRANCHES
from kedge.compat.tables.load import load_tables
from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from tests.builders.gpu_hosts import make_compat_image, make_driver_tree, make_host
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY
from tests.wording import assert_begins, assert_ends, assert_reads, assert_says

COMPAT = "/usr/local/cuda/compat"
MINOR_LIMITS = (
    "(minor-version compatibility): programs run, but the driver cannot compile PTX at run time (error 222, "
    "cudaErrorUnsupportedPtxVersion), and features of newer drivers are missing."
)
ERROR_35 = "Programs fail with error 35, 'CUDA driver version is insufficient for CUDA runtime version'."


def make_need(cuda: str = "12.3.2.001", **changes: object) -> DriverNeed:
    """What pytorch 24.01 needs, unless changed."""
    values: dict[str, object] = {
        "built_for": "545.23.08", "carries_compat": True, "branches": (470, 525, 535), "min_driver": "545.23.08",
        "minor_floor": "525.60.13",
    }  # fmt: skip
    return DriverNeed(cuda, **(values | changes))  # type: ignore[arg-type]


def ask(need: DriverNeed, machine: HostDriver, gpu: str = "") -> tuple[str, str, str]:
    answer = judge_driver(need, machine)
    return answer.mode, *tell_driver(need, machine, answer, gpu)


def test_driver_new_enough_runs_natively() -> None:
    mode, sentence, remedy = ask(make_need(), HostDriver("580.95.05", takes_forward_compat=True))
    assert mode == rule.NATIVE
    assert_reads(sentence, "compat/driver-new-enough-needs-newer", "580.95.05", "CUDA 12.3.2", "545.23.08")
    assert remedy == ""
    assert ask(make_need(), HostDriver("545.23.08"))[:2] == (
        rule.NATIVE,
        "Driver 545.23.08 is new enough: CUDA 12.3.2 needs 545.23.08 or newer.",
    )
    need = make_need("12.2.2.009", built_for="535.104.05", min_driver="535.104.05", branches=(470, 525))
    assert ask(need, HostDriver("535.54.03", takes_forward_compat=True))[:2] == (
        rule.NATIVE,
        "Driver 535.54.03 runs CUDA 12.2.2: its branch 535 introduced CUDA 12.2, although NVIDIA's minimum is "
        "535.104.05.",
    )
    need = make_need("12.9.1", built_for="575.57.08", min_driver="575.57.08", branches=(535, 550, 560, 565, 570, 575))
    answer = judge_driver(need, HostDriver("575.51.03", takes_forward_compat=True))
    assert (answer.mode, answer.uses_image) == (rule.NATIVE, True)
    sentence, _ = tell_driver(need, HostDriver("575.51.03", takes_forward_compat=True), answer)
    assert sentence.endswith("kedge uses the image's own libcuda 575.57.08, which is newer.")
    need = DriverNeed("", built_for="545.23.08", carries_compat=True)
    assert ask(need, HostDriver("550.54.14"))[:2] == (
        rule.NATIVE,
        "Driver 550.54.14 is new enough: CUDA 12 needs 545.23.08 or newer. "
        "kedge does not use the image's older libcuda 545.23.08, which can fail (error 803).",
    )
    need = DriverNeed("12.7.0")
    assert ask(need, HostDriver("580.95.05", cuda="13.0"))[:2] == (
        rule.NATIVE,
        "Driver 580.95.05 supports CUDA 13.0, which also runs CUDA 12.7.0.",
    )
    assert ask(need, HostDriver("570.26", cuda="12.8"))[0] == rule.NATIVE
    mode, sentence, remedy = ask(need, HostDriver("560.35.05", cuda="12.6"))
    assert mode == rule.MINOR
    assert_begins(sentence, "compat/driver-too-old-but-newer", "560.35.05", "CUDA 12.7.0", "525.60.13")
    assert_ends(remedy, "compat/take-image-older-newer-driver", "CUDA 12.6")


def test_driver_that_is_older_takes_the_images_libcuda() -> None:
    mode, sentence, remedy = ask(make_need(), HostDriver("470.57.02", takes_forward_compat=True), "Tesla V100")
    assert mode == rule.FORWARD
    assert_reads(
        sentence,
        "compat/driver-older-needs-but-uses",
        "470.57.02",
        "545.23.08",
        "CUDA 12.3.2",
        "/usr/local/cuda/compat",
        "Tesla V100",
    )
    assert remedy == ""
    assert ask(make_need(), HostDriver("535.104.05", takes_forward_compat=True))[0] == rule.FORWARD
    assert ask(make_need(carries_compat=False), HostDriver("535.104.05", takes_forward_compat=True))[0] == rule.MINOR
    need = make_need(
        "11.8.0", built_for="520.61.05", branches=(450, 470), min_driver="520.61.05", minor_floor="450.80.02"
    )
    old = HostDriver("470.82.01", takes_forward_compat=True, last_branch=470)
    mode, sentence, remedy = ask(need, old, "Tesla K80")
    assert mode == rule.MINOR
    assert_ends(remedy, "compat/another-gpu-newer-drivers-do")
    assert_ends(sentence, "compat/images-own-libcuda-does-not", "Tesla K80")
    assert ask(need, HostDriver("470.82.01", takes_forward_compat=True, last_branch=580))[0] == rule.FORWARD


def test_driver_minor_version_compatibility_is_told() -> None:
    machine = HostDriver("535.104.05", takes_forward_compat=False, cuda="12.2")
    mode, sentence, remedy = ask(make_need(), machine, "GeForce RTX 3090")
    assert mode == rule.MINOR
    assert_reads(sentence, "compat/driver-older-cuda-needs-but-newer", MINOR_LIMITS)
    assert_reads(remedy, "compat/if-program-fails-error-take")
    need = make_need("13.3.1.008", built_for="610.43.02", min_driver="610.43.02", minor_floor="", branches=None)
    answer = judge_driver(need, HostDriver("580.95.05", takes_forward_compat=True))
    assert (answer.mode, answer.uses_image) == (rule.MINOR, None)
    sentence, _ = tell_driver(need, HostDriver("580.95.05", takes_forward_compat=True), answer)
    assert_ends(sentence, "compat/if-images-own-libcuda-works", 580)
    need = make_need("11.6.1", built_for="510.47.03", min_driver="510.47.03", minor_floor="450.80.02", branches=(470,))
    mode, sentence, _ = ask(need, HostDriver("460.32.03", takes_forward_compat=True))
    assert mode == rule.MINOR
    assert_ends(sentence, "compat/images-own-libcuda-does-not-help", 470)
    mode, sentence, _ = ask(make_need(), HostDriver("535.104.05"))
    assert mode == rule.MINOR
    assert_ends(sentence, "compat/unknown-whether-gpu-works-images")


def test_driver_too_old_is_refused_with_numbers_and_remedy() -> None:
    machine = HostDriver("470.57.02", takes_forward_compat=False, cuda="11.4")
    mode, sentence, remedy = ask(make_need(), machine, "GeForce RTX 3090")
    assert mode == rule.NO
    assert_reads(sentence, "compat/cuda-needs-driver-newer-newer", ERROR_35)
    assert_reads(remedy, "compat/take-image-older-ask-administrators", "CUDA 11.4", "525.60.13")
    mode, sentence, _ = ask(make_need(), HostDriver("450.80.02", takes_forward_compat=True))
    assert mode == rule.NO
    assert_reads(sentence, "compat/cuda-needs-driver-newer-newer-minor-version", ERROR_35)
    mode, sentence, _ = ask(make_need(carries_compat=False), HostDriver("470.57.02", takes_forward_compat=True))
    assert mode == rule.NO
    assert_says(sentence, "compat/driver-too-old-image-no", ERROR_35)
    need = DriverNeed("10.2.89", min_driver="440.33", carries_compat=False)
    mode, sentence, remedy = ask(need, HostDriver("418.87.00", cuda="10.1"))
    assert mode == rule.NO
    assert_begins(sentence, "compat/cuda-needs-driver-newer-cuda")
    assert_says(remedy, "compat/ask-administrators-driver-newer", "440.33")
    machine = HostDriver("450.80.02", takes_forward_compat=True, cuda="11.0", last_branch=470)
    mode, _, remedy = ask(make_need(), machine, "Tesla K40")
    assert mode == rule.NO
    assert_reads(remedy, "compat/take-image-older-another-gpu", "CUDA 11.0", 470)


def test_driver_and_card_that_do_not_know_each_other() -> None:
    mode, sentence, remedy = ask(make_need(), HostDriver("535.104.05", last_branch=470), "Tesla K40")
    assert mode == rule.NO
    assert_reads(sentence, "compat/driver-no-longer-supports-tesla")
    assert_reads(remedy, "compat/choose-node-whose-driver-branch", 470)
    machine = HostDriver("535.104.05", first_branch=570, capability="10.0")
    mode, sentence, remedy = ask(make_need(), machine, "NVIDIA B200")
    assert mode == rule.NO
    assert_reads(sentence, "compat/driver-too-old-nvidia-compute")
    assert_reads(remedy, "compat/check-driver-version-gpu-does")


def test_driver_what_is_not_known_is_left_open() -> None:
    assert ask(DriverNeed(""), HostDriver("535.104.05"))[:2] == (
        rule.UNKNOWN,
        "The CUDA version of this image is unknown, and so is what it needs from driver and GPU.",
    )
    assert ask(make_need(), HostDriver("")) == (
        rule.UNKNOWN,
        "CUDA 12.3.2 needs driver 545.23.08 or newer, or 525.60.13 or newer by minor-version compatibility. The "
        "driver is unknown.",
        "Give it with --driver VERSION, as nvidia-smi shows it.",
    )
    need = make_need("11.6.1", built_for="510.47.03", min_driver="510.47.03", minor_floor="450.80.02", branches=(470,))
    assert ask(need, HostDriver("450", takes_forward_compat=False)) == (
        rule.UNKNOWN,
        "CUDA 11.6.1 needs driver 510.47.03 or newer, or 450.80.02 or newer by minor-version compatibility. Driver "
        "450 is incomplete, and the rest of the version decides.",
        "Give the whole version with --driver, as nvidia-smi shows it.",
    )
    mode, sentence, _ = ask(make_need(carries_compat=None), HostDriver("470.57.02", takes_forward_compat=True))
    assert mode == rule.UNKNOWN
    assert_ends(sentence, "compat/driver-too-old-runs-only", "470.57.02")
    need = make_need("13.3.1.008", built_for="610.43.02", min_driver="610.43.02", minor_floor="", branches=None)
    mode, sentence, _ = ask(need, HostDriver("550.54.14", takes_forward_compat=True))
    assert mode == rule.UNKNOWN
    assert_ends(sentence, "compat/image-own-libcuda-but-older")
    mode, sentence, _ = ask(make_need(), HostDriver("470.57.02"))
    assert mode == rule.UNKNOWN
    assert_ends(sentence, "compat/image-own-libcuda-runs-data-center")
    assert ask(DriverNeed("10.5"), HostDriver("418.87.00", takes_forward_compat=True))[:2] == (
        rule.UNKNOWN,
        "The driver that CUDA 10.5 needs is unknown, so kedge cannot judge driver 418.87.00.",
    )


@each_row(("driver", "needed", "expected"), [
    ("535.104.05", "535.104.05", True), ("535.104.5", "535.104.05", True), ("535.104", "535.104.05", None),
    ("535", "535.104.05", None), ("535", "525.60.13", True), ("525", "535.104.05", False),
    ("535.86", "535.104.05", False), ("580", "580", True), ("450.80.02", "450", True), ("", "450", None),
    ("abc", "450", None),
])  # fmt: skip
def test_driver_short_versions_compare_by_the_fields_given(driver: str, needed: str, expected: bool | None) -> None:
    assert compare_drivers(driver, needed) is expected


NOTES = {"575.57.08": [535, 550, 560, 565, 570, 575], "590.44.01": [535, 550, 570, 575, 580, 590], "545.23.08": None}
CUDA = {"575.57.08": "12.9.1", "590.44.01": "13.1.0", "545.23.08": "12.3.2"}
DRIVERS = ("418.87.00", "450.80.02", "470.57.02", "525.60.13", "535.104.05", "550.54.14", "565.57.01", "570.86.10",
           "575.51.03", "580.95.05", "590.44.01", "610.43.02")  # fmt: skip


@each_row("carried", NOTES)
@each_row("driver", DRIVERS)
@each_row(("model", "takes"), [("NVIDIA A100-SXM4-80GB", True), ("NVIDIA GeForce RTX 4090", False)])
def test_driver_verdict_and_start_choose_the_same_libcuda(carried: str, driver: str, model: str, takes: bool) -> None:
    branches = NOTES[carried]
    note = {"CUDA version": CUDA[carried][:4], "driver": branches} if branches else None
    host = make_host(make_driver_tree(driver, (model,)))
    additions = plan_devices(RunOptions(nv=True, force=True), host, make_compat_image(carried, note))
    need = DriverNeed(CUDA[carried], built_for=carried, carries_compat=True, branches=branches, min_driver=carried)
    answer = judge_driver(need, HostDriver(driver, takes_forward_compat=takes))
    started_with_image = additions.prepend_library_path == [COMPAT]
    if answer.uses_image is None:
        assert branches is None  # the verdict leaves open what the library itself decides
    else:
        assert answer.uses_image is started_with_image
    # what a start warns about is what the verdict refuses
    assert bool(additions.warnings) is (answer.mode == rule.NO)


def test_driver_branches_that_a_start_knows_are_those_of_the_table() -> None:
    table: dict[tuple[int, ...], int] = {}
    for row in load_tables().cuda:
        minor, branch = order(row.version)[:2], order(row.min_driver)[0]
        if minor >= (9, 0):
            table[minor] = min(branch, table.get(minor, branch))
    assert {(major, minor): branch for branch, major, minor in CUDA_BRANCHES} == table
    assert judge_driver(DriverNeed("12.4.1", carries_compat=False), HostDriver("570.86.10")).mode == rule.NATIVE
    older = judge_driver(DriverNeed("12.8.1", carries_compat=False), HostDriver("550.54.14"))
    assert (older.mode, older.accepts_ptx) == (rule.MINOR, False)
    future = judge_driver(DriverNeed("13.9", carries_compat=False), HostDriver("640.10.01"))
    assert (future.mode, future.accepts_ptx) == (rule.MINOR, None)


LEAN = ("driver_rule", "driver_text", "compute_capability_rule", "compute_capability_text", "libcuda_choice")
HEAVY = {"typing", "re", "dataclasses", "pathlib", "json", "csv", "enum", "kedge.base.frozen", "collections"}


def test_driver_rules_and_the_index_of_gpus_are_cheap_for_a_start() -> None:
    imports = "; ".join(f"import kedge.compat.rules.{name}" for name in LEAN)
    index = "from kedge.compat.tables.gpu_index import find_capability; find_capability('H200')"
    found = f"sys.path.insert(0, {str(REPOSITORY / 'src')!r}); before = set(sys.modules); {imports}; {index}"
    program = f"import sys; {found}; print(*(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-SIc", program], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert {f"kedge.compat.rules.{name}" for name in LEAN} <= loaded
    assert not loaded & HEAVY
