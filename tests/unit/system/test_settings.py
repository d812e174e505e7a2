# SPDX-License-Identifier: BSD-3-Clause
"""Settings: who beats whom, where each value came from, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.errors import InvalidSetting
from kedge.system.settings import SETTINGS, Settings, SettingSource, parse_value, read_file
from tests.builders.rows import each_row
from tests.wording import assert_reads


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing in it but a home and an absent site file."""
    return {"HOME": str(tmp_path / "home"), "KEDGE_SITE_CONFIG": str(tmp_path / "site.toml")}


def write_user(environ: dict[str, str], text: str) -> Path:
    path = Path(environ["HOME"]) / ".config/kedge/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_settings_defaults(environ: dict[str, str]) -> None:
    settings = Settings.load({}, environ)
    assert settings.cache_directory == Path(environ["HOME"]) / ".cache/kedge"
    assert settings.temporary_directory == Path("/tmp")
    assert settings.cache_limit == 20 << 30
    assert settings.compression == "zstd"
    assert settings.threads is None
    assert settings.download_connections == 4
    assert (settings.disable_cache, settings.no_https, settings.registry_login) == (False, False, False)
    assert set(settings.sources) == set(SETTINGS)
    assert {source.kind for source in settings.sources.values()} == {"default"}


def test_settings_each_source_beats_the_one_below(environ: dict[str, str]) -> None:
    site = Path(environ["KEDGE_SITE_CONFIG"])
    steps: list[tuple[int, str]] = []

    def look(flags: dict[str, object] | None = None) -> None:
        settings = Settings.load(flags or {}, environ)
        steps.append((settings.threads, str(settings.sources["threads"])))

    site.write_text("# for all\nthreads = 1\n")
    look()
    user = write_user(environ, "\n\nthreads = 2\n")
    look()
    for value, name in ((3, "SINGULARITY_THREADS"), (4, "APPTAINER_THREADS"), (5, "KEDGE_THREADS")):
        environ[name] = str(value)
        look()
    look({"threads": "6"})
    assert steps == [
        (1, f"site: {site} line 2"),
        (2, f"user: {user} line 3"),
        (3, "environment: SINGULARITY_THREADS"),
        (4, "environment: APPTAINER_THREADS"),
        (5, "environment: KEDGE_THREADS"),
        (6, "flag: --threads"),
    ]


