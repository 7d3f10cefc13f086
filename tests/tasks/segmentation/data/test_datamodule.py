from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from gcsa.data.loaders import BatchIndices
from gcsa.tasks.segmentation.data.crops import filled
from gcsa.tasks.segmentation.data.datamodule import SPLITS, MasksDataModule, Nuclei
from gcsa.tasks.segmentation.stars import check_numbers
from tests.errors import raises

RNG = np.random.default_rng(0)
AUGMENT = {"quarter_turns": True, "flip": True, "degrees": 20.0, "scale": [0.8, 1.2], "noise": 0.1, "contrast": 0.1}
CONF = Path(__file__).parents[4] / "conf" / "data"


def write(folder: Path, count: int, sides: tuple[int, int] = (40, 52), dtype: type = np.uint16, first: int = 0) -> None:
    """Label maps of blocks, and pictures that are 16 times the label, so that each can be told from the other."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for i in range(first, first + count):
        coarse = RNG.integers(0, 200, (sides[0] // 4, sides[1] // 4)) * (
            RNG.random((sides[0] // 4, sides[1] // 4)) < 0.6
        )
        labels = coarse.repeat(4, 0).repeat(4, 1).astype(np.uint16)
        tifffile.imwrite(folder / "images" / f"{i:02}.tif", (16 * labels).astype(dtype))
        tifffile.imwrite(folder / "masks" / f"{i:02}.tif", labels)


def labels_themselves(labels: np.ndarray) -> Tensor:
    assert labels.dtype == np.int32
    assert labels.flags["C_CONTIGUOUS"]
    return torch.from_numpy(labels.astype(np.float32))[None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part, count in (("train", 5), ("val", 2), ("test", 3)):
        write(tmp_path / part, count)
    return tmp_path


def module(folder: Path, **options: object) -> MasksDataModule:
    defaults = {"path": folder, "in_chans": 1, "crop": 24, "context": 8, "batch_size": 2, "targets": labels_themselves}
    return MasksDataModule(**defaults | options)


def batches(data: MasksDataModule, epoch: int = 0) -> list[tuple[Tensor, Tensor]]:
    loader = data.train_dataloader()
    loader.set_epoch(epoch)
    return list(loader)


def by_hand(data: MasksDataModule, image: Tensor) -> Tensor:
    """Labels from an image that was normalised by percentiles 0 and 100."""
    high = max(example.scale[1] for example in data.images("train"))
    assert {example.scale for example in data.images("train")} == {(0.0, high)}
    return (image * high / 16).round()


@pytest.fixture
def same_scale(folder: Path) -> Path:
    """Every training picture holds the label 0 and the label 255."""
    for i in range(5):
        for kind, factor in (("images", 16), ("masks", 1)):
            path = folder / "train" / kind / f"{i:02}.tif"
            values = tifffile.imread(path)
            values[:4, :4], values[4:8, :4] = 255 * factor, 0
            tifffile.imwrite(path, values)
    return folder


def test_batches_of_each_split(folder: Path) -> None:
    data = module(folder, in_chans=3)
    data.prepare_data()
    data.check_test()
    data.setup()
    assert [len(data.images(split)) for split in SPLITS] == [5, 2, 3]
    found = batches(data)
    assert [len(images) for images, _ in found] == [2, 2, 1]
    for images, targets in found:
        assert images.shape[1:] == (3, 24, 24)
        assert targets.shape[1:] == (1, 24, 24)
        assert images.dtype == targets.dtype == torch.float32
    for loader, part in ((data.val_dataloader(), "val"), (data.test_dataloader(), "test")):
        for (image, labels), example in zip(loader, data.images(part), strict=True):
            assert (image.shape, image.picture.dtype) == ((40, 52), np.uint16)
            assert labels.dtype == torch.int32
            assert np.array_equal(labels, tifffile.imread(folder / part / "masks" / example.path.name))
            assert np.array_equal(image.picture[..., 0], 16 * labels.numpy())


@pytest.mark.parametrize("augment", [None, {"quarter_turns": True, "flip": True}])
def test_image_and_targets_are_of_one_place(same_scale: Path, augment: dict | None) -> None:
    data = module(same_scale, percentiles=[0, 100], crops_per_image=6, augment=augment)
    data.setup("fit")
    count, behind = 0, 0
    for images, targets in batches(data):
        assert torch.equal(by_hand(data, images), targets)
        behind += int((by_hand(data, images) != targets.flip(-1)).any())
        count += len(images)
    assert count == 30
    assert behind > 10, "negative control: mirrored targets are noticed"


def test_resampled_images_and_targets_are_of_one_place(same_scale: Path) -> None:
    data = module(same_scale, percentiles=[0, 100], crops_per_image=6, augment={"degrees": 30.0})
    data.setup("fit")
    images, targets = (torch.cat(part) for part in zip(*batches(data), strict=True))
    agree, behind = (((by_hand(data, images) == other).float().mean()) for other in (targets, targets.flip(-1)))
    assert agree > 0.6
    assert behind < 0.45


def test_targets_see_whole_objects(tmp_path: Path) -> None:
    """The context around the crop holds what the picture holds there, and nothing beyond the picture."""
    labels = np.arange(1, 41, dtype=np.uint16)[:, None] * 100 + np.arange(1, 45, dtype=np.uint16)
    for part in ("train", "test"):
        for kind in ("images", "masks"):
            (tmp_path / part / kind).mkdir(parents=True)
            tifffile.imwrite(tmp_path / part / kind / "0.tif", labels)
    (tmp_path / "val").symlink_to(tmp_path / "test")
    seen: list[np.ndarray] = []

    def targets(window: np.ndarray) -> Tensor:
        seen.append(window.copy())
        return labels_themselves(window)

    data = module(tmp_path, crops_per_image=40, batch_size=1, targets=targets)
    data.setup("fit")
    padded = np.pad(labels, 8)
    for _, found in batches(data):
        corner = int(found[0, 0, 0, 0])
        top, left = corner // 100 - 1, corner % 100 - 1
        window = seen.pop(0)
        assert window.shape == (40, 40)
        assert np.array_equal(window, padded[top : top + 40, left : left + 40])
        assert np.array_equal(found[0, 0].numpy(), window[8:-8, 8:-8])


def test_small_pictures_are_filled_up_by_reflection(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        write(tmp_path / part, 2, sides=(8, 60))
    data = module(tmp_path, percentiles=[0, 100], crops_per_image=4, batch_size=1)
    data.setup("fit")
    for images, targets in batches(data):
        assert images.shape == (1, 1, 24, 24)
        zero = images.abs() < 1e-6
        assert torch.equal(zero, targets == 0)
        assert torch.equal(targets[0, 0, 8:16], targets[0, 0, 1:9].flip(0)), "rows mirror at row 8"
    values = RNG.integers(0, 9, (3, 30, 2))
    assert filled(values, 7).shape == (7, 30, 2)
    assert np.array_equal(filled(values, 7)[2:5], values)
    assert np.array_equal(filled(values, 7)[1], values[1])
    assert filled(values, 3) is values


def test_scale_cuts_larger_and_smaller_windows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The targets, labels themselves, show more objects the smaller the factor, until the window is the picture."""
    monkeypatch.setattr("gcsa.tasks.segmentation.data.augment.SPECK", 1)
    counts = []
    for factor in (0.1, 0.6, 1.0, 2.0):
        data = module(folder, crops_per_image=20, augment={"scale": [factor, factor]})
        data.setup("fit")
        images, targets = (torch.cat(part) for part in zip(*batches(data), strict=True))
        assert images.shape[2:] == targets.shape[2:] == (24, 24)
        counts.append(sum(len(target.unique()) for target in targets))
        agree, behind = (((images > 0.02) == (other > 0)).float().mean() for other in (targets, targets.flip(-1)))
        assert agree > behind + 0.1, "image and labels are of one place"
    assert counts[0] == pytest.approx(counts[1], rel=0.05), "24 / 40 is the smallest factor of these pictures"
    assert counts[1] > 1.5 * counts[2] > 2 * counts[3]


