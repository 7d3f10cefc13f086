"""Files of which no more is asked for than there is."""

from __future__ import annotations

from io import BufferedReader, FileIO
from pathlib import Path


class BoundedFile(BufferedReader):
    """A file opened for reading. Python allocates what is asked for before it reads, and a damaged file may make its decoder ask
    for 4 GiB: no more is asked for than there is."""

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path))
        self.length = path.stat().st_size

    def read(self, size: int | None = -1) -> bytes:
        rest = max(0, self.length - self.tell())
        return super().read(rest if size is None or size < 0 else min(size, rest))

    def starts_with(self, *starts: bytes) -> bool:
        return self.peek(max(map(len, starts))).startswith(starts)
