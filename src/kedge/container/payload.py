# SPDX-License-Identifier: BSD-3-Clause
"""The program of a container, its arguments and its variables, as a pure function."""

from __future__ import annotations

from kedge.container.env_scripts import (
    DEFAULT_PATH,
    ENROOT_ENVIRONMENT,
    PATH_REQUESTS,
    PROMPT,
    EnvironmentInputs,
    NotPlain,
    Variables,
    choose_entry,
    collect_requests,
    expand_quoted,
    is_enroot_image,
    is_name,
    list_scripts,
    read_script,
    read_workdir,
    resolve_oci_words,
    run_script,
    select_host_variables,
)
from kedge.container.facts import LIBRARIES, Payload, choose_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.container.env_scripts import Entrypoint, Step
    from kedge.container.facts import Additions, Bind, HostFacts, ImageFacts
    from kedge.container.options import RunOptions
    from kedge.system.views import View


# Keeps out what silently changes programs in a container: the host's module paths, preloads and locale.
#
# Paths in the current project are the user's own code and go in (`project_paths`). Each guard can be switched off:
# --keep NAME, --keep user-site, --keep locale, --keep all. What the user sets for the container itself (--env,
# --env-file, APPTAINERENV_X) never meets a guard.

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
        """Whether a guard is switched off."""
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
    from kedge.container.environment.project_paths import Project  # late: few have such variables

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


# What the program in a container gets: its environment, in Apptainer's order, and the words that start it.
#
# The image's scripts run on variables of their own, the user's requests come after them, the host's variables fill in
# what is still unset. A list of steps says so; our own reader takes them as far as it can, the image's shell the
# rest.

_FOLDER = "/.singularity.d/env"
_TWINS = ("APPTAINER_", "SINGULARITY_")


def _warn_of_files(arguments: Sequence[str], host: HostFacts, view: View, workdir: str) -> list[str]:
    """Warn where an argument names a file of the current directory, which the program will not find."""
    for word in arguments:
        if word.startswith(("-", "/")) or not word or "\n" in word or host.cwd == workdir:
            continue
        if host.view.kind(f"{host.cwd}/{word}") and not view.kind(f"{workdir}/{word}"):
            return [f"{word} is in {host.cwd}, but 'run' starts in {workdir}, the image's WORKDIR: add --no-workdir"]
    return []


def plan_payload(
    options: RunOptions, host: HostFacts, image: ImageFacts, additions: Additions, binds: Sequence[Bind] = ()
) -> Payload:
    """The program, its arguments and its environment; `binds` are those that the user asks for."""
    if options.step is not None:
        from kedge.container.environment.step_payload import plan_step_payload  # late: only builds have steps

        return plan_step_payload(options, options.step, image.view, additions)
    entry = choose_entry(options, image)
    settings = _gather_settings(options, host, image, additions, binds)
    settings.restored.update(_name_binds(binds))
    workdir = ""
    if options.verb == "run" and not options.no_workdir and not options.pwd:
        workdir = read_workdir(image.oci_config)
        if workdir:
            settings.notes.append(f"starts in {workdir}, the image's WORKDIR (--no-workdir: in the current directory)")
            settings.warnings += _warn_of_files(options.arguments, host, image.view, workdir)
    start = options.pwd or workdir or (_home_inside(options, host) if options.contain else host.cwd)
    settings.variables.assign("PWD", start, is_exported=True)
    done = run_steps(settings, image.view)
    if entry.words and done < len(settings.steps):
        from kedge.container.environment.action_script import (
            make_shell_payload,  # late: only where a script needs a shell
        )

        payload = make_shell_payload(settings, done, entry, image.view, options.verb)
    else:
        payload = make_plain_payload(settings, entry)
    payload.workdir = workdir
    payload.warnings = [*settings.warnings, *entry.warnings]
    payload.notes = [*settings.notes, *entry.notes, *payload.notes]
    return payload


def _home_inside(options: RunOptions, host: HostFacts) -> str:
    """Where the home directory is in the container."""
    return choose_home(options, host)[1]


def _gather_settings(
    options: RunOptions, host: HostFacts, image: ImageFacts, additions: Additions, binds: Sequence[Bind] = ()
) -> EnvironmentInputs:
    """Gather all that is known before the first script runs."""
    settings = EnvironmentInputs()
    settings.steps = _list_steps(image.view)
    settings.is_literal = options.no_eval
    settings.requests = collect_requests(options, host, settings.warnings)
    settings.additions = {name: value for name, value in additions.variables.items() if name not in settings.requests}
    passed = select_host_variables(options, host.environ)
    warnings, notes = guard_variables(passed, options, host, image.view, binds)
    settings.warnings += warnings
    settings.notes += notes
    if options.cleanenv or "sharens" in options.given:
        from kedge.container.environment.mpi_rank_flags import (
            warn_of_lost_ranks,  # late: few ask for it, and fewer with MPI
        )

        settings.warnings += warn_of_lost_ranks(options, host.environ, {**passed, **settings.requests})
    settings.restored = {name: value for name, value in passed.items() if name not in settings.requests}
    settings.restored.update(_describe_container(options, image))
    if additions.libraries:
        from kedge.container.environment.library_path import plan_library_path  # late: only with libraries of the host

        settings.library_path = plan_library_path(image.view, {name for _, name in additions.libraries})
    settings.first_libraries = ":".join(additions.prepend_library_path)
    _start_variables(settings, options, host)
    return settings


