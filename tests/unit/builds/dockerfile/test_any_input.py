# SPDX-License-Identifier: BSD-3-Clause
"""Whatever a file holds, reading it ends soon, with a recipe or with an error that names the place."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from kedge.builds.dockerfile.plan import make_recipe
from kedge.builds.dockerfile.syntax import dump_syntax, read_syntax
from kedge.builds.step_values import BuildArguments
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row

SEED = """# syntax=docker/dockerfile:1
ARG V=1 W
FROM --platform=$BUILDPLATFORM base:${V:-2} AS build
SHELL ["/bin/bash", "-c"]
ENV A="x y" B='z' C=d\\ e PATH=/opt:$PATH
LABEL old style
WORKDIR src
RUN --mount=type=cache,target=/c,id="a,b" --mount=type=secret,id=s,env=S --network=none make \\
    # a comment

    && echo "${A%% *}" 'it' <<EOF > /x
text $A
EOF
COPY --chown=1:2 --chmod=755 --exclude=*.o <<-'ONE' two ["three"] /d/
\traw
\tONE
ADD --checksum=sha256:00 https://example.org/x.tar.gz /opt/
ONBUILD COPY --from=build /a /b
HEALTHCHECK --interval=1m30s --retries=3 CMD ["/check"]
EXPOSE 80 90-92/udp $V
VOLUME ["/data"]
USER me:us
STOPSIGNAL SIGINT
MAINTAINER me
FROM scratch
COPY --from=build /src/out /${W:+x}/
COPY --from=0 /a /b
ENTRYPOINT ["/out"]
CMD help
"""
GIVEN = BuildArguments(build_platform="linux/amd64", target_platform="linux/arm64")
PIECES = [
    *"\\`\"'${}<>-=#[],: \t\n\r\x00\x0b\x0c\x85\xa0\u2028:+?%/@*!\xe9\ufeff\udc80",
    *("<<EOF", "<<-'E", "EOF\n", "\nRUN ", "\nENV a=", "\\\n", "\nONBUILD ", "\nCOPY ", " --mount=", "# escape=`\n"),
    *('["a"', "${a:-", "${a##*", "${a//", "\nFROM ", " AS x\n", "\nHEALTHCHECK ", "\nARG ", "\nEXPOSE ", "--from=0 "),
]


def mutate(dice: random.Random) -> Iterator[str]:
    """Parts of the seed with odd pieces in odd places, and pieces alone."""
    lines = SEED.split("\n")
    while True:
        begin = dice.randrange(len(lines))
        text = "\n".join(["FROM a", *lines[begin : begin + dice.randint(1, 12)]])
        for _ in range(dice.randint(1, 8)):
            place = dice.randint(0, len(text))
            text = text[:place] + dice.choice(PIECES) + text[place + dice.choice([0, 0, 1, 3]) :]
        yield text
        yield "".join(dice.choices(PIECES, k=dice.randint(1, 40)))
        yield dice.randbytes(dice.randint(0, 200)).decode("utf-8", "surrogateescape")


def read_all(text: str) -> None:
    """All that is made of a Dockerfile; only InvalidRecipe may come out, and its place is a line of the file."""
    try:
        dump_syntax(read_syntax(text))
        sections: dict[int | None, object] = {None: {"Env": ["PATH=/bin"], "OnBuild": ["RUN a"]}}
        for stage in make_recipe(text, "D", GIVEN).stages:
            plan = stage.plan(sections[stage.base.stage])  # type: ignore[arg-type]
            sections[stage.index] = plan.section
    except InvalidRecipe as error:
        name, line, column = str(error).split(":")[:3]
        assert name in ("D", "Dockerfile")
        assert 1 <= int(line) <= text.count("\n") + 1
        assert int(column) >= 1


@each_row("seed", range(4))
def test_any_input_is_read_or_refused(seed: int) -> None:
    texts = mutate(random.Random(seed))
    for _ in range(1500):
        read_all(next(texts))


def test_any_input_the_seed_itself_is_right() -> None:
    recipe = make_recipe(SEED.replace(' two ["three"]', " two"), "D", GIVEN)
    assert [stage.needs for stage in recipe.stages] == [(), (0,)]


LARGE = {
    "instructions": "RUN echo {} && true\n" * 20000,
    "variables": "".join(f'ENV V{n}=v W{n}="$V{n - 1} x"\n' for n in range(5000)),
    "a continued command": "RUN a \\\n" + "    && echo b \\\n" * 50000 + "    c\n",
    "continued pairs": "ENV a=b \\\n" + "".join(f'    V{n}="x \\" y" \\\n' for n in range(10000)) + "    z=1\n",
    "a heredoc": "COPY <<EOF /x\n" + 'a "$PATH" b\n' * 20000 + "EOF\n",
    "comments": "# a\n" * 200000,
    "empty lines in a continued one": "RUN a \\\n" + "\n" * 200000 + "b\n",
    "stages": "".join(f"FROM a AS s{n}\n" for n in range(5000)),
    "a chain of stages": "FROM a AS s0\n"
    + "".join(f"FROM s{n} AS s{n + 1}\nCOPY --from=s{n} a b\n" for n in range(2000)),
    "nested variables": "ENV a=" + "${a:-\\\n" * 50000 + "\n",
    "nested ONBUILD": "ONBUILD \\\n" * 50000 + "RUN a\n",
    "nested JSON": "RUN " + ("[" * 1000 + "\\\n") * 100 + "\n",
    "backslashes": "RUN " + "\\" * 60000 + "\n",
    "blanks": "RUN a" + " " * 60000 + "\\\n" + " " * 60000 + "b\n",
    "stars": f"ENV a={'a' * 20000}\nENV b=${{a##{'*a' * 500}b}}\n",
    "heredocs": "RUN " + " ".join(f"<<E{n}" for n in range(2000)) + "\n" + "".join(f"E{n}\n" for n in range(2000)),
}


@each_row("name", LARGE)
def test_any_input_large_files_take_time_in_proportion(name: str) -> None:
    begin = time.process_time()
    read_all(f"FROM a\n{LARGE[name]}")
    assert time.process_time() - begin < 10
