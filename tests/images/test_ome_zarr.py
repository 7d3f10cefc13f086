"""OME-Zarr of both versions, against the arrays that were written, whole and by windows."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcsa._utils.arrays import Array
from gcsa.images.folders import SUFFIXES, ZARR, list_files
from gcsa.images.planes import Plane
from gcsa.images.reader import image_size, open_image, read_labels, read_picture
from gcsa.images.slides import open_slide
from gcsa.images.windows import ArrayImage, StoredImage
from tests.errors import raises
from tests.fuzzing import sealed
from tests.images.slide_files import halved, tissue_picture
from tests.images.zarr_files import write_zarr

zarr = pytest.importorskip("zarr")

RNG = np.random.default_rng(0)
STACK = RNG.integers(0, 4096, (2, 4, 5, 40, 50), dtype=np.uint16)
"""t, c, z, y, x."""
NAMES = ["DAPI", "488", "RFP", "phase"]
TISSUE = [np.moveaxis(level, -1, 0) for level in halved(tissue_picture(60, 84), 2)]
"""c, y, x in three levels."""

pytestmark = pytest.mark.parametrize("version", ["0.4", "0.5"])


def planes(path: Path, plane: Plane) -> Array:
    """A picture in grey, which is the same by windows."""
    picture = read_picture(path, 1, plane)
    with open_slide(path, 1, in_memory=1, plane=plane) as slide:
        image = slide.levels[0]
        assert isinstance(image, StoredImage)
        assert np.array_equal(image.window(3, 4, 21, 43), picture[3:21, 4:43])
        assert image.percentiles(1, 99) == ArrayImage(picture).percentiles(1, 99)
    return picture[..., 0]


def test_five_axes(version: str, tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    write_zarr(path, [STACK], "tczyx", version, names=NAMES)
    assert np.array_equal(planes(path, Plane(4, 2, 2)), STACK[1, 3, 1])
    assert np.array_equal(planes(path, Plane("RFP", "max", 1)), STACK[0, 2].max(0))
    with open_image(path, plane=Plane(1, "max", 1)) as image:
        assert (image.slice_count, image.pixel_size) == (5, (0.5, 0.5))
    for plane, key in (
        (Plane(1, 1), "planes.needed"),
        (Plane(1, time=1), "planes.needed"),
        (Plane(z=1, time=1), "planes.needed"),
        (Plane("Cy3", 1, 1), "planes.choice"),
        (Plane(1, 6, 1), "planes.choice"),
    ):
        with raises(key):
            read_picture(path, 1, plane)


def test_levels_in_colour(version: str, tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    write_zarr(path, TISSUE, "cyx", version, scale=250, unit="nanometer")
    with open_image(path) as image:
        assert image.is_pyramid
    assert image_size(path) == (84, 60)
    for in_memory in (1, 10**6):
        with open_slide(path, 3, in_memory) as slide:
            assert [level.shape for level in slide.levels] == [(60, 84), (30, 42), (15, 21)]
            assert (slide.mpp, slide.pixel_size) == (0.25, (0.25, 0.25))
            for level, expected in zip(slide.levels, TISSUE, strict=True):
                assert np.array_equal(level.window(0, 0, *level.shape), np.moveaxis(expected, 0, -1))
    assert np.array_equal(read_picture(path, 1, Plane(2))[..., 0], TISSUE[0][1])


def test_two_axes(version: str, tmp_path: Path) -> None:
    labels = RNG.integers(0, 9, (20, 30), dtype=np.int32)
    write_zarr(tmp_path / "x.zarr", [labels], "yx", version, unit=None)
    assert np.array_equal(read_labels(tmp_path / "x.zarr"), labels)
    assert np.array_equal(read_picture(tmp_path / "x.zarr", 1)[..., 0], labels)
    with open_image(tmp_path / "x.zarr") as image:
        assert not image.is_pyramid
    with open_slide(tmp_path / "x.zarr", 1) as slide:
        assert (slide.mpp, slide.pixel_size) == (None, None)
    with raises("image.too_deep"), open_slide(tmp_path / "x.zarr", 1, 1):
        pass


def test_shards(version: str, tmp_path: Path) -> None:
    """A window decodes the chunks in a shard that it needs."""
    if version == "0.4":
        pytest.skip("of Zarr 3 only")
    picture = STACK[0, 0, 0]
    write_zarr(tmp_path / "x.zarr", [picture], "yx", chunks=(8, 8), shards=(32, 32))
    assert np.array_equal(planes(tmp_path / "x.zarr", Plane()), picture)


def test_a_folder_is_one_image(version: str, tmp_path: Path) -> None:
    write_zarr(tmp_path / "in/x.zarr", [STACK[0, 0, 0]], "yx", version)
    (tmp_path / "in/x.zarr/0/thumbnail.png").touch()
    (tmp_path / "a.png").touch()
    listed = list_files(tmp_path, (*SUFFIXES, ZARR), recursive=True)
    assert [path.relative_to(tmp_path).as_posix() for path in listed] == ["a.png", "in/x.zarr"]
    assert [path.name for path in list_files(tmp_path, SUFFIXES, recursive=True)] == ["a.png"]
    assert [path.name for path in list_files(tmp_path / "in", (*SUFFIXES, ZARR))] == ["x.zarr"]


def rewrite(path: Path, change: Any) -> None:
    """Changes the metadata of the group."""
    file = path / ("zarr.json" if (path / "zarr.json").is_file() else ".zattrs")
    content = json.loads(file.read_text())
    inner = content["attributes"]["ome"] if file.name == "zarr.json" else content
    change(inner)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda ome: ome.update(plate={}), "zarr.plate"),
        (lambda ome: ome.pop("multiscales"), "zarr.images"),
        (lambda ome: ome["multiscales"].append({}), "zarr.images"),
        (lambda ome: ome["multiscales"][0].pop("axes"), "zarr.axes"),
        (lambda ome: ome["multiscales"][0]["axes"].reverse(), "zarr.axes"),
        (lambda ome: ome["multiscales"][0]["datasets"].reverse(), "zarr.level_order"),
        (lambda ome: ome["multiscales"][0]["datasets"][1].update(path="9"), "image.unreadable"),
        (lambda ome: ome["multiscales"][0]["datasets"][1].update(path=""), "zarr.level_folder"),
    ],
    ids=["plate", "none", "two", "no axes", "other axes", "levels", "no level", "folder"],
)
def test_other_metadata(version: str, change: Any, key: str, tmp_path: Path) -> None:
    write_zarr(tmp_path / "x.zarr", TISSUE, "cyx", version)
    rewrite(tmp_path / "x.zarr", change)
    with raises(key):
        read_picture(tmp_path / "x.zarr", 3)


def test_several_images_in_one_folder(version: str, tmp_path: Path) -> None:
    """As bioformats2raw writes them."""
    root = zarr.open_group(str(tmp_path / "x.zarr"), mode="w", zarr_format=2 if version == "0.4" else 3)
    layout = {"bioformats2raw.layout": 3}
    root.attrs.update(layout if version == "0.4" else {"ome": layout})
    write_zarr(tmp_path / "x.zarr/0", [STACK[0, 0, 0]], "yx", version)
    assert np.array_equal(read_picture(tmp_path / "x.zarr", 1)[..., 0], STACK[0, 0, 0])
    write_zarr(tmp_path / "x.zarr/1", [STACK[0, 0, 1]], "yx", version)
    with raises("zarr.images"):
        read_picture(tmp_path / "x.zarr", 1)
    assert np.array_equal(read_picture(tmp_path / "x.zarr/1", 1)[..., 0], STACK[0, 0, 1])
    (tmp_path / "x.zarr/1").rename(tmp_path / "outside")
    (tmp_path / "x.zarr/0").rename(tmp_path / "other")
    (tmp_path / "x.zarr/0").symlink_to(tmp_path / "outside")
    with raises("zarr.outside"):
        read_picture(tmp_path / "x.zarr", 1)


def test_codecs_that_run_code_are_refused(version: str, tmp_path: Path) -> None:
    """Zarr's `pickle` would run what lies in the chunks."""
    if version == "0.5":
        pytest.skip("of Zarr 2 only")
    path = tmp_path / "x.zarr"
    write_zarr(path, [STACK[0, 0, 0]], "yx", version)
    about = json.loads((path / "0/.zarray").read_text())
    for codec, key in (("pickle", "image.unreadable"), ("fletcher32", "image.compression")):
        (path / "0/.zarray").write_text(json.dumps({**about, "filters": [{"id": codec}]}))
        with raises(key):
            read_picture(path, 1)


