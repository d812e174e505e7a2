# SPDX-License-Identifier: BSD-3-Clause
"""OpenPGP against GnuPG, both ways: keys, passphrases, cleartext signatures, expiry, revocation. Needs gpg."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import KeyUnusable, SignatureInvalid
from kedge.image.trust.keyring import find_in_blocks
from kedge.image.trust.openpgp.armor import canonicalize_text, parse_cleartext, write_cleartext
from kedge.image.trust.openpgp.key_validity import check_document, judge
from kedge.image.trust.openpgp.keys import KeyBlock, armor_block, make_public, read_keys
from kedge.image.trust.openpgp.signature import TEXT, make_signature, read_signatures
from kedge.image.trust.sign import unlock_key
from tests.builders.openpgp_keys import bind, make_pair, rsa_block, simple_block, subkey_block
from tests.requirements import require_program

KINDS = ["rsa2048", "rsa3072", "ed25519", "nistp256", "nistp384", "nistp521", "dsa2048"]
TEXTS = [
    b'{"version":1}',
    b"-dashes\n--- more\nFrom here\ntrailing \t \n\nlast",
    b"\n\nblank lines\n\n",
    "ünïcödé\n".encode(),
    b"",
]


class Gpg:
    """GnuPG with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *words: str, data: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        command = [require_program("gpg"), "--homedir", str(self.home), "--batch", "--no-tty", "--yes"]
        command += ["--pinentry-mode", "loopback", "--status-fd", "2", *words]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, input=data, env=environ, capture_output=True, check=False, timeout=120)
        assert not check or done.returncode == 0, done.stderr.decode()
        return done

    def make_key(self, kind: str, passphrase: str = "", expire: str = "never", usage: str = "cert,sign") -> KeyBlock:
        name = f"{kind} <{kind}-{time.monotonic_ns()}@test.example>"
        self.run("--passphrase", passphrase, "--quick-generate-key", name, kind, usage, expire)
        return read_keys(self.run("--export", name).stdout, "gpg's key")[0]

    def export_secret(self, fingerprint: str, passphrase: str = "") -> KeyBlock:
        done = self.run("--passphrase", passphrase, "--export-secret-keys", fingerprint)
        return read_keys(done.stdout, "gpg's secret key")[0]

    def clearsign(self, text: bytes, fingerprint: str, *more: str) -> bytes:
        return self.run("--passphrase", "", *more, "-u", fingerprint, "--clearsign", data=text).stdout


@pytest.fixture(scope="module")
def gpg() -> Iterator[Gpg]:
    with tempfile.TemporaryDirectory(prefix="kedge-gpg-") as folder:  # short: the agent's socket lies in it
        yield Gpg(Path(folder))
        environ = {"PATH": os.environ["PATH"], "GNUPGHOME": folder}
        subprocess.run([require_program("gpgconf"), "--kill", "all"], env=environ, check=False)


@pytest.fixture(scope="module")
def gpg_keys(gpg: Gpg) -> dict[str, KeyBlock]:
    return {kind: gpg.make_key(kind) for kind in KINDS}


def check(message: bytes, *blocks: KeyBlock) -> bytes:
    """Verify a cleartext message like an image's signature; gives its text."""
    now = int(time.time()) + 60
    parsed = parse_cleartext(message, "the message")
    found = read_signatures(parsed.signature, "the signature")[0]
    block = find_in_blocks(blocks, found.issuer_fingerprint or found.issuer_key_id or "")[0]
    check_document(judge(block, now), found, parsed.signed, now, "the signature")
    return parsed.text


@pytest.mark.parametrize("kind", KINDS)
def test_gpg_signature_is_verified(kind: str, gpg: Gpg, gpg_keys: dict[str, KeyBlock]) -> None:
    for text in TEXTS if kind == "ed25519" else TEXTS[1:2]:  # texts are no question of the key
        message = gpg.clearsign(text, gpg_keys[kind].fingerprint)
        read = check(message, *gpg_keys.values())
        assert read.rstrip() == re.sub(rb"[ \t]+\n", b"\n", text).rstrip()
    changed = gpg.clearsign(b"pay 10", gpg_keys[kind].fingerprint).replace(b"pay 10", b"pay 99")
    with pytest.raises(SignatureInvalid, match="does not match"):
        check(changed, *gpg_keys.values())


def test_gpg_signature_with_every_hash_but_sha1(gpg: Gpg, gpg_keys: dict[str, KeyBlock]) -> None:
    block = gpg_keys["rsa2048"]
    for name in ("SHA224", "SHA256", "SHA384", "SHA512"):
        assert check(gpg.clearsign(b"text", block.fingerprint, "--digest-algo", name), block) == b"text", name
    with pytest.raises(SignatureInvalid, match="SHA1"):
        check(gpg.clearsign(b"text", block.fingerprint, "--digest-algo", "SHA1"), block)


