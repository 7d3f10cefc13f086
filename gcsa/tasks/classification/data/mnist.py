"""MNIST: 28 x 28 scans of handwritten digits (LeCun, Cortes, Burges 1998), as torchvision lays it out."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from gcsa.data.splits import hold_out
from gcsa.tasks.classification.data.base import GCSADataModule, Split
from gcsa.tasks.classification.data.idx import check_idx, find_idx, read_idx_pair


class MNIST(GCSADataModule):
    """54,000 / 6,000 / 10,000 images in `<root>/MNIST/raw`, packed (.gz) or not.

    Validation: a class-balanced tenth of the 60,000 training images, the same in every run.
    """

    name = "mnist"
    num_classes, in_chans, image_size = 10, 1, 28
    class_names = tuple("0123456789")
    mean, std = (0.1307,), (0.3081,)
    download_size = "12 MB"
    folder = "MNIST"
    """Also the name of the torchvision class that downloads it."""
    counts: ClassVar[dict[str, int]] = {"train": 60_000, "t10k": 10_000}

    def required_files(self) -> Sequence[Path]:
        return [path for part in self.counts for path in self._files(part)]

    def fetch(self, folder: Path) -> None:
        from torchvision import datasets

        getattr(datasets, self.folder)(folder, download=True)

    def check_test(self) -> None:
        super().check_test()
        for path, shape in zip(self._files("t10k"), ((28, 28), ()), strict=True):
            check_idx(path, (self.counts["t10k"], *shape), self.name)

    def read_fit(self) -> tuple[Split, Split]:
        part = self._read("train")
        train, val = hold_out(part.labels, 0.1)
        return part._replace(rows=train), part._replace(rows=val)

    def read_test(self) -> Split:
        return self._read("t10k")

    def _files(self, part: str) -> tuple[Path, Path]:
        raw = self.root / self.folder / "raw"
        return find_idx(raw, f"{part}-images-idx3-ubyte"), find_idx(raw, f"{part}-labels-idx1-ubyte")

    def _read(self, part: str) -> Split:
        images, labels = self._files(part)
        return Split.whole(*read_idx_pair(images, labels, self.counts[part], self.name), images, labels)
