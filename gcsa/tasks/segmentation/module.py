"""Training of a segmenter: a Lightning module around a `SegmentationPredictor`."""

from typing import Any

from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.images.windows import ArrayImage
from gcsa.tasks.segmentation.losses import class_loss, star_loss
from gcsa.tasks.segmentation.metrics import build_metrics
from gcsa.tasks.segmentation.predict import SegmentationPredictor
from gcsa.training.module import TaskModule


class SegmentationModule(TaskModule):
    """Trains on crops (B, C, h, w) with targets (B, T, h, w); validates and tests the predictions for whole images.

    Logs {val,test}/ with the names of `OverlapScores` and, for instances, of `InstanceScores`.

    Args:
        model: keyword arguments of `SegmentationPredictor.create`.
        optimizer, schedule: as of `TaskModule`.
        adapter: always None.

    Raises:
        UserError: arguments that cannot work.
    """

    task = "segmentation"

    def __init__(
        self,
        model: dict[str, Any],
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        adapter: dict[str, Any] | None = None,
    ) -> None:
        predictor = SegmentationPredictor.create(**model)
        network = predictor.network.train()
        super().__init__(network, lambda: build_metrics(network.output, network.num_classes), optimizer, schedule)
        self.predictor = predictor
        self.loss = star_loss if network.output == "instances" else class_loss

    def training_loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return self.loss(self(images), targets)

    def evaluate_batch(self, batch: tuple[ArrayImage, Tensor], stage: str) -> None:
        image, labels = batch
        self.update_metrics(stage, self.predictor.predict(image).labels, labels.cpu().numpy())


def check_crop(crop: int, size_divisor: int, min_size: int) -> None:
    """Raises UserError, naming the nearest sides that work, for crops that a network does not take."""
    if crop % size_divisor or crop < min_size:
        below = crop // size_divisor * size_divisor
        near = [str(side) for side in (below, below + size_divisor) if side >= min_size] or [str(min_size)]
        bound = f", {min_size} or more" if crop < min_size else ""
        raise UserError(
            f"data.crop={crop} must be a multiple of {size_divisor}{bound}: use {' or '.join(near)}", "data.crop"
        )
