# SPDX-License-Identifier: BSD-3-Clause
"""After move.py and public.py: the edits by hand."""
import re, sys
from pathlib import Path
root=Path(sys.argv[1])
def sub(path,*pairs, must=True):
    p=root/path; t=p.read_text()
    for a,b in pairs:
        if a not in t:
            print("MISSING in",path,":",a[:80])
            continue
        t=t.replace(a,b)
    p.write_text(t)
# the architecture test
p=root/"tests/architecture/test_imports.py"; t=p.read_text()
head=t[:t.index("# From the top; parts of one row")]
owners=t[t.index("# Who may import what is not ours"):t.index("def part_of(")]
cycle=t[t.index("def test_imports_have_no_cycle"):]
head=head.replace("from collections import defaultdict\n","from collections import defaultdict\nfrom collections.abc import Iterator\n")
new=head+'''# The rooms from the top: each imports only what stands below it. docs/architecture.md tells them.
ROOMS = (
    "__main__",
    "cli",
    "",  # the package itself, which offers the calls of `api`
    "tools",
    "api",  # the verbs as typed functions
    "answers",
    "jobs",
    "launch",
    "builds",
    "container",
    "compat",
    "image",
    "cluster",
    "system",
    "base",
    "errors",
)
RANK = {room: index for index, room in enumerate(ROOMS)}
FILES = {"__main__", "", "api", "errors"}  # one module each; the others are packages with a list of what is public
# Parts of image/ that do not know each other: `image/pull.py` and its kind join them.
STRANGERS = ("registry", "store", "layers", "trust", "host_programs")

'''+owners+'''def room_of(module: str) -> str:
    """`image` for kedge.image.registry.client, the empty string for kedge itself."""
    return [*module.split("."), ""][1]


def imports_between_rooms() -> Iterator[tuple[str, str, str]]:
    """Who imports what of another room: the place, the importing module, the imported one."""
    for module in read_modules().values():
        for imported in module.imports:
            is_ours = imported.name.split(".")[0] == "kedge"
            if is_ours and room_of(module.name) != room_of(imported.name):
                yield f"{module.shown}:{imported.line}", module.name, imported.name


def test_imports_every_module_stands_in_a_room() -> None:
    unknown = sorted({room_of(name) for name in read_modules()} - set(RANK))
    assert not unknown, f"give these a place in ROOMS and in docs/architecture.md: {unknown}"


def test_imports_go_down_only() -> None:
    wrong = [
        f"{place} imports {there}, which is not below it"
        for place, here, there in imports_between_rooms()
        if RANK[room_of(there)] <= RANK[room_of(here)]
    ]
    assert not wrong, "\\n" + "\\n".join(wrong)


def list_public(room: str) -> list[str]:
    """`PUBLIC` of a room, read from its source; its `__init__` imports nothing."""
    module = read_modules()[f"kedge.{room}"]
    assert not module.imports, f"{module.shown} imports something"
    assigned = [each for each in module.tree.body if isinstance(each, ast.Assign)]
    return [name for each in assigned for name in ast.literal_eval(each.value)]


def test_imports_of_another_room_are_of_what_it_offers() -> None:
    used = defaultdict(set)
    for _, _, there in imports_between_rooms():
        if room_of(there) not in FILES:
            used[room_of(there)].add(there.removeprefix(f"kedge.{room_of(there)}."))
    rooms = [room for room in ROOMS if room not in FILES]
    assert {room: list_public(room) for room in rooms} == {room: sorted(used[room]) for room in rooms}


def test_imports_of_strangers_inside_of_image() -> None:
    wrong = []
    for module in read_modules().values():
        here = module.name.split(".")[2:3]
        for imported in module.imports:
            there = imported.name.split(".")[2:3]
            is_image = module.name.startswith("kedge.image.") and imported.name.startswith("kedge.image.")
            if is_image and here != there and here[0] in STRANGERS and there[0] in STRANGERS:
                wrong.append(f"{module.shown}:{imported.line} imports {imported.name}: they do not know each other")
    assert not wrong, "\\n" + "\\n".join(wrong)


def test_imports_parts_of_a_package_stand_in_an_order() -> None:
    """Modules and packages side by side: what one needs never needs it, however deep inside."""
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module in read_modules().values():
        for imported in module.imports:
            here, there = module.name.split("."), imported.name.split(".")
            depth = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
            if depth > 0:
                graphs[".".join(here[:depth])][here[depth]].add(there[depth])
    circles = []
    for package, graph in sorted(graphs.items()):
        try:
            list(graphlib.TopologicalSorter(graph).static_order())
        except graphlib.CycleError as problem:
            circles.append(f"{package}: {' -> '.join(problem.args[1])}")
    assert not circles, "\\n" + "\\n".join(circles)


'''+cycle
p.write_text(new)
sub("scripts/build-bundle-head",("src/kedge/tools/bundle/head","src/kedge/tools/bundle/head"),("src/kedge/system/no_libc.h","src/kedge/system/no_libc.h"))
sub("scripts/build-probe",("src/kedge/system/no_libc.h","src/kedge/system/no_libc.h"))
sub("tests/functional/test_signals_anywhere.py",("/kedge/posix/,/kedge/store/,/kedge/layers/,/kedge/ops/build/","/kedge/system/,/kedge/image/store/,/kedge/image/layers/,/kedge/builds/"))
sub("src/kedge/system/no_libc.h",("hostpack/bundle/head","tools/bundle/head"))
sub("src/kedge/jobs/run_records.py",("`schedulers/script_body`","`cluster/schedulers/script_body`"))
sub("src/kedge/system/host/limits.py",("(layers/layers_ahead)","(image/layers/layers_ahead)"))

