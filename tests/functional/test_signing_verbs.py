# SPDX-License-Identifier: BSD-3-Clause
"""`kedge sign`, `verify` and `key` as a user runs them, with a key server on loopback. Needs openssl."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge import errors
from kedge.cli.main import main
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object
from kedge.image.formats.sif.layout import DataType
from kedge.image.trust.keyring import KeyRing
from kedge.image.trust.openpgp import signature as sig
from kedge.image.trust.openpgp.keys import armor_block, make_public, read_keys
from kedge.image.trust.openpgp.packets import USER_ID, write_packet
from tests.builders.containers import Runner, give_to, warm_runner
from tests.builders.openpgp_keys import (
    assemble,
    certify,
    flags,
    foreign_packets,
    make_pair,
    revoke,
    rsa_block,
    simple_block,
)
from tests.builders.pem_keys import make_certificate, make_pem
from tests.builders.rows import each_row
from tests.builders.sif import build_sif
from tests.fakes.http_server import FakeServer, Recorded, Reply
from tests.wording import assert_says

runner = warm_runner
EVE = simple_block(make_pair("ed25519", 401, created=1_700_000_000))
LOCKED = rsa_block("Locked", "correct horse")


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeyRing:
    """Empty rings that the commands use."""
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(tmp_path / "keys"))
    monkeypatch.setenv("KEDGE_GLOBAL_KEYSDIR", str(tmp_path / "site"))
    return KeyRing(tmp_path / "keys")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.sif"
    path.write_bytes(build_sif([(DataType.DEFFILE, b"from: x\n", b""), (DataType.GENERIC, b"data", b"")]))
    return path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is piped to standard input."""
    given = io.StringIO()
    monkeypatch.setattr(sys, "stdin", given)
    return given


