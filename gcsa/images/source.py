"""An open image, whatever its file is: what `gcsa.images.reader.open_image` gives, and what each decoder makes."""

from __future__ import annotations

from typing import Any

from gcsa.images.choices import MPP_RANGE
from gcsa.images.pixels import Pixels, check_pixels

MAX_SEGMENT = 16_000_000
"""Pixels of the largest compressed strip, tile or chunk that is decoded for a window."""


class ImageSource:
    """An image, or one level of it, of which no pixel is decoded before it is asked for.

    name: of the file; shape: height and width as they are stored.
    dtype: of the values; white: the value of white, None where the file does not state it; is_deep: more than 8 bits.
    part_size: height and width of the strips, tiles or chunks; None where the image is decoded as a whole.
    rows_are_plain: any row can be read by itself.
    is_slide: of a scanner; levels_stored: of a pyramid, this one and those that are not read included.
    slice_count: of a stack, those whose largest values are taken.
    pixel_size: height and width of a pixel as stored, mpp: its width, in micrometres; magnification: of the objective; None where the
    file does not state them.
    """

    name: str
    shape: tuple[int, int]
    dtype: Any = None
    white: int | None = None
    is_deep: bool = False
    part_size: tuple[int, int] | None = None
    rows_are_plain: bool = False
    is_slide: bool = False
    levels_stored: int = 1
    slice_count: int = 1
    pixel_size: tuple[float, float] | None = None
    magnification: float | None = None

    @property
    def orientation(self) -> int:
        """Of EXIF and TIFF, from 1 to 8; 1 where the file states none of these."""
        return 1

    @property
    def is_sideways(self) -> bool:
        """Whether height and width change places when the image is upright, as far as the header says."""
        return self.orientation >= 5

    @property
    def is_pyramid(self) -> bool:
        return self.is_slide or self.levels_stored > 1

    @property
    def mpp(self) -> float | None:
        mpp = 0 if self.pixel_size is None else self.pixel_size[1]
        return mpp if MPP_RANGE[0] <= mpp <= MPP_RANGE[1] else None

    @property
    def upright_pixel_size(self) -> tuple[float, float] | None:
        """`pixel_size` of the upright image."""
        return self.pixel_size[::-1] if self.pixel_size and self.is_sideways else self.pixel_size

    @property
    def smaller_levels(self) -> list[ImageSource]:
        """The other levels of a pyramid, the finest first, without those that are stored in a way that is not read."""
        return []

    def window(self, top: int, left: int, bottom: int, right: int) -> Pixels:
        """Rows `top` to `bottom` and columns `left` to `right`, as they are stored; of several slices the largest values."""
        raise NotImplementedError

    def read(self, *, upright: bool = True) -> Pixels:
        """The whole image, as it should be seen or without `upright` as it is stored. Raises Refused for too many pixels."""
        check_pixels(*self.shape, self.is_deep)
        return self.window(0, 0, *self.shape).upright(self.orientation if upright else 1)
