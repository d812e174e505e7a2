# SPDX-License-Identifier: BSD-3-Clause
"""Lines, words, flags and heredocs of Dockerfiles become the nodes that BuildKit's parser makes of them."""

from __future__ import annotations

import pytest

from kedge.builds.dockerfile.syntax import Heredoc, dump_syntax, parse_heredoc, read_syntax
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row

DUMPS = {
    "from a": '(from "a")',
    "FROM a AS b": '(from "a" "AS" "b")',
    "FROM\ta\t as  b": '(from "a" "as" "b")',
    "FROM --platform=$P a": '(from ["--platform=$P"] "a")',
    "RUN echo  a   b": '(run "echo  a   b")',
    'RUN ["a", "b c"]': '(run "a" "b c")',
    **{'RUN [ "a" ] ': '(run "a")', "RUN []": "(run)", "RUN": "(run)", "RUN ['a']": "(run \"['a']\")"},
    'RUN ["a"': '(run "[\\"a\\"")',
    'RUN ["a"] && b': '(run "[\\"a\\"] && b")',
    "RUN [ -f x ]": '(run "[ -f x ]")',
    "RUN [[ -f x ]]": '(run "[[ -f x ]]")',
    "RUN [NaN]": '(run "[NaN]")',
    'RUN ["\\u0041\\ud800"]': '(run "A\ufffd")',
    "RUN --mount=type=tmpfs --network=none a --b": '(run ["--mount=type=tmpfs" "--network=none"] "a --b")',
    "RUN --mount=type=cache,id='a b' c": '(run ["--mount=type=cache,id=a b"] "c")',
    'RUN --a="x \\" y" b': '(run ["--a=x \\" y"] "b")',
    "RUN -- --a": '(run "--a")',
    "RUN --a -- --b c": '(run ["--a"] "--b c")',
    "RUN --a": '(run ["--a"])',
    "RUN - a": '(run "- a")',
    "COPY --from=x a b /c/": '(copy ["--from=x"] "a" "b" "/c/")',
    'COPY ["a b", "/c"]': '(copy "a b" "/c")',
    "ADD a\tb": '(add "a" "b")',
    "ENV a b c": '(env "a" "b c" "")',
    "ENV a=b c=d": '(env "a" "b" "=" "c" "d" "=")',
    "ENV a=\"b c\" d='e f' g=h\\ i": '(env "a" "\\"b c\\"" "=" "d" "\'e f\'" "=" "g" "h\\\\ i" "=")',
    **{"ENV a=b=c": '(env "a" "b=c" "=")', "ENV a=": '(env "a" "" "=")', "ENV a b=c": '(env "a" "b=c" "")'},
    **{"ENV a  =b": '(env "a" "=b" "")', 'ENV a="b': '(env "a" "\\"b" "=")', "ENV a=b\\": '(env "a" "b" "=")'},
    "LABEL a.b=c 'd e'=f": '(label "a.b" "c" "=" "\'d e\'" "f" "=")',
    "LABEL": "(label)",
    "ARG a b=c d=": '(arg "a" "b=c" "d=")',
    "EXPOSE 80  81/udp": '(expose "80" "81/udp")',
    **{"VOLUME /a /b": '(volume "/a" "/b")', 'VOLUME ["/a b"]': '(volume "/a b")', "USER a b": '(user "a b")'},
    **{"WORKDIR /a b": '(workdir "/a b")', "STOPSIGNAL 9": '(stopsignal "9")'},
    "MAINTAINER a <b>": '(maintainer "a <b>")',
    'SHELL ["a", "-c"]': '(shell "a" "-c")',
    "CMD a": '(cmd "a")',
    "ENTRYPOINT": "(entrypoint)",
    "HEALTHCHECK NONE": '(healthcheck "NONE")',
    "HEALTHCHECK --interval=5s CMD  a  b": '(healthcheck ["--interval=5s"] "CMD" "a  b")',
    'HEALTHCHECK CMD ["a"]': '(healthcheck "CMD" "a")',
    "ONBUILD RUN a": '(onbuild (run "a"))',
    "ONBUILD COPY --from=a b c": '(onbuild (copy ["--from=a"] "b" "c"))',
    "ONBUILD": "(onbuild)",
    "NOTHING a b": '(nothing "")',
    "RUN \xe9\x01\x7f\u200b\U0001f600": '(run "\xe9\\x01\\x7f\\u200b\U0001f600")',
    "RUN a\udcffb": '(run "a\\xffb")',
    "ENV a=\udcff": '(env "a" "\ufffd" "=")',
}


