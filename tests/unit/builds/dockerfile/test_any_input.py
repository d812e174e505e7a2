# SPDX-License-Identifier: BSD-3-Clause
"""Whatever a file holds, reading it ends soon, with a recipe or with an error that names the place."""

from __future__ import annotations

import random
import time

from kedge.builds.dockerfile.plan import make_recipe
from kedge.builds.dockerfile.syntax import dump_syntax, read_syntax
from kedge.builds.step_values import BuildArguments
from kedge.errors import InvalidRecipe
from tests.builders.matrices import EVERY

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


def mutate(dice: random.Random):
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


@EVERY
def test_any_input_is_read_or_refused(is_every: bool) -> None:
    for seed in range(4 if is_every else 1):
        texts = mutate(random.Random(seed))
        for _ in range(1500):
            read_all(next(texts))


def test_any_input_the_seed_itself_is_right() -> None:
    recipe = make_recipe(SEED.replace(' two ["three"]', " two"), "D", GIVEN)
    assert [stage.needs for stage in recipe.stages] == [(), (0,)]


def make_large(scale: int) -> dict[str, str]:
    """Files of a size that counts, some of them smaller by the scale."""

    def repeat(part: str, count: int) -> str:
        return part * (count // scale)

    def number(part: str, count: int) -> str:
        return "".join(part.replace("#", str(n)).replace("@", str(n + 1)) for n in range(count // scale))

    return {
        "instructions": repeat("RUN echo {} && true\n", 20000),
        "variables": number('ENV V@=v W@="$V# x"\n', 5000),
        "a continued command": "RUN a \\\n" + repeat("    && echo b \\\n", 50000) + "    c\n",
        "continued pairs": "ENV a=b \\\n" + number('    V#="x \\" y" \\\n', 10000) + "    z=1\n",
        "a heredoc": "COPY <<EOF /x\n" + repeat('a "$PATH" b\n', 20000) + "EOF\n",
        "comments": repeat("# a\n", 200000),
        "empty lines in a continued one": "RUN a \\\n" + repeat("\n", 200000) + "b\n",
        "stages": number("FROM a AS s#\n", 5000),
        "a chain of stages": "FROM a AS s0\n" + number("FROM s# AS s@\nCOPY --from=s# a b\n", 2000),
        "nested variables": "ENV a=" + repeat("${a:-\\\n", 50000) + "\n",
        "nested ONBUILD": repeat("ONBUILD \\\n", 50000) + "RUN a\n",
        "nested JSON": "RUN " + repeat("[" * 1000 + "\\\n", 100) + "\n",
        "backslashes": "RUN " + "\\" * 60000 + "\n",
        "blanks": "RUN a" + " " * 60000 + "\\\n" + " " * 60000 + "b\n",
        "stars": f"ENV a={'a' * 20000}\nENV b=${{a##{'*a' * 500}b}}\n",
        "heredocs": "RUN " + number(" <<E#", 2000) + "\n" + number("E#\n", 2000),
    }


@EVERY
def test_any_input_large_files_take_time_in_proportion(is_every: bool) -> None:
    scale, slow = 1 if is_every else 8, []
    for name, text in make_large(scale).items():
        begin = time.process_time()
        read_all(f"FROM a\n{text}")
        if (took := time.process_time() - begin) >= 2 + 8 / scale:
            slow.append((name, took))
    assert not slow
