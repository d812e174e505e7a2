# SPDX-License-Identifier: BSD-3-Clause
"""The fixed files of `/.singularity.d`: launchers for people who chroot, and the environment scripts.

Apptainer runs none of the launchers (its own shell reads env/*.sh and the runscript), but Singularity before 3.6,
`chroot` and Charliecloud users do.
"""

from __future__ import annotations

_SOURCE_ENVIRONMENT = """#!/bin/sh
for script in /.singularity.d/env/*.sh; do
    [ -f "$script" ] && . "$script"
done
"""


def _app_dispatch(name: str, otherwise: str) -> str:
    """A launcher that prefers the script `name` of the app SINGULARITY_APPNAME, then the container's."""
    return (
        _SOURCE_ENVIRONMENT
        + f"""app="${{SINGULARITY_APPNAME:-}}"
if [ -n "$app" ]; then
    if [ -x "/scif/apps/$app/scif/{name}" ]; then
        exec "/scif/apps/$app/scif/{name}" "$@"
    fi
    echo "the app $app has no {name}" >&2
    exit 1
fi
if [ -x /.singularity.d/{name} ]; then
    exec /.singularity.d/{name} "$@"
fi
{otherwise}
"""
    )


ACTIONS = {
    "exec": _SOURCE_ENVIRONMENT + 'exec "$@"\n',
    "run": _app_dispatch("runscript", 'exec /bin/sh "$@"'),
    "test": _app_dispatch("test", "exit 0"),
    "start": _app_dispatch("startscript", "exit 0"),
    "shell": _SOURCE_ENVIRONMENT
    + """if [ -n "${SINGULARITY_SHELL:-}" ] && [ -x "${SINGULARITY_SHELL}" ]; then
    exec "${SINGULARITY_SHELL}" "$@"
fi
for shell in /bin/bash /bin/sh; do
    if [ -x "$shell" ]; then
        SHELL="$shell"
        export SHELL
        [ "$shell" = /bin/bash ] && exec "$shell" --norc "$@"
        exec "$shell" "$@"
    fi
done
echo "there is no shell in this container" >&2
exit 1
""",
}

_APPS = """#!/bin/sh
# the environment of one app, chosen with --app
if [ -n "${SINGULARITY_APPNAME:-}" ]; then
    SCIF_APPS=/scif/apps
    SCIF_APPROOT="/scif/apps/${SINGULARITY_APPNAME}"
    if [ -d "${SCIF_APPROOT}" ]; then
        PATH="${SCIF_APPROOT}:${PATH}"
        if [ -d "${SCIF_APPROOT}/bin" ]; then
            PATH="${SCIF_APPROOT}/bin:${PATH}"
        fi
        if [ -d "${SCIF_APPROOT}/lib" ]; then
            LD_LIBRARY_PATH="${SCIF_APPROOT}/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}"
            export LD_LIBRARY_PATH
        fi
        export PATH SCIF_APPS SCIF_APPROOT SINGULARITY_APPNAME
        for part in 01-base.sh 90-environment.sh; do
            if [ -f "${SCIF_APPROOT}/scif/env/${part}" ]; then
                . "${SCIF_APPROOT}/scif/env/${part}"
            fi
        done
        unset part
    else
        echo "there is no app ${SINGULARITY_APPNAME} in this container" >&2
        exit 1
    fi
fi
"""

_BASE = """#!/bin/sh
# driver libraries of the host are bound to /.singularity.d/libs
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+${LD_LIBRARY_PATH}:}/.singularity.d/libs"
if [ -z "${PS1:-}" ]; then
    PS1="Apptainer> "
fi
export LD_LIBRARY_PATH PS1
"""

_RUNTIME_VARIABLES = """#!/bin/sh
# what the user asked for with PREPEND_PATH, APPEND_PATH and PATH
if [ -n "${SING_USER_DEFINED_PREPEND_PATH:-}" ]; then
    PATH="${SING_USER_DEFINED_PREPEND_PATH}:${PATH}"
fi
if [ -n "${SING_USER_DEFINED_APPEND_PATH:-}" ]; then
    PATH="${PATH}:${SING_USER_DEFINED_APPEND_PATH}"
fi
if [ -n "${SING_USER_DEFINED_PATH:-}" ]; then
    PATH="${SING_USER_DEFINED_PATH}"
fi
unset SING_USER_DEFINED_PREPEND_PATH SING_USER_DEFINED_APPEND_PATH SING_USER_DEFINED_PATH
export PATH
"""

OCI_ENVIRONMENT = "10-docker2singularity.sh"
CUSTOM_ENVIRONMENT = "90-environment.sh"

ENVIRONMENT = {
    "01-base.sh": "#!/bin/sh\n# the image's own environment is in 10-docker2singularity.sh and 90-environment.sh\n",
    CUSTOM_ENVIRONMENT: "#!/bin/sh\n# Custom environment shell code should follow\n\n",
    "94-appsbase.sh": "",
    "95-apps.sh": _APPS,
    "99-base.sh": _BASE,
    "99-runtimevars.sh": _RUNTIME_VARIABLES,
}

STARTSCRIPT = "#!/bin/sh\n"

FOLDERS = (
    ".singularity.d/env",
    ".singularity.d/actions",
    ".singularity.d/libs",  # last: nothing is written into it that would make it again
    "dev",
    "proc",
    "root",
    "var/tmp",
    "tmp",
    "etc",
    "sys",
    "home",
)

LINKS = {
    "singularity": ".singularity.d/runscript",
    ".run": ".singularity.d/actions/run",
    ".exec": ".singularity.d/actions/exec",
    ".test": ".singularity.d/actions/test",
    ".shell": ".singularity.d/actions/shell",
    "environment": ".singularity.d/env/90-environment.sh",
}

BIND_TARGETS = ("etc/hosts", "etc/resolv.conf")  # empty files that the host's are bound over
