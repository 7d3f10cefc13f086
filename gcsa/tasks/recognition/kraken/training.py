"""`ketos train --arch gcsa` and `ketos test`: kraken's own commands, with their options, train, continue and measure our recognisers.

Registered under the entry points "kraken.archs.recognition", "kraken.lightning_modules" and "kraken.configs". A new recogniser is
a `gcsa_ocr_tiny`; one in a file of `gcsa export --format kraken` goes on with `--load`. kraken refuses its options of other networks
(`--spec`, `--variant`); binary data sets are refused here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning
import torch
from kraken.configs.base import TrainingConfig
from kraken.configs.vgsl import VGSLRecognitionTrainingDataConfig
from kraken.lib.dataset import global_align
from kraken.train.base import KrakenTrainerModule
from kraken.train.vgsl import VGSLRecognitionModel
from torch import Tensor
from torchmetrics.text import CharErrorRate, WordErrorRate

from gcsa._utils.errors import UserError
from gcsa.data.loaders import BatchLoader
from gcsa.tasks.recognition.ctc import CTCRecognizer, ctc_loss
from gcsa.tasks.recognition.data.augment import LineAugment
from gcsa.tasks.recognition.data.batches import LineBatch, LineSet, WidthSampler
from gcsa.tasks.recognition.data.charset import Charset, display_order
from gcsa.tasks.recognition.data.line_image import Line, fit_bytes, read_line
from gcsa.tasks.recognition.data.lines import read_text
from gcsa.tasks.recognition.kraken.plugin import GCSARecognizer
from gcsa.tasks.recognition.pages.page_xml import read_page
from gcsa.weights import to_config

ENCODER = "gcsa_ocr_tiny"
"""Of a new recogniser."""
AUGMENT = dict(shear=3.0, scale=0.05, shift=0.03, stroke=0.3, blur=0.5, contrast=0.2, noise=0.05)
"""Of training lines, as in conf/data/lines.yaml; `--no-augment` leaves it out."""


class GCSATrainingConfig(TrainingConfig):
    """kraken's options of a run, with the values of experiment=ocr_ctc where none is given.

    resize: "union" gives a recogniser that is loaded the characters that it does not know yet, "fail" refuses them.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.resize = kwargs.pop("resize", "union")
        defaults = dict(lrate=1.5e-3, weight_decay=0.05, epochs=36, schedule="cosine", warmup=200, batch_size=8)
        super().__init__(**{**defaults, "cos_t_max": kwargs.get("epochs", 36), **kwargs})


