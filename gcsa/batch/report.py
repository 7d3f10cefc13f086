"""The table of --report: a row for each item."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import UserError
from gcsa.batch.work import Result

COLUMNS = ("file", "status", "seconds", "confidence", "message")
"""Of a report, before those of the command."""


class Report:
    """A table of the items, a row each, for a spreadsheet: rows are added as items are done, and written in their order at the end."""

    def __init__(self, path: str, columns: Sequence[str], found: Iterable[tuple[Path, float, Result]]) -> None:
        """found: what is done already."""
        self.path, self.columns = Path(path), [*COLUMNS, *columns]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write(found)
        self.stream = self.path.open("a", encoding="utf-8", newline="")

    def add(self, *found: Any) -> None:
        """The row of an item: its file, seconds and result."""
        csv.writer(self.stream, lineterminator="\n").writerow(self._row(*found))
        self.stream.flush()

    def close(self, found: Iterable[tuple[Path, float, Result]]) -> None:
        """Writes all rows anew."""
        self.stream.close()
        self._write(found)

    def _write(self, found: Iterable[tuple[Path, float, Result]]) -> None:
        with replacing(self.path) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(self._row(*one) for one in found)

    def _row(self, file: Path, seconds: float, result: Result) -> list[str]:
        status = "failed" if not result.finished else "partly" if result.failed else "done"
        name = os.fsencode(file).decode(errors="backslashreplace")  # in UTF-8, which the name of a file need not be
        known = {"file": name, "status": status, "seconds": f"{seconds:.2f}", "message": "; ".join(result.failed)}
        values = known | dict(result.values)
        if isinstance(confidence := values.get("confidence"), float):
            values["confidence"] = f"{confidence:.4f}"
        return ["" if values.get(name) is None else str(values[name]) for name in self.columns]


def check_report(path: str, read: Iterable[Path], written: Iterable[Path]) -> None:
    """Raises UserError where `path` takes no file, is one that is read or `written`, or holds anything but a report."""
    target = Path(path).resolve()
    check_writable(target if target.parent.is_dir() else next(p for p in target.parents if p.exists()) / target.name)
    if any(target == file.resolve() for file in read):
        raise UserError(
            f"--report {path} is one of the inputs, and would be overwritten: name another file", "report.is_input"
        )
    if any(target == file.resolve() for file in written):
        raise UserError(f"--report {path} is where --output writes: name another file", "report.is_output")
    if target.is_file() and target.stat().st_size:
        with target.open("rb") as file:
            if not file.readline(200).startswith(",".join(COLUMNS).encode()):
                raise UserError(
                    f"--report {path} is there already, and is no report: name another file", "report.other_file"
                )
