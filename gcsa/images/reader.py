"""The one reader of images: data sets, text lines, pages, microscopy images and their masks all come through here.

`open_image` opens a file once, and gives one type, whatever the file is; the other functions take a path or an image that is open. An
image is the only one of a PNG, JPEG, JPEG 2000, TIFF, WebP, BMP, GIF or PPM file, whatever its name ends in, or a folder of OME-Zarr. Other formats of
Pillow are refused, since some run programs (EPS), and so are files of several pages, planes or frames. Where a `page` is asked for, a number
from 1 to `count_pages`, the image is that page of a TIFF or PDF file. The size in the header is bounded before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images import pdf, tiff
from gcsa.images.files import BoundedFile
from gcsa.images.ome_zarr import OmeZarr, is_zarr
from gcsa.images.pixels import Pixels, Refused, check_pixels, from_pillow, naming, to_8_bits, to_grey, to_picture
from gcsa.images.planes import Plane
from gcsa.images.raster import Raster
from gcsa.images.scanned import Scanned, open_scanned
from gcsa.images.source import ImageSource

Openable = str | PathLike[str] | ImageSource
"""A path, or an image that is open already."""
MAX_LABEL = 2**31 - 1


@contextmanager
def open_image(
    path: str | PathLike[str],
    *,
    page: int | None = None,
    plane: Plane | None = None,
    labels: bool = False,
    scanner: bool = False,
) -> Iterator[ImageSource]:
    """The image in a file, of which nothing but the header is read before a window of it is.

    Args:
        page: from 1 on, of TIFF and PDF files; plane: which image of a stack; labels: the pixels of a palette are its indices.
        scanner: files of slide scanners are opened by OpenSlide.

    Raises:
        UserError: naming the file: it is of another format, holds several images or too many pixels, lacks the page or plane.
        MissingExtraError: a file of a scanner without OpenSlide, OME-Zarr without zarr.
    """
    with ExitStack() as stack:
        with naming(path):
            source = _open(Path(path), stack, page, plane, labels, scanner)
        yield source


def _open(
    path: Path, stack: ExitStack, page: int | None, plane: Plane | None, labels: bool, scanner: bool
) -> ImageSource:
    if is_zarr(path):
        return OmeZarr(path, plane)
    if scanner and (slide := open_scanned(path)) is not None:
        stack.callback(slide.close)
        return Scanned(str(path), slide, plane=plane)
    if path.exists() and not path.is_file():  # reading a pipe or a device would not end
        raise ValueError("not a regular file")
    file = stack.enter_context(BoundedFile(path))
    if file.starts_with(*tiff.STARTS):
        return tiff.Tiff(file, labels=labels, plane=plane, number=page)
    if file.starts_with(pdf.START):
        if page is None:
            raise Refused(
                "is a PDF, of which gcsa transcribe reads the pages, and nothing else does: save them as images",
                "image.pdf",
            )
        return pdf.PdfPage(str(path), stack.enter_context(pdf.open_document(file)), page)
    return Raster(file, labels=labels, plane=plane)


@contextmanager
def _named(
    image: Openable, *, page: int | None = None, plane: Plane | None = None, labels: bool = False
) -> Iterator[ImageSource]:
    """`image`, opened where it is a path; what goes wrong within names its file."""
    with ExitStack() as stack:
        if not isinstance(image, ImageSource):
            image = stack.enter_context(open_image(image, page=page, plane=plane, labels=labels))
        stack.enter_context(naming(image.name))
        yield image


def read_image(image: Openable, channels: int, *, upright: bool = True, page: int | None = None) -> Image.Image:
    """A picture in colour (`channels` 3, mode RGB) or grey (1, mode L), of 8 bits, scaled as `gcsa.images.pixels.brightness` defines.

    It stands as its camera held it (EXIF or TIFF orientation), or without `upright` as it is stored.

    Raises:
        ValueError: naming the file: it cannot be decoded, is of another format, holds several pictures or too many pixels.
    """
    with _named(image, page=page) as source:
        return to_8_bits(source.read(upright=upright), channels)


def read_grey(image: Openable, *, upright: bool = True, page: int | None = None) -> Array:
    """Grey values (H, W) from 0, black, to 255: uint8, or float32 where the picture has more than 8 bits.

    Scaling, `upright` and errors are those of `read_image`.
    """
    with _named(image, page=page) as source:
        return to_grey(source.read(upright=upright))


def read_picture(image: Openable, channels: int, plane: Plane | None = None) -> Array:
    """A picture (H, W, channels) in uint8, uint16 or float32, its values as the file stores them, upright.

    With `channels` 3, grey is repeated; with 1, colours become grey (luma, rounded in whole numbers). Alpha is dropped. A `plane`
    says which picture of a stack is read.

    Raises:
        ValueError: naming the file: as `read_image`, or values that none of the three types holds.
    """
    with _named(image, plane=plane) as source:
        return to_picture(source.read(), channels)


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
        if values.dtype.hasobject:
            raise Refused(f"is a {type(image).__name__}: give a file, an array, a PIL image or a tensor", "image.type")
        if values.ndim == 3 and values.shape[2] in (1, 3, 4):
            values = values[..., 0] if values.shape[2] == 1 else values[..., :3]
        elif values.ndim != 2:
            raise Refused(
                f"has the shape {values.shape}: give arrays (H, W) or (H, W, C), or tensors (C, H, W), C 1, 3 or 4",
                "image.shape",
            )
        if not values.size:
            raise Refused(f"has the shape {values.shape}: it holds no pixel", "image.empty", shape=values.shape)
        return to_picture(Pixels(values, None), channels)


def read_labels(path: str | PathLike[str]) -> Array:
    """A label map (H, W) in int32, 0 where there is no object; of a palette, the indices.

    Raises:
        ValueError: naming the file: as `read_image`, or colours, fractions, negative or too large labels, white as zero, which
            leaves open what is background, or a format whose compression changes labels.
    """
    with _named(path, labels=True) as source:
        values = source.read().values
        if values.ndim != 2:
            raise Refused("is in colour: a mask must be a label map of one channel, 0 for background", "labels.colour")
        if values.dtype.kind not in "bui":
            raise Refused(
                f"holds {values.dtype} values: a mask must hold whole numbers, 0 for background", "labels.type"
            )
        if values.min() < 0 or values.max() > MAX_LABEL:
            raise Refused(
                f"holds labels in {values.min()}..{values.max()}: they must lie in 0..{MAX_LABEL}, 0 for background",
                "labels.range",
            )
        return values.astype(np.int32)


def image_size(image: Openable, *, upright: bool = False, page: int | None = None) -> tuple[int, int]:
    """Width and height as they are stored, from the header, or with `upright` as `read_picture` gives them.

    An orientation that a PNG file holds behind its pixels is not seen. Raises ValueError as `read_image` does.
    """
    with _named(image, page=page) as source:
        height, width = source.shape
        check_pixels(height, width, source.is_deep)
        return (height, width) if upright and source.is_sideways else (width, height)


def count_pages(path: str | PathLike[str]) -> int:
    """The pages of a PDF file, and of a TIFF file that has several; 0 for any other file, 1 for a PDF that cannot be read.

    Of a TIFF file that was cut off, those that are there and one more, so that reading tells of it.
    """
    path, least = Path(path), 0
    if not path.is_file():  # reading a pipe or a device would not end
        return 0
    try:
        with naming(path), BoundedFile(path) as file:
            if file.starts_with(pdf.START):
                least = 1
                with pdf.open_document(file) as document:
                    return max(1, len(document))
            pages = tiff.count_pages(file) if file.starts_with(*tiff.STARTS) else 0
            return pages if pages > 1 else 0
    except (ValueError, MemoryError):  # of which reading the picture, or the first page, tells the error
        return least


def is_pdf(path: str | PathLike[str]) -> bool:
    """Whether a file is a PDF, whatever its name ends in."""
    if not Path(path).is_file():
        return False
    with BoundedFile(Path(path)) as file:
        return file.starts_with(pdf.START)


def grey_pixels(image: Image.Image) -> Array:
    """`read_grey` of an image of Pillow, as it is. Raises ValueError for what that refuses."""
    with naming("the image"):
        return to_grey(from_pillow(image))


def check_pair(image: str | PathLike[str], mask: str | PathLike[str]) -> None:
    """Raises ValueError, from the headers alone, where image and mask differ in size or one cannot be read."""
    check_sizes(image, image_size(image, upright=True)[::-1], mask, image_size(mask, upright=True)[::-1])


def check_sizes(
    image: str | PathLike[str], size: tuple[int, ...], mask: str | PathLike[str], mask_size: tuple[int, ...]
) -> None:
    """Raises ValueError where the sizes, height and width, of image and mask differ."""
    if size != mask_size:
        here, there = (" x ".join(map(str, pair)) for pair in (size, mask_size))
        raise UserError(
            f"{image} is {here} pixels and its mask {mask} {there}: both must have one height and width", "mask.size"
        )
