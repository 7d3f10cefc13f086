"""A folder in which most files cannot be read: each is named on stderr and in the report, the others are done, and the status is 1."""

import csv
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

Run = Callable[..., tuple[int, str, str]]
SIDE = 100_000
"""What a header claims."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    picture = np.full((96, 96, 3), 255, np.uint8)
    picture[40:50, 20:80] = 0
    for name in ("good.png", "zgood.jpg"):
        Image.fromarray(picture).save(folder / name)
    (folder / "broken.jpg").write_bytes((folder / "zgood.jpg").read_bytes()[:-300])
    (folder / "empty.png").write_bytes(b"")
    (folder / "foreign.png").write_text("Dear,\n")
    with zipfile.ZipFile(folder / "zipped.tif", "w") as file:
        file.writestr("a.txt", "a")
    (folder / "notes.txt").write_text("is no image, and is left out")
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    packed = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    (folder / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))
    tifffile.imwrite(folder / "large.tif", picture, metadata=None)
    with tifffile.TiffFile(folder / "large.tif", mode="r+") as file:
        for tag in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[tag].overwrite(SIDE)  # type: ignore[union-attr]
    return folder


@pytest.fixture
def locked(folder: Path) -> None:
    pikepdf = pytest.importorskip("pikepdf")
    with pikepdf.Pdf.new() as pdf:
        pdf.add_blank_page(page_size=(200, 200))
        pdf.save(folder / "locked.pdf", encryption=pikepdf.Encryption(user="secret", owner="secret"))


BAD = ["broken.jpg", "empty.png", "foreign.png", "huge.png", "large.tif", "zipped.tif"]


def check(run: Run, folder: Path, bad: list[str], *arguments: object) -> None:
    code, _, err = run(*arguments, "--report", folder.parent / "report.csv")
    assert code == 1
    lines = err.splitlines()
    named = [line for line in lines if line.startswith(str(folder))]
    assert [line.removeprefix(f"{folder}/").split()[0].rstrip(",") for line in named] == bad
    assert f"{len(bad)} of {len(bad) + 2} could not be " in lines[-1]
    with (folder.parent / "report.csv").open(newline="") as stream:
        rows = {Path(row["file"]).name: row for row in csv.DictReader(stream)}
    assert list(rows) == sorted([*bad, "good.png", "zgood.jpg"])
    assert [name for name in rows if rows[name]["status"] != "done"] == bad
    assert [rows[name]["message"] for name in bad] == named
    assert "cut it into tiles" in rows["huge.png"]["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("classify", "gcsa_pooled_small.pcam", "@", "--output", "answers.csv"),
        ("embed", "gcsa_pooled_small.pcam", "@", "--output", "features.h5"),
        ("embed", "gcsa_pooled_small.pcam", "@", "--output", "x", "--patches", "--slide-mpp", 0.972, "--tissue", 0),
        ("segment", "gcsa_unet_tiny.nuclei", "@", "--output", "objects"),
        ("orient", "@", "--output", "answers.csv"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:1])),
)
def test_images(run: Run, folder: Path, arguments: tuple[object, ...]) -> None:
    check(run, folder, BAD, *(folder if argument == "@" else argument for argument in arguments))


@pytest.mark.usefixtures("locked")
def test_pages(run: Run, folder: Path) -> None:
    bad = sorted([*BAD, "locked.pdf"])
    check(run, folder, bad, "transcribe", "crnn.french", folder, "--output", "text")
