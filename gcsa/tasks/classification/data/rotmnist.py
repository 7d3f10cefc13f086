"""Rotated MNIST: MNIST digits turned by uniform random angles (Larochelle et al., ICML 2007)."""

import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from gcsa._utils.errors import UserError
from gcsa.data.storage import damaged, log
from gcsa.tasks.classification.data.base import GCSADataModule, Split
from gcsa.tasks.classification.data.idx import check_idx, find_idx, read_idx_pair

ADDRESS = "http://www.iro.umontreal.ca/~lisa/icml2007data/mnist_rotation_new.zip"
MD5 = "0f9a947ff3d30e95cd685462cbf3b847"
ARCHIVE = "mnist_rotation_new.zip"
AMAT = "mnist_all_rotation_normalized_float_{}.amat"


DAMAGE = (
    *(ValueError, KeyError, OSError, EOFError, RuntimeError, SyntaxError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What reading a damaged file of either layout raises; the header of an array is a Python expression."""
MAX_CHARACTERS = 32
"""Of a number in the text, with what parts it from the next: more than any way of writing a float32 needs."""


class RotMNIST(GCSADataModule):
    """10,000 / 2,000 / 50,000 images in `<root>/rotated_mnist`, the published split.

    Two layouts, the first of which wins where both are there (`source` says which was read): the original
    `mnist_all_rotation_normalized_float_{train_valid,test}.amat` (text, floats in 0..1), parsed (.npy, left
    by a download), unpacked or in `mnist_rotation_new.zip`; or a re-generated
    `rotmnist-{train_valid,test}-*.gz` in MNIST's IDX format. A download parses the text once, which takes
    half a minute, and keeps arrays.
    """

    name = "rotmnist"
    num_classes, in_chans, image_size = 10, 1, 28
    class_names = tuple("0123456789")
    mean, std = (0.1315,), (0.2907,)
    download_size = "56 MB, 200 MB on disk"
    counts: ClassVar[dict[str, int]] = {"train_valid": 12_000, "test": 50_000}
    num_val = 2_000

    def required_files(self) -> Sequence[Path]:
        original = [self._original(part) for part in self.counts]
        if all(path.exists() for path in original):
            return original
        idx = [path for part in self.counts for path in self._idx(part)]
        return idx if any(path.exists() for path in idx) else original

    def fetch(self, folder: Path) -> None:
        from torchvision.datasets.utils import download_url

        target = folder / "rotated_mnist"
        download_url(ADDRESS, target, ARCHIVE, MD5)
        for part in self.counts:
            np.save(target / f"{AMAT.format(part)}.npy", self._parse(target / ARCHIVE, part))
        (target / ARCHIVE).unlink()

    def check_test(self) -> None:
        super().check_test()
        if self.required_files()[0] == self._idx("train_valid")[0]:
            for path, shape in zip(self._idx("test"), ((28, 28), ()), strict=True):
                check_idx(path, (self.counts["test"], *shape), self.name)

    def read_fit(self) -> tuple[Split, Split]:
        whole = self._read("train_valid")
        kept = len(whole.rows) - self.num_val
        return whole._replace(rows=whole.rows[:kept]), whole._replace(rows=whole.rows[kept:])

    def read_test(self) -> Split:
        return self._read("test")

    def _original(self, part: str) -> Path:
        folder = self.root / "rotated_mnist"
        candidates = [folder / f"{AMAT.format(part)}.npy", folder / AMAT.format(part), folder / ARCHIVE]
        return next((path for path in candidates if path.exists()), candidates[-1])

    def _idx(self, part: str) -> tuple[Path, Path]:
        folder, stem = self.root / "rotated_mnist", f"rotmnist-{part}"
        return find_idx(folder, f"{stem}-images-idx3-ubyte"), find_idx(folder, f"{stem}-labels-idx1-ubyte")

    def _read(self, part: str) -> Split:
        if self.required_files()[0] == self._idx("train_valid")[0]:
            images, labels = self._idx(part)
            log.info("rotmnist: reading the re-generated %s", images)
            return Split.whole(*read_idx_pair(images, labels, self.counts[part], self.name), images, labels)
        path = self._original(part)
        log.info("rotmnist: reading the original %s", path)
        table = torch.from_numpy(self._parse(path, part))
        return Split.whole(table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1].long(), path)

    def _parse(self, path: Path, part: str) -> NDArray[np.float32]:
        """Rows of 784 pixels and a label, float32 (count, 785), from the parsed, unpacked or packed file."""
        shape = (self.counts[part], 785)
        most = math.prod(shape) * MAX_CHARACTERS
        try:
            if path.suffix == ".npy":
                # Mapped, so that a header of another shape is refused before anything of that shape is allocated.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about headers as Python 2 wrote them
                    table: NDArray[np.float32] = np.lib.format.open_memmap(path, mode="r")
            elif path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive, archive.open(AMAT.format(part)) as text:
                    table = _load_text(text, archive.getinfo(AMAT.format(part)).file_size, most)
            else:
                with path.open("rb") as text:
                    table = _load_text(text, path.stat().st_size, most)
        except DAMAGE as error:
            raise damaged(path, error, self.name) from error
        if table.shape != shape or table.dtype != np.float32:
            raise damaged(path, f"a table of {table.dtype} {table.shape}, not float32 {shape}", self.name)
        table = np.array(table)
        if not np.isfinite(table[:, -1]).all() or (table[:, -1] % 1).any():
            raise damaged(path, "labels that are not whole numbers", self.name)
        return table


def _load_text(text: IO[bytes], size: int, most: int) -> NDArray[np.float32]:
    if size > most:
        raise UserError(f"{size:,} bytes of text, above {most:,}", "text.too_large", size=size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no rows, which their number tells
        return np.loadtxt(text, dtype=np.float32, ndmin=2, encoding="ascii")
