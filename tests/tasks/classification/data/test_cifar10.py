import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.cifar10 import BATCHES, CIFAR10
from tests.errors import raises

RNG = np.random.default_rng(0)


def write_folders(root: Path) -> None:
    for part in ("train", "test"):
        for label, name in enumerate(CIFAR10.class_names):
            (root / "cifar10" / part / name).mkdir(parents=True)
            for i in range(10):
                image = Image.fromarray(np.full((32, 32, 3), 20 * label + i, np.uint8))
                image.save(root / "cifar10" / part / name / f"{i}.png")


def write_batches(root: Path) -> np.ndarray:
    """torchvision's files with 20 images each; returns the test images (20, 3, 32, 32)."""
    (root / BATCHES).mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        data = RNG.integers(0, 256, (20, 3072), np.uint8)
        (root / BATCHES / name).write_bytes(pickle.dumps({"data": data, "labels": list(range(10)) * 2}))
    (root / BATCHES / "batches.meta").write_bytes(pickle.dumps({"label_names": list(CIFAR10.class_names)}))
    return data.reshape(20, 3, 32, 32)


def test_image_folders(tmp_path: Path) -> None:
    write_folders(tmp_path)
    data = create_datamodule("cifar10", root=tmp_path, batch_size=100)
    data.prepare_data()
    data.setup()
    assert [len(data.images(split)) for split in ("train", "val", "test")] == [90, 10, 100]
    images = data.images("test")
    assert torch.equal(images.images[torch.arange(100)][:, 0, 0, 0] // 20, images.labels.byte())


def test_torchvision_files_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folders(tmp_path)
    (tmp_path / "cifar10" / "test").rename(tmp_path / "cifar10" / "tset")
    expected = write_batches(tmp_path)
    monkeypatch.setattr(datasets.CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(datasets.CIFAR10, "_load_meta", lambda self: None)
    data = create_datamodule("cifar10", root=tmp_path)
    data.setup()
    assert [len(data.images(split)) for split in ("train", "val", "test")] == [90, 10, 20]
    assert np.array_equal(data.images("test").images[torch.arange(20)].numpy(), expected)
    assert data.source("test").endswith(BATCHES)


def test_wrong_checksum_is_named(tmp_path: Path) -> None:
    write_batches(tmp_path)
    with raises("data.damaged"):
        create_datamodule("cifar10", root=tmp_path).setup("fit")


def test_download_leaves_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(address: str, folder: Path, filename: str, md5: str) -> None:
        (folder / filename).write_bytes(b"archive")
        write_batches(folder)

    monkeypatch.setattr(datasets.utils, "download_and_extract_archive", fake)
    create_datamodule("cifar10", root=tmp_path, download=True).prepare_data()
    assert [path.name for path in tmp_path.iterdir()] == [BATCHES]


def test_half_an_image_folder_is_missing_data(tmp_path: Path) -> None:
    write_folders(tmp_path)
    (tmp_path / "cifar10" / "test").rename(tmp_path / "cifar10" / "tset")
    with pytest.raises(FileNotFoundError, match="cifar10/test not found"):
        create_datamodule("cifar10", root=tmp_path).prepare_data()


def test_other_classes_are_named(tmp_path: Path) -> None:
    write_folders(tmp_path)
    (tmp_path / "cifar10" / "train" / "frog").rename(tmp_path / "cifar10" / "train" / "toad")
    with raises("class_folder.differ"):
        create_datamodule("cifar10", root=tmp_path).setup("fit")


class Planted:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_changed_batch_is_refused_before_it_is_unpickled(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pickle is a program: torchvision's checksums are what stands before it."""
    write_batches(tmp_path)
    for part in ("train_list", "test_list"):
        sums = [
            [file, hashlib.md5((tmp_path / BATCHES / file).read_bytes()).hexdigest()]
            for file, _ in getattr(datasets.CIFAR10, part)
        ]
        monkeypatch.setattr(datasets.CIFAR10, part, sums)
    meta = tmp_path / BATCHES / "batches.meta"
    monkeypatch.setattr(
        datasets.CIFAR10, "meta", datasets.CIFAR10.meta | {"md5": hashlib.md5(meta.read_bytes()).hexdigest()}
    )
    create_datamodule("cifar10", root=tmp_path).setup()
    (tmp_path / BATCHES / name).write_bytes(pickle.dumps(Planted(tmp_path / "planted")))
    with raises("data.damaged"):
        create_datamodule("cifar10", root=tmp_path).setup()
    assert not (tmp_path / "planted").exists()
    pickle.loads((tmp_path / BATCHES / name).read_bytes())
    assert (tmp_path / "planted").exists(), "unpickled, it would have run"