def test_sign_and_verify_with_the_only_key(ring: KeyRing, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring.add_secret([EVE])
    ring.add_public([EVE])
    assert main(["sign", str(image)]) == 0
    assert main(["verify", "--local", str(image)]) == 0
    out = capsys.readouterr().out
    assert f"[LOCAL]   Fingerprint: {EVE.fingerprint}" in out
    assert "1   |1       |NONE    |Def.FILE" in out


def test_verify_json_has_apptainers_fields(ring: KeyRing, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring.add_secret([EVE])
    ring.add_public([EVE])
    main(["sign", str(image)])
    capsys.readouterr()
    assert main(["verify", "--local", "--json", str(image)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["Signatures"] == 1
    signer = document["SignerKeys"][0]["Signer"]
    assert (signer["Partition"], signer["Fingerprint"]) == ("Def.FILE", EVE.fingerprint.lower())
    assert (signer["KeyLocal"], signer["KeyCheck"], signer["DataCheck"]) == (True, True, True)
    append_object(image, DataObject(DataType.GENERIC, b"more"))
    assert main(["verify", "--local", "--json", str(image)]) == errors.SignatureInvalid.exit_code
    document = json.loads(capsys.readouterr().out)
    assert document["Error"]["context"]["reason"] == "object-added"


def test_verify_unknown_key_says_how_to_get_it(ring: KeyRing, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring.add_secret([EVE])
    main(["sign", str(image)])
    assert main(["verify", "--local", str(image)]) == errors.KeyNotFound.exit_code
    assert f"kedge key pull {EVE.fingerprint}" in capsys.readouterr().err


def test_sign_with_a_locked_key(ring, image, typed, monkeypatch, capsys):
    ring.add_secret([LOCKED])
    ring.add_public([LOCKED])
    before = image.read_bytes()
    assert main(["sign", str(image)]) == errors.UsageError.exit_code  # nothing piped, no terminal
    assert "KEDGE_SIGN_PASSPHRASE" in capsys.readouterr().err
    typed.write("wrong\n")
    typed.seek(0)
    assert main(["sign", str(image)]) == errors.KeyUnusable.exit_code
    assert image.read_bytes() == before
    typed.seek(0)
    typed.truncate()
    typed.write("correct horse\n")
    typed.seek(0)
    assert main(["sign", str(image)]) == 0
    monkeypatch.setenv("KEDGE_SIGN_PASSPHRASE", "correct horse")
    assert main(["sign", "--fingerprint", LOCKED.fingerprint, str(image)]) == 0
    assert main(["verify", "--local", str(image)]) == 0
    assert "correct horse" not in "".join(capsys.readouterr())


def test_sign_with_an_odd_passphrase_is_only_a_wrong_passphrase(ring: KeyRing, image: Path) -> None:
    ring.add_secret([LOCKED])
    bad, endless = b"\xff\xfe\n", b"x" * (1 << 20) + b"\n"
    for environment, given in (({}, bad), ({"KEDGE_SIGN_PASSPHRASE": os.fsdecode(bad.strip())}, b""), ({}, endless)):
        done = subprocess.run(
            [sys.executable, "-m", "kedge", "sign", str(image)],
            input=given,
            capture_output=True,
            env={**os.environ, **environment, "LC_ALL": "C.UTF-8"},
            check=False,
        )
        assert done.returncode == errors.KeyUnusable.exit_code, done.stderr
        assert b"the passphrase is wrong" in done.stderr


def test_sign_with_several_keys_wants_a_choice(ring, image, typed, capsys):
    ring.add_secret([EVE, LOCKED])
    assert main(["sign", str(image)]) == errors.UsageError.exit_code
    assert EVE.fingerprint in capsys.readouterr().err
    assert main(["sign", "--keyidx", "0", str(image)]) == 0
    assert main(["sign", "--keyidx", "5", str(image)]) == errors.KeyNotFound.exit_code
    assert main(["sign", "--keyidx", "-1", str(image)]) == errors.KeyNotFound.exit_code
    typed.write("1\ncorrect horse\n")
    typed.seek(0)
    assert main(["sign", str(image)]) == 0  # the number, then the passphrase, as Apptainer reads them
    ring.add_public([EVE, LOCKED])
    assert main(["verify", "--local", str(image)]) == 0
    assert LOCKED.fingerprint in capsys.readouterr().out


def test_sign_without_a_key(ring: KeyRing, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sign", str(image)]) == errors.KeyNotFound.exit_code
    assert "kedge key newpair" in capsys.readouterr().err


def test_sign_and_verify_with_pem_keys(ring, image, tmp_path, monkeypatch, capsys):
    plain = make_pem(tmp_path, "ed25519")
    locked = make_pem(tmp_path, "p256", "sesame")
    monkeypatch.setenv("APPTAINER_SIGN_PASSPHRASE", "sesame")
    assert main(["sign", "--key", str(plain[0]), "--key", str(locked[0]), str(image)]) == 0
    for _, public in (plain, locked):
        assert main(["verify", "--key", str(public), str(image)]) == 0
    monkeypatch.setenv("APPTAINER_VERIFY_KEY", str(plain[1]))
    assert main(["verify", str(image)]) == 0
    stranger = make_pem(tmp_path, "rsa")[1]
    assert main(["verify", "--key", str(stranger), str(image)]) == errors.SignatureInvalid.exit_code
    assert_says(capsys.readouterr().err, "sign/not-made-given-key")


def test_verify_with_a_certificate(ring: KeyRing, image: Path, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    root_key, (leaf_key, _) = make_pem(tmp_path / "root", "p256")[0], make_pem(tmp_path, "ed25519")
    authority = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"
    root = make_certificate(tmp_path, "root-ca", root_key, None, authority)
    leaf = make_certificate(tmp_path, "signer", leaf_key, (root, root_key), "extendedKeyUsage=codeSigning\n")
    assert main(["sign", "--key", str(leaf_key), str(image)]) == 0
    assert main(["verify", "--certificate", str(leaf), "--certificate-roots", str(root), str(image)]) == 0
    assert main(["verify", "--certificate", str(leaf), str(image)]) == errors.KeyUnusable.exit_code


@each_row(
    ("words", "status"),
    [
        (["sign", "/nonexistent.sif"], 30),
        (["verify", "--local", "/nonexistent.sif"], 30),
        (["verify", "--key", "/nonexistent.pem", "IMAGE"], 30),
        (["sign", "--key", "/nonexistent.pem", "IMAGE"], 30),
        (["sign", "--key", "/etc/passwd", "IMAGE"], errors.KeyUnusable.exit_code),
        (["sign", "--group-id", "0", "IMAGE"], 2),
        (["verify", "--local", "--group-id", "9", "IMAGE"], 2),
        (["verify", "--local", "--sif-id", "99", "IMAGE"], 23),
        (["verify", "--local", "/etc/passwd"], 23),
        (["verify", "--key", "a", "--certificate", "b", "IMAGE"], 2),
        (["key", "import", "/etc/passwd"], errors.KeyUnusable.exit_code),
        (["key", "remove", "ABCDEF0123456789"], errors.KeyNotFound.exit_code),
        (["key", "export", "/nonexistent/x"], errors.KeyNotFound.exit_code),
    ],
)
def test_verbs_refuse_with_one_status_each(ring, image, typed, words, status):
    if words[0] == "sign":
        ring.add_secret([EVE])
    assert main([str(image) if word == "IMAGE" else word for word in words]) == status


def test_key_newpair_makes_a_usable_key(ring: KeyRing, image: Path, typed: io.StringIO) -> None:
    typed.write("piped passphrase\n")
    typed.seek(0)
    assert main(["key", "newpair", "-N", "Kay", "-E", "kay@test.example", "-C", "tests", "-b", "2048"]) == 0
    assert ring.load_secret()[0].user_ids == ("Kay (tests) <kay@test.example>",)
    assert main(["sign", str(image)]) == errors.UsageError.exit_code
    typed.seek(0)
    assert main(["sign", str(image)]) == 0
    assert main(["verify", "--local", str(image)]) == 0


def test_key_newpair_without_passphrase_must_be_asked_for(ring: KeyRing, typed: io.StringIO) -> None:
    words = ["key", "newpair", "-N", "Kay", "-E", "kay@test.example", "-b", "2048"]
    assert main(words) == errors.UsageError.exit_code
    assert not ring.secret_path.exists()
    assert main([*words, "--no-password"]) == 0


def test_key_list_export_remove_import(ring: KeyRing, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring.add_secret([EVE])
    ring.add_public([EVE, LOCKED])
    ring.public_path.write_bytes(ring.public_path.read_bytes() + foreign_packets()[0])
    assert main(["key", "list"]) == 0
    listing = capsys.readouterr().out
    assert "0)  User:              Eve Test <eve@test.example>" in listing
    assert "Not usable:        a key in" in listing
    assert main(["key", "list", "--secret", "--json"]) == 0
    assert [item["fingerprint"] for item in json.loads(capsys.readouterr().out)] == [EVE.fingerprint]
    for secret, armored in ((False, True), (False, False), (True, True)):
        target = tmp_path / f"exported-{secret}-{armored}"
        words = ["key", "export", "--fingerprint", EVE.fingerprint, *["--secret"] * secret, *["--armor"] * armored]
        assert main([*words, str(target)]) == 0
        block = EVE if secret else make_public(EVE)
        assert target.read_bytes() == (armor_block(block) if armored else block.raw)
        assert target.stat().st_mode & 0o777 == (0o600 if secret else 0o644)
        assert main([*words, str(target)]) == errors.OutputExists.exit_code
    assert main(["key", "remove", EVE.fingerprint]) == 0
    assert [block.fingerprint for block in ring.load_secret()] == [EVE.fingerprint]
    assert main(["key", "remove", "--secret", EVE.fingerprint]) == 0
    assert ring.load_secret() == []
    assert main(["key", "import", str(tmp_path / "exported-True-True")]) == 0
    assert ring.load_secret()[0].raw == EVE.raw
    assert make_public(EVE).raw in ring.public_path.read_bytes()
    assert foreign_packets()[0] in ring.public_path.read_bytes()
    assert main(["key", "remove", "--both", EVE.fingerprint]) == 0


def test_key_import_refuses_a_key_that_proves_nothing(ring: KeyRing, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_bytes(make_public(EVE).packet.raw)
    assert main(["key", "import", str(bare)]) == errors.KeyUnusable.exit_code
    assert ring.load_public() == []
    ring.add_public([EVE])
    assert main(["key", "import", str(bare)]) == 0  # nothing new about a known key


def test_key_global_ring_is_trusted_and_separate(ring, image, tmp_path, capsys):
    ring.add_secret([EVE])
    main(["sign", str(image)])
    exported = tmp_path / "eve.asc"
    exported.write_bytes(armor_block(make_public(EVE)))
    assert main(["key", "import", "--global", str(exported)]) == 0
    assert (tmp_path / "site" / "global-pgp-public").stat().st_mode & 0o777 == 0o644
    assert ring.load_public() == []
    assert main(["verify", "--local", str(image)]) == 0
    assert "[GLOBAL]" in capsys.readouterr().out


def test_verify_honours_a_revocation_that_only_one_of_the_rings_has(ring, image, tmp_path, capsys):
    pair = make_pair("ed25519", 402)
    user_id = b"Mallory Test"
    named = write_packet(USER_ID, user_id) + certify(pair, user_id, flags(sig.CAN_CERTIFY | sig.CAN_SIGN))
    ring.add_secret([assemble(pair.secret_packet(), named)])
    main(["sign", str(image)])
    usable = make_public(assemble(pair.secret_packet(), named))
    revoked = make_public(assemble(pair.secret_packet(), revoke(pair), named))
    site = KeyRing(tmp_path / "site", is_global=True)
    site.add_public([usable])
    assert main(["verify", "--local", str(image)]) == 0
    ring.add_public([revoked])
    assert main(["verify", "--local", str(image)]) == errors.SignatureInvalid.exit_code
    assert "revoked (compromised" in capsys.readouterr().err


class KeyServer:
    """Answers like an HKP server."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}

    def answer(self, request: Recorded) -> Reply:
        if request.path == "/pks/add":
            from urllib.parse import parse_qs

            text = parse_qs(request.body.decode())["keytext"][0].encode()
            for block in read_keys(text, "upload"):
                self.keys[block.fingerprint] = armor_block(block)
            return Reply(200)
        search = request.query["search"][0].removeprefix("0x")
        found = {name: text for name, text in self.keys.items() if name.endswith(search) or search == "Eve"}
        if not found:
            return Reply(404, b"not found")
        if request.query["op"] == ["index"]:
            return Reply(200, b"".join(b"pub:%s:22:256:1700000000::\nuid:Eve%%20Test::\n" % n.encode() for n in found))
        return Reply(200, b"".join(found.values()))


@pytest.fixture
def server() -> Iterator[tuple[KeyServer, str]]:
    keys = KeyServer()
    with FakeServer(keys.answer) as http:
        yield keys, http.url


def test_key_server_push_search_pull(ring, server, capsys):
    keys, url = server
    ring.add_public([EVE])
    assert main(["key", "push", "--url", url, EVE.fingerprint]) == 0
    assert keys.keys == {EVE.fingerprint: armor_block(make_public(EVE))}
    ring.remove_public(EVE.fingerprint)
    assert main(["key", "search", "--url", url, "Eve"]) == 0
    assert EVE.fingerprint in capsys.readouterr().out
    assert main(["key", "search", "--url", url, "--long-list", "nobody"]) == 0
    assert "Showing 0 results" in capsys.readouterr().out
    assert main(["key", "pull", "--url", url, EVE.fingerprint]) == 0
    assert ring.load_public()[0].raw == make_public(EVE).raw
    assert main(["key", "pull", "--url", url, LOCKED.fingerprint]) == errors.KeyNotFound.exit_code


def test_key_commands_with_json_print_one_document(ring, tmp_path, server, capsys):
    _, url = server
    source = tmp_path / "eve.asc"
    source.write_bytes(armor_block(make_public(EVE)))
    commands = [
        ["import", str(source)],
        ["list"],
        ["export", str(tmp_path / "out.asc")],
        ["push", "--url", url, EVE.fingerprint],
        ["search", "--url", url, "Eve"],
        ["pull", "--url", url, EVE.fingerprint],
        ["remove", EVE.fingerprint],
        ["remove", EVE.fingerprint],  # which fails
    ]
    statuses = []
    for command in commands:
        capsys.readouterr()
        statuses.append(main(["--json", "key", *command]))
        assert EVE.fingerprint in json.dumps(json.loads(capsys.readouterr().out)), command
    assert statuses == [0] * 7 + [errors.KeyNotFound.exit_code]


def test_key_server_that_sends_another_key_is_refused(ring: KeyRing, server: tuple[KeyServer, str]) -> None:
    keys, url = server
    keys.keys[EVE.fingerprint] = armor_block(make_public(LOCKED))
    assert main(["key", "pull", "--url", url, EVE.fingerprint]) == errors.RegistryProtocolError.exit_code
    keys.keys[EVE.fingerprint] = armor_block(EVE)  # a secret key has no business there
    assert main(["key", "pull", "--url", url, EVE.fingerprint]) == errors.RegistryProtocolError.exit_code
    keys.keys[EVE.fingerprint] = b"<html>hello</html>"
    assert main(["key", "pull", "--url", url, EVE.fingerprint]) == errors.KeyUnusable.exit_code
    assert ring.load_public() == []


def test_verify_asks_the_key_server_unless_local(ring, image, server, capsys):
    keys, url = server
    ring.add_secret([EVE])
    main(["sign", str(image)])
    assert main(["verify", "--url", url, str(image)]) == errors.KeyNotFound.exit_code
    keys.keys[EVE.fingerprint] = armor_block(make_public(EVE))
    assert main(["verify", "--url", url, "--trust-keyserver", str(image)]) == 0
    shown = capsys.readouterr()
    assert "[REMOTE]" in shown.out
    assert main(["verify", "--url", url, "--local", str(image)]) == errors.KeyNotFound.exit_code
    assert ring.load_public() == []


def test_verify_does_not_accept_a_key_that_only_the_server_vouches_for(ring, image, server, capsys):
    keys, url = server
    ring.add_secret([EVE])
    main(["sign", str(image)])
    keys.keys[EVE.fingerprint] = armor_block(make_public(EVE))
    capsys.readouterr()
    assert main(["verify", "--url", url, str(image)]) == errors.KeyNotFound.exit_code
    shown = capsys.readouterr()
    assert "Objects verified" not in shown.out
    assert_says(shown.err, "sign/only-key-server-knows")
    pull = ["key", "pull", "--url", url, EVE.fingerprint]
    assert f"kedge {' '.join(pull)}" in shown.err.replace("\n  ", " ")
    assert main(["verify", "--json", "--url", url, str(image)]) == errors.KeyNotFound.exit_code
    told = json.loads(capsys.readouterr().out)
    assert told["Error"]["context"]["reason"] == "fetched-key"
    (signer,) = told["SignerKeys"]
    assert not any(signer["Signer"][name] for name in ("KeyLocal", "KeyCheck", "DataCheck"))
    assert main(pull) == 0
    assert main(["verify", "--url", url, str(image)]) == 0


def test_key_server_failure_is_said(ring: KeyRing) -> None:
    with FakeServer(lambda _request: Reply(403, b"no\x1b[2J")) as http:
        assert main(["key", "search", "--url", http.url, "x"]) == errors.NetworkFailed.exit_code


def test_verbs_as_an_ordinary_user(runner: Runner) -> None:
    image, ring = runner.home / "image.sif", KeyRing(runner.home / "keys")
    image.write_bytes(build_sif([(DataType.DEFFILE, b"from: x\n", b"")]))
    ring.add_secret([EVE])
    ring.add_public([EVE])
    closed = shutil.copy(image, runner.home / "closed.sif")
    give_to(runner, runner.home)
    closed.chmod(0)
    env = {"APPTAINER_KEYSDIR": str(runner.home / "keys")}
    for words in (["sign", "image.sif"], ["verify", "--local", "image.sif"], ["key", "remove", "-b", EVE.fingerprint]):
        runner.read(*words, env=env)
    done = runner.run("verify", "closed.sif", env=env)
    assert done.returncode == 30
    assert "Permission denied" in done.stderr