@each_row("text", DUMPS)
def test_syntax_instructions_become_words(text: str) -> None:
    assert dump_syntax(read_syntax(text)) == DUMPS[text]


FILES = {
    "a continued line": ("RUN a \\\n  b\nCMD c", '(run "a   b")\n(cmd "c")'),
    "blanks behind the backslash": ("RUN a \\ \t \n b", '(run "a  b")'),
    "two backslashes": ("RUN a \\\\\nCMD b", '(run "a \\\\\\\\")\n(cmd "b")'),
    "a comment inside": ("RUN a \\\n# no\n   # no\n b", '(run "a  b")'),
    "an empty line inside": ("RUN a \\\n\n \t\n b", '(run "a  b")'),
    "a backslash alone": ("\\\nRUN a", '(run "a")'),
    "a backslash at the end": ("RUN a \\", '(run "a")'),
    "a comment at the end of a line": ("RUN a # b", '(run "a # b")'),
    "blanks before": ("  \tRUN a\n \n\x0c\nCMD b", '(run "a")\n(cmd "b")'),
    "windows line ends": ("FROM a\r\nRUN b \\\r\n  c\r\n", '(from "a")\n(run "b   c")'),
    "a byte order mark": ("\ufeffFROM a", '(from "a")'),
    "another escape character": ("# escape=`\nRUN a `\n \\b\nENV c=d` e", '(run "a  \\\\b")\n(env "c" "d` e" "=")'),
    "escape with capitals": ("#  EsCape = `  \nRUN a `\nb", '(run "a b")'),
    "escape after syntax": ("# syntax=x\n# escape=`\nRUN a `\nb", '(run "a b")'),
    "escape after a comment": ("# hello\n# escape=`\nRUN a `\nCMD b", '(run "a `")\n(cmd "b")'),
    "escape after an unknown directive": ("# other=x\n# escape=`\nRUN a `\nCMD b", '(run "a `")\n(cmd "b")'),
    "escape after an empty line": ("\n# escape=`\nRUN a `\nCMD b", '(run "a `")\n(cmd "b")'),
    "escape after an instruction": ("FROM x\n# escape=`\nRUN a `\nCMD b", '(from "x")\n(run "a `")\n(cmd "b")'),
    "a control character is no line end": ("RUN a\x0bb\x85c\u2028d", '(run "a\\vb\\u0085c\\u2028d")'),
}


@each_row("name", FILES)
def test_syntax_lines_are_joined(name: str) -> None:
    text, dump = FILES[name]
    assert dump_syntax(read_syntax(text)) == dump


REFUSED = {
    "": (1, "no instruction"),
    "\n# only\n": (2, "no instruction"),
    "FROM a\nENV b": (2, "'b' has no value"),
    "FROM a\nENV b=c d": (2, "'d' has no '='"),
    'FROM a\nCMD ["b", 1]': (2, "strings only"),
    'FROM a\nCMD [ ["b"] ]': (2, "strings only"),
    "# escape=x\nFROM a": (1, "not an escape character"),
    "# escape=`\n# escape=`\nFROM a": (2, "second 'escape'"),
    "# check=skip=all\n# CHECK=error=true\n": (2, "second 'check'"),
    "FROM a\nRUN <<EOF\nb": (2, "has no end"),
    "FROM a\nRUN <<A <<B\nA\n": (2, "'B' has no end"),
    "FROM a\nRUN " + "b" * 65536: (2, "at most 65535"),
    "FROM a\n" + "CMD b\n" * 20_000: (20_001, "at most 20,000"),
    "FROM a\n" + "ONBUILD " * 40 + "RUN b": (2, "nested too deeply"),
}


@each_row("text", REFUSED, ids=[text[:30] for text in REFUSED])
def test_syntax_mistakes_have_a_place(text: str) -> None:
    line, message = REFUSED[text]
    with pytest.raises(InvalidRecipe) as caught:
        read_syntax(text, "my.Dockerfile")
    assert str(caught.value).startswith(f"my.Dockerfile:{line}:")
    assert message in str(caught.value)


def test_syntax_long_lines_and_tabs_of_heredocs() -> None:
    assert len(read_syntax("RUN " + "b" * 65531 + "\n").nodes[0].words[0]) == 65531
    with pytest.raises(InvalidRecipe, match="at most"):
        read_syntax("RUN " + "b" * 65532 + "\n")
    assert Heredoc("x", "\t\ta\n\t b\nc\td\n", strips_tabs=True).stripped == "a\n b\nc\td\n"
    assert Heredoc("x", "\ta\n").stripped == "\ta\n"


