from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import Dataset

from gcsa._utils.errors import UserError
from gcsa.data.loaders import BatchLoader, EpochSampler, ImageSet, seeded_generator
from gcsa.tasks.classification.data import create_datamodule
from tests.errors import raises

AUGMENT = {"degrees": 180, "translate": 2, "elastic": 1}


def rows(sampler: EpochSampler) -> list[int]:
    return [row for draw in sampler for row in draw.rows]


def loader(num_workers: int = 0, seed: int = 0, batch_size: int = 4, count: int = 22) -> BatchLoader:
    """Images whose value is their row, plus noise that stands for augmentation."""
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    data = ImageSet(
        images,
        torch.arange(count),
        torch.arange(count),
        mean=(0.0,),
        std=(1.0,),
        augment=lambda x, generator: x + torch.rand(x.shape, generator=generator),
    )
    sampler = EpochSampler(count, batch_size, shuffle=True, seed=seed)
    return BatchLoader(data, sampler, num_workers=num_workers)


def equal(left: list[tuple[Tensor, Tensor]], right: list[tuple[Tensor, Tensor]]) -> bool:
    pairs = zip(left, right, strict=True)
    return all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


def test_generators_of_different_keys_differ() -> None:
    keys = [(0,), (1,), (0, 0), (0, 0, 0), (0, 1), (1, 0)]
    draws = {torch.randint(2**60, (1,), generator=seeded_generator(*key)).item() for key in keys}
    assert len(draws) == len(keys)


def test_an_epoch_is_every_row_once_in_an_order_of_its_own() -> None:
    sampler = EpochSampler(22, 4, shuffle=True, seed=3)
    first = rows(sampler)
    sampler.set_epoch(1)
    second = rows(sampler)
    assert sorted(first) == sorted(second) == list(range(22))
    assert first != second
    again = EpochSampler(22, 4, shuffle=True, seed=3)
    again.set_epoch(1)
    assert rows(again) == second
    assert [len(draw.rows) for draw in sampler] == [4, 4, 4, 4, 4, 2]
    assert len(sampler) == 6
    assert rows(EpochSampler(5, 2, shuffle=False, seed=3)) == [0, 1, 2, 3, 4]


def test_drop_last() -> None:
    sampler = EpochSampler(22, 4, shuffle=True, seed=0, drop_last=True)
    assert [len(draw.rows) for draw in sampler] == [4] * 5
    assert len(sampler) == 5


@pytest.mark.parametrize(("length", "world"), [(24, 2), (25, 2), (29, 3), (17, 4), (33, 4), (3, 2), (8, 8)])
def test_processes_together_see_every_row_once(length: int, world: int) -> None:
    ranks = [EpochSampler(length, 4, shuffle=True, seed=1, rank=r, world_size=world) for r in range(world)]
    one = EpochSampler(length, 4 * world, shuffle=True, seed=1)
    shares = [list(sampler) for sampler in ranks]
    assert {len(share) for share in shares} == {len(one)}, "every process takes as many steps"
    steps = [[row for share in shares for row in share[step].rows] for step in range(len(one))]
    assert sorted(row for together in steps for row in together) == list(range(length))
    for step, whole in enumerate(list(one)[:-2]):
        assert set(steps[step]) == set(whole.rows), "as in one process with the larger batch"
    for step in range(len(one)):
        assert all(share[step].rows for share in shares), "no process has an empty batch"
        assert len({share[step].key for share in shares}) == world, "augmentation differs between processes"


@pytest.mark.parametrize(("length", "batch_size"), [(3, 4), (5, 1)])
def test_a_row_is_repeated_where_there_are_too_few(length: int, batch_size: int) -> None:
    ranks = [EpochSampler(length, batch_size, shuffle=False, seed=1, rank=r, world_size=4) for r in range(4)]
    last = [list(sampler)[-1].rows for sampler in ranks]
    assert last == ([[0], [1], [2], [0]] if batch_size == 4 else [[4], [4], [4], [4]])


def test_augmentation_is_new_in_every_batch_and_epoch() -> None:
    data = loader()
    keys = []
    for epoch in range(3):
        data.set_epoch(epoch)
        keys += [draw.key for draw in data.sampler]
        noise = [(images - labels.view(-1, 1, 1, 1))[:2] for images, labels in data]
        assert all(not torch.equal(noise[0], other) for other in noise[1:])
    assert len(set(keys)) == 18


