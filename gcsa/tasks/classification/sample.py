"""Images of a split, chosen once and gathered batch by batch, as often as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.tasks.classification.data import GCSADataModule
from gcsa.tasks.loading import BatchIndices, ImageSet
from gcsa.tasks.splits import stratified_order

STAGES = {"test": "test", "val": "validate", "train": "fit"}


@dataclass(frozen=True)
class Sample:
    """Iterates over batches (images float32 (B, C, H, W), labels int64 (B,)) of the chosen rows of `images`."""

    images: ImageSet
    rows: Tensor
    batch_size: int

    def __len__(self) -> int:
        """Number of images."""
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in self.rows.split(self.batch_size):
            yield self.images[BatchIndices(rows.tolist(), ())]


def draw_sample(datamodule: GCSADataModule, split: str, limit: int | None = None) -> Sample:
    """A class-balanced choice of `limit` images (None: all) of the split "test", "val" or "train", not augmented.

    The same in every run; reads no other split. Raises ValueError for another split or a limit below 1.
    """
    if split not in STAGES:
        raise UserError(f"unknown split {split!r}: choose one of {', '.join(STAGES)}")
    if limit is not None and limit < 1:
        raise UserError(f"the number of images must be 1 or more, not {limit}")
    datamodule.setup(STAGES[split])
    images = datamodule.images(split)
    rows = torch.arange(len(images)) if limit is None else stratified_order(images.labels, 0)[:limit].sort().values
    return Sample(images, rows, datamodule.batch_size)


def pick(sample: Sample, chosen: Sequence[int]) -> Tensor:
    """The images (len(chosen), C, H, W) at these places of a sample, at least one."""
    images, _ = next(iter(Sample(sample.images, sample.rows[list(chosen)], len(chosen))))
    return images


def first_images(sample: Sample, count: int) -> Tensor:
    """The first `count` images (count, C, H, W) of a sample, fewer where it has fewer."""
    return pick(sample, range(min(count, len(sample))))
