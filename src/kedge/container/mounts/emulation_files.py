# SPDX-License-Identifier: BSD-3-Clause
"""Files that fake root finds where it may write and is the only user, and that get into no overlay and no layer.

apt changes to the user _apt for downloads and checks that it has become that user, which no emulation by a filter of
system calls can show it. A file of configuration says not to. It lies in a layer below the image, so that a recipe can
remove what is in its directory, and a variable that a recipe does not know of is not needed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.system.views import View

EMULATION_FILES = (("/etc/apt/apt.conf.d/zz-kedge-fakeroot", 'APT::Sandbox::User "root";\n'),)


def list_emulation_files(view: View) -> tuple[tuple[str, str], ...]:
    """Path and text of those that this image has a directory for."""
    return tuple((path, text) for path, text in EMULATION_FILES if view.kind(path.rpartition("/")[0]) == "d")
