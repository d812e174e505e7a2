# SPDX-License-Identifier: BSD-3-Clause
"""`kedge config`: what is shown, and that changing one line leaves the others alone. Needs nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kedge.system.settings import SETTINGS
from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge
from tests.wording import assert_begins, assert_ends, assert_reads


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def run_config(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOME": str(home), "KEDGE_SITE_CONFIG": str(home / "site.toml"), **variables}
    return run_kedge(["config", *words], environment=environ, folder="/", timeout=60)


def user_config(home: Path) -> Path:
    path = home / ".config/kedge/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_config_show_says_where_each_value_comes_from(home: Path) -> None:
    (home / "site.toml").write_text('library_url = "https://library.example.org"\n')
    user_config(home).write_text("threads = 3\n")
    done = run_config(home, "show", KEDGE_NO_HTTPS="1", APPTAINER_CACHEDIR="/scratch/ada")
    assert done.returncode == 0
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert rows["KEY"] == ["VALUE", "SOURCE"]
    assert rows["library_url"] == ["https://library.example.org", f"site: {home}/site.toml line 1"]
    assert rows["threads"] == ["3", f"user: {user_config(home)} line 1"]
    assert rows["no_https"] == ["yes", "environment: KEDGE_NO_HTTPS"]
    assert rows["cache_directory"] == ["/scratch/ada/kedge", "environment: APPTAINER_CACHEDIR"]
    assert rows["cache_limit"] == ["20G", "default"]


def test_config_show_json_has_typed_values(home: Path) -> None:
    shown = {each["key"]: each for each in json.loads(run_config(home, "show", "--json").stdout)}
    assert shown["cache_limit"] == {"key": "cache_limit", "value": 20 << 30, "source": "default", "where": ""}
    assert shown["threads"]["value"] is None
    assert shown["disable_cache"]["value"] is False


def test_config_get_prints_the_value_alone(home: Path) -> None:
    assert run_config(home, "get", "compression", KEDGE_COMPRESS="gzip:9").stdout == "gzip:9\n"


def test_config_get_unknown_key_proposes_the_nearest(home: Path) -> None:
    done = run_config(home, "get", "thread")
    assert done.returncode == 50
    assert_ends(done.stderr, "base/did-you-mean", "threads")


def test_config_path_names_both_files(home: Path) -> None:
    shown = json.loads(run_config(home, "path", "--json").stdout)
    assert shown["user"] == {"path": str(home / ".config/kedge/config.toml"), "exists": False}
    assert shown["site"]["path"] == str(home / "site.toml")


def test_config_set_makes_the_file(home: Path) -> None:
    assert run_config(home, "set", "cache_limit", "50G").returncode == 0
    assert run_config(home, "set", "disable_cache", "yes").returncode == 0
    assert run_config(home, "set", "threads", "4").returncode == 0
    assert user_config(home).read_text() == 'cache_limit = "50G"\ndisable_cache = true\nthreads = 4\n'


def test_config_changes_are_one_json_document_when_asked(home: Path) -> None:
    path = str(user_config(home))
    for words, value in (
        (("set", "threads", "3", "--dry-run"), "3"),
        (("set", "threads", "3"), "3"),
        (("unset", "threads"), None),
    ):
        done = run_config(home, *words, "--json")
        assert json.loads(done.stdout) == {"key": "threads", "value": value, "file": path}


def test_config_set_keeps_comments_order_mode_and_link(home: Path) -> None:
    real = home / "dotfiles.toml"
    real.write_text('# mine\ncache_limit = "1G"  # small\n\n# threads = 9\nthreads = 2\nretries = 1')
    real.chmod(0o600)
    user_config(home).symlink_to(real)
    run_config(home, "set", "cache_limit", "2G")
    run_config(home, "set", "threads", "auto")
    run_config(home, "set", "architecture", "arm64")
    assert real.read_text() == (
        '# mine\ncache_limit = "2G"  # small\n\n# threads = 9\nthreads = "auto"\nretries = 1\narchitecture = "arm64"\n'
    )
    assert real.stat().st_mode & 0o777 == 0o600
    assert user_config(home).is_symlink()


def test_config_set_writes_odd_text_so_that_it_is_read_back(home: Path) -> None:
    odd = '/a "quoted" \\ back#slash ä'
    run_config(home, "set", "pull_directory", odd)
    assert run_config(home, "get", "pull_directory").stdout.removesuffix("\n") == odd


def test_config_unset_removes_one_line(home: Path) -> None:
    user_config(home).write_text("threads = 2  # two\nretries = 1\n")
    assert run_config(home, "unset", "threads").returncode == 0
    assert run_config(home, "unset", "compression").returncode == 0
    assert user_config(home).read_text() == "retries = 1\n"


@each_row("key, value", [("threads", "none"), ("no_such", "1"), ("registry_login", "yes")])
def test_config_set_refuses_before_it_writes(home: Path, key: str, value: str) -> None:
    done = run_config(home, "set", key, value)
    assert done.returncode == 50
    assert not user_config(home).exists()


@each_row(
    "text, key, value",
    [
        ('cache_directory = """\n/scratch"""\n', "cache_directory", "/tmp"),
        ('architecture = """\nthreads = 9\n"""\n', "threads", "7"),  # that line is no setting
    ],
)
def test_config_set_leaves_values_over_several_lines_alone(home: Path, text: str, key: str, value: str) -> None:
    user_config(home).write_text(text)
    done = run_config(home, "set", key, value)
    assert done.returncode == 50
    assert "in an editor" in done.stderr
    assert user_config(home).read_text() == text


def test_config_set_dry_run_writes_nothing(home: Path) -> None:
    done = run_config(home, "set", "threads", "4", "--dry-run")
    assert_reads(done.stdout, "base/set-threads-config-config-toml", home)
    for words in (("set", "threads", "none"), ("set", "thread", "4"), ("unset", "thread")):
        assert run_config(home, *words, "--dry-run").returncode == 50, words  # as without it
    assert not user_config(home).exists()


def test_config_broken_file_stops_every_command_with_its_name(home: Path) -> None:
    user_config(home).write_text("threads = \n")
    done = run_config(home, "show")
    assert done.returncode == 50
    assert_begins(done.stderr, "site/not-toml", user_config(home))


@each_row("command", ["get", "set", "unset"])
def test_config_help_names_every_key(home: Path, command: str) -> None:
    said = " ".join(run_config(home, command, "--help").stdout.split())
    assert [each.name for each in SETTINGS.values() if each.in_files and each.name not in said] == []
