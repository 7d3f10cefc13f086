"""A user's own images: one folder a class."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.paths import composed, expanded
from gcsa._utils.validation import MAX_SIDE, check_choice, check_float, check_int
from gcsa.data.image_files import ImageFiles
from gcsa.data.leaks import LEAKS, tell_leaks
from gcsa.data.loaders import ImageSource
from gcsa.data.splits import SPLIT_FOLDERS, hold_out, strata
from gcsa.images.choices import MPP_RANGE
from gcsa.images.folders import SUFFIXES, is_visible, list_images
from gcsa.images.prepare import PADS, Prepare
from gcsa.images.reader import image_size
from gcsa.tasks.classification.data.base import GCSADataModule, Split

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GREY_MEAN, GREY_STD = (0.449,), (0.226,)

Files = tuple[list[Path], Tensor]
"""Files of a split, and their labels (N,), or (N, K) of several columns."""


class ImageFolder(GCSADataModule):
    """Images in `<path>/{train,val,test}/<class>/` or, to be split 8 : 1 : 1, in `<path>/<class>/`; for an evaluation
    `<path>/test/<class>/` is enough.

    Split folders have any of the names in `SPLIT_FOLDERS`, in small or capital letters. Without a folder for `val`, a
    tenth of the training images validates; splits are class-balanced and the same in every run. Hidden and system folders
    (`gcsa.images.folders`) are no classes. `gcsa.images.prepare.Prepare` makes images squares, here as in gcsa embed. A
    split larger than `max_memory_gb` is not held in memory but decoded a batch at a time: use `num_workers`.

    Args:
        path: the folder of images; `root` is not used.
        image_size: pixels a side the images are resized to.
        in_chans: 3 for colour, 1 for grey.
        pad: None crops an image that is not square; "white" or "black" keeps the whole of it and fills up the rest.
        mpp: micrometres a pixel of the images; weights say it to gcsa embed, which reads slides at this scale.
        leaks: "warn" of images that two splits share, or "refuse" them.
        kwargs: as for `GCSADataModule`.

    Raises:
        ValueError: fewer than two classes, a class without images, classes that differ between splits; an image that
            cannot be read (in `setup`, or in its batch where the split is not held in memory).
        FileNotFoundError: no such folder.
    """

    name = "image_folder"
    what = "the folder of your images"

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        image_size: int = 224,
        in_chans: int = 3,
        pad: str | None = None,
        mpp: float | None = None,
        max_memory_gb: float = 8.0,
        leaks: str = "warn",
        **kwargs: Any,
    ) -> None:
        if path is None:
            raise UserError(f"data={self.name} needs data.path=<{self.what}>", "data.path", what=self.what)
        check_int("image_size", image_size, 1, MAX_SIDE)
        if in_chans not in (1, 3):
            raise UserError(f"in_chans={in_chans} must be 3 (colour) or 1 (grey)", "in_chans", in_chans=in_chans)
        if pad not in PADS:
            raise UserError(f"pad={pad!r} must be one of {', '.join(map(repr, PADS))}", "pad", pad=pad)
        if mpp is not None:
            check_float("mpp", mpp, *MPP_RANGE)
            self.mpp = float(mpp)
        check_float("max_memory_gb", max_memory_gb, 0)
        check_choice("data.leaks", leaks, LEAKS)
        self.path, self.image_size, self.in_chans, self.pad = expanded(path), image_size, in_chans, pad
        self.max_memory_gb, self.leaks = max_memory_gb, leaks
        self.mean, self.std = (IMAGENET_MEAN, IMAGENET_STD) if in_chans == 3 else (GREY_MEAN, GREY_STD)
        super().__init__(**kwargs)
        self.class_names, self._files = self.list_splits()
        self.num_classes = len(self.class_names)

    def list_splits(self) -> tuple[tuple[str, ...], dict[str, Files]]:
        """The class names, and the files and labels of each split that there is."""
        return list_splits(self.path)

    def check_test(self) -> None:
        """Opens every image of the split as far as its header."""
        for file in self._files["test"][0]:
            image_size(file)

    def read_fit(self) -> tuple[Split, Split]:
        tell_leaks({part: files for part, (files, _) in self._files.items()}, self.leaks)
        return self._read("train"), self._read("val")

    def read_test(self) -> Split:
        return self._read("test")

    def _read(self, part: str) -> Split:
        if part not in self._files:
            raise UserError(
                f"{self.path} holds a test split only: training needs a folder train beside it", "data.test_only"
            )
        files, labels = self._files[part]
        images = ImageFiles(files, Prepare(self.image_size, self.mean, self.std, self.pad))
        source = f"the {part} split of {self.path}"
        held: ImageSource = images if images.nbytes > self.max_memory_gb * 1e9 else images.read_all()
        return Split.whole(held, labels, source, files=files)


def list_splits(path: Path) -> tuple[tuple[str, ...], dict[str, Files]]:
    """Class names, and files and labels of "train", "val" and "test", in either layout of `ImageFolder`."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder: data.path must hold one folder of images a class")
    inside = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    names = [name for known in SPLIT_FOLDERS for name in inside if name.lower() == known]
    folders = {SPLIT_FOLDERS[name.lower()]: path / name for name in names}
    if len(folders) < len(names):
        raise UserError(f"{path} holds {' and '.join(names)}: keep one folder for each split", "data.splits_twice")
    if (folders and "test" not in folders) or set(folders) == {"val", "test"}:
        raise UserError(
            f"{path} holds {' and '.join(names)} only: it needs train and test, test alone, or none of them",
            "data.splits",
        )
    train = folders.get("train", folders.get("test", path))
    classes = tuple(class_folders(train))
    if not classes:
        raise UserError(f"{train} holds no folders: it needs one folder of images a class", "data.classes", train=train)
    if len(classes) < 2:
        raise UserError(
            f"{train} holds one class only, {classes[0]!r}: classification needs at least two folders", "data.one_class"
        )
    parts = {part: class_files(folder, classes) for part, folder in folders.items()}
    return classes, divided(parts or {"all": class_files(path, classes)}, path)


