"""An adapter of a recogniser for one book, from some corrected lines of it, and what it gains on lines that it was not trained on.

The lines are split as those of `gcsa.tasks.recognition.data.lines`: by page where there are three or more, a tenth each to choose
the epoch and to measure. The training is that of `train.py experiment=ocr_adapter`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf, open_dict

from gcsa._utils.atomic import replacing_folder, write_json
from gcsa._utils.errors import UserError
from gcsa.tasks.base import Predictor
from gcsa.tasks.recognition.data.line_image import Line, read_line
from gcsa.tasks.recognition.data.lines import SPLITS, list_lines
from gcsa.tasks.recognition.evaluate import TextScores, text_scores
from gcsa.tasks.recognition.predict import make_predictor
from gcsa.tasks.recognition.task import Task
from gcsa.training.callbacks import EpochLines
from gcsa.training.results import git_commit, machine
from gcsa.training.run import train
from gcsa.weights import Weights

LEAST_LINES = 50
"""Corrected lines, from which a script that the base does not know is read better (docs/measured/text.md). Of 50, 5 choose the epoch and
5 measure: of fewer, neither says anything."""
EPOCHS, PASSES = (6, 20), 1000
"""The least and most passes over the training lines, and how many lines are seen in all of them where that is in between. With 100 lines
of Fraktur, the lowest validation error was 10.5 % in 12 passes and 11.0 % in 24."""
FIGURES = "adaptation.json"


@dataclass(frozen=True)
class Adaptation:
    """The lines of each split, and how those of the test split were read before and after."""

    lines: dict[str, int]
    before: TextScores
    after: TextScores


class EpochsOnStderr(EpochLines):
    """Stdout is for the figures."""

    def on_train_batch_end(self, *args: Any, **options: Any) -> None:
        with redirect_stdout(sys.stderr):
            super().on_train_batch_end(*args, **options)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        with redirect_stdout(sys.stderr):
            super().on_train_epoch_end(trainer, pl_module)


def corrected_lines(folder: str | Path, any_image: bool = False) -> dict[str, list[Line]]:
    """The lines with a text in `folder`, by split. Raises as `list_lines`, and UserError for fewer than `LEAST_LINES`."""
    lines = list_lines(folder, any_image=any_image)
    if len(lines) < LEAST_LINES:
        raise UserError(
            f"{folder} holds {len(lines)} corrected lines, too few to train and to measure: correct {LEAST_LINES - len(lines)} more",
            "lines.too_few",
        )
    by_split = {split: [line for line in lines if line.split == split] for split in SPLITS}
    for split, found in by_split.items():
        if not found:
            raise UserError(
                f"{folder} has no lines in its {split} split: name some in manifest.tsv, or remove that file",
                "lines.no_split",
            )
    return by_split


def epochs_for(lines: int) -> int:
    """How often so many training lines are seen."""
    least, most = EPOCHS
    return min(most, max(least, round(PASSES / lines)))


def adapt_recognizer(cfg: DictConfig, base: Weights, output: Path) -> Adaptation:
    """Trains an adapter of `base` on the lines of `cfg.data.path`, and writes its folder, with its figures in `FIGURES`.

    cfg: of conf/experiment/ocr_adapter.yaml. Its model, adapter.base and trainer.max_epochs are set here.

    Raises UserError for a plain base, whose layers no adapter of that experiment fits, and as `corrected_lines` and
    `gcsa.training.run.train`; nothing is written then.
    """
    if not base.architecture.startswith("gcsa_"):
        raise UserError(
            f"{base.source} is a plain network, which has no adapters: train all of it by python train.py experiment=ocr_ctc "
            f"model={base.architecture} adapter=full adapter.base={base.source} data.path=..., or take gcsa_ocr_tiny.print",
            "adapter.plain_network",
        )
    lines = corrected_lines(cfg.data.path, cfg.data.any_image)
    _fit_to(cfg, base, len(lines["train"]))
    counts = {split: len(found) for split, found in lines.items()}
    before = read_scores(make_predictor(base), lines["test"])
    print(
        f"{counts['train']} lines train, {counts['val']} choose the epoch, {counts['test']} measure; CER before {before.cer:.1%}",
        file=sys.stderr,
    )
    output.resolve().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".gcsa-", dir=output.resolve().parent) as run:
        with redirect_stdout(StringIO()):  # names files that are gone at the end
            train(Task(), cfg, Path(run))
        adapter = Path(run) / "adapter"
        found = Adaptation(counts, before, read_scores(make_predictor(base, adapter), lines["test"]))
        content = {"base": base.source, **asdict(found), "commit": git_commit(), "machine": machine()}
        write_json(adapter / FIGURES, content)
        with replacing_folder(output) as folder:
            shutil.copytree(adapter, folder, dirs_exist_ok=True)
    return found


def read_scores(predictor: Predictor, lines: Sequence[Line]) -> TextScores:
    """How upright `lines` are read. Raises ValueError for a line that cannot be read."""
    reader: Any = predictor.fold()
    readings = reader.read_lines([partial(read_line, line, reader.network.height) for line in lines], (), "upright")
    for reading in readings:
        if isinstance(reading, BaseException):
            raise reading
    return text_scores([reading.text for reading in readings], [line.text for line in lines])


def _fit_to(cfg: DictConfig, base: Weights, train_lines: int) -> None:
    """The options of the base, and the length of a training on `train_lines`."""
    options = dict(base.options)
    with open_dict(cfg):
        cfg.data.height = options.pop("height", cfg.data.height)
        cfg.model = OmegaConf.merge(cfg.model, options)
        cfg.adapter.base = base.source
        cfg.trainer.max_epochs = epochs_for(train_lines)
        cfg.callbacks.last = None  # a run that is stopped cannot be resumed: its folder goes
        cfg.callbacks.progress = {"_target_": f"{__name__}.{EpochsOnStderr.__name__}"}
