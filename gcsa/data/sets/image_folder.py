"""A user's own images: one folder a class."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcsa.data.base import GCSADataModule, Split
from gcsa.data.splits import hold_out

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GREY_MEAN, GREY_STD = (0.449,), (0.226,)

Files = tuple[list[Path], Tensor]
"""Files of a split, and their labels (N,)."""


class ImageFolder(GCSADataModule):
    """Images in `<path>/{train,val,test}/<class>/` or, to be split 8 : 1 : 1, in `<path>/<class>/`.

    Without `val`, a tenth of the training images validates; splits are class-balanced and the same in every
    run. Images are cropped at the centre to a square and resized. A split larger than `max_memory_gb` is
    decoded a batch at a time instead of being held in memory: use `num_workers`.

    Args:
        path: the folder of images; `root` is not used.
        image_size: pixels a side the images are resized to.
        in_chans: 3 for colour, 1 for grey.
        kwargs: as for `GCSADataModule`.

    Raises:
        ValueError: a class without images, classes that differ between splits; an image that cannot be read
            (in `setup`, or in its batch where the split is not held in memory).
        FileNotFoundError: no such folder.
    """

    name = "image_folder"

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        image_size: int = 224,
        in_chans: int = 3,
        max_memory_gb: float = 8.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if path is None:
            raise ValueError("data=image_folder needs data.path=<the folder of your images>")
        if image_size < 1:
            raise ValueError(f"image_size={image_size} must be at least 1")
        if in_chans not in (1, 3):
            raise ValueError(f"in_chans={in_chans} must be 3 (colour) or 1 (grey)")
        self.path, self.image_size, self.in_chans = Path(path).expanduser(), image_size, in_chans
        self.max_memory_gb = max_memory_gb
        self.mean, self.std = (IMAGENET_MEAN, IMAGENET_STD) if in_chans == 3 else (GREY_MEAN, GREY_STD)
        self.class_names, self._files = list_splits(self.path)
        self.num_classes = len(self.class_names)

    def check_test(self) -> None:
        """Opens every image of the split as far as its header."""
        from PIL import Image

        for file in self._files["test"][0]:
            try:
                with Image.open(file):
                    pass
            except (OSError, SyntaxError, ValueError) as error:
                raise ValueError(f"{file} cannot be read as an image ({error}): remove or replace it") from error

    def read_fit(self) -> tuple[Split, Split]:
        return self._read("train"), self._read("val")

    def read_test(self) -> Split:
        return self._read("test")

    def _read(self, part: str) -> Split:
        files, labels = self._files[part]
        images = ImageFiles(files, self.image_size, self.in_chans)
        source = f"the {part} split of {self.path}"
        if images.nbytes > self.max_memory_gb * 1e9:
            return Split.whole(images, labels, source)
        return Split.whole(images.read_all(), labels, source)


class ImageFiles:
    """Image files, each cropped to a square and resized when a batch of rows is taken; an `ImageSource`."""

    def __init__(self, files: Sequence[Path], size: int, channels: int) -> None:
        self.files, self.size, self.channels = files, size, channels
        self.nbytes = len(files) * channels * size**2

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """uint8 (B, C, size, size)."""
        return torch.stack([self._decode(self.files[row]) for row in rows.tolist()])

    def read_all(self) -> Tensor:
        """uint8 (N, C, size, size)."""
        return self[torch.arange(len(self))]

    def _decode(self, file: Path) -> Tensor:
        from PIL import Image, ImageOps

        try:
            with Image.open(file) as image:
                square = ImageOps.fit(image.convert("RGB" if self.channels == 3 else "L"), (self.size, self.size))
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow's decoders raise
            raise ValueError(f"{file} cannot be read as an image ({error}): remove or replace it") from error
        return torch.from_numpy(np.array(square)).view(self.size, self.size, self.channels).permute(2, 0, 1)


def list_splits(path: Path) -> tuple[tuple[str, ...], dict[str, Files]]:
    """Class names, and files and labels of "train", "val" and "test", in either layout of `ImageFolder`."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder: data.path must hold one folder of images a class")
    folders = {part: path / part for part in ("train", "val", "test") if (path / part).is_dir()}
    if folders and not {"train", "test"} <= set(folders):
        raise ValueError(f"{path} holds {' and '.join(folders)} only: it needs train and test, or neither")
    classes = class_folders(folders.get("train", path))
    if not classes:
        raise ValueError(f"{folders.get('train', path)} holds no folders: it needs one folder of images a class")
    parts = {part: list_images(folder, classes) for part, folder in folders.items()}
    if not parts:
        rest, parts["test"] = _divide(list_images(path, classes), 0.1)
        parts["train"], parts["val"] = _divide(rest, 1 / 9)
    elif "val" not in parts:
        parts["train"], parts["val"] = _divide(parts["train"], 0.1)
    if not all(files for files, _ in parts.values()):
        raise ValueError(f"{path} holds too few images to be split: add some, or a folder for each split")
    return classes, parts


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the folders in `folder`, sorted."""
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))


def list_images(folder: Path, classes: Sequence[str]) -> Files:
    """The image files in `folder/<class>/`, by class and name, and their labels (N,).

    Raises:
        ValueError: other class folders than `classes`, or a class without images.
    """
    from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

    if different := sorted(set(class_folders(folder)) ^ set(classes)):
        raise ValueError(f"{folder} must hold the class folders {', '.join(classes)}; they differ in {different[0]!r}")
    try:
        samples = make_dataset(folder, {name: label for label, name in enumerate(classes)}, IMG_EXTENSIONS)
    except FileNotFoundError as error:
        raise ValueError(f"{folder} has a class folder without images: {error}") from error
    return [Path(file) for file, _ in samples], torch.tensor([label for _, label in samples])


def _divide(part: Files, fraction: float) -> tuple[Files, Files]:
    files, labels = part
    kept, held_out = (([files[row] for row in rows], labels[rows]) for rows in hold_out(labels, fraction))
    return kept, held_out
