# SPDX-License-Identifier: BSD-3-Clause
"""The real Apptainer and kedge at one registry: logins, oras:// pushes and pulls, both ways.

Needs root, the Apptainer tree, docker-registry and htpasswd (markers: peer, root, service).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import OCI_MANIFEST, Manifest
from kedge.image.logins import RegistryOptions, list_known_logins, log_in
from kedge.image.registry.client import RegistryClient
from kedge.image.registry.oras import SIF_CONFIG_BYTES, find_sif, sif_config, sif_layer, sif_manifest
from kedge.image.registry.secret import Secret
from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.builders.containers import make_sandbox
from tests.builders.docker_registry import docker_registry
from tests.builders.registry_access import make_access

pytestmark = [pytest.mark.peer, pytest.mark.root, pytest.mark.service]
PASSWORD = "apptainer-p4ssword"


def make_sif(folder: Path) -> Path:
    """An image for this machine: Apptainer refuses others."""
    sandbox, sif = make_sandbox(folder / "sandbox"), folder / "image.sif"
    subprocess.run([sys.executable, "-m", "kedge", "-q", "convert", sandbox, sif], check=True)
    return sif


@pytest.fixture
def peer() -> Iterator[Apptainer]:
    with apptainer_folder() as running:
        yield running


def test_apptainer_uses_the_login_and_the_sif_of_kedge_and_the_reverse(tmp_path: Path, peer: Apptainer) -> None:
    sif = make_sif(tmp_path)
    content = sif.read_bytes()
    environ = {"HOME": str(peer.folder)}
    with docker_registry(tmp_path, htpasswd={"user": PASSWORD}) as registry:
        done = log_in(registry.host, "user", Secret(PASSWORD), RegistryOptions(environ=environ))
        assert done.was_checked
        peer.own(done.path.parent)

        client = RegistryClient(registry.host, make_access(peer.folder, environ))  # the stored login
        layer = sif_layer(Digest.of(content), len(content))
        config = tmp_path / "config"
        config.write_bytes(SIF_CONFIG_BYTES)
        client.upload_blob("ours/busybox", sif_config(), lambda: config.open("rb"))
        client.upload_blob("ours/busybox", layer, lambda: sif.open("rb"))
        client.put_manifest("ours/busybox", "1.0", sif_manifest(layer, "busybox.sif"), OCI_MANIFEST)
        peer.run("pull", "--no-https", "a.sif", f"oras://{registry.host}/ours/busybox:1.0")
        assert (peer.folder / "a.sif").read_bytes() == content

        shutil.copy(sif, peer.folder / "b.sif")
        name = f"oras://{registry.host}/theirs/busybox:2.0"
        peer.run("push", "--no-https", "-U", "b.sif", name)
        manifest = client.get_manifest("theirs/busybox", "2.0")
        assert isinstance(manifest, Manifest)
        with client.open_blob("theirs/busybox", find_sif(manifest, name)) as stream:
            assert b"".join(stream) == content


def test_kedge_uses_the_login_of_apptainer(tmp_path: Path, peer: Apptainer) -> None:
    with docker_registry(tmp_path, htpasswd={"user": PASSWORD}) as registry:
        peer.run("registry", "login", "-u", "user", "-p", PASSWORD, f"docker://{registry.host}")
        environ = {"HOME": str(peer.folder)}
        (login,) = list_known_logins(RegistryOptions(environ=environ))
        assert (login.registry, login.username) == (registry.host, "user")
        client = RegistryClient(registry.host, make_access(peer.folder, environ))
        assert client.has_blob("any/thing", Digest.of(b"absent")) is False
