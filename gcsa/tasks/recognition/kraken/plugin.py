"""kraken's plug-in: `kraken -i page.jpg page.txt segment -bl ocr -m gcsa_ocr_tiny.fr17.safetensors`.

Registered under the entry point "kraken.models", so that kraken finds it wherever both are installed. A file is written by
`gcsa export gcsa_ocr_tiny.fr17 --format kraken --output gcsa_ocr_tiny.fr17.safetensors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from kraken.containers import BaselineOCRRecord
from kraken.models.base import RecognitionBaseModel
from PIL import Image
from torch import nn

from gcsa.images.reader import grey_pixels
from gcsa.tasks.recognition.data.cutting import FoundLine
from gcsa.tasks.recognition.data.line_image import polygon_ink
from gcsa.tasks.recognition.kraken.file import KRAKEN_VERSION
from gcsa.tasks.recognition.pages.layout import printed
from gcsa.tasks.recognition.predict import RecognitionPredictor, empty_recognizer
from gcsa.tasks.recognition.reading import Reading, cuts_of
from gcsa.weights import check_weights

LEAST_BATCH = 16
"""Lines that are read together at least: kraken's own default is 1, and the lines of a page are there at once."""


class GCSARecognizer(nn.Module, RecognitionBaseModel):
    """A `CTCRecognizer` for kraken's tasks; the lines of a page vote for its orientation.

    config: what config.json of a folder of weights says of a recogniser; model_type: what kraken says it is for; metadata: kept.
    Raises ValueError for anything else.
    """

    _kraken_min_version = KRAKEN_VERSION
    model_type = ("recognition",)
    seg_type = "baselines"

    def __init__(self, config: Mapping[str, Any], model_type: Sequence[str] = model_type, **metadata: Any) -> None:
        super().__init__()
        self.model = empty_recognizer(check_weights("the model's kraken_meta", config, {}))
        self.user_metadata = {"config": dict(config), **metadata}

    def prepare_for_inference(self, config: Any) -> None:
        """Takes device, threads and size of batches from kraken's `RecognitionInferenceConfig`."""
        torch.set_num_threads(config.num_threads)
        self.batch_size = max(LEAST_BATCH, config.batch_size)
        device = "cuda" if config.accelerator in ("cuda", "gpu") else "cpu"
        self.model.eval().to(device)

    @torch.inference_mode()
    def predict(self, im: Image.Image, segmentation: Any) -> Iterator[Any]:
        """A record for each line of print of `segmentation`, in its order, with position and confidence of each character.

        Lines that shine through from the back, and the edge of the facing page, are left out; a line that cannot be read is empty.
        """
        page = grey_pixels(im)
        lines = segmentation.to_baselines().lines
        kept = printed([FoundLine(line.boundary, line.baseline) for line in lines], page)
        lines = [line for line, keep in zip(lines, kept, strict=True) if keep]
        inks = [partial(polygon_ink, page, line.boundary, str(line.id), baseline=line.baseline) for line in lines]
        read = RecognitionPredictor(self.model).read_lines(inks, [0] * len(inks), batch_size=self.batch_size)
        readings = [reading if isinstance(reading, Reading) else None for reading in read]
        for line, reading in zip(lines, readings, strict=True):
            yield _record(line, reading).logical_order()


def _record(line: Any, reading: Reading | None) -> BaselineOCRRecord:
    """The text of a line, and the position and confidence of each character; empty where it could not be read.

    The boxes of neighbouring characters meet half way between them.
    """
    characters = reading.characters if reading is not None else ()
    length = sum(float(np.hypot(x1 - x0, y1 - y0)) for (x0, y0), (x1, y1) in pairwise(line.baseline))
    cuts = [
        (round(start * length), max(round(start * length) + 1, round(end * length)))
        for start, end in cuts_of(characters)
    ]
    text = "".join(character.character for character in characters)
    return BaselineOCRRecord(text, cuts, [character.confidence for character in characters], line)
