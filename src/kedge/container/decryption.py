# SPDX-License-Identifier: BSD-3-Clause
"""The passphrase of an encrypted image: typed, in a variable, or locked in the image with an RSA key."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from kedge.container.flags import read_variable
from kedge.container.options import RunOptions
from kedge.errors import UsageError


def find_passphrase(options: RunOptions, image: str, environ: Mapping[str, str]) -> str:
    """What opens the image; flags go before variables, and a passphrase before a key."""
    if options.passphrase:
        return _ask()
    if options.pem_path and "ENCRYPTION" not in options.given.get("pem_path", ""):
        return _unlock(image, Path(options.pem_path))
    secret = read_variable(environ, "ENCRYPTION_PASSPHRASE")[1]
    if secret:
        return secret
    if options.pem_path:
        return _unlock(image, Path(options.pem_path))
    raise UsageError(
        f"{image} is encrypted: add --passphrase or --pem-path",
        hint="--passphrase prompts for it; or set APPTAINER_ENCRYPTION_PASSPHRASE or APPTAINER_ENCRYPTION_PEM_PATH",
    )


def _ask() -> str:
    import getpass  # late: few type it

    if not sys.stdin.isatty():
        line = sys.stdin.readline(4096).rstrip("\r\n")
    else:
        line = getpass.getpass("Enter encryption passphrase: ")
    if not line:
        raise UsageError("the encryption passphrase is empty", hint="type a passphrase, or pipe it to standard input")
    return line


def _unlock(image: str, key: Path) -> str:
    """The passphrase that the image carries, unlocked by the private key."""
    if sys.flags.no_site:
        import site  # late: the libraries of the installation, which a start does without

        site.main()
    # late, all of it: only keys need cryptography
    from kedge.errors import KeyUnusable
    from kedge.image.formats.sif.layout import DataType
    from kedge.image.formats.sif.reader import SifReader
    from kedge.image.trust.crypto import unlock_message
    from kedge.image.trust.keyring import read_key_file
    from kedge.system.files import explained

    with explained(image), Path(image).open("rb") as file:
        reader = SifReader(file, image)
        partition = reader.primary_partition()
        messages = [descriptor for descriptor in reader.descriptors if descriptor.data_type == DataType.CRYPTO_MESSAGE]
        locked = next(
            (reader.read_object(descriptor) for descriptor in messages if descriptor.link == partition.id), b""
        )
    if not locked:
        raise KeyUnusable(f"{image} is encrypted with a passphrase, not with a key", hint="use --passphrase")
    return unlock_message(read_key_file(key), locked, where=str(key))