def _start_variables(settings: EnvironmentInputs, options: RunOptions, host: HostFacts) -> None:
    """The few variables that an image's scripts see; UID and GID are a shell's own and not exported."""
    variables = settings.variables
    uid, gid = (0, 0) if options.fakeroot else (host.uid, host.gid)
    variables.values.update(UID=str(uid), GID=str(gid), EUID=str(uid))
    variables.assign("HOME", _home_inside(options, host), is_exported=True)
    for name in (
        "SINGULARITY_APPNAME",
        "SINGULARITY_SHELL",
        *(f"APPTAINER_{x}" for x in ("NAME", "CONTAINER", "INSTANCE")),
    ):
        if settings.restored.get(name):
            variables.assign(name, settings.restored[name], is_exported=True)


def _describe_container(options: RunOptions, image: ImageFacts) -> dict[str, str]:
    """The APPTAINER_ variables that say inside what runs here, and their old twins."""
    variables = {"APPTAINER_COMMAND": options.command_name or options.verb, "APPTAINER_APPNAME": options.app}
    if options.app:
        variables["SINGULARITY_APPNAME"] = options.app
    twins = {"CONTAINER": image.path, "NAME": image.name}
    if options.no_eval:
        twins["NO_EVAL"] = "1"
    if options.shell:
        twins["SHELL"] = options.shell
    if options.instance:
        twins["INSTANCE"] = options.instance
    for prefix in _TWINS:
        for name, value in twins.items():
            variables[prefix + name] = value
    return variables


def _name_binds(binds: Sequence[Bind]) -> dict[str, str]:
    """Where binds are inside, for a runtime that is started in this container."""
    shown = [bind.destination for bind in binds if not bind.outermost and not bind.destination.startswith(LIBRARIES)]
    return {f"{prefix}BIND": ",".join(shown) for prefix in _TWINS}


def _list_steps(view: View) -> list[Step]:
    """What happens to the environment, in order."""
    steps: list[Step] = []
    present = view.names(_FOLDER)
    if present:
        for name in list_scripts(present, _FOLDER):
            path = f"{_FOLDER}/{name}"
            if name == "99-runtimevars.sh":
                continue  # part of the last step, for all images
            if name == "90-environment.sh":
                steps.append(("default-path", ""))
            steps.append(("script", path))
            if name in ("10-docker2singularity.sh", "10-docker.sh"):
                steps.append(("repair-path", ""))
            if name == "99-base.sh":
                steps.append(("requests", ""))
    elif view.kind("/environment") == "f":  # Singularity before 2.3
        steps += [("script", "/environment"), ("repair-path", "")]
    elif is_enroot_image(view):
        steps.append(("lines", ENROOT_ENVIRONMENT))
    if ("requests", "") not in steps:
        steps.append(("requests", ""))
    steps.append(("finish", ""))
    return steps


def run_steps(settings: EnvironmentInputs, view: View) -> int:
    """Take the steps that need no shell; returns how many that were, with the variables as they are then."""
    for number, (kind, path) in enumerate(settings.steps):
        before = settings.variables
        settings.variables = before.copy()
        try:
            run_step(settings, kind, path, view)
        except NotPlain:
            settings.variables = before
            if view.is_executable("/bin/sh") or view.is_executable("/bin/bash"):
                return number
            if kind == "script":
                settings.warnings.append(f"{path} is skipped: it needs a shell, and the image has none")
            else:
                settings.warnings.append("variables are not evaluated: the image has no shell")
                settings.is_literal = True
                run_step(settings, kind, path, view)
    return len(settings.steps)


def run_step(settings: EnvironmentInputs, kind: str, path: str, view: View) -> None:
    """Run one step by our own reader."""
    variables = settings.variables
    if kind == "script":
        run_script(read_script(view, path), variables, view)
    elif kind == "lines":
        _assign_lines(read_script(view, path), variables)
    elif kind == "default-path":
        _set_default_path(variables)
    elif kind == "repair-path":
        present = variables.values.get("PATH", "").split(":") if variables.values.get("PATH") else []
        missing = [folder for folder in DEFAULT_PATH.split(":") if folder not in present]
        variables.assign("PATH", ":".join([*present, *missing]), is_exported=True)
    elif kind == "requests":
        _run_requests(settings)
    else:
        _run_finish(settings)


