"""Image files as a source of batches."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from gcsa.images.prepare import Prepare


class ImageFiles:
    """Image files, each made a square by `prepare` when a batch of rows is taken; an `ImageSource`."""

    def __init__(self, files: Sequence[Path], prepare: Prepare) -> None:
        self.files, self.prepare = files, prepare
        self.nbytes = len(files) * len(prepare.mean) * prepare.size**2

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """uint8 (B, C, size, size). Raises ValueError naming the file that cannot be read."""
        return torch.stack([self.prepare.square(self.files[row]) for row in rows.tolist()])

    def read_all(self) -> Tensor:
        """uint8 (N, C, size, size)."""
        size, channels = self.prepare.size, len(self.prepare.mean)
        out = torch.empty(len(self), channels, size, size, dtype=torch.uint8)
        for row, file in enumerate(self.files):
            out[row] = self.prepare.square(file)
        return out
