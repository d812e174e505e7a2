# SPDX-License-Identifier: BSD-3-Clause
"""The servers that the tutorials name, played on this machine under their real names, with TLS.

Readers reach them through a proxy, as on many clusters: names are resolved there, so that no command is edited. Images
and files are stand-ins that are written here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.digest import Digest
from tests.builders import layers as build
from tests.builders.certificates import make_authority
from tests.builders.images import MACHINE, make_config
from tests.cluster.virtual_hosts import VirtualHosts
from tests.fakes.http_server import FakeServer, Recorded, Reply
from tests.fakes.proxy import ConnectProxy
from tests.fakes.registry import FakeRegistry, Policy
from tests.live.openpbs import OpenPbs

KEY = "nvapi-of-the-reader"  # what <NGC API Key> stands for
USERNAME = "alice"  # on Docker Hub, as on the cluster
PASSWORD = "hub-secret"
_REGISTRIES = ("nvcr.io", "registry-1.docker.io", "auth.docker.io")
_FILES = ("raw.githubusercontent.com", "github.com", "library.sylabs.io")


@dataclass
class Internet:
    """What is served: images by registry and name, files by the path of their address, an image of the library."""

    certificate: Path
    proxy: str
    nvcr: FakeRegistry
    hub: FakeRegistry
    files: dict[str, bytes] = field(default_factory=dict)
    library: dict[str, bytes] = field(default_factory=dict)  # path without tag -> SIF

    def add_image(self, name: str, tar: bytes, section: Mapping[str, object] | None = None) -> None:
        """Serve an image of one layer under its name; names without a registry are of Docker Hub."""
        self.add_layers(name, [build.compress(tar)], make_config([tar], section or {}))

    def add_layers(self, name: str, layers: list[bytes], config: bytes) -> None:
        """Serve an image of several layers, lowest first, as registries have them."""
        repository, _, tag = name.removeprefix("nvcr.io/").rpartition(":")
        registry = self.nvcr if name.startswith("nvcr.io/") else self.hub
        registry.add_image(repository, tag, layers, config)

    def answer(self, request: Recorded) -> Reply:
        """Files, and the images of the library."""
        for path, sif in self.library.items():
            if request.path.startswith(f"/v1/imagefile/{path}"):
                return Reply(200, sif)
            if request.path.startswith(f"/v1/images/{path}"):
                digest = str(Digest.of(sif)).replace(":", ".")
                said = {"hash": digest, "size": len(sif), "architecture": MACHINE, "uploaded": True}
                return Reply(200, json.dumps({"data": said}).encode(), {"Content-Type": "application/json"})
        body = self.files.get(request.path)
        return Reply(404, b"not here") if body is None else Reply(200, body)


@contextmanager
def open_internet(folder: Path, hosts: VirtualHosts | OpenPbs, head: str = "head") -> Iterator[Internet]:
    """A fixture's body: the servers, reached from all hosts through a proxy on the login node."""
    folder.mkdir(exist_ok=True)
    authority = make_authority(folder)
    tls = authority.issue(*_REGISTRIES, *_FILES)
    folder.chmod(0o755)
    authority.certificate.chmod(0o644)
    policy = Policy(auth="nvcr", users={"$oauthtoken": KEY}, private=frozenset({"partners/chainer"}))
    hub_policy = Policy(auth="bearer", users={USERNAME: PASSWORD})
    with (
        FakeRegistry(policy, tls=tls, name="nvcr.io") as nvcr,
        FakeRegistry(hub_policy, tls=tls, name="registry-1.docker.io") as hub,
        FakeServer(lambda request: Reply(404), tls=tls) as files,
    ):
        ports = {"nvcr.io": nvcr.server.port, **dict.fromkeys(_REGISTRIES[1:], hub.server.port)}
        ports |= dict.fromkeys(_FILES, files.port)
        routes = {f"{name}:443": port for name, port in ports.items()}
        with ConnectProxy(routes, listener=hosts.listen(head)) as proxy:
            served = Internet(authority.certificate, f"http://{head}:{proxy.port}", nvcr, hub)
            files.answer = served.answer
            yield served
