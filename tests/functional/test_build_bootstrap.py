# SPDX-License-Identifier: BSD-3-Clause
"""Bases that are made on this host, as an ordinary user: busybox and debootstrap."""

from __future__ import annotations

import json

import pytest

from tests.builders.builds import Workshop, warm_shop
from tests.builders.busybox import read_busybox
from tests.builders.containers import run_after
from tests.builders.debian_bases import find_mirror
from tests.requirements import require_program
from tests.wording import assert_says

shop = warm_shop

DEBOOTSTRAP = ("/usr/sbin/debootstrap", "/sbin/debootstrap", "/usr/bin/debootstrap")


def test_busybox_of_this_host(shop: Workshop) -> None:
    read_busybox()
    require_program("busybox")
    shop.write("x.def", "Bootstrap: busybox\n%post\necho hi > /made\n%runscript\ncat /made\n")
    before = sorted((shop.runner.folder / "cache/blobs").rglob("*"))
    (stage,) = json.loads(shop.start("--dry-run", "--json", "out.sif", "x.def").stdout)["stages"]
    assert {step["state"] for step in stage["steps"]} == {"run"}
    assert sorted((shop.runner.folder / "cache/blobs").rglob("*")) == before  # a dry run makes no base
    shop.build("out.sif", "x.def")
    (stage,) = json.loads(shop.start("--dry-run", "--json", "out.sif", "x.def").stdout)["stages"]
    assert {step["state"] for step in stage["steps"]} == {"cached"}
    assert shop.runner.read("run", str(shop.context / "out.sif")) == "hi\n"
    assert "done" not in shop.states("--force", "out.sif", "x.def")


def test_unknown_programs_are_named_with_an_image_instead(shop: Workshop) -> None:
    shop.write("x.def", "Bootstrap: arch\n%post\necho\n")
    done = shop.start("out.sif", "x.def", env={"PATH": "/nonexistent"})
    assert done.returncode != 0
    assert "From: archlinux:latest" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_debian_by_packages(shop: Workshop) -> None:
    mirror = find_mirror()
    require_program("debootstrap")
    shop.write(
        "x.def",
        f"Bootstrap: debootstrap\nOSVersion: bookworm\nMirrorURL: {mirror}\n"
        "%post\napt-get --version\nstat -c %U /var/cache/apt/archives/partial\n",
    )
    done = shop.start("--sandbox", "out", "x.def")
    if "Failed getting release file" in done.stderr or "Couldn't download" in done.stderr:  # no fault of ours
        pytest.skip(f"the mirror of this host did not deliver: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    assert "bookworm" in (shop.context / "out/usr/lib/os-release").read_text()


HIDDEN = "".join(f"[ ! -e {path} ] || mount --bind /dev/null {path}; " for path in DEBOOTSTRAP)
# They do what kedge's scripts count on. As root with a place for temporary files: a tar of a system, devices in it
STAND_INS = {
    "mmdebstrap": """#!/bin/sh
set -e
test "$(id -u) $1 $2 $3" = "0 --variant=minbase --mode=root --format=tar"
for suite do [ "$suite" != bookworm ] || break; shift; done
mkdir -p "$TMPDIR/root/bin" "$TMPDIR/root/dev" "$TMPDIR/root/etc"
cp BUSYBOX "$TMPDIR/root/bin/busybox"; ln -s busybox "$TMPDIR/root/bin/sh"
echo "$3" > "$TMPDIR/root/etc/mirror"; : > "$TMPDIR/root/dev/null"
tar -C "$TMPDIR/root" -cf "$2" .
""",
    # the half of a system, and a program that makes the other half as root of it, with real devices
    "debootstrap": r"""#!/bin/sh
set -e
test "$(id -u) $1 $2 $3" = "0 --foreign --variant=minbase bookworm"
mkdir -p "$4/bin" "$4/etc" "$4/debootstrap"
cp BUSYBOX "$4/bin/busybox"; ln -s busybox "$4/bin/sh"
cat > "$4/debootstrap/debootstrap" <<END
#!/bin/sh
set -e; test "\$(busybox id -u) \$1" = "0 --second-stage"; test -c /dev/null
busybox rm -r /debootstrap; echo "$5" > /etc/mirror
END
chmod 755 "$4/debootstrap/debootstrap"
""",
}


@pytest.mark.root
@pytest.mark.parametrize("name", STAND_INS)
def test_a_base_by_a_stand_in_of_a_program(shop: Workshop, name: str) -> None:
    """The real programs take most of a minute. That of mmdebstrap is for hosts without debootstrap."""
    read_busybox()
    program, stand_in = require_program(name), shop.runner.folder / "stand-in"
    stand_in.write_text(STAND_INS[name].replace("BUSYBOX", require_program("busybox")))
    stand_in.chmod(0o755)
    header = "Bootstrap: debootstrap\nOSVersion: bookworm\nMirrorURL: http://mirror.example.org/debian\n"
    recipe = shop.write("x.def", f"{header}%post\nbusybox ls -A / /dev > /seen\n")
    setup = f"{HIDDEN if name == 'mmdebstrap' else ''}mount --bind {stand_in} {program}"
    done = run_after(setup, shop.runner, "build", str(shop.context / "out.sif"), str(recipe))
    assert done.returncode == 0, done.stderr
    nodes, text = shop.look("out.sif", "/etc/mirror")
    assert text == "http://mirror.example.org/debian\n"
    assert not {"/.work", "/.image.tar", "/debootstrap"} & set(nodes)
    assert shop.list_builds() == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.root
def test_debian_by_mmdebstrap(shop: Workshop) -> None:
    mirror = find_mirror()
    require_program("mmdebstrap")
    recipe = shop.write(
        "x.def", f"Bootstrap: debootstrap\nOSVersion: bookworm\nMirrorURL: {mirror}\n%post\napt-get --version\n"
    )
    done = run_after(f"{HIDDEN}true", shop.runner, "build", str(shop.context / "out.sif"), str(recipe), timeout=600)
    if "download of package lists" in done.stderr or "Could not connect" in done.stderr:  # no fault of ours
        pytest.skip(f"the mirror of this host did not deliver: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    assert "mmdebstrap" in done.stderr
    assert "bookworm" in shop.exec("out.sif", "cat", "/etc/os-release")
    assert shop.list_builds() == []


def test_fingerprints_of_a_base_are_verified(shop: Workshop) -> None:
    run = shop.runner
    shop.write("base.def", f"Bootstrap: localimage\nFrom: {shop.make_base()}\n")
    shop.build("base.sif", "base.def")
    shop.write("x.def", "Bootstrap: localimage\nFrom: base.sif\nFingerprints: 0000000000000000\n%post\ntrue\n")
    done = shop.start("out.sif", "x.def")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    run.read("key", "newpair", "--name", "Me", "--email", "me@example.org", "--password", "")
    run.read("sign", str(shop.context / "base.sif"))
    done = shop.start("out.sif", "x.def")
    assert done.returncode != 0
    assert_says(done.stderr, "build/not-signed", "0000000000000000")
    fingerprint = json.loads(run.read("key", "list", "--secret", "--json"))[0]["fingerprint"]
    shop.write("x.def", f"Bootstrap: localimage\nFrom: base.sif\nFingerprints: {fingerprint}\n%post\ntrue\n")
    shop.build("out.sif", "x.def")
