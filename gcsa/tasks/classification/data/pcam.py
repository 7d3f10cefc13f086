"""PatchCamelyon: 96 x 96 patches of lymph-node sections, tumour or not (Veeling et al., MICCAI 2018)."""

import gzip
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcsa._utils.validation import check_float
from gcsa.data.storage import damaged
from gcsa.tasks.classification.data.base import GCSADataModule, Split

ADDRESS = "https://zenodo.org/records/2546921/files/"
FILE = "camelyonpatch_level_2_split_{}_{}.h5"
MD5 = {
    ("train", "x"): "1571f514728f59376b705fc836ff4b63",
    ("train", "y"): "35c2d7259d906cfc8143347bb8e05be7",
    ("valid", "x"): "d5b63470df7cfa627aeec8b9dc0c066e",
    ("valid", "y"): "2b85f58b927af9964a4c15b8f7e8f179",
    ("test", "x"): "d8c2d60d490dbd479f8199bdfa0cf6ec",
    ("test", "y"): "60a7035772fbdb7f34eb86d4420cf66a",
}
"""Of the .gz files; as in `torchvision.datasets.PCAM`, whose download needs Google Drive and gdown."""
SIZE = 96
SLAB = 1024
"""Images read at once, to bound the memory that the change of layout needs."""
MAX_COUNT = 1_000_000
"""Of images: four times the published training split."""
MAX_RATIO = 1100
"""Of bytes to stored bytes: gzip reaches 1032."""
MAX_CHUNK = 1 << 28
"""Bytes of what is unpacked together."""
FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
"""HDF5's numbers of the filters that every h5py has within itself."""


