# SPDX-License-Identifier: BSD-3-Clause
"""A key in somebody else's name is put on a key server, and an image signed with it: `verify` does not accept it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import KeyNotFound
from kedge.image.formats.sif.layout import DataType
from kedge.image.keys import armor_block
from kedge.image.trust.openpgp.keys import make_public
from kedge.image.trust.sign import PgpSigner, SignSelection, sign_image
from tests.builders.containers import Runner
from tests.builders.openpgp_keys import CREATED, make_pair, simple_block
from tests.builders.sif import build_sif
from tests.fakes.http_server import FakeServer, Reply

FORGER = make_pair("ed25519", 666)
KEY = simple_block(FORGER, b"NVIDIA Corporation <containers@nvidia.com>")


@pytest.fixture(scope="module")
def image(runner: Runner) -> Path:
    path = runner.folder / "pytorch.sif"
    path.write_bytes(build_sif([(DataType.DEFFILE, b"from: nvcr.io/nvidia/pytorch\n", b"")]))
    sign_image(path, [PgpSigner(FORGER.signer, FORGER.key.fingerprint)], SignSelection(), CREATED + 10)
    path.chmod(0o644)
    return path


@pytest.fixture
def server() -> Iterator[str]:
    with FakeServer(lambda _request: Reply(200, armor_block(make_public(KEY)))) as http:
        yield http.url


def test_key_of_a_key_server_is_not_enough(runner: Runner, image: Path, server: str) -> None:
    done = runner.run("verify", "--url", server, str(image))
    assert done.returncode == KeyNotFound.exit_code
    assert "Objects verified" not in done.stdout
    assert f"kedge key pull --url {server} {KEY.fingerprint}" in done.stderr.replace("\n", " ")
    by_variable = runner.run("verify", str(image), env={"KEDGE_KEYSERVER": server})
    assert by_variable.returncode == KeyNotFound.exit_code


def test_json_claims_nothing(runner: Runner, image: Path, server: str) -> None:
    done = runner.run("verify", "--json", "--url", server, str(image))
    assert done.returncode == KeyNotFound.exit_code
    told = json.loads(done.stdout)
    assert told["Error"]["context"]["reason"] == "fetched-key"
    checks = [each["Signer"][name] for each in told["SignerKeys"] for name in ("KeyLocal", "KeyCheck", "DataCheck")]
    assert not any(checks)


def test_verify_leaves_no_key_behind_that_the_next_one_trusts(runner: Runner, image: Path, server: str) -> None:
    assert runner.run("verify", "--url", server, "--trust-keyserver", str(image)).returncode == 0
    assert runner.run("verify", "--url", server, str(image)).returncode == KeyNotFound.exit_code
