# SPDX-License-Identifier: BSD-3-Clause
"""What the pages about sites show is accepted by those sites: every request as a dry run against the site's profile."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.cli.main import main
from kedge.cli.topics import TOPICS
from kedge.jobs.description import parse_description
from tests.builders.documents import list_commands_of
from tests.builders.squashfs_images import add_file, add_folder, write_image
from tests.requirements import REPOSITORY

PAGES = sorted((REPOSITORY / "docs/sites").glob("*.md"))
_HARMLESS = {"submit": ("--dry-run",), "alloc": ("--dry-run",), "recommend": ("--offline",), "config": ()}


def list_requests() -> list[tuple[str, str, list[str]]]:
    """Page, site and words of every request and setting; a section that names a site is about that site."""
    found = []
    for page in PAGES:
        before, *tutorial = page.read_text().split("\n## Commands of ")
        for part in (before, *tutorial):
            site = re.search(r"site `([\w-]+)`", part)
            assert site, f"{page.name} names no site"
            words = [words for words in list_commands_of(part) if words[0] in _HARMLESS]
            found += [(page.stem, site[1], each) for each in words]
    return found


REQUESTS = list_requests()


def test_site_pages_are_about_all_sites_of_the_tutorials() -> None:
    assert {page.stem for page in PAGES} == {"zih", "sdumont", "abci", "nvidia-slurm", "tacc"}
    sites = {site for _, site, _ in REQUESTS}
    assert sites >= {"zih-alpha", "zih-taurus", "sdumont", "abci3", "abci2", "generic-slurm", "nvidia", "tacc-frontera"}
    assert sites <= {path.stem for path in (REPOSITORY / "src/kedge/cluster/sites/profiles").glob("*.toml")}
    assert {f"sites/{page.name}" for page in PAGES} <= {page for page, _ in TOPICS.values()}


def find_description(page: str) -> str:
    blocks = re.findall(r"```toml\n(.*?)```", (REPOSITORY / f"docs/sites/{page}.md").read_text(), re.DOTALL)
    assert len(blocks) <= 1
    return str(blocks[0]) if blocks else ""


@pytest.mark.parametrize("page", ["tacc", "zih"])
def test_site_pages_description_can_be_read(page: str) -> None:
    assert parse_description(find_description(page), Path("/project/kedge.toml")).names


def fill_pytorch(sink: ContentSink) -> Node:
    """An image whose launcher of processes is looked for."""
    root = Node(NodeKind.DIRECTORY, 0o755, 0, 0, 0)
    add_file(sink, add_folder(add_folder(root, b"usr"), b"bin"), b"torchrun", b"#!/bin/sh\n", mode=0o755)
    return root


def test_site_pages_requests_are_served(tmp_path, monkeypatch, capfd):
    image, wrong = write_image(fill_pytorch), []
    for number, (page, site, words) in enumerate(REQUESTS):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "kedge.toml").write_text(find_description(page))
        for name in {"pi-estimator_0.1-mpi.sif", *re.findall(r"[\w.-]+\.sif", " ".join(words))}:
            (place / name).write_bytes(image)
        places = {"HOME": str(place / "home"), "SCRATCH": str(place), "MYDATA": str(place), "USER": "me"}
        for name, value in {**places, "KEDGE_SITE": site}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(place)
        typed = [os.path.expandvars(word).replace("USERNAME", "me") for word in words]
        status = main([typed[0], *_HARMLESS[words[0]], *typed[1:]])
        told = capfd.readouterr().err
        # the second: an image that is older than the cards of that queue
        if status or "does not support" in told:
            wrong.append(f"{page}: kedge {' '.join(words)}: {status} {told}")
    assert not wrong, "\n".join(wrong)
