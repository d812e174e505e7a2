# SPDX-License-Identifier: BSD-3-Clause
"""What builds leave behind, by path, and the types of files."""

from __future__ import annotations

from kedge.compat.contents.size_report import find_leftover, is_build_tool, list_leftover_rules, name_type
from tests.builders.rows import each_row


@each_row(("path", "rule"), [
    ("var/lib/apt/lists/deb_dists_InRelease", "apt-lists"),
    ("var/cache/apt/pkgcache.bin", "apt-cache"),
    ("var/cache/dnf/x/y", "dnf-cache"),
    ("root/.cache/pip/http/a/b", "pip-cache"),
    ("home/me/.cache/huggingface/model", "other-cache"),
    ("opt/conda/pkgs/numpy/lib/a.so", "conda-cache"),
    ("opt/conda/lib/python3.12/site-packages/numpy/__pycache__/a.pyc", "bytecode"),
    ("opt/conda/lib/python3.12/site-packages/numpy/tests/a.py", "tests"),
    ("workspace/code/.git/objects/pack/x", "git"),
    ("usr/lib/libfoo.a", "static-libraries"),
    ("opt/src/main.o", "objects"),
    ("tmp/a/b", "temporary"),
    ("root/v12.4.1.tar.gz", "archives"),
    ("usr/share/doc/bash/README", "documents"),
    ("usr/local/cuda-12.4/nsight-compute-2024/x", "profilers"),
])  # fmt: skip
def test_leftovers_are_known_by_their_paths(path: str, rule: str) -> None:
    directory, _, name = path.rpartition("/")
    assert find_leftover(directory, name).name == rule


def test_leftovers_what_is_used_is_none() -> None:
    used = ["usr/bin/python3", "opt/app/tests/a.py", "usr/lib/x.so", "usr/share/data.tar.gz", "data", "mytmp/a"]
    assert [path for path in (*used, "etc/apk/x") if find_leftover(*path.rpartition("/")[::2])] == []


def test_leftovers_every_rule_has_a_better_line_and_a_name_of_its_own() -> None:
    assert len({rule.name for rule in list_leftover_rules()}) == len(list_leftover_rules())
    assert all(rule.better.split()[0] in ("RUN", "FROM", "COPY") for rule in list_leftover_rules())
    assert all(rule.note for rule in list_leftover_rules() if rule.is_optional)


def test_build_tools_are_known_from_what_programs_need() -> None:
    tools = ["gcc", "gcc-12", "g++", "build-essential", "libssl-dev", "cuda-nvcc-12-4", "cmake", "zlib-devel"]
    needed = ["gcc-12-base", "libgcc-s1", "python3", "bash", "libstdc++6", "make-guile-doc", "devscripts"]
    assert [name for name in tools + needed if is_build_tool(name)] == tools


@each_row(("name", "kind"), [
    (b"libc.so.6", "shared libraries"), (b"libcudart_static.a", "static libraries and objects"),
    (b"a.cpython-311.pyc", "Python bytecode"), (b"x.tar.gz", "archives and packages"),
    (b"model.safetensors", "models and weights"), (b"README", "other"), (b"\xff\xfe", "other"),
])  # fmt: skip
def test_types_are_known_by_names(name: bytes, kind: str) -> None:
    assert name_type(name, 0o644) == kind


def test_types_programs_have_permission_to_run() -> None:
    assert name_type(b"bash", 0o755) == "programs and scripts"
