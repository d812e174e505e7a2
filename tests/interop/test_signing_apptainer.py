# SPDX-License-Identifier: BSD-3-Clause
"""Signatures and keys against the real Apptainer, both ways. Needs its tree (tests/requirements.py), and openssl."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kedge.cli.main import main
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object
from kedge.image.formats.sif.layout import DataType
from kedge.image.trust.keyring import KeyRing
from kedge.image.trust.openpgp.keys import armor_block, make_public
from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.builders.openpgp_keys import bind, foreign_packets, make_pair, rsa_block, simple_block, subkey_block
from tests.builders.pem_keys import make_certificate, make_pem
from tests.builders.sif import fixture_path

pytestmark = [pytest.mark.peer, pytest.mark.root]

BLOCKS = {
    "rsa": rsa_block(),
    "ed25519": simple_block(make_pair("ed25519", 701)),
    "p256": simple_block(make_pair("p256", 702)),
    "p384": simple_block(make_pair("p384", 703)),
    "p521": simple_block(make_pair("p521", 704)),
    "subkey": subkey_block(
        make_pair("ed25519", 705), make_pair("p256", 706), bind(make_pair("ed25519", 705), make_pair("p256", 706))
    ),
}


@dataclass(frozen=True)
class Peer:
    """The real Apptainer, with the same key directory as ours."""

    apptainer: Apptainer

    @property
    def folder(self) -> Path:
        """The directory of both."""
        return self.apptainer.folder

    @property
    def ring(self) -> KeyRing:
        """The keys of both."""
        return KeyRing(self.folder / "keys")

    def run(self, *words: str | Path, data: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it as its user, whose all in the directory is meanwhile."""
        return self._give().run(*words, input=data, check=check)

    def answer(self, *commands: tuple[str | Path, ...]) -> list[tuple[int, str]]:
        """Status and output of several."""
        return self._give().answer(*commands)

    def _give(self) -> Apptainer:
        return replace(self.apptainer, folder=self.apptainer.own(self.folder))

    def image(self, name: str = "two-groups.sif") -> Path:
        """A copy of a fixture."""
        target = self.folder / f"image-{len(list(self.folder.iterdir()))}.sif"
        shutil.copy(fixture_path(name), target)
        target.chmod(0o755)
        return target


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    with apptainer_folder() as made:
        monkeypatch.setenv("APPTAINER_KEYSDIR", f"{made.folder}/keys")
        monkeypatch.setenv("KEDGE_GLOBAL_KEYSDIR", f"{made.folder}/site")
        yield Peer(replace(made, variables=(f"APPTAINER_KEYSDIR={made.folder}/keys",)))


def test_apptainer_verifies_what_we_sign(peer: Peer) -> None:
    images = {}
    for number, (kind, block) in enumerate(BLOCKS.items()):
        peer.ring.add_secret([block])
        peer.ring.add_public([block])
        images[kind] = peer.image()
        assert main(["sign", "--keyidx", str(number), str(images[kind])]) == 0
    answers = peer.answer(*(("verify", "--local", image) for image in images.values()))
    for (kind, block), (status, output) in zip(BLOCKS.items(), answers, strict=True):
        assert (status, f"Fingerprint: {block.fingerprint}" in output) == (0, True), (kind, output)
        assert len(re.findall(r"^Objects verified", output, re.MULTILINE)) == 2, kind
    append_object(images["ed25519"], DataObject(DataType.GENERIC, b"more"))
    assert "object not signed" in peer.run("verify", "--local", images["ed25519"], check=False).stderr


