# SPDX-License-Identifier: BSD-3-Clause
"""Who writes a word of a job's description wants more than a word: a command in the script, or a directive of its own.

Every field that takes text, in every scheduler's script, with every hostile word: the field is refused by name, or bash
runs the same programs as with a harmless word, and the scheduler reads the same options. Two fields are the user's own
scripts by definition: `setup` is shell, and `directives` are the scheduler's options, and no commands.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kedge.base.frozen import frozen, replace
from kedge.cluster.job import Dependency, DependencyKind, Job
from kedge.cluster.job_fields import FIELDS, JobField
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.schedulers.slurm.options import split_words
from kedge.cluster.site import Site
from kedge.errors import InvalidJob, KedgeError
from kedge.jobs.keywords import make_job
from kedge.jobs.local.directives import read_directives
from kedge.jobs.scripts.reader import read_script
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row

CANARY = "canary"  # a program that is never to run
WORDS = (
    *("a\ncanary\n", "a\r\ncanary\r\n", "a\rcanary", "a\vcanary", "a\u2028canary\u2029", "a\x85canary"),
    *("a\x00canary", "a\n#SBATCH --comment=planted\n", "#SBATCH --comment=planted", "a\n#PBS -l planted=1\n"),
    *("PBS -l planted=1", "a\n#$ -l planted=1\n", "a'\n#$ -l planted=1\n", "$ -l planted=1"),
    *('a"\n#KEDGE --memory=1G\n', "KEDGE --memory=1G", "a'; canary; '", 'a"; canary; "', "a'\"; canary; \"'"),
    *("a\\'; canary; '", "'", '"', "a\\", "\\\n canary", "$(canary)", "`canary`", "it's $(canary) `canary`"),
    *('"$(canary)"', "${x:-$(canary)}", "$((a[$(canary)]))", "a;canary", "a|canary", "a&canary&", "<(canary)"),
    *("a\n)\ncanary", "};canary;{", "!canary", "a #canary", "a#b", "%j %x %u %%", "$HOME/$JOB_ID", "~/a", "*"),
    *("{a,b}", "a b", " a", "a\tb", "é日本", "\x1b]0;planted\x07", "a\udcff", "-planted", "--comment=planted"),
    *("a --comment=planted", "a -l planted=1", "a" * 300 + "$(canary)", "../a", "host:a"),
)  # fmt: skip
SITES = {
    "slurm": Site("s", "Slurm", "slurm", gpu_directive="--gres=gpu:{type}:{count}"),
    "apptainer": Site("s", "Slurm", "slurm", runtime="apptainer", account_on_command_line=True),
    "pyxis": Site("s", "Slurm", "slurm", runtime="pyxis"),
    "gridengine": Site("g", "Grid Engine", "gridengine", gpu_directive="-l gpu={count},gpu_type={type}"),
    "pbs": Site(
        "p", "PBS", "pbs", gpu_directive="-l ngpus={count}:gpu_type={type}", options=(("reservation_variable", "TYPE"),)
    ),
    "local": Site("local", "this host", "local"),
}
TAKES_TEXT = [
    field for field in FIELDS if field.kind not in ("yes or no", "choice", "count") and field.name not in ("setup",)
]
HARMLESS = {"duration": "1h", "memory": "1G", "choices": "all"}
PLACE = ScriptContext("/records/K", "/bin/kedge", "/images/a.sqsh", "", "/place", "/place/{name}-{id}.out", "")
# Nothing of the host is on PATH: what bash does not find it writes down, and what it would write it does not.
FRAME = """
command_not_found_handle() { printf '%s\\n' "${1##*/}" >>"$LOG"; }
readonly -f command_not_found_handle
cd() { :; }
sleep() { :; }
for SCRIPT in *.sh; do
    LOG=$PWD/${SCRIPT%.sh}.log
    ( . "./$SCRIPT" ) >/dev/null 2>"${SCRIPT%.sh}.errors" </dev/null
done
exit 0
"""


@frozen
class Written:
    """What became of a word: a script and the words of the command that submits it, or a refusal."""

    script: str = ""
    argv: tuple[str, ...] = ()
    refusal: str = ""


def write_job(field: JobField, word: str, site: Site, *, has_image: bool) -> Written:
    """As `kedge submit` does with what somebody wrote into kedge.toml."""
    described: dict[str, object] = {"command": ["run", "it"], "time": "1h"}
    described |= {"image": PLACE.image} if has_image else {}
    described |= {"gpus": 1} if field.name == "gpu_type" else {"queue": "q"} if field.name == "reservation" else {}
    backend = find_backend(site.scheduler)
    try:
        job = make_job(described | {field.key: put_in(field, word)})
        script = backend.render(job, site, find_place(job))
        argv = backend.submit_argv("/records/K/script.sh", job, site)
    except KedgeError as refusal:
        return Written(refusal=f"{refusal.message} {refusal.context} {refusal.hint}")
    return Written(script, tuple(argv))


def put_in(field: JobField, word: str) -> object:
    """The word as a value of the field's kind."""
    if field.name == "command":
        return ["run", word]
    if field.name == "directives":
        return [f"-l x={word}"]
    return {"pairs": {"NAME": word}, "list": [word]}.get(field.kind, word)


