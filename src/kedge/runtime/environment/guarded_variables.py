# SPDX-License-Identifier: BSD-3-Clause
"""Keeps out what silently changes programs in a container: the host's module paths, preloads and locale.

Paths in the current project are the user's own code and go in (`project_paths`). Each guard can be switched off:
--keep NAME, --keep user-site, --keep locale, --keep all. What the user sets for the container itself (--env,
--env-file, APPTAINERENV_X) never meets a guard.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.posix.views import View
    from kedge.runtime.facts import Bind, HostFacts
    from kedge.runtime.options import RunOptions

# Variables with which an interpreter, the loader or a shell takes code from the host, and variables that name the
# host's installation of one. Module systems' own (LOADEDMODULES, MODULEPATH) change nothing inside and pass.
_GUARDED = frozenset(
    (
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONEXECUTABLE"),
        *("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "MAMBA_EXE", "MAMBA_ROOT_PREFIX", "_CE_CONDA", "_CE_M"),
        *("LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "LOCPATH"),
        *("R_HOME", "R_LIBS", "R_LIBS_USER", "R_LIBS_SITE", "R_PROFILE", "R_ENVIRON"),
        *("PERL5LIB", "PERL5OPT", "PERLLIB", "PERL_LOCAL_LIB_ROOT"),
        *("RUBYLIB", "RUBYOPT", "GEM_HOME", "GEM_PATH", "NODE_PATH"),
        *("LUA_PATH", "LUA_CPATH", "JULIA_LOAD_PATH", "JULIA_PROJECT", "JULIA_BINDIR"),
        *("CLASSPATH", "JAVA_HOME", "TCLLIBPATH", "OCTAVE_PATH"),
        *("OPAL_PREFIX", "PMIX_INSTALL_PREFIX"),  # the host's Open MPI, which the image's cannot be
        *("BASH_ENV", "ENV"),
    )
)
# Those of them that list directories or files with code, separated by colons; the others name an installation.
_PATH_LISTS = frozenset(
    (
        *("PYTHONPATH", "PYTHONSTARTUP", "PERL5LIB", "PERLLIB", "RUBYLIB", "NODE_PATH", "CLASSPATH"),
        *("R_LIBS", "R_LIBS_USER", "R_LIBS_SITE", "R_PROFILE", "R_ENVIRON", "JULIA_LOAD_PATH", "JULIA_PROJECT"),
    )
)
_GUARDED_PREFIXES = ("CONDA_", "LUA_PATH_", "LUA_CPATH_", "BASH_FUNC_")
# Every login on a cluster has the first, every activated environment the others, and nobody wants its packages to mix
# with the image's: a word with --verbose is enough.
_QUIETLY = ("BASH_ENV", "ENV", "BASH_FUNC_", "VIRTUAL_ENV", "CONDA_", "MAMBA_", "_CE_")
_PYTHON_PREFIXES = ("/usr", "/usr/local", "/opt/conda", "/opt/venv")
_ALWAYS_THERE = ("", "C", "POSIX", "C.UTF-8", "C.utf8")
_LOCALES = "/usr/lib/locale"


class _Kept:
    """What the user let in with --keep; through a shim all, because scripts for Apptainer count on it."""

    def __init__(self, options: RunOptions) -> None:
        self.names = {name.strip() for listed in options.keep for name in listed.split(",")}
        self.has_all = options.shim or "all" in self.names

    def holds(self, name: str) -> bool:
        """Whether this guard is switched off."""
        return self.has_all or name in self.names


def guard_variables(
    passed: dict[str, str], options: RunOptions, host: HostFacts, view: View, binds: Sequence[Bind] = ()
) -> tuple[list[str], list[str]]:
    """Take out of `passed` what leaks; returns warnings and notes about what was done."""
    kept = _Kept(options)
    warnings: list[str] = []
    notes: list[str] = []
    guarded = {name: passed.pop(name) for name in list(passed) if is_guarded(name) and not kept.holds(name)}
    filled = {name: value for name, value in guarded.items() if value}  # what is empty brings nothing in
    outside = _pass_project_paths(passed, filled, options, host, binds)
    quiet = [name for name in outside if name.startswith(_QUIETLY)]
    if quiet:
        notes.append(f"not passed into the container: {', '.join(sorted(quiet))} (--keep NAME passes one)")
    outside = [name for name in outside if name not in quiet]
    if outside:
        names, example = ", ".join(sorted(outside)), min(outside).partition(" ")[0]
        is_or_are = "is" if len(outside) == 1 else "are"
        warnings.append(f"{names} {is_or_are} not passed into the container; --keep {example} passes it")
    if _guard_user_site(passed, options, host, kept):
        python = _find_user_site(host, view)
        if python:
            warnings.append(
                f"your packages in ~/.local/lib/{python} are hidden in the container; --keep user-site shows them"
            )
    if not kept.holds("locale"):
        _guard_locale(passed, view, warnings, notes)
    return warnings, notes


def _pass_project_paths(
    passed: dict[str, str], guarded: dict[str, str], options: RunOptions, host: HostFacts, binds: Sequence[Bind]
) -> list[str]:
    """Let in what lies in the current project; returns the names of the rest, with the entries where some went in."""
    outside = [name for name in guarded if name not in _PATH_LISTS]
    if len(outside) == len(guarded):
        return outside
    from kedge.runtime.environment.project_paths import Project  # late: few have such variables

    project = Project(options, host, binds)
    for name in (name for name in guarded if name in _PATH_LISTS):
        inside, left = project.select(guarded[name])
        if inside:
            passed[name] = ":".join(inside)
        if left or not inside:
            outside.append(f"{name} ({':'.join(left)})" if inside else name)
    return outside


def is_guarded(name: str) -> bool:
    """Whether a variable of the host stays outside unless --keep names it."""
    return name in _GUARDED or name.startswith(_GUARDED_PREFIXES)


def _guard_user_site(passed: dict[str, str], options: RunOptions, host: HostFacts, kept: _Kept) -> bool:
    """Tell Python to leave ~/.local alone, unless the user said something about it."""
    if "PYTHONNOUSERSITE" in host.environ or kept.holds("user-site"):
        return False
    passed["PYTHONNOUSERSITE"] = "1"
    return not (options.no_home or options.contain)


def _find_user_site(host: HostFacts, view: View) -> str:
    """The directory below ~/.local/lib that a Python of the image would take packages from."""
    for name in host.view.names(f"{host.home}/.local/lib"):
        if name.startswith("python") and any(view.kind(f"{prefix}/lib/{name}") for prefix in _PYTHON_PREFIXES):
            return name
    return ""


def _guard_locale(passed: dict[str, str], view: View, warnings: list[str], notes: list[str]) -> None:
    """Locales that the image lacks become one that it has."""
    missing: dict[str, list[str]] = {}
    for name, value in passed.items():
        if (name == "LANG" or name.startswith("LC_")) and value not in _ALWAYS_THERE:
            missing.setdefault(value, []).append(name)
    there = view.names(_LOCALES) if missing else []
    absent = [value for value in missing if not has_locale(view, value, there)]
    if not absent or _has_musl(view):  # musl takes any name
        return
    instead = "C.UTF-8" if has_plain_utf8(view, there) else "C"
    for value in absent:
        for name in missing[value]:
            passed[name] = instead
    text = f"the image has no locale {', '.join(absent)}: kedge sets {instead} (--keep locale passes yours)"
    # English speakers see no difference, and nearly every image lacks it
    (notes if all(value.startswith("en_") for value in absent) else warnings).append(text)


def has_locale(view: View, name: str, there: list[str]) -> bool:
    """Whether the image has a locale, as one of the directories `there` or in glibc's archive."""
    base, dot, encoding = name.partition(".")
    encoding, at, modifier = encoding.partition("@")
    short = f"{base}{dot}{encoding.lower().replace('-', '')}{at}{modifier}"
    if name in there or short in there:
        return True
    if "locale-archive" not in there:
        return False
    archive = view.read(f"{_LOCALES}/locale-archive", 1 << 20) or b""
    return short.encode(errors="surrogateescape") + b"\0" in archive


def has_plain_utf8(view: View, there: list[str]) -> bool:
    """Whether C.UTF-8 works: it is built into glibc since 2.35, and most others ship it as a directory."""
    if "C.utf8" in there or "C.UTF-8" in there:
        return True
    # glibc before 2.34 has its version in the name of the file
    for folder in ("/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib"):
        if view.kind(f"{folder}/libc.so.6"):
            return "/libc-2." not in view.resolve(f"{folder}/libc.so.6")
    return True


def _has_musl(view: View) -> bool:
    return any(view.kind(f"/lib/ld-musl-{machine}.so.1") for machine in ("x86_64", "aarch64"))
