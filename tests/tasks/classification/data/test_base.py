import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gcsa.data.loaders import BatchIndices
from gcsa.data.storage import data_root, download_into
from gcsa.tasks.classification.data import GCSADataModule, base, create_datamodule, list_datamodules
from gcsa.tasks.classification.data.digits import Digits
from tests.errors import raises

DOWNLOADS = ["rotmnist", "mnist", "fashion_mnist", "cifar10", "pcam"]


def test_names() -> None:
    assert list_datamodules() == sorted(["digits", *DOWNLOADS, "image_folder", "table", "unlabelled"])
    with raises("data", value="mnits"):
        create_datamodule("mnits")


def test_a_new_data_module_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "DATAMODULES", base.DATAMODULES.copy())

    class Mine(Digits):
        name = "mine"

    assert base.DATAMODULES["mine"] is Mine


def test_normalisation_of_trained_weights() -> None:
    own, of_weights = create_datamodule("digits"), create_datamodule("digits", mean=[0.25], std=[0.5])
    assert of_weights.preprocessing == own.preprocessing | {"mean": [0.25], "std": [0.5]}
    for data in (own, of_weights):
        data.setup("test")
    (first, _), (second, _) = (next(iter(data.test_dataloader())) for data in (own, of_weights))
    assert torch.allclose(second * 0.5 + 0.25, first * own.std[0] + own.mean[0], atol=1e-6)
    with raises("data.channels"):
        create_datamodule("digits", mean=[0.1, 0.2])


@pytest.mark.parametrize("name", DOWNLOADS)
def test_missing_data_say_what_to_run(name: str, tmp_path: Path) -> None:
    data = create_datamodule(name, root=tmp_path / "nowhere")
    command = rf"gcsa train data={name} data.download=true.*[0-9] [MG]B"
    for step in (data.prepare_data, lambda: data.setup("fit")):
        with pytest.raises(FileNotFoundError, match=command):
            step()
    assert not (tmp_path / "nowhere").exists()


def test_root_is_the_argument_then_the_environment_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCSA_DATA", "from_environment")
    assert data_root("given") == Path("given")
    assert data_root(None) == Path("from_environment")
    monkeypatch.delenv("GCSA_DATA")
    assert data_root(None) == Path("data")


def test_splits_need_setup() -> None:
    with raises("split.not_read"):
        create_datamodule("digits").train_dataloader()


def test_fit_never_reads_the_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    data = create_datamodule("digits")

    def refuse(self: GCSADataModule) -> None:
        raise AssertionError("the test set was read")

    monkeypatch.setattr(type(data), "read_test", refuse)
    data.setup("fit")
    data.setup("validate")
    with pytest.raises(AssertionError):
        data.setup("test")


def test_limit_train_and_drop_last() -> None:
    data = create_datamodule("digits", limit_train=100, batch_size=64)
    data.setup("fit")
    assert [len(labels) for _, labels in data.train_dataloader()] == [64, 36]
    assert torch.bincount(data.images("train").labels).tolist() == pytest.approx([10] * 10, abs=1)
    assert len(data.images("val")) == 180

    dropped = create_datamodule("digits", limit_train=100, batch_size=64, drop_last=True)
    dropped.setup("fit")
    assert [len(labels) for _, labels in dropped.train_dataloader()] == [64]
    with raises("batch_size.drop_last"):
        create_datamodule("digits", limit_train=100, batch_size=128, drop_last=True).setup("fit")
    shared = create_datamodule("digits", limit_train=100, batch_size=64, drop_last=True)
    shared.trainer = SimpleNamespace(world_size=2, global_rank=0)  # type: ignore[assignment]
    with raises("batch_size.drop_last"):
        shared.setup("fit")
    with raises("limit_train.too_many"):
        create_datamodule("digits", limit_train=5000).setup("fit")


def test_train_on_val() -> None:
    data = create_datamodule("digits", train_on_val=True, batch_size=64)
    data.setup("fit")
    apart = create_datamodule("digits", batch_size=64)
    apart.setup("fit")
    train, val = apart.images("train"), apart.images("val")
    joined = data.images("train")
    assert len(joined) == len(train) + len(val)
    assert torch.equal(data.images("val").labels, val.labels)
    rows = [len(train) + 3, 5, len(train), len(joined) - 1]  # in any order, of both parts
    images, labels = joined[BatchIndices(rows, (0,))]
    assert torch.equal(images[1], train[BatchIndices([5], (0,))][0][0])
    assert torch.equal(images[[0, 2, 3]], val[BatchIndices([3, 0, len(val) - 1], (0,))][0])
    assert labels.tolist() == [*val.labels[[3]], train.labels[5], val.labels[0], val.labels[-1]]
    assert sum(len(labels) for _, labels in data.train_dataloader()) == len(joined)
    assert torch.equal(joined[BatchIndices([1, 0], (0,))][0], train[BatchIndices([1, 0], (0,))][0])  # of one part alone


def test_only_training_batches_are_augmented() -> None:
    plain = create_datamodule("digits", batch_size=2000)
    turned = create_datamodule("digits", batch_size=2000, augment={"degrees": 180})
    for data in (plain, turned):
        data.setup()

    def first(data: GCSADataModule, split: str) -> torch.Tensor:
        return next(iter(getattr(data, f"{split}_dataloader")()))[0]

    assert not torch.allclose(first(plain, "train"), first(turned, "train"), atol=0.1)
    assert torch.equal(first(plain, "val"), first(turned, "val"))
    assert torch.equal(first(plain, "test"), first(turned, "test"))


