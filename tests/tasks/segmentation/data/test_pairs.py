import json
import unicodedata
from pathlib import Path

import pytest

from gcsa.tasks.segmentation.data.pairs import Pair, list_pairs, pairs_in
from tests.errors import raises


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def stardist(folder: Path, count: int, image: str = ".tif", mask: str = ".png") -> None:
    for i in range(count):
        touch(folder / "images" / f"{i:03}{image}", folder / "masks" / f"{i:03}{mask}")


def cellpose(folder: Path, count: int, image: str = "") -> None:
    for i in range(count):
        touch(folder / f"{i:03}{image}.tif", folder / f"{i:03}_masks.tif")


@pytest.mark.parametrize("valid", ["val", "valid", "validation"])
def test_split_folders_of_either_layout(tmp_path: Path, valid: str) -> None:
    stardist(tmp_path / "train", 4)
    cellpose(tmp_path / valid, 3)
    cellpose(tmp_path / "test", 2, "_img")
    pairs = list_pairs(tmp_path)
    assert list(pairs) == ["train", "val", "test"]
    assert [len(part) for part in pairs.values()] == [4, 3, 2]
    train, test = tmp_path / "train", tmp_path / "test"
    assert pairs["train"][1] == Pair(train / "images" / "001.tif", train / "masks" / "001.png")
    assert pairs["val"][0] == Pair(tmp_path / valid / "000.tif", tmp_path / valid / "000_masks.tif")
    assert pairs["test"][1] == Pair(test / "001_img.tif", test / "001_masks.tif")


def test_a_tenth_of_train_validates(tmp_path: Path) -> None:
    stardist(tmp_path / "train", 30)
    stardist(tmp_path / "test", 2)
    pairs = list_pairs(tmp_path)
    assert [len(part) for part in pairs.values()] == [27, 3, 2]
    assert sorted(pairs["train"] + pairs["val"]) == pairs_in(tmp_path / "train")
    assert list_pairs(tmp_path) == pairs


@pytest.mark.parametrize("layout", [stardist, cellpose])
def test_one_folder_is_split(tmp_path: Path, layout: object) -> None:
    layout(tmp_path, 20)  # type: ignore[operator]
    pairs = list_pairs(tmp_path)
    assert [len(part) for part in pairs.values()] == [16, 2, 2]
    assert sorted(pair for part in pairs.values() for pair in part) == pairs_in(tmp_path)


def test_names_in_two_forms_of_unicode_are_one(tmp_path: Path) -> None:
    """macOS writes é as two letters: in the names of images, of masks, and in a file of COCO."""
    composed, taken_apart = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    for image, mask in ((composed, taken_apart), (taken_apart, composed)):
        folder = tmp_path / f"{len(image)}"
        pair = folder / f"images/{image}.png", folder / f"masks/{mask}.png"
        touch(*pair)
        assert pairs_in(folder) == [Pair(*pair)]
        touch(folder / f"{image}_img.tif", folder / f"{mask}_masks.tif")
    listed = tmp_path / "coco"
    touch(listed / f"{taken_apart}.png")
    (listed / "a.json").write_text(
        json.dumps({"images": [{"file_name": f"{composed}.png", "id": 1}], "annotations": []})
    )
    assert pairs_in(listed) == [Pair(listed / f"{taken_apart}.png", listed / "a.json")]


def test_pictures_to_test_on_are_enough(tmp_path: Path) -> None:
    stardist(tmp_path / "test", 2)
    assert [len(part) for part in list_pairs(tmp_path).values()] == [0, 0, 2]


def test_what_is_no_picture_is_passed_over(tmp_path: Path) -> None:
    cellpose(tmp_path, 3)
    expected = pairs_in(tmp_path)
    touch(tmp_path / ".hidden.tif", tmp_path / "000_seg.npy", tmp_path / "000_flows.tif", tmp_path / "README.md")
    assert pairs_in(tmp_path) == expected


def test_defects_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere is not a folder: data\.path must hold images and masks"):
        list_pairs(tmp_path / "nowhere")
    with raises("pairs.none"):
        list_pairs(tmp_path)
    stardist(tmp_path / "train", 3)
    with raises("data.splits"):
        list_pairs(tmp_path)
    (tmp_path / "test" / "images").mkdir(parents=True)
    with raises("pairs.nested"):
        list_pairs(tmp_path)
    (tmp_path / "test" / "masks").mkdir()
    with raises("pairs.none"):
        list_pairs(tmp_path)
    stardist(tmp_path / "test", 1)
    for name in ("val", "valid"):
        stardist(tmp_path / name, 1)
    with raises("data.splits_twice"):
        list_pairs(tmp_path)


@pytest.mark.parametrize("layout", [stardist, cellpose])
def test_missing_partners_and_twins_are_named(tmp_path: Path, layout: object) -> None:
    layout(tmp_path, 3)  # type: ignore[operator]
    pair = pairs_in(tmp_path)[1]
    pair.mask.unlink()
    with raises("pairs.no_mask"):
        list_pairs(tmp_path)
    pair.mask.touch()
    pair.image.unlink()
    with raises("pairs.no_image"):
        list_pairs(tmp_path)
    pair.image.touch()
    touch(pair.image.with_suffix(".jpg"))
    with raises("pairs.same_name"):
        list_pairs(tmp_path)