def find_place(job: Job) -> ScriptContext:
    """Where the job is, as `kedge submit` finds it out from the same fields."""
    directory = str(Path("/place", job.directory))
    output = str(Path(directory, job.output or "{name}-{id}.out"))
    error = str(Path(directory, job.error)) if job.error else ""
    image = str(Path("/place", job.image)) if job.image and "://" not in job.image else job.image
    return replace(PLACE, directory=directory, output=output, error=error, image=image, build_from=job.build)


def list_options(script: str, scheduler: str) -> list[str]:
    """The options that the scheduler reads in the script; Grid Engine has two words for the directory."""
    if scheduler == "local":
        return sorted(read_directives(script))
    if scheduler == "slurm":
        head = re.split(r"^[^#\n]", script, maxsplit=1, flags=re.MULTILINE)[0]  # up to the first command
        lines = [line for line in head.split("\n") if line.startswith("#SBATCH")]
        return sorted(word.partition("=")[0] for line in lines for word in split_words(line.removeprefix("#SBATCH")))
    found = [each for each in read_script(script).directives if each.is_live and each.scheduler == scheduler]
    return sorted({"-wd": "-cwd"}.get(each.option, each.option) for each in found)


def read_names(script: str) -> str:
    """The script with names of files as words in the place of files that it opens."""
    return re.sub(r"^exec >+(.*?)( 2>+(?!&)| 2>&1)", r": \1 ", script, flags=re.MULTILINE | re.DOTALL)


def run_scripts(scripts: Sequence[str], folder: Path) -> dict[str, tuple[str, ...]]:
    """The programs that bash runs for each script, in their order."""
    for number, script in enumerate(scripts):
        text = read_names(script.replace("/records/K", "/none/K"))
        (folder / f"{number}.sh").write_bytes(text.encode(errors="surrogateescape"))
    ids = dict.fromkeys(("SLURM_JOB_ID", "JOB_ID", "PBS_JOBID", "KEDGE_LOCAL_JOB_ID"), "7")
    subprocess.run(["/bin/bash", "-c", FRAME], env={"PATH": "/none", "HOME": "/none", **ids}, cwd=folder, check=True)
    ran = {}
    for number, script in enumerate(scripts):
        log, errors = folder / f"{number}.log", (folder / f"{number}.errors").read_text(errors="replace")
        said = ("bash cannot read it",) if re.search("syntax error|unexpected EOF", errors) else ()
        ran[script] = (*(log.read_text(errors="replace").split("\n") if log.exists() else ()), *said)
    return ran


def find_wrong(written: Written, harmless: Written, field: JobField, word: str, scheduler: str) -> str:
    """What can be said without running it; empty: nothing is wrong."""
    if not written.script:
        names = (field.key, field.name, field.flag or field.key, word.strip()[:20], repr(word)[1:20])
        return "" if any(name in written.refusal for name in names) else f"refused without a name: {written.refusal}"
    if "\0" in written.script:
        return "a NUL byte is in the script"
    if field.name == "directives":
        return ""
    options, wanted = list_options(written.script, scheduler), list_options(harmless.script, scheduler)
    if options != wanted:
        return f"the scheduler reads {options}, not {wanted}"
    names = [
        [each.partition("=")[0] for each in argv if each.startswith("-")] for argv in (written.argv, harmless.argv)
    ]
    return "" if names[0] == names[1] else f"on the command line: {written.argv}"


def find_lines(field: JobField, site: Site, *, has_image: bool) -> tuple[str, ...]:
    """Where a value of the field stands, of the script and the command line: what the value changes."""
    values = {"duration": ("1h", "2h"), "memory": ("1G", "2G"), "choices": ("all", "end")}.get(field.kind, ("1", "2"))
    one, other = (write_job(field, value, site, has_image=has_image) for value in values)
    lines = set(other.script.splitlines())
    return (
        *(line for line in one.script.splitlines() if line not in lines),
        "",
        *(word for word in one.argv if word not in other.argv),
    )


