"""kraken's plug-in: `kraken -i page.jpg page.txt segment -bl ocr -m gcsa_ocr_tiny.fr17.safetensors`.

Registered under the entry point "kraken.models", so that kraken finds it wherever both are installed. A file is written by
`gcsa export gcsa_ocr_tiny.fr17 --format kraken --output gcsa_ocr_tiny.fr17.safetensors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from kraken.models.base import RecognitionBaseModel
from PIL import Image
from torch import nn

from gcsa.images.reader import grey_pixels
from gcsa.tasks.recognition.data.line_image import polygon_ink
from gcsa.tasks.recognition.kraken.file import KRAKEN_VERSION
from gcsa.tasks.recognition.pages.layout import printed, records
from gcsa.tasks.recognition.predict import RecognitionPredictor, empty_recognizer
from gcsa.tasks.recognition.reading import Reading
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

        Lines that shine through from the back of the page are left out; one that cannot be read is empty.
        """
        page = grey_pixels(im)
        found = printed(segmentation.to_baselines(), page)
        inks = [partial(polygon_ink, page, line.boundary, str(line.id), baseline=line.baseline) for line in found.lines]
        read = RecognitionPredictor(self.model).read_lines(inks, [0] * len(inks), batch_size=self.batch_size)
        readings = [reading if isinstance(reading, Reading) else None for reading in read]
        for record in records(found, readings):
            yield record.logical_order()
