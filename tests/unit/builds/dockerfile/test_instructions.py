# SPDX-License-Identifier: BSD-3-Clause
"""What every instruction takes, and what it refuses: with the place, and the likely word for a misspelt one."""

from __future__ import annotations

import pytest

from kedge.builds.dockerfile.checks import read_content
from kedge.builds.dockerfile.instructions import Instruction, PairsInstruction
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_begins


def read_one(text: str) -> Instruction:
    """The instruction behind a FROM."""
    return read_content(f"FROM base\n{text}\n").stages[0].instructions[0]


REFUSED = {
    # text: (column, message, hint)
    "RNU a": (1, "unknown instruction 'RNU'", None),
    "COPPY a b": (1, "unknown instruction 'COPPY'", "did you mean 'COPY'?"),
    "workdirr /a": (1, "unknown instruction 'workdirr'", "did you mean 'WORKDIR'?"),
    "FROM": (1, "FROM names no image", None),
    "FROM a b": (1, "FROM takes an image", None),
    "FROM a AS 1b": (11, "cannot be the name of a stage", None),
    "FROM a AS b/c": (11, "cannot be the name of a stage", None),
    "FROM --platfrom=x a": (6, "no flag --platfrom", "did you mean '--platform'?"),
    "RUN --mout=x a": (5, "no flag --mout", "did you mean '--mount'?"),
    "RUN --mount a": (5, "--mount has no value", None),
    "RUN --network=bridge a": (5, "--network=bridge is unknown", None),
    "RUN --network=none --network=none a": (5, "--network is given twice", None),
    "RUN --security=all a": (5, "--security=all is unknown", None),
    "RUN --mount=from=$X,target=/a b": (5, "cannot have variables", None),
    "RUN --mount='a\"b' c": (5, "quotes", None),
    "COPY a": (1, "needs a source and a destination", None),
    "COPY": (1, "needs a source and a destination", None),
    "COPY --form=x a b": (6, "no flag --form", "did you mean '--from'?"),
    "COPY --checksum=x a b": (6, "no flag --checksum", None),
    "COPY --link=maybe a b": (6, "neither true nor false", None),
    "COPY --link= a b": (6, "--link has no value", None),
    "COPY --chown a b": (6, "--chown has no value", None),
    "COPY a <<EOF\nEOF": (8, "cannot be the destination", None),
    "ADD --from=x a b": (5, "no flag --from", None),
    "ENV": (1, "ENV sets nothing", None),
    "ENV =a": (1, "without a name", None),
    "ENV --x a=b": (5, "ENV has no flag --x", "it takes no flags; write -- before words that begin with --"),
    "LABEL": (1, "LABEL sets nothing", None),
    "ARG": (1, "ARG names nothing", None),
    "ARG =x": (5, "without a name", None),
    "HEALTHCHECK": (1, "checks nothing", None),
    "HEALTHCHECK NONE a": (1, "takes no arguments", None),
    "HEALTHCHECK TCP a": (13, "does not know 'TCP'", None),
    "HEALTHCHECK CMD": (1, "has no command", None),
    "HEALTHCHECK --interval=5 CMD a": (13, "not a duration", None),
    "HEALTHCHECK --interval=5us CMD a": (13, "shorter than a millisecond", None),
    "HEALTHCHECK --interval=-5s CMD a": (13, "shorter than a millisecond", None),
    "HEALTHCHECK --retries=x CMD a": (13, "not a number", None),
    "HEALTHCHECK --retries=-1 CMD a": (13, "not a number", None),
    "ONBUILD": (1, "holds no instruction", None),
    "ONBUILD ONBUILD RUN a": (1, "cannot hold ONBUILD", None),
    "ONBUILD FROM a": (9, "cannot hold FROM", None),
    "onbuild maintainer a": (9, "cannot hold MAINTAINER", None),
    "ONBUILD --x RUN a": (9, "no flag --x", None),
    "SHELL /bin/sh -c": (1, "array of strings", None),
    "SHELL []": (1, "array of strings", None),
    "USER": (1, "USER has no value", None),
    "WORKDIR": (1, "WORKDIR has no value", None),
    "STOPSIGNAL": (1, "STOPSIGNAL has no value", None),
    "MAINTAINER": (1, "MAINTAINER has no value", None),
    "EXPOSE": (1, "EXPOSE has no value", None),
    "VOLUME": (1, "VOLUME has no value", None),
    'VOLUME [" "]': (1, "VOLUME has an empty value", None),
    "CMD --x a": (5, "CMD has no flag --x", None),
}


@each_row("text", REFUSED)
def test_instructions_mistakes_are_refused(text: str) -> None:
    column, message, hint = REFUSED[text]
    with pytest.raises(InvalidRecipe) as caught:
        read_one(text)
    assert str(caught.value).startswith(f"Dockerfile:2:{column}: ")
    assert message in str(caught.value)
    assert hint is None or caught.value.hint == hint


