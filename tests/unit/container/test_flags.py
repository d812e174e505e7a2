# SPDX-License-Identifier: BSD-3-Clause
"""Flags of container verbs: the ways to write them, the variables that stand for them, and what is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kedge
from kedge.container.flags import USAGES, HelpWanted, find_flag, parse_words, read_truth
from kedge.container.options import FLAGS, GROUPS, REFUSALS, Flag, RunOptions
from kedge.errors import InvalidSetting, KedgeError, UsageError
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_reads

SOURCES = Path(kedge.__file__).parent

# Names that `apptainer exec|run|shell|instance start --help` of 1.4 and 1.5 print, and the hidden ones.
APPTAINER_NAMES = """
add-caps allow-setuid app apply-cgroups authfile bind blkio-weight blkio-weight-device boot cdi-dirs cleanenv compat
compat32 contain containall containlibs cpu-shares cpus cpuset-cpus cpuset-mems cwd device disable-cache dmtcp-launch
dmtcp-restart dns docker-host docker-login docker-password docker-username drop-caps env env-file fakeroot fusemount
help home hostname ignore-fakeroot-command ignore-subuid ignore-userns intel-hpu ipc keep-privs memory
memory-reservation memory-swap mount net netns-path network network-args no-env no-eval no-home no-https no-init
no-mount no-nv no-pid no-privs no-rocm no-umask nohttps nv nvccli oom-kill-disable overlay passphrase pem-path pid
pid-file pids-limit pwd rocm runscript-timeout scratch security sharens shell tmpdir underlay unsquash userns uts
workdir writable writable-tmpfs
"""
APPTAINER_LETTERS = {
    **{"B": "bind", "e": "cleanenv", "c": "contain", "C": "containall", "f": "fakeroot", "H": "home", "i": "ipc"},
    **{"n": "net", "o": "overlay", "p": "pid", "S": "scratch", "u": "userns", "W": "workdir", "w": "writable"},
}


def parse(*words: str, verb: str = "exec", **environ: str) -> RunOptions:
    return parse_words(verb, words, environ)


def parse_flags(*words: str, **environ: str) -> RunOptions:
    return parse(*words, "image.sif", "true", **environ)


def test_flags_table_has_every_flag_of_apptainer_and_is_sound() -> None:
    known = {name for flag in FLAGS for name in flag.names}
    assert not set(APPTAINER_NAMES.split()) - known
    for letter, name in APPTAINER_LETTERS.items():
        flag = find_flag("exec", letter)
        assert flag.names[0] == name
    options = RunOptions()
    for flag in FLAGS:
        assert flag.group in GROUPS
        assert flag.help
        assert bool(flag.metavar) == flag.takes_value, flag.names
        if flag.group == "refused":
            assert flag.help in REFUSALS
        elif flag.kind != "help" and flag.group != "idle":
            kind = (
                list
                if flag.kind == "list" or flag.attribute in ("pull_words", "limits")
                else str
                if flag.kind == "text"
                else int
            )
            kind = str if flag.value else kind
            assert isinstance(getattr(options, flag.attribute), kind), flag.names
    for verb in USAGES:
        names = [name for flag in FLAGS if verb in flag.verbs for name in flag.names]
        assert len(names) == len(set(names))


@with_rows(
    *((["--nv"], {"nv": True}), (["--nv=true"], {"nv": True}), (["--nv=F"], {"nv": False})),
    *((["--nv", "--nv=0"], {"nv": False}), (["-e"], {"cleanenv": True}), (["-e=false"], {"cleanenv": False})),
    *((["-ec"], {"cleanenv": True, "contain": True}), (["-ec=false"], {"cleanenv": True, "contain": False})),
    *((["-B", "/a:/b"], {"bind": ["/a:/b"]}), (["-B/a:/b"], {"bind": ["/a:/b"]}), (["-B=/a:/b"], {"bind": ["/a:/b"]})),
    (["-ecB/a:/b"], {"bind": ["/a:/b"], "cleanenv": True, "contain": True}),
    (["-ecB", "/a:/b"], {"bind": ["/a:/b"], "cleanenv": True, "contain": True}),
    (["--bind", "/a", "--bind=/b", "-B", "/c,/d"], {"bind": ["/a", "/b", "/c,/d"]}),
    (["--env", "A=1,B=2", "--env", "C=-3"], {"env": ["A=1,B=2", "C=-3"]}),
    *((["--pwd", "/x", "--cwd", "/y"], {"pwd": "/y"}), (["--cwd=/x"], {"pwd": "/x"}), (["--pwd="], {"pwd": ""})),
    (["--overlay", "a.ext3:ro", "-o", "b"], {"overlay": ["a.ext3:ro", "b"]}),
    (["-H", "/x:/home/me", "-W/tmp", "-S", "/s"], {"home": "/x:/home/me", "workdir": "/tmp", "scratch": ["/s"]}),
    (["--unsquash"], {"root": "unpack"}),
    (["--unsquash=false"], {"root": "auto"}),
    (["--root-from", "kernel"], {"root": "kernel"}),
    (["--pull=always", "--runtime", "apptainer"], {"pull": "always", "runtime": "apptainer"}),
    (["-C"], {"containall": True, "contain": True, "pid": True, "ipc": True, "cleanenv": True}),
    (["--compat"], {"containall": True, "no_init": True, "no_umask": True, "writable_tmpfs": True}),
    (["--network", "none"], {"net": True, "network": "none"}),
    (["--net", "--network=none"], {"net": True, "network": "none"}),
    (["--network", "host"], {"net": False, "network": ""}),
    (["--hostname", "box"], {"uts": True, "hostname": "box"}),
    (["-vv", "-q", "--json", "--dry-run"], {"verbose": 2, "quiet": True, "json": True, "dry_run": True}),
    (["-s", "-d", "--no-color"], {"silent": True, "debug": True, "nocolor": True}),
    (["--no-https", "--arch", "arm64"], {"pull_words": ["--no-https", "--arch", "arm64"]}),
    (["--tmpdir=/t", "--authfile=f"], {"pull_words": ["--tmpdir", "/t", "--authfile", "f"]}),
    (["--nohttps", "--docker-login", "--disable-cache=0"], {"pull_words": ["--no-https", "--docker-login"]}),
    (["--device", "nvidia.com/gpu=0", "--cdi-dirs", "/etc/cdi"], {"device": ["nvidia.com/gpu=0"]}),
    (["--keep", "PYTHONPATH", "--tmpfs-size", "2G"], {"keep": ["PYTHONPATH"], "tmpfs_size": "2G"}),
    ids=str,
)
def test_flags_are_written_in_many_ways(words: list[str], expected) -> None:
    options = parse_flags(*words)
    assert {name: getattr(options, name) for name in expected} == expected
    assert (options.image, options.arguments) == ("image.sif", ["true"])


@with_rows(
    ("exec", ["i.sif", "ls", "-l", "--nv"], "i.sif", ["ls", "-l", "--nv"]),
    ("exec", ["--nv", "i.sif", "bash", "-c", "echo --"], "i.sif", ["bash", "-c", "echo --"]),
    ("exec", ["--", "i.sif", "echo", "--", "x"], "i.sif", ["echo", "--", "x"]),
    ("exec", ["--", "--odd", "echo"], "--odd", ["echo"]),
    ("run", ["i.sif", "--help", "-x"], "i.sif", ["--help", "-x"]),
    ("run", ["i.sif"], "i.sif", []),
    ("run", ["docker://alpine", "--", "x"], "docker://alpine", ["--", "x"]),
    ("shell", ["-s", "/bin/zsh", "i.sif"], "i.sif", []),
    ("test", ["-e", "./folder"], "./folder", []),
    ("start", ["--nv", "i.sif", "web", "--port", "80"], "i.sif", ["web", "--port", "80"]),
    ("exec", ["--bind", "--nv", "i.sif", "ls"], "i.sif", ["ls"]),
)
def test_flags_end_at_the_image(verb: str, words: list[str], image: str, arguments: list[str]) -> None:
    options = parse(*words, verb=verb)
    assert (options.verb, options.image, options.arguments) == (verb, image, arguments)


def test_flags_that_say_who_set_them() -> None:
    options = parse_flags("--nv", "-B", "/a", APPTAINER_CLEANENV="1", SINGULARITY_OVERLAYIMAGE="o.img")
    assert options.given == {
        **{"nv": "--nv", "bind": "-B", "cleanenv": "APPTAINER_CLEANENV", "overlay": "SINGULARITY_OVERLAYIMAGE"}
    }
    options = parse_flags(SINGULARITY_NV="1", APPTAINER_NV="0")
    assert_reads(options.warnings, "run/singularity-nv-apptainer-nv-differ")
    assert not parse_flags(SINGULARITY_NV="1", APPTAINER_NV="1").warnings
    with pytest.raises(InvalidSetting, match="the variable APPTAINER_NV is 'maybe'"):
        parse_flags(APPTAINER_NV="maybe")


@with_rows(
    *(({"APPTAINER_NV": "1"}, {"nv": True}), ({"APPTAINER_NV": "TRUE"}, {"nv": True})),
    *(({"APPTAINER_NV": " t "}, {"nv": True}), ({"APPTAINER_NV": "yes"}, {"nv": True})),
    *(({"APPTAINER_NV": "0"}, {"nv": False}), ({"APPTAINER_NV": "False"}, {"nv": False})),
    *(({"APPTAINER_NV": ""}, {"nv": False}), ({"SINGULARITY_NV": "1"}, {"nv": True})),
    ({"SINGULARITY_NV": "1", "APPTAINER_NV": "0"}, {"nv": False}),
    ({"APPTAINER_NV": "1", "KEDGE_NV": "0"}, {"nv": False}),
    ({"KEDGE_NV": "", "APPTAINER_NV": "1"}, {"nv": True}),
    ({"APPTAINER_OVERLAY": "a", "APPTAINER_OVERLAYIMAGE": "b"}, {"overlay": ["a"]}),
    ({"APPTAINER_NO_MOUNT": "tmp , home"}, {"no_mount": ["tmp,home"]}),
    ({"APPTAINER_SCRATCHDIR": "/s"}, {"scratch": ["/s"]}),
    ({"APPTAINER_TARGET_PWD": "/x"}, {"pwd": "/x"}),
    ({"APPTAINER_PWD": "/x", "APPTAINER_CWD": "/y"}, {"pwd": "/x"}),
    *(({"APPTAINER_HOME": "/x:/y"}, {"home": "/x:/y"}), ({"APPTAINER_UNSHARE_PID": "1"}, {"pid": True})),
    *(({"APPTAINER_NV_OFF": "1"}, {"no_nv": True}), ({"APPTAINER_APPNAME": "foo"}, {"app": "foo"})),
    ({"APPTAINER_CONTAINALL": "1"}, {"contain": True, "cleanenv": True}),
    ({"APPTAINER_NETWORK": "none"}, {"net": True}),
    ({"APPTAINER_NOENV": "A,B"}, {"no_env": ["A,B"]}),
    ({"APPTAINER_SHELL": "/bin/zsh"}, {"shell": ""}),  # belongs to `shell` alone
    ({"APPTAINER_BIND": "/x"}, {"bind": []}),  # `binds` merges it
    ({"APPTAINER_UNSQUASH": "1"}, {"root": "unpack"}),
    ({"KEDGE_ROOT_FROM": "kernel"}, {"root": "kernel"}),
    ({"APPTAINER_ROOT_FROM": "kernel"}, {"root": "auto"}),
    ({"APPTAINER_AUTH_FILE": "/a.json"}, {"pull_words": ["--authfile", "/a.json"]}),
    ({"NV": "1", "HOME": "/root", "APPTAINERENV_NV": "1"}, {"nv": False, "home": ""}),
    ids=str,
)
def test_flags_have_variables(environ: dict[str, str], expected) -> None:
    options = parse_flags(**environ)
    assert {name: getattr(options, name) for name in expected} == expected


@with_rows(
    (["--cleanenv=false"], {"APPTAINER_CLEANENV": "1"}, {"cleanenv": False}),
    (["--overlay", "a"], {"APPTAINER_OVERLAY": "b"}, {"overlay": ["a"]}),
    (["--cwd", "/a"], {"APPTAINER_PWD": "/b"}, {"pwd": "/a"}),
    (["--authfile", "a"], {"APPTAINER_AUTH_FILE": "b"}, {"pull_words": ["--authfile", "a"]}),
    (["--arch", "arm64"], {"APPTAINER_DOCKER_LOGIN": "1"}, {"pull_words": ["--arch", "arm64", "--docker-login"]}),
)
def test_flags_beat_variables(words: list[str], environ: dict[str, str], expected) -> None:
    options = parse_flags(*words, **environ)
    assert {name: getattr(options, name) for name in expected} == expected


@with_rows(
    ("exec", ["--xyzzy", "i", "x"], "'kedge exec' has no option --xyzzy", "kedge exec --help-all"),
    ("exec", ["--fakerot", "i", "x"], "'kedge exec' has no option --fakerot", "did you mean '--fakeroot'?"),
    ("exec", ["--clean", "i", "x"], "'kedge exec' has no option --clean", "kedge exec --help-all"),
    ("exec", ["-Z", "i", "x"], "'kedge exec' has no option -Z", "to list all options: kedge exec --help-all"),
    ("exec", ["-eZ", "i", "x"], "'kedge exec' has no option -Z", "to list all options: kedge exec --help-all"),
    ("exec", ["--e", "i", "x"], "'kedge exec' has no option --e", ""),
    ("exec", ["--shell", "zsh", "i", "x"], "'kedge exec' has no option --shell", "'kedge shell' has it"),
    ("start", ["--sharens", "i", "x"], "'kedge instance start' has no option --sharens", "'kedge exec' has it"),
    ("exec", [], "'kedge exec' needs an image", "usage: kedge exec [options] IMAGE COMMAND [ARGUMENT ...]"),
    ("exec", ["--nv"], "'kedge exec' needs an image", "usage: kedge exec"),
    ("exec", ["", "x"], "'kedge exec' needs an image", "usage: kedge exec"),
    ("exec", ["i"], "'kedge exec' needs a command to run", "usage: kedge exec"),
    ("start", ["i"], "'kedge instance start' needs a name for the instance", "usage: kedge instance start"),
    ("exec", ["i", "--nv", "x"], "'kedge exec' got '--nv' as command", "usage"),
    ("run", [], "'kedge run' needs an image", "usage: kedge run [options] IMAGE [ARGUMENT ...]"),
    ("exec", ["--bind"], "--bind needs a value: --bind SPEC", "usage: kedge exec"),
    ("exec", ["-eB"], "-B needs a value: -B SPEC", "usage: kedge exec"),
    ("exec", ["--nv=maybe", "i", "x"], "'maybe' is not a valid value of --nv: a switch takes true or false", ""),
    ("exec", ["--pull", "often", "i", "x"], "'often' is not a valid value of --pull: it takes auto, m", ""),
    ("exec", ["--root-from=disk", "i", "x"], "'disk' is not a valid value of --root-from: it takes auto, u", ""),
    ("exec", ["--net", "i", "x"], "--net is not supported: a separate network needs", "--network none"),
    ("exec", ["--network=bridge", "i", "x"], "--network is not supported", "--network none"),
    ("exec", ["--security", "uid:1", "i", "x"], "--security is not supported: kedge sets no SEL", "leave it out"),
)
def test_flags_mistakes_are_explained(verb: str, words: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*words, verb=verb)
    assert caught.value.message.startswith(message)
    assert hint in (caught.value.hint or "")


@each_row("flag", [flag for flag in FLAGS if flag.group == "refused"], ids=lambda flag: flag.names[0])
def test_flags_that_cannot_be_honoured_are_refused(flag: Flag) -> None:
    verb = flag.verbs[0]
    words = [f"--{flag.names[0]}", *(["1"] if flag.takes_value else []), "i", "x"]
    with pytest.raises(UsageError, match=f"^--{flag.names[0]} is not supported: ") as caught:
        parse(*words, verb=verb)
    assert caught.value.hint
    if not flag.takes_value:
        parse(f"--{flag.names[0]}=false", "i", "x", verb=verb)
    for variable in flag.variables:
        with pytest.raises(UsageError, match=f"^APPTAINER_{variable} is not supported: "):
            parse("i", "x", verb=verb, **{f"APPTAINER_{variable}": "1"})


@each_row("flag", [flag for flag in FLAGS if flag.group == "idle"], ids=lambda flag: flag.names[0])
def test_flags_without_effect_are_noted(flag: Flag) -> None:
    options = parse_flags(f"--{flag.names[0]}", *(["1"] if flag.takes_value else []))
    assert options.notes == [f"--{flag.names[0]} has no effect: {flag.help}"]


def test_flags_keep_privs_is_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="--keep-privs is for root only"):
        parse_flags("--keep-privs")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert parse_flags("--keep-privs").keep_privs


@with_rows(
    *(("\u2014-nv", "--nv", "nv"), ("\u2013nv", "--nv", "nv"), ("-\u2014nv", "--nv", "nv")),
    *(("\u2013e", "-e", "cleanenv"), ("\u201a\u00c4\u00ee-nv", "--nv", "nv")),
    ("\u00e2\u20ac\u201cnv", "--nv", "nv"),
)
def test_flags_copied_with_typographic_dashes_are_understood(word: str, meant: str, attribute: str) -> None:
    options = parse_flags(word)
    assert getattr(options, attribute) is True
    assert_reads(options.warnings, "run/typographic-dash-read", word, meant)


def test_flags_other_words_that_look_odd_are_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("\u2014odd.sif", "x").image == "\u2014odd.sif"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=0.1.sif").touch()
    assert parse("-e", "lr=0.1.sif", "true").image == "lr=0.1.sif"


@each_row("word", ["-h", "--help", "-eh"])
def test_flags_help_is_wanted_before_the_image_only(word: str) -> None:
    with pytest.raises(HelpWanted):
        parse(word)
    assert parse("i", "x", word).arguments == ["x", word]


def test_flags_that_beat_others_or_have_no_effect_are_said() -> None:
    options = parse_flags("--writable", "--writable-tmpfs")
    assert (options.writable, options.writable_tmpfs) == (True, False)
    assert "--writable-tmpfs is ignored" in options.warnings[0]
    assert parse_flags("--no-mount", "home, tmp,/etc/hosts").warnings == []
    assert "--no-mount hme has no effect" in parse_flags("--no-mount", "hme,tmp").warnings[0]
    with pytest.raises(UsageError) as caught:
        parse_flags("--pid-file", "x")
    assert caught.value.hint == "'kedge instance start' has it"
    with pytest.raises(UsageError, match="is not supported"):
        parse_flags("--docker-password", "x", "--runtime", "apptainer")


def test_flags_what_was_read_before_a_mistake_is_kept() -> None:
    options = RunOptions()
    with pytest.raises(KedgeError):
        parse_words("exec", ["--json", "--nosuchflag"], {}, into=options)
    assert options.json


@each_row(("text", "truth"), [("1", True), ("T", True), ("Off", False), ("n", False), ("2", None)])
def test_flags_truth(text: str, truth: bool | None) -> None:
    assert read_truth(text) is truth


READERS = ("collect_binds", "_list_specs")  # of `flags`, which else only writes options


def test_options_are_all_honoured_somewhere() -> None:
    """An attribute that is parsed and never read would be an option that is silently ignored."""
    read = {"network"}  # `flags` turns it into `net`
    for path in SOURCES.rglob("*.py"):
        if path.name in ("options.py", "rules.py") or "options." not in (text := path.read_text()):
            continue
        for part in ast.parse(text).body:
            if path.name != "flags.py" or getattr(part, "name", "") in READERS:
                read |= {each.attr for each in ast.walk(part) if isinstance(each, ast.Attribute) and _is_options(each)}
    # those that stand for others (`settle` spreads them), or that only other runtimes are told about
    spread = {"containall", "compat", "passed_on"}
    assert sorted(set(RunOptions.__annotations__) - read - spread) == []


def _is_options(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load) and "options" in (
        getattr(node.value, "id", ""),
        getattr(node.value, "attr", ""),
    )


@each_row(
    ("words", "passed"),
    [
        (("--fusemount", "container:sshfs /x"), ["--fusemount", "container:sshfs /x"]),
        (("--add-caps=CAP_NET_RAW", "--allow-setuid"), ["--add-caps", "CAP_NET_RAW", "--allow-setuid"]),
        (("--network", "bridge"), []),
    ],
)
def test_flags_that_kedge_refuses_are_for_another_runtime(words, passed, tmp_path) -> None:
    with pytest.raises(UsageError, match="is not supported"):
        parse_flags(*words)
    with pytest.raises(UsageError, match="is not supported"):
        parse_flags(*words, "--runtime", "kedge")
    assert parse_flags(*words, "--runtime", "apptainer").passed_on == passed
    (tmp_path / "config.toml").write_text('runtime = "apptainer"\n')
    assert parse_flags(*words, KEDGE_SITE_CONFIG=str(tmp_path / "config.toml")).passed_on == passed


@with_rows(
    *(("-3", (True, True, 0, False)), ("-1", (False, True, 0, False)), ("1", (False, False, 0, False))),
    *(("4", (False, False, 1, False)), ("5", (False, False, 1, True)), ("many", (False, False, 0, False))),
)
def test_flags_level_of_messages_by_a_variable(level: str, expected: tuple[bool, bool, int, bool]) -> None:
    options = parse_flags(APPTAINER_MESSAGELEVEL=level)
    assert (options.silent, options.quiet, options.verbose, options.debug) == expected
    options = parse_flags("--quiet", APPTAINER_MESSAGELEVEL=level)
    assert (options.silent, options.quiet, options.verbose, options.debug) == (False, True, 0, False)


def test_flags_of_limits_are_collected_and_handed_on() -> None:
    options = parse_flags("--memory", "8G", "--cpus=1.5", "--oom-kill-disable", APPTAINER_PIDS_LIMIT="9")
    assert options.limits == ["memory=8G", "cpus=1.5", "oom-kill-disable=true", "pids-limit=9"]
    assert (options.given["memory"], options.given["pids_limit"]) == ("--memory", "APPTAINER_PIDS_LIMIT")
    assert parse_flags("--oom-kill-disable=false").limits == []


@with_rows(
    ("--env A=1 B=2 x.sif true", "'B=2' is in the place of the image", "--env A=1 --env B=2"),
    ("--env A B x.sif true", "--env A: 'A' is not NAME=VALUE", "write --env NAME=VALUE"),
    ("-e A=1 x.sif true", "-e is short for --cleanenv", "--env A=1"),
    ("-e A=1 -B /a x.sif true", "-e is short for --cleanenv", "--env A=1"),
    ("-v /data:/data x.sif true", "-v is short for --verbose", "-B /data:/data"),
    ("-v ./data:/data:ro x.sif true", "-v is short for --verbose", "-B ./data:/data:ro"),
)
def test_other_tools_options_are_not_taken_for_images(words: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse(*words.split())
    assert hint in str(caught.value.hint)


@each_row("words", ["-e -v docker://h:5000/a=b true", "-v host:/bin/sh true", "-e instance://a=b true"])
def test_references_are_not_misread(words: str) -> None:
    assert parse(*words.split()).image == words.split()[-2]
