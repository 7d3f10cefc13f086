"""What tells the data of a run from others: names, numbers and contents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gcsa.data.identity import MOST_BYTES, difference, spaced
from gcsa.tasks.classification.data import create_datamodule


def identity(folder: Path) -> dict[str, Any]:
    data = create_datamodule("image_folder", path=str(folder), image_size=8)
    data.setup("fit")
    return data.identity()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two classes and three splits."""
    for split in ("train", "val", "test"):
        for name in "ab":
            (tmp_path / "data" / split / name).mkdir(parents=True)
            for number in range(3):
                value = 40 * number + (name == "b")
                Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(
                    tmp_path / "data" / split / name / f"{number}.png"
                )
    return tmp_path / "data"


def test_every_change_is_seen(folder: Path) -> None:
    before = identity(folder)
    assert difference(before, identity(folder.rename(folder.with_name("moved")))) == ""
    folder = folder.with_name("moved")
    picture = folder / "val/a/1.png"
    pixels = np.asarray(Image.open(picture)).copy()
    Image.fromarray(pixels + np.eye(8, dtype=np.uint8)[..., None]).save(picture)
    assert difference(before, identity(folder)) == "other contents in the val split"
    Image.fromarray(pixels).save(picture)
    (folder / "train/a/1.png").rename(folder / "train/a/1a.png")
    assert difference(before, identity(folder)) == "other files in the train split"
    (folder / "train/a/1a.png").unlink()
    assert difference(before, identity(folder)) == "5 examples in the train split (there were 6)"
    for split in ("train", "val", "test"):
        (folder / split / "b").rename(folder / split / "zz")
    assert difference(before, identity(folder)) == "names a, zz (they were a, b)"


def test_of_large_splits_some_are_read() -> None:
    assert list(spaced(5, 10)) == list(range(5))
    assert list(spaced(9, MOST_BYTES // 3)) == [0, 3, 6]
