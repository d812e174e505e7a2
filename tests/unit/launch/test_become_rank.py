# SPDX-License-Identifier: BSD-3-Clause
"""A process becomes a rank: its variables, what is taken away, and the PMI that must be there."""

from __future__ import annotations

import pytest

from kedge.base.frozen import replace
from kedge.cluster.ranks import Rank, own_variables
from kedge.errors import LaunchRefused
from kedge.launch.become_rank import prepare_rank
from kedge.launch.order import RankOrder
from tests.builders.rows import each_row

ORDER = RankOrder("ranks", (2,), "127.0.0.1", 20007, "kedge-1.0", hosts=("n1",), cpus=(4,), command_at=2)
WORDS = ("exec", "app.sif", "python", "train.py")
SECOND = own_variables(Rank(1, 2, 1, 2, 0, 1))


def test_a_rank_is_counted_and_has_its_variables() -> None:
    start = prepare_rank(ORDER, WORDS, SECOND)
    environ = {"OPAL_PREFIX": "/opt/host", "LD_PRELOAD": "x.so", **SECOND}
    prepare_rank(ORDER, WORDS, environ).apply(environ)
    assert start.words == WORDS
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "20007")):
        assert environ[name] == environ[f"KEDGEENV_{name}"] == value
    assert "OPAL_PREFIX" not in environ
    assert "LD_PRELOAD" not in environ
    with pytest.raises(LaunchRefused, match="no launcher started this process as a rank"):
        prepare_rank(ORDER, WORDS, {})
    order = replace(ORDER, contract="torchrun", layout=(1,), processes=(4,))
    start = prepare_rank(order, WORDS, own_variables(Rank(0, 1, 0, 1, 0, 1)))
    assert start.words[:3] == ("exec", "app.sif", "torchrun")
    assert "--nproc_per_node=4" in start.words
    assert RankOrder.decode(ORDER.encode()) == ORDER
    for text in ("", "[]", "{}", '{"x":1}', "null"):
        with pytest.raises(LaunchRefused):
            RankOrder.decode(text)


@each_row(("pmi", "served"), [("pmix", {"PMIX_NAMESPACE": "j", "PMIX_RANK": "1"}), ("pmi2", {"PMI_FD": "7"})])
def test_the_pmi_of_the_image_must_be_served(pmi: str, served: dict[str, str]) -> None:
    ranked = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    order = replace(ORDER, contract="none", pmi=(pmi,), mpi="MPICH 4.0.2")
    assert prepare_rank(order, WORDS, {**ranked, **served}).rank.rank == 1
    with pytest.raises(LaunchRefused, match=rf"MPICH 4\.0\.2 needs {pmi}.*rank 0 of 1"):
        prepare_rank(order, WORDS, ranked)
    assert prepare_rank(replace(order, is_checked=False), WORDS, ranked).rank.size == 2
