"""Text lines for Lightning: read once, resized to one height and a few widths, in batches of one width."""

import logging
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.paths import expanded
from gcsa._utils.validation import check_bool, check_choice, check_int
from gcsa.data.datamodule import SplitDataModule
from gcsa.data.identity import checksum, spaced
from gcsa.data.leaks import LEAKS, tell_leaks
from gcsa.data.loaders import BatchLoader
from gcsa.data.splits import limited
from gcsa.data.storage import data_root
from gcsa.images.reader import image_size
from gcsa.tasks.recognition.data.augment import LineAugment
from gcsa.tasks.recognition.data.batches import LineBatch, LineSet, WidthSampler, steps_needed
from gcsa.tasks.recognition.data.charset import Charset, describe, display_order
from gcsa.tasks.recognition.data.line_image import Line, fit_bytes, read_line
from gcsa.tasks.recognition.data.lines import line_files, list_lines
from gcsa.tasks.recognition.data.typeset import list_fonts, set_lines

MAX_HEIGHT = 512

log = logging.getLogger(__name__)


class LinesDataModule(SplitDataModule):
    """Text lines in three splits; batches are `LineBatch`es of one width.

    The charset is that of the training texts, behind the characters of a given one. Training lines whose text is too
    long for CTC to align with the recogniser's time steps, one in `pixels_per_step`, are left out. Characters of other
    splits outside the charset stay in their texts, where they count as errors. Both are logged.

    Args:
        root: folder of the data sets; default GCSA_DATA, else ./data.
        path: a folder of lines or of XML pages, see `list_lines`; or
        script: the name of one in `root`/ocr_lines.
        height: pixels that lines are scaled to.
        step: their widths are multiples of it.
        batch_size, num_workers, seed, limit_train: as in `SplitDataModule`; a batch is smaller where a width has no more lines.
        charset: to continue with, its characters keep their classes.
        short_first: the first epoch goes from short to long lines.
        any_image: read images that a manifest or an XML page names also where they lie outside of the folder.
        leaks: "warn" of images of lines that two splits share, or "refuse" them.
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
        leaks: str = "warn",
        augment: Mapping[str, Any] | None = None,
        fonts: str | os.PathLike[str] | None = None,
        pixels_per_step: float = 4,
    ) -> None:
        super().__init__(batch_size, num_workers, seed, limit_train)
        check_int("height", height, 1, MAX_HEIGHT)
        check_int("step", step, 1, height)
        check_bool("short_first", short_first)
        check_bool("any_image", any_image)
        if height % step:
            raise UserError(f"height={height} must be a multiple of step={step}", "height.step", height=height)
        if charset is not None and not isinstance(charset, Charset | str):
            raise UserError(f"charset={charset!r:.80} must be one text of all characters", "charset", charset=charset)
        if (path is None) == (script is None):
            raise UserError(
                "data=lines needs either data.script=<a folder in ocr_lines> or data.path=<your folder>",
                "data.script_or_path",
            )
        self.folder = data_root(root) / "ocr_lines" / str(script) if path is None else expanded(path)
        self.script, self.height, self.step = script, height, step
        check_choice("data.leaks", leaks, LEAKS)
        self.short_first, self.any_image, self.leaks = short_first, any_image, leaks
        self.augment = None if augment is None else LineAugment.from_config(augment)
        self.fonts = [] if fonts is None else list_fonts(expanded(fonts))
        self._given = Charset(charset) if isinstance(charset, str) else charset or Charset("")
        self.pixels_per_step = pixels_per_step

    @cached_property
    def charset(self) -> Charset:
        """What the recogniser must be able to write; reads the training texts, not the images."""
        return self._given.extended(display_order(line.text) for line in (*self._train_lines, *self._set))

    def make_fit(self) -> tuple[LineSet, LineSet]:
        images = [*map(self._fitted, self._train_lines), *self._set.values()]
        lines = [*self._train_lines, *self._set]
        train, val = self._alignable(LineSet(images, lines, self.charset, self.augment)), self._held_out("val")
        tell_leaks(line_files(self.folder, self.any_image), self.leaks)
        return train, val

    def make_test(self) -> LineSet:
        return self._held_out("test")

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
            raise UserError(
                f"unknown script {self.script!r} in {self.folder.parent}: choose one of {', '.join(there)}",
                "data.script",
            )
        lines = list_lines(self.folder, splits, self.any_image)
        if not lines:
            raise UserError(f"{self.folder} holds no lines with text in its {', '.join(splits)} split", "lines.none")
        return lines

    @property
    def label_names(self) -> list[str]:
        return list(self.charset.characters)

    def checksum(self, split: LineSet) -> str:
        read = spaced(len(split), max((image.nbytes for image in split.images), default=1))
        names = (f"{line.image.name} {line.text}" for line in split.lines)
        return checksum(names, (split.images[number] for number in read))

    def lines(self, split: str) -> LineSet:
        """The split "train", "val" or "test", after `setup`."""
        lines: LineSet = self.split(split)
        return lines

    def make_loader(self, split: str, *, shuffle: bool = False) -> BatchLoader[LineBatch]:
        """Lines of one width; without `shuffle` from narrow to wide."""
        lines = self.lines(split)
        return self.batches(lines, lines.widths, WidthSampler, shuffle=shuffle, short_first=self.short_first)

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
                f"{self.folder}: every text is too long for its image, one character in {self.pixels_per_step:g} pixels",
                "lines.too_long",
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
            log.warning(
                "%s: the %s split holds characters outside the charset: %s. No training line has them, so that each counts as an "
                "error: move a line with them to the train split, or write them as the training lines do",
                self.folder,
                split,
                counts,
            )
        return LineSet([self._fitted(line) for line in lines], lines, self.charset)