def test_balance_and_background(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        write(tmp_path / part, 5, sides=(40, 52))
    path = tmp_path / "train" / "images" / "00.tif"
    grey = tifffile.imread(path)
    tifffile.imwrite(path, np.stack([grey, grey // 2, grey], -1), photometric="rgb")
    data = module(tmp_path, in_chans=3, balance=True)
    data.setup("fit")
    assert len(data.images("train")) == 5
    drawn = data.train_dataloader().images.examples
    assert [example.path.stem for example in drawn].count("00") == 4
    assert len(drawn) == 8

    (tmp_path / "empty" / "inner").mkdir(parents=True)
    tifffile.imwrite(tmp_path / "empty" / "inner" / "brick.tif", grey)
    with_it = module(tmp_path, background=tmp_path / "empty")
    with_it.prepare_data()
    with_it.setup()
    assert with_it.images("train")[-1].path.name == "brick.tif"
    assert not with_it.images("train")[-1].labels.any()
    assert len(with_it.images("train")) == 6
    assert len(with_it.images("val")) == 5
    for name, sentence in (("nowhere", "is not a folder: data.background"), ("bare", "holds no images")):
        (tmp_path / "bare").mkdir(exist_ok=True)
        with pytest.raises((ValueError, FileNotFoundError), match=sentence):
            module(tmp_path, background=tmp_path / name).prepare_data()


def test_what_training_sees_depends_on_seed_epoch_and_item(folder: Path) -> None:
    data = module(folder, augment=AUGMENT, crops_per_image=2)
    data.setup("fit")
    again = module(folder, augment=AUGMENT, crops_per_image=2, num_workers=1)
    again.setup("fit")
    first = batches(data, 3)
    for left, right in zip(first, batches(again, 3), strict=True):
        assert all(map(torch.equal, left, right))
    assert not torch.equal(first[0][0], batches(data, 4)[0][0])
    other = module(folder, augment=AUGMENT, crops_per_image=2, seed=1)
    other.setup("fit")
    crops, others = data.train_dataloader().images, other.train_dataloader().images
    one = crops[BatchIndices([4], (0, 3, 0, 0))][0]
    assert torch.equal(crops[BatchIndices([7, 4], (0, 3, 5, 1))][0][1], one[0]), "whatever batch and process it is in"
    for key in ((1, 3, 0, 0), (0, 2, 0, 0)):
        assert not torch.equal(others[BatchIndices([4], key)][0], one)
    assert not torch.equal(crops[BatchIndices([5], (0, 3, 0, 0))][0], one)


def test_a_loader_goes_on_in_mid_epoch(folder: Path) -> None:
    data = module(folder, augment=AUGMENT)
    data.setup("fit")
    whole = batches(data, 2)
    loader, resumed = data.train_dataloader(), data.train_dataloader()
    loader.set_epoch(2)
    next(iter(loader))
    resumed.load_state_dict(loader.state_dict())
    for left, right in zip(whole[1:], resumed, strict=True):
        assert all(map(torch.equal, left, right))


def test_limit_train_and_lazy_test(folder: Path) -> None:
    data = module(folder, limit_train=2)
    next((folder / "test" / "images").iterdir()).write_bytes(b"damaged")
    data.setup("fit")
    assert len(data.images("train")) == 2
    assert len(module(folder, limit_train=0.6).pairs["train"]) == 3
    with raises("split.not_read"):
        data.images("test")
    with raises("image.unreadable"):
        data.check_test()
    with raises("image.unreadable"):
        data.setup("test")
    with raises("limit_train.too_many"):
        module(folder, limit_train=9).prepare_data()


def test_training_masks_are_checked_together(folder: Path) -> None:
    for file in (folder / "train/masks").iterdir():
        tifffile.imwrite(file, np.eye(40, 52, 20, np.uint8) + np.eye(40, 52, -20, np.uint8))
    module(folder).setup("fit")
    with raises("mask.pieces"):
        module(folder, split_validator=check_numbers).setup("fit")


def test_an_image_in_two_splits_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for kind in ("images", "masks"):
        (folder / f"test/{kind}/copy.tif").write_bytes((folder / f"train/{kind}/00.tif").read_bytes())
    module(folder).setup("fit")
    (message,) = caplog.messages
    assert message.startswith("1 images of test are in train, too")
    with raises("split.leaks"):
        module(folder, leaks="refuse").setup("fit")


def test_masks_are_checked(folder: Path) -> None:
    mask = folder / "train" / "masks" / "01.tif"
    tifffile.imwrite(mask, np.zeros((40, 50), np.uint16))
    with raises("mask.size"):
        module(folder).setup("fit")
    for file in mask.parent.iterdir():
        tifffile.imwrite(file, np.zeros((40, 52), np.uint16))
    data = module(folder)
    for _ in range(2):
        with raises("split.no_objects"):
            data.setup("fit")
    tifffile.imwrite(mask, np.eye(40, 52).astype(np.uint8))
    data = module(folder, targets=None)
    data.setup("fit")
    with raises("data.no_targets"):
        data.train_dataloader()

    def validator(labels: np.ndarray) -> None:
        raise ValueError(f"holds {labels.max()}")

    with raises("mask"):
        module(folder, label_validator=validator).setup("fit")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"path": None}, "data.path"),
        ({"in_chans": 2}, "in_chans"),
        ({"crop": 0}, "crop"),
        ({"context": -1}, "context"),
        ({"crops_per_image": 0}, "crops_per_image"),
        ({"percentiles": [99, 1]}, "percentiles.range"),
        ({"percentiles": [1, 101]}, "percentiles.range"),
        ({"percentiles": 1}, "percentiles"),
        ({"percentiles": [None, 1]}, "percentiles"),
        ({"batch_size": 0}, "batch_size"),
        ({"limit_train": 1.5}, "limit_train"),
        ({"augment": {"degrees": "x"}}, "augment.degrees"),
    ],
)
def test_arguments_are_checked(tmp_path: Path, options: dict, key: str) -> None:
    with raises(key):
        module(tmp_path, **options)


