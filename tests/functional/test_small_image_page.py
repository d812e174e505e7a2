# SPDX-License-Identifier: BSD-3-Clause
"""The recipe of docs/tasks/small-images.md, built as it stands there, by an ordinary user: every package is needed.

nvcr.io and github.com are servers in this process. CUDA's images, gigabytes, are stand-ins with this host's C compiler;
their apt-get installs packages that are made here, under the names of Ubuntu 22.04. The sample is ours: it computes
the forces of bodies, and links GL, GLU and glut, as the one of NVIDIA does.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.certificates import make_authority
from tests.builders.containers import Runner, each_role, give_to
from tests.builders.images import make_config
from tests.fakes.http_server import FakeServer, Recorded, Reply
from tests.fakes.proxy import ConnectProxy
from tests.fakes.registry import FakeRegistry
from tests.requirements import REPOSITORY, require_program

PAGE = REPOSITORY / "docs/tasks/small-images.md"
DEVELOPED = {"libgl1-mesa-dev": "GL", "libglu1-mesa-dev": "GLU", "freeglut3-dev": "glut"}
INSTALLED = {"libgl1": "GL", "libglu1-mesa": "GLU", "freeglut3": "glut"}
HEADERS = {"GL": "gl.h", "GLU": "glu.h", "glut": "freeglut.h"}
VERSIONS = {"GL": 1, "GLU": 1, "glut": 3}
BASIC = ("sh", "env", "tar", "gzip", "rm", "cp", "mkdir", "chmod", "cat", "ls")
OBJECTS = (
    *("crt1.o", "Scrt1.o", "crti.o", "crtn.o", "crtbegin.o", "crtbeginS.o", "crtend.o", "crtendS.o", "libgcc.a"),
    *("libgcc_s.so", "libgcc_s.so.1", "libc.so", "libc.so.6", "libc_nonshared.a", "liblto_plugin.so"),
)
APT = """\
#!/bin/sh
# 'apt-get update', and 'apt-get install [-OPTION ...] NAME ...' of what lies in /opt/packages
case $1 in update) exit 0 ;; install) shift ;; *) exit 2 ;; esac
for name; do
    case $name in -*) continue ;; esac
    [ -e "/opt/packages/$name.tar" ] || { echo "E: Unable to locate package $name" >&2; exit 100; }
    tar -C / -xf "/opt/packages/$name.tar" || exit 100
done
"""
SAMPLE = {
    "Makefile": "LIBRARIES := -lGL -lGLU -lglut\nnbody: nbody.c\n\tgcc -O2 -o $@ $< $(LIBRARIES)\n",
    "nbody.c": r"""
