# SPDX-License-Identifier: BSD-3-Clause
"""A recipe and what `kedge recipe convert` makes of it build the same files, both ways."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.builds import Workshop
from tests.builders.containers import each_role, give_to

DOCKERFILE = """# A recipe with most of what RUN and COPY can do
ARG WORD=hello
FROM {base} AS builder
ARG WORD
ENV PREFIX=/opt/made
WORKDIR /src
COPY data .
RUN mkdir -p $PREFIX && \\
    # a comment
    echo "$WORD && more" > $PREFIX/word && \\
    cp data $PREFIX/
RUN cd $PREFIX && mv word words; echo done > state
RUN if test -e data; then echo yes > $PREFIX/yes; fi
RUN test ! -e $PREFIX/word || echo no > $PREFIX/no
RUN pwd | sed s/src/sources/ > $PREFIX/where
RUN <<EOF
cd /
pwd > $PREFIX/root
EOF
RUN cat > $PREFIX/document <<-END
	line $WORD
	END

FROM builder AS more
RUN echo more > /opt/made/more

FROM {base}
COPY --from=more /opt/made /opt/made
COPY --chmod=0750 data script.sh /opt/files/
COPY <<END /etc/inline
inline text
END
ENV A="b c" PATH=/opt/bin:$PATH
LABEL name="some value"
RUN echo "$A" > /opt/variable && chmod 600 /opt/variable
ENTRYPOINT ["cat"]
CMD ["/opt/made/words"]
"""
DEFINITION = """# A recipe with most of the sections
Bootstrap: localimage
From: {base}
Stage: builder
%arguments
    WORD=hello
%post
    mkdir /opt/made
    cd /opt/made
    for name in a b; do
        echo "{{{{ WORD }}}} $name" > $name
    done
    cat > document <<'EOF'
  $not replaced
EOF

# the second stage
Bootstrap: localimage
From: {base}
%files from builder
    /opt/made /opt/made
%files
    data /opt/data
    "a file" /opt/
%post -c /bin/sh
    touch /opt/touched
%environment
    export A="b c"
    export PATH=/opt/bin:$PATH
%runscript
    exec cat "$@"
%labels
    name some value
"""
# where a Dockerfile's run script stands, and what describes an image
IGNORED = (".singularity.d", "etc/hosts", "etc/resolv.conf")


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    for runner in each_role("user"):
        shop = Workshop.open(runner)
        base = shop.make_base()
        for program in ("cp", "mv", "sed"):
            (base / "bin" / program).symlink_to("busybox")
        (base / "opt").mkdir()
        give_to(runner, base)
        for name in ("data", "script.sh", "a file"):
            shop.write(name, f"content of {name}\n")
        yield shop


def read_tree(folder: Path) -> dict[str, tuple[str, str]]:
    tree = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if name.startswith(IGNORED):
            continue
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            content = str(path.readlink())
        else:
            content = path.read_bytes().hex() if stat.S_ISREG(mode) and path.stat().st_size < 10_000 else ""
        tree[name] = (oct(mode), content)
    return tree


@pytest.mark.parametrize(
    ("text", "name", "other"), [(DOCKERFILE, "Dockerfile", "x.def"), (DEFINITION, "x.def", "Dockerfile")]
)
def test_converted_recipe_builds_the_same(shop: Workshop, text: str, name: str, other: str) -> None:
    first, second = shop.context / f"first-{name}", shop.context / f"second-{name}"
    shop.write(name, text.format(base=shop.make_base()))
    shop.build("--sandbox", str(first), name)
    converted = shop.runner.read("recipe", "convert", name, cwd=shop.context)
    shop.write(f"converted-{other}", converted)
    shop.build("--sandbox", str(second), f"converted-{other}")
    assert read_tree(first) == read_tree(second), converted
    for image in (first, second):
        assert shop.runner.read(
            "run", str(image), "/opt/made/" + ("words" if name == "Dockerfile" else "a")
        ).startswith("hello")
        assert "A=b c\n" in shop.runner.read("exec", str(image), "env")
        assert "name: some value\n" in shop.runner.read("inspect", str(image))
