# SPDX-License-Identifier: BSD-3-Clause
"""What Horovod offers a training (rank, size, equal beginnings, averaged gradients), by what the image has.

Horovod if it is installed; else mpi4py, which uses the image's MPI; else PyTorch's Gloo, with the ranks that MPI's
launcher or `kedge launch --ranks` names in variables. A program without a launcher is rank 0 of 1.
"""

import os

import torch
import torch.distributed as dist

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


class HorovodRanks:
    """Horovod itself."""

    def __init__(self):
        import horovod.torch as horovod

        horovod.init()
        self._horovod = horovod
        self.name = "Horovod"
        self.rank, self.size, self.local_rank = horovod.rank(), horovod.size(), horovod.local_rank()

    def begin(self, model):
        """Give every rank the weights of rank 0."""
        self._horovod.broadcast_parameters(model.state_dict(), root_rank=0)

    def average(self, model):
        """Average the gradients of all ranks."""
        for part in model.parameters():
            self._horovod.allreduce_(part.grad)


class MpiRanks:
    """mpi4py."""

    def __init__(self):
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        self._mpi, self._world = MPI, world
        self.name = "mpi4py"
        self.rank, self.size = world.Get_rank(), world.Get_size()
        if self.size == 1 < _read(_SIZE, 1):
            raise ImportError("not started by MPI")
        self.local_rank = world.Split_type(MPI.COMM_TYPE_SHARED).Get_rank()

    def begin(self, model):
        """Give every rank the weights of rank 0."""
        for part in model.parameters():
            values = part.detach().cpu().numpy().copy()
            self._world.Bcast(values, root=0)
            part.data.copy_(torch.from_numpy(values))

    def average(self, model):
        """Average the gradients of all ranks."""
        for part in model.parameters():
            values = part.grad.cpu().numpy().copy()
            self._world.Allreduce(self._mpi.IN_PLACE, values)
            part.grad.copy_(torch.from_numpy(values) / self.size)


class GlooRanks:
    """torch.distributed, without MPI's library."""

    def __init__(self):
        self.name = "Gloo"
        self.rank, self.size, self.local_rank = (_read(names, number) for names, number in _DEFAULTS)
        if self.size > 1:
            if "MASTER_ADDR" not in os.environ:
                raise SystemExit("train.py: the image has neither Horovod nor mpi4py: use kedge launch --ranks")
            dist.init_process_group("gloo", rank=self.rank, world_size=self.size)

    def begin(self, model):
        """Give every rank the weights of rank 0."""
        for part in model.parameters() if self.size > 1 else ():
            dist.broadcast(part.data, 0)

    def average(self, model):
        """Average the gradients of all ranks."""
        for part in model.parameters() if self.size > 1 else ():
            dist.all_reduce(part.grad)
            part.grad /= self.size


_DEFAULTS = ((_RANK, 0), (_SIZE, 1), (_LOCAL, 0))


def _read(names, default):
    return next((int(os.environ[name]) for name in names if name in os.environ), default)


def join():
    """The ranks of this run, by the first of the three that the image has."""
    for kind in (HorovodRanks, MpiRanks):
        try:
            return kind()
        except ImportError:
            continue
    return GlooRanks()
