# SPDX-License-Identifier: BSD-3-Clause
"""`Fingerprints:` in a header: the base must be signed by all of these keys."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kedge.builds.step_values import Base
from kedge.errors import KedgeError, SignatureInvalid
from kedge.image.signatures import Trust, VerifyRequest, open_ring, verify_file


def verify_fingerprints(base: Base, path: Path) -> None:
    """Raise unless each key that the header names has signed the file."""
    wanted = {
        text.upper().removeprefix("0X") for text in re.split(r"[\s,]+", base.read_field("fingerprints").text) if text
    }
    try:
        report = verify_file(VerifyRequest(path), Trust(open_ring(os.environ)))
    except KedgeError as problem:
        problem.context.setdefault("recipe", str(base.place))
        raise
    if report.error is not None:
        raise report.error
    signers = {signer.fingerprint.upper() for result in report.results for signer in result.signers}
    missing = sorted(text for text in wanted if not any(signer.endswith(text) for signer in signers))
    if missing:
        raise SignatureInvalid(
            f"{base.place}: {path} is not signed by {', '.join(missing)}",
            context={"signed by": ", ".join(sorted(signers)) or "nobody"},
            hint="check 'Fingerprints:' in the recipe, or fetch the image again from who signs it",
        )
