"""CIFAR-10: 32 x 32 colour photographs in ten classes (Krizhevsky 2009)."""

from collections.abc import Sequence
from pathlib import Path

import torch

from gcsa.data.splits import hold_out
from gcsa.data.storage import damaged, log
from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.data.base import GCSADataModule, Split
from gcsa.tasks.classification.data.image_folder import ImageFiles, class_files

BATCHES = "cifar-10-batches-py"


class CIFAR10(GCSADataModule):
    """45,000 / 5,000 / 10,000 images in torchvision's layout, `<root>/cifar-10-batches-py`.

    Where that is absent, images in folders `<root>/cifar10/{train,test}/<class>/` are read instead, however
    many there are; `source` says which. Validation: a class-balanced tenth of the training images, the same
    in every run.
    """

    name = "cifar10"
    num_classes, in_chans, image_size = 10, 3, 32
    class_names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    download_size = "170 MB"

    def required_files(self) -> Sequence[Path]:
        folders = [self.root / "cifar10" / part for part in ("train", "test")]
        batches = self.root / BATCHES
        return folders if not batches.exists() and any(folder.exists() for folder in folders) else [batches]

    def fetch(self, folder: Path) -> None:
        from torchvision.datasets import CIFAR10 as Torchvision
        from torchvision.datasets.utils import download_and_extract_archive

        download_and_extract_archive(Torchvision.url, folder, filename=Torchvision.filename, md5=Torchvision.tgz_md5)
        (folder / Torchvision.filename).unlink()

    def read_fit(self) -> tuple[Split, Split]:
        whole = self._read("train")
        train, val = hold_out(whole.labels, 0.1)
        return whole._replace(rows=train), whole._replace(rows=val)

    def read_test(self) -> Split:
        return self._read("test")

    def _read(self, part: str) -> Split:
        if not (self.root / BATCHES).exists():
            folder = self.root / "cifar10" / part
            log.info("cifar10: reading the images in %s", folder)
            files, labels = class_files(folder, self.class_names)
            return Split.whole(
                ImageFiles(files, Prepare(self.image_size, self.mean, self.std)).read_all(), labels, folder
            )

        from torchvision.datasets import CIFAR10 as Torchvision

        log.info("cifar10: reading %s", self.root / BATCHES)
        try:
            stored = Torchvision(self.root, train=part == "train")
        except RuntimeError as error:  # torchvision compares checksums
            raise damaged(self.root / BATCHES, "a file is missing or its checksum is wrong", self.name) from error
        images = torch.from_numpy(stored.data).permute(0, 3, 1, 2).contiguous()
        return Split.whole(images, torch.tensor(stored.targets), self.root / BATCHES)