@pytest.mark.parametrize("passphrase", ["", "pass phrase"])
def test_we_verify_and_use_what_apptainer_makes(passphrase: str, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["key", "newpair", "--bit-length", "2048", "--name", "Peer", "--email", "p@test.example", "--comment", "c"]
    peer.run(*words, "--push=false", f"--password={passphrase}")
    image = peer.image()
    peer.run("sign", "--keyidx", "0", image, data=f"{passphrase}\n")
    assert main(["verify", "--local", str(image)]) == 0
    monkeypatch.setenv("KEDGE_SIGN_PASSPHRASE", passphrase)
    other = peer.image("one-group.sif")
    assert main(["sign", str(other)]) == 0  # with the key that Apptainer made
    peer.run("verify", "--local", other)


def test_apptainer_signs_with_a_key_we_made(peer: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["key", "newpair", "-N", "Kay", "-E", "k@test.example", "-b", "2048", "--password", "locked up"]
    assert main(words) == 0
    fingerprint = peer.ring.load_secret()[0].fingerprint
    assert fingerprint in peer.run("key", "list", "--secret").stdout
    image = peer.image()
    peer.run("sign", "--keyidx", "0", image, data="locked up\n")
    assert main(["verify", "--local", str(image)]) == 0
    assert fingerprint in capsys.readouterr().out


def test_keys_travel_both_ways(peer: Peer) -> None:
    block = BLOCKS["rsa"]
    ours, theirs, secret = (peer.folder / f"{name}.asc" for name in ("ours", "theirs", "secret"))
    ours.write_bytes(armor_block(make_public(block)))
    peer.run("key", "import", ours)
    assert [item.fingerprint for item in peer.ring.load_public()] == [block.fingerprint]
    peer.run("key", "export", "--armor", theirs, data="0\n")
    peer.run("key", "remove", block.fingerprint)
    assert peer.ring.load_public() == []
    assert main(["key", "import", str(theirs)]) == 0
    assert peer.ring.load_public()[0].fingerprint == block.fingerprint
    assert block.fingerprint in peer.run("key", "list").stdout
    peer.ring.add_secret([block])
    peer.run("key", "export", "--secret", "--armor", secret, data="0\n")
    peer.ring.remove_secret(block.fingerprint)
    assert main(["key", "import", str(secret)]) == 0
    image = peer.image("one-group.sif")
    assert main(["sign", str(image)]) == 0
    peer.run("verify", "--local", image)


def test_rings_with_foreign_keys_stay_readable_for_both(peer: Peer) -> None:
    block = BLOCKS["rsa"]
    peer.ring.add_public([block])
    peer.ring.add_secret([block])
    foreign = b"".join(foreign_packets())
    peer.ring.public_path.write_bytes(foreign + peer.ring.public_path.read_bytes())
    assert main(["key", "newpair", "-N", "K", "-E", "k@test.example", "-b", "2048", "--no-password"]) == 0
    assert peer.ring.public_path.read_bytes().startswith(foreign)
    image = peer.image("one-group.sif")
    assert main(["sign", "--keyidx", "1", str(image)]) == 0
    assert main(["verify", "--local", str(image)]) == 0
    peer.run("verify", "--local", image)
    assert block.fingerprint in peer.run("key", "list").stdout


def test_pem_signatures_both_ways(peer: Peer) -> None:
    questions: dict[tuple[str | Path, ...], bool] = {}
    for name in ("other", "two"):
        (peer.folder / name).mkdir()
    for kind in ("ed25519", "rsa", "p256"):
        private, public = make_pem(peer.folder, kind)
        stranger = make_pem(peer.folder / "other", kind)[1]
        ours, theirs = peer.image(), peer.image()
        assert main(["sign", "--key", str(private), str(ours)]) == 0
        peer.run("sign", "--key", private, theirs)
        assert main(["verify", "--key", str(public), str(theirs)]) == 0
        assert main(["verify", "--key", str(stranger), str(theirs)]) != 0
        questions |= {("verify", "--key", public, ours): True, ("verify", "--key", stranger, ours): False}
    pairs = [make_pem(peer.folder / "two", kind) for kind in ("ed25519", "p256")]
    both = peer.image("one-group.sif")  # an envelope with two signatures
    assert main(["sign", "--key", str(pairs[0][0]), "--key", str(pairs[1][0]), str(both)]) == 0
    questions |= {("verify", "--key", public, both): True for _, public in pairs}
    found = [status == 0 for status, _ in peer.answer(*questions)]
    assert dict(zip(questions, found, strict=True)) == questions


def test_certificate_is_judged_alike(peer: Peer) -> None:
    folder = peer.folder / "root"
    folder.mkdir()
    root_key, leaf_key = make_pem(folder, "p256")[0], make_pem(peer.folder, "p256")[0]
    authority = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"
    root = make_certificate(peer.folder, "root-ca", root_key, None, authority)
    code = make_certificate(peer.folder, "code", leaf_key, (root, root_key), "extendedKeyUsage=codeSigning\n")
    web = make_certificate(peer.folder, "web", leaf_key, (root, root_key), "extendedKeyUsage=serverAuth\n")
    image = peer.image("one-group.sif")
    assert main(["sign", "--key", str(leaf_key), str(image)]) == 0
    for certificate, is_good in ((code, True), (web, False)):
        words = ["verify", "--certificate", str(certificate), "--certificate-roots", str(root), str(image)]
        assert (peer.run(*words, check=False).returncode == 0) is is_good
        assert (main(words) == 0) is is_good


def test_json_has_the_same_shape(peer: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    block = BLOCKS["rsa"]
    peer.ring.add_public([block])
    peer.ring.add_secret([block])
    image = peer.image()
    main(["sign", str(image)])
    theirs = json.loads(peer.run("verify", "--local", "--json", image).stdout)
    capsys.readouterr()
    main(["verify", "--local", "--json", str(image)])
    ours = json.loads(capsys.readouterr().out)
    assert ours["Signatures"] == theirs["Signatures"]
    for mine, yours in zip(ours["SignerKeys"], theirs["SignerKeys"], strict=True):
        assert {key: mine["Signer"][key] for key in yours["Signer"]} == yours["Signer"]


TAMPERS = {
    "launch line": (3, 1),
    "identity": (50, 1),
    "architecture": (46, 1),
    "times": (72, 1),
    "name": (4096 + 73, 1),
    "extra": (4096 + 300, 1),
    "descriptor offset padding": (4096 + 33, 1),
    "object": (32768, 1),
}


def test_tampering_is_judged_alike(peer: Peer) -> None:
    """One signed image, changed at each of the places."""
    peer.ring.add_public([BLOCKS["ed25519"]])
    peer.ring.add_secret([BLOCKS["ed25519"]])
    image = peer.image("one-group.sif")
    assert main(["sign", str(image)]) == 0
    changed = [peer.folder / f"changed-{number}.sif" for number in range(len(TAMPERS))]
    for path, (offset, mask) in zip(changed, TAMPERS.values(), strict=True):
        data = bytearray(image.read_bytes())
        data[offset] ^= mask
        path.write_bytes(data)
    theirs = [status == 0 for status, _ in peer.answer(*(("verify", "--local", path) for path in changed))]
    ours = [main(["verify", "--local", str(path)]) == 0 for path in changed]
    assert dict(zip(TAMPERS, ours, strict=True)) == dict(zip(TAMPERS, theirs, strict=True))
    assert set(theirs) == {True, False}
