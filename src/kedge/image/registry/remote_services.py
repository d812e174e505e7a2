# SPDX-License-Identifier: BSD-3-Clause
"""The services that a remote announces: the addresses of its library, its key server and its tokens."""

from __future__ import annotations

import json

from kedge.errors import InvalidSetting
from kedge.image.registry.remote_yaml import Remote
from kedge.image.registry.response_errors import Situation, explain_response
from kedge.image.registry.transport import HttpRequest, HttpTransport

SERVICES = {"libraryAPI": "Library", "keystoreAPI": "Keystore", "tokenAPI": "Token", "consentAPI": "Consent"}
_MAXIMUM = 1 << 20


def find_services(transport: HttpTransport, remote: Remote) -> dict[str, str]:
    """The addresses of the services that a remote announces, by their names in `SERVICES`."""
    url = f"{remote.base}/assets/config/config.prod.json"
    response = transport.send(HttpRequest("GET", url, {"Accept": "application/json"}))
    if response.status != 200:
        raise explain_response(response, Situation(remote.uri))
    with response:
        raw = response.read_all(_MAXIMUM, f"the list of services of {remote.uri}")
    try:
        services = json.loads(raw)
        return {name: str(services[name]["uri"]).rstrip("/") for name in SERVICES if services.get(name, {}).get("uri")}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidSetting(f"{remote.uri} is not a remote: kedge cannot read its list of services") from None
