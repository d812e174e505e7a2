# SPDX-License-Identifier: BSD-3-Clause
"""`RUN --mount` in whole builds: binds from everywhere, caches that survive, memory; none of it is in a layer."""

from __future__ import annotations

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.wording import assert_says

shop = warm_shop


def test_binds_show_the_context_and_stages(shop: Workshop) -> None:
    shop.write("data/file", "of the context\n")
    shop.write(
        "Dockerfile",
        f"{SHELL}FROM base AS maker\nRUN mkdir /made && echo of a stage > /made/file\nFROM base\n"
        "RUN --mount=type=bind,source=data,target=/mnt/a --mount=type=bind,from=maker,source=/made,target=/mnt/b "
        "cat /mnt/a/file /mnt/b/file > /both; ! touch /mnt/a/x\n"
        "RUN --mount=type=bind,source=data,target=/mnt/a,rw echo changed > /mnt/a/file\n",
    )
    assert shop.states("a.sif", "Dockerfile").count("done") == 3
    nodes, both = shop.look("a.sif", "/both")
    assert both == "of the context\nof a stage\n"
    assert not [path for path in nodes if path.startswith("/mnt/")]
    assert (shop.context / "data/file").read_text() == "of the context\n"
    assert set(shop.states("b.sif", "Dockerfile")) == {"cached"}
    shop.write("data/file", "changed\n")
    assert shop.states("c.sif", "Dockerfile").count("done") == 2


def test_binds_of_the_context_leave_out_what_dockerignore_names(shop: Workshop) -> None:
    for name in ("keys/private", "src/a.c", "src/.env", "src/docs/b.md", "src/docs/keep.md"):
        shop.write(name, name)
    shop.write(".dockerignore", "*.sif\nkeys\n**/.env\nsrc/docs\n!src/docs/keep.md\n")
    find = "find /m | sort > {}"
    bind = "--mount=type=bind,target=/m"
    shop.write(
        "Dockerfile",
        f"{SHELL}RUN {bind} {find.format('/all')} && ! touch /m/x\nRUN {bind},source=src,rw {find.format('/src')}\n"
        f"RUN --mount=type=cache,target=/m,id=new,from=given {find.format('/cache')}\n"
        f"RUN {bind},source=src/a.c cat /m > /one\n",
    )
    shop.build("--build-context", "given=.", "a.sif", "Dockerfile")
    top, below = ["/m", "/m/.dockerignore", "/m/Dockerfile", "/m/busybox"], ["", "/a.c", "/docs", "/docs/keep.md"]
    assert shop.read("a.sif", "/all").split() == [*top, *(f"/m/src{name}" for name in below)]
    assert shop.read("a.sif", "/src").split() == [f"/m{name}" for name in below]
    assert shop.read("a.sif", "/cache").split() == [*top, *(f"/m/src{name}" for name in below)]
    assert shop.read("a.sif", "/one") == "src/a.c"
    shop.write("keys/private", "changed: nobody looks at it")
    assert set(shop.states("--build-context", "given=.", "b.sif", "Dockerfile")) == {"cached"}
    done = shop.start("c.sif", str(shop.write("bad", f"{SHELL}RUN {bind},source=keys ls /m\n")))
    assert done.returncode == 90
    assert_says(done.stderr, "build/keys-not-build-context-dockerignore")
    assert shop.list_builds() == []


def test_caches_survive_builds_and_are_in_no_layer(shop: Workshop) -> None:
    kinds = ("shared", "private", "locked")
    steps = "".join(
        f"RUN --mount=type=cache,target=/cache,id={kind},sharing={kind} echo $WHICH >> /cache/log; "
        f"cat /cache/log > /{kind}\n"
        for kind in kinds
    )
    shop.write("Dockerfile", f"{SHELL}ARG WHICH\n{steps}")
    for name, expected in (("a", "a\n"), ("b", "a\nb\n")):
        shop.build("--build-arg", f"WHICH={name}", f"{name}.sif", "Dockerfile")
        nodes, text = shop.look(f"{name}.sif", *(f"/{kind}" for kind in kinds))
        assert text == expected * 3
        assert not [path for path in nodes if path.startswith("/cache/")]


def test_memory_is_gone_after_the_step(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN --mount=type=tmpfs,target=/mem,size=1m echo x > /mem/x && mount > /mounts\n")
    shop.build("a.sif", "Dockerfile")
    nodes, mounts = shop.look("a.sif", "/mounts")
    assert "/mem" in mounts
    assert not [path for path in nodes if path.startswith("/mem/")]


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_context_that_others_can_change_is_mounted_as_a_copy(shop: Workshop, mode: int) -> None:
    file = shop.write("data/file", "text\n")
    shop.context.chmod(mode)
    binds = "--mount=type=bind,source=data,target=/m --mount=type=bind,source=data/file,target=/one"
    shop.write("Dockerfile", f"{SHELL}RUN {binds} cat /one > /text && ls -i /m/file > /inode\n")
    shop.build("a.sif", "Dockerfile")
    text, inode = shop.read("a.sif", "/text", "/inode").splitlines()
    assert text == "text"
    assert (int(inode.split()[0]) == file.stat().st_ino) == (mode == 0o755)