def test_instructions_from_and_what_needs_it() -> None:
    with pytest.raises(InvalidRecipe) as caught:
        read_one("RUN --mount=type=tmpfs,target=/a \\\n    --netwrok=none \\\n    b")
    assert_begins(str(caught.value), "build/dockerfile-run-no-flag-netwrok")
    with pytest.raises(InvalidRecipe, match="no FROM"):
        read_content("ARG a\n")
    content = read_content("ARG A=1\nARG B\nFROM --platform=$P a:$A AS One.2-x_y\nRUN b\nfrom c\n")
    assert [item.arguments for item in content.arguments] == [(("A", "1"),), (("B", None),)]
    first, second = (stage.beginning for stage in content.stages)
    assert (first.image, first.name, first.platform) == ("a:$A", "one.2-x_y", "$P")
    assert (second.image, second.name) == ("c", "")


@each_row("text", ["RUN a", "ENV a=b\nFROM c", "ONBUILD RUN a\nFROM b"])
def test_instructions_before_from_are_refused(text: str) -> None:
    with pytest.raises(InvalidRecipe, match=r"Dockerfile:1:1: .* before the first FROM"):
        read_content(text)


def test_instructions_run_copy_pairs_and_arguments() -> None:
    run = read_one(
        "RUN --mount=type=cache,target=/a --mount=type=tmpfs,target=/b --network=host --device=x --security=insecure c"
    )
    assert run.mounts == ("type=cache,target=/a", "type=tmpfs,target=/b")
    assert (run.network, run.security, run.words) == ("host", "insecure", ("c",))
    plain = read_one("RUN")
    assert (plain.network, plain.words) == ("default", ())
    copy = read_one("COPY --from=x --chown=1:2 --chmod=755 --link --parents=false --exclude=*.a --exclude=b c d /e/")
    assert (copy.sources, copy.destination, copy.origin) == (("c", "d"), "/e/", "x")
    assert (copy.flags.text("chown"), copy.flags.all("exclude")) == ("1:2", ("*.a", "b"))
    assert (copy.flags.switch("link"), copy.flags.switch("parents"), copy.flags.switch("unpack")) == (True, False, None)
    copy = read_one("COPY <<A file <<'B' /c/\n1\nA\n2\nB")
    assert copy.sources == ("file",)
    assert [(heredoc.name, heredoc.content, heredoc.expands) for heredoc in copy.inline] == [
        ("A", "1\n", True),
        ("B", "2\n", False),
    ]
    new, old = read_one('LABEL a=b "c d"=e'), read_one("ENV a b c")
    assert isinstance(old, PairsInstruction)
    assert (new.pairs, new.is_legacy) == ((("a", "b"), ('"c d"', "e")), False)
    assert (old.pairs, old.is_legacy) == ((("a", "b c"),), True)
    instruction = read_one("ARG --ignored a b= c=d=e")
    assert instruction.arguments == (("a", None), ("b", ""), ("c", "d=e"))


@with_rows(
    ("none", {"Test": ["NONE"]}),
    ("CMD a b", {"Test": ["CMD-SHELL", "a b"]}),
    ('cmd ["a", "b"]', {"Test": ["CMD", "a", "b"]}),
    (
        "--interval=1m30s --timeout=1.5s --start-period=500ms --start-interval=1h --retries=3 CMD a",
        {
            **{"Test": ["CMD-SHELL", "a"], "Interval": 90_000_000_000, "Timeout": 1_500_000_000},
            "StartPeriod": 500_000_000,
            "StartInterval": 3_600_000_000_000,
            "Retries": 3,
        },
    ),
    ("--interval=0 --retries=0 --timeout=0s CMD a", {"Test": ["CMD-SHELL", "a"]}),
)
def test_instructions_health(text: str, check: dict[str, object]) -> None:
    instruction = read_one(f"HEALTHCHECK {text}")
    assert instruction.check == check


@with_rows(
    *(("ONBUILD RUN a", "RUN a"), ("  onbuild   copy a b", "copy a b"), ("ONBUILD RUN a \\\n  b", "RUN a   b")),
    ("ONBUILD RUN <<EOF\na\nEOF", "RUN <<EOF\na\nEOF"),
)
def test_instructions_onbuild_keeps_the_text(text: str, expression: str) -> None:
    instruction = read_one(text)
    assert instruction.expression == expression


@with_rows(
    *(("CMD a b", ("a b",)), ('CMD ["a", "b"]', ("a", "b")), ("CMD []", ()), ("EXPOSE 90 80", ("80", "90"))),
    *(('VOLUME [" /a ", "/b"]', ("/a", "/b")), ("USER a b", ("a b",)), ("STOPSIGNAL --x 9", ("9",))),
    ('SHELL ["/bin/bash", "-c"]', ("/bin/bash", "-c")),
)
def test_instructions_words(text: str, words: tuple[str, ...]) -> None:
    instruction = read_one(text)
    assert instruction.words == words
