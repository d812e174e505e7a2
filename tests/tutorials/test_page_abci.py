# SPDX-License-Identifier: BSD-3-Clause
"""ABCI's page, walked through: on an OpenPBS where one is installed, and its old cluster's part on a Grid Engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.gridengine_cell import GROUP, GridEngineCell
from tests.live.openpbs import OpenPbs
from tests.tutorials.internet import Internet
from tests.tutorials.lessons import Expect
from tests.tutorials.site_images import TRAINING, HostLayers, SiteImages
from tests.tutorials.site_pages import read_site_page
from tests.tutorials.test_abci import EXAMPLES, JOB_VARIABLES
from tests.tutorials.walks import FILE, LOGIN, OWN_HOST, Place, Walk, Walker, expect_job, make_walker

_PLACE = Place("abci", name="abci", is_at_home=True)
_OLD = "Commands of ABCI's tutorial"
_TODAY = ("Bring kedge there", "Train", "Beyond the tutorial")
# stands in for Horovod's example: the ranks add up
_RANKS = b"""\
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
hosts = world.gather(socket.gethostname())
total = world.allreduce(world.rank)
if world.rank == 0:
    print("ranks add up to", total, "on", *(f"{host}:{hosts.count(host)}" for host in sorted(set(hosts))))
"""
# this machine has fewer processors than the nodes that it plays
_CROWDED = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
_ONE = expect_job(r"trained on 0 pictures \(0 bytes\) by 1 on pbsn\d; ")
_NODE = r"<ready \w+@{}\d>"
WALK = Walk(
    "abci",
    {
        **OWN_HOST,
        "kedge config set site": Expect(then="kedge site detect", then_says=r"(?m)^abci3 +requested"),
        "kedge config set scratch": Expect(then="kedge config get scratch_directory", then_says="/bob"),
        "kedge recommend tensorflow": Expect(says="nvcr.io/nvidia/tensorflow:23.01-tf2-py3"),
        "wget": Expect(then="ls *.py", then_says="mnist.py"),
        "kedge alloc -A grpname --queue rt_HG --time 1h --nv docker": Expect(
            says=r"Type this on the compute node: .*/kedge shell --nv .*/tensorflow_23.03-tf1-py3.*sif[\s\S]*@pbsn",
            then="kedge exec --nv $(find ~/groups/bob -name 'tensorflow_*.sif') python cnn_mnist.py",
            then_says=_ONE.then_says,
            leaves=1,
            seconds=180,
        ),
        "kedge submit -A": _ONE,
        "kedge submit --mpi": expect_job(r"ranks add up to 120 on pbsn1:8 pbsn2:8"),
        "kedge registry login": LOGIN,
        "kedge status": Expect(says=r"completed on pbsn1"),
        "kedge logs": Expect(says=r"ranks add up to 120 on pbsn1:8 pbsn2:8"),
        "kedge recommend pytorch": Expect(says=r"driver 5\d\d .*: 25.06-py3"),
        "kedge submit --torchrun": _ONE,
        "kedge alloc -A grpname --queue rt_HG --time 1h --nv ": Expect(says=_NODE.format("pbsn"), seconds=180),
        "kedge bench": Expect(says="2048 float64 .* GFLOP/s", leaves=1),
    },
    fills={"kedge-x86_64": FILE, "grpname": GROUP},
    sections=_TODAY,
)
_ON_GE = r"trained on 0 pictures \(0 bytes\) by 1 on ge0\d; "
_PULL = "kedge pull {}.sif docker://nvcr.io/{}"
OLD_WALK = Walk(
    "abci",
    {
        "kedge alloc -A grpname --queue rt_F --time 1h --nv": Expect(
            before=(
                _PULL.format("tensorflow_21.06-tf1-py3", "nvidia/tensorflow:21.06-tf1-py3"),
                _PULL.format("chainer_4.0.0b1", "nvidia/chainer:4.0.0b1"),
            ),
            says=_ON_GE,
        ),
        "kedge submit -A": expect_job(_ON_GE),
        "kedge alloc -A grpname --queue rt_F --nodes 2": Expect(
            says=_NODE.format("ge0"), then="echo $NHOSTS hosts", then_says="(?m)^2 hosts", leaves=1
        ),
        "kedge submit --mpi": expect_job(r"ranks add up to 28 on ge01:4 ge02:4"),
        "kedge alloc -A grpname --gpus 1": Expect(says=_ON_GE),
    },
    fills={"grpname": GROUP},
    sections=(_OLD,),
)


def test_abci_page_is_walked_through_to_the_end() -> None:
    """In two parts: the page is about two clusters."""
    assert {found.host for found in read_site_page("abci")} == {*_TODAY, _OLD}


def write_programs(walker: Walker, *names: str) -> None:
    """What the tutorial has its readers download; qrsh loses what is printed just before it ends."""
    for name in names:
        text = _RANKS if name == "tensorflow_mnist.py" else TRAINING
        walker.there.write(name, text.decode() + "    import time\n    time.sleep(1)\n")


@pytest.mark.timeout(600)
def test_abci_page(pbs: OpenPbs, pbs_internet: Internet, host_layers: HostLayers) -> None:
    images = SiteImages(host_layers, pbs_internet)
    images.serve("nvcr.io/nvidia/tensorflow:23.03-tf1-py3", {}, {}, mpi="openmpi")
    images.serve("nvcr.io/nvidia/tensorflow:23.01-tf2-py3", {}, {})
    images.serve_pytorch("nvcr.io/nvidia/pytorch:25.06-py3", "2.8.0a0+5228986c39.nv25.06")
    for name, path in EXAMPLES.items():
        pbs_internet.files[path] = _RANKS if name == "tensorflow_mnist.py" else TRAINING
    user = pbs.user("bob")
    local = user.folder / "local"
    walker = make_walker(
        user, pbs_internet, Place("abci", name="abci", is_at_home=True), local, "unset KEDGE_SITE\n", **_CROWDED
    )
    groups = walker.there.write("groups/a-file", "").parent
    write_programs(walker, "train.py")
    local.mkdir(mode=0o1777)
    local.chmod(0o1777)
    whole = "queue rt_HF default_chunk.ncpus"  # as there, a node's come with the queue
    with pbs.settings(f"set {whole}=8", f"unset {whole}"):
        walker.follow(replace(WALK, fills={"/groups/grpname": str(groups), **WALK.fills}))
    assert list((groups / "bob").rglob("*.sif")), "where the page says"


@pytest.mark.timeout(600)
def test_abci_page_of_the_old_cluster(
    abci_lessons: GridEngineCell, abci_internet: Internet, abci_modules: str, host_layers: HostLayers
) -> None:
    images = SiteImages(host_layers, abci_internet)
    images.serve("nvcr.io/nvidia/tensorflow:21.06-tf1-py3", {}, {}, mpi="openmpi")
    images.serve("nvcr.io/nvidia/chainer:4.0.0b1", {}, {})
    startup = JOB_VARIABLES.format(spool=abci_lessons.folder / "spool/execd") + abci_modules
    local = abci_lessons.hosts.local_disk
    user = abci_lessons.user("bob")
    walker = make_walker(user, abci_internet, _PLACE, local, startup, KEDGE_SITE="abci2", **_CROWDED)
    write_programs(walker, "cnn_mnist.py", "tensorflow_mnist.py", "train_mnist.py")
    walker.bring_kedge()
    walker.follow(OLD_WALK)
