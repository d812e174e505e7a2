# SPDX-License-Identifier: BSD-3-Clause
"""The launcher of an image's PyTorch, by the files of releases before and after torchrun, wherever PyTorch is."""

from __future__ import annotations

from kedge.compat.packages.python_search import find_package, find_torch_launcher, search_files
from kedge.system.views import TableView
from tests.builders.rows import each_row
from tests.wording import assert_reads

CONDA = "/opt/conda/lib/python3.8/site-packages"
NGC = {"PATH": "/opt/conda/bin:/usr/local/bin:/usr/bin:/bin"}
PYTHONS = {"/opt/conda/bin/python3.8": b"#!", "/opt/conda/bin/python": "-> python3.8"}
LAUNCH = b'parser.add_argument("--use_env", default=False)\n'
EXAMPLE = "/workspace/examples/resnet50v1.5/multiproc.py"


def torch_at(place: str, *files: str, version: str = "1.9.0a0+c3d40fd") -> dict[str, bytes]:
    """The files of a PyTorch by which releases differ."""
    kept = {"launch.py": LAUNCH, "launch-1.0.py": b"no such option\n"}
    wanted = {name.replace("-1.0", ""): kept.get(name, b"") for name in files}
    return {
        f"{place}/torch/__init__.py": b"",
        f"{place}/torch/version.py": f"__version__ = '{version}'\ndebug = False\n".encode(),
        **{f"{place}/torch/distributed/{name}": text for name, text in wanted.items()},
    }


@each_row(("files", "words", "is_elastic"), [
    (torch_at(CONDA, "launch.py", "run.py") | {"/opt/conda/bin/torchrun": b"#!"}, "torchrun", True),
    (torch_at(CONDA, "launch.py", "run.py"), "python -m torch.distributed.run", True),
    (torch_at(CONDA, "launch.py"), "python -m torch.distributed.launch --use_env", False),
    (torch_at(CONDA, "launch.py") | {EXAMPLE: b"LOCAL_RANK"}, "python -m torch.distributed.launch --use_env", False),
    (torch_at(CONDA, "launch-1.0.py") | {EXAMPLE: b"LOCAL_RANK"}, f"python {EXAMPLE}", False),
    (torch_at(CONDA, "launch-1.0.py") | {EXAMPLE: b"--rank"}, "python -m torch.distributed.launch", False),
    (torch_at(CONDA), "", False),
])  # fmt: skip
def test_the_newest_launcher_that_the_files_have(files: dict[str, bytes], words: str, is_elastic: bool) -> None:
    found = find_torch_launcher(TableView({**PYTHONS, **files}), NGC)
    assert (" ".join(found.words), found.is_elastic) == (words, is_elastic)


def test_words_and_reason_of_a_launcher() -> None:
    found = find_torch_launcher(TableView({**PYTHONS, **torch_at(CONDA, "launch.py", "run.py")}), NGC)
    assert_reads(found.reason, "compat/python-m-torch-distributed-run-starts")
    odd = "/opt/$(reboot)"
    files = {f"{odd}/bin/python": b"#!", f"{odd}/pyvenv.cfg": b"home = /usr/bin\n"}
    files |= torch_at(f"{odd}/lib/python3.10/site-packages", "run.py")
    found = find_torch_launcher(TableView(files), {})
    assert found.words == ()


VENV = {
    "/srv/train/bin/python": "-> /usr/bin/python3",
    "/srv/train/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = false\n",
}


@each_row(
    ("files", "environment", "words"),
    [
        # the Python of the system, and Debian's three directories
        (torch_at("/usr/local/lib/python3.10/dist-packages", "run.py"), {}, "python3 -m torch.distributed.run"),
        (torch_at("/usr/lib/python3/dist-packages", "run.py"), {}, "python3 -m torch.distributed.run"),
        # a virtual environment that is in PATH, wherever it is
        (
            VENV | torch_at("/srv/train/lib/python3.10/site-packages", "run.py"),
            {"PATH": "/srv/train/bin:/usr/bin"},
            "python -m torch.distributed.run",
        ),
        # conda, which is not: its Python by its path, with the torchrun beside it where there is one
        (
            {"/opt/conda/bin/python3.8": b"#!"} | torch_at(CONDA, "run.py"),
            {},
            "/opt/conda/bin/python3.8 -m torch.distributed.run",
        ),
        (
            {"/opt/conda/bin/python3.8": b"#!", "/opt/conda/bin/torchrun": b"#!"} | torch_at(CONDA, "run.py"),
            {},
            "/opt/conda/bin/torchrun",
        ),
        # an environment of conda
        (
            {"/opt/conda/envs/ml/bin/python": b"#!", "/opt/conda/envs/ml/conda-meta/history": b""}
            | torch_at("/opt/conda/envs/ml/lib/python3.9/site-packages", "run.py"),
            {},
            "/opt/conda/envs/ml/bin/python -m torch.distributed.run",
        ),
        # pip install --user, PYTHONPATH
        (
            torch_at("/root/.local/lib/python3.10/site-packages", "run.py"),
            {},
            "/usr/bin/python3.10 -m torch.distributed.run",
        ),
        (torch_at("/sw/torch", "run.py"), {"PYTHONPATH": "/sw/torch"}, "python3 -m torch.distributed.run"),
    ],
)
def test_pytorch_is_found_wherever_it_is_installed(
    files: dict[str, bytes], environment: dict[str, str], words: str
) -> None:
    system = {"/usr/bin/python3.10": b"#!", "/usr/bin/python3": "-> python3.10"}
    found = find_torch_launcher(TableView({**system, **files}), environment)
    assert " ".join(found.words) == words


def test_another_python_than_the_one_in_path() -> None:
    system = {"/usr/bin/python3.10": b"#!", "/usr/bin/python3": "-> python3.10"}
    files = {**system, **VENV, **torch_at("/usr/local/lib/python3.10/dist-packages", "run.py")}
    path = {"PATH": "/srv/train/bin:/usr/bin"}
    found = find_package(TableView(files), path, "torch")
    assert found.python == "python3", "that of the system"
    files["/srv/train/pyvenv.cfg"] = b"include-system-site-packages = true\n"
    found = find_package(TableView(files), path, "torch")
    assert found.python == "python"
    files = {"/usr/bin/python3.8": b"#!", "/usr/bin/python3": "-> python3.8", "/usr/bin/python3.10": b"#!"}
    files |= torch_at("/usr/local/lib/python3.10/dist-packages", "run.py")
    found = find_package(TableView(files), {}, "torch")
    assert found.python == "/usr/bin/python3.10"


def test_pytorch_that_is_not_there_or_elsewhere() -> None:
    files = {**PYTHONS, f"{CONDA}/torchvision/__init__.py": b"", f"{CONDA}/torch.txt": b"", "/data/torch/file": b""}
    assert find_torch_launcher(TableView(files), NGC) is None
    assert search_files(TableView(files), "torch") == ""
    files = {**torch_at("/software/spack/x/torch-src"), "/software/loop": "-> /software", "/usr/share/a.py": b""}
    assert search_files(TableView(files), "torch") == "/software/spack/x/torch-src/torch"
