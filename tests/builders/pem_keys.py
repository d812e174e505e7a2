# SPDX-License-Identifier: BSD-3-Clause
"""PEM keys and certificates for tests, made by the openssl program: independent of the library under test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.requirements import require_program

KINDS = {
    "ed25519": ["-algorithm", "ED25519"],
    "rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "p256": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "p384": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
}


def run_openssl(*words: str | Path) -> None:
    subprocess.run([require_program("openssl"), *map(str, words)], check=True, capture_output=True)


def make_pem(folder: Path, kind: str, passphrase: str | None = None) -> tuple[Path, Path]:
    """A new key pair: the private and the public file."""
    private, public = folder / f"{kind}.pem", folder / f"{kind}.pub.pem"
    lock = ["-aes256", "-pass", f"pass:{passphrase}"] if passphrase else []
    run_openssl("genpkey", *KINDS[kind], *lock, "-out", private)
    run_openssl(
        "pkey", "-in", private, "-pubout", "-out", public, *(["-passin", f"pass:{passphrase}"] if passphrase else [])
    )
    return private, public


def make_certificate(
    folder: Path, name: str, key: Path, issuer: tuple[Path, Path] | None, extensions: str, *, digest: str = "sha256"
) -> Path:
    """A certificate for a key, self-signed without an issuer (certificate, key)."""
    request, config, made = folder / f"{name}.csr", folder / f"{name}.ext", folder / f"{name}.crt"
    config.write_text(extensions)
    run_openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
    signing = ["-CA", issuer[0], "-CAkey", issuer[1], "-CAcreateserial"] if issuer else ["-signkey", key]
    common = ["-in", request, "-days", "30", "-extfile", config, "-out", made, f"-{digest}"]
    run_openssl("x509", "-req", *common, *signing)
    return made
