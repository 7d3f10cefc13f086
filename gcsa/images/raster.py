"""The images that Pillow opens: PNG, JPEG, JPEG 2000, WebP, BMP, GIF and PPM. They are decoded as a whole.

PNG and JPEG 2000 of more than 8 bits are decoded by imagecodecs where Pillow would change values.
"""

from __future__ import annotations

from typing import Any

import imagecodecs
from PIL import Image, UnidentifiedImageError

from gcsa.images import jpeg2000
from gcsa.images.files import BoundedFile
from gcsa.images.pixels import Pixels, Refused, check_pixels, from_pillow, with_alpha
from gcsa.images.planes import Plane, choose_channel
from gcsa.images.source import ImageSource

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM", "JPEG2000")
LOSSY = ("JPEG", "MPO", "WEBP", "JPEG2000")
MAX_BYTES = 2**31
"""Of a file that is read whole."""
ORIENTATION = 274
"""Number of the tag, in EXIF as in TIFF."""


class Raster(ImageSource):
    """The picture in an open file. plane: the channel that is read; labels: palettes are not looked up.

    Raises ValueError for another format, several frames, too many pixels or bytes, and for labels in a format that changes them.
    """

    def __init__(self, file: BoundedFile, *, labels: bool = False, plane: Plane | None = None) -> None:
        self.file, self.name, self.labels, self.plane = file, str(file.name), labels, plane
        if file.length > MAX_BYTES:
            raise Refused(f"is larger than {MAX_BYTES:,} bytes: cut it into tiles", "file.too_large")
        try:
            self.image: Any = Image.open(file, formats=FORMATS)
        except UnidentifiedImageError as error:  # whose message names the file a second time
            raise ValueError(f"cannot identify it as TIFF, {', '.join(FORMATS)}") from error
        self.shape, self.format = (self.image.height, self.image.width), self.image.format
        self.is_deep = self.image.mode.startswith(("I", "F"))
        check_pixels(*self.shape, self.is_deep)
        # Of a camera's MPO, the first is the picture.
        if self.format != "MPO" and getattr(self.image, "is_animated", False):
            raise Refused("holds several images: save one a file", "image.several")
        if labels and self.format in LOSSY:
            raise Refused(
                f"is {self.format}, which does not keep labels exactly: save them as PNG or TIFF", "labels.lossy"
            )

    @property
    def orientation(self) -> int:
        stated = self.image.getexif().get(ORIENTATION, 1)
        return stated if stated in range(1, 9) else 1

    @property
    def is_sideways(self) -> bool:
        """An orientation that a PNG file holds behind its pixels is not seen, as Pillow would decode them."""
        return (self.format != "PNG" or "exif" in self.image.info) and super().is_sideways

    def window(self, top: int, left: int, bottom: int, right: int) -> Pixels:
        pixels = self._decoded()
        if self.plane is not None:
            pixels = choose_channel(pixels, self.plane)
        if (top, left, bottom, right) == (0, 0, *self.shape):
            return pixels
        rows, columns = slice(top, bottom), slice(left, right)
        alpha = None if pixels.alpha is None else pixels.alpha[rows, columns]
        return pixels._replace(values=pixels.values[rows, columns], alpha=alpha)

    def _decoded(self) -> Pixels:
        pixels = None
        if self.format == "JPEG2000":
            pixels = jpeg2000.read_deep(self.file, self.image)
        elif self.format == "PNG":
            pixels = self._deep_png()
        return from_pillow(self.image, labels=self.labels) if pixels is None else pixels

    def _deep_png(self) -> Pixels | None:
        """PNG of 16 bits in colour or with transparency, which Pillow would cut to 8 bits or leave out; None for any other."""
        image = self.image
        is_deep = any(";16" in str(part[3]) for part in image.tile)
        is_deep = is_deep and (not image.mode.startswith("I") or "transparency" in image.info)
        image.load()
        if not is_deep:
            return None
        self.file.seek(0)
        values = imagecodecs.png_decode(self.file.read())
        return with_alpha(values, 65535) if values.shape[2] in (2, 4) else Pixels(values, 65535)
