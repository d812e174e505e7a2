# SPDX-License-Identifier: BSD-3-Clause
"""The type of a file by its name, for tables of what holds the bytes."""

from __future__ import annotations

import re

EXECUTABLES, OTHER = "programs and scripts", "other"
_TYPES = (
    ("shared libraries", rb"\.so(?:\.[\w.-]+)?"),
    ("static libraries and objects", rb"\.(?:a|la|o|rlib)"),
    ("Python bytecode", rb"\.py[co]"),
    ("Python source", rb"\.(?:py|pyi|pyx|pxd)"),
    ("headers", rb"\.(?:h|hh|hpp|hxx|cuh|inl)"),
    ("source code", rb"\.(?:c|cc|cpp|cxx|cu|f|f90|rs|go|java|js|ts|R)"),
    ("debug information", rb"\.(?:debug|dwp|pdb)"),
    (
        "archives and packages",
        rb"\.(?:tar|tgz|tbz2|txz|zip|whl|deb|rpm|apk|conda|jar|egg|iso|run|7z|(?:tar\.)?(?:gz|xz|bz2|zst))",
    ),
    ("models and weights", rb"\.(?:pt|pth|ckpt|safetensors|onnx|gguf|h5|hdf5|pb|tflite|caffemodel|engine|plan)"),
    ("data", rb"\.(?:json|csv|tsv|xml|npy|npz|parquet|db|sqlite|dat|bin|npk|pkl|yaml|yml)"),
    ("documents", rb"\.(?:md|rst|txt|html?|pdf|tex|info)"),
    ("translations", rb"\.(?:mo|po)"),
    ("pictures, fonts and media", rb"\.(?:png|jpe?g|gif|svg|ico|ttf|otf|woff2?|pfb|mp4|wav|webp)"),
)
_NAMED = re.compile(rb"|".join(b"(.+" + pattern + b"\\Z)" for _, pattern in _TYPES), re.IGNORECASE)


def name_type(name: bytes, mode: int) -> str:
    """What a file is, by its name without directories and its permissions."""
    match = _NAMED.match(name)
    if match is not None and match.lastindex is not None:
        return _TYPES[match.lastindex - 1][0]
    return EXECUTABLES if mode & 0o111 else OTHER
