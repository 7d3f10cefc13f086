"""Damaged and hostile files of data: a documented error or a picture, never anything else.

Each of the thousands of mutations (`tests/fuzzing/`) is read in a sandbox: no socket, no program, no file outside
of its folder, bounded memory and time. A documented error is a ValueError or FileNotFoundError of one line that names
the file. A few of each kind run always, all with `-m slow`. What they brought to light stands below by name.
"""

import gzip
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from gcsa.images.reader import read_grey, read_image, read_picture
from gcsa.tasks.classification.data.idx import read_idx
from gcsa.tasks.classification.data.pcam import FILE, PCam
from gcsa.tasks.classification.data.rotmnist import RotMNIST
from gcsa.tasks.recognition.data.line_image import fit_line, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.pages.inputs import Source, Transcript, find_lines
from gcsa.tasks.recognition.pages.layout import PageFinder
from gcsa.tasks.recognition.pages.page_xml import read_page
from tests.errors import raises
from tests.fuzzing import ROOT, mutations, sealed, xml_mutations

MEMORY = 2 << 30
"""Bytes that reading one file may take: pictures may have 150 million pixels."""
SECRET = 77
"""The grey level of a picture that lies outside of every folder, and that nothing may read."""
FEW, MANY = 15, 300
"""Mutations of a kind in the default run, and with `-m slow`."""


