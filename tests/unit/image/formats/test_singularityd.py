# SPDX-License-Identifier: BSD-3-Clause
"""The shell text of `/.singularity.d` run by real shells, labels, documents, and what is put into a tree."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kedge.base.digest import Digest
from kedge.base.manifest import ImageConfig, parse_config
from kedge.base.platform import Platform
from kedge.base.tree import Node, NodeKind, find, walk
from kedge.image.formats.go_json import encode_json
from kedge.image.formats.singularityd import fixed_files
from kedge.image.formats.singularityd.decorate_tree import decorate, describe, report_config
from kedge.image.formats.singularityd.documents import (
    SourceRecord,
    add_build,
    format_build_date,
    make_labels,
    render_labels,
    write_build,
)
from kedge.image.formats.singularityd.scripts import EVAL_LINE, render_environment, render_runscript
from tests.builders.layers import MemorySink
from tests.builders.rows import each_row

SHELLS = {os.path.realpath(path) for path in map(shutil.which, ("dash", "bash", "sh")) if path}
NASTY = [
    *("plain", "two words", "do$llar $HOME", "`id`", 'dq"dq', "s'q", "back\\slash", "", "a\nb", "é日本", "*", "~"),
    "}{",
]
RECORD = SourceRecord("docker", "docker.io/library/x:1", Digest.of(b"m"), Platform("arm64", "v8"), 1_709_622_489)


def run_shells(script: str, *arguments: str, environment: dict[str, str] | None = None) -> list[str]:
    """The words between NULs that a script prints, or the program that it ends with: the same by every shell."""
    answers = set()
    for shell in SHELLS:
        argv = [shell, "-c", script, "runscript", *arguments]
        variables = {"PATH": "/usr/bin:/bin", "HOME": "/h"} if environment is None else environment
        answers.add(subprocess.run(argv, capture_output=True, env=variables, check=True).stdout.decode())
    assert len(answers) == 1, answers
    return answers.pop().split("\0")[:-1]


ENVIRONMENTS = [{"PATH": "/usr/bin:/bin", "HOME": "/h", **more} for more in ({}, {"SINGULARITY_NO_EVAL": "1"})]
PRINT = ["printf", "%s\\0"]


@each_row("environment", ENVIRONMENTS)
def test_runscript_entrypoint_only_appends_arguments(environment: dict[str, str]) -> None:
    script = render_runscript([*PRINT, *NASTY], [])
    assert run_shells(script, environment=environment) == NASTY
    assert run_shells(script, "x y", "z", environment=environment) == [*NASTY, "x y", "z"]


@each_row("environment", ENVIRONMENTS)
def test_runscript_command_only_is_replaced_by_arguments(environment: dict[str, str]) -> None:
    script = render_runscript([], [*PRINT, "cmd", *NASTY])
    assert run_shells(script, environment=environment) == ["cmd", *NASTY]
    assert run_shells(script, *PRINT, "-x", "a b", environment=environment) == ["-x", "a b"]


@each_row("environment", ENVIRONMENTS)
def test_runscript_entrypoint_with_command_as_default_arguments(environment: dict[str, str]) -> None:
    script = render_runscript(PRINT, NASTY)
    assert run_shells(script, environment=environment) == NASTY
    assert run_shells(script, "one", environment=environment) == ["one"]


def test_runscript_without_either_runs_arguments_or_shell() -> None:
    script = render_runscript([], [])
    assert run_shells(script, *PRINT, "a b") == ["a b"]
    assert "/bin/sh" in script


def test_runscript_expands_arguments_unless_told_not_to() -> None:
    script = render_runscript(PRINT, [])
    words = ["$HOME", "a\\$b", "`echo hi`", "a  b"]
    assert run_shells(script, *words) == ["/h", "a$b", "hi", "a  b"]
    assert run_shells(script, *words, environment=ENVIRONMENTS[1]) == words


def test_runscript_arguments_may_begin_with_a_dash() -> None:
    assert run_shells(render_runscript([], [*PRINT, "-e"])) == ["-e"]
    # 'set' itself must not take the first word for an option
    for shell in SHELLS:
        argv = [shell, "-c", render_runscript([], []), "runscript", "-x"]
        done = subprocess.run(argv, capture_output=True, check=False)
        assert done.returncode in (2, 126, 127)  # bash: exec has no such option; dash: no such program
        assert b"PATH=" not in done.stdout


def test_runscript_has_the_line_apptainer_looks_for() -> None:
    for entrypoint, command in itertools.product(([], ["a"]), repeat=2):
        assert EVAL_LINE in render_runscript(entrypoint, command).splitlines()
    assert EVAL_LINE == 'eval "set ${SINGULARITY_OCI_RUN}"'


def test_runscript_quoting_is_apptainers() -> None:
    text = render_runscript(["/a", '$"`\\', "it's"], ["c"])
    assert """OCI_ENTRYPOINT='"/a" "\\$\\"\\`\\\\" "it'"'"'s"'\n""" in text
    assert """OCI_CMD='"c"'\n""" in text


# ---- environment


def read_environment(text: str, names: Iterable[str], environment: dict[str, str]) -> dict[str, str]:
    script = text + "".join(f'\nprintf "%s\\0" "${{{name}-UNSET}}"' for name in names)
    return dict(zip(names, run_shells(script, environment=environment), strict=True))


def test_environment_values_arrive_unchanged() -> None:
    nasty = [*NASTY, "a=b=c", "\\n", "\\\\$", "x\\", "!x", "a'}\"$"]
    values = {f"V{number}": value for number, value in enumerate(nasty)}
    text, warnings = render_environment([f"{name}={value}" for name, value in values.items()])
    assert not warnings
    assert read_environment(text, values, {}) == values


def test_environment_keeps_what_is_set_except_path() -> None:
    text, _ = render_environment(["PATH=/image/bin", "A=image", "B=image"])
    found = read_environment(text, ["PATH", "A", "B"], {"PATH": "/host", "A": "host"})
    assert found == {"PATH": "/image/bin", "A": "host", "B": "image"}


def test_environment_text_is_apptainers_1_5_form() -> None:
    text, warnings = render_environment(["PATH=/a:/b", "A=x y", 'C=$`"\\', "NOVALUE", "E="])
    assert text == (
        '#!/bin/sh\nexport PATH="/a:/b"\nexport A="${A:-"x y"}"\nexport C="${C:-"\\$\\`\\"\\\\"}"\n'
        'export NOVALUE="${NOVALUE:-}"\nexport E="${E:-""}"\n'
    )
    assert warnings == ()


@each_row("name", ["1BAD", "", "a-b", "a b", "x;id", "é", "A\nB"])
def test_environment_skips_names_that_are_no_identifiers(name: str) -> None:
    text, warnings = render_environment([f"{name}=v", "GOOD=1"])
    assert text == '#!/bin/sh\nexport GOOD="${GOOD:-"1"}"\n'
    assert len(warnings) == 1


def test_environment_skips_nul_and_last_duplicate_wins() -> None:
    text, warnings = render_environment(["A=1", "B=x\0y", "A=2"])
    assert text == '#!/bin/sh\nexport A="${A:-"2"}"\n'
    assert len(warnings) == 1


# ---- labels and documents


@each_row(
    ("created", "text"),
    [
        (1627940488, "Monday_2_August_2021_21:41:28_UTC"),
        (1709622489, "Tuesday_5_March_2024_7:8:9_UTC"),
        (0, "Thursday_1_January_1970_0:0:0_UTC"),
        (-62135596800, "Monday_1_January_1_0:0:0_UTC"),
        (1 << 62, "Thursday_1_January_1970_0:0:0_UTC"),
    ],
)
def test_labels_build_date_is_apptainers(created: int, text: str) -> None:
    assert format_build_date(created) == text


def test_labels_record_the_source() -> None:
    config = ImageConfig(Platform("arm64"), labels={"z": "1", "org.label-schema.build-arch": "lie"})
    labels = make_labels(config, RECORD)
    assert labels["org.label-schema.build-arch"] == "arm64"
    assert labels["org.opencontainers.image.base.name"] == "docker.io/library/x:1"
    assert labels["org.opencontainers.image.base.digest"] == str(Digest.of(b"m"))
    assert labels["org.label-schema.usage.singularity.deffile.from"] == "docker.io/library/x:1"
    assert labels["z"] == "1"
    assert list(labels) == sorted(labels)


def test_labels_text_is_go_json_with_tabs() -> None:
    text = '{\n\t"a\\u003c\\u0026\\u003e": "é\\u2028",\n\t"b": "x\\ny"\n}'
    assert render_labels({"b": "x\ny", "a<&>": "é\u2028"}) == text


def test_go_json_is_compact_and_escapes_for_web_pages() -> None:
    assert encode_json({"a": ["<b>&", 1, None, True]}) == '{"a":["\\u003cb\\u003e\\u0026",1,null,true]}'


def test_describe_gives_documents_without_a_tree() -> None:
    raw = {
        "architecture": "arm64",
        "config": {"Env": ["A=1", "2=x"], "Cmd": ["sh"], "WorkingDir": "/w", "X": {"b": 1, "a": 2}},
    }
    record = describe(parse_config(json.dumps(raw).encode()), RECORD)
    assert record.definition == b"bootstrap: docker\nfrom: docker.io/library/x:1\n\n"
    assert record.oci_config == b'{"Cmd":["sh"],"Env":["A=1","2=x"],"WorkingDir":"/w","X":{"a":2,"b":1}}'
    attributes = json.loads(record.inspect_metadata)["data"]["attributes"]
    assert list(attributes) == ["environment", "labels", "runscript", "deffile", "startscript"]
    assert attributes["startscript"] == "#!/bin/sh"
    assert len(record.warnings) == 1


def test_describe_without_config_has_no_oci_object() -> None:
    assert describe(parse_config(b'{"architecture":"amd64","config":{}}'), RECORD).oci_config is None


def test_describe_survives_half_surrogates() -> None:
    raw = b'{"architecture":"arm64","config":{"Env":["A=\\ud800x"],"Cmd":["\\udfff"],"Labels":{"\\ud800":"\\ud83d"}}}'
    record = describe(parse_config(raw), RECORD)
    json.loads(record.inspect_metadata.decode("utf-8"))


# ---- the tree


def folder(**children: Node) -> Node:
    node = Node(NodeKind.DIRECTORY, 0o700, 5, 5, 9)
    node.children.update({name.replace("DOT", ".").encode(): child for name, child in children.items()})
    return node


def file(data: bytes = b"old") -> Node:
    node = Node(NodeKind.FILE, 0o600)
    node.content, node.size = data, len(data)
    return node


def symlink(target: str) -> Node:
    node = Node(NodeKind.SYMLINK, 0o777)
    node.target = target.encode()
    return node


def decorated(root: Node, config: ImageConfig | None = None) -> dict[bytes, Node]:
    decorate(root, MemorySink(), config or ImageConfig(Platform("arm64")), RECORD)
    return dict(walk(root))


def test_decorate_empty_tree_gets_all_of_apptainers_files() -> None:
    paths = decorated(folder())
    assert {path.decode() for path in paths} == set(
        [
            *(".exec", ".run", ".shell", ".test", "dev", "environment", "etc", "etc/hosts", "etc/resolv.conf"),
            *("home", "proc", "root", "singularity", "sys", "tmp", "var", "var/tmp", ".singularity.d"),
            *(".singularity.d/Singularity", ".singularity.d/labels.json", ".singularity.d/libs"),
            *(".singularity.d/runscript", ".singularity.d/startscript", ".singularity.d/env"),
            *(".singularity.d/env/01-base.sh", ".singularity.d/env/10-docker2singularity.sh"),
            *(".singularity.d/env/90-environment.sh", ".singularity.d/env/94-appsbase.sh"),
            *(".singularity.d/env/95-apps.sh", ".singularity.d/env/99-base.sh"),
            *(".singularity.d/env/99-runtimevars.sh", ".singularity.d/actions", ".singularity.d/actions/exec"),
            *(".singularity.d/actions/run", ".singularity.d/actions/shell", ".singularity.d/actions/start"),
            ".singularity.d/actions/test",
        ]
    )
    for path, node in paths.items():
        assert (node.uid, node.gid, node.mtime) == (0, 0, RECORD.created), path
        if node.kind is NodeKind.DIRECTORY:
            assert node.mode == 0o755
    assert paths[b".singularity.d/runscript"].mode == 0o755
    assert paths[b".singularity.d/labels.json"].mode == 0o644
    assert paths[b"environment"].target == b".singularity.d/env/90-environment.sh"
    assert paths[b"etc/hosts"].size == 0
    assert paths[b".singularity.d/env/94-appsbase.sh"].content is None


def test_decorate_leaves_what_the_image_has() -> None:
    root = folder(tmp=folder(), var=folder(tmp=symlink("/nowhere")), singularity=file(), environment=symlink("/wrong"))
    paths = decorated(root)
    assert paths[b"tmp"].mode == 0o700
    assert paths[b"var/tmp"].target == b"/nowhere"
    assert paths[b"singularity"].content == b"old"
    assert paths[b"environment"].target == b".singularity.d/env/90-environment.sh"
    assert b"nowhere" not in paths


def test_decorate_lets_every_user_read_its_folders() -> None:
    """A directory that the image kept for root would stop `apptainer run` of everybody else."""
    kept = folder(env=folder())
    kept.mode = kept.children[b"env"].mode = 0o700
    root = folder()
    root.children[b".singularity.d"] = kept
    paths = decorated(root)
    assert [oct(paths[name].mode) for name in (b".singularity.d", b".singularity.d/env")] == ["0o755", "0o755"]


def test_decorate_replaces_links_instead_of_writing_through_them() -> None:
    etc = folder(**{"hosts": symlink("/etc/passwd")})
    etc.children[b"resolv.conf"] = symlink("../run/systemd/resolve/stub-resolv.conf")
    etc.children[b"passwd"] = file(b"root")
    paths = decorated(folder(etc=etc))
    assert paths[b"etc/passwd"].content == b"root"
    assert (paths[b"etc/hosts"].kind, paths[b"etc/hosts"].size) == (NodeKind.FILE, 0)
    assert paths[b"etc/resolv.conf"].kind is NodeKind.FILE


def test_decorate_does_not_change_other_names_of_a_file() -> None:
    shared = file(b"hosts of the image")
    etc = folder(hosts=shared, copy=shared)
    paths = decorated(folder(etc=etc))
    assert paths[b"etc/copy"].content == b"hosts of the image"
    assert paths[b"etc/hosts"].size == 0


def test_decorate_follows_folders_that_are_links_inside_the_root() -> None:
    root = folder(usr=folder(etc=folder()), etc=symlink("usr/etc"), opt=folder())
    root.children[b".singularity.d"] = symlink("../../opt/deep/er")
    paths = decorated(root)
    assert b"usr/etc/hosts" in paths
    assert b"opt/deep/er/runscript" in paths
    assert b"opt/deep/er/libs" in paths
    assert paths[b".singularity.d"].kind is NodeKind.SYMLINK


@each_row("in_the_way", [file(), symlink(".singularity.d"), symlink("/bin/sh"), symlink("a")])
def test_decorate_replaces_what_is_in_the_way(in_the_way: Node) -> None:
    root = folder(bin=folder(sh=file(b"shell")), a=symlink("b"), b=symlink("a"))
    root.children[b".singularity.d"] = in_the_way
    record = decorate(root, MemorySink(), ImageConfig(Platform("arm64")), RECORD)
    paths = dict(walk(root))
    assert paths[b"bin/sh"].content == b"shell"
    assert paths[b".singularity.d/runscript"].kind is NodeKind.FILE
    assert paths[b".singularity.d/libs"].kind is NodeKind.DIRECTORY
    assert any(".singularity.d" in warning for warning in record.warnings)


def test_decorate_file_named_etc_becomes_a_folder() -> None:
    paths = decorated(folder(etc=file(), dev=file()))
    assert paths[b"etc/hosts"].kind is NodeKind.FILE
    assert paths[b"dev"].kind is NodeKind.DIRECTORY


def test_decorate_env_blocked_behind_a_link_still_gives_all_folders() -> None:
    root = folder(opt=folder(env=file()))
    root.children[b".singularity.d"] = symlink("opt")
    paths = decorated(root)
    for name in (b"libs", b"actions/exec", b"env/99-base.sh"):
        assert find(root, b".singularity.d/" + name) is not None, name
    assert paths[b"opt/env"].content == b"old"


# ---- the fixed scripts


def make_root(tmp_path: Path) -> Path:
    """The scripts with every /.singularity.d and /scif replaced by a directory of this test."""
    for name, text in {**fixed_files.ACTIONS, **fixed_files.ENVIRONMENT}.items():
        kind = "actions" if name in fixed_files.ACTIONS else "env"
        target = tmp_path / ".singularity.d" / kind / name
        target.parent.mkdir(parents=True, exist_ok=True)
        for place in ("/.singularity.d", "/scif/apps"):
            text = text.replace(place, f"{tmp_path}{place}")
        target.write_text(text)
        target.chmod(0o755)
    return tmp_path


@each_row("shell", SHELLS)
def test_actions_exec_sources_environment(shell: str, tmp_path: Path) -> None:
    root = make_root(tmp_path)
    (root / ".singularity.d/env/90-environment.sh").write_text("export FOO='from image'\n")
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/x", "SING_USER_DEFINED_PREPEND_PATH": "/first"}
    script = root / ".singularity.d/actions/exec"
    done = subprocess.run([shell, str(script), "env"], capture_output=True, env=environment, check=True, text=True)
    lines = done.stdout.splitlines()
    assert "FOO=from image" in lines
    assert f"LD_LIBRARY_PATH=/x:{root}/.singularity.d/libs" in lines
    assert "PATH=/first:/usr/bin:/bin" in lines
    assert any(line.startswith("PS1=") for line in lines)
    assert not any(line.startswith("SING_USER_DEFINED") for line in lines)


@each_row("shell", SHELLS)
@each_row(("action", "script"), [("run", "runscript"), ("test", "test"), ("start", "startscript")])
def test_actions_start_their_script(shell: str, action: str, script: str, tmp_path: Path) -> None:
    root = make_root(tmp_path)
    target = root / ".singularity.d" / script
    target.write_text('#!/bin/sh\necho "got $*"\n')
    target.chmod(0o755)
    argv = [shell, str(root / ".singularity.d/actions" / action), "a", "b"]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    assert done.stdout == "got a b\n"


@each_row("shell", SHELLS)
def test_actions_run_prefers_the_app(shell: str, tmp_path: Path) -> None:
    root = make_root(tmp_path)
    app = root / "scif/apps/foo"
    for name in ("scif/env", "bin"):
        (app / name).mkdir(parents=True, exist_ok=True)
    (app / "scif/env/90-environment.sh").write_text("export APPVAR=yes\n")
    (app / "scif/runscript").write_text('#!/bin/sh\necho "$APPVAR $SCIF_APPROOT"\n')
    (app / "scif/runscript").chmod(0o755)
    argv = [shell, str(root / ".singularity.d/actions/run")]
    environment = {"PATH": "/usr/bin:/bin", "SINGULARITY_APPNAME": "foo"}
    done = subprocess.run(argv, capture_output=True, check=True, text=True, env=environment)
    assert done.stdout == f"yes {app}\n"
    environment["SINGULARITY_APPNAME"] = "nope"
    assert subprocess.run(argv, capture_output=True, check=False, env=environment).returncode == 1


@each_row("shell", SHELLS)
def test_actions_shell_runs_a_shell(shell: str, tmp_path: Path) -> None:
    script = make_root(tmp_path) / ".singularity.d/actions/shell"
    done = subprocess.run([shell, str(script), "-c", "echo $SHELL"], capture_output=True, check=True, text=True)
    assert done.stdout in ("/bin/bash\n", "/bin/sh\n")


@each_row(
    ("said", "recipe", "build"),
    [
        ({"note": {"kedge": "1"}, "recipe": "FROM a\n"}, "FROM a\n", {"kedge": "1"}),
        ({"note": {"kedge": "1"}}, "", {"kedge": "1"}),
        ({"note": ["x"], "recipe": 7}, "", {}),
        ("x", "", {}),
        (None, "", {}),
        ({"note": {"a": "\ud800"}, "recipe": "\ud800"}, "\ufffd", {"a": "\ufffd"}),
    ],
)
def test_what_a_config_says_of_its_build_is_read_warily(said: object, recipe: str, build: dict[str, str]) -> None:
    record = SourceRecord("docker", "a", None, Platform("arm64"), 0)
    config = ImageConfig(Platform("arm64"), document={"kedge.build.v1": said})
    report = report_config(config, add_build(record, config))
    assert report.build == build
    assert report.deffile == (recipe.rstrip("\n") or "bootstrap: docker\nfrom: a")


def test_a_recipe_that_is_too_long_for_a_config_is_left_out() -> None:
    assert write_build("x" * (1 << 20), {"kedge": "1"}) == {"note": {"kedge": "1"}}
