"""Images named in a CSV file: the same as in folders, and one sentence for each fault of the file."""

import unicodedata
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
        (b"image,label\n\xff", "is no table in UTF-8"),
        ("image,label\na/00.png,a\na/01.png,3,5", "line 3 has 3 cells under 2 columns"),
        ("image,label,label\na/00.png,a,b", "has the column label twice"),
        ("image,label\na/00.png,a\n./../{folder}/a/00.png,b", "line 3: .*00.png is in an earlier line, too"),
    ],
)
def test_what_is_wrong_with_the_file(folder: Path, content: str | bytes, words: str) -> None:
    text = content if isinstance(content, bytes) else content.replace("{folder}", folder.name).encode()
    (folder / "table.csv").write_bytes(text)
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        create_datamodule("table", path=folder / "table.csv")


def test_the_file_is_named(folder: Path) -> None:
    with raises("data.path"):
        create_datamodule("table")
    with pytest.raises(FileNotFoundError, match=r"is not a file: data.path must name a CSV file"):
        create_datamodule("table", path=folder)


def test_letters_in_two_forms_of_unicode_are_one(folder: Path) -> None:
    """An e with an accent, as macOS and as others write it, in classes and in names of files."""
    composed, taken_apart = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    (folder / f"{taken_apart}.png").write_bytes((folder / "a/00.png").read_bytes())
    names = [f"{composed}.png", *(str(file.relative_to(folder)) for file in folder.glob("[ab]/*.png"))]
    rows = [f"{name},{(composed, taken_apart, 'b')[i % 3]}" for i, name in enumerate(names)]
    (folder / "table.csv").write_text("\n".join(["image,label", *rows]), encoding="utf-8")
    assert create_datamodule("table", path=folder / "table.csv").class_names == ("b", composed)


def test_large_numbers_keep_their_digits(folder: Path) -> None:
    """A date is learned with mean 0 and deviation 1, and answered to the day."""
    days = range(20240101, 20240113)
    files = zip(folder.glob("[ab]/*.png"), days, strict=True)
    rows = [f"{file.relative_to(folder)},{day},{('train', 'val', 'test')[day % 3]}" for file, day in files]
    (folder / "table.csv").write_text("\n".join(["image,day,split", *rows]))
    data = create_datamodule("table", path=folder / "table.csv", target="regression", label=["day"], image_size=8)
    data.setup("fit")
    labels = data.images("train").labels
    scores = data.target.wanted(labels, 1)
    assert scores.dtype == torch.float32
    assert scores.mean().abs() < 1e-5
    assert torch.allclose(data.target.answers(scores), labels, rtol=0, atol=1e-3)
    assert set(labels.flatten().long().tolist()) <= set(days)


def test_a_class_without_training_images(folder: Path) -> None:
    rows = [f"a/0{i}.png,{label},{split}" for i, (label, split) in enumerate(SPLITS_WITHOUT_C)]
    (folder / "table.csv").write_text("\n".join(["image,label,split", *rows]))
    with raises("split.absent_class"):
        create_datamodule("table", path=folder / "table.csv", image_size=8).setup("fit")


@pytest.mark.parametrize("value", [0, 1])
def test_a_label_that_all_or_no_training_images_have(folder: Path, value: int) -> None:
    rows = [f"a/0{i}.png,{i % 2},{value if i < 3 else 1 - value},{'train' if i < 3 else 'test'}" for i in range(6)]
    rows += [f"b/{i:02}.png,{i % 2},{i % 2},val" for i in (6, 7)]
    (folder / "table.csv").write_text("\n".join(["image,x,y,split", *rows]))
    options = {"target": "multilabel", "label": ["x", "y"], "image_size": 8}
    with raises("split.constant_label"):
        create_datamodule("table", path=folder / "table.csv", **options).setup("fit")


def test_a_limit_that_leaves_a_class_without_images(folder: Path) -> None:
    with raises("split.absent_class"):
        create_datamodule("table", path=table(folder), image_size=8, limit_train=1).setup("fit")


def test_columns_in_two_forms_of_unicode_are_one(folder: Path) -> None:
    composed, taken_apart = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    rows = [f"a/0{i}.png,{i % 2}" for i in range(6)]
    (folder / "table.csv").write_text("\n".join([f"image,{taken_apart}", *rows]), encoding="utf-8")
    for name in (composed, taken_apart):
        assert create_datamodule("table", path=folder / "table.csv", label=name, image_size=8).class_names == ("0", "1")
    (folder / "table.csv").write_text(f"image,{taken_apart},{composed}\na/00.png,0,1", encoding="utf-8")
    with raises("table.column_twice"):
        create_datamodule("table", path=folder / "table.csv", label=composed, image_size=8)


SPLITS_WITHOUT_C = [("a", "train"), ("b", "train"), ("c", "val"), ("a", "val"), ("b", "test"), ("c", "test")]
