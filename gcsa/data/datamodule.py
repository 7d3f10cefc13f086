"""What the data modules of all tasks share: splits that are read once, and loaders that a resumed run continues."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
from torch.utils.data import Dataset

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_loading
from gcsa.data.identity import checksum
from gcsa.data.loaders import BatchLoader, EpochSampler


class SplitDataModule(pl.LightningDataModule, ABC):
    """Three splits, "train", "val" and "test". The test split is read only for `setup("test")` or `setup(None)`.

    Args:
        batch_size: training examples a batch and process.
        num_workers: processes that gather batches; 0 gathers in the training process.
        seed: of the order of the training examples, their augmentation and `limit_train`.
        limit_train: train on a fraction (float in (0, 1]) or a count (int) of the examples; None for all.

    Raises UserError for a bad argument.
    """

    name: str

    def __init__(self, batch_size: int, num_workers: int, seed: int, limit_train: float | int | None) -> None:
        super().__init__()
        check_loading(batch_size=batch_size, num_workers=num_workers, seed=seed, limit_train=limit_train)
        self.batch_size, self.num_workers, self.seed, self.limit_train = batch_size, num_workers, seed, limit_train
        self._splits: dict[str, Any] = {}

    @abstractmethod
    def make_fit(self) -> tuple[Any, Any]:
        """The training and validation splits, read and checked."""

    @abstractmethod
    def make_test(self) -> Any:
        """The test split, read and checked."""

    @abstractmethod
    def make_loader(self, split: str, *, shuffle: bool = False) -> BatchLoader[Any]:
        """The batches of a split; of training (`shuffle`) augmented, and shuffled by (seed, epoch)."""

    def setup(self, stage: str | None = None) -> None:
        """Read and check what `stage` needs: "fit", "validate", "test", or None for all; once only."""
        if stage in ("fit", "validate", None) and "train" not in self._splits:
            train, val = self.make_fit()
            self._splits |= {"train": train, "val": val}
        if stage in ("test", None) and "test" not in self._splits:
            self._splits["test"] = self.make_test()

    def identity(self) -> dict[str, Any]:
        """What tells these data from others, after `setup`: "names" of classes or characters, and of "train" and "val" how many examples
        they have and a checksum."""
        splits = {name: [len(self.split(name)), self.checksum(self.split(name))] for name in ("train", "val")}
        return {"names": self.label_names, **splits}

    @property
    def label_names(self) -> list[str]:
        """Of classes, or the characters."""
        return []

    def checksum(self, split: Any) -> str:
        """As `gcsa.data.identity.checksum`, of a split that `setup` read. A data module that leaves this out compares numbers only."""
        return checksum((), ())

    def train_dataloader(self) -> BatchLoader[Any]:
        return self.make_loader("train", shuffle=True)

    def val_dataloader(self) -> BatchLoader[Any]:
        return self.make_loader("val")

    def test_dataloader(self) -> BatchLoader[Any]:
        return self.make_loader("test")

    @property
    def processes(self) -> int:
        """That share every batch."""
        return self.trainer.world_size if self.trainer else 1

    def split(self, name: str) -> Any:
        """What `setup` read of the split. Raises UserError before that."""
        if name not in self._splits:
            raise UserError(f"the {name} split is not read yet: call setup() first", "split.not_read")
        return self._splits[name]

    def batches(
        self,
        data: Dataset[Any],
        rows: Any,
        sampler: Callable[..., EpochSampler] = EpochSampler,
        batch_size: int | None = None,
        **options: Any,
    ) -> BatchLoader[Any]:
        """Batches of `data` for this process, in the order of `sampler(rows, ...)` with further `options`."""
        rank = self.trainer.global_rank if self.trainer else 0
        own = dict(seed=self.seed, rank=rank, world_size=self.processes)
        order = sampler(rows, batch_size or self.batch_size, **own, **options)
        return BatchLoader(data, order, num_workers=self.num_workers)
