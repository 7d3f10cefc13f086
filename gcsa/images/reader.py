"""The one reader of pictures: data sets, text lines, pages, microscopy pictures and their masks all come through here.

A picture is the only one of a PNG, JPEG, JPEG 2000, TIFF, WebP, BMP, GIF or PPM file, whatever its name ends in. Other formats of
Pillow are refused, since some run programs (EPS), and so are files of several pages, planes or frames. Where a `page` is asked for, a number
from 1 to `count_pages`, the picture is that page of a TIFF or PDF file. The size in the header is bounded before anything is decoded.
`gcsa.images.tiff` reads TIFF, `gcsa.images.ome_zarr` the folders of OME-Zarr, `gcsa.images.pdf` PDF, imagecodecs PNG and JPEG 2000 of more
than 8 bits, and Pillow all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from os import PathLike
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images import jpeg2000, pdf
from gcsa.images.ome_zarr import OmeZarr, is_zarr
from gcsa.images.pixels import (
    Pixels,
    Refused,
    check_pixels,
    from_pillow,
    naming,
    to_8_bits,
    to_levels,
    to_picture,
    with_alpha,
)
from gcsa.images.planes import Plane, choose_channel
from gcsa.images.tiff import ORIENTATION, STARTS, Tiff, document_pages, is_cut_off, open_tiff

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "PPM", "JPEG2000")
LOSSY = ("JPEG", "MPO", "WEBP", "JPEG2000")
MAX_BYTES = 2**31
"""Of a file that is read whole."""
MAX_LABEL = 2**31 - 1


def read_image(
    path: str | PathLike[str], channels: int, *, upright: bool = True, page: int | None = None
) -> Image.Image:
    """A picture in colour (`channels` 3, mode RGB) or grey (1, mode L), of 8 bits, scaled as `gcsa.images.pixels.brightness` defines.

    It stands as its camera held it (EXIF or TIFF orientation), or without `upright` as it is stored.

    Raises:
        ValueError: naming the file: it cannot be decoded, is of another format, holds several pictures or too many pixels.
    """
    with naming(path):
        return to_8_bits(_decode(Path(path), upright=upright, page=page), channels)


def read_levels(path: str | PathLike[str], *, upright: bool = True, page: int | None = None) -> Array:
    """Grey levels (H, W) from 0, black, to 255: uint8, or float32 where the picture has more than 8 bits.

    Scaling, `upright` and errors are those of `read_image`.
    """
    with naming(path):
        return to_levels(_decode(Path(path), upright=upright, page=page))


def read_picture(path: str | PathLike[str], channels: int, plane: Plane | None = None) -> Array:
    """A picture (H, W, channels) in uint8, uint16 or float32, its values as the file stores them, upright.

    With `channels` 3, grey is repeated; with 1, colours become grey (luma, rounded in whole numbers). Alpha is dropped. A `plane`
    says which picture of a stack is read.

    Raises:
        ValueError: naming the file: as `read_image`, or values that none of the three types holds.
    """
    with naming(path):
        return to_picture(_decode(Path(path), plane=plane), channels)


def stack_header(path: str | PathLike[str], plane: Plane) -> tuple[int, tuple[float, float] | None]:
    """How many slices `plane` takes of a file, and height and width of a pixel in micrometres where the file states them, as the
    picture should be seen. Raises ValueError as `read_picture`."""
    with naming(path), opened(Path(path), max_bytes=None, plane=plane) as source:
        if not isinstance(source, Tiff | OmeZarr):
            return 1, None
        size = source.pixel_size
        return len(source.slices), size[::-1] if size and source.orientation >= 5 else size


def as_picture(image: Array | Image.Image | torch.Tensor, channels: int) -> Array:
    """A picture in memory as `read_picture` returns one in a file: (H, W, channels) in uint8, uint16 or float32.

    Args:
        image: an array (H, W) or (H, W, C), an image of Pillow, or a tensor (C, H, W); C is 1, 3 or, with alpha, 4.

    Raises:
        UserError: another shape, or values that none of the three types holds.
    """
    with naming("the image"):
        if isinstance(image, Image.Image):
            return to_picture(from_pillow(image), channels)
        if isinstance(image, torch.Tensor):
            image = (image.movedim(0, -1) if image.ndim == 3 else image).detach().cpu().numpy()
        values = np.asarray(image)
        if values.ndim == 3 and values.shape[2] in (1, 3, 4):
            values = values[..., 0] if values.shape[2] == 1 else values[..., :3]
        elif values.ndim != 2:
            raise Refused(
                f"has the shape {values.shape}: give arrays (H, W) or (H, W, C), or tensors (C, H, W), C 1, 3 or 4"
            )
        if not values.size:
            raise Refused(f"has the shape {values.shape}: it holds no pixel")
        return to_picture(Pixels(values, None), channels)


def read_labels(path: str | PathLike[str]) -> Array:
    """A label map (H, W) in int32, 0 where there is no object; of a palette, the indices.

    Raises:
        ValueError: naming the file: as `read_image`, or colours, fractions, negative or too large labels, white as zero, which
            leaves open what is background, or a format whose compression changes labels.
    """
    with naming(path):
        values = _decode(Path(path), labels=True).values
        if values.ndim != 2:
            raise Refused("is in colour: a mask must be a label map of one channel, 0 for background")
        if values.dtype.kind not in "bui":
            raise Refused(f"holds {values.dtype} values: a mask must hold whole numbers, 0 for background")
        if values.min() < 0 or values.max() > MAX_LABEL:
            raise Refused(
                f"holds labels in {values.min()}..{values.max()}: they must lie in 0..{MAX_LABEL}, 0 for background"
            )
        return values.astype(np.int32)


def image_size(path: str | PathLike[str], *, upright: bool = False, page: int | None = None) -> tuple[int, int]:
    """Width and height as they are stored, from the header, or with `upright` as `read_picture` gives them.

    An orientation that a PNG file holds behind its pixels is not seen. Raises ValueError as `read_image` does.
    """
    with naming(path):
        if page is not None and is_pdf(path):
            return pdf.page_size(Path(path), page)
    with naming(path), opened(Path(path), page=page) as source:
        if isinstance(source, Tiff | OmeZarr):
            height, width = source.shape
            check_pixels(height, width, source.is_deep)
            sideways = source.orientation >= 5
        else:
            width, height = source.size
            known = (
                source.format != "PNG" or "exif" in source.info
            )  # else Pillow decodes the pixels to look behind them
            sideways = upright and known and int(source.getexif().get(ORIENTATION, 1)) >= 5
        return (height, width) if upright and sideways else (width, height)


def count_pages(path: str | PathLike[str]) -> int:
    """The pages of a PDF file, and of a TIFF file that has several; 0 for any other file, 1 for a PDF that cannot be read.

    Of a TIFF file that was cut off, those that are there and one more, so that reading tells of it.
    """
    path = Path(path)
    try:
        with naming(path):
            if is_pdf(path):
                return max(1, pdf.count_pages(path))
            if not _starts(path, *STARTS):
                return 0
            with BoundedFile(path) as file:
                content = open_tiff(file)
                pages = len(document_pages(content))
                pages += pages > 0 and is_cut_off(content)
                return pages if pages > 1 else 0
    except (ValueError, MemoryError):  # of which reading the picture, or the first page, tells the error
        return int(is_pdf(path))


def is_pdf(path: str | PathLike[str]) -> bool:
    """Whether a file is a PDF, whatever its name ends in."""
    return _starts(Path(path), pdf.START)


def _starts(path: Path, *starts: bytes) -> bool:
    if not path.is_file():  # reading a pipe or a device would not end
        return False
    with path.open("rb") as file:
        return file.read(max(map(len, starts))).startswith(starts)


def levels(image: Image.Image) -> Array:
    """`read_levels` of an image of Pillow, as it is. Raises ValueError for what that refuses."""
    with naming("the image"):
        return to_levels(from_pillow(image))


def check_pair(image: str | PathLike[str], mask: str | PathLike[str]) -> None:
    """Raises ValueError, from the headers alone, where image and mask differ in size or one cannot be read."""
    check_sizes(image, image_size(image, upright=True)[::-1], mask, image_size(mask, upright=True)[::-1])


def check_sizes(
    image: str | PathLike[str], size: tuple[int, ...], mask: str | PathLike[str], mask_size: tuple[int, ...]
) -> None:
    """Raises ValueError where the sizes, height and width, of image and mask differ."""
    if size != mask_size:
        here, there = (" x ".join(map(str, pair)) for pair in (size, mask_size))
        raise UserError(f"{image} is {here} pixels and its mask {mask} {there}: both must have one height and width")


def _decode(
    path: Path, *, upright: bool = True, labels: bool = False, plane: Plane | None = None, page: int | None = None
) -> Pixels:
    # Of a stack only the plane is read.
    with opened(path, labels=labels, plane=plane, page=page, max_bytes=MAX_BYTES if plane is None else None) as source:
        if isinstance(source, Tiff | OmeZarr):
            return source.read(upright=upright)
        if labels and source.format in LOSSY:
            raise Refused(f"is {source.format}, which does not keep labels exactly: save them as PNG or TIFF")
        pixels = None
        if source.format == "JPEG2000":
            pixels = jpeg2000.read_deep(path, source)
        elif source.format == "PNG":
            pixels = _deep_png(path, source)
        if pixels is None:
            pixels = from_pillow(source, labels=labels)
        if plane is not None:
            pixels = choose_channel(pixels, plane)
        return pixels.upright(int(source.getexif().get(ORIENTATION, 1)) if upright else 1)


@contextmanager
def opened(
    path: Path,
    *,
    labels: bool = False,
    max_bytes: int | None = MAX_BYTES,
    plane: Plane | None = None,
    page: int | None = None,
) -> Iterator[Tiff | OmeZarr | Image.Image]:
    """The header of a picture in an open file. Raises ValueError, without the name of the file, as `read_image` does."""
    if is_zarr(path):
        yield OmeZarr(path, plane)
        return
    if path.exists() and not path.is_file():  # reading a pipe or a device would not end
        raise ValueError("not a regular file")
    with BoundedFile(path) as file:
        if max_bytes is not None and file.length > max_bytes:
            raise Refused(f"is larger than {max_bytes:,} bytes: cut it into tiles")
        if file.peek(4)[:4] in STARTS:
            yield Tiff(file, labels=labels, plane=plane, number=page)
            return
        if file.peek(5).startswith(pdf.START):
            if page is None:
                raise Refused(
                    "is a PDF, of which gcsa transcribe reads the pages, and nothing else does: save them as images"
                )
            yield pdf.read_page(path, page)
            return
        try:
            image = Image.open(file, formats=[name for name in FORMATS if name != "TIFF"])
        except UnidentifiedImageError as error:  # whose message names the file a second time
            raise ValueError(f"cannot identify it as {', '.join(FORMATS)}") from error
        with image:
            check_pixels(image.height, image.width, image.mode.startswith(("I", "F")))
            if image.format != "MPO" and getattr(
                image, "is_animated", False
            ):  # of a camera's MPO, the first is the picture
                raise Refused("holds several pictures: save one a file")
            yield image


def _deep_png(path: Path, source: Any) -> Pixels | None:
    """PNG of 16 bits in colour or with transparency, which Pillow would cut to 8 bits or leave out; None for any other, which is loaded."""
    is_deep = ";16" in str(source.tile[0][3]) and (not source.mode.startswith("I") or "transparency" in source.info)
    source.load()
    if not is_deep:
        return None
    values = imagecodecs.png_decode(path.read_bytes())
    return with_alpha(values, 65535) if values.shape[2] in (2, 4) else Pixels(values, 65535)


class BoundedFile(BufferedReader):
    """A file opened for reading. Python allocates what is asked for before it reads, and a damaged file may make its decoder ask
    for 4 GiB: no more is asked for than there is."""

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path))
        self.length = path.stat().st_size

    def read(self, size: int | None = -1) -> bytes:
        rest = max(0, self.length - self.tell())
        return super().read(rest if size is None or size < 0 else min(size, rest))
