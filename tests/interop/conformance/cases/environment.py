# SPDX-License-Identifier: BSD-3-Clause
"""Variables: the image's, the host's, and those that are asked for; their order, quoting and evaluation."""

from __future__ import annotations

from tests.interop.conformance.case import IMAGES, Case, execute, run

ALL = "env | sort"
FOREIGN = {  # of the host: what a job has around it
    "HOST_ONLY": "host",
    "BOTH": "host",
    "FROM_IMAGE": "host",
    "EMPTY_ON_HOST": "",
    "MULTI": "one\ntwo",
    "TRICKY": "a $HOME `b` \"c\" 'd' \\e",
    "SPACED": "  x  ",
    "OMP_NUM_THREADS": "4",
    "SLURM_JOB_ID": "17",
    "http_proxy": "http://proxy:3128",
    "HTTPS_PROXY": "http://proxy:3129",
    "BASH_FUNC_module%%": "() {  echo; }",
    "with-dash": "1",
    "with.dot": "1",
    "1DIGIT": "x",
}
LEAKS = ("R_LIBS", "PERL5LIB", "CONDA_PREFIX", "VIRTUAL_ENV", "JAVA_HOME", "PYTHONSTARTUP", "LD_PRELOAD")
SHOW = 'printf "[%s]\\n" "$A" "$B" "$C"'


def variables(name: str, flags: str = "", *, image: str = "base.sif", command: str = ALL, **more: object) -> Case:
    return Case(f"environment-{name}", execute(image, command, flags), **more)  # type: ignore[arg-type]


VALUES = ["value", "", "  a  b  ", "$HOME ${HOME}", "$(echo run) `echo run`", 'it\'s "quoted"', "a\\nb\\\\c"]
VALUES += ["one\ntwo\n", "* ? [a]", "a; echo b", "äöü…", '{"a": [1, 2], "b": "c"}']
WAYS = ("APPTAINERENV_A{}", "SINGULARITYENV_B{}", "C{}")  # each value on each of the three ways in
FORWARDED = {way.format(number): value for number, value in enumerate(VALUES) for way in WAYS}
SHOW_ALL = 'printf "[%s]\\n" ' + " ".join(f'"${name}{number}"' for number in range(len(VALUES)) for name in "ABC")


