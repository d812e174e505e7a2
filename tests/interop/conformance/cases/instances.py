# SPDX-License-Identifier: BSD-3-Clause
"""Containers that stay: started, joined, listed, stopped."""

from __future__ import annotations

from tests.interop.conformance.case import IMAGES, Case

BASE = f"{IMAGES}/base.sif"
INSIDE = "$runtime exec instance://$n"
QUIET = ">/dev/null 2>&1"
JUDGED = f"{QUIET} && echo done || echo refused"  # the number is not compared: docs/errors.md has kedge's


def instance(name: str, *lines: str, start: str = BASE, arguments: str = "", **more: object) -> Case:
    """Start an instance, `$n`, do what `lines` say, stop it."""
    first = f"$runtime instance start {start} $n {arguments} {QUIET} || echo cannot start"
    text = "\n".join([f"n=i-{name}", first, *lines, f"$runtime instance stop $n {JUDGED}"])
    return Case(f"instance-{name}", script=text, **more)  # type: ignore[arg-type]


PLAIN = [
    Case("instance-unknown", script="$runtime exec instance://no-such true; echo $?", mentions=("no-such",)),
    Case("instance-bad-name", script=f"$runtime instance start {BASE} 'a/b' {JUDGED}"),
    Case("instance-stop-unknown", script=f"$runtime instance stop no-such {JUDGED}"),
    Case("instance-start-missing-image", script=f"$runtime instance start /no/such.sif n {JUDGED}"),
    Case("instance-list-empty", script="$runtime instance list --json | tr -d ' \\n\\t'"),
]
# What many commands see of one instance; an instance of its own for each would show the same.
INSIDE_ONE = (
    f"{INSIDE} sh -c 'echo inside; cat /data/file'",
    f"{INSIDE} readlink /proc/self/ns/pid > a; {INSIDE} readlink /proc/self/ns/pid > b; cmp a b && echo same",
    "APPTAINERENV_A=1 $runtime exec --env B=2 instance://$n sh -c 'echo $A $B'",
    "echo 'echo typed' | $runtime shell instance://$n",
    f"{INSIDE} sh -c 'exit 9'; echo $?",
    f"{INSIDE} id",
    f"{INSIDE} sh -c '[ $$ -lt 100 ] && echo small'",
    f"echo through | {INSIDE} cat",
)
LISTED_ONE = (
    f"$runtime instance start {BASE} $n {JUDGED}",
    "$runtime instance list 2>/dev/null | awk -v n=$n '$1 == n {print $1, $NF}'",
    "$runtime instance list --json | grep -o '\"instance\": *\"'$n'\"' | tr -d ' '",
    "$runtime instance list 'i-list*' | grep -c $n; $runtime instance list 'other*' | grep -c $n",
    f"$runtime instance stop 'i-list*' {JUDGED}",
    "$runtime instance list | grep -c $n",
    f"{INSIDE} true {QUIET}; echo $?",
)
CASES = [
    *PLAIN,
    instance("inside", *INSIDE_ONE),
    instance(
        "cwd",
        f"{INSIDE} pwd; $runtime exec --pwd /data instance://$n pwd",
        f"cd /tmp; {INSIDE} pwd; cd /; {INSIDE} pwd",
    ),
    instance("layer-kept", f"{INSIDE} touch /data/kept", f"{INSIDE} ls /data", start=f"--writable-tmpfs {BASE}"),
    instance("bind", f"{INSIDE} cat /mnt/x", start=f"-B sub:/mnt {BASE}", setup="mkdir sub; echo x > sub/x"),
    instance(
        "environment",
        f"B=later {INSIDE} sh -c 'echo \"[$A] [$B] $FROM_IMAGE $APPTAINER_NAME $APPTAINER_INSTANCE\"'",
        f"{INSIDE} env | sort",
        env={"APPTAINERENV_A": "asked for", "HOST": "host"},
        ignore="^(PPID|_|OLDPWD)=",
    ),
    instance(
        "definition",
        "i=0; until [ -e /tmp/started-peer ] || [ $i = 60 ]; do sleep 0.1; i=$((i + 1)); done",
        "cat /tmp/started-peer",
        "$runtime run instance://$n one",
        "$runtime test instance://$n one",
        start=f"{IMAGES}/definition.sif",
        arguments="'a b'",
        setup="rm -f /tmp/started-peer",
    ),
    instance("fakeroot", f"{INSIDE} id -u", start=f"--fakeroot {BASE}"),
    instance("hostname", f"{INSIDE} hostname", start=f"--hostname staying {BASE}"),
    instance("list", *LISTED_ONE),
    instance("stop-all", f"$runtime instance stop --all {JUDGED}", "$runtime instance list | grep -c $n"),
    instance("children-end", f"{INSIDE} sh -c 'sleep 300 {QUIET} & echo started'"),
    instance(
        "signal",
        f"{INSIDE} sh -c 'trap \"echo got; exit 3\" TERM; echo ready; while :; do sleep 0.1; done' > out & p=$!",
        "i=0; until grep -qs ready out || [ $i = 60 ]; do sleep 0.1; i=$((i + 1)); done",
        "kill -TERM $p; wait $p; echo $?; cat out",
        difference="signals",
        ours="3\nready\ngot\ndone\n",
    ),
]