@EVERY
@each_row("field", TAKES_TEXT, ids=lambda field: field.name)
def test_a_word_stays_a_word(field: JobField, tmp_path: Path, is_every: bool) -> None:
    """All words where the value stands first, and some at each site where it stands in other lines than before.

    `make test-all` tries all words at all sites.
    """
    problems, scripts, seen = [], {}, set()
    for site, has_image in itertools.product(SITES.values(), (False, True)):
        if not has_image and field.name not in ("command", "environment"):
            continue
        harmless = write_job(field, HARMLESS.get(field.kind, "1"), site, has_image=has_image)
        place = (site.scheduler, find_lines(field, site, has_image=has_image))
        if not harmless.script or (place in seen and not is_every):
            continue  # this scheduler, or this kind of job, has no such thing; or it was seen
        seen.add(place)
        for word in WORDS if is_every or len(seen) == 1 else WORDS[(len(seen) + TAKES_TEXT.index(field)) % 6 :: 6]:
            written = write_job(field, word, site, has_image=has_image)
            wrong = find_wrong(written, harmless, field, word, site.scheduler)
            problems += [f"{site.name} {site.runtime}: {word!r}: {wrong}"] if wrong else []
            scripts.update({written.script: (word, harmless.script)} if written.script else {})
    harmless_scripts = {plain for _, plain in scripts.values()}
    (tmp_path / field.name).mkdir()
    ran = run_scripts([*{*scripts, *harmless_scripts}], tmp_path / field.name)
    for script, (word, plain) in scripts.items():
        if ran[script] != ran[plain] or CANARY in ran[script]:
            problems.append(f"{word!r}: bash ran {ran[script]}, not {ran[plain]}\n{script}")
    assert not problems, "\n".join(problems[:5])


@each_row("name", ["slurm", "gridengine", "pbs", "local"])
def test_arguments_and_values_arrive_as_they_were_written(name: str, tmp_path: Path) -> None:
    """All at once: no quoting of one changes another."""
    words = [word for word in WORDS if "\0" not in word]
    job = make_job(
        {"command": ["run", *words], "environment": {f"NAME{number}": word for number, word in enumerate(words)}}
    )
    script = find_backend(SITES[name].scheduler).render(job, SITES[name], find_place(job))
    told = tmp_path / f"told-{name}"
    values = " ".join(f'"$NAME{number}"' for number in range(len(words)))
    frame = f"cd() {{ :; }}; run() {{ printf '%s\\0' \"$@\" {values} >>{told}; }}\n"
    (tmp_path / "job.sh").write_bytes((frame + read_names(script)).encode(errors="surrogateescape"))
    subprocess.run(["/bin/bash", tmp_path / "job.sh"], env={"PATH": "/none"}, capture_output=True, check=False)
    assert told.read_bytes().decode(errors="surrogateescape").split("\0")[:-1] == [*words, *words]


@each_row("variable", ["A;canary", "A=1 canary", "1A", "", "A B", "BASH_FUNC_x%%", "A\nB", "a[$(canary)]"])
def test_names_of_variables_are_names(variable: str) -> None:
    with pytest.raises(InvalidJob, match="is not a variable name"):
        make_job({"command": ["run"], "environment": {variable: "x"}})


def test_percent_signs_of_a_path_mean_themselves() -> None:
    """Slurm replaces %j, %u and others in names of files, and the rest of the line with a % of its own."""
    job = make_job({"command": ["run"], "output": "logs%u/%%s-50%-{id}.out"})
    script = find_backend("slurm").render(job, SITES["slurm"], find_place(job))
    assert "#SBATCH --output=/place/logs%%u/%%%%s-50%%-%j.out\n" in script


def test_a_dependency_is_named_and_not_run(tmp_path: Path) -> None:
    """Grid Engine's scripts say which job ended otherwise."""
    waits = (Dependency(DependencyKind.AFTER_OK, "$(canary)`canary`;canary", str(tmp_path)),)
    (tmp_path / "began").touch()
    job = replace(make_job({"command": ["run"]}), dependencies=waits)
    script = find_backend("gridengine").render(job, SITES["gridengine"], find_place(job))
    (tmp_path / "scripts").mkdir()
    assert CANARY not in run_scripts([script], tmp_path / "scripts")[script]
    assert "$(canary)`canary`;canary" in (tmp_path / "scripts/0.errors").read_text()


@each_row("key", ["queue", "account", "reservation"])
def test_words_of_a_command_line_are_no_options(key: str) -> None:
    """idev takes them apart from its options."""
    site = replace(SITES["slurm"], interactive="idev")
    job = make_job({"command": ["run"], key: "--planted"})
    with pytest.raises(InvalidJob, match=f"{key}: '--planted' cannot stand"):
        find_backend("slurm").interactive_argv(job, site, ["run"])