def test_absent_data(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        module(tmp_path / "nowhere").prepare_data()
    with pytest.raises(
        FileNotFoundError, match=r"nuclei not found: put .*2018 Data Science Bowl.*dsbowl-2018.*masks/ID\.png"
    ):
        Nuclei(root=tmp_path).prepare_data()


@pytest.mark.parametrize("kind", [MasksDataModule, Nuclei])
def test_configs_hold_every_argument_and_change_nothing(kind: type[MasksDataModule], tmp_path: Path) -> None:
    config = OmegaConf.load(CONF / f"{kind.name}.yaml")
    place = "root" if kind is Nuclei else "path"
    options = OmegaConf.merge(config, {place: str(tmp_path)})
    assert options.pop("name") == kind.name
    assert options.pop("defaults")[0] == {"override /task@_global_.task": "segmentation"}
    data = instantiate({"_target_": f"{kind.__module__}.{kind.__name__}", **options})
    plain = kind(**{place: tmp_path})
    for key in ("path", "in_chans", "crop", "context", "percentiles", "batch_size", "limit_train", "crops_per_image"):
        assert getattr(data, key) == getattr(plain, key)
    assert data.augment == type(data.augment)()


def test_real_nuclei(nuclei: Path) -> None:
    data = Nuclei(root=nuclei, limit_train=6, crop=128, batch_size=3, augment=AUGMENT, targets=labels_themselves)
    assert [len(pairs) for pairs in data.pairs.values()] == [6, 65, 65]
    data.check_test()
    data.setup("fit")
    images, targets = batches(data)[0]
    assert images.shape == (3, 3, 128, 128)
    assert targets.max() > 1
    for image, labels in list(data.val_dataloader())[:10]:
        assert image.shape == labels.shape
        # Nuclei are brighter in fluorescence, and darker in stained tissue.
        inside, outside = (image.picture[part].mean() for part in ((labels > 0).numpy(), (labels == 0).numpy()))
        assert abs(inside - outside) > 0.05 * image.picture.max()
