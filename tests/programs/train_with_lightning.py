# SPDX-License-Identifier: BSD-3-Clause
"""A training with Lightning on CPUs: every rank says who it is for Lightning, and how many steps it took.

Arguments: the number of nodes, and of processes on each, as `Trainer` wants them.
"""

import os
import sys
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    """A straight line through noise."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """The loss of one batch."""
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.line(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The simplest."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Train for one epoch of 1024 items in batches of 32."""
    warnings.filterwarnings("ignore")
    nodes, devices = map(int, sys.argv[1:3])
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        strategy="ddp",
        num_nodes=nodes,
        devices=devices,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = TensorDataset(torch.randn(1024, 16), torch.randn(1024, 1))
    trainer.fit(Line(), DataLoader(data, batch_size=32))
    who = f"rank {trainer.global_rank} of {trainer.world_size} on {os.uname().nodename}"
    where = f"node {trainer.node_rank}, local {trainer.local_rank}"
    os.write(1, f"{who}, {where}: {trainer.global_step} steps\n".encode())


if __name__ == "__main__":
    main()
