# SPDX-License-Identifier: BSD-3-Clause
"""Batches of pictures by NVIDIA's DALI: read and cropped on the CPU (dali-cpu), or decoded on the GPU (dali-gpu)."""

import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
from pictures import DEVIATION, LEAST_AREA, MEAN


class DaliLoader:
    """The same batches as PyTorchLoader's."""

    def __init__(self, options, device, place, *, found, is_training):
        rank, size = place
        self.device = device
        gpu = device.index if device.type == "cuda" else None
        pipeline = Pipeline(options.batch_size, max(1, options.workers), gpu, seed=12 + rank)
        with pipeline:
            pipeline.set_outputs(*_plan(options, found, place, is_training=is_training))
        pipeline.build()
        # a training drops what does not fill a batch; to judge, each picture counts once
        policy = LastBatchPolicy.DROP if is_training else LastBatchPolicy.PARTIAL
        self.iterator = DALIGenericIterator(
            [pipeline], ["pictures", "labels"], reader_name="reader", last_batch_policy=policy, auto_reset=True
        )
        share = len(found) // size
        self.steps = share // options.batch_size if is_training else -(-share // options.batch_size)
        self.is_training = is_training

    def batches(self, _epoch):
        """To judge, each picture once; to train without end: shards differ by a picture, steps must not."""
        while True:
            for (batch,) in self.iterator:
                pictures = batch["pictures"].to(self.device, non_blocking=True)
                labels = batch["labels"].to(self.device, non_blocking=True).view(-1).long()
                yield pictures.contiguous(memory_format=torch.channels_last), labels
            if not self.is_training:
                return


def _plan(options, found, place, *, is_training):
    """What happens to each file."""
    rank, size = place
    files, labels = fn.readers.file(
        files=[path for path, _ in found],
        labels=[label for _, label in found],
        shard_id=rank,
        num_shards=size,
        random_shuffle=is_training,
        name="reader",
    )
    on_gpu = options.data_backend == "dali-gpu"
    decoder, edge = "mixed" if on_gpu else "cpu", options.image_size
    if is_training:
        area, ratio = [LEAST_AREA, 1.0], [3 / 4, 4 / 3]
        decoded = fn.decoders.image_random_crop(
            files, device=decoder, output_type=types.RGB, random_area=area, random_aspect_ratio=ratio
        )
        decoded = fn.resize(decoded, resize_x=edge, resize_y=edge)
        mirror = fn.random.coin_flip(probability=0.5)
    else:
        decoded = fn.decoders.image(files, device=decoder, output_type=types.RGB)
        decoded = fn.resize(decoded, resize_shorter=edge / 0.875)
        mirror = 0
    pictures = fn.crop_mirror_normalize(
        decoded,
        dtype=types.FLOAT,
        output_layout="CHW",
        crop=(edge, edge),
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in DEVIATION],
        mirror=mirror,
    )
    return pictures, labels
