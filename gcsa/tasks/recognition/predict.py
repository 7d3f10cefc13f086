"""Text of line images: a recogniser, with an adapter merged where one is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.tasks.base import Predictor, merge_adapter
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.line_image import read_line
from gcsa.tasks.recognition.read_lines import read_lines
from gcsa.tasks.recognition.reading import Reading
from gcsa.weights import Weights, fill, read_adapter


class RecognitionPredictor(Predictor):
    """A `CTCRecognizer`."""

    kind = "recognition"

    def __init__(self, network: CTCRecognizer) -> None:
        super().__init__(network, self._ink)

    def _ink(self, image: Any) -> Tensor:
        """A path, a PIL image, an array (H, W) or (H, W, C), uint8, or a tensor (C, H, W), uint8, to ink (1, height, W)."""
        if isinstance(image, Tensor):
            image = image.permute(1, 2, 0).squeeze(2).cpu().numpy()
        if not isinstance(image, str | Path | Image.Image):
            image = Image.fromarray(image)
        return read_line(image, self.network.height)

    def predict(self, images: Any, orientation: str | None = None, **options: Any) -> Any:
        """The `Reading` (text, confidence, orientation) of a line, or a list of these; options of `read_lines`.

        orientation: "upright" or "any"; None: "any" for a group with rotations by 90 degrees.
        """
        if not isinstance(images, list | tuple):
            return self.predict([images], orientation, **options)[0]
        if orientation is None:
            orientation = "any" if self.group.rotations % 4 == 0 else "upright"
        inks = [self.preprocess(image) for image in images]
        readings = read_lines(
            self.network, [lambda ink=ink: ink for ink in inks], [None] * len(inks), orientation, **options
        )
        for reading in readings:
            if not isinstance(reading, Reading):
                raise reading
        return readings


def empty_recognizer(weights: Weights) -> CTCRecognizer:
    """The recogniser that `weights` describe, with random parameters."""
    if weights.characters is None:
        raise UserError(f"{weights.source} has no characters: name weights of a recogniser")
    return CTCRecognizer(weights.characters, weights.architecture, **weights.options)


def make_predictor(weights: Weights, adapter: str | Path | None = None) -> RecognitionPredictor:
    """The recogniser that `weights` describe, with the adapter merged.

    Raises FileNotFoundError for an adapter without a charset, and ValueError for one of another recogniser.
    """
    network = fill(lambda: empty_recognizer(weights), weights)
    return RecognitionPredictor(network if adapter is None else _adapted(network, adapter))


def _adapted(network: CTCRecognizer, adapter: str | Path) -> CTCRecognizer:
    characters = read_adapter(adapter).characters
    if characters is None:
        raise FileNotFoundError(
            f"there is no {Path(adapter) / 'charset.txt'}: name the adapter folder of a run on text lines"
        )
    try:
        network.extend(characters)
    except ValueError as error:
        raise UserError(
            f"the adapter {adapter} is of another recogniser, which knows other characters: name its base"
        ) from error
    merged: CTCRecognizer = merge_adapter(network, adapter)
    return merged
