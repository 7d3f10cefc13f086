"""Whole batches at once, in an order that depends on (seed, epoch) only, from any batch on.

An epoch's order and every batch's random augmentation are functions of (seed, epoch, batch, rank), never of a
global generator, so a run resumed in mid-epoch sees exactly what the uninterrupted run would have seen.
Lightning saves and restores `BatchLoader.state_dict()` with its checkpoints.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from gcsa._utils.errors import UserError


class ImageSource(Protocol):
    """Images (N, C, H, W), uint8 in 0..255 or float32 in 0..1, that a batch of rows can be taken from."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor, /) -> Tensor: ...


class ConcatSource:
    """The images of two sources of one kind, those of `second` behind those of `first`."""

    def __init__(self, first: ImageSource, second: ImageSource) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, rows: Tensor, /) -> Tensor:
        """Images (B, C, H, W) of the rows (B,)."""
        behind = rows >= len(self.first)
        parts = ((self.first, ~behind, 0), (self.second, behind, len(self.first)))
        found = [(chosen, source[rows[chosen] - offset]) for source, chosen, offset in parts if chosen.any()]
        images = found[0][1].new_empty(len(rows), *found[0][1].shape[1:])
        for chosen, these in found:
            images[chosen] = these
        return images


class BatchIndices(NamedTuple):
    """One batch to be gathered: rows of the split, and the key of its random numbers."""

    rows: list[int]
    key: tuple[int, ...]


def seeded_generator(*key: int) -> torch.Generator:
    """A CPU generator that depends on the non-negative integers of `key` only."""
    # numpy pads a key with zeros: its length keeps (1, 2) and (1, 2, 0) apart.
    (seed,) = np.random.SeedSequence((len(key), *key)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(seed))


class ImageSet(Dataset[tuple[Tensor, Tensor]]):
    """A split: rows of `images` (N, C, H, W) and `labels` (N,), gathered and normalised a batch at a time.

    Args:
        rows: (M,) which rows of the source belong to the split.
        mean, std: of every channel, on the 0..1 scale.
        augment: `(images, generator) -> images` on float images in 0..1, before normalisation.
        views: how often each row of a batch is given: first all rows, then all again.
    """

    def __init__(
        self,
        images: ImageSource,
        labels: Tensor,
        rows: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
        views: int = 1,
    ) -> None:
        self.images, self.labels, self.augment, self.views = images, labels[rows], augment, views
        self.rows = rows
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, draw: BatchIndices) -> tuple[Tensor, Tensor]:
        """Images float32 (views * B, C, H, W) and labels int64 (views * B,)."""
        chosen = torch.tensor(draw.rows).repeat(self.views)
        stored = self.images[self.rows[chosen]]
        images = stored.float().div_(255) if stored.dtype == torch.uint8 else stored
        if self.augment is not None:
            images = self.augment(images, seeded_generator(*draw.key))
        return images.sub(self.mean).div_(self.std), self.labels[chosen]


