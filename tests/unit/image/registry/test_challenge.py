# SPDX-License-Identifier: BSD-3-Clause
"""WWW-Authenticate headers as registries send them, and as nobody should."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.image.registry.auth import Challenge, append_query, parse_challenges
from tests.builders.rows import each_row

HUB = {"realm": "https://auth.docker.io/token", "service": "registry.docker.io", "scope": "repository:a/b:pull"}
NVCR = "https://nvcr.io/proxy_auth?scope=repository:nvidia/tensorflow:pull,push"

CASES: list[tuple[str, list[str], list[tuple[str, dict[str, str]]]]] = [
    ("nvcr", [f'Bearer realm="{NVCR}"'], [("bearer", {"realm": NVCR})]),
    ("docker-hub", ["Bearer " + ",".join(f'{name}="{value}"' for name, value in HUB.items())], [("bearer", HUB)]),
    ("spaces", ['Bearer  realm = "r" , service="s"'], [("bearer", {"realm": "r", "service": "s"})]),
    (
        "two-in-one-header",
        ['Basic realm="a, b", Bearer realm="https://x/t",scope="p:q:r"'],
        [("basic", {"realm": "a, b"}), ("bearer", {"realm": "https://x/t", "scope": "p:q:r"})],
    ),
    ("two-headers", ['Basic realm="a"', 'Bearer realm="b"'], [("basic", {"realm": "a"}), ("bearer", {"realm": "b"})]),
    (
        "unquoted",
        ["Bearer realm=https://x/t?a=b,service=s"],
        [("bearer", {"realm": "https://x/t?a=b", "service": "s"})],
    ),
    ("escaped", [r'Basic realm="say \"hi\", \\you"'], [("basic", {"realm": r'say "hi", \you'})]),
    ("case", ['BEARER Realm="x",SERVICE="Y"'], [("bearer", {"realm": "x", "service": "Y"})]),
    ("bare-scheme", ["Negotiate", 'Basic realm="x"'], [("negotiate", {}), ("basic", {"realm": "x"})]),
    ("bare-then-other", ['Negotiate, Basic realm="x"'], [("negotiate", {}), ("basic", {"realm": "x"})]),
    ("token68", ['NTLM TlRMTVNTUAAB==, Basic realm="x"'], [("ntlm", {}), ("basic", {"realm": "x"})]),
    ("first-wins", ['Bearer realm="a",realm="b"'], [("bearer", {"realm": "a"})]),
    ("unterminated", ['Bearer realm="abc'], [("bearer", {"realm": "abc"})]),
    ("empty", ["", ",,, "], []),
    ("no-scheme", ['realm="x"'], []),
    ("error-parameter", ['Bearer realm="r",error="bad_token"'], [("bearer", {"realm": "r", "error": "bad_token"})]),
]


@each_row(("headers", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_challenge_has_schemes_and_parameters(headers: list[str], expected: list[tuple[str, dict[str, str]]]) -> None:
    found = [(each.scheme, dict(each.parameters)) for each in parse_challenges(headers)]
    assert found == expected


@settings(deadline=None)
@given(st.lists(st.text(max_size=300), max_size=4))
def test_challenge_parse_survives_any_text(headers: list[str]) -> None:
    assert all(isinstance(each, Challenge) for each in parse_challenges(headers))


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=100))
def test_challenge_parse_keeps_any_quoted_string(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    (challenge,) = parse_challenges([f'Bearer realm="{escaped}"'])
    assert challenge.realm == value


def test_challenge_parse_is_bounded() -> None:
    assert len(parse_challenges(["a " * 1_000_000])) <= 16384


@each_row(
    ("url", "pairs", "expected"),
    [
        ("https://x/t", [("scope", "repository:a/b:pull")], "https://x/t?scope=repository:a/b:pull"),
        ("https://x/t?a=1", [("scope", "s"), ("service", "y z")], "https://x/t?a=1&scope=s&service=y+z"),
        (NVCR, [("scope", "repository:nvidia/tensorflow:pull,push")], NVCR),
        (NVCR, [("scope", "x")], NVCR + "&scope=x"),
        ("https://x/t?", [("a", "b")], "https://x/t?a=b"),
        ("https://x/t", [], "https://x/t"),
        ("https://x/up?_state=Ab%3D", [("digest", "sha256:00")], "https://x/up?_state=Ab%3D&digest=sha256:00"),
    ],
)
def test_append_query_keeps_what_is_there(url: str, pairs: list[tuple[str, str]], expected: str) -> None:
    assert append_query(url, pairs) == expected
