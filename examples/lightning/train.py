#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The training of ../ddp with Lightning: the trainer starts, joins and names the processes.

`-N` nodes and `-p` processes per node, as in the tutorial. `kedge launch --contract lightning` starts every process
and sets both; alone, Lightning starts the processes of this node itself.
"""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning
except ImportError:  # the older name of the package
    import pytorch_lightning as lightning

LAYERS = 16
WIDTH = 1864  # 16 layers of it have 55.6 million parameters


class LinearLayers(lightning.LightningModule):
    """16 linear layers that learn random targets."""

    def __init__(self, width):
        super().__init__()
        self.model = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))

    def training_step(self, batch, _):
        """The loss of a batch."""
        inputs, targets = batch
        return nn.functional.mse_loss(self.model(inputs), targets)

    def configure_optimizers(self):
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_train_epoch_end(self):
        """Say how many steps this process took, as the example with DDP alone does."""
        steps = self.trainer.num_training_batches
        kind = "GPU" if self.device.type == "cuda" else "CPU"
        print(f"[{kind}{self.global_rank}] Epoch {self.current_epoch} | Steps: {steps}", flush=True)


def parse_arguments():
    """The tutorial's options, and what a small trial changes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", torch.cuda.device_count() or 1))
    nodes = int(os.environ.get("WORLD_SIZE", per_node)) // per_node
    parser.add_argument("-N", "--nodes", type=int, default=nodes, help="nodes (default: as launched)")
    parser.add_argument("-p", "--processes", type=int, default=per_node, help="per node (default: as launched)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=512, help="of each process (default: 512)")
    parser.add_argument("--data_size", type=int, default=131072, help="items (default: 131072)")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"of each layer (default: {WIDTH})")
    return parser.parse_args()


def main():
    """Train."""
    arguments = parse_arguments()
    lightning.seed_everything(0)
    shape = (arguments.data_size, arguments.width)
    loader = DataLoader(TensorDataset(torch.randn(shape), torch.randn(shape)), arguments.batch_size)
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=arguments.processes,
        num_nodes=arguments.nodes,
        strategy="ddp",
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(LinearLayers(arguments.width), loader)


if __name__ == "__main__":
    main()
