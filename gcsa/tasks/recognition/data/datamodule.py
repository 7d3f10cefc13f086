"""Text lines for Lightning: read once, resized to one height and a few widths, in batches of one width."""

import logging
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from PIL import Image
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.paths import expanded
from gcsa._utils.validation import check_bool, check_int, check_loading
from gcsa.images.reader import image_size
from gcsa.tasks.loading import BatchLoader
from gcsa.tasks.recognition.data.augment import LineAugment
from gcsa.tasks.recognition.data.batches import LineBatch, LineSet, WidthSampler, steps_needed
from gcsa.tasks.recognition.data.charset import Charset, describe, display_order
from gcsa.tasks.recognition.data.line_image import Line, fit_bytes, read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.data.typeset import list_fonts, set_lines
from gcsa.tasks.splits import limited
from gcsa.tasks.storage import data_root

MAX_HEIGHT = 512

log = logging.getLogger(__name__)


class LinesDataModule(pl.LightningDataModule):
    """Text lines in three splits; batches are `LineBatch`es of one width.

    The charset is that of the training texts, behind the characters of a given one. Training lines whose text is too
    long for CTC to align with the recogniser's time steps, one in `pixels_per_step`, are left out. Characters of other
    splits outside the charset stay in their texts, where they count as errors. Both are logged. The test split is read only
    for `setup("test")` or `setup(None)`.

    Args:
        root: folder of the data sets; default GCSA_DATA, else ./data.
        path: a folder of lines or of XML pages, see `list_lines`; or
        script: the name of one in `root`/ocr_lines.
        height: pixels that lines are scaled to.
        step: their widths are multiples of it.
        batch_size: lines a batch and process, fewer where a width has no more.
        num_workers: processes that gather batches; 0 gathers in the training process.
        seed: of the order of the training lines, their augmentation and `limit_train`.
        limit_train: train on a fraction (float in (0, 1]) or a count (int) of the lines.
        charset: to continue with, its characters keep their classes.
        short_first: the first epoch goes from short to long lines.
        any_image: read images that a manifest or an XML page names also where they lie outside of the folder.
        augment: arguments of `gcsa.tasks.recognition.data.augment.LineAugment`, for training batches only.
        fonts: a folder of fonts; each training text is also set once in one of them, see `gcsa.tasks.recognition.data.typeset`.
        pixels_per_step: width of a time step of the recogniser.

    Raises:
        ValueError: a bad argument, at once; lines that cannot be read, in `setup`.
        FileNotFoundError: a folder that is not there, in `charset` or `setup`.
    """

    name = "lines"

    def __init__(
        self,
        *,
        root: str | os.PathLike[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        script: str | None = None,
        height: int = 40,
        step: int = 8,
        batch_size: int = 16,
        num_workers: int = 0,
        seed: int = 0,
        limit_train: float | int | None = None,
        charset: Charset | str | None = None,
        short_first: bool = True,
        any_image: bool = False,
        augment: Mapping[str, Any] | None = None,
        fonts: str | os.PathLike[str] | None = None,
        pixels_per_step: float = 4,
    ) -> None:
        super().__init__()
        check_int("height", height, 1, MAX_HEIGHT)
        check_int("step", step, 1, height)
        check_loading(batch_size=batch_size, num_workers=num_workers, seed=seed, limit_train=limit_train)
        check_bool("short_first", short_first)
        check_bool("any_image", any_image)
        if height % step:
            raise UserError(f"height={height} must be a multiple of step={step}")
        if charset is not None and not isinstance(charset, Charset | str):
            raise UserError(f"charset={charset!r:.80} must be one text of all characters")
        if (path is None) == (script is None):
            raise UserError("data=lines needs either data.script=<a folder in ocr_lines> or data.path=<your folder>")
        self.folder = data_root(root) / "ocr_lines" / str(script) if path is None else expanded(path)
        self.script, self.height, self.step = script, height, step
        self.batch_size, self.num_workers, self.seed = batch_size, num_workers, seed
        self.limit_train, self.short_first, self.any_image = limit_train, short_first, any_image
        self.augment = None if augment is None else LineAugment.from_config(augment)
        self.fonts = [] if fonts is None else list_fonts(expanded(fonts))
        self._given = Charset(charset) if isinstance(charset, str) else charset or Charset("")
        self.pixels_per_step = pixels_per_step
        self._splits: dict[str, LineSet] = {}

    @cached_property
    def charset(self) -> Charset:
        """What the recogniser must be able to write; reads the training texts, not the images."""
        return self._given.extended(display_order(line.text) for line in (*self._train_lines, *self._set))

    def setup(self, stage: str | None = None) -> None:
        """Read what `stage` needs: "fit", "validate", "test", or None for all; once only."""
        if stage in ("fit", "validate", None) and "train" not in self._splits:
            images = [*map(self._fitted, self._train_lines), *self._set.values()]
            lines = [*self._train_lines, *self._set]
            self._splits["train"] = self._alignable(LineSet(images, lines, self.charset, self.augment))
            self._splits["val"] = self._held_out("val")
        if stage in ("test", None) and "test" not in self._splits:
            self._splits["test"] = self._held_out("test")

    def check_test(self) -> None:
        """Opens the transcriptions and, as far as their headers, the images of the test split, so that a long training
        does not end on a damaged one. Raises as `setup`."""
        for image in {line.image for line in self.listed("test")}:
            image_size(image)

    def listed(self, *splits: str) -> list[Line]:
        """The lines of `splits` with their texts; reads no image. Raises as `setup`."""
        if self.script is not None and not self.folder.is_dir():
            there = sorted(path.name for path in self.folder.parent.glob("*") if path.is_dir())
            if not there:
                raise FileNotFoundError(f"{self.folder} not found: point data.root or GCSA_DATA to its data sets")
            raise UserError(f"unknown script {self.script!r} in {self.folder.parent}: choose one of {', '.join(there)}")
        lines = list_lines(self.folder, splits, self.any_image)
        if not lines:
            raise UserError(f"{self.folder} holds no lines with text in its {', '.join(splits)} split")
        return lines

    def lines(self, split: str) -> LineSet:
        """The split "train", "val" or "test", after `setup`."""
        if split not in self._splits:
            raise UserError(f"the {split} split is not read yet: call setup() first")
        return self._splits[split]

    def train_dataloader(self) -> BatchLoader[LineBatch]:
        """Shuffled by (seed, epoch), augmented."""
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> BatchLoader[LineBatch]:
        """From narrow to wide."""
        return self._loader("val")

    def test_dataloader(self) -> BatchLoader[LineBatch]:
        """From narrow to wide."""
        return self._loader("test")

    @cached_property
    def _train_lines(self) -> list[Line]:
        lines = self.listed("train")
        if self.limit_train is None:
            return lines
        rows = limited(torch.zeros(len(lines), dtype=torch.long), self.limit_train, self.seed)
        return [lines[row] for row in rows.sort().values.tolist()]

    @cached_property
    def _set(self) -> dict[Line, Tensor]:
        """The training texts as they are set in `fonts`, and their images."""
        texts = [line.text for line in self._train_lines] if self.fonts else []
        return {
            Line(Path(f"set line {number}"), text, "train"): self._fitted(image)
            for number, (text, image) in enumerate(set_lines(texts, self.fonts, self.seed), 1)
        }

    def _fitted(self, line: Line | Image.Image) -> Tensor:
        return fit_bytes(read_line(line, self.height), self.height, self.step, upright=True)

    def _alignable(self, whole: LineSet) -> LineSet:
        needed = map(steps_needed, whole.targets)
        rows = [row for row, steps in enumerate(needed) if steps * self.pixels_per_step <= whole.widths[row]]
        if not rows:
            raise UserError(
                f"{self.folder}: every text is too long for its image, one character in {self.pixels_per_step:g} pixels"
            )
        if len(rows) < len(whole):
            log.warning(
                "%s: %d of %d training lines hold more text than CTC can align with one step in %g pixels of width "
                "and are left out",
                self.folder,
                len(whole) - len(rows),
                len(whole),
                self.pixels_per_step,
            )
        images, lines = [whole.images[row] for row in rows], [whole.lines[row] for row in rows]
        return LineSet(images, lines, self.charset, whole.augment)

    def _held_out(self, split: str) -> LineSet:
        lines = self.listed(split)
        if unknown := self.charset.unknown(line.text for line in lines):
            counts = ", ".join(f"{describe(character)} {count}x" for character, count in unknown.most_common())
            log.warning("%s: the %s split holds characters outside the charset: %s", self.folder, split, counts)
        return LineSet([self._fitted(line) for line in lines], lines, self.charset)

    def _loader(self, split: str, *, shuffle: bool = False) -> BatchLoader[LineBatch]:
        lines = self.lines(split)
        sampler = WidthSampler(
            lines.widths,
            self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            short_first=self.short_first,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
        )
        return BatchLoader(lines, sampler, num_workers=self.num_workers)
