# SPDX-License-Identifier: BSD-3-Clause
"""Python and its packages in a container."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, NOTE, POSSIBLE, Failure

PYTHON = (
    Failure(
        "numpy-version",
        r"A module that was compiled using NumPy 1\.x cannot be run in|numpy\.dtype size changed, may indicate "
        r"binary "
        r"incompatibility|numpy\.core\.multiarray failed to import",
        cause="NumPy was replaced by another version than the packages of the image were built with",
        remedy="pip install 'numpy<2' in your environment, or PYTHONNOUSERSITE=1 where it lies below ~/.local",
        source="NumPy",
        examples=("A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.1 as it may crash.",),
    ),
    Failure(
        "user-site",
        r"File \"\S*/\.local/lib/python3\.\d+/site-packages/\S+\", line \d+",
        cause="packages below ~/.local were used instead of the image's: they were installed for another Python "
        "or system",
        remedy="PYTHONNOUSERSITE=1 (kedge run --env PYTHONNOUSERSITE=1, or --no-home) keeps them out",
        source="workflow facts: distributed launch",
        examples=('  File "/home/me/.local/lib/python3.10/site-packages/torch/__init__.py", line 237, in <module>',),
        level=NOTE,
        sure=POSSIBLE,
    ),
    Failure(
        "no-module",
        r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]{1,100})",
        cause=(
            "Python has no module {1} there: the image does not have it, another python3 ran than the one it "
            "is installed for, or its directory is not seen in the container"
        ),
        remedy=(
            "take an image that has it, or make an environment in the container: 'kedge exec IMAGE python3 -m"
            " venv --system-site-packages DIRECTORY', then run DIRECTORY/bin/python"
        ),
        source="Python",
        examples=("[rank0]: ModuleNotFoundError: No module named 'transformers.models'",),
    ),
    Failure(
        "pip-constraint",
        r"The user requested \(constraint\) ([\w.\-]+)|ResolutionImpossible",
        cause="pip in NVIDIA's images is bound to the versions they were built with (PIP_CONSTRAINT)",
        remedy=(
            "pip install --no-deps NAME; or a copy of /etc/pip/constraint.txt without the lines in question: "
            "PIP_CONSTRAINT=COPY"
        ),
        source="https://github.com/cresset-template/cresset/issues/230",
        examples=("    The user requested (constraint) torch==2.7.0a0+7c8ec84",),
    ),
    Failure(
        "python-syntax",
        r"^(?:SyntaxError|IndentationError|TabError): ([^\n]{1,100})",
        cause="the program does not fit this Python: {1}; it may be older or newer than the one it was written for",
        remedy="'kedge exec IMAGE python3 --version' shows which it is; else mend the line that it names",
        source="Python",
        examples=("SyntaxError: invalid syntax",),
        sure=LIKELY,
    ),
    Failure(
        "no-attribute",
        r"AttributeError: module '([\w.]{1,80})' has no attribute '([\w]{1,80})'|ImportError: cannot import name "
        r"'([\w]{1,80})'"
        r" from '([\w.]{1,80})'",
        cause="the version of a package is not the one the program was written for, or a file of yours has the "
        "package's "
        "name",
        remedy="'kedge exec IMAGE python3 -c \"import NAME; print(NAME.__file__, NAME.__version__)\"' shows "
        "which it is",
        source="Python",
        examples=(
            "AttributeError: module 'numpy' has no attribute 'float'",
            "ImportError: cannot import name 'builder' from 'google.protobuf.internal'",
        ),
        sure=LIKELY,
    ),
    Failure(
        "offline-download",
        r"We couldn't connect to '?https://huggingface\.co|HTTPSConnectionPool\(host='([^']{1,80})'"
        r"|urllib\.error\.URLError: "
        r"<urlopen error|Could not fetch URL https?://|Failed to establish a new connection|Network is unreachable"
        r"|requests\.exceptions\.ConnectionError",
        cause="the program wanted to download something, and compute nodes often have no internet access",
        remedy="download on a login node first (HF_HOME, TORCH_HOME on a shared directory), then "
        "HF_HUB_OFFLINE=1; or set "
        "https_proxy if the site has one",
        source="Hugging Face, requests, pip",
        examples=(
            "OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it in the "
            "cached "
            "files",
            "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
            "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError: Failed to "
            "establish a new "
            "connection: [Errno 101] Network is unreachable'",
        ),
        sure=LIKELY,
    ),
)