class GCSADataConfig(VGSLRecognitionTrainingDataConfig):
    """kraken's options of the data, with augmentation as the default. Texts are in NFC and logical order, as everywhere here."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"augment": True, **kwargs})


def list_lines(files: Iterable[str | Path], kind: str) -> list[Line]:
    """The lines with text in PAGE-XML or ALTO files, or those in images with .gt.txt beside them ("path").

    Raises ValueError for another kind, and what reading a page or a text does.
    """
    if kind == "binary":
        raise UserError(
            "--arch gcsa reads its lines itself: give PAGE-XML or ALTO files, or images, not binary data sets",
            "kraken.binary",
        )
    if kind == "path":
        return [Line(Path(file), read_text(Path(file))) for file in files]
    return [line for file in files for line in read_page(file) if line.text]


class GCSALines(lightning.LightningDataModule):
    """The lines of a run, those of training and of validation, or those of a test; `load` makes batches of them for a recogniser.

    Where no evaluation data are given, 1 - `partition` of the training lines are held out, the same in every run.
    """

    def __init__(self, data_config: GCSADataConfig) -> None:
        super().__init__()
        self.save_hyperparameters()
        files = {"train": data_config.training_data, "val": data_config.evaluation_data, "test": data_config.test_data}
        self.lines = {split: list_lines(given, data_config.format_type) for split, given in files.items() if given}
        if "test" not in self.lines and "val" not in self.lines:
            lines = self.lines.get("train", [])
            random.Random(0).shuffle(lines)
            held_out = max(1, round(len(lines) * (1 - data_config.partition)))
            self.lines = {"train": lines[held_out:], "val": lines[:held_out]}
        for split, kept in self.lines.items():
            if not kept:
                raise UserError(f"there are no lines with text for the {split} split: give more files", "lines.none")

    def load(self, model: CTCRecognizer, batch_size: int) -> None:
        """Reads the images of all splits in the height of `model`, in batches of `batch_size`."""
        config = self.hparams["data_config"]
        self._loaders = {}
        for split, lines in self.lines.items():
            height, stride = model.height, model.stride
            images = [fit_bytes(read_line(line, height), height, stride, upright=True) for line in lines]
            augment = LineAugment(**AUGMENT) if split == "train" and config.augment else None
            whole = LineSet(images, lines, model.charset, augment)
            sampler = WidthSampler(
                whole.widths, batch_size, shuffle=split == "train", seed=0, short_first=split == "train"
            )
            self._loaders[split] = BatchLoader(whole, sampler, num_workers=config.num_workers)

    @property
    def train_set(self) -> SimpleNamespace:
        """kraken asks which mode the images of training have: ours are read as ink, so there is none to remember."""
        return SimpleNamespace(dataset=SimpleNamespace(transforms=None, im_mode=None))

    def train_dataloader(self) -> BatchLoader[LineBatch]:
        """Shuffled in every epoch."""
        return self._loaders["train"]

    def val_dataloader(self) -> BatchLoader[LineBatch]:
        """From narrow to wide."""
        return self._loaders["val"]

    def test_dataloader(self) -> BatchLoader[LineBatch]:
        """From narrow to wide."""
        return self._loaders["test"]


class GCSATraining(KrakenTrainerModule):
    """Trains the recogniser in `net`; kraken keeps the checkpoint of the best `val_metric`, 1 - CER.

    config: of the run; model: a recogniser to go on with. Raises ValueError for characters that it does not know where
    `config.resize` is not "union".
    """

    _task = "recognition"
    _arch = "gcsa"
    _model_class = GCSARecognizer
    _config_class = GCSATrainingConfig
    _data_config_class = GCSADataConfig
    _data_module_class = GCSALines

    configure_callbacks = VGSLRecognitionModel.configure_callbacks
    optimizer_step = VGSLRecognitionModel.optimizer_step
    lr_scheduler_step = VGSLRecognitionModel.lr_scheduler_step
    on_test_epoch_start = VGSLRecognitionModel.on_test_epoch_start
    on_test_epoch_end = VGSLRecognitionModel.on_test_epoch_end

    def __init__(self, config: GCSATrainingConfig, model: GCSARecognizer | None = None) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["model"])
        self.net = model
        self.scores = torch.nn.ModuleDict({"cer": CharErrorRate(), "wer": WordErrorRate()})

    def setup(self, stage: str | None = None) -> None:
        """For training, makes the recogniser for the characters of its lines, or gives one that was loaded those that it lacks."""
        data: Any = self.trainer.datamodule
        if stage == "test":
            VGSLRecognitionModel.setup(self, stage)  # makes the metrics that kraken reports
        else:
            self._know(data.lines["train"])
        assert self.net is not None
        data.load(self.net.model, self.hparams["config"].batch_size)

    def _know(self, lines: list[Line]) -> None:
        known = self.net.model.charset if self.net is not None else Charset("")
        charset = known.extended(display_order(line.text) for line in lines)
        if self.net is None:
            self.net = GCSARecognizer(to_config(CTCRecognizer(charset.characters, ENCODER).to_weights()))
        elif charset.characters != known.characters:
            if self.hparams["config"].resize != "union":
                new = charset.characters.removeprefix(known.characters)
                raise UserError(
                    f"Training data and model codec alphabets mismatch: {new!r} are new; use --resize union",
                    "kraken.alphabet",
                )
            self.net.model.extend(charset.characters)
            self.net.user_metadata["config"] = to_config(self.net.model.to_weights())

    def training_step(self, batch: LineBatch, batch_idx: int) -> Tensor:
        assert self.net is not None
        loss = ctc_loss(self.net.model(batch.images), batch.targets, batch.lengths)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True, batch_size=len(batch.texts))
        return loss

    def validation_step(self, batch: LineBatch, batch_idx: int) -> None:
        assert self.net is not None
        model = self.net.model
        read = [model.reading(scores).text for scores in model(batch.images).float().cpu()]
        for metric in self.scores.values():
            metric.update(read, batch.texts)  # type: ignore[operator]

    def on_validation_epoch_end(self) -> None:
        rates = {name: metric.compute() for name, metric in self.scores.items()}  # type: ignore[operator]
        shown = {"val_accuracy": 1 - rates["cer"], "val_word_accuracy": 1 - rates["wer"]}
        self.log_dict(shown, prog_bar=True)
        self.log("val_metric", shown["val_accuracy"])
        for metric in self.scores.values():
            metric.reset()  # type: ignore[operator]

    def test_step(self, batch: LineBatch, batch_idx: int) -> None:
        """Counts as kraken does for its own networks."""
        assert self.net is not None
        model = self.net.model
        for scores, text in zip(model(batch.images).float().cpu(), batch.texts, strict=True):
            read = model.reading(scores).text
            errors, meant, said = global_align(text, read)
            self.errors += errors
            self.characters.update(text)
            self.algn_gt.extend(meant)
            self.algn_pred.extend(said)
            self.test_cer.update(read, text)
            self.test_cer_case_insensitive.update(read.lower(), text.lower())
            self.test_wer.update(read, text)

    def configure_optimizers(self) -> Any:
        """As kraken's options say."""
        from kraken.train.utils import configure_optimizer_and_lr_scheduler

        assert self.net is not None
        steps = len(self.trainer.datamodule.train_dataloader())
        return configure_optimizer_and_lr_scheduler(self.hparams["config"], self.net.parameters(), len_train_set=steps)

    def _save_checkpoint_extras(self, checkpoint: dict[str, Any]) -> None:
        assert self.net is not None
        checkpoint["gcsa_config"] = self.net.user_metadata["config"]

    def _build_net_from_checkpoint(self, checkpoint: dict[str, Any]) -> GCSARecognizer:
        return GCSARecognizer(checkpoint["gcsa_config"])
