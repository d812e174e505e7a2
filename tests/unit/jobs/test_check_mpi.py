# SPDX-License-Identifier: BSD-3-Clause
"""MPI of an image against the PMI that the script of another runtime names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import Job, Parallel, StagedImage
from kedge.cluster.site import Queue, Site
from kedge.errors import LaunchRefused
from kedge.image.pin_digest import pin_image
from kedge.jobs.check_mpi import advise_unpulled, check_job_mpi
from kedge.system.settings import Settings
from tests.builders.elf_files import make_library
from tests.builders.images import make_config
from tests.builders.oci_images import make_tar
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says

SITE = Site("here", "Here", "slurm", mpi_type="pmix", runtime="apptainer")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    library = tmp_path / "image/usr/lib64/libmpi.so.12"
    library.parent.mkdir(parents=True)
    library.write_bytes(make_library("libmpi.so.12", text=b"MPICH Version:\t4.0.2\0"))
    return tmp_path / "image"


def check(image: Path, site: Site = SITE, **fields: object) -> tuple[str, ...]:
    job = replace(Job(image=str(image), command=("./app",), parallel=Parallel.MPI), **fields)
    return check_job_mpi(job, site, StagedImage(str(image)), {})


def test_ranks_that_would_be_alone_are_refused(image: Path) -> None:
    with pytest.raises(LaunchRefused, match=r"--mpi=pmix of site here: MPICH 4.0.2 .* each rank would be rank 0 of 1"):
        check(image)
    (warning,) = check(image, force=True)
    assert_says(warning, "compat/each-rank-rank")
    assert check(image, replace(SITE, mpi_type="pmi2")) == ()
    assert check(image, replace(SITE, mpi_type="")) == ()
    assert check(image, runtime="kedge") == ()
    assert check(image, launcher="mpirun") == ()
    assert check(image, parallel=Parallel.TASKS) == ()
    assert check(image / "absent") == ()


def test_images_without_mpi_are_told_of_or_let_through(tmp_path: Path) -> None:
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (warning,) = check(tmp_path)
    assert "has no MPI library" in warning
    (tmp_path / "image.sif").write_bytes(b"#!/no image\n")
    assert check(tmp_path / "image.sif") == ()


def test_intel_mpi_is_told_of_entry_point_and_fabric(tmp_path: Path) -> None:
    library = tmp_path / "usr/lib64/libmpi.so.12"
    library.parent.mkdir(parents=True)
    library.write_bytes(make_library("libmpi.so.12", text=b"Intel(R) MPI Library 2021.9 for Linux* OS\0"))
    note = "MPI of images with Intel MPI may need --env FI_PROVIDER=tcp"
    site = replace(SITE, runtime="kedge", notes=("qlimits prints limits", note))
    fabric, entry = check(tmp_path, site)
    assert fabric == note
    assert entry.endswith("add --runscript")
    assert check(tmp_path, site, runscript=True, environment=(("FI_PROVIDER", "tcp"),)) == ()


def advise(reference: str, tmp_path: Path, **fields: object) -> tuple[str, ...]:
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "store")}
    settings = Settings.load({}, environ)
    job = replace(Job(image=reference, command=("pi-mpi.py",), parallel=Parallel.MPI, queue="rtx"), **fields)
    note = "images with Intel MPI may need --env FI_PROVIDER=tcp"
    site = Site("frontera", "", "slurm", notes=(note,), queues=(Queue("rtx", arch="amd64"),))
    image = StagedImage("/x.sif", reference)
    pin_image(reference, image, settings, "amd64")  # as submit does before
    return advise_unpulled(job, site, image, settings, environ)


def test_intel_mpi_of_an_image_that_the_job_pulls(tmp_path: Path) -> None:
    """TACC pulls in the job: the variables of the image's config tell, or the table for TACC's own base images."""
    layer = make_tar({"bin/true": b"x"})
    with FakeRegistry() as registry:
        for tag, variable in (("intel", "I_MPI_LIBRARY_KIND=release_mt"), ("other", "OMPI_VERSION=4.1.5")):
            registry.add_image("me/pi", tag, [layer], make_config([layer], {"Env": [variable]}, "amd64"))
        intel, other = (f"docker://{registry.host}/me/pi:{tag}" for tag in ("intel", "other"))
        fabric, entry = advise(intel, tmp_path)
        assert "FI_PROVIDER=tcp" in fabric
        assert entry.endswith("add --runscript")
        assert advise(intel, tmp_path, runscript=True, environment=(("FI_PROVIDER", "tcp"),)) == ()
        assert advise(other, tmp_path) == ()
    assert len(advise("docker://tacc/tacc-ubuntu18-impi19.0.7-common", tmp_path)) == 2
    assert advise("docker://tacc/tacc-ubuntu18-mvapich2.3-ib", tmp_path) == ()
