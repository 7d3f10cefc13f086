"""Batches of text lines of one width, in an order that depends on (seed, epoch) only."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from gcsa.data.loaders import BatchIndices, EpochSampler, seeded_generator
from gcsa.tasks.recognition.data.charset import Charset, display_order, normalize
from gcsa.tasks.recognition.data.line_image import Line


class LineBatch(NamedTuple):
    """`images` float32 (B, 1, H, W), ink 1; `targets` int64, all classes from left to right, one line after
    the other; `lengths` (B,) of
    the targets; `texts`, which hold the characters outside the charset too."""

    images: Tensor
    targets: Tensor
    lengths: Tensor
    texts: list[str]


def steps_needed(classes: Sequence[int]) -> int:
    """The least time steps that CTC can align `classes` with: a blank must part equal neighbours."""
    return len(classes) + sum(a == b for a, b in pairwise(classes))


class LineSet(Dataset[LineBatch]):
    """A split in memory: `images`, uint8 (1, H, W) each, and their `lines`, a batch of one width at a time."""

    def __init__(
        self,
        images: Sequence[Tensor],
        lines: Sequence[Line],
        charset: Charset,
        augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    ) -> None:
        self.images, self.lines, self.augment = images, lines, augment
        self.widths = [image.shape[-1] for image in images]
        self.targets = [charset.encode(display_order(normalize(line.text)), known_only=True) for line in lines]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, draw: BatchIndices) -> LineBatch:
        """The lines of `draw.rows`, which must have one width."""
        images = torch.stack([self.images[row] for row in draw.rows]).float().div_(255)
        if self.augment is not None:
            images = self.augment(images, seeded_generator(*draw.key))
        targets = [self.targets[row] for row in draw.rows]
        return LineBatch(
            images,
            torch.tensor([i for target in targets for i in target], dtype=torch.long),
            torch.tensor([len(target) for target in targets]),
            [self.lines[row].text for row in draw.rows],
        )


class WidthSampler(EpochSampler):
    """The batches of one process, each of lines of one of the `widths` (N,), as `EpochSampler` shares them out.

    Args:
        shuffle: draw the lines of a batch and the order of the batches anew in every epoch; otherwise both go from
            narrow to wide.
        short_first: the batches of epoch 0 go from narrow to wide, though shuffled.
    """

    def __init__(
        self,
        widths: Sequence[int],
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        short_first: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(len(widths), batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size)
        self.short_first = short_first
        buckets: dict[int, list[int]] = defaultdict(list)
        for row, width in enumerate(widths):
            buckets[width].append(row)
        self.buckets = [torch.tensor(buckets[width]) for width in sorted(buckets)]
        self.batches = sum(-(-len(bucket) // (batch_size * world_size)) for bucket in self.buckets)

    def rows(self) -> list[list[int]]:
        generator = seeded_generator(self.seed, self.epoch)
        batches = []
        for bucket in self.buckets:
            if self.shuffle:
                bucket = bucket[torch.randperm(len(bucket), generator=generator)]
            batches += [part.tolist() for part in bucket.split(self.batch_size * self.world_size)]
        if self.shuffle and not (self.short_first and self.epoch == 0):
            batches = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
        return batches
