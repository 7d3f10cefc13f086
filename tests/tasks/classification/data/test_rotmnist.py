import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import utils

from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.rotmnist import AMAT, ARCHIVE, RotMNIST
from tests.errors import raises
from tests.fuzzing import sealed

COUNTS = {"train_valid": 12, "test": 10}
RNG = np.random.default_rng(0)
TABLES = {
    part: np.column_stack([RNG.random((count, 784)).round(4), np.arange(count) % 10]).astype(np.float32)
    for part, count in COUNTS.items()
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RotMNIST, "counts", COUNTS)
    monkeypatch.setattr(RotMNIST, "num_val", 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rotated_mnist").mkdir()
    return tmp_path / "rotated_mnist"


def write_text(folder: Path, tables: dict[str, np.ndarray] = TABLES) -> None:
    for part, table in tables.items():
        np.savetxt(folder / AMAT.format(part), table, fmt="%.4f")


def write_zip(folder: Path) -> None:
    write_text(folder)
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in COUNTS:
            archive.write(folder / AMAT.format(part), AMAT.format(part))
            (folder / AMAT.format(part)).unlink()


def write_npy(folder: Path) -> None:
    for part, table in TABLES.items():
        np.save(folder / f"{AMAT.format(part)}.npy", table)


@pytest.mark.parametrize("write", [write_text, write_zip, write_npy])
def test_original_layouts(write: Callable[[Path], None], folder: Path, tree: Callable[[Path], list[Path]]) -> None:
    write(folder)
    before = tree(folder)
    data = create_datamodule("rotmnist", root=folder.parent, batch_size=10)
    data.prepare_data()
    data.setup()
    assert [len(data.images(split)) for split in ("train", "val", "test")] == [10, 2, 10]
    images, labels = next(iter(data.test_dataloader()))
    expected = torch.from_numpy(TABLES["test"][:, :-1]).view(10, 1, 28, 28)
    assert torch.allclose(images * 0.2907 + 0.1315, expected, atol=1e-6)
    assert labels.tolist() == list(range(10))
    assert data.images("val").labels.tolist() == [0, 1], "the last rows validate"
    assert tree(folder) == before


def write_idx_files(folder: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    for part, count in COUNTS.items():
        write_idx(folder / f"rotmnist-{part}-images-idx3-ubyte.gz", np.full((count, 28, 28), 51))
        write_idx(folder / f"rotmnist-{part}-labels-idx1-ubyte.gz", np.arange(count) % 10)


def test_idx_layout(folder: Path, write_idx: Callable[[Path, np.ndarray], None]) -> None:
    write_idx_files(folder, write_idx)
    data = create_datamodule("rotmnist", root=folder.parent, batch_size=4)
    data.setup()
    images, _ = next(iter(data.val_dataloader()))
    assert torch.allclose(images * 0.2907 + 0.1315, torch.full((2, 1, 28, 28), 0.2))
    assert data.source("train").endswith("rotmnist-train_valid-images-idx3-ubyte.gz")


def test_the_original_wins(
    folder: Path, write_idx: Callable[[Path, np.ndarray], None], caplog: pytest.LogCaptureFixture
) -> None:
    write_idx_files(folder, write_idx)
    write_text(folder)
    data = create_datamodule("rotmnist", root=folder.parent)
    with caplog.at_level("INFO"):
        data.setup("fit")
    assert data.source("train").endswith(".amat")
    assert "reading the original" in caplog.text
    (folder / AMAT.format("test")).unlink()
    half = create_datamodule("rotmnist", root=folder.parent)
    half.setup("fit")
    assert half.source("train").endswith(".gz"), "one original file is not the original set"


def test_download_keeps_parsed_arrays(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_zip(folder)
    packed = (folder / ARCHIVE).read_bytes()
    root = tmp_path / "new"

    def download(address: str, target: Path, name: str, md5: str) -> None:
        target.mkdir(parents=True)
        (target / name).write_bytes(packed)

    monkeypatch.setattr(utils, "download_url", download)
    data = create_datamodule("rotmnist", root=root, download=True)
    data.prepare_data()
    data.setup("test")
    assert sorted(path.name for path in root.rglob("*.*")) == sorted(f"{AMAT.format(p)}.npy" for p in COUNTS)
    assert data.images("test").labels.tolist() == list(range(10))

    packed = packed[:-300]
    with raises("data.damaged"):
        create_datamodule("rotmnist", root=tmp_path / "other", download=True).prepare_data()
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda table: table[:-1], "data.damaged"),
        (lambda table: table[:, 1:], "data.damaged"),
        (lambda table: np.where(np.arange(785) == 3, np.nan, table), "split.not_finite"),
        (lambda table: table * (1 + 254 * (np.arange(785) < 784)), "split.range"),
        (lambda table: table + 0.5 * (np.arange(785) == 784), "data.damaged"),
        (lambda table: table + 9 * (np.arange(785) == 784), "split.label"),
    ],
)
def test_bad_tables_are_named(change: Callable[[np.ndarray], np.ndarray], key: str, folder: Path) -> None:
    write_text(folder, TABLES | {"train_valid": change(TABLES["train_valid"])})
    with raises(key):
        create_datamodule("rotmnist", root=folder.parent).setup("fit")


@pytest.mark.parametrize("write", [write_text, write_zip, write_npy])
def test_truncated_files_are_named(write: Callable[[Path], None], folder: Path) -> None:
    write(folder)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-700])
    with raises("data.damaged"):
        create_datamodule("rotmnist", root=folder.parent).setup("fit")


def test_an_array_of_another_shape_is_refused_before_it_is_allocated(folder: Path) -> None:
    write_npy(folder)
    path = folder / f"{AMAT.format('train_valid')}.npy"
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**10, 785)})
    path.write_bytes(header.getvalue() + bytes(4000))
    with raises("data.damaged"), sealed(folder, memory=1 << 28, write=False):
        create_datamodule("rotmnist", root=folder.parent).setup("fit")
    np.save(path, np.array([Path()] * 3, object), allow_pickle=True)
    with raises("data.damaged"):
        create_datamodule("rotmnist", root=folder.parent).setup("fit")


def test_text_that_unpacks_to_gigabytes(folder: Path) -> None:
    write_zip(folder)
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(AMAT.format("train_valid"), b"0 " * (1 << 20))
        archive.writestr(AMAT.format("test"), b"")
    with raises("data.damaged"):
        create_datamodule("rotmnist", root=folder.parent).setup("fit")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"1 2 three", b"\xff\xfe", b"# only a remark"])
def test_text_that_is_no_table(content: bytes, folder: Path) -> None:
    write_text(folder)
    (folder / AMAT.format("train_valid")).write_bytes(content)
    with raises("data.damaged"):
        create_datamodule("rotmnist", root=folder.parent).setup("fit")
