"""Pictures that are read a window at a time: from memory, or from a TIFF file that need not fit into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tifffile

from gcsa.data.images import Array
from gcsa.dense.data.pictures import percentile_values, percentiles, read_picture

IN_MEMORY = 64_000_000
"""Pixels up to which a picture is held in memory as a whole."""


class Source(Protocol):
    """A picture (H, W, C) in uint8, uint16 or float32."""

    shape: tuple[int, int]

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        """The pixels (bottom - top, right - left, C) of rows `top` to `bottom` and columns `left` to `right`."""

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        """As `gcsa.dense.data.pictures.percentiles` of the whole."""


class InMemory:
    """A picture (H, W, C) that is there."""

    def __init__(self, picture: Array) -> None:
        self.picture = picture
        self.shape = (picture.shape[0], picture.shape[1])

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        return self.picture[top:bottom, left:right]

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return percentiles(self.picture, low, high)


class TiffFile:
    """The picture in a TIFF file of 8 or 16 bits, of which only the tiles or strips that a window needs are decoded.

    Grey becomes `channels` equal ones; alpha is dropped. Raises ValueError, naming the file, for other kinds of numbers, several
    pictures, channels in planes of their own, a compression that needs the package imagecodecs, and for colour where one channel
    is wanted.
    """

    def __init__(self, path: Path, channels: int) -> None:
        self.path, self.channels = path, channels
        self.file = tifffile.TiffFile(path)
        page = self.file.pages.first
        self.page: Any = page
        self.shape = (page.imagelength, page.imagewidth)
        self.size = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, page.imagewidth)
        if len(self.file.pages) != 1 or page.imagedepth != 1:
            self._refuse("holds several pictures: save one a file")
        if page.samplesperpixel not in (1, 3, 4) or (channels == 1 and page.samplesperpixel != 1):
            self._refuse(f"holds {page.samplesperpixel} channels where the weights take {channels}")
        if page.samplesperpixel > 1 and page.planarconfig != tifffile.PLANARCONFIG.CONTIG:
            self._refuse("holds each channel by itself: save them together (planar configuration 1)")
        if page.dtype not in (np.uint8, np.uint16):
            self._refuse(f"holds {page.dtype} values, and is too large for anything but 8 and 16 bits: convert it")
        if tifffile.PHOTOMETRIC(page.photometric).name not in ("MINISBLACK", "RGB"):
            self._refuse("is neither grey, with black as zero, nor RGB: convert it")
        try:
            self._segment(0)
        except ValueError as error:
            self._refuse(f"cannot be read a tile at a time ({' '.join(str(error).split())[:120]})")

    def _refuse(self, reason: str) -> None:
        self.file.close()
        raise ValueError(f"{self.path} {reason}")

    def _segment(self, index: int) -> Array:
        """The tile or strip of this number, (rows, columns, samples)."""
        handle = self.file.filehandle
        handle.seek(self.page.dataoffsets[index])
        data = handle.read(self.page.databytecounts[index])
        options = {} if self.page.jpegtables is None else {"jpegtables": self.page.jpegtables}
        values, _, shape = self.page.decode(data, index, **options)
        if values is None:  # a tile of nothing, which the file leaves out
            return np.zeros((shape[1], shape[2], self.page.samplesperpixel), self.page.dtype)
        return values[0]

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        rows, columns = self.size
        across = -(-self.shape[1] // columns)
        out = np.empty((bottom - top, right - left, self.page.samplesperpixel), self.page.dtype)
        for i in range(top // rows, -(-bottom // rows)):
            for j in range(left // columns, -(-right // columns)):
                segment = self._segment(i * across + j)
                y, x = i * rows, j * columns
                high, low = max(top, y), min(bottom, y + segment.shape[0])
                near, far = max(left, x), min(right, x + segment.shape[1])
                out[high - top : low - top, near - left : far - left] = segment[high - y : low - y, near - x : far - x]
        if out.shape[2] == 1:
            return np.repeat(out, self.channels, axis=2)
        return out[..., :3]

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        below = np.zeros(int(np.iinfo(self.page.dtype).max) + 1, np.int64)
        for top, bottom in strips(self.shape[0], self.size[0]):
            below += np.bincount(self.window(top, 0, bottom, self.shape[1]).reshape(-1), minlength=len(below))
        return percentile_values(below, low, high)


def strips(height: int, rows: int, least: int = 256) -> Iterator[tuple[int, int]]:
    """From and to of rows, in parts of a multiple of `rows` and of at least about `least`."""
    step = rows * max(1, least // rows)
    for top in range(0, height, step):
        yield top, min(height, top + step)


@contextmanager
def open_source(path: Path, channels: int, in_memory: int = IN_MEMORY) -> Iterator[Source]:
    """Yields the picture in a file: held in memory, or, in a TIFF file of more pixels than `in_memory`, read a tile or strip at a time.

    Raises ValueError, naming the file, as `read_picture` and `TiffFile` do, and OSError where it cannot be opened.
    """
    with open(path, "rb") as file:
        is_tiff = file.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
    if is_tiff:
        try:
            with tifffile.TiffFile(path) as content:
                page = content.pages.first
                large = page.imagelength * page.imagewidth > in_memory
        except (tifffile.TiffFileError, ValueError, KeyError, IndexError, OSError, AttributeError):
            large = False  # which `read_picture` tells in a sentence
        if large:
            picture = TiffFile(path, channels)
            with picture.file:
                yield picture
            return
    yield InMemory(read_picture(path, channels))