sub("tests/architecture/test_schedulers.py",("""    "kedge.launch",  # chooses one of them for a launch
    "kedge.launch",  # launchers, and the variables by which they tell a process its rank
""","""    "kedge.cluster",  # launchers, and the variables by which they tell a process its rank
    "kedge.launch",  # chooses one of them for a launch
"""),("    \"kedge.cluster.schedulers\",\n",""),("    \"kedge.cluster.job\",  # the launchers that a job can name\n",""),("    \"kedge.cluster.host_mpi\": \"likewise\",\n",""),
 ("""    "kedge.cluster.rank_variables": "every start of a container looks whether it is a rank, without loading a package for it",\n""",""))
(root/"src/kedge/cli/shims/__init__.py").write_text("# SPDX-License-Identifier: BSD-3-Clause\n\"\"\"The command lines of other tools, for kedge: apptainer, docker, enroot, Pyxis, srun.\"\"\"\n")
sub("pyproject.toml",("{container/**,settings_lines.py,system/private_files.py,system/views.py,","{container/**,image/node/**,system/settings_lines.py,system/private_files.py,system/views.py,"))
sub("src/kedge/base/owner_attribute.py",("A container writes them (`container/processes/noted_files.py`); a layer has the numbers instead (`image/layers/owners.py`).","A container writes them (`container/processes/noted_files.py`); a layer has the numbers instead\n(`image/layers/owners.py`)."))
sub("src/kedge/builds/states/merged_view.py",("who changes a directory of the host meanwhile makes kedge fail\n    or see","who changes a directory of the host meanwhile makes kedge\n    fail or see"))
sub("src/kedge/cli/build_step.py",("(`container/start/build_step.py` writes it), so that variables with\nsecrets are","(`container/start/build_step.py` writes it), so that variables\nwith secrets are"),("What kedge itself cannot do is written to the open file REPORT, as `--json` prints it.","What kedge itself cannot do is written to the open file\nREPORT, as `--json` prints it."))
sub("src/kedge/image/node/node_cache.py",("(image/layers/owners.py); older ones lack it","(image/layers/owners.py); older ones lack it"))
sub("src/kedge/system/views.py",("an image in\n`image/tree_view.py` and `image/formats/squashfs/view.py`, a tree with mounts over it in `container/environment/bound_view.py`.","an image in\n`image/tree_view.py` and `image/formats/squashfs/view.py`, a tree with mounts over it in\n`container/environment/bound_view.py`."))
sub("tests/architecture/test_walks.py",("whether a directory of certificates, which the administrator makes, has names of a kind","whether a directory of certificates, made by the administrator, has names of a kind"))
sub("tests/functional/test_threads_libraries.py",("# where its own lists are missing the directory is enough; the lists: tests/","# where its own lists are missing the directory is enough; the lists:\n    # tests/"))
sub("tests/interop/test_reflink.py",("""    monkeypatch.setattr("kedge.image.store.file_transfer.hash_open", lambda *_: pytest.fail("its change time says enough"))""","""    monkeypatch.setattr(
        "kedge.image.store.file_transfer.hash_open", lambda *_: pytest.fail("its change time says enough")
    )"""))
sub("tests/functional/test_signals_anywhere.py",('PLACES = "/threading.py,/contextlib.py,/subprocess.py,/kedge/system/','PLACES = "/threading.py,/contextlib.py,/subprocess.py,"\nPLACES += "/kedge/system/'))