def divided(parts: dict[str, Files], path: Path) -> dict[str, Files]:
    """The splits "train", "val" and "test" of `parts`, which may be "all" of them, or lack "val". Raises UserError, naming `path`,
    for too few images."""
    if "all" in parts:
        rest, test = _divide(parts["all"], 0.1)
        train, val = _divide(rest, 1 / 9)
        parts = {"train": train, "val": val, "test": test}
    elif "train" in parts and "val" not in parts:
        train, val = _divide(parts["train"], 0.1)
        parts = {**parts, "train": train, "val": val}
    if not all(files for files, _ in parts.values()):
        raise UserError(
            f"{path} holds too few images to be split: add some, or name the split of each", "split.too_few"
        )
    return parts


def class_folders(folder: Path) -> dict[str, Path]:
    """The folders in `folder` by their names in NFC, sorted: macOS writes an é as two letters. Raises ValueError for a name that is not
    UTF-8, and for two folders of one name."""
    folders: dict[str, Path] = {}
    for entry in folder.iterdir():
        if not entry.is_dir() or not is_visible(entry.name):
            continue
        if ascii(entry.name) != ascii(entry.name.encode(errors="replace").decode()):
            raise UserError(
                f"{folder} holds the class folder {entry.name!a}, whose name is not UTF-8: rename it",
                "class_folder.name",
            )
        name = composed(entry.name)
        if name in folders:
            raise UserError(
                f"{folder} holds two folders {name!r}, written in two forms of Unicode: put their images into one",
                "class_folder.twice",
            )
        folders[name] = entry
    return dict(sorted(folders.items()))


def class_files(folder: Path, classes: Sequence[str]) -> Files:
    """The image files in `folder/<class>/` and below, by class and name, and their labels (N,).

    Raises:
        ValueError: other class folders than `classes`, or a class without images.
    """
    folders = class_folders(folder)
    if different := sorted(set(folders) ^ set(classes)):
        raise UserError(
            f"{folder} must hold the class folders {', '.join(classes)}; they differ in {different[0]!r}",
            "class_folder.differ",
        )
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = list_images(folders[name], recursive=True)
        if not images:
            raise UserError(
                f"{folders[name]} is a class folder without images ({', '.join(SUFFIXES)})", "class_folder.empty"
            )
        files += images
        labels += [label] * len(images)
    return files, torch.tensor(labels)


def _divide(part: Files, fraction: float) -> tuple[Files, Files]:
    files, labels = part
    kept, held_out = (([files[row] for row in rows], labels[rows]) for rows in hold_out(strata(labels), fraction))
    return kept, held_out
