import os
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.data.image_folder import ImageFiles, class_files, list_splits
from tests.errors import raises
from tests.images.test_reader import png_header


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


@pytest.mark.parametrize(("pad", "border"), [("white", 255), ("black", 0)])
def test_the_whole_image_in_a_square(tmp_path: Path, pad: str, border: int) -> None:
    write(tmp_path, size=8)  # 12 wide and 8 high
    data = create_datamodule("image_folder", path=tmp_path, image_size=12, in_chans=1, pad=pad)
    data.setup("fit")
    image = data.images("train").images[torch.tensor([0])][0, 0]
    assert (image[:2] == border).all()
    assert (image[10:] == border).all()
    assert (image[2:10] == image[6, 6]).all()


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
    with raises("image.unreadable"):
        create_datamodule("image_folder", path=tmp_path, image_size=8).setup("fit")


def test_folder_errors(tmp_path: Path) -> None:
    with raises("data.path"):
        create_datamodule("image_folder")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        create_datamodule("image_folder", path=tmp_path / "nowhere")
    with raises("data.classes"):
        create_datamodule("image_folder", path=tmp_path)
    write(tmp_path / "train")
    with raises("data.splits"):
        create_datamodule("image_folder", path=tmp_path)
    write(tmp_path / "test", classes=("cat", "horse"))
    with raises("class_folder.differ"):
        create_datamodule("image_folder", path=tmp_path)


def test_empty_class_and_bad_sizes(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "empty").mkdir()
    with raises("class_folder.empty"):
        create_datamodule("image_folder", path=tmp_path)
    with raises("image_size", value=0):
        create_datamodule("image_folder", path=tmp_path, image_size=0)
    with raises("in_chans", in_chans=2):
        create_datamodule("image_folder", path=tmp_path, in_chans=2)


def test_one_class_is_refused(tmp_path: Path) -> None:
    write(tmp_path, classes=("cat",))
    with raises("data.one_class"):
        create_datamodule("image_folder", path=tmp_path)


def test_what_is_hidden_is_no_class_and_no_image(tmp_path: Path) -> None:
    write(tmp_path)
    expected = list_splits(tmp_path)
    for name in (".git", "__MACOSX", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes((tmp_path / "cat" / "0.png").read_bytes())
    (tmp_path / "README.md").write_text("about")
    for folder in (tmp_path / "cat", tmp_path / "dog" / ".cache", tmp_path / "cat" / "__MACOSX"):
        folder.mkdir(exist_ok=True)
        (folder / "._0.png").write_bytes(b"what macOS puts beside files")
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"\0")
    classes, parts = list_splits(tmp_path)
    assert classes == expected[0]
    assert {part: files for part, (files, _) in parts.items()} == {
        part: files for part, (files, _) in expected[1].items()
    }


def test_folders_within_a_class_and_links(tmp_path: Path) -> None:
    """In the order of torchvision's ImageFolder, and without end where a link leads in a circle."""
    write(tmp_path)
    more = tmp_path / "cat" / "more"
    more.mkdir()
    for name in ("b.png", "a.PNG", "note.txt"):
        (more / name).write_bytes((tmp_path / "cat" / "0.png").read_bytes())
    files, labels = class_files(tmp_path, ("cat", "dog"))
    assert [(str(file), int(label)) for file, label in zip(files, labels, strict=True)] == ImageFolder(tmp_path).samples
    (more / "circle").symlink_to(tmp_path / "cat")
    assert class_files(tmp_path, ("cat", "dog"))[0] == files


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [("train", "valid", "test"), ("Training", "validation", "Testing"), ("TRAIN", "Val", "Test")],
)
def test_other_names_of_the_split_folders(train: str, val: str, test: str, tmp_path: Path) -> None:
    for part, count in ((train, 20), (val, 5), (test, 3)):
        write(tmp_path / part, count=count)
    data = create_datamodule("image_folder", path=tmp_path, image_size=8)
    data.setup()
    assert [len(data.images(split)) for split in ("train", "val", "test")] == [40, 10, 6]
    write(tmp_path / "VALID")
    with raises("data.splits_twice"):
        create_datamodule("image_folder", path=tmp_path)


