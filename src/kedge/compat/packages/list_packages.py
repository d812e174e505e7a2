# SPDX-License-Identifier: BSD-3-Clause
"""All packages of an image, whoever installed them, and which of its files hold what is known of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kedge.compat.packages.package import InstalledPackage
from kedge.compat.packages.python_packages import list_python_packages
from kedge.compat.packages.rpm_database import list_rpm_packages
from kedge.compat.packages.system_packages import list_apk_packages, list_conda_packages, list_dpkg_packages

if TYPE_CHECKING:
    from kedge.system.views import View

_DATABASES = re.compile(
    rb"""(?:.*/)?(?:
        [^/]+\.(?:dist|egg)-info(?:/(?:METADATA|RECORD|PKG-INFO|direct_url\.json|installed-files\.txt))?
      | [^/]+\.egg-link
      | conda-meta/[^/]+\.json
      | pyvenv\.cfg
      | var/lib/dpkg/(?:status|status\.d/[^/]+|info/[^/]+\.list)
      | (?:usr/)?lib/apk/db/installed
      | (?:usr/lib/sysimage|var/lib)/rpm/(?:rpmdb\.sqlite|Packages|Packages\.db)
      | etc/pip/constraint\.txt | etc/pip\.conf
    )\Z""",
    re.VERBOSE | re.DOTALL,
)


def is_database(path: bytes) -> bool:
    """Whether a file, by its path without a leading slash, is one that `list_packages` may read."""
    return _DATABASES.match(path) is not None


def list_packages(view: View) -> list[InstalledPackage]:
    """The packages of all managers, those of Python first. What conda installed for Python is in both lists."""
    return [
        *list_python_packages(view),
        *list_conda_packages(view),
        *list_dpkg_packages(view),
        *list_rpm_packages(view),
        *list_apk_packages(view),
    ]
