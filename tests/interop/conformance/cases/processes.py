# SPDX-License-Identifier: BSD-3-Clause
"""Exit statuses, signals, standard streams, limits, umask."""

from __future__ import annotations

from tests.interop.conformance.case import IMAGES, Case, execute, run

BASE = f"{IMAGES}/base.sif"
STATUS = "NoNewPrivs|Cap|^Seccomp:|SigBlk"
WAIT = "n=0; until grep -qs ready out || [ $n = 200 ]; do sleep 0.05; n=$((n + 1)); done"


def ends(code: int) -> Case:
    return Case(f"process-exit-{code}", execute("base.sif", f"exit {code}"), status=code)


def dies(name: str, number: int) -> Case:
    script = f"$runtime exec {BASE} sh -c 'kill -{name} $$; sleep 5'; echo $?"
    return Case(f"process-dies-of-{name}", script=script, prints=f"{128 + number}\n")


def traps(name: str, flags: str = "") -> Case:
    """A signal to the runtime reaches a program that has a trap for it."""
    label = "-with" + flags.replace(" ", "") if flags else ""
    program = f"trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.1; done"
    start = f'$runtime exec {flags} {BASE} sh -c "{program}" > out & p=$!'
    script = f"{start}; {WAIT}; kill -{name} $p; wait $p; echo $?; cat out"
    return Case(f"process-forwards-{name}{label}", script=script, prints=f"7\nready\ngot {name}\n")


def kills(name: str, number: int, flags: str = "") -> Case:
    """A signal to the runtime ends a program that has no trap for it."""
    label = "-with" + flags.replace(" ", "") if flags else ""
    start = f"$runtime exec {flags} {BASE} sh -c 'echo ready; exec sleep 20' > out & p=$!"
    script = f"{start}; {WAIT}; kill -{name} $p; wait $p; echo $?"
    return Case(f"process-ends-by-{name}{label}", script=script, prints=f"{128 + number}\n")


