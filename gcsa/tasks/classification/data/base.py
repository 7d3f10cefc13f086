"""The base of all data modules of classification: one root, checked arguments, splits of labelled images."""

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.paths import expanded
from gcsa._utils.validation import check_bool, check_int
from gcsa.data.augment import Augmentation
from gcsa.data.datamodule import SplitDataModule
from gcsa.data.identity import checksum, spaced
from gcsa.data.image_files import ImageFiles
from gcsa.data.loaders import BatchLoader, ConcatSource, ImageSet, ImageSource, seeded_generator
from gcsa.data.splits import balancing_weights, check_split, limited, strata
from gcsa.data.storage import check_readable, data_root, download_into, missing
from gcsa.images.folders import list_images
from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.targets import Classes, Labels, Numbers, Target
from gcsa.tasks.classification.teacher import Teacher


class Split(NamedTuple):
    """Rows of one part of a data set: `images` (N, C, H, W), all `labels` (N,), and the `rows` that count.

    `source` is the file or folder of the images, `label_source` that of the labels.
    """

    images: ImageSource
    labels: Tensor
    rows: Tensor
    source: str
    label_source: str
    files: tuple[Path | None, ...] | None = None
    """Of each image (N,), where it has one."""

    @classmethod
    def whole(
        cls,
        images: ImageSource,
        labels: Tensor,
        source: object,
        label_source: object = None,
        files: Sequence[Path] | None = None,
    ) -> "Split":
        """Every row of a file; without `label_source`, the labels are from there too."""
        rows = torch.arange(len(labels))
        return cls(
            images, labels, rows, str(source), str(label_source or source), None if files is None else tuple(files)
        )

    def followed_by(self, other: "Split") -> "Split":
        """The rows of this split, then those of `other`, of the same data set."""
        rows = torch.cat([self.rows, other.rows + len(self.labels)])
        labels = torch.cat([self.labels, other.labels])
        files = tuple(file for part in (self, other) for file in part.files or (None,) * len(part.labels))
        return self._replace(images=ConcatSource(self.images, other.images), labels=labels, rows=rows, files=files)

    def pictures(self) -> list[Path | Tensor]:
        """The images of the rows that count, each as its file, or as pixels (C, H, W) where it has none."""
        found: list[Path | Tensor] = []
        for row in self.rows.tolist():
            file = self.files[row] if self.files is not None else None
            found.append(self.images[torch.tensor([row])][0] if file is None else file)
        return found


CHUNK = 256
"""Images that are read at a time for their checksum."""
NO_LABEL = -1
"""Of an image whose class nobody has said."""
DATAMODULES: dict[str, type["GCSADataModule"]] = {}
"""All data modules by their `name`."""


