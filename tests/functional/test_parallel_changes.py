# SPDX-License-Identifier: BSD-3-Clause
"""Several kedge processes change one file at the same time, and each finds its change there. Needs nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.builders.warm_kedge import kedge

COUNT = 6


def run_all(home: Path, *commands: list[str]) -> None:
    """Run them at the same time; all must succeed."""
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    with ThreadPoolExecutor(len(commands)) as pool:
        list(pool.map(lambda words: kedge(*words, cache=home / "cache", environment=environment), commands))


def test_parallel_remotes_are_all_added(tmp_path: Path) -> None:
    addresses = [(f"r{number}", f"http://127.0.0.1:{number}") for number in range(1, COUNT + 1)]
    run_all(tmp_path, *(["remote", "add", "--insecure", *each] for each in addresses))
    text = (tmp_path / ".apptainer/remote.yaml").read_text()
    assert all(f"  {name}:" in text for name, _ in addresses), text


def test_parallel_key_servers_are_all_added(tmp_path: Path) -> None:
    servers = [f"https://keys{number}.example" for number in range(COUNT)]
    run_all(tmp_path, *(["keyserver", "add", each] for each in servers))
    text = (tmp_path / "config/kedge/config.toml").read_text()
    assert all(each in text for each in servers), text


def test_parallel_settings_are_all_set(tmp_path: Path) -> None:
    settings = {"threads": "2", "retries": "7", "no_https": "true", "cache_limit": "3G"}
    run_all(tmp_path, *(["config", "set", *each] for each in settings.items()))
    lines = (tmp_path / "config/kedge/config.toml").read_text().splitlines()
    assert sorted(line.split(" = ")[0] for line in lines) == sorted(settings)
