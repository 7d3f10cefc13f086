"""The files of slide scanners (Aperio, Hamamatsu, Leica, MIRAX, DICOM ...), read by OpenSlide (extra `slides`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gcsa._utils.errors import MissingExtraError
from gcsa.images.choices import MPP_RANGE
from gcsa.images.folders import SLIDES
from gcsa.images.pixels import Pixels, Refused
from gcsa.images.planes import Plane, choose_channel
from gcsa.images.source import ImageSource

DICOM = (".dcm", ".dicom")
"""Of slides of which each level is a file: OpenSlide finds the others beside the one that is named."""


class Scanned(ImageSource):
    """A level of an open slide, of 8 bits, in colour, or its channel that `plane` names. What the scanner left out is white, and in a
    channel, which is one of fluorescence, black. Where pixels of a smaller level do not begin at pixels of the first, OpenSlide
    interpolates between them.

    Raises Refused for a plane that a picture in colour does not hold.
    """

    dtype, white, is_slide, rows_are_plain, part_size = np.uint8, 255, True, True, (1, 1)

    def __init__(self, name: str, slide: Any, level: int = 0, plane: Plane | None = None) -> None:
        self.name, self.slide, self.level, self.plane = name, slide, level, plane or Plane()
        self.ground = "white" if self.plane.channel is None else "black"
        choose_channel(Pixels(np.zeros((1, 1, 3), self.dtype), self.white), self.plane)
        width, height = slide.level_dimensions[level]
        self.shape, self.levels_stored = (height, width), slide.level_count
        sides = [_number(slide.properties.get(f"openslide.mpp-{axis}"), *MPP_RANGE) for axis in "yx"]
        self._mpp = sides[1]
        self.pixel_size = None if sides[0] is None or sides[1] is None else (sides[0], sides[1])
        self.magnification = _number(slide.properties.get("openslide.objective-power"), 0.1, 1000)

    @property
    def mpp(self) -> float | None:
        return self._mpp

    @property
    def smaller_levels(self) -> list[ImageSource]:
        return [Scanned(self.name, self.slide, level, self.plane) for level in range(1, self.levels_stored)]

    def window(self, top: int, left: int, bottom: int, right: int) -> Pixels:
        factor = self.slide.level_downsamples[self.level]
        corner = round(left * factor), round(top * factor)
        region = self.slide.read_region(corner, self.level, (right - left, bottom - top))
        ground = Image.new("RGBA", region.size, self.ground)
        colours = Pixels(np.asarray(Image.alpha_composite(ground, region).convert("RGB")), self.white)
        return choose_channel(colours, self.plane)


def open_scanned(path: Path) -> Any | None:
    """The slide of OpenSlide in a file of a scanner; None for any other file.

    Raises MissingExtraError without OpenSlide, and Refused for a damaged file.
    """
    suffix = path.suffix.lower()
    of_scanner = suffix in (*SLIDES, *DICOM)
    if not (of_scanner or suffix in (".tif", ".tiff")) or not path.is_file():
        return None
    try:
        import openslide
    except (ImportError, OSError) as error:  # OSError: where its library is not found
        if not of_scanner:
            return None
        raise MissingExtraError(f"{path} needs OpenSlide: pip install gcsa-vit[slides]", "openslide.missing") from error
    if openslide.OpenSlide.detect_format(str(path)) in (None, "generic-tiff"):
        return None
    try:
        return openslide.OpenSlide(str(path))
    except openslide.OpenSlideError as error:
        raise Refused(f"cannot be read as a slide ({error}): replace it", "slide.unreadable") from error


def _number(text: str | None, low: float, high: float) -> float | None:
    """A number from `low` to `high` in a property of a file, else None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if low <= value <= high else None