#include <GL/freeglut.h>
#include <GL/gl.h>
#include <GL/glu.h>
int printf(const char *text, ...);
int atoi(const char *text);
int strncmp(const char *one, const char *other, unsigned long count);
static void draw(void) { kedge_GL(); kedge_GLU(); kedge_glut(); }
int main(int count, char **words) {
    int bodies = 1024, benchmark = 0;
    double potential = 0;
    for (int word = 1; word < count; word++) {
        if (!strncmp(words[word], "-benchmark", 11)) benchmark = 1;
        if (!strncmp(words[word], "-numbodies=", 11)) bodies = atoi(words[word] + 11);
    }
    if (!benchmark) draw();
    for (int i = 0; i < bodies; i++)
        for (int j = 0; j < i; j++) potential += 1.0 / (i - j);
    printf("%d bodies, potential %.3f\n", bodies, potential);
    return 0;
}
""",
}
FOLDER = "cuda-samples-12.4.1/Samples/5_Domain_Specific/nbody"


@dataclass(frozen=True)
class Builder:
    """A user who has the page's recipe, and reaches both servers."""

    runner: Runner
    variables: Mapping[str, str]

    def build(self, image: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        """`kedge build` of a Dockerfile with this text."""
        folder = self.runner.home / "recipe"
        folder.mkdir(exist_ok=True)
        (folder / "Dockerfile").write_text(text)
        give_to(self.runner, folder)
        return self.runner.run("build", *options, f"../{image}", "Dockerfile", env=self.variables, cwd=folder)

    def run(self, image: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.runner.run("exec", image, *words)


def read_recipe() -> str:
    """The first recipe of the page."""
    found = re.search(r"^```dockerfile\n(FROM nvcr\.io/.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, "the page has no recipe from nvcr.io"
    return found[1]


def pack(files: Mapping[str, str | Path]) -> bytes:
    """A tar of texts and of files."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            data = content.encode() if isinstance(content, str) else content.read_bytes()
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))
    return memory.getvalue()


def make_packages(folder: Path) -> dict[str, bytes]:
    """A library with one function each, by the names of its packages."""
    packages = {}
    for library, version in VERSIONS.items():
        source, made = folder / f"{library}.c", folder / f"lib{library}.so.{version}"
        source.write_text(f"int kedge_{library}(void) {{ return {version}; }}\n")
        argv = [require_program("gcc"), "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{made.name}"]
        subprocess.run([*argv, "-o", str(made), str(source)], check=True)
        place = f"usr/lib/{os.uname().machine}-linux-gnu"
        runtime: dict[str, str | Path] = {f"{place}/{made.name}": made}
        header = {f"usr/include/GL/{HEADERS[library]}": f"int kedge_{library}(void);\n"}
        packages |= {name: pack(runtime) for name, of in INSTALLED.items() if of == library}
        development = {**runtime, **header, f"{place}/lib{library}.so": made}
        packages |= {name: pack(development) for name, of in DEVELOPED.items() if of == library}
    return packages


def ask_compiler(question: str, name: str) -> str:
    done = subprocess.run(
        [require_program("gcc"), f"-print-{question}={name}"], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_layer(runner: Runner, name: str, programs: list[str], files: Mapping[str, bytes]) -> bytes:
    """Programs of this host with all they need, and these files, as the tar of one layer."""
    folder = runner.home / name
    runner.read("pull", "--sandbox", str(folder), f"host:{','.join(programs)}")
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            if path.name != ".singularity.d":
                archive.add(path, path.name)
        for place, content in files.items():
            member = tarfile.TarInfo(place)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return memory.getvalue()


def serve_images(runner: Runner, registry: FakeRegistry) -> None:
    """CUDA's image for developers has a compiler, its base has none; both have apt-get."""
    files = {f"opt/packages/{name}.tar": data for name, data in make_packages(runner.home).items()}
    files["usr/bin/apt-get"] = APT.encode()
    compiler = [ask_compiler("prog-name", "cc1"), ask_compiler("prog-name", "collect2")]
    objects = {name: os.path.normpath(ask_compiler("file-name", name)) for name in OBJECTS}
    developed = {place[1:]: Path(place).read_bytes() for place in objects.values()}
    everything = [require_program("gcc"), require_program("make"), "as", "ld", *compiler]  # as and ld come with gcc
    for tag, programs, more in (("devel", everything, developed), ("base", [], {})):
        tar = make_layer(runner, tag, [*BASIC, *programs], {**files, **more})
        config = make_config([tar], {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]})
        registry.add_image("nvidia/cuda", f"12.4.1-{tag}-ubuntu22.04", [build.compress(tar)], config)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    authority = make_authority(tmp_path_factory.mktemp("authority"))
    authority.folder.chmod(0o755)
    authority.certificate.chmod(0o644)
    sample = build.compress(pack({f"{FOLDER}/{name}": text for name, text in SAMPLE.items()}))

    def answer(request: Recorded) -> Reply:
        is_sample = request.path == "/NVIDIA/cuda-samples/archive/refs/tags/v12.4.1.tar.gz"
        return Reply(200, sample) if is_sample else Reply(404)

    for runner in each_role("user"):
        os.chown(runner.folder, runner.uid, runner.uid)
        rules = runner.folder / "registries.conf"
        certificate = runner.folder / "authority.pem"
        certificate.write_bytes(authority.certificate.read_bytes())
        with (
            FakeRegistry() as registry,
            FakeServer(answer, tls=authority.issue("github.com")) as github,
            ConnectProxy({"github.com:443": github.port}) as proxy,
        ):
            serve_images(runner, registry)
            rules.write_text(f'[[registry]]\nprefix = "nvcr.io"\nlocation = "{registry.host}"\ninsecure = true\n')
            variables = {"CONTAINERS_REGISTRIES_CONF": str(rules), "KEDGE_CA_BUNDLE": str(certificate)}
            yield Builder(runner, {**variables, "https_proxy": f"http://{proxy.host}", "no_proxy": "127.0.0.1"})


def test_small_image_of_the_page_is_built_and_runs(builder: Builder) -> None:
    done = builder.build("nbody.sif", read_recipe())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    ran = builder.run("nbody.sif", "nbody", "-benchmark", "-numbodies=256")
    potential = sum((256 - distance) / distance for distance in range(1, 256))
    assert ran.stdout == f"256 bodies, potential {potential:.3f}\n", ran.stderr
    assert builder.run("nbody.sif", "gcc", "--version").returncode != 0
    done = builder.build("builder.sif", read_recipe(), "--target", "builder")
    assert done.returncode == 0, done.stderr
    sizes = [(builder.runner.home / name).stat().st_size for name in ("nbody.sif", "builder.sif")]
    assert 3 * sizes[0] < sizes[1], sizes


@pytest.mark.parametrize("name", DEVELOPED)
def test_small_image_of_the_page_needs_each_package_to_build(builder: Builder, name: str) -> None:
    recipe = read_recipe()
    assert f" {name}" in recipe
    done = builder.build("fails.sif", recipe.replace(f" {name}", "", 1))
    assert done.returncode != 0
    assert f"GL/{HEADERS[DEVELOPED[name]]}: No such file or directory" in done.stdout + done.stderr
    assert not (builder.runner.home / "fails.sif").exists()


def test_small_image_of_the_page_needs_each_package_to_run(builder: Builder) -> None:
    recipe = read_recipe()
    changed = re.sub(rf" ({'|'.join(INSTALLED)})(?=\s)", "", recipe)
    assert all(re.search(rf" {name}\s", recipe) and f" {name}\n" not in changed for name in INSTALLED)
    done = builder.build("without.sif", changed)
    assert done.returncode == 0, done.stderr
    assert builder.run("without.sif", "nbody", "-benchmark").returncode != 0
    listed = builder.run("without.sif", "env", "LD_TRACE_LOADED_OBJECTS=1", "nbody").stdout
    for library, version in VERSIONS.items():
        assert f"lib{library}.so.{version} => not found" in listed
