"""Recognition of text lines: the Lightning module around a recogniser trained by CTC."""

from typing import Any

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.text import CharErrorRate, WordErrorRate

from gcsa.tasks.recognition.ctc import CTCRecognizer, ctc_loss
from gcsa.training.module import TaskModule

Batch = tuple[Tensor, Tensor, Tensor, list[str]]


def build_metrics() -> dict[str, Metric]:
    """Character and word error rate, fractions, from the texts that were read and the right ones."""
    return {"cer": CharErrorRate(), "wer": WordErrorRate()}


class Recognizer(TaskModule):
    """Trains a `CTCRecognizer` on batches of `LinesDataModule`: images (B, 1, height, W), the lines' classes one after
    the other, their lengths (B,), and the texts.

    model: `name` of the encoder and the other arguments of `CTCRecognizer`; characters: its charset; optimizer, schedule,
    adapter: of `TaskModule`. Logs {val,test}/loss, cer and wer of greedy decoding. Raises UserError for arguments that cannot
    work.
    """

    task = "recognition"

    def __init__(
        self,
        model: dict[str, Any],
        characters: str,
        optimizer: dict[str, Any],
        schedule: dict[str, Any],
        adapter: dict[str, Any] | None = None,
        calibration: list[float] | None = None,
    ) -> None:
        options = dict(model)
        network = CTCRecognizer(characters, options.pop("name"), **options)
        if calibration is not None:  # of the weights that it continues
            network.calibration = (calibration[0], calibration[1])
        super().__init__(network, build_metrics, optimizer, schedule, adapter)

    def training_loss(self, batch: Batch) -> Tensor:
        images, targets, lengths, _ = batch
        return ctc_loss(self(images), targets, lengths)

    def evaluate_batch(self, batch: Batch, stage: str) -> None:
        images, targets, lengths, texts = batch
        log_probs = self(images)
        read = [self.model.reading(line).text for line in log_probs.float().cpu()]
        self.update_metrics(stage, read, texts)
        self.log(f"{stage}/loss", ctc_loss(log_probs, targets, lengths), batch_size=len(texts), sync_dist=True)
