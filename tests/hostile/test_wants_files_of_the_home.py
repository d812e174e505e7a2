# SPDX-License-Identifier: BSD-3-Clause
"""A recipe wants files of the home of who builds it: by %files, by %setup, and by the context of a Dockerfile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from kedge.base.progress import Silent
from kedge.builds.copies.context import open_host_files
from kedge.builds.host_reach import HostReach
from kedge.errors import FileProblem, InvalidRecipe
from kedge.system.host.private_places import PrivatePlaces
from tests.builders.builds import SHELL, Workshop
from tests.builders.busybox import read_busybox
from tests.builders.containers import give_to
from tests.builders.rows import each_row
from tests.builders.strangers import KEY, KEY_FILE, find_key, make_base, plant_key
from tests.requirements import require_root
from tests.wording import assert_reads, assert_says

SECRETS = (
    *(".ssh/id_rsa", ".gnupg/key", ".aws/credentials", ".docker/config.json", ".netrc", ".config/ngc/config"),
    *(".ngc/config", ".config/kedge/config.toml", ".kube/config", ".config/gcloud/x.db", ".azure/token", ".pypirc"),
    *(".git-credentials", ".huggingface/token", ".cache/huggingface/token", ".apptainer/remote.yaml"),
    *(".singularity/docker-config.json", ".local/state/kedge/jobs/1/script.sh"),
)
PUBLIC = "what is no secret"


class Ground(NamedTuple):
    """A user with a key in the home, and a recipe of a stranger in a project beside it."""

    shop: Workshop
    home: Path
    project: Path

    def write(self, name: str, text: str, folder: Path | None = None) -> Path:
        path = (folder or self.project) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        give_to(self.shop.runner, folder or self.project)
        return path

    def define(self, text: str, folder: Path | None = None) -> Path:
        """A definition file."""
        return self.write("x.def", f"Bootstrap: localimage\nFrom: {self.shop.make_base()}\n{text}\n", folder)

    def build(self, recipe: Path, *words: str, start: Path | str = "") -> subprocess.CompletedProcess[str]:
        """Build it in a directory (the project's unless one is named); the key must be in nothing that comes of it."""
        target = self.project / "out"
        shutil.rmtree(target, ignore_errors=True)
        words = ("build", "--progress", "plain", *words, "--format", "sandbox", str(target), str(recipe))
        done = self.shop.runner.run(*words, cwd=start or self.project)
        assert KEY not in done.stdout + done.stderr
        assert not target.exists() or find_key(target) == []
        assert "bug" not in done.stderr
        return done


@pytest.fixture(name="ground")
def open_ground(shop: Workshop) -> Ground:
    plant_key(shop)
    project = shop.runner.folder / "project"
    project.mkdir()
    ground = Ground(shop, shop.runner.home, project)
    ground.write("data.txt", PUBLIC, shop.runner.home)
    ground.write("own.txt", PUBLIC)
    return ground


# -- %files

NAMED = (
    *("{home}/.ssh/id_ed25519", "{home}/.ssh", "{home}/./x/..//.ssh/", "../home/.ssh/id_ed25519"),
    *("/proc/self/root{home}/.ssh/id_ed25519", "/proc/self/cwd/keys/id_ed25519", "/proc/thread-self/root/{home}/.ssh"),
    *("key", "keys/id_ed25519", "chain", "{home}/.s[s]h/id_ed25519", "{home}/.ssh/*"),
    "{home}/{{.ssh,.ssh}}/id_ed25519",
)  # fmt: skip


def plant_links(ground: Ground) -> None:
    """Links of the project that lead to the key."""
    for name, target in (("key", ground.home / KEY_FILE), ("keys", ground.home / ".ssh"), ("chain", "keys/id_ed25519")):
        plant_link(ground, name, target)


def plant_link(ground: Ground, name: str, target: Path | str) -> None:
    """Once, where the rows of a test share the ground."""
    if not os.path.lexists(ground.project / name):
        (ground.project / name).symlink_to(target)


# A dry run judges the same names: links, wildcards, which it does not expand, and a name twice
@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["build", "dry-run"])
def test_files_names_a_key(ground: Ground, words: tuple[str, ...]) -> None:
    plant_links(ground)
    for source in NAMED[-6:] if words else NAMED:
        recipe = ground.define(f"%files\n    {source.format(home=ground.home)} /x\n")
        done = ground.build(recipe, *words)
        assert f"--context {ground.home}/.ssh" in done.stderr, source
        has_wildcard = "*" in source or "[" in source
        assert done.returncode == (0 if has_wildcard and words else 90), (source, done.stderr)
        assert has_wildcard or f"{recipe}:4:1: " in done.stderr, source


