"""Images named in a CSV file: the same as in folders, and one sentence for each fault of the file."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from gcsa.tasks.classification.data import create_datamodule
from tests.errors import raises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve grey pictures in two folders, a/00.png to b/11.png."""
    for i in range(12):
        name = "ab"[i // 6]
        (tmp_path / name).mkdir(exist_ok=True)
        Image.new("L", (8, 8), 20 * i).save(tmp_path / f"{name}/{i:02}.png")
    return tmp_path


def table(folder: Path, *, header: str = "image,label", columns: str = "", count: int = 12) -> Path:
    rows = [f"{'ab'[i // 6]}/{i:02}.png,{'ab'[i // 6]}{columns and ',' + columns.split()[i]}" for i in range(count)]
    (folder / "table.csv").write_text("\n".join([header, *rows]), encoding="utf-8-sig")
    return folder / "table.csv"


def module(path: Path, **options: object):  # type: ignore[no-untyped-def]
    data = create_datamodule("table", path=path, image_size=8, in_chans=1, **options)
    data.setup()
    return data


def test_without_splits_it_is_the_same_as_folders(folder: Path) -> None:
    data = module(table(folder))
    other = create_datamodule("image_folder", path=folder, image_size=8, in_chans=1)
    other.setup()
    assert data.class_names == other.class_names == ("a", "b")
    for split in ("train", "val", "test"):
        for mine, theirs in zip(
            data.images(split)[rows(data, split)], other.images(split)[rows(other, split)], strict=True
        ):
            assert torch.equal(mine, theirs)


def rows(data, split: str):  # type: ignore[no-untyped-def]
    from gcsa.data.loaders import BatchIndices

    return BatchIndices(list(range(len(data.images(split)))), ())


def test_splits_and_columns_by_name(folder: Path) -> None:
    splits = "train train Validation train test train train val train test train train"
    path = table(folder, header="image,label,split", columns=splits)
    data = module(path)
    assert [len(data.images(split)) for split in ("train", "val", "test")] == [8, 2, 2]
    assert data.images("test").labels.tolist() == [0, 1]
    path.write_text(
        path.read_text(encoding="utf-8-sig").replace("image,label,split", "file,kind,fold"), encoding="utf-8"
    )
    named = module(path, image="file", label="kind", split="fold")
    assert torch.equal(named.images("train").labels, data.images("train").labels)


def test_spaces_around_a_value_do_not_count(folder: Path) -> None:
    path = table(folder)
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    path.write_text("\n".join([lines[0], *(f"{line.replace(',', ', ')} " for line in lines[1:])]), encoding="utf-8")
    assert module(path).class_names == ("a", "b")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no column image: it has no header"),
        ("picture,label\na/00.png,a", "has no column image: it has picture, label"),
        ("image,label", "names no images"),
        ("image,label\na/00.png,", "line 2: its label is empty"),
        ("image,label\na/00.png,a\na/99.png,b", "line 3: there is no .*99.png"),
        ("image,label\na/00.png,a\na/00.png,b", "line 3: .*00.png is in an earlier line, too"),
        ("image,label\na/00.png,a\na/01.png,a", "holds one class only, a"),
        ("image,label,split\na/00.png,a,train\na/01.png,b,tset", "line 3: its split is tset, not one of train"),
        ("image,label,split\na/00.png,a,train\na/01.png,b,val", "holds the splits train, val only"),
        ("image,label\na/00.png,a\na/01.png,b", "holds too few images to be split"),
        (b"image,label\n\xff", "is no CSV file in UTF-8"),
    ],
)
def test_what_is_wrong_with_the_file(folder: Path, content: str | bytes, words: str) -> None:
    (folder / "table.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        create_datamodule("table", path=folder / "table.csv")


def test_the_file_is_named(folder: Path) -> None:
    with raises("data.path"):
        create_datamodule("table")
    with pytest.raises(FileNotFoundError, match=r"is not a file: data.path must name a CSV file"):
        create_datamodule("table", path=folder)
