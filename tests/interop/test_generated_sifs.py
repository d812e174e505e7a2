# SPDX-License-Identifier: BSD-3-Clause
"""Generated SIF files, built, changed and signed by kedge, read by the letter of the format, by gpg and Apptainer."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from kedge.image.formats.sif.reader import SifReader
from kedge.image.trust.openpgp.keys import armor_block, make_public
from kedge.image.trust.sign import PgpSigner, SignSelection, sign_image
from tests.builders.apptainer import Apptainer
from tests.builders.generated_sifs import SifMaker
from tests.builders.juries import Jury, each_tree
from tests.builders.openpgp_keys import NOW, Pair, make_pair, simple_block
from tests.builders.sif_parser import ParsedObject, ParsedSif, parse_sif
from tests.interop.test_signing_gpg import Gpg, gpg

__all__ = ["gpg"]
pytestmark = pytest.mark.timeout(7200)
CHANGES = 6
SIGNATURE = 0x4005


@each_tree(30, 5000)
def test_files_that_kedge_builds_and_changes_are_what_the_format_says(jury: Jury, seed: int, tmp_path: Path) -> None:
    maker = SifMaker(seed, tmp_path / "image.sif")
    maker.path.unlink(missing_ok=True)
    maker.build()
    first = parse_sif(maker.path.read_bytes())
    jury.tried["files"] += 1
    wrong = maker.find_differences(first) + maker.check_places(first.objects, 4096 + 48 * 585)
    for _ in range(CHANGES if not wrong else 0):
        maker.change()
        parsed = parse_sif(maker.path.read_bytes())
        jury.tried["files"] += 1
        assert parsed.identity == first.identity
        wrong += maker.find_differences(parsed)
        with maker.path.open("rb") as file:
            reader = SifReader(file)
            wrong += [
                f"kedge reads object {each.identifier} differently"
                for each in parsed.objects
                if reader.read_object(reader.find(each.identifier)) != each.data
            ]
    assert not wrong, wrong[:5]


def describe_group(parsed: ParsedSif, raw: bytes, group: int) -> dict[str, object]:
    """The document that a signature of a group signs, computed from the format's description."""
    members = [each for each in parsed.objects if each.group == group and each.kind != SIGNATURE]
    least = min(each.identifier for each in members)
    header = raw[:45] + raw[48:64]
    return {
        "version": 1,
        "header": {"digest": digest(header)},
        "objects": [
            {
                "relativeId": each.identifier - least,
                "descriptorDigest": digest(pack_covered(each, raw, each.identifier - least)),
                "objectDigest": digest(each.data),
            }
            for each in members
        ],
    }


def pack_covered(item: ParsedObject, raw: bytes, relative: int) -> bytes:
    """The fields of a descriptor that a signature covers."""
    slot = raw[4096 + 585 * item.slot :][:585]
    return slot[:5] + struct.pack("<I", relative) + slot[13:17] + slot[25:33] + slot[41:49] + slot[57:]


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture(scope="module")
def pairs(gpg: Gpg) -> list[Pair]:
    """Of all kinds, whose public keys gpg has."""
    made = [make_pair(kind, 700) for kind in ("ed25519", "p256", "p384", "p521")]
    gpg.run("--import", data=b"".join(armor_block(make_public(simple_block(pair))) for pair in made))
    return made


@each_tree(8, 300)
def test_signatures_are_over_what_the_format_says_and_gpg_verifies_them(
    jury: Jury, seed: int, tmp_path: Path, gpg: Gpg, pairs: list[Pair]
) -> None:
    maker, pair = SifMaker(seed, tmp_path / "image.sif"), pairs[seed % len(pairs)]
    maker.path.unlink(missing_ok=True)
    maker.build()
    before = parse_sif(maker.path.read_bytes())
    groups = {each.group for each in before.objects if each.group}
    if not groups or len(before.objects) + len(groups) > 48:
        return
    sign_image(maker.path, [PgpSigner(pair.signer, pair.key.fingerprint)], SignSelection(), NOW)
    raw = maker.path.read_bytes()
    parsed = parse_sif(raw)
    signatures = [each for each in parsed.objects if each.kind == SIGNATURE]
    assert {each.link for each in signatures} == groups
    for each in signatures:
        jury.tried["signatures"] += 1
        assert each.links_group
        assert each.group == 0
        assert each.extra[4:24].hex().upper() == pair.key.fingerprint
        done = gpg.run("--faked-system-time", str(NOW + 5), "--decrypt", data=each.data)
        assert f"VALIDSIG {pair.key.fingerprint}" in done.stderr.decode()
        assert json.loads(done.stdout) == describe_group(parsed, raw, each.link)


@pytest.mark.peer
@pytest.mark.root
@each_tree(2, 100)
def test_apptainer_reads_every_object_as_it_was_given(jury: Jury, seed: int, peer: Apptainer) -> None:
    maker = SifMaker(seed, peer.folder / "image.sif")
    maker.path.unlink(missing_ok=True)
    maker.build()
    for _ in range(CHANGES):
        maker.change()
    dumps = [f"apptainer -s sif dump {slot + 1} image.sif | sha256sum" for slot in sorted(maker.slots)]
    script = "\n".join(["set -e -o pipefail", "apptainer -s sif list image.sif >/dev/null", *dumps])
    found = peer.run("bash", "-c", script, shell=True).stdout
    jury.tried["objects"] += len(dumps)
    assert [line[:64] for line in found.splitlines()] == [
        hashlib.sha256(maker.slots[slot].data).hexdigest() for slot in sorted(maker.slots)
    ]
