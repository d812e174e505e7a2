# SPDX-License-Identifier: BSD-3-Clause
"""The archive of modules: in a small package that has kedge's name, each time in a new interpreter."""

from __future__ import annotations

import compileall
import marshal
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kedge import lean_code, module_archive
from tests.requirements import open_way, require_program

CHANGED = 1_700_000_000  # long ago: sources that changed just now are not archived
LOOK = """
from kedge.module_archive import load_together, serve_modules
serve_modules()
load_together()
import kedge.part, kedge.room.deep, kedge.rare
for each in (kedge.part, kedge.room, kedge.room.deep, kedge.rare):
    print(each.VALUE, type(each.__loader__).__name__)
"""
ONE_BY_ONE = LOOK.replace("load_together()\n", "")
ARCHIVED = "ArchivedModule"
PLAIN = "SourceFileLoader"


class Package:
    """A package with three modules, of which the archive has all; `look` is a start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "kedge"
        (self.package / "room").mkdir(parents=True)
        for module in (module_archive, lean_code):
            shutil.copy(module.__file__, self.package)
        (self.package / "__init__.py").write_text("")
        (self.package / "late_functions.py").write_text(
            "LATE = {'kedge.part': ('fail',), 'kedge.room.deep': ('fail',)}\n"
        )
        self.list_modules(start=((), ("kedge.part", "kedge.room", "kedge.room.deep"), ("kedge.rare",)))
        for name in ("part", "room/__init__", "room/deep", "rare"):
            self.write(name, "one")

    def list_modules(self, **archives: tuple[tuple[str, ...], ...]) -> None:
        """Say which modules there are in which archive."""
        path = self.package / "start_modules.py"
        changed = path.stat().st_mtime - 60 if path.exists() else CHANGED  # Python's bytecode of it is of another time
        path.write_text(f"ARCHIVES = {archives!r}\n")
        os.utime(path, (changed, changed))

    def write(self, name: str, value: str, changed: float = CHANGED) -> None:
        """Change a source in place."""
        path = self.package / f"{name}.py"
        path.write_text(f"VALUE = {value!r}\n\n\ndef fail():\n    raise ValueError(VALUE)\n")
        os.utime(path, (changed, changed))

    @property
    def archive(self) -> Path:
        return self.package / "__pycache__" / f"start.{sys.implementation.cache_tag}.modules"

    def start(self, code: str = LOOK, *flags: str, prefix: tuple[str, ...] = (), **variables: str) -> list[str]:
        """What a new interpreter prints; it must have no complaint."""
        done = subprocess.run(
            [*prefix, sys.executable, *flags, "-c", code],
            env={"PYTHONPATH": str(self.folder), "PATH": "/usr/bin:/bin", **variables},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def values(self, code: str = LOOK, **named: str) -> list[str]:
        return [line.split()[0] for line in self.start(code, **named)]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path / "place")


def test_archive_is_written_once_and_serves_all(package: Package) -> None:
    assert package.start() == [f"one {ARCHIVED}"] * 4
    first = package.archive.stat()
    assert package.start() == [f"one {ARCHIVED}"] * 4
    assert package.archive.stat().st_ino == first.st_ino, "written again"
    assert first.st_mode & 0o133 == 0
    assert [path.name for path in package.archive.parent.glob("start.*")] == [package.archive.name]


def test_archive_opens_no_other_file(package: Package, tmp_path: Path) -> None:
    package.start()
    trace = tmp_path / "trace"
    strace = (require_program("strace"), "-f", "-qq", "-e", "trace=openat,open", "-o", str(trace))
    package.start(LOOK.split(", kedge.rare", maxsplit=1)[0], prefix=strace)
    opened = [line.split('"')[1] for line in trace.read_text().splitlines() if f'"{package.package}/' in line]
    assert [Path(each).name.split(".")[0] for each in opened] == ["__init__", "module_archive", "start"]


@pytest.mark.parametrize("name", ["part", "room/__init__", "room/deep", "rare"])
@pytest.mark.parametrize(
    ("value", "changed"),
    [
        ("two", CHANGED + 60),
        ("two", CHANGED - 60),
        ("two", CHANGED + 1.5),
        ("longer", CHANGED),
        ("longer", CHANGED + 7),
    ],
)
def test_archive_never_serves_a_changed_source(package: Package, name: str, value: str, changed: float) -> None:
    package.start()
    package.write(name, value, changed)
    index = ["part", "room/__init__", "room/deep", "rare"].index(name)
    wanted = ["one"] * 4
    wanted[index] = value
    assert package.values() == wanted
    assert package.start() == [f"{each} {ARCHIVED}" for each in wanted], "not written anew"
    assert package.start(ONE_BY_ONE) == [f"{each} {ARCHIVED}" for each in wanted]


def test_archive_never_serves_a_changed_source_that_it_cannot_replace(package: Package) -> None:
    package.start()
    package.write("part", "two", CHANGED + 60)
    for code in (LOOK, ONE_BY_ONE):
        found = package.start(code, PYTHONDONTWRITEBYTECODE="1")
        assert found == [f"two {PLAIN}", *[f"one {ARCHIVED}"] * 3]


@pytest.mark.parametrize("later", [0, 60.5])
def test_archive_does_not_keep_what_may_change_unseen(package: Package, later: float) -> None:
    """A source of this second, by a clock of whole seconds, or of a clock that is ahead of this one."""
    package.write("part", "two", changed=int(time.time()) + later)
    assert package.values() == ["two", "one", "one", "one"]
    assert not package.archive.exists()


def test_archive_has_what_was_installed_a_moment_ago(package: Package) -> None:
    package.write("part", "two", changed=time.time() - 0.2)
    assert package.values() == ["two", "one", "one", "one"]
    assert package.archive.exists()


def test_archive_is_of_the_source_not_of_older_bytecode(package: Package) -> None:
    """Python takes its bytecode for right when the source has another text of the same size in the same second."""
    package.start(LOOK, "-X", f"pycache_prefix={package.folder}/elsewhere")
    package.write("part", "bad", CHANGED + 0.2)
    package.start("import kedge.part")
    package.write("part", "two", CHANGED + 0.7)
    assert package.start("import kedge.part; print(kedge.part.VALUE)") == ["bad"], "then this Python counts better"
    assert package.start() == [f"two {ARCHIVED}", *[f"one {ARCHIVED}"] * 3]


def test_archive_without_a_source_is_python_s_error(package: Package) -> None:
    package.start()
    (package.package / "rare.py").unlink()
    code = LOOK.replace("import kedge.part, kedge.room.deep, kedge.rare", "import kedge.part\ntry: import kedge.rare")
    code = code.split("for each")[0] + "except ModuleNotFoundError as problem: print(problem)\n"
    assert package.start(code) == ["No module named 'kedge.rare'"]


def test_archive_survives_damage_at_every_place(package: Package) -> None:
    package.start()
    whole = package.archive.read_bytes()
    for place in [*range(0, 40, 3), *range(40, len(whole), 401)]:
        package.archive.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        for code in (LOOK, ONE_BY_ONE):  # each reads what the other does not
            assert package.values(code) == ["one"] * 4, f"byte {place}"
        assert package.archive.read_bytes() == whole, f"byte {place} was not mended"


def test_archive_survives_being_cut_short(package: Package) -> None:
    package.start()
    whole = package.archive.read_bytes()
    for size in [0, 1, 15, 16, 20, 35, 36, 37, 100, len(whole) // 2, len(whole) - 1]:
        package.archive.write_bytes(whole[:size])
        assert package.values() == ["one"] * 4, f"{size} bytes"
        assert package.archive.read_bytes() == whole, f"{size} bytes were not mended"


def test_archive_of_another_python_is_replaced(package: Package) -> None:
    package.start()
    whole = package.archive.read_bytes()
    package.archive.write_bytes(whole[:16] + b"\x01\x02\r\n" + whole[20:])
    assert package.start() == [f"one {ARCHIVED}"] * 4
    assert package.archive.read_bytes() == whole


def poison(package: Package) -> None:
    """An archive that is right in all but its contents."""
    package.write("part", "bad")
    package.start()
    package.write("part", "one")  # the same size and time: it counts as the archive's
    assert package.values()[0] == "bad", "the archive is not looked at"


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o777])
def test_archive_that_others_may_write_is_not_run(package: Package, mode: int) -> None:
    poison(package)
    package.archive.chmod(mode)
    assert package.start() == [f"one {ARCHIVED}"] * 4
    assert package.archive.stat().st_mode & 0o022 == 0


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give files away")
def test_archive_of_somebody_else_is_not_run(package: Package) -> None:
    poison(package)
    os.chown(package.archive, 1508, 1508)
    assert package.start() == [f"one {ARCHIVED}"] * 4
    assert package.archive.stat().st_uid == 0


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "device"])
def test_archive_that_is_no_file_is_not_read(package: Package, kind: str, tmp_path: Path) -> None:
    poison(package)
    if kind == "link":
        package.archive.rename(tmp_path / "kept")
        package.archive.symlink_to(tmp_path / "kept")
    else:
        package.archive.unlink()
    if kind == "pipe":
        os.mkfifo(package.archive)
    elif kind == "directory":
        package.archive.mkdir()
    elif kind == "device":
        package.archive.symlink_to("/dev/zero")
    assert package.values() == ["one"] * 4


def test_archive_obeys_the_switches_of_bytecode(package: Package, tmp_path: Path) -> None:
    assert package.start(LOOK, "-B") == [f"one {PLAIN}"] * 4
    assert package.start(PYTHONDONTWRITEBYTECODE="1") == [f"one {PLAIN}"] * 4
    assert not package.archive.exists()
    prefix = tmp_path / "elsewhere"
    assert package.start(PYTHONPYCACHEPREFIX=str(prefix)) == [f"one {ARCHIVED}"] * 4
    assert not package.archive.exists()
    assert (Path(f"{prefix}{package.archive.parent}".replace("/__pycache__", "")) / package.archive.name).exists()
    assert package.start() == [f"one {ARCHIVED}"] * 4
    assert package.start(LOOK, "-B") == [f"one {ARCHIVED}"] * 4
    package.start(LOOK, "-O")
    assert package.archive.with_suffix(".opt-1.modules").exists(), "code without asserts is another archive"


def test_archive_that_cannot_be_written_serves_this_start(package: Package) -> None:
    """A quota or a full disk: the limit lets 100 bytes of a file be written.

    Python's own bytecode is there: it would be cut short, and Python does not notice.
    """
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(package.package)], check=True)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    assert package.start(limit + LOOK) == [f"one {ARCHIVED}"] * 4
    assert list(package.package.rglob("start.*")) == []
    assert package.start() == [f"one {ARCHIVED}"] * 4


def test_archive_is_written_by_many_at_once(package: Package) -> None:
    words = [sys.executable, "-c", LOOK]
    environment = {"PYTHONPATH": str(package.folder), "PATH": "/usr/bin:/bin"}
    running = [
        subprocess.Popen(words, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(8)
    ]
    for each in running:
        assert each.communicate(timeout=60)[0].splitlines() == [f"one {ARCHIVED}"] * 4
    assert [path.name for path in package.archive.parent.glob("start.*")] == [package.archive.name]
    assert package.start() == [f"one {ARCHIVED}"] * 4


def test_archive_replaced_while_it_is_read_mixes_nothing(package: Package) -> None:
    package.start()
    code = LOOK.replace(", kedge.rare\n", "\nimport change\nimport kedge.rare\n").replace(
        "import change", f"import os; os.truncate({str(package.archive)!r}, 50)"
    )
    assert [line.split()[0] for line in package.start(code)] == ["one"] * 4


def test_archive_moves_with_its_package(package: Package, tmp_path: Path) -> None:
    package.start()
    moved = tmp_path / "moved"
    package.folder.rename(moved)
    package.folder, package.package = moved, moved / "kedge"
    show = "import sys, traceback\ntry: kedge.part.fail()\nexcept ValueError: traceback.print_exc(file=sys.stdout)"
    lines = package.start(LOOK + show)
    assert lines[:4] == [f"one {ARCHIVED}"] * 4
    assert f'  File "{moved}/kedge/part.py", line 5, in fail' in lines
    assert "    raise ValueError(VALUE)" in lines


def test_archive_modules_are_like_others(package: Package) -> None:
    package.start()
    code = LOOK.split("for each", maxsplit=1)[0] + (
        "import importlib, inspect\n"
        "print(kedge.part.__file__, kedge.part.__spec__.cached, kedge.room.__path__, kedge.room.deep.__package__)\n"
        "print(inspect.getsource(kedge.part).splitlines()[0], importlib.reload(kedge.part).VALUE)\n"
    )
    folder = package.package
    cached = folder / f"__pycache__/part.{sys.implementation.cache_tag}.pyc"
    assert package.start(code) == [
        f"{folder}/part.py {cached} ['{folder}/room'] kedge.room",
        "VALUE = 'one' one",
    ]


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_archive_of_root_serves_users_who_cannot_write_it(package: Package) -> None:
    open_way(package.folder)
    user = (require_program("setpriv"), "--reuid", "1507", "--regid", "1507", "--clear-groups")
    assert package.start(prefix=user) == [f"one {PLAIN}"] * 4
    assert not list(package.package.rglob("start.*"))
    package.start()
    assert package.start(prefix=user) == [f"one {ARCHIVED}"] * 4
    package.write("part", "two", CHANGED + 60)
    assert package.start(prefix=user) == [f"two {PLAIN}", *[f"one {ARCHIVED}"] * 3]


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_archive_is_not_written_by_a_guest(package: Package) -> None:
    """In a directory that a group may write to, one that others would have to ignore is no help."""
    open_way(package.folder)
    package.values(PYTHONDONTWRITEBYTECODE="1")
    (package.package / "__pycache__").mkdir(exist_ok=True)
    (package.package / "__pycache__").chmod(0o777)
    user = (require_program("setpriv"), "--reuid", "1507", "--regid", "1507", "--clear-groups")
    assert package.start(prefix=user) == [f"one {PLAIN}"] * 4
    assert not list(package.package.rglob("start.*"))


def pack_unchecked(package: Package, value: str, suffix: str) -> bytes:
    """An archive whose modules are not compared with any file."""
    modules = []
    for name, path in (("part", "part"), ("room", "room/__init__"), ("room.deep", "room/deep"), ("rare", "rare")):
        code = compile(f"VALUE = {value!r}\n", f"kedge/{path}.py", "exec")
        modules.append((f"kedge.{name}", f"/{path}{suffix}", marshal.dumps(code), 0, module_archive.UNCHECKED))
    return module_archive.pack_archive(modules, ["kedge.part"], ["kedge.room", "kedge.room.deep"], {})


def test_archive_of_a_bundle_needs_no_source(package: Package) -> None:
    compileall.compile_dir(package.package, quiet=1, legacy=True)
    for path in package.package.rglob("*.py"):
        path.unlink()
    archive = package.package / "start.modules"
    assert package.start() == ["one SourcelessFileLoader"] * 4
    assert not archive.exists(), "nothing to compile"
    archive.write_bytes(pack_unchecked(package, "two", ".pyc"))
    assert package.start() == [f"two {ARCHIVED}"] * 4
    code = (
        LOOK.split("for each", maxsplit=1)[0] + "print(kedge.room.deep.__file__, kedge.part.__loader__.get_source(''))"
    )
    assert package.start(code) == [f"{package.package}/room/deep.pyc None"]
    archive.write_bytes(archive.read_bytes()[:-1])
    assert package.values() == ["two", "two", "two", "one"]


def test_archive_is_compared_where_there_are_sources(package: Package) -> None:
    package.start()
    package.archive.write_bytes(pack_unchecked(package, "two", ".py"))
    assert package.start() == [f"one {ARCHIVED}"] * 4


def test_modules_loaded_together_are_run_once_each_in_their_order(package: Package) -> None:
    for name, text in (
        ("part", "from kedge.room.deep import VALUE\n"),
        ("room/deep", "from kedge.room import VALUE\nprint('deep is run')\n"),
    ):
        (package.package / f"{name}.py").write_text(text)
        os.utime(package.package / f"{name}.py", (CHANGED, CHANGED))
    wanted = ["deep is run", *[f"one {ARCHIVED}"] * 4]
    assert package.start() == wanted, "written"
    assert package.start() == wanted, "read; the order of the list is not that of the imports"
    package.list_modules(start=((), ("kedge.room", "kedge.room.deep", "kedge.part"), ("kedge.rare",)))
    package.archive.unlink()
    package.start()
    count = (
        "import kedge.module_archive as archive\nfind = archive.ModuleArchive.find_spec\nasked = []\n"
        "archive.ModuleArchive.find_spec = lambda self, name, *rest: asked.append(name) or find(self, name, *rest)\n"
    )
    assert package.start(count + LOOK + "print(*asked)")[-1] == "kedge.rare"


def test_a_module_that_fails_to_load_fails_as_any_other(package: Package) -> None:
    (package.package / "part.py").write_text("import nowhere\n")
    os.utime(package.package / "part.py", (CHANGED, CHANGED))
    code = LOOK.split("load_together()\nimport", maxsplit=1)[0] + (
        "try: load_together()\nexcept ModuleNotFoundError as problem: print(problem)\n"
        "import sys; print('kedge.part' in sys.modules)\n"
    )
    for _ in range(2):
        assert package.start(code) == ["No module named 'nowhere'", "False"]


def test_modules_are_imported_one_by_one_where_python_is_asked_what_each_costs(package: Package) -> None:
    package.start()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", LOOK],
        env={"PYTHONPATH": str(package.folder), "PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "kedge.room.deep" in done.stderr


OF_A_VERB = LOOK.replace("serve_modules()\nload_together()", "serve_modules('verb')\nload_together('verb')")


@pytest.fixture
def with_verb(package: Package) -> Package:
    """A verb has an archive of its own, with a package behind its module: it is imported before its turn."""
    package.list_modules(
        start=((), ("kedge.part",), ()), verb=((), ("kedge.part", "kedge.room", "kedge.room.deep", "kedge.rare"), ())
    )
    return package


def find_verbs(package: Package) -> Path:
    return package.archive.with_name(package.archive.name.replace("start.", "verb."))


def test_archive_of_a_verb_is_a_file_of_its_own(with_verb: Package) -> None:
    assert with_verb.start(OF_A_VERB) == [f"one {ARCHIVED}"] * 4
    assert find_verbs(with_verb).exists()
    assert not with_verb.archive.exists()
    assert with_verb.start(OF_A_VERB) == [f"one {ARCHIVED}"] * 4


def test_archives_of_verbs_are_written_with_that_of_starts(with_verb: Package) -> None:
    with_verb.start()
    before = find_verbs(with_verb).stat().st_ino
    assert with_verb.start(OF_A_VERB) == [f"one {ARCHIVED}"] * 4
    assert find_verbs(with_verb).stat().st_ino == before


def test_archive_of_a_verb_never_serves_a_changed_source(with_verb: Package) -> None:
    with_verb.start(OF_A_VERB)
    with_verb.write("room/deep", "two", CHANGED + 60)
    assert with_verb.values(OF_A_VERB) == ["one", "one", "two", "one"]
    with_verb.write("room/deep", "three", CHANGED + 120)
    lines = with_verb.start(OF_A_VERB, PYTHONDONTWRITEBYTECODE="1")  # it may not be written again
    assert lines == [f"one {PLAIN}", f"one {PLAIN}", f"three {PLAIN}", f"one {PLAIN}"]


def test_archive_of_a_verb_serves_what_is_imported_before_its_turn(with_verb: Package) -> None:
    early = with_verb.package / "part.py"
    early.write_text(f"import kedge.rare\n{early.read_text()}")
    os.utime(early, (CHANGED, CHANGED))
    assert with_verb.start(OF_A_VERB) == [f"one {ARCHIVED}"] * 4
    assert with_verb.start(OF_A_VERB) == [f"one {ARCHIVED}"] * 4


def test_archive_of_a_verb_that_is_damaged_is_written_again(with_verb: Package) -> None:
    with_verb.start(OF_A_VERB)
    path = find_verbs(with_verb)
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), 97):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        assert with_verb.values(OF_A_VERB) == ["one"] * 4
    path.write_bytes(data[: len(data) // 2])
    assert with_verb.start(OF_A_VERB) == [f"one {ARCHIVED}"] * 4


def test_a_module_is_not_loaded_before_its_package(package: Package) -> None:
    """Its package is in an archive that is not as it was: Python imports it, and then what is in it."""
    package.list_modules(start=((), ("kedge.part", "kedge.room"), ("kedge.rare",)), more=((), ("kedge.room.deep",), ()))
    more = "serve_modules('more')\nload_together('more')\n"
    code = LOOK.replace("load_together()\n", "load_together()\n" + more)
    package.start(code)
    assert package.start(code) == [f"one {ARCHIVED}"] * 4
    package.write("part", "two", CHANGED + 60)
    found = package.start(code, PYTHONDONTWRITEBYTECODE="1")
    assert [line.split()[0] for line in found] == ["two", "one", "one", "one"]


LATE = """
def fail(value="given", /, *more, by=3):
    if value == "given":
        raise ValueError(VALUE)
    return VALUE, value, more, by, help()


