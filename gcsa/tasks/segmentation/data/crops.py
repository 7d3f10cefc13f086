"""Pictures with their labels in memory: random crops of them for training, whole ones for validation and test."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from gcsa._utils.arrays import Array
from gcsa.data.loaders import BatchIndices, seeded_generator
from gcsa.images.intensity import normalize
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation.data.augment import DenseAugment, resized

Targets = Callable[[Array], Tensor]
"""Labels int32 (H, W) to what a model is trained on, float32 (T, H, W)."""
Batch = tuple[Tensor, Tensor]
WholeBatch = tuple[ArrayImage, Tensor]
ALL = slice(None)


class Example(NamedTuple):
    """A `picture` (H, W, C) as it is stored, its `labels` int32 (H, W), its `path`, and its values that become 0 and 1 (`scale`)."""

    picture: Array
    labels: Array
    path: Path
    scale: tuple[float, float]

    @property
    def image(self) -> ArrayImage:
        return ArrayImage(self.picture)

    def normalized(self, rows: slice = ALL, columns: slice = ALL) -> Array:
        """The picture, or a part of it, in float32 (C, H, W)."""
        return normalize(self.picture[rows, columns], *self.scale)


class Crops(Dataset[Batch]):
    """Random crops of pictures, `per_image` an epoch of each, gathered a batch at a time.

    A crop and its augmentation depend on (seed, epoch, item) only: not on the batch, the process or the worker. Item i
    is of picture i // per_image. A picture smaller than the crop is filled up by reflection, its labels likewise. Labels
    are cut out with `context` pixels more on each side, augmented and made targets of with it, so that an object that the
    crop cuts has its whole shape there; beyond the picture there are no labels, and the image is 0. To be magnified by the
    `scale` of `augment`, the crop is cut smaller or larger by that factor, but never larger than the picture for it.

    Args:
        targets: from labels int32 (crop + 2 * context, the same) to float32 (T, the same two).
    """

    def __init__(
        self,
        examples: Sequence[Example],
        targets: Targets,
        *,
        crop: int,
        context: int,
        per_image: int = 1,
        augment: DenseAugment | None = None,
    ) -> None:
        self.examples, self.targets = examples, targets
        self.crop, self.context, self.per_image = crop, context, per_image
        self.augment = DenseAugment() if augment is None else augment

    def __len__(self) -> int:
        return len(self.examples) * self.per_image

    def __getitem__(self, draw: BatchIndices) -> Batch:
        """Images float32 (B, C, crop, crop) and targets float32 (B, T, crop, crop)."""
        seed, epoch, *_ = draw.key
        images, targets = zip(*(self.item(row, seeded_generator(seed, epoch, row)) for row in draw.rows), strict=True)
        return torch.stack(images), torch.stack(targets)

    def item(self, row: int, generator: torch.Generator) -> Batch:
        """One image float32 (C, crop, crop) and its targets float32 (T, crop, crop)."""
        example = self.examples[row // self.per_image]
        factor = max(self.augment.magnification(generator), min(1.0, self.crop / min(example.labels.shape)))
        side, context = (max(1, round(length / factor)) for length in (self.crop, self.context))
        window = cut(example, side, context if self.context else 0, generator)
        image, labels = self.augment(*resized(*window, self.crop + 2 * self.context), generator)
        targets = self.targets(labels.numpy())
        inside = slice(self.context, self.context + self.crop)
        return image[:, inside, inside].contiguous(), targets[:, inside, inside].contiguous()


def cut(example: Example, side: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random square of `side` pixels of a picture with `context` pixels around it: normalised (C, S, S), labels (S, S)."""
    example = example._replace(picture=filled(example.picture, side), labels=filled(example.labels, side))
    height, width = example.labels.shape
    top = int(torch.randint(height - side + 1, (), generator=generator))
    left = int(torch.randint(width - side + 1, (), generator=generator))
    rows, columns = (
        slice(max(0, start - context), min(length, start + side + context))
        for start, length in ((top, height), (left, width))
    )
    around = [
        (context - (start - part.start), context - (part.stop - start - side))
        for start, part in ((top, rows), (left, columns))
    ]
    image = np.pad(example.normalized(rows, columns), [(0, 0), *around])
    return torch.from_numpy(image), torch.from_numpy(np.pad(example.labels[rows, columns], around))


class Whole(Dataset[WholeBatch]):
    """Whole pictures as they are stored, one a batch."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, draw: BatchIndices) -> WholeBatch:
        """The image and its labels int32 (H, W) of the only row of `draw`."""
        (row,) = draw.rows
        return self.examples[row].image, torch.from_numpy(self.examples[row].labels)


def filled(values: Array, side: int) -> Array:
    """Values (H, W, ...) filled up by reflection, on both sides alike, where H or W is below `side`."""
    height, width = (max(0, side - length) for length in values.shape[:2])
    if not height and not width:
        return values
    around = [(missing // 2, missing - missing // 2) for missing in (height, width)]
    return np.pad(values, [*around, *[(0, 0)] * (values.ndim - 2)], mode="reflect")
