# SPDX-License-Identifier: BSD-3-Clause
"""For 'make site': what the pages of the repository need to become pages of the site.

- Links to files outside of docs/ become the names of these files: the site has pages alone.
- A bar in a cell of a table is escaped in the repository; inside of code the site's Markdown would show the escape.
- The pages that scripts/make-reference wrote to $REFERENCE are pages of the site.
- The decisions (docs/adr) and the verbs are all in the navigation, without a list of them to keep.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_REFERENCE = os.environ["REFERENCE"]
_LINK = re.compile(r"\[([^\]\[]+)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")


def on_config(config: Any) -> Any:
    """The settings, before anything is read."""
    decisions = sorted(path.name for path in Path(config["docs_dir"], "adr").glob("*.md"))
    config["nav"].append({"Decisions": [f"adr/{name}" for name in decisions]})
    verbs = sorted(path.stem for path in Path(_REFERENCE, "reference/cli").glob("*.md"))
    [reference] = [each["Reference"] for each in config["nav"] if "Reference" in each]
    reference.insert(1, {"Verbs": [{name: f"reference/cli/{name}.md"} for name in verbs]})
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """The pages, as mkdocs found them."""
    for page in sorted(Path(_REFERENCE).rglob("*.md")):
        files.append(File(str(page.relative_to(_REFERENCE)), _REFERENCE, config["site_dir"], use_directory_urls=False))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page, as mkdocs reads it."""
    del config
    pages = {file.src_uri for file in files}
    here = posixpath.dirname(page.file.src_uri)

    def check(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[2]))
        if target in pages or not target.startswith(".."):
            return link[0]
        return f"{link[1]} (`{target.removeprefix('../')}`)"

    return _ROW.sub(_show_bars, _LINK.sub(check, markdown))


def _show_bars(row: re.Match[str]) -> str:
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])
