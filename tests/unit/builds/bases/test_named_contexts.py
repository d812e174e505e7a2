# SPDX-License-Identifier: BSD-3-Clause
"""`--build-context` names an image or a directory."""

from __future__ import annotations

from pathlib import Path

from kedge.builds.bases.named_contexts import settle_context, settle_origin
from kedge.builds.step_values import Base, CopyOrigin, RecipePlace
from tests.builders.rows import with_rows

PLACE = RecipePlace("Dockerfile", 1)


@with_rows(
    *(("docker-image://alpine:3", "alpine:3"), ("oci:there", "oci:there"), ("oci-layout://there", "oci:there")),
    *(("../there", ""), ("local:../there", "")),
)
def test_named_contexts_are_images_or_directories(value: str, image: str) -> None:
    settled = settle_origin(CopyOrigin(name="x"), {"x": value}, PLACE)
    assert settled == (Base(PLACE, "docker", image) if image else Path("../there"))


def test_named_contexts_settle_bases() -> None:
    contexts = {"base": "docker-image://alpine:3", "files": "local:./files"}
    assert settle_context(Base(PLACE, "context", "base"), contexts) == Base(PLACE, "docker", "alpine:3")
    assert settle_context(Base(PLACE, "context", "files"), contexts) == Base(PLACE, "localimage", "./files")
    other = Base(PLACE, "docker", "base")
    assert settle_context(other, contexts) is other
