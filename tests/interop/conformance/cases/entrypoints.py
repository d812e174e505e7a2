# SPDX-License-Identifier: BSD-3-Clause
"""What `run`, `exec`, `shell` and `test` start, with which arguments."""

from __future__ import annotations

from typing import Any

from tests.interop.conformance.case import IMAGES, Case, execute, run

AWKWARD = ("a b", "", "it's", '"q"', "\\back", "*", "ä", "-x", "--", "a;b", "line\nbreak", "tab\there")
REFUSED: dict[str, Any] = {"status": 1, "difference": "refusals", "our_status": 255}
SHELL_WORDS = ("$HOME", "`echo run`", "$(echo run)", "${USER}", "\\$HOME")


def shapes() -> list[Case]:
    """Four shapes of images, each with and without arguments, evaluated and not."""
    cases = []
    for shape in ("entrypoint", "command", "both", "bare"):
        for label, flags in (("", ""), ("-no-eval", "--no-eval")):
            name = f"entrypoint-{shape}{label}"
            given = ("/bin/show", "given") if shape == "command" else ("given",)
            cases.append(Case(name, run(f"{shape}.sif", flags=flags)))
            cases.append(Case(f"{name}-arguments", run(f"{shape}.sif", *given, *AWKWARD, *SHELL_WORDS, flags=flags)))
    return cases


CASES = [
    *shapes(),
    Case("entrypoint-none", run("none.sif"), stdin="echo from stdin\n"),
    Case("entrypoint-none-arguments", run("none.sif", "/bin/show", "x")),
    Case("entrypoint-traps", run("traps.sif")),
    Case("entrypoint-traps-arguments", run("traps.sif", "user")),
    Case("entrypoint-traps-no-eval", run("traps.sif", flags="--no-eval")),
    Case("entrypoint-traps-compat", run("traps.sif", "$HOME", flags="--compat")),
    Case("entrypoint-failing", run("failing.sif"), status=42),
    Case("entrypoint-absent", run("absent.sif"), status=255, mentions=("no-such-program",)),
    Case("entrypoint-base-shell", run("base.sif"), stdin="echo from stdin; exit 6\n", status=6),
    Case("entrypoint-base-command", run("base.sif", "echo", "instead")),
    Case("entrypoint-user-ignored", run("user.sif", "id", "-u")),
    Case("entrypoint-definition", run("definition.sif")),
    Case("entrypoint-definition-awkward", run("definition.sif", *AWKWARD[:2])),
    Case("entrypoint-definition-code", run("definition.sif"), env={"CODE": "33"}, status=33),
    Case("entrypoint-interpreter", run("interpreter.sif")),
    Case("entrypoint-exotic-fails", run("exotic.sif"), status=1),
    Case("entrypoint-app", run("definition.sif", "x", flags="--app first")),
    Case("entrypoint-app-code", run("definition.sif", flags="--app second"), status=9),
    Case("entrypoint-app-without-script", run("definition.sif", flags="--app third"), **REFUSED),
    Case("entrypoint-app-unknown", run("definition.sif", flags="--app nowhere"), **REFUSED),
    Case("entrypoint-app-exec", execute("definition.sif", "tool; env | grep ^SCIF_APP | sort", "--app third")),
    Case("entrypoint-app-environment", execute("definition.sif", "env | sort", "--app first")),
    Case("entrypoint-app-test", ("test", "--app", "first", f"{IMAGES}/definition.sif")),
    Case("entrypoint-app-shell", ("shell", "--app", "first", f"{IMAGES}/definition.sif"), stdin="echo $SCIF_APPNAME\n"),
    Case("entrypoint-test", ("test", f"{IMAGES}/definition.sif")),
    Case("entrypoint-test-code", ("test", f"{IMAGES}/definition.sif"), env={"CODE": "5"}, status=5),
    Case("entrypoint-test-none", ("test", f"{IMAGES}/base.sif")),
    Case("entrypoint-shell", ("shell", f"{IMAGES}/base.sif"), stdin="echo one\necho two >&2\ncd /data && pwd\n"),
    Case(
        "entrypoint-shell-command",
        ("shell", f"{IMAGES}/base.sif", "-c", "echo by -c"),
        stdin="echo typed\n",
        difference="shell-arguments",
        ours="by -c\n",
    ),
    Case("entrypoint-shell-chosen", ("shell", "--shell", "/bin/cat", f"{IMAGES}/base.sif"), stdin="typed\n"),
    Case("entrypoint-shell-absent", ("shell", "--shell", "/bin/zsh", f"{IMAGES}/base.sif"), stdin="echo fell back\n"),
    Case("entrypoint-shell-noshell", ("shell", f"{IMAGES}/noshell.sif"), **REFUSED),
    Case("entrypoint-noshell-exec", ("exec", f"{IMAGES}/noshell.sif", "/bin/busybox", "echo", "ran")),
    Case("entrypoint-noshell-run", run("noshell.sif", "/bin/busybox", "echo", "ran")),
    Case("entrypoint-exec-options", ("exec", f"{IMAGES}/base.sif", "show", "-e", "--nv", "-B", "--", "x")),
    Case("entrypoint-exec-dashes", ("exec", f"{IMAGES}/base.sif", "--", "show", "x"), status=255),
    Case("entrypoint-exec-awkward", ("exec", f"{IMAGES}/base.sif", "/bin/show", *AWKWARD, *SHELL_WORDS)),
    Case("entrypoint-exec-nothing", ("exec", f"{IMAGES}/base.sif"), **REFUSED, ours=""),
    Case("entrypoint-exec-relative-program", ("exec", "--pwd", "/bin", f"{IMAGES}/base.sif", "./show", "x")),
    Case("entrypoint-exec-host-path", ("exec", f"{IMAGES}/base.sif", "apptainer"), status=255, mentions=("apptainer",)),
    Case("entrypoint-exec-without-line", ("exec", f"{IMAGES}/base.sif", "no-format")),
    Case("entrypoint-arguments-many", ("exec", f"{IMAGES}/base.sif", "show", *map(str, range(500)))),
    Case("entrypoint-argument-long", ("exec", f"{IMAGES}/base.sif", "sh", "-c", "echo ${#0}", "x" * 100_000)),
]
