# SPDX-License-Identifier: BSD-3-Clause
"""Pictures to train on: invented ones, or a directory like ImageNet's, read by DALI or by PyTorch and Pillow.

The directory has `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`. The sorted names of the directories in train/ are the
classes.
"""

import importlib.util
import math
import os
import pathlib
import sys

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BACKENDS = ("dali-cpu", "dali-gpu", "pytorch", "synthetic")
IMAGENET = 1_281_167  # pictures to train on
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours
ENDINGS = (".jpeg", ".jpg", ".png")
LEAST_AREA = 0.08  # of a picture, that a random crop shows


def choose_backend(wanted, folder):
    """What reads the pictures here, and why it is not what was asked for; the reason is empty if it is."""
    if wanted == "synthetic" or (wanted is None and folder is None):
        return "synthetic", ""
    if folder is None:
        sys.exit(f"main.py: --data-backend {wanted} needs a directory with train/ and val/; or use synthetic")
    wanted = wanted or "dali-cpu"
    if not wanted.startswith("dali"):
        return wanted, ""
    if not _has("nvidia.dali"):
        return "pytorch", f"{wanted}: the image has no DALI"
    if wanted == "dali-gpu" and not torch.cuda.is_available():
        return "dali-cpu", "dali-gpu: no GPU is visible"
    return wanted, ""


def _has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def list_classes(folder):
    """The names of the classes, in their order."""
    train = pathlib.Path(folder) / "train"
    if not train.is_dir():
        sys.exit(f"main.py: {folder} has no directory train/ with one directory of pictures per class")
    return sorted(entry.name for entry in os.scandir(train) if entry.is_dir())


def list_pictures(folder, classes):
    """The files of train/ or val/ and the number of each one's class."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        sys.exit(f"main.py: {folder} does not exist; --training-only needs no val/")
    numbers = {name: number for number, name in enumerate(classes)}
    strange = sorted(entry.name for entry in os.scandir(folder) if entry.name not in numbers)
    if strange:
        sys.exit(f"main.py: {folder / strange[0]} belongs to no class: train/ has no directory {strange[0]}")
    found = []
    for name in sorted(entry.name for entry in os.scandir(folder)):
        files = sorted(entry.path for entry in os.scandir(folder / name))
        found += [(path, numbers[name]) for path in files if path.lower().endswith(ENDINGS)]
    if not found:
        sys.exit(f"main.py: {folder} has no pictures ({', '.join(ENDINGS)}) in directories of classes")
    return found


class Synthetic:
    """The same invented batch again and again, on the device: no disk is measured."""

    classes = 1000

    def __init__(self, options, device, size):
        shape = (options.batch_size, 3, options.image_size, options.image_size)
        self.pictures = torch.randn(shape, device=device).contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(self.classes, (options.batch_size,), device=device)
        self.steps = IMAGENET // (options.batch_size * size)

    def batches(self, _epoch):
        """Batches without end."""
        while True:
            yield self.pictures, self.labels


class PictureFiles(Dataset):
    """Decoded pictures: to train a random part of each, half of them mirrored; to judge the middle."""

    def __init__(self, found, edge, *, is_training):
        self.found, self.edge, self.is_training = found, edge, is_training

    def __len__(self):
        return len(self.found)

    def __getitem__(self, number):
        from PIL import Image

        path, label = self.found[number]
        try:
            with Image.open(path) as opened:
                picture = opened.convert("RGB")  # some of ImageNet's are grey, or printed colours
        except OSError as problem:
            raise RuntimeError(f"cannot read the picture {path}: {problem}") from None
        box = self._random_box(*picture.size) if self.is_training else self._middle_box(*picture.size)
        picture = picture.resize((self.edge, self.edge), Image.BILINEAR, box)
        if self.is_training and torch.rand(()) < 0.5:
            picture = picture.transpose(Image.FLIP_LEFT_RIGHT)
        values = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return values.view(self.edge, self.edge, 3).permute(2, 0, 1), label

    def _random_box(self, width, height):
        """8 to 100 % of the area, with sides of 3:4 to 4:3."""
        for _ in range(10):
            area = width * height * torch.empty(()).uniform_(LEAST_AREA, 1).item()
            ratio = math.exp(torch.empty(()).uniform_(math.log(3 / 4), math.log(4 / 3)).item())
            w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if w <= width and h <= height:
                left, top = torch.rand(2).tolist()
                return (left * (width - w), top * (height - h), left * (width - w) + w, top * (height - h) + h)
        return self._middle_box(width, height)

    @staticmethod
    def _middle_box(width, height):
        """The middle 7/8 of the shorter side: 224 of 256."""
        side = min(width, height) * 0.875
        return ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)


class PyTorchLoader:
    """Batches of pictures, decoded by worker processes."""

    def __init__(self, options, device, place, *, found, is_training):
        if not _has("PIL"):
            sys.exit("main.py: the image has no Pillow, which decodes pictures: pip install pillow")
        rank, size = place
        files = PictureFiles(found, options.image_size, is_training=is_training)
        self.device = device
        # each file is judged once; what is trained on is the same number in every process
        self.sampler = (
            DistributedSampler(files, size, rank, shuffle=True) if is_training else range(rank, len(files), size)
        )
        self.loader = DataLoader(
            files,
            options.batch_size,
            sampler=self.sampler,
            num_workers=options.workers,
            drop_last=is_training,
            pin_memory=device.type == "cuda",
        )
        self.steps = len(self.loader)
        self.mean, self.deviation = (
            torch.tensor(values, device=device).view(3, 1, 1) * 255 for values in (MEAN, DEVIATION)
        )

    def batches(self, epoch):
        """Each picture once, in another order in every epoch of a training."""
        if isinstance(self.sampler, DistributedSampler):
            self.sampler.set_epoch(epoch)
        for pictures, labels in self.loader:
            values = pictures.to(self.device, non_blocking=True).float()
            values = ((values - self.mean) / self.deviation).contiguous(memory_format=torch.channels_last)
            yield values, labels.to(self.device, non_blocking=True)


def make_loader(options, device, place, *, found, is_training):
    """Batches of the files found, by what choose_backend chose."""
    kind = PyTorchLoader
    if options.data_backend.startswith("dali"):
        from dali import DaliLoader as kind  # late: needs DALI
    return kind(options, device, place, found=found, is_training=is_training)
