"""A user's own images, named in a table with what is to be told of each: its class, several labels, or numbers."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.paths import composed, existing
from gcsa._utils.tables import TextTable
from gcsa._utils.validation import check_choice, listed, shown
from gcsa.data.splits import SPLIT_FOLDERS
from gcsa.tasks.classification.data.base import Split
from gcsa.tasks.classification.data.image_folder import Files, ImageFolder, divided
from gcsa.tasks.classification.targets import TARGETS, Classes, Labels, Numbers


class Row(NamedTuple):
    """One image, the texts in its columns of labels, its split ("all" where no column says it), and its place for messages."""

    file: Path
    labels: tuple[str, ...]
    split: str
    where: str


class Table(ImageFolder):
    """The images of a CSV file with a header: a row has the path of an image, from the folder of the file, and its labels.

    A column for the split says train, val or test (any name in `SPLIT_FOLDERS`). Without it, or without val, images are held out
    as in `ImageFolder`, whose arguments these are, too; only where `target` is "class" are the splits balanced. Spaces around
    a value do not count.

    Args:
        path: the CSV file, in UTF-8.
        target: "class", one class for each image; "multilabel", columns of 0 and 1; or "regression", columns of numbers.
        image: the name of the column of paths.
        label: the name of the column of classes, or a list of the names of columns.
        split: the name of the column of the split; None takes "split" where there is one.

    Raises:
        ValueError: a column or a value that is missing or does not fit the target, a split of another name, an image twice.
        FileNotFoundError: no such file, or no such image.
    """

    name = "table"
    what = "a CSV file of images and their labels"

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        target: str = Classes.kind,
        image: str = "image",
        label: str | Sequence[str] = "label",
        split: str | None = None,
        balance: bool = False,
        **kwargs: Any,
    ) -> None:
        check_choice("data.target", target, TARGETS)
        labels = [label] if isinstance(label, str) else list(label)
        least = {Classes.kind: 1, Labels.kind: 2, Numbers.kind: 1}[target]
        if len(set(labels)) != len(labels) or len(labels) < least or (target == Classes.kind and len(labels) > 1):
            wanted = {Classes.kind: "one column", Labels.kind: "two or more columns", Numbers.kind: "columns"}[target]
            others = "; data.target=multilabel or regression takes more" if target == Classes.kind else ""
            raise UserError(
                f"data.label={shown(label)} must name {wanted} for data.target={target}{others}", "data.label"
            )
        if balance and target != Classes.kind:
            raise UserError("data.balance=true is for data.target=class: leave it out", "data.balance")
        self.columns, self.kind = (image, labels, split), target
        super().__init__(path=path, balance=balance, **kwargs)

    def list_splits(self) -> tuple[tuple[str, ...], dict[str, Files]]:
        rows = self._rows()
        splits = {row.split for row in rows}
        if "all" not in splits and ("test" not in splits or splits == {"val", "test"}):
            raise UserError(
                f"{self.path} holds the splits {listed(sorted(splits))} only: it needs train and test, or test alone",
                "table.splits",
            )
        names, labels = self._classes(rows) if self.kind == Classes.kind else self._numbers(rows)
        chosen = {split: [place for place, row in enumerate(rows) if row.split == split] for split in splits}
        parts = {split: ([rows[place].file for place in places], labels[places]) for split, places in chosen.items()}
        parts = divided(parts, self.path)
        if self.kind == Labels.kind:
            self.target = Labels()
        elif self.kind == Numbers.kind:
            self.target = self._scale(names, parts.get("train", parts["test"])[1])
        return names, parts

    def _check(self, split: Split) -> None:
        super()._check(split)
        if self.kind == Numbers.kind and len(split.rows) < 2:
            raise UserError(f"{split.source} holds one image: numbers are measured on two or more", "table.one_row")

    def _classes(self, rows: Sequence[Row]) -> tuple[tuple[str, ...], Tensor]:
        names = tuple(sorted({row.labels[0] for row in rows}))
        if len(names) < 2:
            raise UserError(
                f"{self.path} holds one class only, {shown(names[0])}: classification needs at least two",
                "table.one_class",
            )
        return names, torch.tensor([names.index(row.labels[0]) for row in rows])

    def _numbers(self, rows: Sequence[Row]) -> tuple[tuple[str, ...], Tensor]:
        names = self.columns[1]
        values = [[self._number(text, name, row) for name, text in zip(names, row.labels, strict=True)] for row in rows]
        # float32 would round a number such as 20240101.
        return tuple(names), torch.tensor(values, dtype=torch.float64 if self.kind == Numbers.kind else torch.float32)

    def _number(self, text: str, column: str, row: Row) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or (self.kind == Labels.kind and value not in (0, 1)):
            wanted = "0 or 1" if self.kind == Labels.kind else "a number"
            raise UserError(f"{row.where}: its {column} is {shown(text)}, not {wanted}", "table.number", column=column)
        return value

    def _scale(self, names: Sequence[str], labels: Tensor) -> Numbers:
        deviations, means = torch.std_mean(labels.double(), 0, correction=0)
        for name, deviation in zip(names, deviations.tolist(), strict=True):
            if not deviation > 0:
                raise UserError(
                    f"{self.path}: its {name} is the same for all training images: leave it out", "table.constant"
                )
        return Numbers(tuple(means.tolist()), tuple(deviations.tolist()))

    def _rows(self) -> list[Row]:
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} is not a file: data.path must name a CSV file")
        image, labels, split = self.columns
        table = TextTable(self.path, self.path.read_bytes())
        split = "split" if split is None and "split" in table.columns else split
        places = table.places([name for name in (image, *labels, split) if name is not None])
        rows: list[Row] = []
        seen: set[Path] = set()
        for line, cells in table.rows:
            where = f"{self.path}, line {line}"
            texts = [composed(cells[place].strip()) for place in places]
            for name, text in zip((image, *labels), texts, strict=False):
                if not text:
                    raise UserError(f"{where}: its {name} is empty", "table.empty_cell")
            file = existing(self.path.parent, cells[places[0]].strip())
            if file is None:
                raise FileNotFoundError(f"{where}: there is no {self.path.parent / texts[0]}")
            if file.resolve() in seen:
                raise UserError(f"{where}: {file} is in an earlier line, too", "table.twice")
            seen.add(file.resolve())
            part = "all" if split is None else SPLIT_FOLDERS.get(texts[-1].lower())
            if part is None:
                raise UserError(
                    f"{where}: its {split} is {shown(texts[-1])}, not one of {listed(SPLIT_FOLDERS)}", "table.split"
                )
            rows.append(Row(file, tuple(texts[1 : 1 + len(labels)]), part, where))
        if not rows:
            raise UserError(f"{self.path} names no images", "table.empty")
        return rows
