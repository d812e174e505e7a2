# SPDX-License-Identifier: BSD-3-Clause
"""What an explanation loads and computes, which is most of what it costs. Ceilings only ever go down.

The time itself is measured by bench/explain, not here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.ngc import NgcSite, open_ngc
from tests.functional.test_submit_cost import list_loaded
from tests.requirements import require_program
from tests.wording import assert_says

IMAGE = "nvcr.io/nvidia/pytorch:24.12-py3"
TARGET = ("--gpu", "A100", "--driver", "535.104")
MODULES = {"cold": 150, "offline": 127}  # of kedge, with those that importlib loads
# what a registry's client is made of
CLIENT = {"ssl", "socket", "urllib3", "http.client", "email.parser", "logging"}
HEAVY = {
    *("dataclasses", "inspect", "ast", "secrets", "concurrent.futures", "asyncio", "pickle", "ctypes", "subprocess"),
    *("uuid", "zstandard", "zlib_ng", "rich", "cryptography"),
}
PARTS = ("layers", "signing", "hostpack", "batchscript", "localqueue", "recipe", "jobs", "launch", "sites", "doctor")
COUNTED = """
import sys
from kedge.compat.rules import compute_capability_rule as rule
import os
reads, syncs = [], []
read = rule._read_list
os.fsync = syncs.append
rule._read_list = lambda *words: reads.append(words) or read(*words)
from kedge.cli.entry import main
status = main(sys.argv[1:])
print(len(reads), len(syncs), file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NgcSite]:
    require_program("openssl")
    with open_ngc(tmp_path_factory.mktemp("authority")) as ngc:
        yield ngc


@pytest.fixture
def environment(site: NgcSite, tmp_path: Path) -> dict[str, str]:
    site.registry.server.log.clear()
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **site.environment}


def list_with_client(environment: dict[str, str]) -> set[str]:
    """What the import of urllib3 alone loads: with Python 3.13 `inspect`, which importlib.metadata imports there."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, urllib3; print(*sys.modules)"],
        env=environment,
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("way", MODULES)
def test_explain_loads_what_it_needs_only(environment: dict[str, str], site: NgcSite, way: str) -> None:
    more = ("--offline",) if way == "offline" else ()
    words = ("explain", "--arch", "amd64", IMAGE, *TARGET, *more)
    loaded = list_loaded(environment, *words) - list_loaded(environment)
    if way == "cold":
        loaded -= list_with_client(environment)
    own = {name for name in loaded if name.partition(".")[0] == "kedge"}
    heavy = loaded & (HEAVY if way == "cold" else HEAVY | CLIENT)
    assert not heavy, sorted(heavy)
    assert not {name for name in own if name.split(".")[1:2] and name.split(".")[1] in PARTS}
    assert len(own) <= MODULES[way], sorted(own)
    asked = [each.path for each in site.registry.server.log if each.path.startswith("/v2/")]
    assert len(asked) == (3 if way == "cold" else 0)


def test_explain_reads_each_list_of_kernels_once_and_waits_for_no_disk(environment: dict[str, str]) -> None:
    words = ("explain", "--arch", "amd64", IMAGE, *TARGET)
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, *words], env=environment, capture_output=True, text=True, check=True
    )
    assert_says(done.stdout, "recommend/newest-tag-runs-natively")  # it judged all tags of the image
    reads, syncs = map(int, done.stderr.splitlines()[-1].split())
    assert 0 < reads <= 60  # 8,600 before they were remembered
    assert syncs == 0


def test_explain_asks_again_for_what_a_power_failure_left_half(environment: dict[str, str], site: NgcSite) -> None:
    words = [sys.executable, "-m", "kedge", "explain", "--arch", "amd64", IMAGE, *TARGET]

    def explain() -> tuple[str, int]:
        site.registry.server.log.clear()
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return done.stdout, sum("/manifests/sha256" in each.path for each in site.registry.server.log)

    first, asked = explain()
    kept = [path for path in Path(environment["HOME"], ".cache/kedge").rglob("*") if path.is_file()]
    documents = [path for path in kept if path.parts[-4:-2] == ("blobs", "sha256") or path.suffix == ".json"]
    assert len(documents) >= 4
    assert asked == 1
    for number, path in enumerate(documents):
        path.write_bytes(b"" if number % 2 else bytes(path.stat().st_size))  # no bytes, or no longer those
    second, asked = explain()
    assert (second, asked) == (first, 1)
    assert explain()[1] == 0  # and now it is kept
