# SPDX-License-Identifier: BSD-3-Clause
"""CPU architectures under their OCI names, with the spellings people and kernels use."""

from __future__ import annotations

import os

from kedge.base.frozen import frozen
from kedge.errors import InvalidReference

# uname and everyday spellings -> OCI (Go) architecture and variant
_ALIASES = {
    "x86_64": ("amd64", ""),
    "x86-64": ("amd64", ""),
    "aarch64": ("arm64", "v8"),
    "armv7l": ("arm", "v7"),
    "armhf": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i386": ("386", ""),
    "i686": ("386", ""),
    "ppc64el": ("ppc64le", ""),
    "loongarch64": ("loong64", ""),
}
_KNOWN = frozenset(
    "386 amd64 arm arm64 ppc64 ppc64le mips mipsle mips64 mips64le s390x riscv64 loong64".split()  # noqa: SIM905
)


@frozen
class Platform:
    """An operating system (always linux here), an architecture and, rarely, a variant of it."""

    architecture: str
    variant: str = ""
    os: str = "linux"

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read `amd64`, `x86_64`, `arm64/v8` or `linux/arm64`."""
        parts = text.strip().lower().split("/")
        if parts[0] == "linux":
            parts = parts[1:]
        name = parts[0] if parts else ""
        architecture, variant = _ALIASES.get(name, (name, ""))
        if architecture not in _KNOWN or len(parts) > 2:
            raise InvalidReference(f"unknown architecture '{text}'", hint=f"one of: {', '.join(sorted(_KNOWN))}")
        return cls(architecture, parts[1] if len(parts) == 2 else variant)

    @classmethod
    def host(cls) -> Platform:
        """The architecture this process runs on."""
        return cls.parse(os.uname().machine)

    def accepts(self, other: Platform) -> bool:
        """Whether an image for `other` is what was asked for; a missing variant on either side fits any."""
        same = self.architecture == other.architecture and self.os == other.os
        return same and (not self.variant or not other.variant or self.variant == other.variant)

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}" + (f"/{self.variant}" if self.variant else "")
