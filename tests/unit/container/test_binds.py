# SPDX-License-Identifier: BSD-3-Clause
"""The grammars of --bind and --mount: one row per way to write them, one per way to get them wrong, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.container.flags import BIND_GRAMMAR, MOUNT_GRAMMAR, collect_binds, parse_bind, parse_mount
from kedge.container.options import RunOptions
from kedge.errors import KedgeError, UsageError
from tests.builders.rows import with_rows


def show(bind) -> str:
    """`SOURCE DESTINATION OPTIONS`, short enough for a table."""
    words = [bind.source, bind.destination, *(["ro"] if bind.readonly else [])]
    words += [f"image-src={bind.image_source}"] if bind.image_source else []
    words += [f"id={bind.partition}"] if bind.partition else []
    return " ".join([*words, *(["outermost"] if bind.outermost else [])])


def collect(*binds: str, mount: tuple[str, ...] = (), **environ: str) -> list[str]:
    options = RunOptions(bind=list(binds), mount=list(mount))
    return [show(bind) for bind in collect_binds(options, environ, "/here")]


@with_rows(
    *(("/a", ["/a /a"]), ("/a/", ["/a /a"]), ("/a:/b", ["/a /b"]), ("/a:/b:ro", ["/a /b ro"])),
    *(("/a:/b:rw", ["/a /b"]), ("/a:/b:ro,rw", ["/a /b ro"]), ("/a:/b:rw,ro", ["/a /b ro"])),
    *(("/a,/b", ["/a /a", "/b /b"]), ("/a:/x,/b:/y", ["/a /x", "/b /y"])),
    *(("/a:/x:ro,/b:/y", ["/a /x ro", "/b /y"]), ("/a:/x,/b:/y:ro", ["/a /x", "/b /y ro"])),
    ("/a:/x:rw,/b:/y:ro,rw,/c", ["/a /x", "/b /y ro", "/c /c"]),
    *(("/a,,/b", ["/a /a", "/b /b"]), (",/a,", ["/a /a"]), ("", []), (" /a:/x , /b ", ["/a /x", "/b /b"])),
    *(("a:/x", ["/here/a /x"]), ("./a:/x", ["/here/a /x"]), (".:/x", ["/here /x"]), ("../a:/x", ["/here/../a /x"])),
    *(("data", ["/here/data /here/data"]), (r"/c\,d:/x", ["/c,d /x"]), (r"/c\,d", ["/c,d /c,d"])),
    *((r"/c\,d,/e", ["/c,d /c,d", "/e /e"]), (r"/a\:b\:c:/x", ["/a:b:c /x"]), (r"/e\:f", ["/e:f /e:f"])),
    *((r"/a:/m\:nt:ro", ["/a /m:nt ro"]), (r"/a:/m\,nt", ["/a /m,nt"]), (r"/a\b:/x", [r"/a\b /x"])),
    ("/a^b:/x", ["/a^b /x"]),
    ("/i.sif:/x:image-src=/data", ["/i.sif /x image-src=/data"]),
    ("/i.sif:/x:image-src=", ["/i.sif /x image-src=/"]),
    ("/i.sif:/x:id=2", ["/i.sif /x image-src=/ id=2"]),
    ("/i.sif:/x:ro,id=2,image-src=/d,/b", ["/i.sif /x ro image-src=/d id=2", "/b /b"]),
    *(("/a://x//y/./z/", ["/a /x/y/z"]), ("/a:/x/../y", ["/a /y"]), ("/a/../b:/x", ["/a/../b /x"])),
)
def test_binds_grammar(spec: str, expected: list[str]) -> None:
    assert collect(spec) == expected


@with_rows(
    ("/a:my_scratch", "the destination 'my_scratch' is not an absolute path; write /a:/my_scratch"),
    ("/a:", "the destination is empty"),
    ("/a::ro", "the destination is empty"),
    (":/x", "the source is empty; check whether a shell variable is unset"),
    ("/a:/x:", "an option is missing after the last ':'"),
    ("/a:/x:rx", "unknown option 'rx'"),
    ("/a:/x:RO", "unknown option 'RO'"),
    ("/a:/x:ro:rw", "'/a:/x:ro:rw' has more than three parts"),
    ("/a:/x::ro", "'/a:/x::ro' has more than three parts"),
    ("/a:/x,ro", "the option 'ro' needs a destination before it: write /a:/x:ro"),
    ("/a,ro", "the option 'ro' needs a destination before it: write /a:/a:ro"),
    ("/a:/x:ro,rx", "'rx' is neither an option nor a path; write ./rx for a directory"),
    ("/i:/x:id=two", "'two' is not the number of a SIF object"),
    ("/i:/x:archive-src=/", "kedge cannot bind an archive"),
    ("/a:/", "kedge cannot bind over the root"),
    ("/a:/x/../..", "kedge cannot bind over the root"),
    ("~/data:/data", "'~/data' was not expanded; write $HOME/data"),
)
def test_binds_mistakes_are_explained(spec: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        collect(spec)
    assert caught.value.message.startswith(f"--bind '{spec}': {problem}")
    assert caught.value.hint == BIND_GRAMMAR


@with_rows(
    ("type=bind,source=/a,destination=/x", ["/a /x"]),
    ("type=bind,src=/a,dst=/x,ro", ["/a /x ro"]),
    ("src=/a,target=/x,readonly", ["/a /x ro"]),
    *(("src=/a,dst=/x,ro=true", ["/a /x ro"]), ("src=/a,dst=/x,ro=false", ["/a /x"])),
    *(("src=/a,dst=/x,rw", ["/a /x"]), ("src=a,dst=/x", ["/here/a /x"]), ("src=/a,src=/b,dst=/x", ["/b /x"])),
    *(("src=/e:f,dst=/x", ["/e:f /x"]), ('"src=/c,d",dst=/x', ["/c,d /x"]), ('"src=/a""q",dst=/x', ['/a"q /x'])),
    ('dst=/x,"src=/c,d"', ["/c,d /x"]),
    ("src=/a,dst=/x\nsrc=/b,dst=/y", ["/a /x", "/b /y"]),
    ('src=/a,dst=/x\r\n\n"src=/b",dst=/y\r\n', ["/a /x", "/b /y"]),
    ("", []),
    ("src=/i.sif,dst=/x,image-src=/d,id=3", ["/i.sif /x image-src=/d id=3"]),
    ("src=/a,dst=/x,nonested", ["/a /x outermost"]),
)
def test_binds_mount_grammar(spec: str, expected: list[str]) -> None:
    assert collect(mount=(spec,)) == expected


@with_rows(
    ("type=bind,src=/a", "the destination is missing"),
    ("type=bind,dst=/x", "the source is missing"),
    ("src=,dst=/x", "the source is missing"),
    ("type=tmpfs,dst=/x", "the type 'tmpfs' is not supported, only 'bind'; --scratch makes an empty directory"),
    ("type=volume,src=/a,dst=/x", "the type 'volume' is not supported"),
    *(("src=/a,dst=/x,foo=bar", "unknown key 'foo'"), ("src=/a,dst=/x,RO", "unknown key 'RO'")),
    *(("type=bind, src=/a,dst=/x", "unknown key ' src'"), ("src=/a,dst=/x,", "unknown key ''")),
    ("src=/a,dst=x", "the destination 'x' is not an absolute path; write /x"),
    ("src=/a,dst=/x,bind-propagation=rshared", "kedge cannot set the propagation"),
    ("src=/a,dst=/x,image-src", "'image-src' is empty"),
    ("src=/a,dst=/x,ro=maybe", "'maybe' is not a valid value of 'ro'"),
    ('src="/c,d",dst=/x', "quote the whole field"),
    ('"src=/a,dst=/x', "a quotation mark is not closed"),
    ('"src=/a"b,dst=/x', "a quotation mark closes before the end of its field"),
    ("src=/a,dst=/", "kedge cannot bind over the root"),
)
def test_binds_mount_mistakes_are_explained(spec: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        collect(mount=(spec,))
    assert caught.value.message.startswith(f"--mount '{spec}': {problem}")
    assert caught.value.hint == MOUNT_GRAMMAR


def test_binds_variables_follow_flags_in_order_of_prefixes() -> None:
    environ = {
        "APPTAINER_BIND": "/b",
        "SINGULARITY_BINDPATH": " /c:/d ",
        "APPTAINER_MOUNT": "src=/e,dst=/f\nsrc=/g,dst=/h",
    }
    assert collect("/a", mount=("src=/m,dst=/n",), **environ) == [
        *("/a /a", "/b /b", "/c /d", "/m /n", "/e /f", "/g /h")
    ]
    assert collect(SINGULARITY_BIND="/s") == ["/s /s"]
    assert collect(SINGULARITY_BIND="/s", APPTAINER_BIND="/a") == ["/a /a"]
    assert collect(SINGULARITY_BIND="/s", APPTAINER_BIND="/a", KEDGE_BIND="/k") == ["/k /k"]
    assert collect(APPTAINER_BIND="  ", SINGULARITY_BIND="/s") == ["/s /s"]
    options = RunOptions(bind=["/a"], mount=["src=/m,dst=/n"])
    found = collect_binds(options, {"APPTAINER_BIND": "/b"}, "/")
    assert [bind.origin for bind in found] == ["--bind", "APPTAINER_BIND", "--mount"]
    with pytest.raises(UsageError, match=r"^SINGULARITY_BIND '/a:b': the destination 'b'"):
        collect(SINGULARITY_BIND="/a:b")


def test_binds_first_to_a_place_counts_and_the_other_is_said() -> None:
    options = RunOptions(bind=["/a:/x", "/b:/x/", "/a:/x"])
    found = collect_binds(options, {"APPTAINER_BIND": "/c:/x:ro"}, "/")
    assert [show(bind) for bind in found] == ["/a /x"]
    assert options.warnings == [
        "two binds have the destination /x: kedge uses /a (--bind) and ignores /b (--bind)",
        "two binds have the destination /x: kedge uses /a (--bind) and ignores /c (APPTAINER_BIND)",
    ]


def test_binds_libraries_and_a_folder_called_tilde(tmp_path) -> None:
    options = RunOptions(contain_libs=["/usr/lib/liba.so.1, /opt/libb.so"])
    assert [show(bind) for bind in collect_binds(options, {}, "/")] == [
        "/usr/lib/liba.so.1 /.singularity.d/libs/liba.so.1 ro",
        "/opt/libb.so /.singularity.d/libs/libb.so ro",
    ]
    (tmp_path / "~").mkdir()
    assert [show(bind) for bind in parse_bind("~:/x", str(tmp_path))] == [f"{tmp_path}/~ /x"]


# a path that ends in a backslash cannot be written: the one before a colon is the colon's
letters = st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="/\\")
names = st.text(letters, max_size=9).map(lambda text: f"x{text}" if text.strip() in ("", ".", "..") else text)
paths = st.lists(names.map(str.rstrip), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


def write_bind(bind: tuple[str, str, bool]) -> str:
    source, destination, readonly = bind
    words = [each.replace(":", "\\:").replace(",", "\\,") for each in (source, destination)]
    return ":".join([*words, *(["ro"] if readonly else [])])


def quote_field(field: str) -> str:
    return '"' + field.replace('"', '""') + '"'


@settings(database=None, max_examples=40)
@given(st.lists(st.tuples(paths, paths, st.booleans()), max_size=4))
def test_binds_written_are_read_again(binds: list[tuple[str, str, bool]]) -> None:
    found = parse_bind(",".join(map(write_bind, binds)), "/")
    assert [(each.source, each.destination, each.readonly) for each in found] == binds


@settings(database=None, max_examples=40)
@given(st.lists(st.tuples(paths, paths, st.booleans()), max_size=4))
def test_binds_mounts_written_are_read_again(binds: list[tuple[str, str, bool]]) -> None:
    lines = [
        ",".join([quote_field(f"src={source}"), quote_field(f"dst={destination}"), *(["ro"] if readonly else [])])
        for source, destination, readonly in binds
    ]
    found = parse_mount("\n".join(lines), "/")
    assert [(each.source, each.destination, each.readonly) for each in found] == binds


@settings(database=None)
@given(st.text(max_size=40) | st.from_regex(r"[/a:,\\=ro\"~ \n]{0,30}"))
def test_binds_arbitrary_text_gives_binds_or_a_domain_error(text: str) -> None:
    for options in (RunOptions(bind=[text]), RunOptions(mount=[text])):
        try:
            found = collect_binds(options, {}, "/here")
        except KedgeError:
            continue
        assert all(bind.source.startswith("/") and bind.destination.startswith("/") for bind in found)
        assert all(bind.destination != "/" and ".." not in bind.destination.split("/") for bind in found)