@pytest.mark.parametrize(
    ("kind", "passphrase", "algorithm"),
    [
        ("rsa2048", "", "sha256"),
        *(("rsa2048", "correct horse ü", "sha256"), ("ed25519", "correct horse ü", "sha256")),
        *(("nistp256", "", "sha256"), ("nistp384", "", "sha384"), ("nistp521", "", "sha512")),
    ],
)
def test_gpg_secret_key_signs_here_and_gpg_verifies(kind: str, passphrase: str, algorithm: str, gpg: Gpg) -> None:
    public = gpg.make_key(kind, passphrase)
    secret = gpg.export_secret(public.fingerprint, passphrase)
    now = int(time.time()) + 1
    signer = unlock_key(secret, lambda _question: passphrase, now)
    if passphrase:
        with pytest.raises(KeyUnusable, match="passphrase is wrong"):
            unlock_key(secret, lambda _question: "wrong", now)
    for text in TEXTS if kind == "ed25519" else TEXTS[1:2]:
        packet = make_signature(signer.signer, TEXT, canonicalize_text(text), now)
        message = write_cleartext(text, algorithm, packet)
        status = gpg.run("--faked-system-time", str(now + 5), "--verify", data=message).stderr.decode()
        assert f"VALIDSIG {public.fingerprint}" in status


def make_own() -> dict[str, KeyBlock]:
    return {
        "rsa": rsa_block(),
        "locked": rsa_block("Locked", "correct horse"),
        "ed25519": simple_block(make_pair("ed25519", 601)),
        "p384": simple_block(make_pair("p384", 602)),
        "subkey": subkey_block(
            make_pair("ed25519", 603), make_pair("p256", 604), bind(make_pair("ed25519", 603), make_pair("p256", 604))
        ),
    }


@pytest.mark.parametrize("name", ["rsa", "locked", "ed25519", "p384", "subkey"])
def test_own_keys_are_imported_and_used_by_gpg(name: str, gpg: Gpg) -> None:
    block = make_own()[name]
    status = gpg.run("--import", data=armor_block(make_public(block))).stderr.decode()
    assert f"IMPORT_OK 1 {block.fingerprint}" in status
    listing = gpg.run("--with-colons", "--list-keys", block.fingerprint).stdout.decode()
    judged = judge(block, int(time.time()))
    assert all(user_id in listing for user_id in judged.user_ids)
    now = int(time.time())
    signer = unlock_key(block, lambda _question: "correct horse", now)
    packet = make_signature(signer.signer, TEXT, canonicalize_text(b"text"), now)
    message = write_cleartext(b"text", {"p384": "sha384"}.get(name, "sha256"), packet)
    verified = gpg.run("--faked-system-time", str(now + 5), "--verify", data=message).stderr.decode()
    assert f"VALIDSIG {signer.signer.fingerprint}" in verified
    damaged = message.replace(b"\ntext\n", b"\ntexT\n")
    assert b"BADSIG" in gpg.run("--verify", data=damaged, check=False).stderr


@pytest.mark.parametrize("name", ["rsa", "locked"])
def test_own_secret_key_signs_in_gpg(name: str, gpg: Gpg) -> None:
    block = make_own()[name]
    passphrase = "correct horse" if name == "locked" else ""
    gpg.run("--passphrase", passphrase, "--import", data=block.raw)
    done = gpg.run("--passphrase", passphrase, "-u", block.fingerprint, "--clearsign", data=b"hello")
    assert check(done.stdout, make_public(block)) == b"hello"


def test_gpg_expired_key_is_refused(gpg: Gpg) -> None:
    block = gpg.make_key("ed25519", expire="1d")
    message = gpg.clearsign(b"text", block.fingerprint)
    assert check(message, block) == b"text"
    later = int(time.time()) + 3 * 86400
    parsed = parse_cleartext(message, "m")
    found = read_signatures(parsed.signature, "s")[0]
    with pytest.raises(SignatureInvalid, match="expired on"):
        check_document(judge(block, later), found, parsed.signed, later, "s")


def test_gpg_revoked_key_is_refused(gpg: Gpg) -> None:
    block = gpg.make_key("ed25519")
    message = gpg.clearsign(b"text", block.fingerprint)
    certificate = (gpg.home / "openpgp-revocs.d" / f"{block.fingerprint}.rev").read_text()
    gpg.run("--import", data=certificate.replace(":-----BEGIN", "-----BEGIN").encode())
    revoked = read_keys(gpg.run("--export", block.fingerprint).stdout, "revoked")[0]
    with pytest.raises(SignatureInvalid, match="revoked"):
        check(message, revoked)


def test_gpg_subkey_with_offline_primary_signs(gpg: Gpg) -> None:
    primary = gpg.make_key("ed25519", usage="cert")
    gpg.run("--passphrase", "", "--quick-add-key", primary.fingerprint, "ed25519", "sign", "never")
    gpg.run("--passphrase", "", "--quick-add-key", primary.fingerprint, "cv25519", "encr", "never")
    public = read_keys(gpg.run("--export", primary.fingerprint).stdout, "public")[0]
    assert check(gpg.clearsign(b"text", primary.fingerprint), public) == b"text"
    exported = gpg.run("--passphrase", "", "--export-secret-subkeys", primary.fingerprint).stdout
    now = int(time.time()) + 1
    signer = unlock_key(read_keys(exported, "offline")[0], lambda _question: "", now)
    assert signer.owner == primary.fingerprint
    assert signer.signer.fingerprint != primary.fingerprint
    message = write_cleartext(b"x", "sha256", make_signature(signer.signer, TEXT, b"x", now))
    assert b"VALIDSIG" in gpg.run("--faked-system-time", str(now + 5), "--verify", data=message).stderr
