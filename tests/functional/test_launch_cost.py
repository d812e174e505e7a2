# SPDX-License-Identifier: BSD-3-Clause
"""What planning a launch loads, which is most of what it costs. Ceilings only ever go down.

The time itself is measured by bench/launch, not here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.builders.squashfs_images import write_image
from tests.functional.test_submit_cost import list_modules

MODULES = {"--ranks": 106, "--mpi": 118}  # of kedge, when the image's MPI was read before; one of them saves ranks enum
HEAVY = {"socket", "ssl", "logging", "tempfile", "concurrent.futures", "asyncio", "urllib3", "zstandard", "http.client"}
PARTS = ("registry", "layers", "signing", "hostpack", "batchscript", "localqueue")
START = "import sys; from kedge.cli.entry import main; sys.exit(main())"  # without what -m itself loads


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine without a scheduler, and an image."""
    (tmp_path / "app.sqsh").write_bytes(write_image())
    return {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "KEDGE_CACHEDIR": str(tmp_path / "cache"),
        "KEDGE_SITE_CONFIG": str(tmp_path / "none.toml"),
    }


@pytest.mark.parametrize("way", MODULES)
def test_a_plan_loads_what_it_needs_only(environment: dict[str, str], way: str) -> None:
    words = (START, "launch", "--dry-run", "--tasks", "2", way, "app.sqsh", "sh")
    first = list_modules(environment, "-c", *words)
    loaded = list_modules(environment, "-c", *words) - list_modules(environment, "-c", "pass")
    own = {name for name in loaded if name.partition(".")[0] == "kedge"}
    assert ("kedge.compat.mpi_of_image" in first) == (way == "--mpi")
    assert "kedge.compat.mpi_of_image" not in own
    assert not loaded & HEAVY
    assert not {name for name in own if name.split(".")[1:2] and name.split(".")[1] in PARTS}
    assert len(own) <= MODULES[way], sorted(own)


def test_an_image_that_was_written_anew_is_read_anew(environment: dict[str, str]) -> None:
    words = (START, "launch", "--dry-run", "--tasks", "2", "app.sqsh", "sh")
    for is_new in (True, False, True):
        if is_new:
            Path(environment["HOME"], "app.sqsh").write_bytes(write_image())
        assert ("kedge.compat.mpi_of_image" in list_modules(environment, "-c", *words)) is is_new