HEREDOCS = {
    "RUN <<EOF\na\n b\nEOF": [Heredoc("EOF", "a\n b\n")],
    "RUN <<-EOF\n\ta\n\tEOF": [Heredoc("EOF", "\ta\n", strips_tabs=True)],
    "RUN <<'EOF'\n$a\nEOF": [Heredoc("EOF", "$a\n", expands=False)],
    'RUN <<E"O"F\n$a\nEOF': [Heredoc("EOF", "$a\n", expands=False)],
    "RUN << EOF\nEOF": [Heredoc("EOF", "")],
    "RUN 3<<EOF\nEOF": [Heredoc("EOF", "", descriptor=3)],
    "RUN <<'a b'\na b": [Heredoc("a b", "", expands=False)],
    "RUN <<$A\n$A": [Heredoc("$A", "")],
    "RUN <<a\\'b\na'b": [Heredoc("a'b", "")],
    "RUN cat <<A >x && cat <<B\n1\nA\n2\nB\n": [Heredoc("A", "1\n"), Heredoc("B", "2\n")],
    "COPY <<a.txt <<b.txt /c/\nb.txt\na.txt\nb.txt": [Heredoc("a.txt", "b.txt\n"), Heredoc("b.txt", "")],
    "ADD <<EOF /a\r\nb\r\nEOF\r\n": [Heredoc("EOF", "b\r\n")],
    "ONBUILD RUN <<EOF\na\nEOF": [Heredoc("EOF", "a\n")],
    "RUN --mount=type=tmpfs,target=/x <<EOF\nEOF": [Heredoc("EOF", "")],
    "RUN <<EOF\n# a\nb \\\nEOF": [Heredoc("EOF", "# a\nb \\\n")],
    **{"RUN '<<EOF'": [], 'RUN "<<EOF"': [], "RUN a<<EOF": [], "RUN <<<EOF": [], "RUN << ": [], "RUN it's <<EOF": []},
    **{'RUN ["<<EOF"]': [], "USER <<EOF": [], "ENV a=<<EOF": [], "RUN $((1<<4))": []},
}


@each_row("text", HEREDOCS)
def test_syntax_heredocs_are_taken(text: str) -> None:
    node = read_syntax(text).nodes[0]
    assert list(node.heredocs) == HEREDOCS[text]


@each_row("word", ["", "EOF", "<<", "<<-", "<EOF", "<<<EOF", "<<EOF sh", "<<''", "<<'a", '<<a"', "x<<EOF"])
def test_syntax_other_words_are_no_heredocs(word: str) -> None:
    assert parse_heredoc(word) is None


def test_syntax_nodes_know_their_lines_and_comments() -> None:
    text = "# a\n\nFROM a\n  RUN b \\\n   # c\n   d\nCOPY <<E /x\n1\n2\nE\nCMD e"
    nodes = read_syntax(text, "D").nodes
    assert [(node.line.start, node.end, node.place.column) for node in nodes] == [
        *((3, 3, 1), (4, 6, 3), (7, 10, 1), (11, 11, 1))
    ]
    assert (str(nodes[1].find("d")), str(nodes[1].find("b"))) == ("D:6:4", "D:4:7")
    assert str(nodes[1].find("not there")) == "D:4:3"
    text = "# one\n# two\nFROM a\n# gone\n#\n# kept\nRUN b \\\n\n c\n"
    nodes = read_syntax(text).nodes
    assert [node.line.comments for node in nodes] == [("one", "two"), ("kept",)]
    assert [node.line.has_gap for node in nodes] == [False, True]


def test_syntax_is_printed_as_json() -> None:
    syntax = read_syntax("# syntax=docker/dockerfile:1\nFROM a\nONBUILD COPY --link <<E /x\n1\nE\n")
    shown = syntax.as_dict()
    assert shown["directives"] == {"syntax": "docker/dockerfile:1"}
    assert shown["instructions"][0] | {"inner": 0} == {
        **{"name": "FROM", "flags": [], "words": ["a"], "json": False, "text": "FROM a", "start": 2, "end": 2},
        **{"column": 1, "heredocs": [], "inner": 0},
    }
    assert shown["instructions"][1]["inner"]["flags"] == ["--link"]
    assert shown["instructions"][1]["heredocs"][0]["content"] == "1\n"
