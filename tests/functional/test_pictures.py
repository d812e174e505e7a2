# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of the documents: a terminal's output becomes an SVG, and every committed one is on a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.builders.documents import list_pages
from tests.requirements import REPOSITORY

PICTURES = sorted((REPOSITORY / "docs/pictures").iterdir())
TEXT = "{http://www.w3.org/2000/svg}text"


def record(tmp_path: Path, commands: str) -> str:
    scene = tmp_path / "scene.sh"
    scene.write_text(commands)
    recorder = REPOSITORY / "scripts/record-terminal"
    done = subprocess.run([sys.executable, recorder, scene], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_texts(svg: str) -> list[str]:
    """Pieces of one look."""
    return [(element.text or "").replace("\xa0", " ").strip() for element in ElementTree.fromstring(svg).iter(TEXT)]


COMMANDS = r"""# a comment
+ touch unseen
printf '\033[31mred\033[0m <a & b>\n'; printf 'half\rwhole\n'
ls \
   unseen
"""


def test_picture_has_the_commands_and_what_they_print(tmp_path: Path) -> None:
    svg = record(tmp_path, COMMANDS)
    texts = [text for text in list_texts(svg) if text]
    assert texts[-6:] == ["<a & b>", "whole", "$", "ls \\", "unseen", "unseen"]
    assert "red" in texts
    assert not {"half", "touch unseen", "a comment"} & set(texts)
    assert "font-face" not in svg


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_pictures_are_shown_by_a_page_and_name_no_place_of_whoever_made_them(picture: Path) -> None:
    assert any(f"pictures/{picture.name}" in page.read_text() for page in list_pages())
    assert picture.stat().st_size < 150_000
    if picture.suffix == ".svg":
        shown = "\n".join(list_texts(picture.read_text()))
        assert "kedge" in shown
        assert not re.search(r"/tmp|/root|/var/tmp|/work\b|\.venv", shown)
        makers = (f"scenes/{picture.stem}.sh", f"make-{picture.stem}")  # a terminal's scene, or a plot's script
        assert any((REPOSITORY / "scripts" / maker).exists() for maker in makers)
