# SPDX-License-Identifier: BSD-3-Clause
"""Who a program in a step is, and whose files are: kedge without subordinate ids, with them, and buildah as root.

The probes and what each must say are in `build_identity_probes.toml`. One recipe runs all of them; each writes what it
said into the image, so that one that fails ends nothing. `make test` asks kedge without
such ids, `make test-all` the others, too.
PROBES_TABLE names a file for the table and for what went wrong; PROBES_ENGINES=without,with,buildah asks all at once.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.builders.buildah import run_buildah
from tests.builders.containers import Runner, each_role, give_to, run_after
from tests.builders.debian_bases import find_mirror
from tests.builders.own_etc import Account, make_etc
from tests.requirements import require_program, require_root

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(900)]

LIST = Path(__file__).with_name("build_identity_probes.toml")
FEWEST = 50
ALLOWED = {"without": 8, "with": 3, "buildah": 3}  # how many probes may fail
INCLUDED = "adduser,sudo,rsync,python3-minimal,libpython3-stdlib,libcap2-bin,openssh-client,locales,gnupg,git,cpio"
INCLUDED += ",busybox,systemd-standalone-sysusers,systemd-standalone-tmpfiles"
INSTALLED = "postgresql openssh-server cron"  # by a probe: their packages are in the base, and no step needs a network
PRELUDE = """FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN groupadd -g 1500 crew && useradd -m -u 1001 -s /bin/sh -G crew alice && useradd -m -u 1002 -s /bin/sh bob
COPY probes /probes
RUN mkdir -m 1777 /results
"""
SCRIPT = """for name; do
    cd /tmp
    timeout 60 sh -eu "/probes/$name" > "/results/$name" 2> "/results/$name.err"; echo "status $?" >> "/results/$name"
