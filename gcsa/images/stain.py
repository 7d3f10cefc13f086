"""The amount of one stain in pictures of stained tissue."""

from __future__ import annotations

import numpy as np

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.images.choices import STAINS
from gcsa.images.intensity import percentile_values
from gcsa.images.pixels import is_grey
from gcsa.images.windows import WindowedImage, counts, row_windows

BRIGHT = 1 / 3
"""Of white. H&E of the 2018 bowl has .53 and more, nuclei of its fluorescence in blue .11 and less."""
COLUMNS = {"haematoxylin": 0, "dab": 2}
"""Of scikit-image's matrix; column 1 is eosin's."""
MOST = 4.0
"""Optical density of the stain that becomes the largest value; light is then weaker by a factor of 10,000."""


class StainImage:
    """The amount of one of `STAINS` in a picture of stained tissue: its optical density, unmixed from the other and from eosin by the colours
    of Ruifrok & Johnston (2001, Quantification of histochemical staining by color deconvolution), in uint16, the same in each of three
    channels. Nuclei are bright in that of haematoxylin, as in fluorescence, and those that an antibody marks in that of DAB.

    Each value depends on its own pixel alone, so that a rotated picture gives exactly the rotated amounts.

    Raises UserError for a picture that is not of 8 or 16 bits in three channels, for others have no absolute brightness, and for a grey one,
    unless it is white.
    """

    def __init__(self, image: WindowedImage, stain: str = STAINS[0]) -> None:
        from skimage.color import hed_from_rgb

        first = image.window(0, 0, 1, 1)
        if first.dtype not in (np.uint8, np.uint16) or first.shape[2] != 3:
            raise UserError(
                f"a stain is of images in colour of 8 or 16 bits, and this one has {first.shape[2]} channels of {first.dtype}: "
                "leave the stain out",
                "stain.image",
            )
        white = np.iinfo(first.dtype).max
        if _is_grey(image, white):
            raise UserError("a stain is of images in colour, and this one is grey: leave the stain out", "stain.image")
        self.image, self.shape, self.stain = image, image.shape, stain
        values = np.arange(white + 1.0)
        density = -np.log10(values.clip(1) / values[-1])
        self.amounts = [density * weight for weight in hed_from_rgb[:, COLUMNS[stain]]]

    def window(self, top: int, left: int, bottom: int, right: int) -> Array:
        picture = self.image.window(top, left, bottom, right)
        red, green, blue = (amounts[picture[..., i]] for i, amounts in enumerate(self.amounts))
        stain = (red + green + blue).clip(0, MOST) * (65_535 / MOST)
        return np.repeat(stain.round().astype(np.uint16)[..., None], 3, axis=2)

    def percentiles(self, low: float, high: float) -> tuple[float, float]:
        return percentile_values(counts(self, np.uint16), low, high)


def may_be_stained(image: WindowedImage) -> bool:
    """Whether a picture is in colour, of 8 or 16 bits, and bright in the mean, as what light shines through: the ground of fluorescence is
    dark."""
    first = image.window(0, 0, 1, 1)
    if first.dtype not in (np.uint8, np.uint16) or first.shape[2] != 3:
        return False
    white = int(np.iinfo(first.dtype).max)
    occurring = counts(image, first.dtype)
    mean = float(occurring @ np.arange(white + 1.0) / occurring.sum())
    return mean > BRIGHT * white and not _is_grey(image, white)


def _is_grey(image: WindowedImage, white: int) -> bool:
    """Whether there is no colour in a picture, but grey or black. It is read up to the first colour."""
    darkest = white
    for _, values in row_windows(image):
        if not is_grey(values):
            return False
        darkest = min(darkest, int(values.min()))
    return darkest < white