def test_tilde_and_variables_are_only_names(ground: Ground) -> None:
    for source in ("~/.ssh/id_ed25519", "$HOME/.ssh/id_ed25519", "${HOME}/.ssh/id_ed25519"):
        assert ground.build(ground.define(f"%files\n{source} /x\n"), start=ground.home).returncode == 90


@each_row(
    ("source", "start"),
    [("{home}", "project"), (".", "home"), ("./", "home"), ("*", "home"), ("{home}/.*", "project"),
     ("../home", "project"), ("all", "project"), ("{home}/.", "/"), ("data", "project"), ("{home}/*", "/tmp")],
)  # fmt: skip
def test_files_takes_a_directory_with_keys_in_it(ground: Ground, source: str, start: str) -> None:
    ground.write("data/data.txt", PUBLIC)
    for name, target in (("all", ""), ("data/0", ".ssh"), ("data/1", ".ssh/id_ed25519")):
        plant_link(ground, name, ground.home / target)
    folder = {"project": ground.project, "home": ground.home}.get(start, Path(start))
    done = ground.build(ground.define(f"%files\n    {source.format(home=ground.home)} /x\n"), start=folder)
    if source != "{home}/.*":  # names nothing else
        assert done.returncode == 0, done.stderr
        assert any(path.read_text() == PUBLIC for path in (ground.project / "out").rglob("data.txt"))
    assert f"left out {ground.home}/.ssh" in done.stderr


@each_row("way", ["files", "COPY"])
def test_all_places_of_secrets_are_left_out(ground: Ground, way: str) -> None:
    for name in SECRETS:
        ground.write(name, f"# {KEY}", ground.home)  # kedge reads its own
    ground.write(".config/other/settings", PUBLIC, ground.home)
    shutil.rmtree(ground.project / "out", ignore_errors=True)
    if way == "files":
        done = ground.build(ground.define(f"%files\n{ground.home} /x\n"))
    else:
        ground.write("Dockerfile", "FROM scratch\nCOPY . /x\n", ground.home)
        done = ground.shop.runner.run("build", "-o", f"type=local,dest={ground.project}/out", str(ground.home))
    assert done.returncode == 0, done.stderr
    assert find_key(ground.project / "out") == []
    assert (ground.project / "out/x/.config/other/settings").read_text() == PUBLIC
    assert done.stderr.count("left out ") == len(SECRETS), done.stderr


def test_secrets_that_lie_elsewhere(ground: Ground) -> None:
    """A link in place of ~/.ssh, and variables that name other places."""
    store = ground.project / "store"
    store.mkdir()
    for name in ("ssh", "kube", "auth.json", "kedge"):
        ground.write(f"store/{name}" if "." in name else f"store/{name}/file", KEY)
    shutil.rmtree(ground.home / ".ssh")
    (ground.home / ".ssh").symlink_to(store / "ssh")
    give_to(ground.shop.runner, ground.home)
    recipe = ground.define("%files\nstore /x\n")
    variables = {
        "KUBECONFIG": f"{store}/kube/file",
        "REGISTRY_AUTH_FILE": f"{store}/auth.json",
        "XDG_CONFIG_HOME": str(store),
        "XDG_RUNTIME_DIR": "/tmp",  # must not make all of it secret
    }
    words = ("build", "--format", "sandbox", str(ground.project / "out"), str(recipe))
    done = ground.shop.runner.run(*words, cwd=ground.project, env=variables)
    assert done.returncode == 0, done.stderr
    assert find_key(ground.project / "out") == []
    assert done.stderr.count("left out ") == 4


