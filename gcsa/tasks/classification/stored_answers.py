"""A teacher's answers that somebody stored: a table of probabilities, or features of images or of patches.

| file | content | an image is found by |
| --- | --- | --- |
| .csv | as `gcsa classify` writes it: `file`, and a column of probabilities for each class | its path, or the end of it |
| .h5 | as `gcsa embed` writes it: `features` (N, D) and `files` | the same |
| .h5 | of patches, as TRIDENT and `gcsa embed --patches` write it: `features` (N, D) and `coords` (N, 2) | its name, NAME_X_Y.png |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import h5py
import torch
from torch import Tensor

from gcsa._utils.errors import UserError
from gcsa._utils.paths import composed
from gcsa._utils.tables import TextTable
from gcsa._utils.validation import shown

STORED = (".csv", ".h5")
BESIDE = ("file", "label", "confidence", "ood_score")
"""Columns that `gcsa classify` writes beside the classes."""
LEAST = 1e-7
"""A probability that is stored as 0 has rounded digits."""


def read_answers(file: Path, pictures: Sequence[Path | Tensor], class_names: Sequence[str], of: str) -> Tensor:
    """The stored answers for these image files, (N, K) log-probabilities of `class_names` or (N, D) features, float32.

    Raises FileNotFoundError for a missing file, and UserError for one that is damaged, has no answer for an image, or is of others.
    """
    _check_there(file)
    if (file.suffix == ".csv") != (of == "scores"):
        raise UserError(f"task.teacher.of={of} is not what {file} holds: .csv holds scores, .h5 features", "teacher.of")
    paths = [picture for picture in pictures if isinstance(picture, PurePath)]
    if len(paths) < len(pictures):
        raise UserError(
            f"{file} names its images, and the data have no files: name a network as task.teacher.source",
            "teacher.no_files",
        )
    names, rows = _read_csv(file, class_names) if of == "scores" else _read_h5(file)
    by_name = {PurePath(composed(name)).parts[::-1]: row for row, name in enumerate(names)}
    found = [_row_of(path, by_name, file) for path in paths]
    return rows[found]


def stored_width(file: Path) -> int:
    """Features of an image in an .h5 file. Raises as `read_answers`."""
    _check_there(file)
    return _read_h5(file)[1].shape[1]


def stored_classes(file: Path) -> tuple[str, ...]:
    """The classes of a .csv file, in the order of its columns. Raises as `read_answers`."""
    _check_there(file)
    return tuple(name for name in TextTable(file, file.read_bytes()).columns if name not in BESIDE)


def _check_there(file: Path) -> None:
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}")


def _row_of(path: Path, by_name: dict[tuple[str, ...], int], file: Path) -> int:
    """The row of the image `path`: of its path, or of the longest end of it that the file names."""
    parts = Path(composed(str(path))).parts[::-1]
    for length in range(len(parts), 0, -1):
        if (row := by_name.get(parts[:length])) is not None:
            return row
    patch = path.stem.rsplit("_", 2)
    if len(patch) == 3 and (row := by_name.get(("_".join(patch[1:]),))) is not None:
        return row
    raise UserError(f"{file} has no answer for {path}: answer all images, or leave that one out", "answers.missing")


def _read_csv(file: Path, class_names: Sequence[str]) -> tuple[list[str], Tensor]:
    table = TextTable(file, file.read_bytes())
    names, *columns = table.places(["file", *class_names])
    rows = []
    for number, cells in table.rows:
        try:
            values = [float(cells[column]) for column in columns]
        except ValueError as error:
            raise UserError(
                f"{file} line {number}: {shown(cells)} has no number for each class", "answers.row", number=number
            ) from error
        if not all(0 <= value <= 1 for value in values) or abs(sum(values) - 1) > 0.02:
            raise UserError(
                f"{file} line {number}: its values are no probabilities, which sum to 1", "answers.no_probabilities"
            )
        rows.append(values)
    if not rows:
        raise UserError(f"{file} holds no answers", "answers.empty")
    return [cells[names] for _, cells in table.rows], torch.tensor(rows).clamp_min(LEAST).log()


def _read_h5(file: Path) -> tuple[list[str], Tensor]:
    try:
        with h5py.File(file) as opened:
            rows = torch.from_numpy(opened["features"][...]).float()
            if "files" in opened:
                names = [name.decode() for name in opened["files"][...]]
            else:
                names = [f"{x}_{y}" for x, y in opened["coords"][...].reshape(-1, 2).tolist()]
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise UserError(
            f"{file} holds no features with the names or places of their images ({error})", "answers.unreadable"
        ) from error
    rows = rows.flatten(0, -2)
    if len(rows) != len(names) or not rows.isfinite().all():
        raise UserError(
            f"{file} is damaged: it has {len(names)} names and {len(rows)} rows, which must be finite",
            "answers.damaged",
        )
    return names, rows
