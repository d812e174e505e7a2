# SPDX-License-Identifier: BSD-3-Clause
"""What argparse, pathlib and urllib3 are without the modules that they load for what kedge does not ask of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.builders.rows import each_row

FIRST = "import sys\nfrom kedge.cli.light_imports import import_lightly\n"


def run(code: str, *words: str, before: str = "import_lightly()\n") -> str:
    argv = [sys.executable, "-I", "-c", FIRST + before + code, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_light_imports_load_both_without_what_they_need() -> None:
    assert run("print('argparse' in sys.modules, 'pathlib' in sys.modules)") == "True True\n"
    assert run("print(*({'gettext', 'urllib.parse', 'ipaddress'} & set(sys.modules)))") == "\n"


def test_light_imports_leave_the_real_modules_to_others() -> None:
    assert run("import gettext; print(gettext.__file__ is not None, hasattr(gettext, 'translation'))") == "True True\n"
    code = "from urllib.parse import urlsplit; print(urlsplit('https://a.example/b').netloc)"
    assert run(code) == "a.example\n"


def test_light_imports_addresses_of_paths_are_as_ever() -> None:
    assert run("from pathlib import Path; print(Path('/a b/ü').as_uri())") == "file:///a%20b/%C3%BC\n"


@each_row(
    ("words", "said"),
    [
        (("--number", "x"), "argument --number: invalid int value: 'x'"),
        ((), "the following arguments are required: --number"),
        (("--number", "1", "a"), "unrecognized arguments: a"),
        (("--number",), "expected one argument"),
        (("--pair", "1"), "expected 2 arguments"),
    ],
)
def test_light_imports_messages_of_argparse_are_as_ever(words: tuple[str, ...], said: str) -> None:
    code = """
import argparse
parser = argparse.ArgumentParser(exit_on_error=True)
parser.add_argument("--number", type=int, required=True)
parser.add_argument("--pair", nargs=2)
parser.error = lambda message: (print(message), sys.exit(0))
parser.parse_args(sys.argv[1:])
"""
    assert said in run(code, *words)


def test_light_imports_modules_that_are_loaded_stay() -> None:
    code = "import_lightly(); import argparse, pathlib; print(argparse is first[0], pathlib is first[1])"
    assert run(f"import argparse, pathlib; first = (argparse, pathlib); {code}") == "True True\n"


def test_light_imports_module_that_needs_more_gets_it_from_the_real_one() -> None:
    code = """
import gettext
print(parse.urlsplit("https://a.example/b").netloc, parse is sys.modules["urllib.parse"])
print(gettext.translation is not None)
"""
    load = "def load():\n    global parse\n    from urllib.parse import urlsplit\n    import urllib.parse as parse\n"
    assert run(code, before=f"{load}import_lightly(load)\n") == "a.example True\nTrue\n"


@pytest.mark.parametrize(
    "code",
    [
        "import importlib.metadata; print(importlib.metadata.version('urllib3') == urllib3.__version__)",
        "from importlib.metadata import version; print(version('urllib3') == urllib3.__version__)",
        "from importlib.metadata import PackageNotFoundError; print(issubclass(PackageNotFoundError, ImportError))",
        "from importlib import metadata; print(metadata.distribution('urllib3').version == urllib3.__version__)",
        "import importlib.metadata._meta; print(hasattr(importlib.metadata._meta, 'PackageMetadata'))",
    ],
)
def test_light_imports_versions_of_packages_are_found_when_they_are_asked_for(code: str) -> None:
    before = "import urllib3\nassert 'zipfile' not in sys.modules\n"
    after = "\nimport importlib.metadata; assert importlib.metadata is sys.modules['importlib.metadata']"
    assert run(f"{before}{code}{after}; assert importlib.metadata.__file__") == "True\n"