STAGES = """%files
{home}/.ssh/id_ed25519 /x
Bootstrap: localimage
From: {base}
Stage: last
%files from first
/x /y
"""
APP = "%appfiles one\n{home}/.ssh/id_ed25519 x\n"


@each_row("text", [STAGES, APP])
def test_other_sections_with_files(ground: Ground, text: str) -> None:
    whole = text.format(home=ground.home, base=ground.shop.make_base())
    recipe = ground.define(f"Stage: first\n{whole}" if text == STAGES else whole)
    done = ground.build(recipe)
    assert done.returncode == 90, done.stderr
    assert f"--context {ground.home}/.ssh" in done.stderr


def test_home_of_another_user(ground: Ground) -> None:
    """Root builds, or a neighbour left the door open: homes by the user database."""
    require_root()
    places = PrivatePlaces({"HOME": str(ground.home)})
    places._owners[ground.shop.runner.uid + 1] = str(ground.project / "neighbour")
    other = ground.write("neighbour/.ssh/id_ed25519", KEY).parents[1]
    assert not places.judge(f"{other}/.ssh/id_ed25519").secret
    os.chown(other, ground.shop.runner.uid + 1, -1)
    assert places.judge(f"{other}/.ssh/id_ed25519").secret == f"{other}/.ssh"
    assert_reads(places.explain_width(str(other)), "base/home-another-user")
    assert places.explain_width(str(ground.project)) == "it holds homes"


@pytest.mark.parametrize("moment", ["listing", "contents"])
def test_directory_is_exchanged_for_a_link_meanwhile(tmp_path: Path, moment: str) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/file").write_text(KEY)
    data = tmp_path / "project/data"
    data.mkdir(parents=True)
    os.link(home / ".ssh/file", data / "file")  # so that neither inode nor size tells them apart
    reach = HostReach(Silent(), PrivatePlaces({"HOME": str(home)}), str(tmp_path / "project"))
    origin = open_host_files(tmp_path / "project", reach)
    entries = origin.view.entries

    def exchange() -> None:
        data.rename(tmp_path / "elsewhere")
        data.symlink_to(home / ".ssh")

    def look(path: str) -> object:
        if path == str(data) and moment == "listing":
            origin.view._open(path)  # it is a directory
            exchange()
        return entries(path)

    origin.view.entries = look  # type: ignore[method-assign,assignment]
    if moment == "listing":
        with pytest.raises(FileProblem, match="/project/data changed while it was being read"):
            origin.read_tree(str(data), follows=True)
        return
    tree = origin.read_tree(str(data), follows=True)
    assert tree is not None
    exchange()
    with pytest.raises(FileProblem, match="/project/data/file changed while it was being read"):
        origin.digest_tree(tree)


# -- %setup and %pre

READ = """
    cat {home}/.ssh/id_ed25519 > $APPTAINER_ROOTFS/x 2>/dev/null || true
    cat {home}/.ssh/id_ed25519 || true
    find / -xdev -name id_ed25519 -exec cat {{}} + 2>/dev/null || true
    for place in /proc/[0-9]*/root{home} /proc/[0-9]*/cwd /proc/[0-9]*/fd/*; do
        cat $place/.ssh/id_ed25519 2>/dev/null || true
    done
    pwd > $APPTAINER_ROOTFS/where
"""


STARTS = ("home", "/", "/tmp", "/var/tmp", "/dev/shm", "above", "link", "project")


# Where %setup is shown what, %pre is, too: it has one start for each answer
@each_row("start,section", [*((start, "setup") for start in STARTS), ("home", "pre"), ("project", "pre")])
def test_script_wants_the_key(ground: Ground, start: str, section: str) -> None:
    plant_link(ground, "link", ground.home)
    link = ground.project / "link"
    folders = {"home": ground.home, "above": ground.home.parent, "link": link, "project": ground.project}
    folder = folders.get(start, Path(start))
    recipe = ground.define(f"%{section}\n{READ.format(home=ground.home)}")
    done = ground.build(recipe, start=folder)
    assert done.returncode == 0, done.stderr
    assert not (ground.project / "out/x").read_text()
    if section == "setup":
        assert (ground.project / "out/where").read_text() == f"{ground.project}\n"
    said = f"%{section} sees {ground.project}, not the current directory {os.path.realpath(folder)}: "
    assert (said in done.stderr) == (start != "project")


