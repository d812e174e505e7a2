# SPDX-License-Identifier: BSD-3-Clause
"""Registries: names, logins and limits, as any tool reports them."""

from __future__ import annotations

from kedge.compat.failures.failure import Failure

REGISTRY = (
    Failure(
        "no-manifest",
        r"manifest unknown|MANIFEST_UNKNOWN",
        cause=(
            "the registry does not have that tag (any more); NVIDIA's images have no 'latest', and tags of "
            "old CUDA are deleted"
        ),
        remedy="'kedge tags IMAGE' lists those that there are; keep the SIF, or the digest",
        source="registries",
        examples=("manifest unknown: manifest unknown",),
    ),
    Failure(
        "rate-limit",
        r"toomanyrequests|You have reached your (?:unauthenticated )?pull rate limit|429 Too Many Requests",
        cause="the registry limits how often this address or account may pull",
        remedy="log in ('kedge registry login'), pull once on the login node and share the file, or use a mirror",
        source="Docker Hub",
        examples=(
            "toomanyrequests: You have reached your pull rate limit. You may increase the limit by "
            "authenticating and "
            "upgrading: https://www.docker.com/increase-rate-limit",
        ),
    ),
    Failure(
        "registry-login",
        r"unauthorized: authentication required|denied: requested access to the resource is denied|401 "
        r"\(?Unauthorized"
        r"|invalid status code from registry 40[13]|\[ERROR\] URL .{0,200}returned error code: 40[13]"
        r"|requested access to the resource is denied",
        cause="the registry wants a login, or does not have an image of that name: nvcr.io answers both alike",
        remedy="check the name; 'kedge registry login nvcr.io' with an API key of NGC (user $oauthtoken); accept the "
        "licence on the image's page where it has one",
        source="runtime facts: registries; https://github.com/NVIDIA/pyxis/issues/127",
        examples=(
            "FATAL:   While making image from oci registry: reading manifest 24.03-py3 in nvcr.io/nvidia/x: "
            "unauthorized: authentication required",
            "slurmstepd: error: pyxis:     [ERROR] URL https://registry-1.docker.io/v2/library/x/manifests/latest"
            " returned "
            "error code: 401 Unauthorized",
        ),
    ),
    Failure(
        "certificate",
        r"x509: certificate signed by unknown authority|CERTIFICATE_VERIFY_FAILED|SSL certificate problem",
        cause="a server's certificate is signed by an authority that this host or image does not trust: often a "
        "proxy "
        "of the site",
        remedy="kedge: --ca FILE; Python: REQUESTS_CA_BUNDLE and SSL_CERT_FILE; ask the site for the file",
        source="Go, Python, curl",
        examples=(
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to "
            "get local "
            "issuer certificate (_ssl.c:1006)",
        ),
    ),
)