def test_views_are_all_images_and_then_all_again() -> None:
    data = create_datamodule("digits", batch_size=8, views=2, augment={"degrees": 20})
    data.setup("fit")
    images, labels = next(iter(data.train_dataloader()))
    assert images.shape[0] == 16
    assert torch.equal(labels[:8], labels[8:])
    assert not torch.equal(images[:8], images[8:])
    assert len(next(iter(data.val_dataloader()))[1]) == 8


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_and_the_global_generator_do_not_depend_on_workers(num_workers: int) -> None:
    torch.manual_seed(0)
    batches = list(loader(num_workers))
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))
    assert equal(batches, list(loader()))
    assert sorted(torch.cat([labels for _, labels in batches]).tolist()) == list(range(22))
    assert batches[0][0].dtype == torch.float32
    assert batches[0][1].dtype == torch.int64


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 5, 6])
def test_resume_in_the_middle(num_workers: int, stop: int) -> None:
    whole = loader()
    whole.set_epoch(2)
    expected = list(whole)

    interrupted = loader(num_workers)
    interrupted.set_epoch(2)
    batches = iter(interrupted)
    seen = [next(batches) for _ in range(stop)]
    state = interrupted.state_dict()

    resumed = loader(num_workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert len(resumed) == len(whole)
    iterator = iter(resumed)  # Lightning's order: load, iter, set_epoch, next
    resumed.set_epoch(2)
    assert equal(seen + list(iterator), expected)
    assert len(list(resumed)) == 6, "only the first pass starts in the middle"
    resumed.set_epoch(3)
    whole.set_epoch(3)
    assert equal(list(resumed), list(whole))
    assert resumed.state_dict()["batch"] == 6


def test_a_new_epoch_is_not_taken_for_a_finished_one() -> None:
    data = loader()
    list(data)
    data.set_epoch(1)
    assert data.state_dict()["batch"] == 0


def test_resume_with_another_order_is_refused_in_mid_epoch_only() -> None:
    data = loader()
    next(iter(data))
    other = loader(batch_size=5)
    other.load_state_dict(data.state_dict())
    with raises("checkpoint.order"):
        next(iter(other))
    other.set_epoch(1)  # as where trainer.limit_train_batches ended the epoch with that batch
    assert len(list(other)) == 5
    list(data)
    for batch_size, batches in ((3, 8), (5, 5)):
        other = loader(batch_size=batch_size)
        other.load_state_dict(data.state_dict())
        assert list(other) == [], "the epoch was finished"
        other.set_epoch(1)
        assert len(list(other)) == batches


class Recorder(pl.LightningModule):
    """One weight, and a record of what every training step saw."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(28 * 28, 10)
        self.seen: list[tuple[int, float]] = []

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        images, labels = batch
        self.seen.append((self.current_epoch, images.double().sum().item()))
        return torch.nn.functional.cross_entropy(self.linear(images.flatten(1)), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None: ...

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(folder: Path, resume: Path | None = None, **checkpoint: Any) -> Recorder:
    torch.manual_seed(0)
    model = Recorder()
    data = create_datamodule("digits", batch_size=64, limit_train=300, augment=AUGMENT)  # 5 batches an epoch
    saver = pl.callbacks.ModelCheckpoint(folder, filename="{epoch}-{step}", save_top_k=-1, **checkpoint)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[saver],
    )
    trainer.fit(model, data, ckpt_path=resume)
    return model


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning with this torch
@pytest.mark.filterwarnings("ignore:.*exists and is not empty:UserWarning")
@pytest.mark.parametrize(
    ("checkpoint", "at"),
    [
        ({"every_n_train_steps": 1}, 3),
        ({"every_n_train_steps": 1}, 7),
        ({"every_n_train_steps": 1}, 10),
        ({"save_on_train_epoch_end": True}, 5),
        ({"save_on_train_epoch_end": False}, 10),
    ],
)
def test_lightning_resumes_bit_for_bit(tmp_path: Path, checkpoint: dict[str, Any], at: int) -> None:
    whole = fit(tmp_path, **checkpoint)
    assert len(whole.seen) == 15
    assert max(Counter(whole.seen).values()) == 1
    (saved,) = tmp_path.glob(f"*step={at}.ckpt")
    resumed = fit(tmp_path, resume=saved, **checkpoint)
    assert [total for _, total in resumed.seen] == [total for _, total in whole.seen[at:]]
    assert torch.equal(resumed.linear.weight, whole.linear.weight)


class Damaged(Dataset[Any]):
    """Its third row cannot be read."""

    def __getitem__(self, draw: Any) -> Tensor:
        if 2 in draw.rows:
            raise UserError("3.png cannot be read", "image.unreadable", number=3)
        return torch.zeros(1)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_errors_of_loading_processes_are_one_sentence(num_workers: int) -> None:
    sampler = EpochSampler(4, 1, shuffle=False, seed=0)
    with raises("image.unreadable", number=3) as error:
        list(BatchLoader(Damaged(), sampler, num_workers=num_workers))
    assert str(error.value) == "3.png cannot be read"
