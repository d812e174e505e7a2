# SPDX-License-Identifier: BSD-3-Clause
"""What an image needs, in words."""

from __future__ import annotations

from kedge.cli.explain import list_layers
from kedge.compat.judge import judge
from kedge.compat.rules.image_needs_text import describe_driver_need, describe_gpu_need
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Target
from kedge.compat.traits import Fact, ImageTraits, Layer
from kedge.compat.verdict import NATIVE
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_reads


@each_row(("capabilities", "expected"), [
    ("", ""),
    ("6.0+ (stated)", "compute capability 6.0 and newer (NVIDIA's release notes)"),
    ("7.5 8.0 8.6 9.0+PTX",
     "compute capability 7.5 (Turing), 8.0, 8.6 (Ampere), 9.0 (Hopper); newer GPUs compile PTX at start"),
    ("9.0", "compute capability 9.0 (Hopper)"),
    ("8.0 99.9", "compute capability 8.0 (Ampere), 99.9"),
])  # fmt: skip
def test_describe_gpu_need_names_generations(capabilities: str, expected: str) -> None:
    assert describe_gpu_need(ImageTraits("x", capabilities=Fact(capabilities)), load_tables()) == expected


def test_describe_driver_need_names_all_ways_and_guesses_none() -> None:
    traits = ImageTraits(
        "x",
        cuda=Fact("12.4.1", "image config, CUDA_VERSION"),
        compat=Fact("yes"),
        compat_branches=Fact("470 525 535", "image config, NVIDIA_REQUIRE_CUDA"),
    )
    plain, minor, forward = describe_driver_need(traits, load_tables())
    assert_reads(plain, "compat/nvidias-minimum-newer-also-work", "550.54.15", "550.54.14")
    assert minor.startswith("525.60.13 or newer")
    assert_begins(forward, "compat/branches-data-center-gpus")
    assert describe_driver_need(ImageTraits("x"), load_tables()) == []


@each_row(
    ("cuda", "driver", "other"),
    [("12.2.2", "535.104.05", "535.54.03"), ("12.0.0", "525.60.13", ""), ("10.2", "440.33", "")],
)
def test_describe_driver_need_agrees_with_the_verdict_at_its_edge(cuda: str, driver: str, other: str) -> None:
    tables, traits = load_tables(), ImageTraits("x", cuda=Fact(cuda), capabilities=Fact("7.0 8.0"))
    plain = describe_driver_need(traits, tables)[0]
    assert plain.startswith(driver if other else f"{driver} or newer")
    assert ("also work" in plain) == bool(other)
    for each in filter(None, (driver, other)):
        assert each in plain
        assert judge(traits, Target("t", gpus=(find_gpu("V100", tables),), driver=each), tables).outcome == NATIVE


def test_list_layers_shows_the_largest_in_their_order() -> None:
    layers = [Layer(size, created_by=f"step {place}") for place, size in enumerate((5, 1000, 10, 20, 30, 40, 2000, 0))]
    lines = [f"{begin}{text}" for begin, text in list_layers(layers)]
    assert [line.rpartition("step ")[2] for line in lines[:-1]] == ["1", "2", "3", "4", "5", "6"]
    assert lines[-1].endswith("5 B  2 smaller layers")
    ((bar, command),) = list_layers([Layer(0)])
    assert (bar.rstrip(), command) == ("  #                               0 B", "")
    assert list(list_layers([])) == []