def picture(width: int = 48, height: int = 32) -> np.ndarray:
    levels = np.full((height, width), 230, np.uint8)
    levels[height // 4 : height // 2, width // 8 : -width // 8] = 10
    return levels


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
 <Page imageFilename="1.png" imageWidth="48" imageHeight="32"><TextRegion id="r"><Coords points="0,0 9,0 9,9"/>
  <TextLine id="a"><Coords points="2,2 40,2 40,30 2,30"/><TextEquiv index="0"><Unicode>one</Unicode></TextEquiv>
  </TextLine><TextLine id="b"><Coords><Point x="1" y="2"/><Point x="30" y="2"/><Point x="30" y="30"/></Coords>
  <TextEquiv><Unicode>two</Unicode></TextEquiv></TextLine></TextRegion></Page></PcGts>"""
ALTO = """<?xml version="1.0"?><alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description>
 <sourceImageInformation><fileName>1.png</fileName></sourceImageInformation></Description>
 <Layout><Page WIDTH="48" HEIGHT="32"><PrintSpace><TextBlock><TextLine ID="a" HPOS="2" VPOS="2" WIDTH="40" HEIGHT="28">
 <String CONTENT="one"/><SP WIDTH="1"/><String CONTENT="two"/><HYP CONTENT="-"/></TextLine><TextLine ID="b">
 <Shape><Polygon POINTS="1,2 30,2 30,30"/></Shape><String CONTENT="three"/></TextLine></TextBlock></PrintSpace></Page>
 </Layout></alto>"""
MANIFEST = "split\tfile\tdocument\ttext\n" + "".join(
    f"{split}\t{name}\tbook {i % 3}\tsome text\n"
    for i, (split, name) in enumerate(
        zip(["train", "val", "test"] * 2, ["1.png", "2.png", "3.png", "4.png"], strict=False)
    )
)


def h5(key: str, values: np.ndarray, **options: Any) -> bytes:
    file = BytesIO()
    with h5py.File(file, "w") as opened:
        opened.create_dataset(key, data=values, **options)
    return file.getvalue()


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


@cache
def good(kind: str) -> bytes:
    """A file of each kind that can be read."""
    grey, rng = Image.fromarray(picture()), np.random.default_rng(0)
    colour = Image.merge("RGBA", [grey, grey, grey, Image.fromarray(picture()[::-1].copy())])
    deep = Image.fromarray(picture().astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6
    images = rng.integers(0, 256, (6, 96, 96, 3), np.uint8)
    images[:, 20:] = 9
    table = np.column_stack([rng.random((12, 784)).round(1), np.arange(12) % 10]).astype(np.float32)
    text = BytesIO()
    np.savetxt(text, table, fmt="%.1f")
    array = BytesIO()
    np.save(array, table)
    return {
        "page": lambda: PAGE.encode(),
        "alto": lambda: ALTO.encode(),
        "manifest": lambda: MANIFEST.encode(),
        "png": lambda: encoded(grey, "PNG"),
        "png16": lambda: encoded(deep, "PNG"),
        "png palette": lambda: encoded(colour.convert("P"), "PNG", transparency=0, exif=exif),
        "png alpha": lambda: encoded(colour, "PNG", pnginfo=None, dpi=(300, 300)),
        "tiff": lambda: encoded(grey, "TIFF", exif=exif),
        "tiff16": lambda: encoded(deep, "TIFF", compression="tiff_lzw"),
        "tiff float": lambda: encoded(Image.fromarray(picture().astype(np.float32) / 255), "TIFF"),
        "tiff packed": lambda: encoded(colour, "TIFF", compression="tiff_deflate"),
        "tiff jpeg": lambda: encoded(grey.convert("RGB"), "TIFF", compression="jpeg"),
        "jpeg2000": lambda: encoded(grey.convert("RGB"), "JPEG2000"),
        "tiff fax": lambda: encoded(grey.convert("1"), "TIFF", compression="group4"),
        "jpeg": lambda: encoded(grey.convert("RGB"), "JPEG", exif=exif),
        "webp": lambda: encoded(colour, "WEBP"),
        "gif": lambda: encoded(grey.convert("P"), "GIF"),
        "bmp": lambda: encoded(grey.convert("RGB"), "BMP"),
        "ppm": lambda: encoded(grey.convert("RGB"), "PPM"),
        "h5 images": lambda: h5("x", images, chunks=(2, 96, 96, 3), compression="gzip", shuffle=True),
        "h5 plain images": lambda: h5("x", images[:2]),
        "h5 labels": lambda: h5("y", np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1) % 2),
        "idx": lambda: idx(images[:5, :28, :28, 0].copy()),
        "idx gz": lambda: gzip.compress(idx(images[:5, :28, :28, 0].copy()), mtime=0),
        "amat": text.getvalue,
        "npy": array.getvalue,
    }[kind]()


SUFFIX = {"page": ".xml", "alto": ".xml", "amat": ".amat", "npy": ".npy", "idx gz": ".gz", "manifest": ".tsv"}
XML = ("page", "alto")
IMAGES = ("png", "png16", "png palette", "png alpha", "tiff", "tiff16", "tiff float", "tiff packed", "tiff fax")
MORE_IMAGES = ("tiff jpeg", "jpeg2000", "jpeg", "webp", "gif", "bmp", "ppm")
TABLES = ("idx", "idx gz", "amat", "npy")
H5 = ("h5 images", "h5 plain images", "h5 labels")


def read(kind: str, path: Path) -> None:
    """Everything that the library reads from a file of this kind."""
    if kind in XML:
        lines = read_page(path)
        for line in lines[:3]:
            assert line.image.resolve().is_relative_to(path.parent.resolve())
            fit_line(read_line(line, 40), 40)
        for source in find_lines(Source(path), PageFinder())[:3]:
            Transcript(source).as_dict()
    elif kind == "manifest":
        for line in list_lines(path.parent):
            assert line.image.resolve().is_relative_to(path.parent.resolve())
    elif kind in IMAGES + MORE_IMAGES:
        assert read_image(path, 3).mode == "RGB"
        assert read_picture(path, 3).shape[2] == 3
        levels = read_grey(path)
        assert levels.size == 0 or (np.isfinite(levels).all() and 0 <= levels.min() <= levels.max() <= 256)
        read_line(path, 40)
    elif kind in ("idx", "idx gz"):
        assert read_idx(path, (5, 28, 28), "mnist").shape == (5, 28, 28)
    elif kind in ("amat", "npy"):
        part = RotMNIST(root=path.parent)
        part.counts = {"train_valid": 12}  # type: ignore[misc]
        assert part._parse(path, "train_valid").shape == (12, 785)
    else:
        data = PCam(root=path.parent.parent)
        split = data._read("train")
        assert split.images[torch.arange(min(2, len(split.images)))].shape[1:] == (3, 96, 96)


def folder_for(kind: str, folder: Path) -> Path:
    """The folder of the mutated file, with the good ones that it needs."""
    inner = folder / "above" / ("pcam" if kind in H5 else "files")  # a page may name images of the folder above
    inner.mkdir(parents=True)
    Image.fromarray(np.full((32, 48), SECRET, np.uint8)).save(folder / "secret.png")
    if kind in H5:
        for one in ("x", "y"):
            (inner / FILE.format("train", one)).write_bytes(good("h5 images" if one == "x" else "h5 labels"))
    elif kind in XML or kind == "manifest":
        for number in range(1, 5):
            Image.fromarray(picture()).save(inner / f"{number}.png")
            (inner / f"{number}.gt.txt").write_text(f"text {number}")
    return inner


def name_for(kind: str, number: int) -> str:
    if kind in H5:
        return FILE.format("train", "y" if kind == "h5 labels" else "x")
    return "manifest.tsv" if kind == "manifest" else f"{number}{SUFFIX.get(kind, '.png')}"


def mutated(kind: str, count: int, seed: int) -> Iterator[bytes]:
    return xml_mutations(good(kind).decode(), count, seed) if kind in XML else mutations(good(kind), count, seed)


def fuzz(kind: str, folder: Path, count: int, seed: int) -> int:
    """How many of `count` mutated files are refused, each in one sentence; the others can be read."""
    inner = folder_for(kind, folder)
    refused = 0
    for number, data in enumerate(mutated(kind, count, seed)):
        path = inner / name_for(kind, number)
        path.write_bytes(data)
        try:
            with sealed(inner, memory=MEMORY, write=False):
                read(kind, path)
        except (ValueError, FileNotFoundError) as error:
            message = str(error)
            assert "\n" not in message, (number, message)
            assert len(message) < 1500, (number, message)
            assert str(inner) in message, (number, message)
            refused += 1
        except BaseException as error:
            raise AssertionError(f"{kind}, mutation {number} of seed {seed}: {error!r}") from error
    return refused


MANY_FILES = pytest.mark.slow  # thousands of files take minutes


@pytest.mark.parametrize(
    ("count", "seed"), [pytest.param(FEW, 0, id="few"), pytest.param(MANY, 1, id="many", marks=MANY_FILES)]
)
@pytest.mark.parametrize("kind", [*XML, "manifest", *IMAGES, *MORE_IMAGES, *TABLES])
def test_mutated_files(kind: str, count: int, seed: int, tmp_path: Path) -> None:
    check(kind, tmp_path, count, seed)


@pytest.mark.parametrize("kind", H5)
def test_mutated_h5_files(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, FEW, 0)


def check(kind: str, folder: Path, count: int, seed: int) -> None:
    """The good file can be read, also in a sandbox, and of the mutated ones every fifth at least is refused."""
    inner = folder_for(kind, folder / "good")
    path = inner / name_for(kind, count)
    path.write_bytes(good(kind))
    with sealed(inner, memory=MEMORY, write=False):
        read(kind, path)
    assert fuzz(kind, folder / "bad", count, seed) > 0.2 * count


H5_PROGRAM = """
import sys, warnings
from pathlib import Path
from tests.contracts.test_fuzz_files import H5, MANY, check
warnings.simplefilter("error")
for kind in H5:
    check(kind, Path(sys.argv[1], kind), MANY, 1)
"""


@MANY_FILES
def test_many_mutated_h5_files(tmp_path: Path) -> None:
    """In a process of its own: the HDF5 library is in C, and some of its versions crash on damaged files."""
    command = [sys.executable, "-c", H5_PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]


# What was found, by name.


def test_a_png_that_asks_for_4_gib(tmp_path: Path) -> None:
    """A chunk of 4 GiB in a file of 200 bytes: Python allocates what a decoder asks for before it reads."""
    data = bytearray(good("png16"))
    start = data.index(b"IDAT") - 4
    data[start : start + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "1.png").write_bytes(bytes(data))
    with sealed(tmp_path, memory=1 << 28):
        assert np.array_equal(read_grey(tmp_path / "1.png"), picture()), "its pixels are whole"


def test_a_tiff_of_100_million_floats_in_6_kb(tmp_path: Path) -> None:
    """The height in the header is taken for true, and every step of decoding allocates for it."""
    file = BytesIO()
    Image.fromarray(picture().astype(np.float32)).save(file, "TIFF")
    data = file.getvalue()
    height = struct.pack("<HHLL", 257, 4, 1, 32)
    short = struct.pack("<HHLHH", 257, 3, 1, 32, 0)
    assert (height in data) != (short in data)
    tall = struct.pack("<HHLL", 257, 4, 1, 2_097_184)
    (tmp_path / "1.tif").write_bytes(data.replace(height, tall).replace(short, tall))
    with (
        raises("image.too_large"),
        sealed(tmp_path, memory=1 << 28),
    ):
        read_grey(tmp_path / "1.tif")


def test_an_array_whose_header_is_half_an_expression(tmp_path: Path) -> None:
    """NumPy reads the header with Python's tokenizer, whose TokenError is no ValueError."""
    path = tmp_path / "1.npy"
    path.write_bytes(good("npy").replace(b"}", b"(", 1))
    with raises("data.damaged"), sealed(tmp_path):
        read("npy", path)


def test_an_array_whose_header_is_32_kb(tmp_path: Path) -> None:
    """NumPy's own warning is of three lines, and recommends to trust the file."""
    data = bytearray(good("npy"))
    data[8:10] = (32_768).to_bytes(2, "little")
    (tmp_path / "1.npy").write_bytes(bytes(data))
    with raises("data.damaged") as error, sealed(tmp_path):
        read("npy", tmp_path / "1.npy")
    assert "\n" not in str(error.value)
