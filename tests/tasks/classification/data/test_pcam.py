import gzip
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torchvision.datasets import PCAM, utils

from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.pcam import FILE, H5Images
from tests.errors import raises
from tests.fuzzing import sealed

RNG = np.random.default_rng(0)
IMAGES = {
    part: RNG.integers(0, 256, (count, 96, 96, 3), np.uint8)
    for part, count in (("train", 12), ("valid", 4), ("test", 6))
}


def write(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    for kind, values in (("x", images), ("y", labels)):
        with h5py.File(folder / FILE.format(part, kind), "w") as file:
            file.create_dataset(kind, data=values, chunks=(2, *values.shape[1:]), compression="gzip")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pcam").mkdir()
    for part, images in IMAGES.items():
        write(tmp_path / "pcam", part, images, (np.arange(len(images)) % 2).reshape(-1, 1, 1, 1).astype(np.uint8))
    return tmp_path


def test_reads_what_torchvision_reads(root: Path) -> None:
    data = create_datamodule("pcam", root=root)
    data.setup()
    for split in ("train", "val", "test"):
        reference = PCAM(root, split=split)
        ours, labels = data.images(split).images, data.images(split).labels
        assert len(data.images(split)) == len(reference)
        for row, (image, label) in enumerate(reference):
            assert np.array_equal(ours[torch.tensor([row])][0].permute(1, 2, 0).numpy(), np.asarray(image))
            assert labels[row] == label


@pytest.mark.parametrize("num_workers", [0, 2])
def test_on_disk_and_in_memory_are_the_same(root: Path, num_workers: int) -> None:
    held = create_datamodule("pcam", root=root, batch_size=5)
    read = create_datamodule("pcam", root=root, batch_size=5, num_workers=num_workers, max_memory_gb=0)
    for data in (held, read):
        data.setup("fit")
    assert isinstance(read.images("train").images, H5Images)
    for left, right in zip(held.train_dataloader(), read.train_dataloader(), strict=True):
        assert torch.equal(left[0], right[0])
        assert torch.equal(left[1], right[1])


def test_truncated_file_is_named(root: Path) -> None:
    path = root / "pcam" / FILE.format("train", "x")
    path.write_bytes(path.read_bytes()[:-5000])
    with raises("data.damaged"):
        create_datamodule("pcam", root=root).setup("fit")


def test_damaged_pixels_are_named(root: Path) -> None:
    """The header is whole: only reading the compressed images shows the damage."""
    path = root / "pcam" / FILE.format("train", "x")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20_000] = bytes(20_000)
    path.write_bytes(bytes(data))
    with raises("data.damaged"):
        create_datamodule("pcam", root=root).setup("fit")


@pytest.mark.parametrize(
    ("images", "labels", "key"),
    [
        (IMAGES["train"][:, :64], np.zeros(12, np.uint8), "data.damaged"),
        (IMAGES["train"].astype(np.float32), np.zeros(12, np.uint8), "data.damaged"),
        (IMAGES["train"], np.zeros(11, np.uint8), "split.counts"),
        (IMAGES["train"], np.full(12, 2, np.uint8), "split.label"),
    ],
)
def test_bad_contents_are_named(images: np.ndarray, labels: np.ndarray, key: str, root: Path) -> None:
    write(root / "pcam", "train", images, labels)
    with raises(key):
        create_datamodule("pcam", root=root).setup("fit")


def test_a_file_without_the_data_set_is_named(root: Path) -> None:
    path = root / "pcam" / FILE.format("valid", "y")
    with h5py.File(path, "w") as file:
        file["other"] = np.zeros(3)
    with raises("data.damaged"):
        create_datamodule("pcam", root=root).setup("fit")


