# SPDX-License-Identifier: BSD-3-Clause
"""Options of sbatch, srun and salloc: how they are spelled, quoted in a script, and which of them exclude each other.

sbatch reads `#SBATCH` lines by rules of its own, not the shell's: a backslash escapes everywhere, within single quotes
too, `$` means nothing, and `#` begins a comment (src/sbatch/opt.c; tried against 22.05).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.cluster.schedulers.shell_words import EVERYWHERE, cut_words
from kedge.errors import InvalidJob

# letter, or - for none; tried against sbatch 22.05, with later options and those of Pyxis added
_WITH_VALUE = """
a:array A:account -:bb -:bbf b:begin -:comment -:container -:container-id -:cpu-freq c:cpus-per-task d:dependency
-:deadline -:delay-boot D:chdir e:error -:export-file -:gid -:gres -:gres-flags i:input J:job-name L:licenses
M:clusters -:cluster m:distribution -:mail-type -:mail-user -:mcs-label n:ntasks -:ntasks-per-node
-:tasks-per-node N:nodes
o:output p:partition -:power -:priority -:profile q:qos S:core-spec -:signal -:switches -:thread-spec t:time
-:time-min -:uid -:wckey -:wrap -:cluster-constraint C:constraint F:nodefile -:mem -:mincpus -:reservation
-:tmp w:nodelist x:exclude -:mem-per-cpu -:sockets-per-node -:cores-per-socket -:threads-per-core B:extra-node-info
-:ntasks-per-core -:ntasks-per-socket -:cpus-per-gpu G:gpus -:gpu-bind -:gpu-freq -:gpus-per-node -:gpus-per-socket
-:gpus-per-task -:mem-per-gpu -:hint -:mem-bind -:ntasks-per-gpu -:open-mode -:acctg-freq -:batch -:network
-:prefer -:ntasks-per-tres -:kill-on-invalid-dep -:wait-all-nodes
-:tres-per-task -:tres-per-job -:oom-kill-step -:segment -:resv-ports -:extra -:tres-bind
-:container-image -:container-mounts -:container-name -:container-save -:container-workdir -:container-env
-:container-mount-entrypoint -:environment -:image -:volume -:module -:entrypoint
"""
_WITH_OR_WITHOUT = "-:export -:get-user-env -:nice -:propagate -:exclusive k:no-kill"
_WITHOUT_VALUE = """
H:hold s:oversubscribe -:ignore-pbs -:no-requeue O:overcommit -:parsable Q:quiet -:reboot -:requeue -:spread-job
-:use-min-nodes v:verbose W:wait -:contiguous h:help -:usage V:version -:test-only -:stepmgr
-:container-mount-home -:no-container-mount-home -:container-remap-root -:no-container-remap-root
-:container-writable -:container-readonly -:no-container-entrypoint -:container-entrypoint
-:container-entrypoint-log
"""
# of srun alone, or otherwise than with sbatch
_SRUN_VALUES = frozenset((
    "--cpu-bind", "--epilog", "--het-group", "--jobid", "--max-threads", "--mpi", "--msg-timeout", "--pack-group",
    "--prolog", "--relative", "--slurmd-debug", "--task-epilog", "--task-prolog", "--threads", "--wait", "-r", "-T",
    "-W", "--container-unshare",
))  # fmt: skip
_SRUN_FLAGS = frozenset(("-E", "-I", "-K", "-X", "-Z", "-l", "-u"))
SYNONYMS = {"--tasks-per-node": "--ntasks-per-node", "--cluster": "--clusters"}
RENAMED = {"--workdir": "--chdir", "--share": "--oversubscribe"}  # old names, which sbatch 22.05 refuses
# what kedge itself writes; sbatch takes any beginning of a name that fits one option only
_OURS = (
    "job-name", "partition", "account", "qos", "reservation", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task",
    "gpus-per-node", "gres", "mem", "mem-per-cpu", "mem-per-gpu", "time", "exclusive", "constraint", "array",
    "dependency", "begin", "mail-user", "mail-type", "output", "error",
)  # fmt: skip
# of each group a job has one at most: the user's own word for it replaces whichever stands there
_MEMORY = frozenset(("mem", "mem-per-cpu", "mem-per-gpu"))
_GPUS = frozenset(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"))
_PLAIN = late_pattern(r"""[^\s"'\\#]+""")
_CONTROL = late_pattern(r"[\x00-\x1f\x7f]")


def _name_options(table: str) -> dict[str, str]:
    return {f"--{name}": letter for letter, name in (entry.split(":") for entry in table.split())}


