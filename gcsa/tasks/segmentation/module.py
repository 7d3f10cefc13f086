"""Segmentation: the Lightning module around a `Segmenter` of instances or of masks."""

from typing import Any

from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa.tasks.segmentation.losses import mask_loss, star_loss
from gcsa.tasks.segmentation.metrics import build_metrics
from gcsa.tasks.segmentation.segmenter import Segmenter
from gcsa.training.module import TaskModule


class Segmentation(TaskModule):
    """Trains a `Segmenter` on crops (B, C, h, w) with targets (B, T, h, w); measures it on whole images.

    model: keyword arguments of `Segmenter`; optimizer, schedule: of `TaskModule`. Logs {val,test}/ with the names of
    `OverlapScores` and, for instances, of `InstanceScores`. Raises UserError for arguments that cannot work.
    """

    task = "segmentation"

    def __init__(
        self,
        model: dict[str, Any],
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        adapter: dict[str, Any] | None = None,
    ) -> None:
        network = Segmenter(**model)
        super().__init__(network, lambda: build_metrics(network), optimizer, schedule)
        self.loss = star_loss if network.task == "instances" else mask_loss

    def training_loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        return self.loss(self(images), targets)

    def evaluate_batch(self, batch: tuple[Tensor, Tensor], stage: str) -> None:
        (image,), (labels,) = batch
        predicted = self.model.labels(self.model.maps(image).float())
        self.metrics[stage].update(predicted, labels.cpu().numpy())


def check_crop(crop: int, multiple: int, least: int) -> None:
    """Raises ValueError, naming the nearest sides that work, for crops that a network does not take."""
    if crop % multiple or crop < least:
        below = crop // multiple * multiple
        near = [str(side) for side in (below, below + multiple) if side >= least] or [str(least)]
        bound = f", {least} or more" if crop < least else ""
        raise UserError(f"data.crop={crop} must be a multiple of {multiple}{bound}: use {' or '.join(near)}")
