import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from gcsa.tasks.recognition.data.lines import list_lines
from tests.errors import raises
from tests.fuzzing import sealed


def write(folder: Path, *names: str, text: str | None = "a text") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.new("L", (40, 8)).save(folder / f"{name}.png")
        if text is not None:
            (folder / f"{name}.gt.txt").write_text(f"{text} {name}\n", encoding="utf-8")


def manifest(folder: Path, *rows: str, header: str = "split\tfile\tdocument\ttext") -> None:
    (folder / "manifest.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def test_a_manifest_gives_the_splits_and_the_text_file_the_text(tmp_path: Path) -> None:
    write(tmp_path, "1", "2", "3", "4")
    (tmp_path / "2.gt.txt").write_text('\ufeff"quoted  e\u0301\r\n', encoding="utf-8")
    manifest(tmp_path, "train\t1.png\tbook\tsomething else", 'val\t2.png\tbook\t"quoted', "test\t3.png\tother\t")
    lines = list_lines(tmp_path)
    assert [(line.split, line.image.name, line.document, line.text) for line in lines] == [
        ("train", "1.png", "book", "a text 1"),
        ("val", "2.png", "book", '"quoted \u00e9'),
        ("test", "3.png", "other", "a text 3"),
    ]
    (tmp_path / "3.gt.txt").unlink()
    assert list_lines(tmp_path, ["train", "val"]) == lines[:2], "texts of other splits are not read"


def test_without_a_manifest_a_tenth_each_is_held_out(tmp_path: Path) -> None:
    write(tmp_path, *map(str, range(40)))
    lines = list_lines(tmp_path)
    assert [sum(line.split == split for line in lines) for split in ("train", "val", "test")] == [32, 4, 4]
    assert list_lines(tmp_path) == lines
    val = list_lines(tmp_path, ["val"])
    assert val == [line for line in lines if line.split == "val"]


def test_documents_are_not_split(tmp_path: Path) -> None:
    for document in range(12):
        write(tmp_path / f"book{document}", "1", "2", "3")
    lines = list_lines(tmp_path)
    splits = {(line.document, line.split) for line in lines}
    assert len(splits) == 12
    assert sorted(split for _, split in splits) == ["test"] + 10 * ["train"] + ["val"]


def test_missing_empty_and_undecodable_texts_are_named(tmp_path: Path) -> None:
    write(tmp_path, "1", "2", "3")
    path = tmp_path / "2.gt.txt"
    path.write_text("\ufeff \n")
    with raises("lines.empty_text"):
        list_lines(tmp_path)
    path.write_bytes("für".encode("latin-1"))
    with raises("lines.not_utf8"):
        list_lines(tmp_path)
    path.unlink()
    with raises("lines.no_text"):
        list_lines(tmp_path)


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        (["train\t9.png\tbook\t"], "manifest.not_there"),
        (["train\t1.png\tbook\t", "train\t\tbook\t"], "manifest.not_there"),
        (["dev\t1.png\tbook\t"], "manifest.split"),
        (["train"], "manifest.not_there"),
        (["train\t1.png\tbook\t", "test\t1.png\tbook\t"], "manifest.twice"),
    ],
)
def test_manifests_that_cannot_be(tmp_path: Path, rows: list[str], key: str) -> None:
    write(tmp_path, "1")
    manifest(tmp_path, *rows)
    with raises(key):
        list_lines(tmp_path)


def test_manifest_columns(tmp_path: Path) -> None:
    write(tmp_path, "1")
    manifest(tmp_path, "train,1.png,book", header="split,file,document")
    with raises("table.column"):
        list_lines(tmp_path)
    (tmp_path / "manifest.tsv").write_bytes(b"\xff\xfe\x00")
    with raises("table.unreadable"):
        list_lines(tmp_path)


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        list_lines(tmp_path / "nowhere")
    with raises("lines.none"):
        list_lines(tmp_path)
    write(tmp_path, "1", "2")
    with raises("lines.too_few"):
        list_lines(tmp_path)


@pytest.mark.parametrize(
    "name", ["{root}/secret.png", "../secret.png", "sub/../../secret.png", "link.png", "..\\secret.png"]
)
def test_a_manifest_names_images_of_its_folder_only(name: str, tmp_path: Path) -> None:
    write(tmp_path, "secret")
    folder = tmp_path / "lines"
    write(folder, "1", "link")
    (folder / "link.png").unlink()
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "sub").mkdir()
    name = name.format(root=tmp_path)
    manifest(folder, "train\t1.png\tbook", f"train\t{name}\tbook")
    with (
        raises("manifest.not_there"),
        sealed(folder, write=False),
    ):
        list_lines(folder)
    if "\\" not in name:
        lines = list_lines(folder, any_image=True)
        assert [line.image.resolve().name for line in lines] == ["1.png", "secret.png"]


def test_one_image_under_two_names_has_one_split(tmp_path: Path) -> None:
    write(tmp_path, "1")
    manifest(tmp_path, "train\t1.png\tbook", "test\t./1.png\tbook")
    with raises("manifest.twice"):
        list_lines(tmp_path)


def test_names_in_two_forms_of_unicode_are_one(tmp_path: Path) -> None:
    """Of an image and its text, and in a manifest, also with a row for each form."""
    composed, taken_apart = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    write(tmp_path / "sub", *(f"{taken_apart}{i}" for i in range(3)))
    for i in range(3):
        (tmp_path / f"sub/{taken_apart}{i}.gt.txt").rename(tmp_path / f"sub/{composed}{i}.gt.txt")
    assert {line.text for line in list_lines(tmp_path)} == {f"a text {composed}{i}" for i in range(3)}
    manifest(tmp_path, *(f"{split}\tsub/{composed}{i}.png\tbook" for i, split in enumerate(("train", "val", "test"))))
    assert [line.image.name for line in list_lines(tmp_path)] == [f"{taken_apart}{i}.png" for i in range(3)]
    manifest(
        tmp_path, *(f"{split}\tsub/{form}0.png\tbook" for split, form in (("train", composed), ("test", taken_apart)))
    )
    with raises("manifest.twice"):
        list_lines(tmp_path)


def test_texts_and_manifests_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "1", "2", "3")
    (tmp_path / "2.gt.txt").write_text("a" * 70_000)
    with raises("file.too_large"):
        list_lines(tmp_path)
    manifest(tmp_path, "train\t1.png\tbook")
    monkeypatch.setattr("gcsa.tasks.recognition.data.lines.MAX_MANIFEST_BYTES", 20)
    with raises("file.too_large"):
        list_lines(tmp_path)


def test_images_of_ocropus(tmp_path: Path) -> None:
    """NAME.nrm.png and NAME.bin.png have their text in NAME.gt.txt; of two images of a line, one is taken."""
    for number in range(4):
        (tmp_path / f"{number}.gt.txt").write_text(f"line {number}")
        for kind in ("nrm", "bin") if number else ("bin",):
            (tmp_path / f"{number}.{kind}.png").touch()
    lines = list_lines(tmp_path)
    assert sorted(line.image.name for line in lines) == ["0.bin.png", "1.nrm.png", "2.nrm.png", "3.nrm.png"]
    assert sorted(line.text for line in lines) == [f"line {number}" for number in range(4)]