done
"""
KINDS = {tarfile.REGTYPE: "-", tarfile.DIRTYPE: "d", tarfile.SYMTYPE: "l", tarfile.CHRTYPE: "c"}
KINDS |= {tarfile.BLKTYPE: "b", tarfile.FIFOTYPE: "p"}


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, and what a container of real root answers."""

    name: str
    run: str
    says: str
    status: int = 0
    before: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """A name for files."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())

    @property
    def expected(self) -> str:
        """All of it as one text."""
        return f"{self.says}status {self.status}\n" + "".join(f"{path} {self.files[path]}\n" for path in self.files)

    def read(self, seen: dict[str, tarfile.TarInfo], texts: dict[str, str]) -> str:
        """The same of an image."""
        found = (f"{path} {describe(seen.get(path.strip('/')))}\n" for path in self.files)
        text = texts.get(self.short, "it did not run\n") + "".join(found)
        return text if text == self.expected else text + texts.get(f"{self.short}.err", "")


@functools.cache
def list_probes() -> tuple[Probe, ...]:
    return tuple(Probe(**each) for each in tomllib.loads(LIST.read_text(encoding="utf-8"))["probe"])


def describe(member: tarfile.TarInfo | None) -> str:
    if member is None:
        return "is not there"
    device = f" {member.devmajor},{member.devminor}" if member.isdev() and not member.isfifo() else ""
    mode = 0o777 if member.issym() else member.mode & 0o7777
    return f"{KINDS.get(member.type, '?')} {mode:o} {member.uid}:{member.gid}{device}"


# -- the context


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """Debian with the programs that are asked, and with the packages that a probe installs."""
    require_root()
    folder = Path(tempfile.mkdtemp(prefix="kedge-probes-"))
    folder.chmod(0o755)
    fetch = f'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --no-install-recommends -d install {INSTALLED}'
    options = ["--variant=minbase", "--quiet", f"--include={INCLUDED}", f"--customize-hook={fetch}"]
    options += ["--skip=cleanup/apt,output/dev"]
    argv = [require_program("mmdebstrap"), *options, "bookworm", str(folder / "base.tar"), find_mirror()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    try:
        if done.returncode:
            pytest.skip(f"no Debian from the mirror of this host: {done.stderr[-600:]}")
        yield folder / "base.tar"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_context(folder: Path, base: Path) -> None:
    """The recipe of all probes, and what it copies."""
    (folder / "probes").mkdir(parents=True)
    shutil.copyfile(base, folder / "base.tar")
    (folder / "given").write_text("given\n")
    (folder / "given").chmod(0o644)
    with tarfile.open(folder / "owners.tar", "w") as archive:
        for name, kind, mode, uid, gid in (("theirs", b"0", 0o640, 1002, 1500), ("folder", b"5", 0o755, 1001, 1001)):
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid, member.gid = kind, mode, uid, gid
            archive.addfile(member, io.BytesIO())
    (folder / "probes/run").write_text(SCRIPT)
    for probe in list_probes():
        (folder / "probes" / probe.short).write_text(probe.run.strip("\n") + "\n")
    (folder / "Dockerfile").write_text(PRELUDE + "".join(list_steps()))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def list_steps() -> Iterator[str]:
    """Lines of the recipe: probes that need nothing before them share a step."""
    for before, probes in itertools.groupby(list_probes(), key=lambda probe: probe.before):
        names = " ".join(probe.short for probe in probes)
        after = "USER root\n" if before.startswith("USER") else ""
        yield f"{before}\nRUN sh /probes/run {names}\n{after}"


# -- the engines: each leaves an archive of its image


def build_without(runner: Runner, context: Path) -> Path:
    runner.read("build", f"docker-archive:{runner.home}/out.tar:probes", str(context))
    return runner.home / "out.tar"


def build_with(runner: Runner, context: Path) -> Path:
    require_program("newuidmap")
    ids = dict.fromkeys(("subuid", "subgid"), "subject:300000:65536\n")
    etc = make_etc(runner.folder / "etc", [Account("subject", runner.uid, runner.home)], **ids)
    words = ("build", f"docker-archive:{runner.home}/out.tar:probes", str(context))
    done = run_after(f"mount --bind {etc} /etc", runner, *words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return runner.home / "out.tar"


def build_by_buildah(runner: Runner, context: Path) -> Path:
    place = runner.folder / "buildah"
    place.mkdir()
    run_buildah(place, "bud", "--isolation", "chroot", "--format", "docker", "-q", "-t", "probes", str(context))
    run_buildah(place, "push", "-q", "probes", f"docker-archive:{place}/out.tar:probes")
    return place / "out.tar"


ENGINES = {"without": build_without, "with": build_with, "buildah": build_by_buildah}


def ask(engine: str, base: Path) -> dict[str, str]:
    """What an engine answers, by probe."""
    answers: dict[str, str] = {}
    for runner in each_role("root" if engine == "buildah" else "user"):
        context = runner.folder / "context"
        write_context(context, base)
        give_to(runner, context)
        answers = read_answers(ENGINES[engine](runner, context))
    return answers


def read_answers(archive: Path) -> dict[str, str]:
    """What the probes said in an image, and what the image has where they ask for it."""
    seen: dict[str, tarfile.TarInfo] = {}
    texts: dict[str, str] = {}
    for layer, member in list_members(archive):
        path = member.name.strip("./")
        seen[path] = seen.get(member.linkname.strip("./"), member) if member.islnk() else member
        file = layer.extractfile(member) if path.startswith("results/") and member.isreg() else None
        if file is not None:
            texts[path.removeprefix("results/")] = file.read().decode(errors="replace")
    return {probe.name: probe.read(seen, texts) for probe in list_probes()}


def list_members(archive: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The files of all layers of a docker archive, lowest first."""
    with tarfile.open(archive) as outer:
        for name in json.load(outer.extractfile("manifest.json"))[0]["Layers"]:  # type: ignore[arg-type]
            member = outer.getmember(name)
            if member.issym():  # buildah writes a layer once
                member = outer.getmember(str(Path(name).parent / member.linkname).replace("../", ""))
            with tarfile.open(fileobj=outer.extractfile(member)) as layer:
                yield from ((layer, each) for each in layer)


def render_table(found: dict[str, dict[str, str]]) -> str:
    rows = []
    for probe in list_probes():
        states = ["right" if found[name][probe.name] == probe.expected else "WRONG" for name in found]
        rows.append(f"{probe.name:52} " + " ".join(f"{state:8}" for state in states))
    counts = " ".join(f"{len(list_wrong(found, name)):<8}" for name in found)
    head = f"{'':52} " + " ".join(f"{name:8}" for name in found)
    return "\n".join([head, *rows, f"{f'wrong of {len(list_probes())}':52} {counts}"])


def list_wrong(found: dict[str, dict[str, str]], engine: str) -> dict[str, str]:
    return {each.name: found[engine][each.name] for each in list_probes() if found[engine][each.name] != each.expected}


# how steps have subordinate ids: tests/functional/test_build_identities.py
@pytest.mark.parametrize("engines", ["without", pytest.param("with,buildah", marks=pytest.mark.long)])
def test_programs_see_who_they_are(base: Path, engines: str) -> None:
    if "buildah" in engines:
        require_program("buildah")
    found = {name: ask(name, base) for name in os.environ.get("PROBES_ENGINES", engines).split(",")}
    table = render_table(found)
    if os.environ.get("PROBES_TABLE"):
        wrong = [(name, *pair) for name in found for pair in list_wrong(found, name).items()]
        details = "".join(f"\n\n== {engine}: {name}\n{text}" for engine, name, text in wrong)
        Path(os.environ["PROBES_TABLE"]).write_text(table + details)
    assert len(list_probes()) >= FEWEST
    assert [name for name in found if len(list_wrong(found, name)) > ALLOWED[name]] == [], f"\n{table}"
