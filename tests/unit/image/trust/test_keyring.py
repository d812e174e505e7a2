# SPDX-License-Identifier: BSD-3-Clause
"""Key rings on disk, and the text of the key server protocol. Needs nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kedge.errors import KeyNotFound, KeyUnusable, UsageError
from kedge.image.trust import keyring, keyserver
from kedge.image.trust.keyring import KeyRing
from kedge.image.trust.openpgp.keys import make_public, read_keys
from tests.builders.openpgp_keys import assemble, foreign_packets, make_pair, revoke, simple_block
from tests.builders.rows import each_row

ONE, TWO = simple_block(make_pair("ed25519", 101)), simple_block(make_pair("p256", 102))


def test_ring_keeps_foreign_keys_byte_for_byte(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    foreign = b"".join(foreign_packets())
    ring.public_path.write_bytes(foreign)
    assert ring.add_public([ONE]) == ["added"]
    assert ring.public_path.read_bytes() == foreign + make_public(ONE).raw
    ring.remove_public(ONE.fingerprint)
    assert ring.public_path.read_bytes() == foreign


def test_ring_is_private_and_secrets_stay_in_the_secret_ring(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "new" / "keys")
    ring.add_secret([ONE])
    ring.add_public([ONE])
    assert ring.folder.stat().st_mode & 0o777 == 0o700
    for path in (ring.public_path, ring.secret_path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert ring.secret_path.read_bytes() == ONE.raw
    assert ring.public_path.read_bytes() == make_public(ONE).raw


def test_ring_adding_again_changes_nothing(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    assert ring.add_public([ONE, TWO]) == ["added", "added"]
    before = ring.public_path.stat().st_ino
    assert ring.add_public([TWO]) == ["unchanged"]
    assert ring.public_path.stat().st_ino == before


def test_ring_merges_a_revocation_into_a_known_key(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.add_public([ONE])
    revoked = assemble(make_public(ONE).packet.raw, revoke(make_pair("ed25519", 101)))
    assert ring.add_public([revoked]) == ["updated"]
    assert len(ring.load_public()) == 1
    assert len(ring.load_public()[0].signatures) == 1


def test_ring_secret_key_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.add_secret([ONE])
    assert ring.add_secret([ONE, TWO]) == ["unchanged", "added"]
    assert ring.secret_path.read_bytes() == ONE.raw + TWO.raw


def test_ring_damaged_is_never_overwritten(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    damaged = make_public(TWO).raw + make_public(ONE).raw[:-5]
    ring.public_path.write_bytes(damaged)
    with pytest.raises(KeyUnusable, match="cut off"):
        ring.add_public([ONE])
    assert ring.public_path.read_bytes() == damaged


def test_ring_behind_a_link_stays_behind_it(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys")
    ring.folder.mkdir()
    (tmp_path / "real").write_bytes(b"")
    ring.public_path.symlink_to(tmp_path / "real")
    ring.add_public([ONE])
    assert ring.public_path.is_symlink()
    assert (tmp_path / "real").read_bytes() == make_public(ONE).raw


def test_ring_changes_by_many_threads_lose_nothing(tmp_path: Path) -> None:
    blocks = [simple_block(make_pair("ed25519", 200 + at)) for at in range(12)]
    threads = [threading.Thread(target=KeyRing(tmp_path).add_public, args=([block],)) for block in blocks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {block.fingerprint for block in KeyRing(tmp_path).load_public()}
    assert found == {block.fingerprint for block in blocks}
    assert sorted(item.name for item in tmp_path.iterdir()) == [".kedge-lock-pgp-public", "pgp-public"]


def test_ring_folder_follows_the_variables(tmp_path: Path) -> None:
    names = ("SINGULARITY_SYPGPDIR", "SINGULARITY_KEYSDIR", "APPTAINER_KEYSDIR", "KEDGE_KEYSDIR")
    environ: dict[str, str] = {}
    assert keyring.locate_folder(environ, Path("/home/u")) == Path("/home/u/.apptainer/keys")
    for name in names:
        environ[name] = str(tmp_path / name)
        assert keyring.locate_folder(environ, Path("/home/u")) == tmp_path / name


def test_ring_selects_by_the_end_of_a_fingerprint() -> None:
    spaced = " ".join(ONE.fingerprint[at : at + 4] for at in range(0, 40, 4)).lower()
    for wanted in (ONE.fingerprint, spaced, "0x" + ONE.fingerprint[-16:], ONE.fingerprint[-8:]):
        assert keyring.select_key([ONE, TWO], wanted, "ring") is ONE
    with pytest.raises(KeyNotFound):
        keyring.select_key([ONE], TWO.fingerprint, "ring")
    with pytest.raises(UsageError, match="2 keys"):
        keyring.select_key([ONE, ONE], ONE.fingerprint, "ring")
    for wrong in ("", "12", "xyzxyzxyz", "0" * 65):
        with pytest.raises(UsageError):
            keyring.select_key([ONE], wrong, "ring")


@each_row(
    ("given", "expected"),
    [
        ("keys.example.org", "https://keys.example.org"),
        ("https://keys.example.org/", "https://keys.example.org"),
        ("hkps://keys.example.org", "https://keys.example.org"),
        ("hkp://keys.example.org", "http://keys.example.org:11371"),
        ("hkp://keys.example.org:80", "http://keys.example.org:80"),
        ("http://127.0.0.1:8000/path", "http://127.0.0.1:8000/path"),
    ],
)
def test_keyserver_addresses(given: str, expected: str) -> None:
    assert keyserver.normalize_server(given) == expected


@each_row("given", ["", "ftp://x", "https://", "https://h:port", "file:///etc/passwd", "https://h?x=1"])
def test_keyserver_addresses_refused(given: str) -> None:
    with pytest.raises(UsageError):
        keyserver.normalize_server(given)


def test_keyserver_lookup_addresses() -> None:
    assert keyserver.build_lookup("https://k", "get", "12045c8c 0b1004d0") == (
        "https://k/pks/lookup?op=get&options=mr&search=0x12045C8C0B1004D0"
    )
    assert keyserver.build_lookup("https://k", "index", "a b&op=x").endswith("search=a+b%26op%3Dx&fingerprint=on")


def test_keyserver_index_is_read() -> None:
    answer = (
        b"info:1:2\n"
        b"pub:12045C8C0B1004D058DE4BEDA20C27EE7FF7BA84:1:2048:1588023536::\n"
        b"uid:Unit%20Test%20%3Cunit%40test.com%3E:1588023536::\n"
        b"uid:evil%1b[2Jname:::\n"
        b"nonsense\n\xff\xfe\n"
        b"pub:ABCDEF0123456789:22:256:nonsense:1700000000:re\n"
    )
    first, second = keyserver.parse_index(answer)
    assert first.user_ids == ("Unit Test <unit@test.com>", "evil?[2Jname")
    assert (first.algorithm, first.bits, first.created, first.expires, first.flags) == (
        *("RSA", 2048, 1588023536, None, ""),
    )
    assert (second.algorithm, second.created, second.expires, second.flags) == ("EdDSA", None, 1700000000, "er")
    assert len(keyserver.parse_index(b"pub:AA:1:1::\n" * 1000)) == keyserver.MAXIMUM_FOUND


def test_keyserver_upload_form() -> None:
    url, body = keyserver.build_upload("https://k/", b"-----BEGIN PGP\n+/=")
    assert (url, body) == ("https://k/pks/add", b"keytext=-----BEGIN+PGP%0A%2B%2F%3D")


def test_ring_reads_armored_key_files_with_several_keys() -> None:
    from kedge.image.trust.openpgp.keys import armor_block

    text = b"hello\n" + armor_block(make_public(ONE)) + b"\nand\n" + armor_block(TWO)
    assert [block.fingerprint for block in read_keys(text, "file")] == [ONE.fingerprint, TWO.fingerprint]
