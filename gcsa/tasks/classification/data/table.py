"""A user's own images, named in a table with the class of each."""

import csv
import os
from pathlib import Path
from typing import Any

import torch

from gcsa._utils.errors import UserError
from gcsa._utils.validation import listed, shown
from gcsa.tasks.classification.data.image_folder import SPLIT_FOLDERS, Files, ImageFolder, divided


class Table(ImageFolder):
    """The images of a CSV file with a header: a row has the path of an image, from the folder of the file, and its class.

    A column for the split says train, val or test (any name in `SPLIT_FOLDERS`). Without it, or without val, images are held out
    as in `ImageFolder`, whose arguments these are, too.

    Args:
        path: the CSV file, in UTF-8.
        image, label: the names of its columns.
        split: the name of the column of the split; None takes "split" where there is one.

    Raises:
        ValueError: a column or a value that is missing, a split of another name, fewer than two classes, an image twice.
        FileNotFoundError: no such file, or no such image.
    """

    name = "table"
    what = "a CSV file of images and their classes"

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        image: str = "image",
        label: str = "label",
        split: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.columns = image, label, split
        super().__init__(path=path, **kwargs)

    def list_splits(self) -> tuple[tuple[str, ...], dict[str, Files]]:
        rows = self._rows()
        classes = tuple(sorted({label for _, label, _ in rows}))
        if len(classes) < 2:
            raise UserError(f"{self.path} holds one class only, {shown(classes[0])}: classification needs at least two")
        parts: dict[str, tuple[list[Path], list[int]]] = {}
        for file, label, split in rows:
            files, labels = parts.setdefault(split, ([], []))
            files.append(file)
            labels.append(classes.index(label))
        if "all" not in parts and ("test" not in parts or set(parts) == {"val", "test"}):
            raise UserError(
                f"{self.path} holds the splits {listed(sorted(parts))} only: it needs train and test, or test alone"
            )
        return classes, divided(
            {name: (files, torch.tensor(labels)) for name, (files, labels) in parts.items()}, self.path
        )

    def _rows(self) -> list[tuple[Path, str, str]]:
        """File, class and split of each row; the split is "all" where there is no such column."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} is not a file: data.path must name a CSV file")
        image, label, split = self.columns
        rows: list[tuple[Path, str, str]] = []
        seen: set[Path] = set()
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as stream:
                table = csv.DictReader(stream, skipinitialspace=True)
                header = list(table.fieldnames or ())
                split = "split" if split is None and "split" in header else split
                for column in filter(None, (image, label, split)):
                    if column not in header:
                        raise UserError(
                            f"{self.path} has no column {shown(column)}: it has {listed(header) or 'no header'}"
                        )
                for row in table:
                    where = f"{self.path}, line {table.line_num}"
                    name, label_name = (str(row[column] or "").strip() for column in (image, label))
                    if not name or not label_name:
                        raise UserError(f"{where}: its {label if name else image} is empty")
                    file = self.path.parent / name
                    if not file.is_file():
                        raise FileNotFoundError(f"{where}: there is no {file}")
                    if file in seen:
                        raise UserError(f"{where}: {file} is in an earlier line, too")
                    seen.add(file)
                    part = "all" if split is None else SPLIT_FOLDERS.get(str(row[split]).strip().lower())
                    if part is None:
                        raise UserError(
                            f"{where}: its {split} is {shown(row[split])}, not one of {listed(SPLIT_FOLDERS)}"
                        )
                    rows.append((file, label_name, part))
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{self.path} is no CSV file in UTF-8 ({error})") from error
        if not rows:
            raise UserError(f"{self.path} names no images")
        return rows
