# SPDX-License-Identifier: BSD-3-Clause
"""What builds leave behind, by the paths of files: caches, lists, archives, documents; and the better line for each.

Only what was made in the same step can be removed from an image: a later `rm` hides a file, its bytes stay.
"""

from __future__ import annotations

import functools
import re

from kedge.frozen import frozen


@frozen
class LeftoverRule:
    """Files that an image can do without."""

    name: str
    title: str
    pattern: str  # searched for in the directory, `a/b/`, or in the whole path where the rule `is_of_names`
    better: str
    is_optional: bool = False
    note: str = ""
    is_of_names: bool = False


RULES = (
    LeftoverRule(
        "apt-lists",
        "package lists of apt",
        r"^var/lib/apt/lists/",
        "RUN apt-get update && apt-get install -y --no-install-recommends PACKAGES && rm -rf /var/lib/apt/lists/*",
    ),
    LeftoverRule(
        "apt-cache",
        "package cache of apt",
        r"^var/cache/apt/",
        "RUN apt-get update && apt-get install … && apt-get clean",
    ),
    LeftoverRule(
        "dnf-cache",
        "package cache of dnf or yum",
        r"^var/(?:cache|lib)/(?:dnf|yum)/",
        "RUN dnf install -y PACKAGES && dnf clean all",
    ),
    LeftoverRule(
        "zypper-cache",
        "package cache of zypper",
        r"^var/cache/zypp/",
        "RUN zypper -n install PACKAGES && zypper clean -a",
    ),
    LeftoverRule(
        "apk-cache", "package cache of apk", r"^(?:var/cache/apk/|etc/apk/cache/)", "RUN apk add --no-cache PACKAGES"
    ),
    LeftoverRule(
        "pip-cache", "download cache of pip", r"(?:^|/)\.cache/pip/", "RUN pip install --no-cache-dir PACKAGES"
    ),
    LeftoverRule("uv-cache", "download cache of uv", r"(?:^|/)\.cache/uv/", "RUN uv pip install --no-cache PACKAGES"),
    LeftoverRule(
        "conda-cache",
        "package cache of conda",
        r"(?:^|/)[^/]*(?:conda|mamba|miniforge|mambaforge)[^/]*/pkgs/",
        "RUN conda install -y PACKAGES && conda clean -afy",
    ),
    LeftoverRule(
        "other-cache",
        "download caches of npm, cargo, Go, Maven and others",
        r"(?:^|/)(?:\.cache|\.npm/_cacache|\.cargo/registry|go/pkg/mod/cache|\.m2/repository|\.gradle/caches|\.ccache)/",
        "RUN --mount=type=cache,target=/root/.cache COMMAND",
    ),
    LeftoverRule("git", "Git histories", r"(?:^|/)\.git/", "RUN git clone --depth 1 URL DIR && … && rm -rf DIR/.git"),
    LeftoverRule(
        "temporary",
        "files in /tmp and /var/tmp",
        r"^(?:var/)?tmp/",
        "RUN … && rm -rf /tmp/* /var/tmp/*",
        note="containers see the host's /tmp instead of these files",
    ),
    LeftoverRule("logs", "log files", r"^var/log/", "RUN … && rm -rf /var/log/*"),
    LeftoverRule(
        "archives",
        "archives that were unpacked or installed",
        r"^(?:root|opt|src|usr/src|usr/local/src|workspace|app|build|home/[^/]+)/(?:[^/]+/){0,2}"
        r"[^/]+\.(?:tar|tgz|tbz2|txz|whl|deb|rpm|run|iso|tar\.(?:gz|xz|bz2|zst))\Z",
        "RUN curl -fsSL URL | tar -xz -C DIR",
        is_of_names=True,
    ),
    LeftoverRule(
        "objects", "object files of a compiler", r"\.o\Z", "RUN make && make install && make clean", is_of_names=True
    ),
    LeftoverRule(
        "profilers",
        "NVIDIA Nsight profilers",
        r"^(?:opt/nvidia|usr/local/cuda[^/]*)/nsight[^/]*/",
        "FROM nvcr.io/nvidia/cuda:TAG-runtime-ubuntu22.04",
        is_optional=True,
        note="needed only to profile programs inside the container",
    ),
    LeftoverRule(
        "static-libraries",
        "static libraries",
        r"\.a\Z",
        "COPY --from=builder /usr/local/bin/PROGRAM /usr/local/bin/",
        is_optional=True,
        note="needed to compile inside the container",
        is_of_names=True,
    ),
    LeftoverRule(
        "bytecode",
        "Python bytecode",
        r"(?:^|/)__pycache__/",
        "RUN pip install --no-cache-dir --no-compile PACKAGES",
        is_optional=True,
        note="without it imports are slower: a SIF is read-only, so Python cannot write it later",
    ),
    LeftoverRule(
        "tests",
        "test suites of Python packages",
        r"/(?:site|dist)-packages/(?:.*/)?tests?/",
        "RUN pip install --no-cache-dir PACKAGES && find /usr/local/lib -type d -name tests -exec rm -rf {} +",
        is_optional=True,
        note="some packages import their own tests",
    ),
    LeftoverRule(
        "documents",
        "documents and manual pages",
        r"^usr/(?:local/)?share/(?:doc|man|info|gtk-doc)/",
        "RUN apt-get … && rm -rf /usr/share/doc /usr/share/man /usr/share/info",
        is_optional=True,
        note="licences are among them",
    ),
    LeftoverRule(
        "translations",
        "translations",
        r"^usr/(?:local/)?share/locale/",
        "RUN apt-get … && rm -rf /usr/share/locale",
        is_optional=True,
        note="messages are in English without them",
    ),
)
_DIRECTORY_RULES = tuple(rule for rule in RULES if not rule.is_of_names)
_NAME_RULES = tuple(rule for rule in RULES if rule.is_of_names)
_DIRECTORIES = re.compile("|".join(f"({rule.pattern})" for rule in _DIRECTORY_RULES), re.DOTALL)
_NAMES = re.compile("|".join(f"({rule.pattern})" for rule in _NAME_RULES), re.DOTALL)
_SUFFIXES = (".a", ".o", ".tar", ".tgz", ".tbz2", ".txz", ".whl", ".deb", ".rpm", ".run", ".iso", ".gz", ".xz", ".bz2",
             ".zst")  # fmt: skip