CASES = [
    *map(ends, (0, 42, 127, 255)),
    Case("process-exit-pid", execute("base.sif", "exit 42", "--pid"), status=42),
    Case("process-exit-last-of-shell", ("shell", BASE), stdin="false\n", status=1),
    Case("process-not-found", ("exec", BASE, "no-such-program"), status=255, mentions=("no-such-program",)),
    Case("process-not-found-inside", execute("base.sif", "no-such-program"), status=127, mentions=("no-such-program",)),
    Case("process-not-executable", ("exec", BASE, "/bin/not-executable"), status=255),
    Case("process-folder", ("exec", BASE, "/data"), status=255),
    Case("process-bad-interpreter", ("exec", BASE, "/bin/bad-interpreter"), status=255),
    Case("process-no-first-line", ("exec", BASE, "/bin/no-format")),
    Case("process-empty-program", ("exec", BASE, ""), status=255),
    Case("process-not-found-run", run("command.sif", "no-such-program"), status=255),
    Case("process-image-missing", ("exec", "/no/such/image.sif", "true"), status=255, mentions=("/no/such/image.sif",)),
    Case("process-image-text", ("exec", "text", "true"), setup="echo text > text", status=255, mentions=("text",)),
    Case(
        "process-image-empty", ("exec", "empty.sif", "true"), setup=": > empty.sif", status=255, mentions=("empty.sif",)
    ),
    Case(
        "process-unknown-flag",
        ("exec", "--no-such-flag", BASE, "true"),
        status=1,
        mentions=("--no-such-flag",),
        difference="refusals",
        our_status=255,
        ours="",
    ),
    dies("TERM", 15),
    dies("KILL", 9),
    dies("INT", 2),
    dies("SEGV", 11),
    dies("PIPE", 13),
    traps("TERM"),
    traps("HUP"),
    traps("TERM", "--pid"),
    traps("USR1", "--containall"),
    traps("CONT"),
    kills("TERM", 15),
    kills("TERM", 15, "--pid"),
    Case(
        "process-forwards-INT",
        script=f"timeout --foreground --preserve-status -s INT 1 $runtime exec {BASE} "
        "sh -c 'trap \"echo got INT; exit 7\" INT; while :; do sleep 0.1; done'; echo $?",
    ),
    Case(
        "process-stop-and-go",
        script=f"$runtime exec {BASE} sh -c 'echo ready; sleep 0.5; exit 4' > out & p=$!; {WAIT}\n"
        "kill -STOP $p; sleep 0.1; kill -CONT $p; wait $p; echo $?",
    ),
    Case("process-children-left", execute("base.sif", "sleep 0.3 & echo started"), prints="started\n"),
    Case(
        "process-children-left-pid",
        execute("base.sif", "sleep 60 >/dev/null 2>&1 & echo started", "--pid"),
        prints="started\n",
    ),
    Case(
        "process-orphans-pid", execute("base.sif", "(sleep 0.1 &) ; sleep 0.3; set -- /proc/[0-9]*; echo $#", "--pid")
    ),
    Case("process-stdin", ("exec", BASE, "cat"), stdin="one\ntwo\nno end of line"),
    Case("process-stdin-closed", script=f"$runtime exec {BASE} sh -c 'cat; echo $?' <&- 2>/dev/null"),
    Case(
        "process-stdout-closed",
        script=f"$runtime exec {BASE} sh -c 'echo x' >&- 2>/dev/null; echo $? > status; cat status",
    ),
    Case("process-stdin-binary", script=f"printf '\\000\\001\\377x' | $runtime exec {BASE} od -An -tx1"),
    Case("process-stdin-large", script=f"head -c 3000000 /dev/zero | $runtime exec {BASE} wc -c"),
    Case(
        "process-stdin-left-alone",
        script=f"printf 'a\\nb\\n' | (read first; $runtime exec {BASE} true; read second; echo $first $second)",
    ),
    Case("process-stderr-apart", script=f"$runtime exec {BASE} sh -c 'echo out; echo err >&2' 2>err; cat err"),
    Case("process-broken-pipe", script=f"$runtime exec {BASE} sh -c 'while :; do echo y; done' | head -1"),
    Case("process-no-terminal", execute("base.sif", "tty; [ -t 0 ]; echo $?"), ignore="^not a"),
    Case("process-descriptor-kept", script=f"$runtime exec {BASE} sh -c 'cat <&5' 5<text", setup="echo five > text"),
    Case(
        "process-descriptors-inside",
        execute("base.sif", "ls /proc/self/fd | wc -l"),
        prints="4\n",
        difference="descriptors",
        ours="5\n",
    ),
    Case("process-umask-host", script=f"umask 027; $runtime exec {BASE} sh -c 'umask; touch made'; stat -c %a made"),
    Case("process-umask-no-umask", script=f"umask 077; $runtime exec --no-umask {BASE} sh -c umask"),
    Case("process-umask-fakeroot", script=f"umask 077; $runtime exec --fakeroot {BASE} sh -c umask"),
    Case("process-limits", script=f"ulimit -n 123; ulimit -c 0; $runtime exec {BASE} sh -c 'ulimit -n; ulimit -c'"),
    Case("process-nice", script=f"nice -n 5 $runtime exec {BASE} sh -c 'cut -d\" \" -f19 /proc/self/stat'"),
    Case(
        "process-group",
        script=f"$runtime exec {BASE} sh -c 'cut -d\" \" -f5 /proc/self/stat' > inside\n"
        "cut -d' ' -f5 /proc/$$/stat > own; cmp -s inside own && echo same || echo other",
    ),
    Case(
        "process-status",
        execute("base.sif", f"grep -E '{STATUS}' /proc/self/status; cat /proc/self/oom_score_adj; uname -ms"),
    ),
    Case(
        "process-signals-ignored",
        # only the one that is asked about: whoever runs the tests may ignore others
        script=f"trap '' USR1; set -- $($runtime exec {BASE} grep SigIgn /proc/self/status); echo $((0x$2 >> 9 & 1))",
        prints="0\n",
        difference="signals",
        ours="1\n",
    ),
]
