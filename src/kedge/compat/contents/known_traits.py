# SPDX-License-Identifier: BSD-3-Clause
"""What is stated of single images outside of NVIDIA's releases: TACC's base images, those that the tutorials name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.compat.contents.read_traits import read_traits, split_name
from kedge.compat.tables.known_images import find_known_image
from kedge.compat.traits import Fact, ImageTraits

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables


def read_known_traits(name: str, tables: Tables, architecture: str = "") -> ImageTraits | None:
    """What its tag and the list of known images say; None where no row has this tag."""
    image, tag = split_name(name)
    row = find_known_image(image, tag or ("latest" if "@" not in name else ""))
    if row is None:
        return None
    traits = read_traits(name, environment={}, labels={}, history=(), tables=tables, architecture=architecture)
    source = f"table, {row.image}:{row.tags} ({row.source})"
    stated = {"cuda": row.cuda if row.cuda != "none" else "", "python": row.python, "mpi": row.mpi}
    facts = {key: Fact(value, source) for key, value in stated.items() if value and not getattr(traits, key)}
    if row.cuda == "none":  # stated, too: a source without a value
        facts["cuda"] = Fact("", source)
    notes = (f"{row.task.partition(',')[0]}: {', '.join(row.programs)}", row.notes, row.warning)
    return replace(traits, **facts, notes=(*traits.notes, *filter(None, notes)))
