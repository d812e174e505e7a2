# SPDX-License-Identifier: BSD-3-Clause
"""What containers are given by settings: for tools that start them, and whose command lines nobody can change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.setting_values import PULL_POLICIES, ROOTS
from kedge.container.flags import find_flag
from kedge.system.settings_lines import read_settings
from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.rows import each_row
from tests.wording import assert_says


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    for each in each_role("user", is_warm=True):
        yield each
        each.run("instance", "stop", "--all", "--force")


@pytest.fixture(scope="module")
def sandbox(runner: Runner) -> Path:
    return give_to(runner, make_sandbox(runner.folder / "image"))


@pytest.fixture(autouse=True)
def clean(runner: Runner) -> Iterator[None]:
    yield
    (runner.home / ".config/kedge/config.toml").unlink(missing_ok=True)


def see(runner: Runner, image: Path | str, *words: str, **environ: str) -> str:
    """What of PERL5LIB is seen inside."""
    host = {"PERL5LIB": "/host/perl", "KEDGE_KEEP": "", **environ}
    return runner.read("exec", *words, str(image), "sh", "-c", "echo $PERL5LIB", env=host)


def test_setting_keep_lets_variables_in(runner: Runner, sandbox: Path) -> None:
    assert see(runner, sandbox) == "\n"
    runner.read("config", "set", "keep", "RUBYLIB,PERL5LIB")
    assert see(runner, sandbox) == "/host/perl\n"
    assert see(runner, sandbox, KEDGE_KEEP="RUBYLIB") == "\n", "a variable comes before it"
    assert see(runner, sandbox, "--keep", "RUBYLIB") == "\n", "and so does a flag"


def test_setting_keep_counts_in_instances(runner: Runner, sandbox: Path) -> None:
    runner.read("config", "set", "keep", "PERL5LIB")
    runner.read("instance", "start", str(sandbox), "kept")
    assert see(runner, "instance://kept") == "/host/perl\n"


def test_setting_of_the_site_counts_where_the_user_says_nothing(runner: Runner, sandbox: Path) -> None:
    site = runner.folder / "site.toml"
    site.write_text('# ours\nkeep = "all"\n')
    site.chmod(0o644)
    assert see(runner, sandbox, KEDGE_SITE_CONFIG=str(site)) == "/host/perl\n"
    runner.read("config", "set", "keep", "RUBYLIB")
    assert see(runner, sandbox, KEDGE_SITE_CONFIG=str(site)) == "\n"


def test_setting_root_from(runner: Runner) -> None:
    image = str(runner.home / "tools.sif")
    runner.read("pull", image, "host:sh")
    assert runner.run("exec", image, "sh", "-c", ":").returncode == 0
    runner.read("config", "set", "root_from", "kernel")  # which mounts nothing for an ordinary user
    done = runner.run("exec", image, "sh", "-c", ":")
    assert done.returncode == 255
    assert "--root-from kernel does not work on this node" in done.stderr
    runner.read("exec", "--root-from", "unpack", image, "sh", "-c", ":")
    assert runner.run("config", "set", "root_from", "elsewhere").returncode != 0
    (runner.home / ".config/kedge/config.toml").write_text('root_from = "elsewhere"\n')
    done = runner.run("exec", image, "sh", "-c", ":")
    assert done.returncode == 255
    assert_says(done.stderr, "run/config-toml-line-root-elsewhere")


def test_setting_tmpfs_size(runner: Runner, sandbox: Path) -> None:
    runner.read("config", "set", "tmpfs_size", "8M")
    script = "dd if=/dev/zero of=/big bs=1M count=20 2>/dev/null; wc -c < /big"
    assert int(runner.read("exec", "--writable-tmpfs", str(sandbox), "sh", "-c", script)) <= 8 << 20
    roomy = runner.read("exec", "--writable-tmpfs", "--tmpfs-size", "64M", str(sandbox), "sh", "-c", script)
    assert int(roomy) == 20 << 20


def test_settings_are_read_in_one_look(tmp_path: Path) -> None:
    own, site = tmp_path / "kedge/config.toml", tmp_path / "site.toml"
    own.parent.mkdir()
    own.write_text('runtime = "podman"\n# keep = "X"\n')
    site.write_text('runtime = "enroot"\nkeep = "Y"\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "KEDGE_SITE_CONFIG": str(site)}
    assert read_settings(("runtime", "keep", "root_from"), environ) == {"runtime": "podman", "keep": "Y"}


@each_row("name, choices", [("root-from", ROOTS), ("pull", PULL_POLICIES)])
def test_flags_show_what_can_be_chosen(name: str, choices: tuple[str, ...]) -> None:
    flag = find_flag("exec", name)
    assert flag is not None
    assert tuple(flag.metavar.split("|")) == choices
