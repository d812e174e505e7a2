# SPDX-License-Identifier: BSD-3-Clause
"""Where logins for registries stand: variables and files. Lean, because a start looks whether they have changed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PAIRS = (
    ("KEDGE_DOCKER_USERNAME", "KEDGE_DOCKER_PASSWORD"),
    ("KEDGE_USERNAME", "KEDGE_PASSWORD"),
    ("APPTAINER_DOCKER_USERNAME", "APPTAINER_DOCKER_PASSWORD"),
    ("SINGULARITY_DOCKER_USERNAME", "SINGULARITY_DOCKER_PASSWORD"),
    ("DOCKER_USERNAME", "DOCKER_PASSWORD"),
)
NGC_VARIABLES = ("NGC_API_KEY", "NGC_CLI_API_KEY")


def list_auth_files(environ: Mapping[str, str], home: str) -> list[str]:
    """The auth files of Apptainer, Singularity, Podman and Docker, in the order in which they count."""
    own = environ.get("APPTAINER_CONFIGDIR") or environ.get("SINGULARITY_CONFIGDIR") or f"{home}/.apptainer"
    files = [f"{own}/docker-config.json"]
    if own != f"{home}/.apptainer":
        files.append(f"{own}/config.json")  # what Apptainer itself writes there
    files.append(f"{home}/.singularity/docker-config.json")
    if environ.get("REGISTRY_AUTH_FILE"):
        files.append(environ["REGISTRY_AUTH_FILE"])
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        files.append(f"{runtime}/containers/auth.json")
    return [*files, f"{environ.get('DOCKER_CONFIG') or home + '/.docker'}/config.json"]
