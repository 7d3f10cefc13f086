import sys
from pathlib import Path

import pytest
import torch

from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.digits import Digits


def test_real_scans_in_three_balanced_splits(tmp_path: Path) -> None:
    data = create_datamodule("digits", root=tmp_path / "unused")
    data.prepare_data()
    data.setup()
    sizes = [len(data.images(split)) for split in ("train", "val", "test")]
    assert sizes == [1258, 180, 359]
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        counts = torch.bincount(data.images(split).labels, minlength=10)
        assert (counts - size / 10).abs().max() <= 0.03 * size / 10 + 1.5
    rows = torch.cat([data.images(split).rows for split in ("train", "val", "test")])
    assert torch.equal(rows.sort().values, torch.arange(1797))
    assert not (tmp_path / "unused").exists()


def test_angles_and_splits_do_not_depend_on_the_seed() -> None:
    first, second = create_datamodule("digits", seed=0), create_datamodule("digits", seed=1)
    for data in (first, second):
        data.setup()
    for split in ("val", "test"):
        left, right = (next(iter(getattr(data, f"{split}_dataloader")())) for data in (first, second))
        assert torch.equal(left[0], right[0])
        assert torch.equal(left[1], right[1])
    orders = [next(iter(data.train_dataloader()))[1] for data in (first, second)]
    assert not torch.equal(*orders)


def test_digits_are_turned_and_stay_on_the_canvas() -> None:
    data = Digits()
    split = data.read_test()
    images = split.images[split.rows].float()
    assert images.shape == (359, 1, 28, 28)
    assert images.max() <= 255
    border = torch.cat([images[..., 0], images[..., -1], images[..., 0, :], images[..., -1, :]], dim=-1)
    assert border.sum() < 1e-3 * images.sum()
    ones = images[split.labels[split.rows] == 1][:, 0]
    axis = torch.arange(28.0) - 13.5
    tall, wide = ((ones * axis[:, None] ** 2).sum((1, 2)), (ones * axis**2).sum((1, 2)))
    assert (tall > 1.2 * wide).any(), "some ones stand"
    assert (wide > 1.2 * tall).any(), "some ones lie"


def test_normalised() -> None:
    data = create_datamodule("digits", batch_size=2000)
    data.setup("fit")
    images, _ = next(iter(data.train_dataloader()))
    assert float(images.mean()) == pytest.approx(0, abs=0.01)
    assert float(images.std()) == pytest.approx(1, abs=0.01)


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    modules = {
        name: module for name, module in sys.modules.items() if name.startswith("gcsa.tasks.classification.data.")
    }
    assert {"gcsa.tasks.classification.data.digits", "gcsa.tasks.classification.data.pcam"} <= set(modules)
    for name, module in modules.items():
        assert not {"sklearn", "load_digits", "h5py", "datasets"} & set(vars(module)), name