def help():
    return "helped"


class Other:
    call = fail


VALUE = "late"
"""


@pytest.fixture
def with_late(package: Package) -> Package:
    """A package whose function `fail` stays packed; `kedge.room` imports it before its turn."""
    for name, text in (("part", LATE.replace("class Other:\n    call = fail\n", "")), ("room/deep", LATE)):
        (package.package / f"{name}.py").write_text(text)
    (package.package / "room/__init__.py").write_text("from kedge.room.deep import fail\nVALUE = 'one'\n")
    for path in package.package.rglob("*.py"):
        os.utime(path, (CHANGED, CHANGED))
    package.start()
    return package


@pytest.mark.parametrize("module", ["part", "room.deep", "room"])
def test_late_functions_are_unpacked_when_they_are_called(with_late: Package, module: str) -> None:
    code = LOOK.split("for each", maxsplit=1)[0] + (
        f"from kedge.{module} import fail\n"
        f"kind = type(vars(kedge.{module})['fail']).__name__\n"
        f"print(fail('a', 'b', by=4), fail('a'), kind, fail.__name__)\n"
        f"import kedge.{module} as place\n"
        "print(place.fail is fail, place.fail('a')[0], {fail: 'found'}[place.fail])\n"
    )
    kind = "LateFunction"
    answer = "('late', 'a', ('b',), 4, 'helped') ('late', 'a', (), 3, 'helped')"
    assert with_late.start(code)[0] == f"{answer} {kind} fail"
    assert with_late.start(code)[1] == "True late found"


def test_late_functions_are_methods_where_a_class_has_them(with_late: Package) -> None:
    code = LOOK.split("for each", maxsplit=1)[0] + (
        "from kedge.room.deep import Other\nprint(Other().call()[1].__class__.__name__)\n"
    )
    assert with_late.start(code) == ["Other"]


def test_late_functions_need_no_file_once_modules_are_loaded(with_late: Package) -> None:
    """The root may be an image's by then."""
    code = LOOK.split("for each", maxsplit=1)[0] + (
        "import os\nplace = os.path.dirname(kedge.__file__)\nos.rename(place, place + '-gone')\n"
        "print(kedge.part.fail('a')[0])\n"
    )
    assert with_late.start(code) == ["late"]


def test_late_functions_keep_their_lines(with_late: Package) -> None:
    show = "import sys, traceback\ntry: kedge.part.fail()\nexcept ValueError: traceback.print_exc(file=sys.stdout)"
    lines = with_late.start(LOOK.split("for each", maxsplit=1)[0] + show)
    assert f'  File "{with_late.package}/part.py", line 4, in fail' in lines
    assert "    raise ValueError(VALUE)" in lines


def test_modules_are_whole_where_they_are_imported_one_by_one(with_late: Package) -> None:
    code = ONE_BY_ONE.split("for each", maxsplit=1)[0] + "print(type(vars(kedge.part)['fail']).__name__)\n"
    assert with_late.start(code) == ["function"]