def test_sixteen_bits_floats_alpha_and_orientation(tmp_path: Path) -> None:
    """The same picture, dark on the left, whatever holds it; these came out white, black, opaque and lying."""
    levels = np.tile(np.arange(0, 256, 32, dtype=np.uint8), (8, 1))
    grey, exif = Image.fromarray(levels), Image.Exif()
    exif[0x0112] = 6
    glass = Image.merge("LA", [Image.new("L", grey.size, 0), Image.fromarray(255 - levels)])
    write(tmp_path / "test", count=1)
    for label in ("cat", "dog"):
        (tmp_path / "train" / label).mkdir(parents=True)
        folder = tmp_path / "train" / label
        grey.save(folder / "0.png")
        Image.fromarray(levels.astype(np.uint16) * 257).save(folder / "1.png")
        Image.fromarray(levels.astype(np.float32) / 224).save(folder / "2.tif")
        glass.save(folder / "3.png")
        Image.fromarray(np.rot90(levels).copy()).save(folder / "4.png", exif=exif)
    files, _ = class_files(tmp_path / "train", ("cat", "dog"))
    for channels in (1, 3):
        images = ImageFiles(files, Prepare(8, (0.5,) * channels, (0.5,) * channels)).read_all().float()
        for number in (1, 3, 4):
            assert (images[number] - images[0]).abs().max() <= 1
        assert (images[2] - images[0] * 255 / 224).abs().max() <= 1


def test_a_picture_too_large_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "dog" / "3.png").write_bytes(png_header(20_000, 20_000))
    with raises("image.too_large"):
        create_datamodule("image_folder", path=tmp_path, image_size=8).setup()
    write(tmp_path / "alone" / "test")
    shutil.move(tmp_path / "dog" / "3.png", tmp_path / "alone" / "test" / "dog" / "3.png")
    with raises("image.too_large"):
        create_datamodule("image_folder", path=tmp_path / "alone", image_size=8).check_test()


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    write(tmp_path)
    try:
        os.rename(tmp_path / "dog" / "3.png", os.fsencode(tmp_path / "dog") + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    create_datamodule("image_folder", path=tmp_path, image_size=8).setup()
    os.rename(tmp_path / "cat", os.fsencode(tmp_path) + b"/caf\xe9")
    with raises("class_folder.name"):
        create_datamodule("image_folder", path=tmp_path, image_size=8)


def test_plankton(shared: Path) -> None:
    data = create_datamodule("image_folder", path=shared / "plankton", image_size=32, in_chans=1)
    data.setup("validate")
    assert data.num_classes == 31
    assert [len(data.images(split)) for split in ("train", "val")] == [3720, 1240]


def test_too_few_to_split(tmp_path: Path) -> None:
    write(tmp_path, count=2)
    with raises("split.too_few"):
        create_datamodule("image_folder", path=tmp_path)


def test_an_image_in_two_splits_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy under another name, and a link; other images of the same size are not."""
    for split, first in (("train", 0), ("val", 10), ("test", 20)):
        for label, name in enumerate(("cat", "dog")):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(first, first + 5):
                Image.new("RGB", (8, 8), (i, 100 * label, 0)).save(tmp_path / split / name / f"{i}.bmp")
    create_datamodule("image_folder", path=tmp_path, image_size=8).setup("fit")
    assert caplog.messages == []
    shutil.copy(tmp_path / "train/cat/0.bmp", tmp_path / "test/cat/copy.bmp")
    (tmp_path / "test/dog/link.bmp").symlink_to(tmp_path / "train/dog/0.bmp")
    create_datamodule("image_folder", path=tmp_path, image_size=8).setup("fit")
    (message,) = caplog.messages
    assert message.startswith("2 images of test are in train, too")
    with raises("split.leaks"):
        create_datamodule("image_folder", path=tmp_path, image_size=8, leaks="refuse").setup("fit")
    with raises("data.leaks"):
        create_datamodule("image_folder", path=tmp_path, leaks="no")


def test_class_folders_in_two_forms_of_unicode(tmp_path: Path) -> None:
    forms = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")]
    for split, name in zip(("train", "test"), forms, strict=True):
        write(tmp_path / split, (name, "dog"))
    assert list_splits(tmp_path)[0] == ("café", "dog")
    write(tmp_path / "train", (forms[1],))
    with raises("class_folder.twice"):
        list_splits(tmp_path)
