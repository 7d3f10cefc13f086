"""docTR (github.com/mindee/doctr) with the orientation of pages by the network of `gcsa orient`:

    model = ocr_predictor(pretrained=True, assume_straight_pages=False, straighten_pages=True, disable_page_orientation=True)
    model.page_orientation_predictor = PageOrientation()

docTR itself is not imported.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa.tasks.recognition.pages.orientation import find_orientation

CLASSES = (0, -90, 180, 90)
"""Degrees by which docTR then rotates a page counter-clockwise, for pages that are rotated by 0, 90, 180 and 270."""


class PageOrientation:
    """Stands where docTR has its `OrientationPredictor`."""

    def __call__(self, pages: Sequence[Array]) -> list[list[int] | list[float]]:
        """Of pages (H, W, 3) in uint8: the index, the angle and the probability of each; 0 degrees for a blank or doubtful page."""
        found = [find_orientation(np.asarray(Image.fromarray(page).convert("L"))) for page in pages]
        indices = [0 if one.blank or one.doubtful else one.degrees // 90 for one in found]
        return [indices, [CLASSES[i] for i in indices], [max(one.probabilities) for one in found]]