CASES = [
    variables("host", env=FOREIGN),
    variables("host-definition", image="definition.sif", env={**FOREIGN, "WITH_DEFAULT": "from host"}),
    variables("image-traps", image="variables.sif", env={"EMPTY": "host", "SINGLE": "host", "NO_VALUE": "h"}),
    variables("exotic", image="exotic.sif", env={"CASE": "host", "LIST": "host"}),
    variables("definition-forwarded", image="definition.sif", env={"APPTAINERENV_WITH_DEFAULT": "forwarded"}),
    variables("cleanenv", "--cleanenv", env=FOREIGN),
    variables("cleanenv-forwarded", "-e", env={**FOREIGN, "APPTAINERENV_A": "1", "SINGULARITYENV_B": "2"}),
    variables("cleanenv-variable", env={**FOREIGN, "APPTAINER_CLEANENV": "1"}),
    variables("cleanenv-singularity-variable", env={**FOREIGN, "SINGULARITY_CLEANENV": "1"}),
    variables("contain", "--contain", env=FOREIGN, ignore="^PWD="),
    variables("containall", "--containall", env=FOREIGN, ignore="^PWD="),
    variables("env-twice", "--env A=1 --env B=2,A=3", command=SHOW),
    variables("env-spaces", "--env 'A=one two'", command=SHOW),
    variables("env-quoted-comma", "--env '\"A=one,two\",B=3'", command=SHOW),
    variables("env-evaluated", "--env 'A=$HOME/x' --env 'B=`echo run`' --env 'C=$(echo run)'", command=SHOW),
    variables("env-no-eval", "--no-eval --env 'A=$HOME/x' --env 'B=`echo run`'", command=SHOW),
    variables("env-empty", "--env A=,BOTH=", env={"A": "host"}, command="env | grep -E '^(A|BOTH)='; true"),
    variables("env-without-value", "--env A", command=SHOW, status=1, difference="refusals", our_status=255, ours=""),
    variables("env-over-image", "--env BOTH=flag,FROM_IMAGE=flag", command="echo $BOTH $FROM_IMAGE"),
    variables("env-over-forwarded", "--env A=flag", env={"APPTAINERENV_A": "variable"}, command=SHOW),
    variables("env-path", "--env PATH=/data:/bin", command="echo $PATH"),
    variables("env-prepend-path", "--env PREPEND_PATH=/data/first", command="echo $PATH"),
    variables("env-path-refers", "--env 'PATH=$PATH:/data'", command="echo $PATH"),
    variables("env-library-path", "--env LD_LIBRARY_PATH=/data/lib", command="echo $LD_LIBRARY_PATH"),
    variables("env-home", "--env HOME=/elsewhere", command="echo $HOME"),
    variables("env-quotes", '--env A=it\\\'s --env \'B="""say"""\'', command=SHOW),
    variables("env-dollar-escaped", "--env 'A=\\$HOME' --env 'B=a\\\\b'", command=SHOW),
    variables(
        "env-file", "--env-file vars", setup="printf 'A=1\\nexport B=2\\nC=\"$A and $B\"\\n' > vars", command=SHOW
    ),
    variables(
        "env-file-comments",
        "--env-file vars",
        setup="printf '# a comment\\n\\nA=one # trailing\\nB='\"'\"'single $HOME'\"'\"'\\nC=$HOME\\n' > vars",
        command=SHOW,
    ),
    variables(
        "env-file-order",
        "--env-file vars --env A=flag",
        setup="printf 'A=file\\nB=file\\nC=file\\n' > vars",
        env={"APPTAINERENV_B": "variable", "C": "host"},
        command=SHOW,
    ),
    variables(
        "env-file-two",
        "--env-file one --env-file two",
        setup="echo A=1 > one; echo B=1 >> one; echo A=2 > two",
        command=SHOW,
    ),
    variables("env-file-missing", "--env-file no-such-file", status=255, mentions=("no-such-file",)),
    variables(
        "env-file-computed",
        "--env-file vars",
        setup="echo 'A=$(echo computed)' > vars",
        command=SHOW,
        difference="env-files",
        our_status=255,
        ours="",
    ),
    variables("forwarded-values", command=SHOW_ALL, env=FORWARDED),
    variables(
        "forwarded-ends-in-backslash",
        command=SHOW,
        env={"APPTAINERENV_A": "one\\", "APPTAINERENV_B": "two"},
        difference="quoting",
        ours=r"\[one\\\]\n\[two\]\n\[\]\n",
    ),
    variables(
        "forwarded-no-eval",
        "--no-eval",
        command=SHOW,
        env={"APPTAINERENV_A": "$HOME", "SINGULARITYENV_B": "$(echo no)", "C": "`x`"},
    ),
    variables(
        "forwarded-precedence",
        command='echo "$A"',
        env={"APPTAINERENV_A": "apptainer", "SINGULARITYENV_A": "singularity", "A": "host"},
    ),
    variables("forwarded-path", env={"APPTAINERENV_PATH": "/data:/bin"}, command="echo $PATH"),
    variables(
        "forwarded-both-ends",
        env={"APPTAINERENV_APPEND_PATH": "/last", "APPTAINERENV_PREPEND_PATH": "/first"},
        command="echo $PATH",
    ),
    variables("forwarded-library-path", env={"APPTAINERENV_LD_LIBRARY_PATH": "/x"}, command="echo $LD_LIBRARY_PATH"),
    variables("forwarded-home", env={"APPTAINERENV_HOME": "/x"}, command="echo $HOME"),
    variables("forwarded-prompt", env={"APPTAINERENV_PS1": "mine> "}, command='echo "$PS1"'),
    variables("host-library-path", env={"LD_LIBRARY_PATH": "/opt/host/lib"}, command="echo $LD_LIBRARY_PATH"),
    variables(
        "host-preload", env={"LD_PRELOAD_NOT": "x", "CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "all"}
    ),
    variables(
        "host-python",
        env={"PYTHONPATH": "/host/python", "PYTHONUSERBASE": "/host"},
        command='echo "[$PYTHONPATH] [$PYTHONUSERBASE] [$PYTHONNOUSERSITE]"',
        difference="leaks",
        ours=r"\[\] \[\] \[1\]\n",
    ),
    variables(
        "host-leaks",
        env=dict.fromkeys(LEAKS, "/host/value"),
        command="; ".join(f'echo "[${name}]"' for name in LEAKS),
        prints="[/host/value]\n" * len(LEAKS),
        difference="leaks",
        ours=rf"(\[\]\n){{{len(LEAKS)}}}",
    ),
    variables(
        "host-leaks-asked-for",
        "--env PYTHONPATH=/mine,R_LIBS=/mine,CONDA_PREFIX=/mine",
        command='echo "[$PYTHONPATH] [$R_LIBS] [$CONDA_PREFIX]"',
    ),
    variables("host-leak-forwarded", env={"APPTAINERENV_PYTHONPATH": "/mine"}, command="echo $PYTHONPATH"),
    variables(
        "locale-not-in-image",
        env={"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"},
        command='echo "$LANG $LC_ALL"',
        difference="locale",
        ours="C.UTF-8 C.UTF-8\n",
    ),
    variables("host-own-variables", env={"APPTAINER_TMPDIR": "/tmp", "SINGULARITY_NOTHING": "x"}),
    variables("noshell", image="noshell.sif", command="", env={"A": "host"}, status=255),
    Case("environment-noshell-env", script=f"A=host $runtime exec {IMAGES}/noshell.sif env | sort"),
    Case("environment-run", run("command.sif", "sh", "-c", ALL), env=FOREIGN),
    Case("environment-test", ("test", f"{IMAGES}/definition.sif", "argument"), env=FOREIGN),
    Case("environment-shell", ("shell", f"{IMAGES}/base.sif"), env=FOREIGN, stdin="env | sort\n"),
    variables("box", image="box", env=FOREIGN),
    variables("path-of-host-kept-outside", command="echo $PATH", env={"PATH": "/strange:/usr/bin:/bin"}),
]
