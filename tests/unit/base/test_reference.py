# SPDX-License-Identifier: BSD-3-Clause
"""References: one row per form people write, one row per way to get it wrong, and properties over arbitrary text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base import image_argument, image_name, reference
from kedge.base.digest import Digest
from kedge.base.frozen import replace
from kedge.base.reference import Reference, Transport
from kedge.errors import InvalidReference, KedgeError
from tests.builders.rows import each_row
from tests.wording import assert_reads, assert_says

A = "a" * 64
SHA = f"sha256:{A}"
SHA512 = "sha512:" + "0" * 128


def nothing_exists(path: str) -> bool:
    return False


def parse(text: str) -> Reference:
    return Reference.parse(text, exists=nothing_exists)


# text, canonical form, default output name
GOOD = [
    # Docker Hub and its defaults
    ("ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("ubuntu:22.04", "docker://docker.io/library/ubuntu:22.04", "ubuntu_22.04.sif"),
    ("docker://ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("DOCKER://ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("docker://ubuntu:22.04", "docker://docker.io/library/ubuntu:22.04", "ubuntu_22.04.sif"),
    ("docker://library/ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("docker://docker.io/ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("docker://index.docker.io/ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("docker://registry-1.docker.io/ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("registry.hub.docker.com/a/b", "docker://docker.io/a/b", "b_latest.sif"),
    ("docker://Docker.IO/ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("godlovedc/lolcow", "docker://docker.io/godlovedc/lolcow", "lolcow_latest.sif"),
    ("docker://nvidia/cuda:12.4.1-base-ubuntu22.04", "docker://docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04",
     "cuda_12.4.1-base-ubuntu22.04.sif"),
    ("docker://docker:dind", "docker://docker.io/library/docker:dind", "docker_dind.sif"),
    ("a/b/c/d/e:f", "docker://docker.io/a/b/c/d/e:f", "e_f.sif"),
    ("docker://a__b/c-d/e--f.g:_x", "docker://docker.io/a__b/c-d/e--f.g:_x", "e--f.g__x.sif"),
    ("docker://" + "a" * 253 + "/b", "docker://docker.io/" + "a" * 253 + "/b", "b_latest.sif"),
    ("docker://x:" + "t" * 128, "docker://docker.io/library/x:" + "t" * 128, "x_" + "t" * 128 + ".sif"),
    # Other registries
    ("nvcr.io/nvidia/pytorch:24.03-py3", "docker://nvcr.io/nvidia/pytorch:24.03-py3", "pytorch_24.03-py3.sif"),
    ("docker://nvcr.io/nvidia/pytorch:24.03-py3", "docker://nvcr.io/nvidia/pytorch:24.03-py3",
     "pytorch_24.03-py3.sif"),
    ("docker://nvcr.io/hpc/gromacs:2022.3", "docker://nvcr.io/hpc/gromacs:2022.3", "gromacs_2022.3.sif"),
    ("NVCR.io/nvidia/pytorch:1", "docker://nvcr.io/nvidia/pytorch:1", "pytorch_1.sif"),
    ("ghcr.io/owner/name:sha-1234567", "docker://ghcr.io/owner/name:sha-1234567", "name_sha-1234567.sif"),
    ("localhost/x", "docker://localhost/x", "x_latest.sif"),
    ("localhost:5000/x", "docker://localhost:5000/x", "x_latest.sif"),
    ("localhost:5000/x:y", "docker://localhost:5000/x:y", "x_y.sif"),
    ("docker://127.0.0.1:5000/a/b:c", "docker://127.0.0.1:5000/a/b:c", "b_c.sif"),
    ("docker://registry:5000/a", "docker://registry:5000/a", "a_latest.sif"),
    ("docker://my_registry.lan/a", "docker://my_registry.lan/a", "a_latest.sif"),
    ("docker://[::1]:5000/a/b", "docker://[::1]:5000/a/b", "b_latest.sif"),
    ("[fe80::1]/a:1", "docker://[fe80::1]/a:1", "a_1.sif"),
    # Digests
    (f"ubuntu@{SHA}", f"docker://docker.io/library/ubuntu@{SHA}", f"ubuntu@sha256_{A}.sif"),
    (f"docker://nvcr.io/nvidia/pytorch@{SHA}", f"docker://nvcr.io/nvidia/pytorch@{SHA}", f"pytorch@sha256_{A}.sif"),
    (f"docker://nvcr.io/nvidia/pytorch:24.03@{SHA}", f"docker://nvcr.io/nvidia/pytorch:24.03@{SHA}",
     "pytorch_24.03.sif"),
    (f"localhost:5000/a:1@{SHA}", f"docker://localhost:5000/a:1@{SHA}", "a_1.sif"),
    (f"docker://nvcr.io#nvidia/pytorch:{SHA}", f"docker://nvcr.io/nvidia/pytorch@{SHA}", f"pytorch@sha256_{A}.sif"),
    (f"docker://a@{SHA512}", f"docker://docker.io/library/a@{SHA512}", f"a@sha512_{'0' * 128}.sif"),
    # Enroot
    ("docker://nvcr.io#nvidia/pytorch:24.03-py3", "docker://nvcr.io/nvidia/pytorch:24.03-py3",
     "pytorch_24.03-py3.sif"),
    ("docker://$oauthtoken@nvcr.io#nvidia/pytorch:24.03-py3", "docker://$oauthtoken@nvcr.io#nvidia/pytorch:24.03-py3",
     "pytorch_24.03-py3.sif"),
    ("docker://me@registry-1.docker.io#ubuntu", "docker://me@docker.io#library/ubuntu", "ubuntu_latest.sif"),
    ("docker://me@nvcr.io/nvidia/pytorch:1", "docker://me@nvcr.io#nvidia/pytorch:1", "pytorch_1.sif"),
    (f"docker://me@localhost:5000#a/b@{SHA}", f"docker://me@localhost:5000#a/b@{SHA}", f"b@sha256_{A}.sif"),
    ("docker://registry#a", "docker://registry#a", "a_latest.sif"),
    ("dockerd://ubuntu:22.04", "docker-daemon:ubuntu:22.04", "ubuntu_22.04.sif"),
    ("podman://localhost/mine:1", "podman://localhost/mine:1", "mine_1.sif"),
    # Daemons
    ("docker-daemon:ubuntu:22.04", "docker-daemon:ubuntu:22.04", "ubuntu_22.04.sif"),
    ("docker-daemon://ubuntu:22.04", "docker-daemon:ubuntu:22.04", "ubuntu_22.04.sif"),
    ("docker-daemon:localhost:5000/a/b:c", "docker-daemon:localhost:5000/a/b:c", "b_c.sif"),
    (f"docker-daemon:{SHA}", f"docker-daemon:{SHA}", f"sha256_{A}.sif"),
    (f"docker-daemon:@{SHA}", f"docker-daemon:{SHA}", f"sha256_{A}.sif"),
    ("containers-storage:localhost/mine", "podman://localhost/mine", "mine_latest.sif"),
    # ORAS: the first part is the registry
    ("oras://ghcr.io/owner/image:1.0", "oras://ghcr.io/owner/image:1.0", "image_1.0.sif"),
    ("oras://localhost:5000/x", "oras://localhost:5000/x", "x_latest.sif"),
    ("oras://myhost/x", "oras://myhost/x", "x_latest.sif"),
    ("oras://docker.io/owner/x:1", "oras://docker.io/owner/x:1", "x_1.sif"),
    (f"oras://ghcr.io/a/b@{SHA}", f"oras://ghcr.io/a/b@{SHA}", f"b@sha256_{A}.sif"),
    # Library
    ("library://alpine", "library://library/default/alpine", "alpine_latest.sif"),
    ("library://alpine:3.18", "library://library/default/alpine:3.18", "alpine_3.18.sif"),
    ("library://coll/alpine", "library://library/coll/alpine", "alpine_latest.sif"),
    ("library://ent/coll/alpine:1", "library://ent/coll/alpine:1", "alpine_1.sif"),
    ("library://Ent/Coll/Alpine", "library://Ent/Coll/Alpine", "Alpine_latest.sif"),
    ("library:alpine", "library://library/default/alpine", "alpine_latest.sif"),
    ("library:ent/coll/alpine", "library://ent/coll/alpine", "alpine_latest.sif"),
    ("library:///ent/coll/alpine", "library://ent/coll/alpine", "alpine_latest.sif"),
    ("library://library.example.org/ent/coll/alpine:1", "library://library.example.org/ent/coll/alpine:1",
     "alpine_1.sif"),
    ("library://localhost:8080/alpine", "library://localhost:8080/library/default/alpine", "alpine_latest.sif"),
    ("library://server/ent/coll/alpine", "library://server/ent/coll/alpine", "alpine_latest.sif"),
    (f"library://ent/coll/alpine:sha256.{A}", f"library://ent/coll/alpine:sha256.{A}", f"alpine_sha256.{A}.sif"),
    # Layouts and archives
    ("oci:image", "oci:image", "image_latest.sif"),
    ("oci:image:1.0", "oci:image:1.0", "image_1.0.sif"),
    ("oci:/data/image:1.0", "oci:/data/image:1.0", "image_1.0.sif"),
    ("oci:./image/", "oci:./image/", "image_latest.sif"),
    ("oci:///data/image", "oci:/data/image", "image_latest.sif"),
    ("oci:image:docker.io/library/ubuntu:22.04", "oci:image:docker.io/library/ubuntu:22.04", "ubuntu_22.04.sif"),
    ("oci-archive:image.tar", "oci-archive:image.tar", "image.tar_latest.sif"),
    ("oci-archive:dir/image.tar:v1", "oci-archive:dir/image.tar:v1", "image.tar_v1.sif"),
    ("docker-archive:d.tar", "docker-archive:d.tar", "d.tar_latest.sif"),
    ("docker-archive://d.tar", "docker-archive:d.tar", "d.tar_latest.sif"),
    ("docker-archive:///x/d.tar:a:1", "docker-archive:/x/d.tar:a:1", "d.tar_a.sif"),
    ("docker-archive:d.tar:ubuntu:22.04", "docker-archive:d.tar:ubuntu:22.04", "d.tar_ubuntu.sif"),
    ("docker-archive:/x/d.tar:a/b:1", "docker-archive:/x/d.tar:a/b:1", "b_1.sif"),
    ("docker-archive:d.tar:@1", "docker-archive:d.tar:@1", "d.tar_@1.sif"),
    # Addresses of files
    ("https://example.org/images/x.sif", "https://example.org/images/x.sif", "x.sif"),
    ("http://example.org:8080/x.sif", "http://example.org:8080/x.sif", "x.sif"),
    ("https://example.org/x.sif?token=a%2Fb", "https://example.org/x.sif?token=a%2Fb", "x.sif"),
    ("https://example.org/download", "https://example.org/download", "download"),
    ("https://[::1]:8443/x.sif", "https://[::1]:8443/x.sif", "x.sif"),
    # Catalog pages
    ("https://catalog.ngc.nvidia.com/orgs/nvidia/containers/pytorch", "docker://nvcr.io/nvidia/pytorch",
     "pytorch_latest.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/nvidia/containers/pytorch/tags", "docker://nvcr.io/nvidia/pytorch",
     "pytorch_latest.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/nvidia/teams/hpc/containers/gromacs", "docker://nvcr.io/nvidia/hpc/gromacs",
     "gromacs_latest.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/hpc/containers/namd/", "docker://nvcr.io/hpc/namd", "namd_latest.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/nvidia/teams/k8s/containers/cuda-sample/tags",
     "docker://nvcr.io/nvidia/k8s/cuda-sample", "cuda-sample_latest.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/nvidia/-/containers/pytorch/24.03-py3",
     "docker://nvcr.io/nvidia/pytorch:24.03-py3", "pytorch_24.03-py3.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/nim/meta/containers/llama3-8b-instruct/-",
     "docker://nvcr.io/nim/meta/llama3-8b-instruct", "llama3-8b-instruct_latest.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/nvidia/containers/pytorch?version=24.03-py3",
     "docker://nvcr.io/nvidia/pytorch:24.03-py3", "pytorch_24.03-py3.sif"),
    ("catalog.ngc.nvidia.com/orgs/nvidia/containers/pytorch", "docker://nvcr.io/nvidia/pytorch",
     "pytorch_latest.sif"),
    ("https://ngc.nvidia.com/catalog/containers/nvidia:pytorch", "docker://nvcr.io/nvidia/pytorch",
     "pytorch_latest.sif"),
    ("https://ngc.nvidia.com/catalog/containers/nvidia:k8s:cuda-sample/tags",
     "docker://nvcr.io/nvidia/k8s/cuda-sample", "cuda-sample_latest.sif"),
    ("https://hub.docker.com/r/nvidia/cuda", "docker://docker.io/nvidia/cuda", "cuda_latest.sif"),
    ("https://hub.docker.com/r/nvidia/cuda/tags?name=12", "docker://docker.io/nvidia/cuda", "cuda_latest.sif"),
    ("https://hub.docker.com/_/ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("hub.docker.com/_/ubuntu", "docker://docker.io/library/ubuntu", "ubuntu_latest.sif"),
    ("hub.docker.com/r/nvidia/cuda", "docker://docker.io/nvidia/cuda", "cuda_latest.sif"),
    ("https://hub.docker.com/layers/library/ubuntu/22.04/images/sha256-ab", "docker://docker.io/library/ubuntu:22.04",
     "ubuntu_22.04.sif"),
    ("https://quay.io/repository/biocontainers/samtools?tab=tags&tag=1.19",
     "docker://quay.io/biocontainers/samtools:1.19", "samtools_1.19.sif"),
    ("ngc.nvidia.com/catalog/containers/nvidia:pytorch", "docker://nvcr.io/nvidia/pytorch", "pytorch_latest.sif"),
    ("https://hub.docker.com/repository/docker/owner/name", "docker://docker.io/owner/name", "name_latest.sif"),
    ("https://hub.docker.com/repository/docker/owner/name/tags", "docker://docker.io/owner/name", "name_latest.sif"),
    ("https://hub.docker.com/layers/owner/name/1.0", "docker://docker.io/owner/name:1.0", "name_1.0.sif"),
    ("https://quay.io/repository/bio/samtools/tag/1.19", "docker://quay.io/bio/samtools:1.19", "samtools_1.19.sif"),
    ("https://quay.io/repository/bio/samtools", "docker://quay.io/bio/samtools", "samtools_latest.sif"),
    ("https://quay.io/bio/samtools:1.19", "docker://quay.io/bio/samtools:1.19", "samtools_1.19.sif"),
    ("https://ghcr.io/owner/name:1", "docker://ghcr.io/owner/name:1", "name_1.sif"),
    ("https://docker.io/owner/name:1", "docker://docker.io/owner/name:1", "name_1.sif"),
    ("https://index.docker.io/owner/name:1", "docker://docker.io/owner/name:1", "name_1.sif"),
    ("https://nvcr.io/nvidia/pytorch:24.03-py3", "docker://nvcr.io/nvidia/pytorch:24.03-py3",
     "pytorch_24.03-py3.sif"),
    # Instances, programs of this machine, files
    ("instance://web-1", "instance://web-1", "web-1.sif"),
    ("host:bash", "host:bash", "bash.sif"),
    ("host:bash,/usr/bin/ls", "host:bash,/usr/bin/ls", "bash-ls.sif"),
    ("host:python3+numpy", "host:python3+numpy", "python3+numpy.sif"),
    ("host:g++", "host:g++", "g++.sif"),
    ("file:x", "file:x", "x.sif"),
    ("file:///data/x.sif", "/data/x.sif", "x.sif"),
    ("./ubuntu", "./ubuntu", "ubuntu.sif"),
    ("../images/ubuntu.sif", "../images/ubuntu.sif", "ubuntu.sif"),
    ("/data/my image.sif", "/data/my image.sif", "my image.sif"),
    ("ubuntu.sif", "file:ubuntu.sif", "ubuntu.sif"),
    ("images/ubuntu.sqsh", "file:images/ubuntu.sqsh", "ubuntu.sif"),
    (".", "file:.", "image.sif"),
    ("..", "file:..", "image.sif"),
    ("./\x80\ud7ff\ue000", "./\x80\ud7ff\ue000", "\x80\ud7ff\ue000.sif"),
]  # fmt: skip

# text, a part of the message, a part of the hint
REMEDIED = [
    ("", "is empty", "name an image"),
    ("   ", "is empty", "name an image"),
    ("docker://", "names no repository", "REGISTRY/REPOSITORY:TAG"),
    ("docker:ubuntu", "must be followed by '//'", "docker://ubuntu"),
    ("docker:dind", "must be followed by '//'", "docker://docker:dind"),
    ("docker:/ubuntu", "must be followed by '//'", "docker://ubuntu"),
    ("oras:ghcr.io/a/b", "must be followed by '//'", "oras://ghcr.io/a/b"),
    ("https:example.org/x", "must be followed by '//'", "https://example.org/x"),
    ("instance:web", "must be followed by '//'", "instance://web"),
    ("dokcer://ubuntu", "unknown scheme", "docker://ubuntu"),
    ("dcoker://ubuntu", "unknown scheme", "docker://ubuntu"),
    ("libary://alpine", "unknown scheme", "library:alpine"),
    ("zzzz://x", "unknown scheme", "known schemes"),
    ("oci-achive://x", "unknown scheme", "oci-archive:x"),
    ("shub://owner/name", "shut down", "docker://"),
    ("Ubuntu", "lower case", "did you mean ubuntu?"),
    ("docker://Team/Image:Tag", "lower case", "did you mean docker://team/image:Tag?"),
    ("docker://nvcr.io/NVIDIA/pytorch", "lower case", "docker://nvcr.io/nvidia/pytorch"),
    ("docker://Foo/bar", "lower case", "docker://foo/bar"),
    ("nvcr.io/nvidia/PyTorch:24.03-py3", "lower case", "nvcr.io/nvidia/pytorch:24.03-py3"),
    ("docker://a..b", "not a valid part", "single"),
    ("ubuntu:", "no tag follows", "leave the ':' out"),
    ("ubuntu:-x", "may not begin with '-'", "letters"),
    ("ubuntu@", "must begin with sha256:", "64 hexadecimal digits"),
    ("docker://ubuntu 22.04", "contains a space", "remove the spaces"),
    ("my image.sif", "contains a space", "quote the name of a file"),
    ("docker pull nvcr.io/nvidia/pytorch:1", "contains a space", "give the image alone: nvcr.io/nvidia/pytorch:1"),
    ("podman pull ubuntu", "contains a space", "give the image alone: ubuntu"),
    ("docker ", "contains a space", "remove the spaces"),
    ("oras://ghcr.io/a b", "contains a space", "remove the spaces"),
    ("nvcr.io", "is a registry", "REGISTRY/REPOSITORY"),
    ("docker://host:99999/a", "not a port number", "1 to 65535"),
    ("docker://user:secret@nvcr.io#nvidia/x", "password", "registry login"),
    ("docker://#a", "before the '#'", "Enroot"),
    ("library://a/b/c/d/e", "too many parts", "ENTITY/COLLECTION/CONTAINER"),
    ("oci:", "no path follows", "oci:PATH"),
    ("oci://", "no path follows", "oci:PATH"),
    ("https://example.org", "names no file", "IMAGE.sif"),
    ("https://catalog.ngc.nvidia.com/orgs/nvidia/models/x", "NGC's models", "nvcr.io/"),
    ("https://hub.docker.com/u/nvidia", "not an image's", "hub.docker.com/r/"),
    ("instance://", "names no instance", "instance://NAME"),
    ("host:", "names no program", "host:bash"),
]
# a part of the message: texts that are refused with it
REFUSED = {
    "is empty": ["\n"],
    "control character": [
        "ubuntu\x00", "ubuntu\n", "docker://ubuntu\x1b[31m",
        *(f"./{character}" for character in "\x1f\x7f\ud800\udfff"),
    ],
    "must be followed by '//'": ["docker:"],
    "begins with '/'": ["docker:///ubuntu"],
    "unknown scheme": ["ftp://example.org/x.sif"],
    "not a valid part": ["docker://-a", "docker://a_", "docker://a___b", "docker://ubünt", "docker://a/../b"],
    "255 are allowed": ["docker://" + "/".join(["a" * 60] * 5)],
    "256 characters; 255 are allowed": ["docker://" + "a" * 248 + "/bcdefgh"],
    "no tag follows": ["docker://nvcr.io/a:", "library://a/b/c:", "oci:x:"],
    "may not begin with '.'": ["ubuntu:.x"],
    "'+' is not allowed in a tag": ["ubuntu:22+04"],
    "':' is not allowed in a tag": ["ubuntu:22:04", f"ubuntu:{SHA}@{SHA}"],
    "'ü' is not allowed in a tag": ["ubuntu:ü"],
    "128 are allowed": ["docker://x:" + "t" * 129],
    "must begin with sha256:": ["ubuntu@latest", "ubuntu@md5:" + "0" * 32, "docker://nvcr.io/a@b/c"],
    "got 3 characters": ["ubuntu@sha256:abc"],
    "64 lower-case hexadecimal": [f"ubuntu@sha256:{A[:-1]}g", f"ubuntu@sha256:{A.upper()}"],
    "64 lower-case": [f"ubuntu@{SHA}:tag"],
    "names no repository": [
        f"docker://@{SHA}", "oras://", "docker://nvcr.io#", "library:", "library://", "library://:1",
        "docker-daemon:", "dockerd://",
    ],
    "contains a space": [" ubuntu", "ubuntu ", "docker://ho st#a", "https://exa mple.org/x.sif"],
    "ends with '/'": ["ubuntu/", "docker://a/b/"],
    "two slashes": ["docker://a//b", "library://a//b"],
    "is a registry": [
        "nvcr.io/", "docker://nvcr.io", "docker.io", "localhost:5000", "docker://localhost:5000/",
        "docker://[::1]:5000", "oras://ghcr.io",
    ],
    "not a port number": [
        "docker://host:0/a", "docker://host:५/a", "docker://ho_.st:x/a", "library://host:port/a/b/c",
    ],
    "'' is not a port number": ["docker://host:/a"],
    "not a host name": ["docker://-x.y/a", "docker://a..b/c"],
    "IPv6": ["docker://[zz]:1/a", "docker://[zz]/a"],
    "no user name": ["docker://@nvcr.io#a"],
    "not a valid part of a library path": ["library://a/b/c$"],
    "no path follows": ["oci::tag", "oci-archive:", "docker-archive:", "file:"],
    "is not a valid name in an archive": ["oci:x:a b"],
    "lower case": ["docker-daemon:Ubuntu:1"],
    "not a sha256 digest": ["docker-daemon:sha256:abc"],
    "names no host": ["https://", "https:///x.sif"],
    "names no file": [
        "https://example.org/", "https://example.org/dir/", "https://example.org/..", "https://example.org/.",
    ],
    "not a valid address": ["https://example.org:port/x.sif", "https://[::1/x.sif"],
    "NGC's helm-charts": ["https://catalog.ngc.nvidia.com/orgs/nvidia/teams/a/helm-charts/x"],
    "not the page of a container": [
        "https://catalog.ngc.nvidia.com/containers", "https://catalog.ngc.nvidia.com/orgs/nvidia/containers",
        "https://catalog.ngc.nvidia.com/orgs/nvidia/teams/k8s/containers",
    ],
    "not an image's": [
        "https://hub.docker.com/repository/docker/owner", "https://hub.docker.com/layers/owner/name",
        "https://hub.docker.com/",
    ],
    "names no image": [
        "https://nvcr.io/nvidia/pytorch?tab=tags", "https://nvcr.io/nvidia/pytorch#tags", "https://nvcr.io/",
    ],
    "NGC's models": ["https://ngc.nvidia.com/catalog/models/nvidia:x"],
    "an instance name has": ["instance://a/b", "instance://a b"],
    "'' is not a program name": ["host:bash,", "host:,bash"],
    "' ls' is not a program name": ["host:bash, ls"],
    "not a program name": ["host:/usr/bin/"],
    "16384 are allowed": ["x" * 20000],
}  # fmt: skip
BAD = [*REMEDIED, *((text, message, "") for message, texts in REFUSED.items() for text in texts)]


@each_row(("text", "canonical", "name"), GOOD, ids=[row[0] for row in GOOD])
def test_reference_reads_form_and_names_output(text: str, canonical: str, name: str) -> None:
    reference = parse(text)
    assert str(reference) == canonical
    assert reference.default_name() == name
    assert parse(canonical) == reference


@each_row(("text", "message", "hint"), BAD, ids=[repr(row[0])[:60] for row in BAD])
def test_reference_refuses_malformed_text(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidReference) as caught:
        parse(text)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert len(caught.value.message) < 700


def test_reference_fields_are_complete() -> None:
    reference = parse(f"docker://$oauthtoken@nvcr.io#nvidia/pytorch:24.03-py3@{SHA}")
    assert reference == Reference(
        Transport.DOCKER, "nvcr.io", "nvidia/pytorch", "24.03-py3", Digest.parse(SHA), user="$oauthtoken"
    )
    assert reference.name == f"nvidia/pytorch:24.03-py3@{SHA}"
    assert not reference.is_local
    assert parse("podman://x").engine == "podman"
    assert parse("dockerd://x").engine == "docker"
    assert parse("host:a,b").programs == ("a", "b")
    assert parse("oci:x:t").is_local

    assert parse("ubuntu").engine == ""
    assert parse("instance://x").transport == "instance"
    assert parse("www.docker.com/products").transport is Transport.HTTPS


def test_reference_is_shown_without_secrets() -> None:
    assert parse("file:x.sif").shown == parse("x.sif").shown == "x.sif"
    assert parse("ubuntu:1").shown == "docker://docker.io/library/ubuntu:1"
    assert parse("https://me:secret@example.org/x.sif").shown == "https://me:***@example.org/x.sif"
    with pytest.raises(InvalidReference) as caught:
        parse("docker://user:secret@nvcr.io/nvidia/x")
    assert "secret" not in str(caught.value.as_dict())
    reference = parse("https://me:secret@example.org/x.sif?token=secret")
    assert reference.redacted == "https://me:***@example.org/x.sif"
    assert parse("https://example.org/x.sif#token").redacted == "https://example.org/x.sif"
    assert parse("docker://a/b:c").redacted == "docker://docker.io/a/b:c"
    with pytest.raises(InvalidReference) as caught:
        parse("https://me:secret@example.org/")
    assert "secret" not in str(caught.value.as_dict())


@each_row("suffix", [".sif", ".simg", ".sqsh", ".sqfs", ".squashfs", ".img", ".tar", ".tar.gz", ".tgz", ".oci"])
def test_reference_with_the_suffix_of_an_image_is_a_file(suffix: str) -> None:
    reference = parse(f"dir/x{suffix}")
    assert (reference.transport, reference.path) == (Transport.FILE, f"dir/x{suffix}")
    assert reference.default_name() == "x.sif"
    assert reference.default_name("") == "x"


@each_row(
    "tab", ["-", "layers", "overview", "security", "security-scanning", "signing", "dockerfile", "builds", "general"]
)
def test_reference_of_a_catalog_page_does_not_take_its_tab_for_a_tag(tab: str) -> None:
    assert parse(f"https://catalog.ngc.nvidia.com/orgs/nvidia/containers/pytorch/{tab}").tag is None


def test_reference_may_be_as_long_as_a_signed_address() -> None:
    longest = "./" + "x" * 16382
    assert parse(longest).path == longest
    with pytest.raises(InvalidReference) as caught:
        parse(f"{longest}x")
    assert_says(caught.value.message, "base/not-valid-image-reference", longest[:200])
    assert caught.value.context == {"reference": f"{longest[:200]}…"}
    with pytest.raises(InvalidReference) as caught:
        parse("docker://" + "-" * 191)
    assert "…" not in caught.value.message, "200 characters are shown"


def test_reference_without_slashes_names_the_image_that_may_be_meant() -> None:
    hints = {}
    for text in ("docker:dind", "oras:ghcr.io/a"):
        with pytest.raises(InvalidReference) as caught:
            parse(text)
        hints[text] = caught.value.hint
    image = "for the image called 'docker' write docker://docker:dind"
    assert_reads(hints["docker:dind"], "base/did-you-mean-file", "docker://dind", image, "docker:dind")
    assert_reads(hints["oras:ghcr.io/a"], "base/did-you-mean-oras-ghcr")


@each_row(("text", "is_one"), [("a" * 128, True), ("a" * 129, False), ("_a.-", True), ("-a", False), ("a:b", False)])
def test_tags_are_those_of_the_distribution_specification(text: str, is_one: bool) -> None:
    assert image_name.is_tag(text) is is_one


def test_reference_to_what_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pytorch:21.06-py3", "ubuntu", "two words", "nvcr.io"):
        Path(name).touch()
        reference = Reference.parse(name)
        assert (reference.transport, reference.path) == (Transport.FILE, name)
        assert Reference.parse(str(reference)) == reference
    assert Reference.parse("pytorch:21.06-py3").default_name() == "pytorch:21.06-py3.sif"
    monkeypatch.chdir(tmp_path)
    Path("docker:").mkdir()
    (Path("docker:") / "ubuntu").touch()
    Path("host:bash").touch()
    assert os.path.lexists("docker://ubuntu")
    assert Reference.parse("docker://ubuntu").transport is Transport.DOCKER
    assert Reference.parse("host:bash").transport is Transport.HOST
    archive = tmp_path / "pytorch:21.06.tar"
    archive.touch()
    assert Reference.parse(f"oci-archive:{archive}").path == str(archive)
    with_tag = Reference.parse(f"docker-archive:{archive}:a/b:1")
    assert (with_tag.path, with_tag.tag) == (str(archive), "a/b:1")


@each_row(("text", "extension", "name"), [
    ("nvcr.io/nvidia/pytorch:24.03-py3", "", "pytorch_24.03-py3"),
    ("nvcr.io/nvidia/pytorch:24.03-py3", ".sqsh", "pytorch_24.03-py3.sqsh"),
    ("https://example.org/x.sif", ".sqsh", "x.sqsh"),
    ("https://example.org/x.sif", "", "x"),
    ("./x.sif", ".sqsh", "x.sqsh"),
    ("./x.tar.gz", ".sif", "x.sif"),
    ("host:bash,ls", "", "bash-ls"),
])  # fmt: skip
def test_reference_default_name_follows_extension(text: str, extension: str, name: str) -> None:
    assert parse(text).default_name(extension) == name


part = st.from_regex(r"[a-z0-9]{1,8}(?:(?:\.|_|__|-{1,2})[a-z0-9]{1,8}){0,2}", fullmatch=True)
repositories = st.lists(part, min_size=1, max_size=4).map("/".join)
tags = st.none() | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
digests = st.none() | st.from_regex(r"[0-9a-f]{64}", fullmatch=True).map(lambda text: Digest("sha256", text))
registries = st.sampled_from(["nvcr.io", "localhost:5000", "[::1]:5000", "docker.io", "a.b-c.org:1"])
users = st.none() | st.from_regex(r"[A-Za-z$][A-Za-z0-9._-]{0,10}", fullmatch=True)


references = st.builds(
    Reference, st.sampled_from([Transport.DOCKER, Transport.ORAS]), registries, repositories, tags, digests, user=users
)


@settings(database=None)
@given(references)
def test_reference_round_trips_registry_names(reference: Reference) -> None:
    if reference.registry == "docker.io" and "/" not in reference.repository:
        reference = replace(reference, repository=f"library/{reference.repository}")
    assert parse(str(reference)) == reference
    assert "/" not in reference.default_name()


@settings(database=None)
@given(st.text(max_size=80) | st.from_regex(r"[a-z-]{0,14}:?/{0,3}[A-Za-z0-9.:@#/\[\]%+_ -]{0,60}"))
def test_reference_arbitrary_text_gives_reference_or_domain_error(text: str) -> None:
    try:
        reference = parse(text)
    except KedgeError:
        return
    assert parse(str(reference)) == reference
    name = reference.default_name()
    assert name not in ("", ".", "..")
    assert "/" not in name


def test_every_scheme_has_a_parser() -> None:
    archives = {"oci", "oci-archive", "docker-archive"}
    assert {*image_argument.SLASHED, *image_argument.PLAIN} == {*reference._PARSERS} | archives


@each_row("text", ["docker://x", "DOCKER://x", "foo://x", " foo://x", "a/b://c.sif", "oci:x", "HOST:sh"])
def test_what_has_a_scheme_is_no_file_though_it_exists(text: str) -> None:
    assert image_argument.is_reference(text)
    assert image_argument.find_path(text) == ""
    try:
        assert Reference.parse(text, exists=lambda path: True).transport is not Transport.FILE
    except InvalidReference:
        assert "foo" in text or "://c" in text
    for path in (f"./{text}", f"/x/{text}", f"../{text}"):
        assert image_argument.find_path(path) == path
        assert Reference.parse(path, exists=lambda path: False) == Reference(Transport.FILE, path=path)


@each_row("text", ["pytorch:21.06-py3", "x.sif", "docker", "a/docker:b", "host", "."])
def test_what_has_no_scheme_and_exists_is_a_file(text: str) -> None:
    assert image_argument.find_path(text) == text
    assert Reference.parse(text, exists=lambda path: True) == Reference(Transport.FILE, path=text)


@each_row("text", ["file:oci:x", "file://oci:x", "FILE:oci:x"])
def test_file_names_a_path(text: str) -> None:
    assert image_argument.find_path(text) == Reference.parse(text).path == "oci:x"


def test_ports_and_hosts_end_where_networks_end_them() -> None:
    host = ".".join(["a" * 62] * 4) + ".b"  # 253 characters
    for registry in ("localhost:1", "localhost:65535", f"{host}"):
        assert Reference.parse(f"docker://{registry}/x").registry == registry
    for registry in ("localhost:0", "localhost:65536", "localhost:1000000", f"a.{host}"):
        with pytest.raises(InvalidReference):
            Reference.parse(f"docker://{registry}/x")
