"""Pictures that are read a window at a time: from memory, or from a TIFF file that need not fit into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tifffile

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, one_line
from gcsa.images.intensity import percentile_values, percentiles
from gcsa.images.microscopy import read_picture
from gcsa.images.stored import ORIENTATION, TIFF_STARTS, RefusedError, plane

IN_MEMORY = 64_000_000
"""Pixels up to which a picture is held in memory as a whole."""
MOST_AT_ONCE = 16_000_000
"""Pixels of the largest compressed tile or strip that is decoded."""
COUNTED = 4_000_000
"""Values that are counted at a time, for which NumPy takes 8 bytes each."""


class WindowedImage(Protocol):
    """A picture (H, W, C) in uint8, uint16 or float32."""

    shape: tuple[int, int]

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        """The pixels (bottom - top, right - left, C) of rows `top` to `bottom` and columns `left` to `right`."""

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        """As `gcsa.images.intensity.percentiles` of the whole."""


class ArrayImage:
    """A picture (H, W, C) that is there."""

    def __init__(self, picture: Array) -> None:
        self.picture = picture
        self.shape = (picture.shape[0], picture.shape[1])

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        return self.picture[top:bottom, left:right]

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        if self.picture.dtype not in (np.uint8, np.uint16):
            return percentiles(self.picture, low, high)
        return percentile_values(counts(self, self.picture.dtype), low, high)


class TiffImage:
    """The picture in a TIFF file of 8 or 16 bits, of which a window reads only its own pixels where they are not compressed, and
    else decodes only the tiles or strips that it needs.

    Grey becomes `channels` equal ones; alpha is dropped. Raises ValueError, naming the file, for other kinds of numbers, several
    pictures, channels in planes of their own, an orientation, a compression that needs the package imagecodecs, for colour where
    one channel is wanted, and here or in `window` for a damaged file.
    """

    def __init__(self, path: Path, channels: int) -> None:
        self.path, self.channels = path, channels
        with _named(path):
            self.file = tifffile.TiffFile(path)
            try:
                self._check()
            except BaseException:
                self.file.close()
                raise

    def _check(self) -> None:
        page = self.file.pages.first
        self.page: Any = page
        self.shape = (page.imagelength, page.imagewidth)
        self.size = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, page.imagewidth)
        if len(self.file.pages) != 1 or page.imagedepth != 1:
            raise RefusedError("holds several pictures: save one a file")
        if page.samplesperpixel not in (1, 3, 4) or (self.channels == 1 and page.samplesperpixel != 1):
            raise RefusedError(
                f"holds {page.samplesperpixel} channels where the weights take {self.channels}: save those to be used"
            )
        if page.samplesperpixel > 1 and page.planarconfig != tifffile.PLANARCONFIG.CONTIG:
            raise RefusedError("holds each channel by itself: save them together (planar configuration 1)")
        plane(self.file)
        if page.dtype not in (np.uint8, np.uint16):
            raise RefusedError(
                f"holds {page.dtype} values, and is too large for anything but 8 and 16 bits: convert it to one of these"
            )
        if page.photometric not in (tifffile.PHOTOMETRIC.MINISBLACK, tifffile.PHOTOMETRIC.RGB):
            raise RefusedError("is neither grey, with black as zero, nor RGB: convert it")
        tag = page.tags.get(ORIENTATION)
        if tag is not None and tag.value in range(2, 9):
            raise RefusedError(f"is stored turned or mirrored (orientation {tag.value}): save it as it should be seen")
        self.contiguous = not page.is_tiled and page.is_final
        if self.contiguous:
            return
        if self.size[0] * self.size[1] > MOST_AT_ONCE:
            raise RefusedError(
                f"is compressed in parts of {self.size[0]} x {self.size[1]} pixels, too large to be decoded one by one: save it "
                "in tiles, or without compression"
            )
        try:
            self._segment(0)
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            raise RefusedError(
                f"is compressed by {tifffile.COMPRESSION(page.compression).name}, which only the package imagecodecs reads here: "
                "install it, or save the file without compression"
            ) from error

    def _segment(self, index: int) -> Array:
        """The tile or strip of this number, (rows, columns, samples)."""
        handle = self.file.filehandle
        handle.seek(self.page.dataoffsets[index])
        count = self.page.databytecounts[index]
        data = handle.read(count) if count else None
        options = {} if self.page.jpegtables is None else {"jpegtables": self.page.jpegtables}
        values, _, shape = self.page.decode(data, index, **options)
        if values is None:  # a tile of nothing, which the file leaves out
            return np.zeros((shape[1], shape[2], self.page.samplesperpixel), self.page.dtype)
        return values[0]

    def _pixels(self, row: int, left: int, right: int) -> Array:
        """Those (right - left, samples) of a row that is not compressed."""
        handle, samples = self.file.filehandle, self.page.samplesperpixel
        stored = self.page.dtype.newbyteorder(self.file.byteorder)
        handle.seek(self.page.dataoffsets[0] + (row * self.shape[1] + left) * samples * stored.itemsize)
        data = handle.read((right - left) * samples * stored.itemsize)
        return np.frombuffer(data, stored).reshape(right - left, samples)

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        out = np.empty((bottom - top, right - left, self.page.samplesperpixel), self.page.dtype)
        with _named(self.path):
            self._fill(out, top, left, bottom, right)
        if out.shape[2] == 1:
            return np.repeat(out, self.channels, axis=2)
        return out[..., :3]

    def _fill(self, out: Array, top: int, left: int, bottom: int, right: int) -> None:
        if self.contiguous:
            for row in range(top, bottom):
                out[row - top] = self._pixels(row, left, right)
            return
        rows, columns = self.size
        across = -(-self.shape[1] // columns)
        for i in range(top // rows, -(-bottom // rows)):
            for j in range(left // columns, -(-right // columns)):
                segment = self._segment(i * across + j)
                y, x = i * rows, j * columns
                high, low = max(top, y), min(bottom, y + segment.shape[0])
                near, far = max(left, x), min(right, x + segment.shape[1])
                out[high - top : low - top, near - left : far - left] = segment[high - y : low - y, near - x : far - x]

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        rows = 1 if self.contiguous else self.size[0]
        return percentile_values(counts(self, self.page.dtype, rows), low, high)


def counts(source: WindowedImage, dtype: Any, rows: int = 1) -> Array:
    """How often each of the numbers of an unsigned `dtype` occurs in a picture that is stored in parts of `rows`."""
    length = int(np.iinfo(dtype).max) + 1
    total = np.zeros(length, np.int64)
    for top, bottom in strips(source.shape[0], rows):
        values = source.window(top, 0, bottom, source.shape[1]).reshape(-1)
        for start in range(0, len(values), COUNTED):
            total += np.bincount(values[start : start + COUNTED], minlength=length)
    return total


def strips(height: int, rows: int, least: int = 256) -> Iterator[tuple[int, int]]:
    """From and to of rows, in parts of a multiple of `rows` and of at least about `least`."""
    step = rows * max(1, least // rows)
    for top in range(0, height, step):
        yield top, min(height, top + step)


@contextmanager
def open_window_source(path: Path, channels: int, in_memory: int = IN_MEMORY) -> Iterator[WindowedImage]:
    """Yields the picture in a file: held in memory, or, in a TIFF file of more pixels than `in_memory`, read a tile or strip at a time.

    Raises ValueError, naming the file, as `read_picture` and `TiffImage` do, and OSError where it cannot be opened.
    """
    with open(path, "rb") as file:
        is_tiff = file.read(4) in TIFF_STARTS
    large = False
    if is_tiff:
        with suppress(Exception), tifffile.TiffFile(path) as content:  # of which `read_picture` tells in a sentence
            page = content.pages.first
            large = page.imagelength * page.imagewidth > in_memory
    if not large:
        yield ArrayImage(read_picture(path, channels))
        return
    picture = TiffImage(path, channels)
    with picture.file:
        yield picture


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns what is wrong with a file into a ValueError that names it."""
    try:
        yield
    except MemoryError:
        raise
    except RefusedError as error:
        raise UserError(f"{path} {error}") from error
    except Exception as error:  # decoders raise what they stumble over: KeyError, struct.error, zlib.error ...
        reason = one_line(error)
        raise UserError(f"{path} cannot be read as an image ({reason}): remove or replace it") from error