# Packages that compile others; what links against them is in packages without these endings.
_BUILD_TOOL = re.compile(
    r"(?:lib)?(?:gcc|g\+\+|gfortran|cpp|clang|llvm)(?:-\d[\d.]*)?(?:-dev(?:el)?)?(?:-[a-z0-9-]+-linux-gnu)?\Z"
    r"|gcc-c\+\+|build-essential|cmake(?:-data)?|ninja-build|make|binutils(?:-[a-z0-9-]+)?|bison|flex|autoconf|automake"
    r"|.+-(?:dev|devel|headers)(?:-\d[\d.-]*)?\Z|cuda-(?:nvcc|command-line-tools|libraries-dev|minimal-build).*"
)


def find_leftover(directory: str, name: str) -> LeftoverRule | None:
    """The rule that a file falls under; the directory has no leading slash."""
    rule = _find_directory_rule(directory)
    if rule is None and name.endswith(_SUFFIXES):
        match = _NAMES.search(f"{directory}/{name}")
        rule = _NAME_RULES[match.lastindex - 1] if match is not None and match.lastindex is not None else None
    return rule


@functools.lru_cache(4096)
def _find_directory_rule(directory: str) -> LeftoverRule | None:
    match = _DIRECTORIES.search(f"{directory}/")
    return _DIRECTORY_RULES[match.lastindex - 1] if match is not None and match.lastindex is not None else None


def is_build_tool(package: str) -> bool:
    """Whether a package of a distribution is there to compile programs."""
    return _BUILD_TOOL.fullmatch(package) is not None