def test_what_is_damaged_or_too_large(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.zarr"
    write_zarr(path, [STACK[0, 0, 0]], "yx", version)
    chunk = path / ("0/0.0" if (path / "0/0.0").is_file() else "0/c/0/0" if (path / "0/c/0/0").is_file() else "0/0/0")
    chunk.write_bytes(b"no chunk")  # of which its first bytes may say how large it is
    with raises("zarr.size" if version == "0.4" else "image.unreadable"):
        read_picture(path, 1)
    monkeypatch.setattr("gcsa.images.ome_zarr.MAX_SEGMENT", 255)
    with raises("image.chunks"):
        read_picture(path, 1)
    (tmp_path / "y.zarr").mkdir()
    with raises("zarr.no_group"):
        read_picture(tmp_path / "y.zarr", 1)
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with raises("zarr.missing"):
        read_picture(path, 1)


def first_chunk(path: Path) -> Path:
    """The file of the first chunk of the first level."""
    return path / "0" / ("c/0/0" if (path / "zarr.json").is_file() else "0.0")


@pytest.mark.parametrize("codec", ["blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma"])
def test_a_chunk_that_unpacks_to_more_is_not_unpacked(version: str, codec: str, tmp_path: Path) -> None:
    """A chunk of 512 bytes, replaced by one of 64 MB in a few, of which no megabyte is unpacked but what is looked at."""
    numcodecs = pytest.importorskip("numcodecs")
    if version == "0.5" and codec not in ("blosc", "gzip", "zstd"):
        pytest.skip("of Zarr 2, or of numcodecs in Zarr 3")
    pack = numcodecs.get_codec({"id": codec})
    options = {"compressors": pack} if version == "0.4" else {}
    if version == "0.5":
        options["compressors"] = {
            "blosc": zarr.codecs.BloscCodec(),
            "gzip": zarr.codecs.GzipCodec(),
            "zstd": zarr.codecs.ZstdCodec(),
        }[codec]
    write_zarr(tmp_path / "x.zarr", [STACK[0, 0, 0]], "yx", version, **options)
    assert np.array_equal(read_picture(tmp_path / "x.zarr", 1)[..., 0], STACK[0, 0, 0])
    first_chunk(tmp_path / "x.zarr").write_bytes(pack.encode(np.zeros(1 << 26, np.uint8)))
    with raises("zarr.size"), sealed(tmp_path, memory=1 << 25):
        read_picture(tmp_path / "x.zarr", 1)


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda packed, index: index.__setitem__(0, (0, len(packed))), "which is larger than"),
        (lambda _, index: index.__setitem__((0, 1), 1 << 40), "in it beyond"),
    ],
    ids=["unpacks", "beyond"],
)
def test_a_chunk_of_a_shard_is_checked(version: str, change: Any, words: str, first: bool, tmp_path: Path) -> None:
    """Where its index is first or last: one that unpacks to 64 MB, and one that is said to be longer than its file."""
    if version == "0.4":
        pytest.skip("of Zarr 3 only")
    crc32c = pytest.importorskip("google_crc32c").value
    numcodecs, picture = pytest.importorskip("numcodecs"), STACK[0, 0, 0]
    write_zarr(tmp_path / "x.zarr", [picture[:32, :32]], "yx", chunks=(8, 8), shards=(32, 32))
    array, file = tmp_path / "x.zarr/0/zarr.json", tmp_path / "x.zarr/0/c/0/0"
    content, shard = json.loads(array.read_text()), file.read_bytes()
    index = np.frombuffer(shard[-4 - 256 : -4], "<u8").reshape(-1, 2).copy()
    if first:
        content["codecs"][0]["configuration"]["index_location"] = "start"
        array.write_text(json.dumps(content))

    def read(body: bytes, index: Any) -> None:
        table = np.add(index, [260 if first else 0, 0]).astype("<u8").tobytes()
        table += crc32c(table).to_bytes(4, "little")
        file.write_bytes(table + body if first else body + table)
        for side in (8, 32):  # one chunk, and all of them
            with open_slide(tmp_path / "x.zarr", 1, 1) as slide, sealed(tmp_path, memory=1 << 25):
                assert np.array_equal(slide.levels[0].window(0, 0, side, side)[..., 0], picture[:side, :side])

    read(shard[: -4 - 256], index)
    packed = numcodecs.get_codec({"id": "zstd"}).encode(np.zeros(1 << 26, np.uint8))
    index[:, 0] += len(packed)
    change(packed, index)
    with raises("zarr.size") as error:
        read(packed + shard[: -4 - 256], index)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("replace", "key"),
    [
        (lambda file, outside: file.symlink_to(outside), "zarr.outside"),
        (lambda file, outside: os.mkfifo(file), "zarr.no_file"),
        (lambda file, outside: file.symlink_to("/dev/zero"), "zarr.no_file"),
        (lambda file, outside: file.write_bytes(bytes(1 << 20)), "zarr.size"),
    ],
    ids=["link", "pipe", "device", "large"],
)
def test_only_regular_files_in_the_folder_are_read(version: str, replace: Any, key: str, tmp_path: Path) -> None:
    write_zarr(tmp_path / "x.zarr", [STACK[0, 0, 0]], "yx", version)
    file = first_chunk(tmp_path / "x.zarr")
    file.rename(tmp_path / "outside")
    replace(file, tmp_path / "outside")
    with raises(key):
        read_picture(tmp_path / "x.zarr", 1)


def test_a_missing_chunk_is_told(version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_zarr(tmp_path / "x.zarr", [STACK[0, 0, 0]], "yx", version)
    assert read_picture(tmp_path / "x.zarr", 1).min() >= 0
    assert caplog.messages == []
    first_chunk(tmp_path / "x.zarr").unlink()
    assert not read_picture(tmp_path / "x.zarr", 1)[:16, :16].any()
    (message,) = caplog.messages
    assert re.search(r"x\.zarr lacks chunk 0/\S*, and 1 of [1-9]\d* in all", message)
