"""The one picture of a TIFF file, with its smaller levels where it is a pyramid: a window at a time, or whole.

tifffile reads the structure (pages, series, tags, BigTIFF, byte order) and decodes strips and tiles by imagecodecs, one at a time, into
no more memory than the strip or tile has pixels. A strip or tile that is an image by itself states its own size, which is compared with
the size of the tile before it is decoded. Fax is decoded by libtiff, within Pillow, as the imagecodecs of Python 3.10 has no fax.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
import tifffile
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from gcsa._utils.arrays import Array
from gcsa.images import jpeg2000, planes
from gcsa.images.choices import MPP_RANGE
from gcsa.images.pixels import Pixels, Refused, check_pixels, cmyk_to_rgb, from_pillow, with_alpha
from gcsa.images.raster import ORIENTATION
from gcsa.images.source import MAX_SEGMENT, ImageSource

STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
GDAL_NODATA = 42113
JPEG, FAX = 7, (2, 3, 4)
OF_BYTES = (1, 5, 8, 32773, 32946, 34925, 50000)
"""Compressions of bytes: none, LZW, Deflate, PackBits, Deflate, LZMA, Zstandard."""
OF_IMAGES = {JPEG: "JPEG", 33005: "JPEG2000", 34712: "JPEG2000", 50001: "WEBP"}
"""Compressions of images, and what Pillow calls them. The colours of 33005 and 34712 are RGB."""
DOCUMENTS = ("YX", "YXS", "IYX", "IYXS")
"""Axes of pages, grey or in colour."""

for _library in ("tifffile", "imagecodecs"):  # what they log of damaged files is not for stderr
    logging.getLogger(_library).addHandler(logging.NullHandler())


class Tiff(ImageSource):
    """The picture in an open TIFF file.

    shape: height and width as they are stored; dtype: of the stored values; labels: palettes are not looked up; plane: which
    picture of a stack, where the file may be one; series: of tifffile, by default the only one of the file; number: from 1 on, of
    one of `document_pages`, which is then the picture.

    Raises:
        ValueError: stacks and, without `number`, several pictures, channels or colours that are neither grey, RGB, CMYK nor a
            palette, with or without alpha, a compression that is not read, labels whose polarity is ambiguous.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        labels: bool = False,
        plane: planes.Plane | None = None,
        series: tifffile.TiffPageSeries | None = None,
        number: int | None = None,
    ) -> None:
        self.file, self.labels, self.plane, self.name = file, labels, plane, str(file.name)
        self.series = series or _series(file, number)
        self.page: Any = self.series.keyframe
        self.levels_stored = len(self.series.levels)
        content = self.page.parent
        page = self.page
        self.part_size: tuple[int, int]
        self.shape = (page.imagelength, page.imagewidth)
        self.dtype: Any = page.dtype
        self.bits, self.samples = page.bitspersample, page.samplesperpixel
        pages: list[Any] = list(self.series.pages)
        self.sample: int | None = None
        slices = [list(range(len(pages)))]
        if plane is None:
            _check_axes(self.series, self.samples * len(pages))
        else:
            if content.is_ome and self.series.kind != "ome" and plane != planes.Plane(plane.channel):
                raise Refused(
                    "is one of several files of a stack: leave out --z and --time, and give all of them",
                    "stack.one_of_several",
                )
            slices, self.sample = planes.choose(self.series, plane, planes.channel_names(content))
        self.pixel_size = planes.pixel_size(content, page)
        if any(pages[i] is None for group in slices for i in group):
            raise Refused("leaves out a plane: save the stack whole", "stack.plane_missing")
        separate = len(slices[0]) > 1 or page.planarconfig == tifffile.PLANARCONFIG.SEPARATE
        self.part_size = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, self.shape[1])
        down, across = (-(-side // part) for side, part in zip(self.shape, self.part_size, strict=True))
        self.across = across
        in_page = self.samples if separate else 1
        self.slices = [[(pages[i], j * down * across) for i in group for j in range(in_page)] for group in slices]
        self.in_part = 1 if separate else self.samples
        self.samples *= len(slices[0])
        self.byteorder = content.byteorder
        self._check_coding()
        self._check_colours()
        self.is_deep, self.slice_count = self.bits > 8, len(self.slices)
        is_coded = page.is_tiled or page.compression != 1 or page.predictor != 1 or page.fillorder != 1
        self.rows_are_plain = not is_coded and not self.bits % 8

    @property
    def orientation(self) -> int:
        stated = self.page.tags.valueof(ORIENTATION, default=1)
        return stated if stated in range(1, 9) else 1

    @property
    def smaller_levels(self) -> list[ImageSource]:
        levels: list[ImageSource] = []
        for series in self.series.levels[1:]:
            with suppress(Refused):
                levels.append(Tiff(self.file, plane=self.plane, series=series))
        return levels

    @property
    def mpp(self) -> float | None:
        """Micrometres a pixel: `pixel_size`, or from a resolution in pixels a centimetre; None where nothing says it."""
        if self.pixel_size is not None:
            return super().mpp
        pixels, centimetres = self.page.tags.valueof(282, default=(0, 1))
        in_centimetres = pixels and self.page.tags.valueof(296, default=0) == 3
        mpp = 1e4 * centimetres / pixels if in_centimetres else 0
        return mpp if MPP_RANGE[0] <= mpp <= MPP_RANGE[1] else None

    def _check_coding(self) -> None:
        page = self.page
        compression = tifffile.COMPRESSION(page.compression)
        known = (*OF_BYTES, *(OF_IMAGES if self.bits == 8 else ()), *(FAX if self.bits == 1 else ()))
        if compression not in known:
            raise Refused(
                f"is compressed by {compression.name}, which is not read here: save it by LZW, Deflate or not at all",
                "image.compression",
            )
        if not isinstance(self.bits, int) or self.dtype is None or page.sampleformat == 5:
            raise Refused(
                f"holds samples of {page.bitspersample} bits, which are not read here: save it in 8 or 16 bits",
                "image.mixed_bits",
            )
        if self.bits != 8 * self.dtype.itemsize and (self.dtype.kind not in "ub" or self.bits > 16):
            raise Refused(
                f"holds samples of {self.bits} bits, which are not read here: save it in 8 or 16 bits", "image.bits"
            )
        of_floats = page.predictor == 3 and self.dtype.kind != "f"  # which tifffile would decode into other numbers
        if page.predictor not in (1, 2, 3) or of_floats or (page.predictor > 1 and self.bits % 8):
            raise Refused(
                f"uses the predictor {page.predictor}, which is not read here: save it without one", "image.predictor"
            )

    def _check_colours(self) -> None:
        """Which colours the samples are, and which is alpha."""
        page, samples = self.page, self.samples if self.sample is None else 1
        self.kind = tifffile.PHOTOMETRIC(page.photometric).name
        self.white = (1 << self.bits) - 1 if self.dtype.kind in "ub" and self.bits <= 16 else None
        self.alpha = samples in (2, 4) and tuple(page.extrasamples)[-1:] in ((1,), (2,))
        if self.kind == "YCBCR" and page.compression == JPEG:
            self.kind = "RGB"  # which tifffile returns
        counts = {
            "MINISBLACK": (1, 3, 4),
            "MINISWHITE": (1,),
            "PALETTE": (1,),
            "RGB": (3, 4),
            "SEPARATED": (4,),
            "YCBCR": (3,),
        }
        if self.sample is not None and self.kind not in ("MINISBLACK", "MINISWHITE", "RGB"):
            raise Refused(
                f"stores its colours as {self.kind}, which have no channels of their own: leave out --channel",
                "planes.colours",
            )
        if self.kind == "RGB" and self.sample is not None:
            self.kind = "MINISBLACK"
        if self.kind not in counts:
            raise Refused(f"stores its colours as {self.kind}: save it in grey or RGB", "image.colours", kind=self.kind)
        if samples not in counts[self.kind] and not (samples == 2 and self.alpha and 1 in counts[self.kind]):
            raise Refused(
                f"holds {samples} channels: save those to be used as 1, 3 (RGB) or 4 (RGB and alpha)", "image.channels"
            )
        if self.kind == "MINISWHITE" and self.labels:
            raise Refused(
                "stores white as zero (MINISWHITE), so that background may be 0 or not: save it with black as zero",
                "image.white_is_zero",
            )
        if self.kind in ("MINISWHITE", "SEPARATED") and self.white is None:
            raise Refused(
                f"stores {self.kind} as {self.dtype}, which does not state its range: save it with black as zero, or as RGB",
                "image.no_range",
            )
        if self.kind == "SEPARATED" and (self.alpha or page.tags.valueof(332, default=1) != 1):
            raise Refused("stores inks that are not cyan, magenta, yellow and black: save it as RGB", "image.inks")
        if self.kind == "YCBCR" and (self.bits != 8 or page.is_subsampled):
            raise Refused(
                "stores its colours as YCBCR, subsampled or not of 8 bits: save it as RGB", "image.subsampled"
            )

    def read(self, *, upright: bool = True) -> Pixels:
        check_pixels(*self.shape, self.is_deep)
        if not self.rows_are_plain and math.prod(self.part_size) > max(MAX_SEGMENT, math.prod(self.shape)):
            rows, columns = self.part_size
            raise Refused(f"is stored in parts of {rows} x {columns} pixels, larger than the image", "image.parts")
        return super().read(upright=upright)

    def window(self, top: int, left: int, bottom: int, right: int) -> Pixels:
        pixels = self._slice(self.slices[0], top, left, bottom, right)
        for parts in self.slices[1:]:
            other = self._slice(parts, top, left, bottom, right)
            pixels = pixels._replace(values=np.maximum(pixels.values, other.values))
        return pixels

    def _slice(self, parts: list[tuple[Any, int]], top: int, left: int, bottom: int, right: int) -> Pixels:
        """`window` of the pages of one slice, and in each the number of its first strip or tile."""
        values = np.empty((bottom - top, right - left, self.samples), self.dtype)
        for i, (page, first) in enumerate(parts):
            part = values[..., i * self.in_part : (i + 1) * self.in_part]
            (self._copy_rows if self.rows_are_plain else self._copy_segments)(part, page, first, top, left)
        return self._pixels(values if self.sample is None else values[..., [self.sample]])

    def _pixels(self, values: Array) -> Pixels:
        pixels = self._in_colour(values)
        missing = self._missing(pixels.values)
        if missing is None or pixels.alpha is not None or self.labels:
            return pixels
        there = np.where(missing, 0, pixels.opaque).astype(pixels.values.dtype)
        hidden = missing if pixels.values.ndim == 2 else missing[..., None]
        return pixels._replace(values=np.where(hidden, 0, pixels.values).astype(pixels.values.dtype), alpha=there)

    def _missing(self, values: Array) -> Array | None:
        """Where (H, W) all channels hold the value that GDAL's tag states for no data; None without such a tag."""
        stated = self.page.tags.valueof(GDAL_NODATA, default=None)
        try:
            number = self.dtype.type(float(str(stated).strip("\0 "))) if stated is not None else None
        except (ValueError, OverflowError):
            return None
        if number is None or self.kind not in ("MINISBLACK", "RGB"):
            return None
        missing: Array = np.isnan(values) if np.isnan(number) else values == number
        return missing if values.ndim == 2 else missing.all(-1)

    def _in_colour(self, values: Array) -> Pixels:
        if self.kind == "MINISWHITE":
            values[..., 0] = ~values[..., 0] if self.dtype == np.bool_ else self.white - values[..., 0]
        if self.alpha:
            return with_alpha(values, self.white, premultiplied=self.page.extrasamples[-1] == 1)
        if self.kind == "SEPARATED":
            assert self.white is not None
            return Pixels(cmyk_to_rgb(values, self.white), self.white)
        if self.kind == "YCBCR":
            return from_pillow(Image.fromarray(values, "YCbCr"))
        if self.kind == "PALETTE" and not self.labels:
            colours = np.asarray(self.page.colormap).T  # of 16 bits, though some programs write 8
            return Pixels((colours >> 8 if colours.max() > 255 else colours).astype(np.uint8)[values[..., 0]], 255)
        return Pixels(values[..., 0] if values.shape[2] == 1 else values[..., :3], self.white)

    def _copy_rows(self, out: Array, page: Any, first: int, top: int, left: int) -> None:
        """Reads the pixels of `out` (h, w, samples) and no others."""
        stored = self.dtype.newbyteorder(self.byteorder)
        step = out.shape[2] * stored.itemsize
        for i, row in enumerate(range(top, top + len(out))):
            strip, within = divmod(row, self.part_size[0])
            offset, count = page.dataoffsets[first + strip], page.databytecounts[first + strip]
            if not count:  # which the file leaves out
                out[i] = 0
                continue
            self.file.seek(offset + (within * self.shape[1] + left) * step)
            out[i] = np.frombuffer(self.file.read(out.shape[1] * step), stored).reshape(out.shape[1:])

    def _copy_segments(self, out: Array, page: Any, first: int, top: int, left: int) -> None:
        """Decodes the strips or tiles that hold pixels of `out` (h, w, samples)."""
        (rows, columns), bottom, right = self.part_size, top + out.shape[0], left + out.shape[1]
        for i in range(top // rows, -(-bottom // rows)):
            for j in range(left // columns, -(-right // columns)):
                y, x = i * rows, j * columns
                height = rows if self.page.is_tiled else min(rows, self.shape[0] - y)
                segment = self._segment(page, first + i * self.across + j, height)
                high, low = max(top, y), min(bottom, y + height)
                near, far = max(left, x), min(right, x + columns)
                out[high - top : low - top, near - left : far - left] = segment[high - y : low - y, near - x : far - x]

    def _segment(self, page: Any, index: int, height: int) -> Array:
        """The strip or tile of this number, (height, columns, samples), which may end with the picture."""
        count, data, tables = page.databytecounts[index], None, page.jpegtables
        if count:  # else the file leaves it out
            self.file.seek(page.dataoffsets[index])
            data = self.file.read(count)
            if page.keyframe.compression in OF_IMAGES:
                self._check_header(data if tables is None else tables[:-2] + data[2:])
            if page.keyframe.compression in FAX:
                return self._fax(data, height)
        values, _, (_, *shape) = self.page.decode(data, index, jpegtables=tables)
        if values is None:
            return np.zeros(shape, self.dtype)
        if values.dtype != self.dtype:
            raise ValueError(f"a tile of {values.dtype}, in an image of {self.dtype}")
        return np.asarray(values[0])

    def _fax(self, data: bytes, rows: int) -> Array:
        """A strip of so many rows as the only one of a file in memory."""
        directory, page = ImageFileDirectory_v2(), self.page
        stated = {code: page.tags[code].value for code in (292, 293) if code in page.tags}  # options of fax
        fixed = {
            256: self.part_size[1],
            257: rows,
            258: 1,
            259: page.compression,
            262: 1,
            266: page.fillorder,
            273: 0,
            278: rows,
        }
        for code, value in {**fixed, 279: len(data), **stated}.items():
            directory[code] = value
        file = BytesIO(b"II*\0\x08\0\0\0" + directory.tobytes(8) + data)
        with Image.open(file, formats=("TIFF",)) as image:
            return np.asarray(image)[..., None]

    def _check_header(self, data: bytes) -> None:
        """Raises ValueError for a strip or tile that states more pixels, or other channels, than it has place for."""
        kind = OF_IMAGES[self.page.compression]
        with Image.open(BytesIO(data), formats=(kind,)) as image:
            (width, height), bands = image.size, len(image.getbands())
        if kind == "JPEG2000":  # whose boxes need not state the size of what is in them
            width, height = jpeg2000.read_header(BytesIO(data)).size
        if height > self.part_size[0] or width > self.part_size[1] or bands != self.in_part:
            raise ValueError(f"a tile of {height} x {width} pixels of {bands} channels")


def open_tiff(file: BinaryIO) -> tifffile.TiffFile:
    """The structure of a file, without the files that OME-XML may name: each has its own pages."""
    return tifffile.TiffFile(file, _multifile=False)


def _pictures(content: tifffile.TiffFile) -> list[tifffile.TiffPageSeries]:
    return [one for one in content.series if not one.keyframe.is_reduced]  # thumbnails are no pictures


def document_pages(content: tifffile.TiffFile) -> list[tifffile.TiffPageSeries]:
    """The pictures of a file in its order, each by itself; those of a stack of microscopy, which names its axes, stay together."""
    pictures = _pictures(content)
    if any(one.kind not in ("generic", "uniform") or one.axes not in DOCUMENTS for one in pictures):
        return pictures
    numbers = sorted(page.index for one in pictures for page in one.pages if page is not None)
    return [tifffile.TiffPageSeries([content.pages[i].aspage()]) for i in numbers]


def is_cut_off(content: tifffile.TiffFile) -> bool:
    """Whether the last page of a file names a next one, which is not there."""
    place = content.pages.next_page_offset
    if not place:
        return False
    content.filehandle.seek(place)
    none = bytes(8 if content.is_bigtiff else 4)
    return bool(content.filehandle.read(len(none)) != none)


def count_pages(file: BinaryIO) -> int:
    """The pages of a document, with one more where it was cut off, so that reading tells of it."""
    content = open_tiff(file)
    pages = len(document_pages(content))
    return pages + (pages > 0 and is_cut_off(content))


def _series(file: BinaryIO, number: int | None) -> tifffile.TiffPageSeries:
    """The only picture of a file, or the one of its pages that `number` says. Raises ValueError for none and for several."""
    content = open_tiff(file)
    series = _pictures(content) if number is None else document_pages(content)[number - 1 : number]
    if number is not None and not series:
        raise Refused(f"has no whole page {number}: it was cut off, so copy it again", "image.cut_off", number=number)
    if len(series) != 1:
        raise Refused(f"holds {len(series)} images: save one a file" if series else "holds no image", "image.several")
    return series[0]


def _check_axes(series: tifffile.TiffPageSeries, channels: int) -> None:
    """Raises ValueError for more than one plane, and for channels that are no colours."""
    sizes = list(zip(series.axes, series.shape, strict=True))
    as_stored = f"{' x '.join(map(str, series.shape))} as {series.axes}"
    planes = math.prod(count for axis, count in sizes if axis not in "YXSC")
    if planes != 1:
        raise Refused(
            f"holds {planes} pages, planes or channels ({as_stored}): save one plane a file, with 1, 3 (RGB) or 4 (RGB and alpha) "
            "channels",
            "image.planes",
        )
    samples, colours = (math.prod(count for axis, count in sizes if axis == letter) for letter in "SC")
    if (samples, colours) not in ((1, 1), (2, 1), (3, 1), (4, 1), (1, 3)) or samples * colours != channels:
        raise Refused(
            f"holds {samples * colours} channels ({as_stored}): save those to be used as 1, 3 (RGB) or 4 (RGB and alpha)",
            "image.channels",
        )
