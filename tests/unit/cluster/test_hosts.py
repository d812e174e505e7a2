# SPDX-License-Identifier: BSD-3-Clause
"""Lists of hosts are read as schedulers mean them; anything else is one error, soon and in little memory."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.cluster.hosts import MOST_HOSTS, parse_counts, parse_host_pairs, parse_hosts, parse_node_file
from kedge.cluster.hosts import parse_pe_hostfile as parse_pe
from kedge.errors import LaunchRefused
from tests.builders.host_lists import make_host_list
from tests.builders.rows import each_row, with_rows


def test_hosts_thousand_lists_at_random() -> None:
    random = Random(14)
    for _ in range(1000):
        text, names = make_host_list(random)
        assert parse_hosts(text) == tuple(names), text


@each_row(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[1-2,004-006],gpu-[01-02]-x[1-3]", "n1 n2 n004 n005 n006 " + " ".join(
            f"gpu-0{rack}-x{node}" for rack in (1, 2) for node in (1, 2, 3))),
        *(("n[9-11],n[09-11]", "n9 n10 n11 n09 n10 n11"), ("[1-3]", "1 2 3"), ("n[3,1]", "n3 n1")),
        *(("a[1-2]b", "a1b a2b"), ("n1.cluster.example,n2", "n1.cluster.example n2"), (" n1,,n2,\n", "n1 n2")),
    ],
)  # fmt: skip
def test_hosts_read(text: str, names: str) -> None:
    assert parse_hosts(text) == tuple(names.split())


@with_rows(
    *("", "   ", ",", "n[1-2", "n1-2]", "n[[1]]", "n[]", "n[1,,2]", "n[a]", "n[2-1]", "n[1-3:2]", "n[-1]", "n1 n2"),
    *("n[1-999999999]", "n[1-999999999999999999999999]", "n[1-100000],m[1-2]", "n[0-999][0-999]", "n[1-60000]" * 9),
    *("-oProxyCommand=x", "$(reboot)", "n1;reboot", "n\x001", "n1\nn2", "näh", "n/1", "a" * 300, "n" * (2 << 20)),
    *("[" * 9999, "n[" + "1," * 110_000 + "1]", "n[1-2]" * 200),
)
def test_hosts_refuses(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LaunchRefused) as caught:
            parse_hosts(text, "SLURM_JOB_NODELIST")
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()
    assert "SLURM_JOB_NODELIST" in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.hint
    assert all(len(value) < 200 and value.isprintable() for value in caught.value.context.values())


@given(st.text())
def test_hosts_any_text_is_names_or_one_error(text: str) -> None:
    for parse in (parse_hosts, parse_counts, parse_pe, parse_node_file, parse_host_pairs):
        try:
            found = parse(text)
        except LaunchRefused:
            continue
        assert 0 < len(found) <= MOST_HOSTS


@each_row(("text", "counts"), [("2(x2),1", (2, 2, 1)), ("4", (4,)), ("3,1(x2)", (3, 1, 1)), ("8(x3)\n", (8, 8, 8))])
def test_counts(text: str, counts: tuple[int, ...]) -> None:
    assert parse_counts(text) == counts


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 40)), min_size=1, max_size=20))
def test_counts_both_ways(pairs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in pairs)
    assert parse_counts(text) == tuple(count for count, times in pairs for _ in range(times))


@each_row("text", ["", "2(x", "2(x999999999)", "2(x99999)," * 3, "a", "2x3", "-1", "1,,2", "²"])
def test_counts_refuses(text: str) -> None:
    with pytest.raises(LaunchRefused):
        parse_counts(text)


PE_FILE = """\
# host slots queue processors
ge02.site.example 3 all.q@ge02.site.example UNDEFINED

ge01 2 all.q@ge01 UNDEFINED
ge02 1 long.q@ge02 0,1   # another queue of the same host
ge03 0 all.q@ge03 UNDEFINED
"""


def test_host_files_count_in_any_order_and_not_too_many() -> None:
    assert parse_pe(PE_FILE) == (("ge02.site.example", 4), ("ge01", 2))
    assert parse_pe(PE_FILE.replace("\n", "\r\n")) == (("ge02.site.example", 4), ("ge01", 2))
    text = "b.site\nb.site\na.site\n\nb.site\na\n# comment\n"
    assert parse_node_file(text) == (("b.site", 3), ("a.site", 2))
    assert parse_node_file("10.0.0.2\n10.0.0.3\n10.0.0.2\n") == (("10.0.0.2", 2), ("10.0.0.3", 1))
    assert parse_host_pairs("batch1 1 h1 4 h2 4") == (("batch1", 1), ("h1", 4), ("h2", 4))
    for text in ("", "h1", "h1 4 h2", "4 h1", "h1 4x"):
        with pytest.raises(LaunchRefused):
            parse_host_pairs(text)
    assert parse_node_file("n1\n" * (MOST_HOSTS + 1)) == (("n1", MOST_HOSTS + 1),)
    with pytest.raises(LaunchRefused, match="more than"):
        parse_node_file("\n".join(f"n{number}" for number in range(MOST_HOSTS + 1)))


@each_row("text", ["", "\n#\n", "ge01\n", "ge01 many all.q\n", "ge01 -2 q\n", "ge01 0 q\n", "-x 2 q\n"])
def test_pe_hostfile_refuses(text: str) -> None:
    with pytest.raises(LaunchRefused):
        parse_pe(text)


@settings(max_examples=40)
@given(
    st.dictionaries(st.text("abc12", min_size=1, max_size=5).map("n{}".format), st.integers(1, 9), min_size=1),
    st.randoms(),
)
def test_node_file_shuffled(counts: dict[str, int], random: Random) -> None:
    lines = [name for name, count in counts.items() for _ in range(count)]
    random.shuffle(lines)
    found = parse_node_file("\n".join(f"{name}.site" if random.random() < 0.5 else name for name in lines))
    assert {name.partition(".")[0]: count for name, count in found} == counts
    assert [name.partition(".")[0] for name, _ in found] == list(dict.fromkeys(lines))