def test_settings_cache_follows_its_order(environ: dict[str, str], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environ["USER"] = "ada"
    places = []

    def look() -> None:
        settings = Settings.load({}, environ)
        places.append((str(settings.cache_directory), settings.sources["cache_directory"].kind))

    environ["XDG_CACHE_HOME"] = "/xdg"
    look()
    Path(environ["KEDGE_SITE_CONFIG"]).write_text(f'scratch_directory = "{scratch}/$USER"\n')
    look()
    for name, value in (("SINGULARITY", "/old"), ("APPTAINER", "/new"), ("KEDGE", "/own")):
        environ[f"{name}_CACHEDIR"] = value
        look()
    assert places == [
        *(("/xdg/kedge", "default"), (f"{scratch}/ada/kedge", "site"), ("/old/kedge", "environment")),
        *(("/new/kedge", "environment"), ("/own", "environment")),
    ]


def test_settings_scratch_that_is_not_here_is_passed_over(environ: dict[str, str], tmp_path: Path) -> None:
    Path(environ["KEDGE_SITE_CONFIG"]).write_text(f'scratch_directory = "{tmp_path}/absent/below"\n')
    assert Settings.load({}, environ).cache_directory == Path(environ["HOME"]) / ".cache/kedge"


def test_settings_paths_expand_home_and_variables(environ: dict[str, str]) -> None:
    environ["PROJECT"] = "/project/p1"
    write_user(environ, 'pull_directory = "~/images"\nca_bundle = "${PROJECT}/ca.pem"\n')
    settings = Settings.load({}, environ)
    assert settings.pull_directory == Path(environ["HOME"]) / "images"
    assert settings.ca_bundle == Path("/project/p1/ca.pem")


def test_settings_path_with_an_unset_variable_is_refused(environ: dict[str, str]) -> None:
    environ["KEDGE_TMPDIR"] = "/scratch/$NOBODY_SET_THIS"
    with pytest.raises(InvalidSetting, match=r"KEDGE_TMPDIR: .*its variable NOBODY_SET_THIS is not set"):
        Settings.load({}, environ)


def test_settings_apptainer_spellings_are_understood(environ: dict[str, str]) -> None:
    environ |= {"APPTAINER_PULLFOLDER": "/images", "SINGULARITY_NOHTTPS": "true", "APPTAINER_DISABLE_CACHE": "1"}
    settings = Settings.load({}, environ)
    assert (settings.pull_directory, settings.no_https, settings.disable_cache) == (Path("/images"), True, True)


def test_settings_login_says_only_that_there_is_one(environ: dict[str, str]) -> None:
    environ |= {"DOCKER_USERNAME": "$oauthtoken", "DOCKER_PASSWORD": "secret"}
    settings = Settings.load({}, environ)
    assert settings.registry_login is True
    assert str(settings.sources["registry_login"]) == "environment: DOCKER_USERNAME"
    assert "oauthtoken" not in repr(settings)


def test_settings_empty_variable_counts_as_absent(environ: dict[str, str]) -> None:
    environ["KEDGE_THREADS"] = ""
    assert Settings.load({}, environ).threads is None


def test_settings_unknown_key_names_file_line_and_nearest(environ: dict[str, str]) -> None:
    path = write_user(environ, "threads = 2\ncache_limt = '1G'\n")
    with pytest.raises(InvalidSetting) as caught:
        Settings.load({}, environ)
    assert_reads(caught.value.message, "base/line-unknown-setting", path, "cache_limt")
    assert caught.value.hint == "did you mean 'cache_limit'?"


@each_row(("text", "name"), [("[registry]\nx = 1\n", "registry"), ("registry_login = true\n", "registry_login")])
def test_settings_tables_and_logins_are_refused(environ: dict[str, str], text: str, name: str) -> None:
    write_user(environ, text)
    with pytest.raises(InvalidSetting, match=f"line 1: unknown setting '{name}'"):
        Settings.load({}, environ)


@each_row(
    ("line", "words"),
    [
        ("threads = true", "whole number, 1 or more, or 'auto'"),
        ("threads = 0", "whole number"),
        ("threads = 1.5", "whole number"),
        ("download_connections = 'auto'", "whole number, 1 or more"),
        ("retries = -1", "whole number, 0 or more"),
        ("cache_limit = '20 apples'", "a size such as 500M"),
        ("cache_limit = -5", "a size such as 500M"),
        ("disable_cache = 1", "true or false"),
        ("link_mode = 'symlink'", "auto, copy or hardlink"),
        ("link_mode = 1", "auto, copy or hardlink"),
        ("compression = 'zstd:99'", "zstd:19"),
        ("compression = 'lz4:3'", "gzip, zstd, lz4 or none"),
        ("cache_directory = 7", "must be a path"),
        ("cache_directory = ''", "must be a path"),
        ("cache_directory = 'here'", "must begin with '/', '~/' or a variable"),
        ("library_url = 'ftp://x'", "an address such as"),
        ("library_url = 'https://me:pw@host'", "without a user name"),
        ("architecture = ['amd64']", "text"),
    ],
)
def test_settings_wrong_value_names_key_and_place(environ: dict[str, str], line: str, words: str) -> None:
    path = write_user(environ, f"# settings\n{line}\n")
    with pytest.raises(InvalidSetting) as caught:
        Settings.load({}, environ)
    assert caught.value.message.startswith(f"{path} line 2: {line.split(maxsplit=1)[0]} = ")
    assert words in caught.value.message
    assert caught.value.context["key"] == line.split(maxsplit=1)[0]


@each_row("data", [b"threads = ", b"\xff\xfe", b"a = " + b"[" * 5000, b"= 1", b'threads = """'])
def test_settings_broken_file_is_named(environ: dict[str, str], data: bytes) -> None:
    path = write_user(environ, "")
    path.write_bytes(data)
    with pytest.raises(InvalidSetting, match="is not TOML"):
        Settings.load({}, environ)


def test_settings_huge_file_is_refused(environ: dict[str, str]) -> None:
    write_user(environ, "#" * (2 << 20))
    with pytest.raises(InvalidSetting, match="too large"):
        Settings.load({}, environ)


def test_settings_no_file_is_no_settings(tmp_path: Path) -> None:
    assert read_file(tmp_path / "absent.toml") == {}
    assert read_file(Path("/dev/null/absent.toml")) == {}


@each_row(
    ("text", "size"),
    [
        *(("0", 0), ("1024", 1024), ("20G", 20 << 30), ("1.5T", 3 << 39), ("500 MiB", 500 << 20), ("2GB", 2 * 10**9)),
        ("none", None),
    ],
)
def test_settings_sizes(text: str, size: int | None) -> None:
    assert parse_value(SETTINGS["cache_limit"], text, SettingSource("flag", "--cache-limit"), {}) == size


@settings(deadline=None)
@given(
    st.sampled_from(sorted(SETTINGS)),
    st.one_of(st.text(), st.integers(), st.booleans(), st.floats(), st.lists(st.text())),
)
def test_settings_any_value_is_taken_or_refused_by_name(name: str, value: object) -> None:
    try:
        parse_value(SETTINGS[name], value, SettingSource("user", "x.toml line 1"), {"HOME": "/home/ada"})
    except InvalidSetting as problem:
        assert name in problem.message  # noqa: PT017 - most values are fine