VALUES = _name_options(_WITH_VALUE)
OPTIONAL = _name_options(_WITH_OR_WITHOUT)
FLAGS = _name_options(_WITHOUT_VALUE)
OPTIONS = {**VALUES, **OPTIONAL, **FLAGS}
LETTERS = {letter: name for name, letter in OPTIONS.items() if letter != "-"}
_SAME = {old[2:]: new[2:] for old, new in (*SYNONYMS.items(), *RENAMED.items())}


def srun_wants_value(name: str) -> bool:
    """Whether a word follows this option of srun, where no `=` and no value stands in its own word."""
    if name in _SRUN_VALUES or name in _SRUN_FLAGS:
        return name in _SRUN_VALUES
    if name.startswith("--"):
        return name in VALUES
    return len(name) == 2 and LETTERS.get(name[1], "") in VALUES


@frozen
class SlurmOption:
    """One option, as the words of a command line."""

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The option's full name, without dashes."""
        return find_name(self.words[0])

    @property
    def text(self) -> str:
        """The option as a line of a script says it."""
        return " ".join(map(quote_word, self.words))

    @property
    def replaces(self) -> frozenset[str]:
        """The options that cannot stand beside it."""
        name = self.name
        if name in _MEMORY:
            return _MEMORY
        if name in _GPUS and (name != "gres" or "gpu" in " ".join(self.words)):
            return _GPUS
        return frozenset((name,))


def make_directive(name: str, value: object = None) -> SlurmOption:
    """`--name=value`; a value over several lines becomes one, because a directive ends with its line."""
    return SlurmOption((f"--{name}" if value is None else f"--{name}={_CONTROL.sub(' ', str(value))}",))


def parse_directives(text: str) -> list[SlurmOption]:
    """The options in a line of the user or of a site, `#SBATCH` before them or not."""
    words = split_words(text.strip().removeprefix("#SBATCH"))
    if not words or not _is_option(words[0]):
        raise InvalidJob(
            f"'{text.strip()}' is no option of sbatch", context={"key": "directives"}, hint="write it as --licenses=a:1"
        )
    groups: list[list[str]] = []
    for word in words:
        if _is_option(word):
            groups.append([word])
        else:
            groups[-1].append(word)
    return [SlurmOption(tuple(group)) for group in groups]


def find_name(word: str) -> str:
    """The full name of an option, however it is written: `-t`, `-t30`, `--time=30`, `time`, `--tasks-per-node`."""
    word = "".join(word.strip().removeprefix("#SBATCH").partition("=")[0].split(maxsplit=1)[:1])
    bare = word.lstrip("-")
    if word.startswith("-") and not word.startswith("--"):
        return LETTERS.get(bare[:1], bare).lstrip("-")
    if len(bare) == 1:
        return LETTERS.get(bare, bare).lstrip("-")
    if bare in _SAME or bare in _OURS:
        return _SAME.get(bare, bare)
    fitting = [name for name in (*_OURS, *_SAME) if bare and name.startswith(bare)]
    return _SAME.get(fitting[0], fitting[0]) if len(fitting) == 1 else bare


def combine(
    ours: Sequence[SlurmOption], site: Iterable[str], user: Iterable[str], drop: Iterable[str]
) -> list[SlurmOption]:
    """The user's directives replace ours, and ours the site's; dropped ones go, unless the user wrote them."""
    added = [directive for line in user for directive in parse_directives(line)]
    dropped = {find_name(word) for word in drop}
    beaten = frozenset[str]().union(*(directive.replaces for directive in added))
    kept = [directive for directive in ours if directive.name not in beaten and directive.name not in dropped]
    beaten = beaten.union(*(directive.replaces for directive in kept))
    standing = [directive for line in site for directive in parse_directives(line)]
    kept += [directive for directive in standing if directive.name not in beaten and directive.name not in dropped]
    return [*kept, *added]


def quote_word(word: str) -> str:
    """A word that sbatch reads back unchanged."""
    if _PLAIN.fullmatch(word):
        return word
    name, equals, value = word.partition("=")
    if not (equals and name.startswith("--") and _PLAIN.fullmatch(name)):
        name, equals, value = "", "", word
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{equals}"{escaped}"'


def split_words(text: str) -> list[str]:
    """The words of a directive, as sbatch cuts them."""
    if _CONTROL.search(text.replace("\t", " ")):
        raise InvalidJob("a directive is one line", context={"key": "directives", "directive": repr(text)})
    words, _, quote = cut_words(text, EVERYWHERE, has_comments=True)
    if quote:
        raise InvalidJob(f"a quotation mark {quote} is not closed in the directive '{text}'")
    return words


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdecimal()
