# SPDX-License-Identifier: BSD-3-Clause
"""A certificate authority of one's own and server certificates signed by it, made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.requirements import require_program


@dataclass(frozen=True)
class Authority:
    """A private authority in a directory."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def issue(self, *names: str, days: int = 2, client: bool = False) -> tuple[Path, Path]:
        """A certificate for DNS names and IP addresses, and its key."""
        stem = self.folder / names[0].replace("*", "_")
        certificate, key = stem.with_name(stem.name + ".pem"), stem.with_name(stem.name + ".key")
        kinds = ",".join(f"{'IP' if name[0].isdigit() else 'DNS'}:{name}" for name in names)
        extensions = stem.with_name(stem.name + ".ext")
        usage = "clientAuth" if client else "serverAuth"
        extensions.write_text(f"subjectAltName={kinds}\nextendedKeyUsage={usage}\n")
        request = stem.with_name(stem.name + ".csr")
        _openssl(
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            f"/CN={names[0]}",
            "-keyout",
            str(key),
            "-out",
            str(request),
        )
        _openssl(
            "x509",
            "-req",
            "-in",
            str(request),
            "-CA",
            str(self.certificate),
            "-CAkey",
            str(self.folder / "ca.key"),
            "-CAcreateserial",
            "-days",
            str(days),
            "-extfile",
            str(extensions),
            "-out",
            str(certificate),
        )
        return certificate, key


def make_authority(folder: Path) -> Authority:
    """A new authority; skips where openssl is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    _openssl(
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
        "-keyout",
        str(folder / "ca.key"),
        "-out",
        str(folder / "ca.crt"),
    )
    return Authority(folder)


def _openssl(*arguments: str) -> None:
    subprocess.run([require_program("openssl"), *arguments], check=True, capture_output=True)