class PCam(GCSADataModule):
    """262,144 / 32,768 / 32,768 images in `<root>/pcam/*.h5`, torchvision's layout, or a subset in the same
    form.

    A split of at most `max_memory_gb` (a full training split is 7.3 GB) is read into memory at once. A larger
    one stays on disk and is read a batch at a time: use `num_workers`.

    Args:
        kwargs: as for `GCSADataModule`.
    """

    name = "pcam"
    num_classes, in_chans, image_size = 2, 3, SIZE
    class_names = ("normal", "tumour")
    mean, std = (0.7009, 0.5398, 0.6963), (0.2334, 0.2767, 0.2109)
    mpp = 0.972  # four pixels of 0.243, of a scanner at 40x, are one
    download_size = "8 GB, and 17 GB of disk while it is unpacked"

    def __init__(self, *, max_memory_gb: float = 8.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_float("max_memory_gb", max_memory_gb, 0)
        self.max_memory_gb = max_memory_gb

    def required_files(self) -> Sequence[Path]:
        return [self._file(part, kind) for part, kind in MD5]

    def fetch(self, folder: Path) -> None:
        from torchvision.datasets.utils import download_url

        for (part, kind), md5 in MD5.items():
            if self._file(part, kind).exists():
                continue
            target = folder / "pcam" / FILE.format(part, kind)
            packed = target.with_suffix(".h5.gz")
            download_url(ADDRESS + packed.name, target.parent, packed.name, md5)
            with gzip.open(packed) as source, open(target, "wb") as unpacked:
                shutil.copyfileobj(source, unpacked)
            os.remove(packed)

    def check_test(self) -> None:
        super().check_test()
        images, labels = H5Images(self._file("test", "x")), _read_labels(self._file("test", "y"))
        if len(images) != len(labels):
            raise damaged(images.path, f"{len(images)} images with {len(labels)} labels", self.name)

    def read_fit(self) -> tuple[Split, Split]:
        return self._read("train"), self._read("valid")

    def read_test(self) -> Split:
        return self._read("test")

    def _file(self, part: str, kind: str) -> Path:
        return self.root / "pcam" / FILE.format(part, kind)

    def _read(self, part: str) -> Split:
        path = self._file(part, "x")
        label_path = self._file(part, "y")
        labels, images = _read_labels(label_path), H5Images(path)
        held = images if images.nbytes > self.max_memory_gb * 1e9 else images.read_all()
        return Split.whole(held, labels, path, label_path)


class H5Images:
    """The images of one h5 file, opened for every batch, which is safe in any worker process; an
    `ImageSource`.

    Raises:
        ValueError: not an h5 file of uint8 images (N, 96, 96, 3) that lie in this file, truncated or otherwise damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path, "x") as images:
            shape, dtype = tuple(map(int, images.shape)), images.dtype
            stored = images.id.get_storage_size()
        if dtype != np.uint8 or len(shape) != 4 or shape[1:] != (SIZE, SIZE, 3) or shape[0] > MAX_COUNT:
            wanted = f"not uint8 of (N, {SIZE}, {SIZE}, 3), N at most {MAX_COUNT:,}"
            raise damaged(path, f"{dtype} of shape {shape}, {wanted}", PCam.name)
        self.length = shape[0]
        self.nbytes = math.prod(shape)
        if self.nbytes > stored * MAX_RATIO:
            raise damaged(path, f"{self.length} images in {stored} bytes, which no compression does", PCam.name)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, rows: Tensor) -> Tensor:
        """uint8 (B, 3, 96, 96)."""
        # One at a time in file order: faster than h5py's selection of many rows, which must not repeat one
        # either.
        order = rows.argsort()
        out = torch.empty(len(rows), 3, SIZE, SIZE, dtype=torch.uint8)
        with _opened(self.path, "x") as images:
            for place in order.tolist():
                out[place] = torch.from_numpy(images[int(rows[place])]).permute(2, 0, 1)
        return out

    def read_all(self) -> Tensor:
        """uint8 (N, 3, 96, 96)."""
        out = torch.empty(self.length, 3, SIZE, SIZE, dtype=torch.uint8)
        with _opened(self.path, "x") as images:
            for start in range(0, self.length, SLAB):
                slab = torch.from_numpy(images[start : start + SLAB])
                out[start : start + SLAB] = slab.permute(0, 3, 1, 2)
        return out


def _read_labels(path: Path) -> Tensor:
    """int64 (N,) from a data set `y` of N integers in any shape."""
    with _opened(path, "y") as labels:
        if labels.dtype.kind not in "iu" or not labels.size <= MAX_COUNT:
            wanted = f"not at most {MAX_COUNT:,} integers"
            raise damaged(path, f"{labels.dtype} of shape {labels.shape}, {wanted}", PCam.name)
        return torch.from_numpy(labels[()].astype(np.int64).reshape(-1))


@contextmanager
def _opened(path: Path, key: str) -> Iterator[Any]:
    """The data set `key` of an h5 file; what h5py raises, then or on reading, becomes one ValueError.

    HDF5 can point to other files, of the same format (links, virtual data sets) and of any (external storage), and
    load decompressors from plug-in folders: only values in the file itself, packed by what h5py carries, are read.
    """
    import h5py

    try:
        if not path.is_file():
            raise OSError("not a regular file")
        with h5py.File(path, "r") as file:
            link = file.get(key, getlink=True)
            if link is None:
                raise KeyError(f"no data set {key!r}")
            dataset = file[key] if isinstance(link, h5py.HardLink) else None
            if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
                raise OSError(f"{key!r} is no data set of this file itself")
            _check_storage(dataset)
            yield dataset
    except (OSError, KeyError, RuntimeError, TypeError) as error:
        raise damaged(path, error, PCam.name) from error


def _check_storage(dataset: Any) -> None:
    properties = dataset.id.get_create_plist()
    filters = {properties.get_filter(i)[0] for i in range(properties.get_nfilters())}
    if unknown := filters - set(FILTERS):
        raise OSError(f"it is packed by filter {min(unknown)}, not one of {', '.join(FILTERS.values())}")
    if dataset.chunks is not None and math.prod(dataset.chunks) * dataset.dtype.itemsize > MAX_CHUNK:
        raise OSError(f"its chunks of {dataset.chunks} are larger than {MAX_CHUNK:,} bytes")