@each_row("start", ["home", "/", "/tmp"])
def test_script_without_a_directory_of_its_own_is_refused(ground: Ground, start: str) -> None:
    recipe = ground.define(f"%setup\n{READ.format(home=ground.home)}", ground.home)
    folder = ground.home if start == "home" else Path(start)
    for words in ((), ("--dry-run",)) if start == "home" else ((),):
        done = ground.build(recipe, *words, start=folder)
        assert done.returncode == 90, done.stderr
        assert_says(done.stderr, "build/setup-see-all", recipe, folder)
        assert f"mkdir recipe && mv {recipe} builds/ && cd recipe" in done.stderr
        assert "--context DIRECTORY" in done.stderr
    if start != "home":
        return  # what is allowed does not depend on where one stands
    done = ground.build(recipe, "--context", str(ground.home), start=folder)  # a whole home not even so
    assert done.returncode == 90, done.stderr
    done = ground.build(recipe, "--context", str(ground.project), start=folder)
    assert done.returncode == 0, done.stderr
    assert (ground.project / "out/where").read_text() == f"{ground.project}\n"


def test_script_in_a_directory_with_secrets(ground: Ground) -> None:
    for name in (".config/ngc/config", ".config/other", ".config/containers/auth.json"):
        ground.write(name, KEY if name != ".config/other" else PUBLIC, ground.home)
    recipe = ground.define(
        "%setup\n    find . -type f -exec cat {} + > $APPTAINER_ROOTFS/all; ls > $APPTAINER_ROOTFS/names\n"
    )
    done = ground.build(recipe, start=ground.home / ".config")
    assert done.returncode == 0, done.stderr
    assert (ground.project / "out/all").read_text() == PUBLIC
    for name in ("ngc", "containers/auth.json"):
        assert f"left out {ground.home}/.config/{name}" in done.stderr
    recipe = ground.define("%setup\n    cat id_ed25519\n", ground.home / ".ssh")
    done = ground.build(recipe, start=ground.home / ".ssh")
    assert done.returncode == 90, done.stderr
    assert "it holds secrets" in done.stderr


def test_post_sees_no_home(ground: Ground) -> None:
    text = READ.format(home=ground.home).replace("$APPTAINER_ROOTFS", "")
    done = ground.build(ground.define(f"%post\n{text}"), start=ground.home)
    assert done.returncode == 0, done.stderr
    other = ground.write("shown/file", PUBLIC)
    done = ground.build(
        ground.define(f"%post\n{text}\ncat /mnt/file /mnt/../{ground.home}/.ssh/id_ed25519 > /y || true\n"),
        *("--bind", f"{other.parent}:/mnt"),
    )
    assert done.returncode == 0, done.stderr
    assert (ground.project / "out/y").read_text() == PUBLIC


# -- --contained

OUTSIDE = (
    "{home}/data.txt",
    "../home/data.txt",
    "link",
    "folder",
    "{home}/*.txt",
    "/etc/hostname",
    "/proc/self/root/etc/hostname",
)


@each_row("source", OUTSIDE)
def test_contained_refuses_what_lies_outside(ground: Ground, source: str) -> None:
    (ground.project / "folder").mkdir(exist_ok=True)
    for name in ("link", "folder/inner"):
        plant_link(ground, name, ground.home / "data.txt")
    place = "/etc/hostname" if "etc" in source else f"{ground.home}/data.txt"
    text = f"%files\n{source.format(home=ground.home)} /x\n%setup\ntouch $APPTAINER_ROOTFS/ran\n"
    base = ground.shop.make_base()
    recipe = ground.define(text)
    is_first = source in (OUTSIDE[0], "folder")  # for others the same is allowed and said
    for words in (("--contained",), ("--contained", "--dry-run"))[: 1 + is_first]:
        done = ground.build(recipe, *words, "--context", str(base))
        assert done.returncode == 90, done.stderr
        assert_says(done.stderr, "build/contained-refuses-outside", recipe, place, ground.project)
        assert f"--context {place}" in done.stderr
        assert "%setup" not in done.stdout  # before the first step
    allowed = (("--contained", "--context", str(base), "--context", place), (), ("--contained", "--no-contained"))
    for options in allowed[: 3 * is_first]:
        done = ground.build(recipe, *options)
        assert done.returncode == 0, done.stderr
        assert (f"%files takes {place}" in done.stderr) == ("--context" not in options)


