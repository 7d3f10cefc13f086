import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.mnist import MNIST
from tests.errors import raises
from tests.fuzzing import sealed

RNG = np.random.default_rng(0)


@pytest.fixture
def root(tmp_path: Path, write_idx: Callable[[Path, np.ndarray], None], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(MNIST, "counts", {"train": 200, "t10k": 50})
    for folder in ("MNIST", "FashionMNIST"):
        for part, count in MNIST.counts.items():
            raw = tmp_path / folder / "raw"
            write_idx(raw / f"{part}-images-idx3-ubyte.gz", RNG.integers(0, 256, (count, 28, 28)))
            write_idx(raw / f"{part}-labels-idx1-ubyte.gz", np.arange(count) * 10 // count)
    return tmp_path


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_reads_packed_files_and_writes_nothing(name: str, root: Path, tree: Callable[[Path], list[Path]]) -> None:
    before = tree(root)
    data = create_datamodule(name, root=root, batch_size=50)
    data.prepare_data()
    data.setup()
    assert [len(data.images(split)) for split in ("train", "val", "test")] == [180, 20, 50]
    assert torch.bincount(data.images("val").labels).tolist() == [2] * 10
    assert tree(root) == before


def test_unpacked_files_win(root: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    write_idx(root / "MNIST" / "raw" / "t10k-images-idx3-ubyte", np.full((50, 28, 28), 255))
    data = create_datamodule("mnist", root=root)
    data.setup("test")
    images, labels = next(iter(data.test_dataloader()))
    assert torch.allclose(images, torch.full_like(images, (1 - 0.1307) / 0.3081))
    assert labels.tolist() == [i // 5 for i in range(50)]


def test_download_is_torchvisions(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(folder: Path, download: bool) -> None:
        assert download
        shutil.copytree(root / "FashionMNIST", folder / "FashionMNIST")

    monkeypatch.setattr(datasets, "FashionMNIST", fake)
    data = create_datamodule("fashion_mnist", root=tmp_path / "new", download=True)
    data.prepare_data()
    data.setup("test")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["FashionMNIST"]


def damage(path: Path, kind: str) -> None:
    data = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "flipped":
        path.write_bytes(data[:200] + bytes([data[200] ^ 255]) + data[201:])
    else:
        path.write_bytes({"empty": b"", "html": b"<html>404</html>"}[kind])


@pytest.mark.parametrize("kind", ["truncated", "flipped", "empty", "html"])
def test_damaged_gz_is_named(kind: str, root: Path) -> None:
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    damage(path, kind)
    with raises("data.damaged"):
        create_datamodule("mnist", root=root).setup("fit")


def test_size_against_header(root: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte"
    write_idx(path, np.zeros((200, 28, 28)))
    path.write_bytes(path.read_bytes()[:-1])
    with raises("data.damaged"):
        create_datamodule("mnist", root=root).setup("fit")
    write_idx(path, np.zeros((199, 28, 28)))
    with raises("data.damaged"):
        create_datamodule("mnist", root=root).setup("fit")


def test_label_out_of_range(root: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    write_idx(root / "MNIST" / "raw" / "train-labels-idx1-ubyte", np.full(200, 10))
    with raises("split.label"):
        create_datamodule("mnist", root=root).setup("fit")


def test_a_gz_that_unpacks_to_gigabytes(root: Path) -> None:
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    header = gzip.decompress(path.read_bytes())[:16]
    with gzip.open(path, "wb", 1) as file:
        file.write(header)
        for _ in range(64):
            file.write(bytes(1 << 24))
    with (
        raises("data.damaged"),
        sealed(root, memory=1 << 28, write=False),
    ):
        create_datamodule("mnist", root=root).setup("fit")