def _assign_lines(text: str, variables: Variables) -> None:
    """Variables as Enroot keeps them: a line each, literally but for quotes around a whole value."""
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and is_name(name):
            is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            variables.assign(name, value[1:-1] if is_quoted else value, is_exported=True)


def _set_default_path(variables: Variables) -> None:
    """Images without a PATH of their own."""
    if "PATH" not in variables.values:
        variables.assign("PATH", DEFAULT_PATH, is_exported=True)


def _run_requests(settings: EnvironmentInputs) -> None:
    """What the user asked for, after one evaluation unless --no-eval."""
    variables = settings.variables
    _set_default_path(variables)
    for name, value in settings.additions.items():
        variables.assign(name, value, is_exported=True)
    own = PATH_REQUESTS.values()
    for name, value in settings.requests.items():
        value = value if settings.is_literal else expand_quoted(value, variables.lookup)
        if name == "LD_LIBRARY_PATH" and value:
            value = f"{value}:{LIBRARIES}"
        variables.assign(name, value, is_exported=name not in own)


def _run_finish(settings: EnvironmentInputs) -> None:
    """Changes of paths, the host's variables, and what every container has."""
    variables = settings.variables
    values = variables.values
    asked = {name: values.pop(own, "") for name, own in PATH_REQUESTS.items()}
    _finish_path(variables, asked)
    _finish_libraries(settings, asked)
    for name, value in settings.restored.items():
        if name not in values:
            variables.assign(name, value, is_exported=True)
        elif not values[name]:
            variables.unset(name)
    if not values.get("PS1"):
        variables.assign("PS1", PROMPT, is_exported=True)
    prompt, command = values["PS1"], values.get("PROMPT_COMMAND")
    if command:
        forget = 'PROMPT_COMMAND="${PROMPT_COMMAND%%; PROMPT_COMMAND=*}"'
        variables.assign("PROMPT_COMMAND", f'{command}; {forget}; PS1="{prompt}"', is_exported=True)
    else:
        variables.assign("PROMPT_COMMAND", f'PS1="{prompt}"; unset PROMPT_COMMAND', is_exported=True)
    place = values.get("APPTAINER_ENVIRONMENT") or f"{_FOLDER}/91-environment.sh"
    for prefix in _TWINS:
        variables.assign(f"{prefix}ENVIRONMENT", place, is_exported=True)


def _finish_path(variables: Variables, asked: dict[str, str]) -> None:
    path = variables.values.get("PATH", "")
    if asked["PREPEND_PATH"]:
        path = f"{asked['PREPEND_PATH']}:{path}"
    if asked["APPEND_PATH"]:
        path = f"{path}:{asked['APPEND_PATH']}"
    variables.assign("PATH", asked["PATH"] or path, is_exported=True)


def _finish_libraries(settings: EnvironmentInputs, asked: dict[str, str]) -> None:
    """The image's own libraries before those of the host, devices' choices before both, the user's before all."""
    variables = settings.variables
    value = variables.values.get("LD_LIBRARY_PATH", "")
    if settings.library_path and value in ("", LIBRARIES):
        value = settings.library_path
    if settings.first_libraries and "LD_LIBRARY_PATH" not in settings.requests:
        value = f"{settings.first_libraries}:{value}" if value else settings.first_libraries
    if asked["PREPEND_LD_LIBRARY_PATH"]:
        value = f"{asked['PREPEND_LD_LIBRARY_PATH']}:{value}" if value else asked["PREPEND_LD_LIBRARY_PATH"]
    if asked["APPEND_LD_LIBRARY_PATH"]:
        value = f"{value}:{asked['APPEND_LD_LIBRARY_PATH']}" if value else asked["APPEND_LD_LIBRARY_PATH"]
    if value and value != variables.values.get("LD_LIBRARY_PATH"):
        variables.assign("LD_LIBRARY_PATH", value, is_exported=True)


def make_plain_payload(settings: EnvironmentInputs, entry: Entrypoint) -> Payload:
    """The payload where no shell was needed for the environment."""
    environ = settings.variables.exports()
    environ.update(entry.variables)
    words = entry.words
    if entry.script:
        try:
            words = resolve_oci_words(entry, Variables(environ).lookup, is_literal=settings.is_literal) or words
        except NotPlain:
            words = entry.words  # the script itself does it, with the image's shell
    payload = Payload(words, environ)
    if words and "/" not in words[0]:
        payload.search = [folder or "." for folder in environ.get("PATH", "").split(":")]
    return payload
