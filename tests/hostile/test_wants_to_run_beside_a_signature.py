# SPDX-License-Identifier: BSD-3-Clause
"""Somebody adds objects to a signed SIF, outside of the group that is signed: what the image runs and says stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object, delete_object
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.singularityd.inspect_report import parse_metadata
from kedge.image.image_file import identify
from kedge.image.inspect import inspect_path
from kedge.image.trust.crypto import load_private_pem
from kedge.image.trust.sign import PemSigner, SignSelection, sign_image
from tests.builders.containers import Runner, give_to, make_sandbox
from tests.builders.openpgp_keys import NOW
from tests.builders.pem_keys import make_pem

SIGNED, ADDED = "as-signed", "as-added"
OTHER_GROUPS = [2, 0]  # 0: none


def say(word: str) -> bytes:
    return json.dumps({"config": {"Entrypoint": ["/bin/echo", word]}}).encode()


@pytest.fixture(scope="module")
def unsigned(runner: Runner) -> Path:
    """An image without a runscript, so that its config alone says what to run."""
    sandbox = give_to(runner, make_sandbox(runner.folder / "sandbox"))
    (sandbox / ".singularity.d/runscript").unlink()
    runner.read("convert", str(sandbox), str(runner.home / "unsigned.sif"))
    return runner.home / "unsigned.sif"


@pytest.fixture
def signed(runner: Runner, unsigned: Path, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A signed image whose config says what to run, and the public key."""
    image = runner.folder / "image.sif"
    image.write_bytes(unsigned.read_bytes())
    append_object(image, DataObject(DataType.GENERIC_JSON, say(SIGNED), "oci-config.json"))
    private, public = make_pem(tmp_path, "ed25519")
    sign_image(image, [PemSigner((load_private_pem(private.read_bytes(), None, where="key"),))], SignSelection(), NOW)
    public.chmod(0o644)
    yield image, public
    image.unlink()


def verify(runner: Runner, image: Path, public: Path) -> int:
    key = runner.folder / "key.pem"
    key.write_bytes(public.read_bytes())
    key.chmod(0o644)
    return runner.run("verify", "--group-id", "1", "--key", str(key), str(image)).returncode


@pytest.mark.parametrize("group", OTHER_GROUPS)
def test_added_config_does_not_change_what_runs(runner: Runner, signed: tuple[Path, Path], group: int) -> None:
    image, public = signed
    append_object(image, DataObject(DataType.GENERIC_JSON, say(ADDED), "oci-config.json", group=group))
    assert (verify(runner, image, public) == 0) is (group != 0), "an object in no group is refused"
    assert runner.read("run", str(image)).split() == [SIGNED]
    assert runner.read("run", "--root-from", "unpack", str(image)).split() == [SIGNED]


def test_added_config_in_a_slot_before_the_signed_one(runner: Runner, signed: tuple[Path, Path]) -> None:
    image, _ = signed
    with image.open("rb") as file:
        first = SifReader(file, "image").descriptors[0]
    delete_object(image, first.id)
    append_object(image, DataObject(DataType.GENERIC_JSON, say(ADDED), "oci-config.json", group=2))
    with image.open("rb") as file:
        assert SifReader(file, "image").descriptors[0].group == 2, "it took the free slot"
    assert json.loads(identify(str(image)).read_config())["config"]["Entrypoint"][1] == SIGNED


def test_signed_image_without_a_config_gets_none(runner: Runner, signed: tuple[Path, Path]) -> None:
    image, _ = signed
    with image.open("rb") as file:
        config = SifReader(file, "image").find_named(DataType.GENERIC_JSON, "oci-config.json")
    assert config is not None
    delete_object(image, config.id)
    append_object(image, DataObject(DataType.GENERIC_JSON, say(ADDED), "oci-config.json", group=2))
    assert identify(str(image)).read_config() == b""


@pytest.mark.parametrize("group", OTHER_GROUPS)
def test_added_documents_are_not_the_images(signed: tuple[Path, Path], group: int) -> None:
    image, _ = signed
    with image.open("rb") as file:
        reader = SifReader(file, "image")
        metadata = reader.find_named(DataType.GENERIC_JSON, "inspect-metadata.json")
        definition = reader.find_type(DataType.DEFFILE)
        assert metadata is not None
        assert definition is not None
        kept = parse_metadata(reader.read_object(metadata), "image")
    for old in (metadata, definition):  # even where the image has none of its own any more
        delete_object(image, old.id)
    forged = {"data": {"attributes": {"labels": {"author": ADDED}, "runscript": ADDED}}, "type": "container"}
    for data_type, data, name in (
        (DataType.GENERIC_JSON, json.dumps(forged).encode(), "inspect-metadata.json"),
        (DataType.GENERIC_JSON, say(ADDED), "oci-config.json"),
        (DataType.DEFFILE, ADDED.encode(), ""),
    ):
        append_object(image, DataObject(data_type, data, name, group=group))
    found = inspect_path(image)
    assert ADDED not in repr(found)
    assert found.report.labels == kept.labels
    with image.open("rb") as file:
        assert SifReader(file, "image").find_type(DataType.DEFFILE) is None
