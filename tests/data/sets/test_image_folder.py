from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gcsa.data import create_datamodule
from gcsa.data.sets.image_folder import ImageFiles


def write(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 20, size: int = 10) -> None:
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.fromarray(np.full((size, size + 4, 3), 100 * label + i, np.uint8)).save(folder / name / f"{i}.png")


def test_one_folder_is_split(tmp_path: Path) -> None:
    write(tmp_path)
    data = create_datamodule("image_folder", path=tmp_path, image_size=8, batch_size=64)
    assert (data.num_classes, data.in_chans, data.image_size, data.class_names) == (2, 3, 8, ("cat", "dog"))
    data.setup()
    found = []
    for split, count in (("train", 16), ("val", 2), ("test", 2)):
        images = data.images(split)
        assert torch.bincount(images.labels).tolist() == [count, count]
        values = images.images[torch.arange(len(images))][:, 0, 4, 4].long()
        assert torch.equal(values // 100, images.labels)
        found += values.tolist()
    assert sorted(found) == [*range(20), *range(100, 120)], "splits do not overlap"


@pytest.mark.parametrize("has_val", [True, False])
def test_split_folders(tmp_path: Path, has_val: bool) -> None:
    write(tmp_path / "train")
    write(tmp_path / "test", count=3)
    if has_val:
        write(tmp_path / "val", count=5)
    data = create_datamodule("image_folder", path=tmp_path, image_size=8, in_chans=1)
    data.setup()
    sizes = [len(data.images(split)) for split in ("train", "val", "test")]
    assert sizes == ([40, 10, 6] if has_val else [36, 4, 6])
    images, labels = next(iter(data.test_dataloader()))
    assert images.shape == (6, 1, 8, 8)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images[3, 0, 0, 0] == pytest.approx((100 / 255 - 0.449) / 0.226)


def test_decoded_a_batch_at_a_time(tmp_path: Path) -> None:
    write(tmp_path)
    held = create_datamodule("image_folder", path=tmp_path, image_size=8)
    read = create_datamodule("image_folder", path=tmp_path, image_size=8, max_memory_gb=0, num_workers=1)
    for data in (held, read):
        data.setup("fit")
    assert isinstance(read.images("train").images, ImageFiles)
    for left, right in zip(held.train_dataloader(), read.train_dataloader(), strict=True):
        assert torch.equal(left[0], right[0])
        assert torch.equal(left[1], right[1])


@pytest.mark.parametrize("keep", [0, 60])
def test_corrupt_image_is_named(tmp_path: Path, keep: int) -> None:
    write(tmp_path / "train", size=40)
    write(tmp_path / "test")
    bad = tmp_path / "train" / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"dog/3.png cannot be read"):
        create_datamodule("image_folder", path=tmp_path, image_size=8).setup("fit")


def test_folder_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.path"):
        create_datamodule("image_folder")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        create_datamodule("image_folder", path=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no folders"):
        create_datamodule("image_folder", path=tmp_path)
    write(tmp_path / "train")
    with pytest.raises(ValueError, match="train only"):
        create_datamodule("image_folder", path=tmp_path)
    write(tmp_path / "test", classes=("cat", "horse"))
    with pytest.raises(ValueError, match=r"test must hold.*cat, dog.*'dog'"):
        create_datamodule("image_folder", path=tmp_path)


def test_empty_class_and_bad_sizes(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty is a class folder without images"):
        create_datamodule("image_folder", path=tmp_path)
    with pytest.raises(ValueError, match="image_size=0"):
        create_datamodule("image_folder", path=tmp_path, image_size=0)
    with pytest.raises(ValueError, match="in_chans=2"):
        create_datamodule("image_folder", path=tmp_path, in_chans=2)


def test_too_few_to_split(tmp_path: Path) -> None:
    write(tmp_path, count=2)
    with pytest.raises(ValueError, match="too few images"):
        create_datamodule("image_folder", path=tmp_path)
