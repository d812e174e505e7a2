# SPDX-License-Identifier: BSD-3-Clause
"""What layers may cost: each limit is allowed, and one more is refused with its figures."""

from __future__ import annotations

import pytest

from kedge.errors import HostileImage
from kedge.image.layers.limits import FlattenOptions, Ledger


def test_limits_are_those_that_real_images_keep() -> None:
    options = FlattenOptions()
    assert (options.free_expansion, options.maximum_ratio) == (16 << 30, 200)
    assert (options.maximum_entries, options.maximum_metadata, options.maximum_depth) == (5_000_000, 512 << 20, 2048)
    assert (options.threads, options.ahead, options.verify_diff_ids, options.threaded) == (1, 0, True, True)


def test_limit_of_entries() -> None:
    ledger = Ledger(FlattenOptions(maximum_entries=3))
    ledger.charge_member(1, "layer x")
    ledger.charge_member(1, "layer x", 2)
    with pytest.raises(HostileImage, match="layer x: the image has more than 3 entries") as caught:
        ledger.charge_member(1, "layer x")
    assert caught.value.context == {"layer": "layer x"}


def test_limit_of_names_and_attributes() -> None:
    ledger = Ledger(FlattenOptions(maximum_metadata=2 << 20))
    ledger.charge_member(1 << 20, "layer x")
    ledger.charge_member(1 << 20, "layer x")
    with pytest.raises(HostileImage, match="layer x: names and attributes take more than 2 MiB"):
        ledger.charge_member(1, "layer x")


def test_limit_of_expansion_is_a_free_amount_and_a_ratio_above_it() -> None:
    ledger = Ledger(FlattenOptions(free_expansion=1000, maximum_ratio=10))
    ledger.charge_inflated(1000, "layer x")
    ledger.charge_compressed(150)
    ledger.charge_inflated(500, "layer x")
    with pytest.raises(HostileImage, match="150 compressed bytes expand to 1501 or more; the limit for them is 1500"):
        ledger.charge_inflated(1, "layer x")
    assert (ledger.compressed, ledger.inflated, ledger.holes, ledger.entries, ledger.metadata) == (150, 1501, 0, 0, 0)


def test_limit_of_expansion_counts_holes() -> None:
    ledger = Ledger(FlattenOptions(free_expansion=1000, maximum_ratio=10))
    ledger.charge_holes(600, "layer x")
    ledger.charge_inflated(400, "layer x")
    with pytest.raises(HostileImage, match="0 compressed bytes expand to 1001 or more; the limit for them is 1000"):
        ledger.charge_holes(1, "layer x")