def test_a_download_is_whole_or_absent(tmp_path: Path) -> None:
    def half(folder: Path) -> None:
        (folder / "set").mkdir()
        (folder / "set" / "half").write_text("h")
        raise OSError("connection lost")

    with pytest.raises(ConnectionError, match="connection lost"):
        download_into(tmp_path, half)
    assert list(tmp_path.iterdir()) == []

    def whole(folder: Path) -> None:
        (folder / "set").mkdir()
        (folder / "set" / "file").write_text("new")

    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file").write_text("old")
    download_into(tmp_path, whole)
    assert (tmp_path / "set" / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["set"]


def test_a_download_needs_a_folder_it_can_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises("data.root"):
        create_datamodule("mnist", root=tmp_path / "file", download=True).prepare_data()


def test_what_is_there_is_not_downloaded(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = create_datamodule("rotmnist", root=shared, download=True)

    def refuse(self: GCSADataModule, folder: Path) -> None:
        raise AssertionError("downloads")

    monkeypatch.setattr(type(data), "fetch", refuse)
    data.prepare_data()


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("rotmnist", (10_000, 2_000, 50_000)),
        ("mnist", (54_000, 6_000, 10_000)),
        ("fashion_mnist", (54_000, 6_000, 10_000)),
        ("cifar10", (4_500, 500, 1_000)),
        ("pcam", (3_600, 600, 600)),
    ],
)
def test_real_data(name: str, sizes: tuple[int, int, int], shared: Path) -> None:
    data = create_datamodule(name, root=shared, batch_size=100)
    if not all(path.exists() for path in data.required_files()):
        pytest.skip(f"{shared} holds no {name}")
    data.prepare_data()
    data.setup("fit")
    data.setup("test")
    assert tuple(len(data.images(split)) for split in ("train", "val", "test")) == sizes
    assert str(shared) in data.source("test")
    for split, loader in (("val", data.val_dataloader()), ("test", data.test_dataloader())):
        counts = torch.bincount(data.images(split).labels, minlength=data.num_classes)
        assert counts.min() > 0.6 * counts.float().mean(), "classes are balanced"
        images, labels = next(iter(loader))
        assert images.shape == (100, data.in_chans, data.image_size, data.image_size)
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
    whole = torch.cat([images for images, _ in data.train_dataloader()])
    assert len(data.class_names) == data.num_classes
    assert whole.mean((0, 2, 3)).tolist() == pytest.approx([0] * data.in_chans, abs=0.01)
    assert whole.std((0, 2, 3)).tolist() == pytest.approx([1] * data.in_chans, abs=0.01)


def test_real_rotmnist_is_mnist_turned_by_the_angles_beside_it(shared: Path) -> None:
    """One digit turned back is the upright one: orientation and order are read as they were written."""
    meta = np.load(shared / "rotated_mnist" / "rotmnist-meta.npz")
    turned, upright = create_datamodule("rotmnist", root=shared), create_datamodule("mnist", root=shared)
    turned.setup("fit")
    source = upright.read_fit()[0].images
    row = next(i for i, index in enumerate(meta["source_index"]) if index < 60_000 and i < 10_000)
    angle = torch.tensor(-meta["angle_rad"][row])
    matrix = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0]]).float()[None]
    grid = torch.nn.functional.affine_grid(matrix, [1, 1, 28, 28], align_corners=False)
    digit = turned.read_fit()[0].images[torch.tensor([row])].float() / 255
    back = torch.nn.functional.grid_sample(digit, grid, align_corners=False)
    original = source[torch.tensor([int(meta["source_index"][row])])].float() / 255
    assert torch.corrcoef(torch.stack([back.flatten(), original.flatten()]))[0, 1] > 0.9


def test_augmentation_on_the_device() -> None:
    """Of training batches alone, a function of the seed and the step, in the precision of the batch."""
    data = create_datamodule("digits", batch_size=8, augment={"degrees": 20}, augment_on_device=True)
    data.setup("fit")
    plain = create_datamodule("digits", batch_size=8)
    plain.setup("fit")
    batch = next(iter(data.train_dataloader()))
    assert torch.equal(batch[0], next(iter(plain.train_dataloader()))[0])

    def augmented(step: int, dtype: torch.dtype = torch.float32, training: bool = True) -> torch.Tensor:
        fit_loop = SimpleNamespace(total_batch_idx=step)
        data.trainer = SimpleNamespace(training=training, fit_loop=fit_loop, global_rank=0)  # type: ignore[assignment]
        images, labels = data.on_after_batch_transfer((batch[0].to(dtype), batch[1]), 0)
        assert torch.equal(labels, batch[1])
        assert images.dtype == dtype
        return images

    assert torch.equal(augmented(3), augmented(3))
    assert not torch.allclose(augmented(3), augmented(4), atol=0.1)
    assert not torch.allclose(augmented(3), batch[0], atol=0.1)
    assert torch.equal(augmented(3, training=False), batch[0])
    torch.testing.assert_close(augmented(3, torch.float64).float(), augmented(3))
    torch.testing.assert_close(augmented(3, torch.bfloat16).float(), augmented(3), atol=0.1, rtol=0)
