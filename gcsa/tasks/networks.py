"""Networks of others as predictors: what `gcsa.load` gives for timm:NAME, a file of a network, and MODULE:FUNCTION."""

from __future__ import annotations

from typing import Any

import timm
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.images.prepare import Prepare
from gcsa.models.foreign import TIMM, open_network, open_timm
from gcsa.tasks.base import Predictor
from gcsa.tasks.classification.predict import ClassificationPredictor, RowPredictor, run_batches

MEAN, STD, SIZE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 224
"""Of ImageNet, for files and functions, which do not say theirs."""


class NetworkPredictor(RowPredictor):
    """A network of somebody else: normalised images (B, 3, S, S) to rows of numbers (B, D), of which nobody says what they are."""

    kind = "network"

    @property
    def embedding(self) -> nn.Module:
        """The network: its outputs may be features."""
        return self.network

    def fold(self) -> NetworkPredictor:
        """Leaves the network as it is: it has no layers of gcsa."""
        return self

    def predict(self, images: Any, batch_size: int = 32) -> Tensor:
        """The outputs (D,) for an image, as `gcsa.images.prepare.to_image` takes it; (N, D) for several."""
        return run_batches(self.network, self.preprocess, images, batch_size)


def open_foreign(
    source: str, task: str | None = None, outputs: str | None = None, trust_code: bool = False
) -> Predictor:
    """The predictor of a network that is not of gcsa (`gcsa.models.foreign.is_foreign`).

    Args:
        source: timm:NAME, a classifier with its pretrained weights; a file .onnx, .pt, .pth or .ts of TorchScript, or .pt2; or
            MODULE:FUNCTION, which takes normalised images (B, 3, S, S).
        task: "segmentation" for a segmenter; None: the network gives a row of numbers for each image.
        outputs: of `ForeignSegmenter`.
        trust_code: of `gcsa.load`.

    Raises:
        UserError, FileNotFoundError: a source that cannot be opened, or that is not of this task.
    """
    if task == "segmentation" and not source.startswith(TIMM):
        from gcsa.tasks.segmentation.foreign import ForeignSegmenter
        from gcsa.tasks.segmentation.predict import SegmentationPredictor

        return SegmentationPredictor(
            ForeignSegmenter(open_network(source, trust_code), source, outputs or "classes").eval()
        )
    if source.startswith(TIMM) and task in (None, ClassificationPredictor.kind):
        network = open_timm(source.removeprefix(TIMM))
        cfg = timm.data.resolve_model_data_config(network)
        return ClassificationPredictor(network, Prepare(cfg["input_size"][-1], tuple(cfg["mean"]), tuple(cfg["std"])))
    if task is not None:
        raise UserError(
            f"{source} is a network of others, which does not say that it is for {task}: name weights of gcsa",
            "network.task",
        )
    return NetworkPredictor(open_network(source, trust_code), Prepare(SIZE, MEAN, STD))
