# SPDX-License-Identifier: BSD-3-Clause
"""An image with binds over its scripts, as kedge reads it before anything is bound."""

from __future__ import annotations

from kedge.container.environment.bound_view import BoundView
from kedge.container.facts import Bind
from kedge.system.views import DirectoryView, TableView

IMAGE = TableView({"/.singularity.d/env/90-environment.sh": "A=image", "/.singularity.d/runscript": "", "/l": "-> /a"})
ENV = "/.singularity.d/env"


def test_bound_files_cover_those_of_the_image() -> None:
    host = TableView({"/project/more.sh": "A=host", "/project/run": "#!/bin/sh"})
    binds = [Bind("/project/more.sh", f"{ENV}/99-more.sh"), Bind("/project/run", "/.singularity.d/runscript")]
    view = BoundView(IMAGE, binds, host)
    assert (view.names(ENV), view.read(f"{ENV}/99-more.sh")) == (["90-environment.sh", "99-more.sh"], b"A=host")
    assert view.read(f"{ENV}/90-environment.sh") == b"A=image"
    assert view.is_executable("/.singularity.d/runscript")
    assert (view.kind(f"{ENV}/99-more.sh"), view.kind(f"{ENV}/98.sh")) == ("f", "")
    assert view.resolve("/l/b") == "/a/b"


def test_bound_folder_hides_what_the_image_has_and_shows_what_lies_in_it(tmp_path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/10.sh").write_text("B=1")
    (tmp_path / "one.sh").write_text("C=1")
    binds = [Bind(str(tmp_path / "one.sh"), f"{ENV}/20.sh"), Bind(str(tmp_path / "env"), ENV)]
    view = BoundView(IMAGE, binds, DirectoryView("/"))
    assert (view.names(ENV), view.read(f"{ENV}/90-environment.sh")) == (["10.sh", "20.sh"], None)
    assert (view.read(f"{ENV}/10.sh"), view.read(f"{ENV}/20.sh")) == (b"B=1", b"C=1")
    assert view.can_use(f"{ENV}/10.sh")


def test_bound_links_do_not_lead_to_files_of_the_host(tmp_path) -> None:
    """Whoever can write a bound directory must not get variables out of a file that only the host has."""
    (tmp_path / "env").mkdir()
    (tmp_path / "secrets.env").write_text("TOKEN=x")
    (tmp_path / "env/10.sh").symlink_to(tmp_path / "secrets.env")
    (tmp_path / "env/20.sh").symlink_to("../secrets.env")
    view = BoundView(IMAGE, [Bind(str(tmp_path / "env"), ENV)], DirectoryView("/"))
    assert view.names(ENV) == ["10.sh", "20.sh"]
    assert [view.read(f"{ENV}/{name}") for name in view.names(ENV)] == [None, None]
    assert view.read_link(f"{ENV}/20.sh") == "../secrets.env"
