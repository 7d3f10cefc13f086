"""Tables of text that users wrote: a header, then rows, whose cells fit it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from gcsa._utils.errors import UserError
from gcsa._utils.paths import composed
from gcsa._utils.validation import listed, shown


class TextTable:
    """The table in the bytes of a file in UTF-8, with a header.

    Args:
        path: for messages.
        content: of the file.
        delimiter: between cells. Cells are quoted as in CSV, but not where it is a tab.

    Raises:
        UserError: another encoding, a row with more cells than the header, such as of a decimal comma.

    Attributes:
        columns: the header, in NFC.
        rows: the line of each row, and its cells, as many as there are columns; cells that are missing at its end are empty.
    """

    def __init__(self, path: Path, content: bytes, delimiter: str = ",") -> None:
        self.path = path
        self.rows: list[tuple[int, list[str]]] = []
        tabs = delimiter == "\t"
        try:
            text = StringIO(content.decode("utf-8-sig"), newline="")
            reader = csv.reader(
                text,
                delimiter=delimiter,
                quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL,
                skipinitialspace=not tabs,
            )
            self.columns = [*map(composed, next(reader, []))]
            for cells in filter(None, reader):
                if len(cells) > len(self.columns):
                    raise UserError(
                        f"{path}, line {reader.line_num} has {len(cells)} cells under {len(self.columns)} columns: put a value "
                        "with a comma in quotes, and write numbers with a point",
                        "table.cells",
                        line=reader.line_num,
                    )
                self.rows.append((reader.line_num, cells + [""] * (len(self.columns) - len(cells))))
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{path} is no table in UTF-8 ({error})", "table.unreadable") from error

    def places(self, names: Sequence[str]) -> list[int]:
        """Where the columns `names` stand. Raises UserError for one that is missing, or stands twice."""
        for name in names:
            if composed(name) not in self.columns:
                has = listed(self.columns) if self.columns else "no header"
                raise UserError(f"{self.path} has no column {shown(name)}: it has {has}", "table.column", column=name)
            if self.columns.count(composed(name)) > 1:
                raise UserError(
                    f"{self.path} has the column {shown(name)} twice: leave one out", "table.column_twice", column=name
                )
        return [self.columns.index(composed(name)) for name in names]