def test_download_fetches_only_what_is_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = root / "pcam" / FILE.format("test", "x")
    content = gone.read_bytes()
    gone.unlink()
    asked = []

    def download(address: str, folder: Path, name: str, md5: str) -> None:
        asked.append((address, md5))
        folder.mkdir(parents=True)
        (folder / name).write_bytes(gzip.compress(content, 1))

    monkeypatch.setattr(utils, "download_url", download)
    data = create_datamodule("pcam", root=root, download=True)
    data.prepare_data()
    data.prepare_data()
    ((address, md5),) = asked
    assert address.endswith(f"{gone.name}.gz")
    assert md5 == PCAM._FILES["test"]["images"][2]
    assert gone.read_bytes() == content
    assert len(list(root.rglob("*"))) == 7


def outside(root: Path) -> Path:
    """A file that nothing in the data set may lead to."""
    path = root / "secret.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.full((12, 96, 96, 3), 77, np.uint8)
        file["y"] = np.zeros(12, np.uint8)
    return path


def external_link(file: h5py.File, secret: Path) -> None:
    file["x"] = h5py.ExternalLink(str(secret), "x")


def soft_link(file: h5py.File, secret: Path) -> None:
    file["other"] = IMAGES["train"]
    file["x"] = h5py.SoftLink("/other")


def virtual(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((12, 96, 96, 3), np.uint8)
    layout[:] = h5py.VirtualSource(str(secret), "x", shape=(12, 96, 96, 3))
    file.create_virtual_dataset("x", layout)


def external_storage(file: h5py.File, secret: Path) -> None:
    file.create_dataset("x", (12, 96, 96, 3), np.uint8, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])


def group(file: h5py.File, secret: Path) -> None:
    file.create_group("x")


@pytest.mark.parametrize("content", [external_link, soft_link, virtual, external_storage, group])
def test_only_what_lies_in_the_file_is_read(content: Callable[[h5py.File, Path], None], root: Path) -> None:
    path = root / "pcam" / FILE.format("train", "x")
    with h5py.File(path, "w") as file:
        content(file, outside(root))
    with raises("data.damaged"):
        create_datamodule("pcam", root=root).setup("fit")


def sparse(file: h5py.File) -> None:
    file.create_dataset("x", (900_000, 96, 96, 3), np.uint8, chunks=(1, 96, 96, 3), compression="gzip")


def countless(file: h5py.File) -> None:
    file.create_dataset("x", (10**9, 96, 96, 3), np.uint8, chunks=(1, 96, 96, 3), compression="gzip")


def one_chunk(file: h5py.File) -> None:
    file.create_dataset("x", (10_000, 96, 96, 3), np.uint8, chunks=(10_000, 96, 96, 3), compression="gzip")[:5] = 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (sparse, "900000 images in 0 bytes, which no compression does"),
        (countless, r"N at most 1,000,000"),
        (one_chunk, r"its chunks of .* are larger than"),
    ],
)
def test_sizes_that_a_file_only_claims(content: Callable[[h5py.File], None], reason: str, root: Path) -> None:
    path = root / "pcam" / FILE.format("train", "x")
    with h5py.File(path, "w") as file:
        content(file)
    with (
        pytest.raises(ValueError, match=rf"train_x\.h5 is damaged \(.*{reason}"),
        sealed(root, memory=1 << 28, write=False),
    ):
        create_datamodule("pcam", root=root).setup("fit")


@pytest.mark.parametrize(
    "labels", [np.zeros(12), np.array(["a"] * 12, h5py.string_dtype()), np.zeros(1_000_001, np.uint8)]
)
def test_labels_that_are_none(labels: np.ndarray, root: Path) -> None:
    with h5py.File(root / "pcam" / FILE.format("train", "y"), "w") as file:
        file["y"] = labels
    with raises("data.damaged"):
        create_datamodule("pcam", root=root).setup("fit")


def test_decompressors_from_elsewhere_are_not_loaded(root: Path) -> None:
    """HDF5 looks for numbers that it does not know in its folders of plug-ins."""
    path = root / "pcam" / FILE.format("train", "x")
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1, 96, 96, 3))
        properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((2, 96, 96, 3))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_UINT8, space, properties)
    with raises("data.damaged"):
        create_datamodule("pcam", root=root).setup("fit")
