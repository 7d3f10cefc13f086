"""The results that the demo shows of a rotated image, without the page."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from gcsa._utils.errors import UserError
from gcsa.cli.demo.digits import HELD_OUT, plain_network
from gcsa.images.windows import ArrayImage
from gcsa.tasks import load
from gcsa.tasks.classification.data.digits import SIDE, upright_digits
from gcsa.tasks.segmentation.writers import overlay

EXAMPLES = Path(__file__).parent / "examples"
LARGEST = 512
"""Pixels a side of nuclei that are segmented while the slider moves; larger pictures are scaled down."""

Scores = dict[str, float]
classifier = lru_cache(lambda: load("gcsa_tiny.rotmnist"))
plain = lru_cache(plain_network)


@lru_cache
def segmenter() -> Any:
    return load("gcsa_unet_tiny.nuclei")


@lru_cache
def recognizer() -> Any:
    return load("gcsa_ocr_tiny.fr17")


def example_digit() -> Image.Image:
    """A 7, white on black, that neither network was trained on: the fifth, since ours takes the first for a 2."""
    images, labels = upright_digits()
    row = len(images) - HELD_OUT + int((labels[-HELD_OUT:] == 7).nonzero()[4])
    return Image.fromarray((images[row, 0] * 255).round().byte().numpy())


def example(name: str) -> Image.Image:
    with Image.open(EXAMPLES / name) as image:
        return image.convert("RGB" if name.startswith("nuclei") else "L")


def rotated(picture: Image.Image, angle: float) -> Image.Image:
    """Counter-clockwise by `angle` degrees. Multiples of 90 move pixels; others resample and fill up with the border's median."""
    quarters, rest = divmod(angle % 360, 90)
    if rest == 0:
        return Image.fromarray(np.ascontiguousarray(np.rot90(np.asarray(picture), int(quarters))))
    pixels = np.asarray(picture)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    fill = np.median(border, axis=0).astype(int)
    colour: Any = tuple(fill.tolist()) if fill.ndim else int(fill)
    return picture.rotate(angle, Image.Resampling.BICUBIC, fillcolor=colour)


def classify(picture: Image.Image | None, angle: float) -> tuple[Image.Image, Scores, Scores]:
    """The rotated digit, and the probability of each class by ours and by the plain network.

    A digit is light on dark; a picture with a light border is inverted. Raises ValueError without a picture.
    """
    grey = rotated(_checked(picture).convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC), 0)
    if np.median(np.concatenate([np.asarray(grey)[0], np.asarray(grey)[-1]])) > 127:
        grey = Image.fromarray(255 - np.asarray(grey))
    shown = rotated(grey, angle)
    image = torch.from_numpy(np.array(shown, np.float32) / 255)[None, None]
    network, _ = plain()
    with torch.no_grad():
        by_plain = network((image - 0.5) / 0.5).softmax(1)[0].tolist()
    enlarged = shown.resize((10 * SIDE, 10 * SIDE), Image.Resampling.NEAREST)
    return enlarged, classifier().predict(shown).scores, {str(digit): value for digit, value in enumerate(by_plain)}


def segment(picture: Image.Image | None, angle: float) -> tuple[NDArray[np.uint8], str]:
    """The rotated picture with the borders of its nuclei, and their number. Raises ValueError without a picture."""
    colour = _checked(picture).convert("RGB")
    colour.thumbnail((LARGEST, LARGEST))
    pixels = np.asarray(rotated(colour, angle))
    predictor, image = segmenter(), ArrayImage(pixels)
    result = predictor.predict(image)
    return overlay(result.label_map, image, predictor.limits(image)), f"{result.max_label} nuclei"


def read(picture: Image.Image | None, angle: float) -> tuple[Image.Image, str, str]:
    """The line rotated by the multiple of 90 degrees next to `angle`, its text, and its confidence. Raises ValueError without
    a picture and for one that is no line."""
    shown = rotated(_checked(picture).convert("L"), 90 * round(angle / 90))
    reading = recognizer().predict(shown)
    return shown, reading.text, f"{reading.confidence:.0%}, rotated by {reading.orientation} degrees"


def _checked(picture: Image.Image | None) -> Image.Image:
    if picture is None:
        raise UserError("there is no image: choose one, or take the example", "picture.missing")
    return picture.copy()