class GCSADataModule(SplitDataModule):
    """A data set in three splits; batches are (images float32 (B, C, H, W), labels), as `target` says: int64 (B,) of classes.

    A subclass with a `name` is known to `create_datamodule` by it. The validation split is never the test set.

    Args:
        root: folder of the data sets; default GCSA_DATA, else ./data. Only `download` writes to it.
        batch_size, num_workers, seed, limit_train: as in `SplitDataModule`; a subset is class-balanced.
        download: fetch missing files into `root`.
        augment: options of `Augmentation`, for training batches.
        views: how often each image is in a training batch, each time augmented anew: first all images, then all again
            (Hoffer et al. 2020, arXiv:1901.09335).
        augment_on_device: augment where the network is, instead of in the loader: a GPU has no time to wait for a CPU.
        drop_last: leave out the last training batch where it is smaller than the others.
        balance: draw training images so that every class is as frequent, with repetition.
        unlabelled: a folder of further training images, or "rest": those that `limit_train` leaves out. Their labels are -1: only a
            teacher (`teach`) says what they are.
        train_on_val: train on the validation split too, once all options are chosen. Scores on that split then say
            nothing, so `gcsa.training.run.train` keeps the last epoch and reports none.
        mean, std: of every channel on the 0..1 scale, for normalisation; default those of the data set. Trained weights
            bring theirs.

    Raises:
        ValueError: a bad argument, at once; damaged or impossible data, in `prepare_data` or `setup`.
        FileNotFoundError: data that are not there, in `prepare_data` or `setup`.
    """

    num_classes: int
    in_chans: int
    image_size: int
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    target: Target = Classes()
    """What the labels are. Of several labels or numbers, `class_names` and `num_classes` are the columns."""
    pad: str | None = None
    """Colour of the border that makes an image a square; None: it is cropped, or is one."""
    mpp: float | None = None
    """Micrometres a pixel, which weights pass on to gcsa embed; None: it has no meaning, or is not known."""
    download_size = ""

    def __init__(
        self,
        *,
        root: str | os.PathLike[str] | None = None,
        batch_size: int = 128,
        num_workers: int = 0,
        seed: int = 0,
        download: bool = False,
        augment: Mapping[str, Any] | None = None,
        views: int = 1,
        augment_on_device: bool = False,
        limit_train: float | int | None = None,
        drop_last: bool = False,
        balance: bool = False,
        unlabelled: str | None = None,
        train_on_val: bool = False,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__(batch_size, num_workers, seed, limit_train)
        check_int("data.views", views)
        check_bool("augment_on_device", augment_on_device)
        check_bool("download", download)
        check_bool("drop_last", drop_last)
        check_bool("balance", balance)
        check_bool("train_on_val", train_on_val)
        if unlabelled == "rest" and limit_train is None:
            raise UserError(
                "data.unlabelled=rest is what data.limit_train leaves out: set data.limit_train", "data.unlabelled_rest"
            )
        if unlabelled is not None and balance:
            raise UserError(
                "data.balance=true draws every class as often, and data.unlabelled has none: leave one out",
                "data.balance",
            )
        self.unlabelled = unlabelled
        self.teacher: Teacher | None = None
        self._answers: dict[str, Tensor] = {}
        self.root = data_root(root)
        self.download, self.drop_last, self.train_on_val = download, drop_last, train_on_val
        self.balance, self.views, self.augment_on_device = balance, views, augment_on_device
        self.augment = None if augment is None else Augmentation.from_config(augment)
        for key, values in (("mean", mean), ("std", std)):
            if values is not None:
                if len(values) != self.in_chans:
                    raise UserError(
                        f"{key}={list(values)} is for {len(values)} channels, but data={self.name} has {self.in_chans}: "
                        f"set data.in_chans={len(values)} where the data take it, or choose other data or weights",
                        "data.channels",
                    )
                setattr(self, key, tuple(values))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            DATAMODULES[cls.name] = cls

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How images are prepared, as weights and checkpoints store it: plain values, in timm's terms. A student of features has no
        classes, whatever the labels are."""
        encoder = self.teacher is not None and self.teacher.options.of == "features"
        return {
            "input_size": [self.in_chans, self.image_size, self.image_size],
            "mean": list(self.mean),
            "std": list(self.std),
            "pad": self.pad,
            "label_names": [] if encoder else list(self.class_names),
            **({} if self.mpp is None else {"mpp": self.mpp}),
            **({} if isinstance(self.target, Classes) else {"target": self.target.entry()}),
        }

    def required_files(self) -> Sequence[Path]:
        """The files or folders without which this data set is not there."""
        return ()

    def fetch(self, folder: Path) -> None:
        """Download the data set into `folder`, laid out as in the root."""
        raise UserError(f"data={self.name} has nothing to download: leave out data.download=true", "data.download")

    @abstractmethod
    def read_fit(self) -> tuple[Split, Split]:
        """The training and validation splits."""

    @abstractmethod
    def read_test(self) -> Split:
        """The test split."""

    def prepare_data(self) -> None:
        """Download what is missing if that was asked for; raise FileNotFoundError if it still is."""
        if self.download and self._absent():
            download_into(self.root, self.fetch)
        self._check_there()

    def check_test(self) -> None:
        """Open the files of the test split without reading it, so that a long training does not end on a damaged one.

        Raises:
            ValueError: a file that cannot be opened, is empty, or is not as long as it says; FileNotFoundError: none.
        """
        self._check_there()
        for path in self.required_files():
            if path.is_file():
                check_readable(path, self.name)

    def make_fit(self) -> tuple[Split, Split]:
        self._check_ready()
        unlabelled = self._list_unlabelled()
        train, val = self.read_fit()
        self._check(train)
        self._check(val)
        if self.train_on_val:
            train = train.followed_by(val)
        if self.limit_train is not None:
            chosen = limited(strata(train.labels[train.rows]), self.limit_train, self.seed)
            if self.unlabelled == "rest":
                rest = train.rows[~torch.isin(torch.arange(len(train.rows)), chosen)]
                train = train._replace(labels=train.labels.index_fill(0, rest, NO_LABEL))
            else:
                train = train._replace(rows=train.rows[chosen])
        self._check_classes(train)
        if unlabelled:
            images = ImageFiles(unlabelled, Prepare(self.image_size, self.mean, self.std, self.pad)).read_all()
            labels = torch.full((len(unlabelled),), NO_LABEL)
            train = train.followed_by(Split.whole(images, labels, expanded(str(self.unlabelled)), files=unlabelled))
        if self.drop_last and len(train.rows) < self.batch_size * self.processes:
            raise UserError(
                f"batch_size={self.batch_size} in each process with drop_last leaves none of {len(train.rows)} images: "
                "lower it, or leave out drop_last",
                "batch_size.drop_last",
            )
        if self.teacher is not None:
            self._answers["train"] = self.teacher.answers(train.pictures(), "train")
            if self.teacher.options.of == "features" or bool((val.labels == NO_LABEL).all()):
                self._answers["val"] = self.teacher.answers(val.pictures(), "val")
        return train, val

    def teach(self, teacher: Teacher) -> None:
        """Has `teacher` answer for the training images: batches of training then have labels (B, 1 + D), the answer behind the label."""
        self.teacher = teacher

    def _list_unlabelled(self) -> list[Path]:
        """The images of the folder `unlabelled` and all below it."""
        if self.unlabelled in (None, "rest"):
            return []
        folder = expanded(str(self.unlabelled))
        files = list_images(folder, recursive=True) if folder.is_dir() else []
        if not files:
            raise UserError(
                f"data.unlabelled={folder} is no folder with images: name one, or leave it out", "data.unlabelled"
            )
        return files

    def make_test(self) -> Split:
        self._check_ready()
        test = self.read_test()
        self._check(test)
        return test

    def source(self, split: str) -> str:
        """Which file or folder the split "train", "val" or "test" was read from, after `setup`."""
        return self.split(split).source

    @property
    def label_names(self) -> list[str]:
        return list(self.class_names)

    def identity(self) -> dict[str, Any]:
        content = super().identity()
        for name in ("train", "val"):
            content[name][0] = len(self.split(name).rows)
        return content

    def checksum(self, split: Split) -> str:
        rows = split.rows[:: spaced(len(split.rows), self.in_chans * self.image_size**2).step]
        files = [split.files[row] for row in split.rows.tolist()] if split.files is not None else []
        names = ("" if file is None else f"{file.parent.name}/{file.name}" for file in files)
        pictures = (split.images[part] for part in rows.split(CHUNK))
        return checksum(names, chain([split.rows, split.labels[split.rows]], pictures))

    def images(self, split: str) -> ImageSet:
        """The whole split as a set of normalised, not augmented images, after `setup`."""
        return self._image_set(split, None)

    def make_loader(self, split: str, *, shuffle: bool = False) -> BatchLoader[tuple[Tensor, Tensor]]:
        in_the_loader = shuffle and not self.augment_on_device
        images = self._image_set(split, self.augment if in_the_loader else None, self.views if shuffle else 1)
        weights = (
            balancing_weights(images.labels, self.num_classes)[images.labels] if shuffle and self.balance else None
        )
        drop_last = shuffle and self.drop_last
        if split in self._answers and (shuffle or split == "val"):
            images.labels = torch.cat([images.labels[:, None].float(), self._answers[split]], 1)
        return self.batches(images, len(images), shuffle=shuffle, drop_last=drop_last, weights=weights)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Augments training batches here with `augment_on_device`, as a function of the seed and the step."""
        if self.augment is None or not self.augment_on_device or not (self.trainer and self.trainer.training):
            return batch
        images, labels = batch
        # The transfer comes before the step is counted.
        generator = seeded_generator(self.seed, self.trainer.fit_loop.total_batch_idx + 1, self.trainer.global_rank)
        wide = images.float()  # as in the loader, whatever the precision of the run
        mean, std = (wide.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return self.augment(wide * std + mean, generator).sub(mean).div(std).to(images.dtype), labels

    def _check_there(self) -> None:
        for path in self._absent():
            raise missing(path, self.name, self.download_size)

    def _check_ready(self) -> None:
        self._check_there()
        if self.augment is not None:
            self.augment.check(self.in_chans, self.image_size, self.image_size)

    def _absent(self) -> list[Path]:
        return [path for path in self.required_files() if not path.exists()]

    def _check(self, split: Split) -> None:
        check_split(split.images, strata(split.labels), self.num_classes, split.source, split.label_source)
        if not len(split.rows):
            raise UserError(f"{split.source} holds too few images ({len(split.labels)}) to be split", "split.too_few")

    def _check_classes(self, train: Split) -> None:
        """Raises UserError for a class that no training image shows, and for a label that all or none of them have, unless a teacher says
        what they show."""
        if self.teacher is not None or isinstance(self.target, Numbers):
            return
        labels, images = train.labels[train.rows], "training image"
        if self.limit_train is not None:
            images += f" of data.limit_train={self.limit_train}"
        if isinstance(self.target, Labels):
            for name, share in zip(self.class_names, labels.mean(0).tolist(), strict=True):
                if share in (0, 1):
                    raise UserError(
                        f"{'every' if share else 'no'} {images} has the label {name} ({train.source}): add others, or leave the label out",
                        "split.constant_label",
                    )
            return
        counts = torch.bincount(labels[labels >= 0], minlength=self.num_classes)
        for name, count in zip(self.class_names, counts.tolist(), strict=True):
            if not count:
                raise UserError(
                    f"no {images} shows {name} ({train.source}): add images of this class, or leave it out",
                    "split.absent_class",
                )

    def _image_set(self, split: str, augment: Augmentation | None, views: int = 1) -> ImageSet:
        part = self.split(split)
        return ImageSet(part.images, part.labels, part.rows, mean=self.mean, std=self.std, augment=augment, views=views)
