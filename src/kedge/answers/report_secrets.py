# SPDX-License-Identifier: BSD-3-Clause
"""Which variables a report may show, and the removal of secrets from its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kedge.base.secret_text import mask_secrets
from kedge.container.env_scripts import REQUEST_PREFIXES
from kedge.image.registry.secret import HIDDEN, Secret, scrub

_SECRET_NAME = re.compile(
    r"PASS(WORD|WD|PHRASE|_|$)|PWD_|TOKEN|SECRET|(API|ACCESS|PRIVATE|LICENSE|ENCRYPTION|SIGNING)_?KEY|_KEY\d*$|^KEY$|"
    r"CREDENTIAL|AUTH|COOKIE|JWT|BEARER|SIGNATURE|_PAT$|_PIN$|OAUTH|MUNGE",
    re.IGNORECASE,
)
_RELEVANT = re.compile(
    r"(KEDGE|APPTAINER|SINGULARITY|ENROOT|PYXIS|SLURM|SBATCH|SRUN|PBS|SGE|LSB|CUDA|NVIDIA|NV_|GPU|ROCR|HIP|NCCL|UCX|OMPI|OPAL|"
    r"PMIX?|PRTE|MPI|I_MPI|FI|OMP|LD|LC|PYTHON|CONDA|MAMBA|XDG|SSL|MODULE|LMOD)_?\w*|"
    r"PATH|LANG|LANGUAGE|HOME|USER|LOGNAME|SHELL|TERM|PWD|HOSTNAME|TMPDIR|TMP|TEMP|SCRATCH|PSCRATCH|WORK|SCRATCHDIR|"
    r"LOADEDMODULES|_LMFILES_|VIRTUAL_ENV|JOB_ID|NSLOTS|PE_HOSTFILE|QUEUE|DOCKER_CONFIG|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|"
    r"(HTTPS?|FTP|ALL|NO)_PROXY|(https?|ftp|all|no)_proxy|NO_COLOR|CI"
)
_JSON_WEB_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(\.[\w-]+)?")
_LONG_BLOB = re.compile(r"(?<![\w/+=.:~-])(?=\w*\d)(?=\w*[A-Z])(?=\w*[a-z])[A-Za-z0-9+_-]{60,}={0,2}(?![\w/.])")
_USER_INFO = re.compile(
    r"(?P<before>^|[\s'\"=(,;])(?P<scheme>[a-z][a-z0-9+.-]{0,30}://)?[^\s@/'\"=:]+:(?!//|\*\*\*@)[^\s@'\"]+@(?=[\w.\[-])",
    re.I,
)
_LONE_USER = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,30}://)[^\s@/'\":]{12,}@", re.IGNORECASE)  # a token, mostly
_LONGEST_VALUE = 4000


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def show_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """The variables that matter to containers and jobs; of secret ones the name alone."""
    for name in sorted(environ):
        prefix = next((each for each in REQUEST_PREFIXES if name.startswith(each)), "")
        inner = name[len(prefix) :]
        if prefix and _RELEVANT.fullmatch(inner) is None:
            yield f"{name} is set"  # a variable of the user's own programs: what is in it is nobody's business
        elif is_secret_name(inner):
            yield f"{name}={HIDDEN}"
        elif _RELEVANT.fullmatch(name):
            value = environ[name][:_LONGEST_VALUE]
            if name.lower().endswith("_proxy") and "@" in value:
                value = f"{HIDDEN}@{value.rpartition('@')[2]}"
            yield f"{name}={value!r}"


class Censor:
    """Removes from text known secrets, what looks like one, and the name of a `home`."""

    def __init__(self, environ: Mapping[str, str], redact: Callable[[str], str], *, home: Path | None = None) -> None:
        values = {environ[name].strip() for name in environ if is_secret_name(name)}
        self._secrets = [Secret(value) for value in sorted(values, key=len, reverse=True) if len(value) >= 6]
        self._home = str(home or "").rstrip("/")
        self._redact = redact

    def clean(self, text: str) -> str:
        """The text as it may be sent."""
        text = mask_secrets(self._redact(scrub(text, self._secrets)))
        text = _USER_INFO.sub(lambda match: f"{match['before']}{match['scheme'] or ''}{HIDDEN}@", text)
        text = _LONE_USER.sub(rf"\g<scheme>{HIDDEN}@", text)
        text = _LONG_BLOB.sub(HIDDEN, _JSON_WEB_TOKEN.sub(HIDDEN, text))
        if len(self._home) > 1:
            text = re.sub(rf"{re.escape(self._home)}(?![\w.-])", "~", text)
        return text
