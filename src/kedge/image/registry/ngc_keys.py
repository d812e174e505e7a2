# SPDX-License-Identifier: BSD-3-Clause
"""API keys of NGC, NVIDIA's catalog: how to recognize one, and the few hosts that may get it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from kedge.base.login_sources import NGC_VARIABLES
from kedge.image.registry.docker_config import Login

NGC_USER = "$oauthtoken"
NGC_REGISTRY = "nvcr.io"
_PREFIX = "nvapi-"
# Who is not on this list gets no key, whatever a challenge, a redirect, a mirror or a login file says.
_HOSTS = frozenset({NGC_REGISTRY, "authn.nvidia.com"})


def is_ngc_registry(host: str) -> bool:
    """Whether a registry, as docker_config.normalize_key spells it, is NVIDIA's."""
    return host in (NGC_REGISTRY, f"{NGC_REGISTRY}:443")


def is_ngc_address(url: str) -> bool:
    """Whether an address is one of NVIDIA's that take keys; https proves it, and nothing else does."""
    parts = urlsplit(url)
    try:
        is_usual_port = parts.port in (None, 443)
    except ValueError:
        return False
    return parts.scheme == "https" and (parts.hostname or "") in _HOSTS and is_usual_port and "@" not in parts.netloc


def holds_ngc_key(login: Login, environ: Mapping[str, str]) -> bool:
    """Whether the secret of a login is a key: by its form or, as old keys have none, because a variable says so."""
    secrets = (login.password, login.identity_token, login.registry_token)
    known = [environ[name] for name in NGC_VARIABLES if environ.get(name)]
    return any(secret.reveal().startswith(_PREFIX) or secret.reveal() in known for secret in secrets if secret)
