"""Lines on a page, found by kraken (Kiessling 2020, doi:10.1007/978-3-030-57058-3_21) with the model that comes with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import numpy as np
import torch
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa._utils.errors import MissingExtraError
from gcsa.tasks.recognition.data.cutting import FoundLine, Points
from gcsa.tasks.recognition.pages.page_skew import page_skew
from gcsa.tasks.recognition.pages.upright import level

MIN_SKEW = 1.0
"""Degrees: a page that is skewed by more is made level first."""


def check_kraken() -> None:
    """Raises MissingExtraError without kraken."""
    if find_spec("kraken") is None:
        raise MissingExtraError("--lines kraken needs kraken: pip install 'gcsa-vit[kraken]'", "kraken.missing")


def lines_by_kraken(page: Array) -> list[FoundLine]:
    """The lines of an upright page (H, W, 3) of 8 bits; of a skewed one they are searched without its skew.

    Raises as `check_kraken`, and what kraken raises.
    """
    check_kraken()
    picture = Image.fromarray(page)
    degrees = page_skew(page.mean(2))
    if abs(degrees) < MIN_SKEW:
        return _segment(picture)
    straight = level(picture, degrees)
    moved = on_skewed(degrees, straight.size, picture.size)
    return [FoundLine(moved(line.polygon), moved(line.baseline)) for line in _segment(straight)]


def on_skewed(degrees: float, straight: tuple[int, int], skewed: tuple[int, int]) -> Callable[[Points], Points]:
    """What brings points from a page without skew back to the page as it was, in whole pixels; sizes are (width, height)."""
    radians = np.radians(degrees)
    cos, sin = np.cos(radians), np.sin(radians)
    rotation = np.array([[cos, sin], [-sin, cos]])  # counter-clockwise, as y grows downwards
    centre, limits = (np.array(straight) - 1) / 2, np.array(skewed) - 1

    def moved(points: Sequence[tuple[float, float]]) -> Points:
        rotated = (np.array(points) - centre) @ rotation.T + limits / 2
        return tuple(map(tuple, np.rint(rotated.clip(0, limits)).tolist()))

    return moved


def _segment(page: Image.Image) -> list[FoundLine]:
    logging.getLogger("coremltools").setLevel(logging.ERROR)  # it warns of every PyTorch that it does not know
    from kraken.configs import SegmentationInferenceConfig
    from kraken.tasks import SegmentationTaskModel

    config = SegmentationInferenceConfig(accelerator="cpu", device=1, num_threads=torch.get_num_threads())
    with torch.autocast("cpu", enabled=False):  # which --precision sets for the recogniser
        found = SegmentationTaskModel.load_model().predict(page, config)
    usable = (line for line in found.lines if line.boundary and len(line.boundary) > 2)
    return [FoundLine(tuple(line.boundary), tuple(line.baseline)) for line in usable]