class EpochSampler(Sampler[BatchIndices]):
    """The batches of one process, from batch `start` of epoch `epoch` on.

    All processes walk the same order; each takes every `world_size`-th row of a batch of `world_size *
    batch_size`, so together they see what one process with the larger batch sees, every row once, in equally
    many steps. Where the last batch has fewer rows than there are processes, the one before gives it the rest, so that
    scores count every row once; only where that would leave too few (batches of one row, a split smaller than the
    processes) the idle ones repeat its first row.

    weights: (length,) how likely each row is; an epoch then draws as many rows, some of them several times.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        weights: Tensor | None = None,
    ) -> None:
        self.length, self.batch_size, self.shuffle, self.seed = length, batch_size, shuffle, seed
        self.weights = weights
        self.rank, self.world_size = rank, world_size
        self.epoch = self.start = 0
        step = batch_size * world_size
        self.batches = length // step if drop_last else -(-length // step)

    def set_epoch(self, epoch: int) -> None:
        """Go to the first batch of `epoch`, or stay where a checkpoint left it; Lightning calls this."""
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def __len__(self) -> int:
        return self.batches

    def rows(self) -> list[list[int]]:
        """The rows of every batch of this epoch, of all processes together."""
        order = torch.arange(self.length)
        generator = seeded_generator(self.seed, self.epoch)
        if self.shuffle and self.weights is not None:
            drawn = torch.rand(self.length, generator=generator, dtype=torch.float64)
            shares = self.weights.double().cumsum(0)
            order = torch.searchsorted(shares, drawn * shares[-1], right=True).clamp(max=self.length - 1)
        elif self.shuffle:
            order = torch.randperm(self.length, generator=generator)
        batches = [part.tolist() for part in order.split(self.batch_size * self.world_size)][: self.batches]
        missing = self.world_size - len(batches[-1]) if len(batches) > 1 and self.batch_size > 1 else 0
        if missing > 0:
            batches[-1][:0] = batches[-2][-missing:]
            del batches[-2][-missing:]
        return batches

    def __iter__(self) -> Iterator[BatchIndices]:
        epoch = self.epoch
        for batch, rows in list(enumerate(self.rows()))[self.start :]:
            yield BatchIndices(rows[self.rank :: self.world_size] or rows[:1], (self.seed, epoch, batch, self.rank))


Batch = TypeVar("Batch")


class _ErrorsAsBatches(Dataset[Any]):
    """`images`, with the errors that a user can mend in place of batches: a DataLoader raises those of its worker processes
    with a traceback in their message."""

    def __init__(self, images: Dataset[Any]) -> None:
        self.images = images

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.images[index]
        except (UserError, OSError) as error:
            return error


class BatchLoader(Generic[Batch]):
    """Batches of `images` through a `torch.utils.data.DataLoader`, resumable from any of them.

    It is not itself a DataLoader, so that Lightning neither replaces the sampler, which knows its rank
    already, nor asks for more workers, which whole-batch gathering does not need. `set_epoch` changes the
    shuffling.
    """

    batch_sampler = None
    """As of a DataLoader without automatic batching: Lightning reads it beside `sampler`."""

    def __init__(self, images: Dataset[Batch], sampler: EpochSampler, *, num_workers: int = 0) -> None:
        self.images, self.sampler, self.num_workers = images, sampler, num_workers
        self._position = (0, 0)  # the epoch, and how many of its batches were handed out
        self._begun_in: list[int] | None = None  # the order of an epoch that is continued in its middle

    def set_epoch(self, epoch: int) -> None:
        """Shuffle as epoch `epoch`, from its first batch."""
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        """Batches in a whole epoch, also where the next one starts in the middle."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        """Raises ValueError where the middle of an epoch is continued with other data, batch size, processes or seed."""
        # Nothing happens before the first `next`: Lightning calls `iter` before it sets the epoch.
        order = self.state_dict()["order"]
        if self.sampler.start and self._begun_in is not None and self._begun_in != order:
            raise UserError(
                "the checkpoint was written in mid-epoch with (images, batch size, processes, seed) = "
                f"{tuple(self._begun_in)}, but this run has {tuple(order)}: use the same values",
                "checkpoint.order",
            )
        epoch, first, draws = self.sampler.epoch, self.sampler.start, list(self.sampler)
        self.sampler.start = 0
        loader = DataLoader(
            self.images if self.num_workers == 0 else _ErrorsAsBatches(self.images),
            sampler=draws,
            batch_size=None,
            num_workers=self.num_workers,
            generator=torch.Generator(),  # or it would draw a number from the global one
        )
        for done, batch in enumerate(loader, first + 1):
            if isinstance(batch, Exception):
                raise batch
            self._position = epoch, done
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: plain integers."""
        sampler = self.sampler
        epoch, done = self._position
        return {
            "epoch": sampler.epoch,
            "batch": done if epoch == sampler.epoch else sampler.start,
            "batches": len(sampler),
            "order": [sampler.length, sampler.batch_size, sampler.world_size, sampler.seed],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the last batch that was handed out.

        Whether the rest of its epoch is still to be seen only the trainer knows, which may have ended it early, so that
        another order is refused where that rest is asked for.
        """
        in_the_middle = 0 < state["batch"] < state["batches"]
        self._begun_in = state["order"] if in_the_middle else None
        self.sampler.epoch = state["epoch"]
        self.sampler.start = state["batch"] if in_the_middle else len(self) * (state["batch"] > 0)
        self._position = self.sampler.epoch, self.sampler.start