def test_contained_in_a_home_takes_nothing_of_it(ground: Ground) -> None:
    """A home is not a recipe's own directory, even where the recipe lies there."""
    recipe = ground.define("%files\ndata.txt /x\n", ground.home)
    allowed = ("--context", str(ground.shop.make_base()))
    done = ground.build(recipe, "--contained", *allowed, start=ground.home)
    assert done.returncode == 90, done.stderr
    assert "it is your home" in done.stderr
    done = ground.build(recipe, start=ground.home)
    assert done.returncode == 0, done.stderr
    assert f"{recipe}:4:1: %files takes {ground.home}/data.txt" in done.stderr


def test_contained_refuses_images_of_elsewhere_and_scripts_on_the_host(ground: Ground) -> None:
    done = ground.build(ground.define("%post\ntrue\n"), "--contained")
    assert done.returncode == 90, done.stderr
    assert f"--contained refuses {ground.shop.make_base()}: " in done.stderr
    done = ground.build(ground.define("%setup\ntrue\n"), "--contained", "--setup-on-host")
    assert done.returncode == 2, done.stderr


# -- contexts of Dockerfiles


def build_home(ground: Ground, recipe: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A Dockerfile whose context is the home."""
    (ground.home / "busybox").write_bytes(read_busybox())
    (ground.home / "busybox").chmod(0o755)
    ground.write("Dockerfile", recipe, ground.home)
    shutil.rmtree(ground.project / "out", ignore_errors=True)
    words = ("build", "--progress", "plain", *words, "-o", f"type=local,dest={ground.project}/out", str(ground.home))
    return ground.shop.runner.run(*words, cwd=ground.project)


DOCKERFILES = (
    "FROM scratch\nCOPY . /x\n",
    f"{SHELL}RUN --mount=type=bind,target=/m cat /m/.ssh/id_ed25519 > /x || true; cp /m/data.txt /y\n",
    "FROM scratch\nCOPY --parents ./**/* /x\n",
    "FROM scratch\nCOPY * /x/\n",
)


BACK = ("!.ssh\n!.ssh/**\n", "*\n!.ssh/id_ed25519\n!data.txt\n!busybox\n")


# Each way of taking a context, as it is; each file that wants to bring the keys back, with a copy or with a mount
@each_row("ignore,recipe", [*(("", recipe) for recipe in DOCKERFILES), *zip(BACK, DOCKERFILES, strict=False)])
def test_context_that_is_a_home_has_no_keys(ground: Ground, recipe: str, ignore: str) -> None:
    ground.write(".dockerignore", ignore, ground.home)
    done = build_home(ground, recipe)
    assert done.returncode == 0, done.stderr
    assert find_key(ground.project / "out") == []
    assert any(path.is_file() and path.read_bytes() == PUBLIC.encode() for path in (ground.project / "out").rglob("*"))
    assert f"left out {ground.home}/.ssh" in done.stderr


KEYS = (".ssh/id_ed25519", ".ssh", "link", "./x/../.ssh/id_ed25519")


# ONBUILD brings a step, which is then like any other
@each_row("source,way", [*((source, "recipe") for source in KEYS), (KEYS[0], "ONBUILD")])
def test_key_of_a_context_is_refused_by_name(ground: Ground, source: str, way: str) -> None:
    plant_link(ground, "../home/link", ".ssh/id_ed25519")
    step = f"COPY {source} /x"
    base = f"oci-archive:{ground.shop.context}/base.tar"
    recipe = f"FROM scratch\n{step}\n"
    if way == "ONBUILD":
        make_base(ground.shop, step)
        recipe = f"FROM {base}\nCOPY data.txt /y\n"
    done = build_home(ground, recipe)
    assert done.returncode == 90, done.stderr
    assert "holds secrets" in done.stderr
    assert not (ground.project / "out").exists()
    if source == KEYS[0]:  # the others would show that COPY copies
        done = build_home(ground, recipe, "--context", f"{ground.home}/.ssh")
        assert done.returncode == 0, done.stderr
        assert find_key(ground.project / "out")


# -- what must go on


def test_absolute_and_relative_names_work_and_are_named(ground: Ground) -> None:
    """Apptainer's meaning: relative names from the current directory, absolute ones, wildcards, links."""
    away = ground.write("set/a.bin", PUBLIC, ground.shop.runner.folder / "data").parent
    (ground.project / "link").symlink_to(away / "a.bin")
    lines = (
        f"own.txt\nown.txt /relative\n{away} /folder\n{away}/*.bin /glob/\nlink /link\n{ground.project}/own.txt /mine"
    )
    recipe = ground.define(f"%files\n{lines}\n%setup\ncp own.txt $APPTAINER_ROOTFS/setup\n")
    done = ground.build(recipe)
    assert done.returncode == 0, done.stderr
    for name in ("own.txt", "relative", "folder/a.bin", "glob/a.bin", "link", "mine", "setup"):
        assert (ground.project / "out" / name).read_text() == PUBLIC, name
    said = [line for line in done.stderr.splitlines() if "%files takes" in line]
    assert [line.partition(str(recipe))[2].split(",")[0] for line in said] == [
        f":6:1: %files takes {away}",
        f":7:1: %files takes {away}/a.bin (as {away}/*.bin)",
    ]
    assert done.stderr.index("%files takes") < done.stderr.index("%setup")
    shown = json.loads(ground.build(recipe, "--json", "--dry-run").stdout)["host"]
    assert [(item["line"], item["path"], item["state"]) for item in shown] == [
        (6, str(away), "taken"), (7, f"{away}/a.bin", "taken"),
    ]  # fmt: skip
    assert f"host     {away} (taken)" in ground.build(recipe, "--dry-run").stdout
    assert json.loads(ground.build(recipe, "--json").stdout)["host"] == shown


def test_recipe_elsewhere_has_its_own_directory_too(ground: Ground) -> None:
    recipe = ground.define(f"%files\n{ground.project}/own.txt /x\nhere.txt /y\n")
    there = ground.write("here.txt", PUBLIC, ground.shop.runner.folder / "there").parent
    done = ground.build(recipe, "--contained", "--context", str(ground.shop.make_base()), start=there)
    assert done.returncode == 0, done.stderr
    assert "%files takes" not in done.stderr


def test_key_is_copied_if_the_user_says_so(ground: Ground) -> None:
    recipe = ground.define(
        f"%files\n{ground.home}/.ssh/id_ed25519 /x\n%setup\ncat {ground.home}/.ssh/id_ed25519 > $APPTAINER_ROOTFS/y\n"
    )
    words = ("build", "--format", "sandbox", str(ground.project / "out"), str(recipe))
    done = ground.shop.runner.run(*words, "--context", f"{ground.home}/.ssh", cwd=ground.project)
    assert done.returncode == 0, done.stderr
    assert len(find_key(ground.project / "out")) == 2
    done = ground.build(recipe, "--context", str(ground.home))  # a home does not name what is in it
    assert done.returncode == 90, done.stderr
    done = ground.build(recipe, "--context", "nothing")
    assert done.returncode == 30, done.stderr


def test_files_that_a_script_on_the_host_makes(ground: Ground) -> None:
    recipe = ground.define("%setup\nmkdir -p made && echo 1 > made/file\n%files\nmade /x\n")
    done = ground.build(recipe, "--setup-on-host")
    assert done.returncode == 0, done.stderr
    assert (ground.project / "out/x/file").read_text() == "1\n"
    assert_says(done.stderr, "build/setup-runs-host-all-you")


def test_key_in_the_recipes_words_is_no_recipe(ground: Ground) -> None:
    reach = HostReach(Silent(), PrivatePlaces({"HOME": str(ground.home)}), str(ground.project))
    with pytest.raises(InvalidRecipe, match="holds secrets"):
        reach.require_admitted(f"{ground.home}/.ssh", "x")
