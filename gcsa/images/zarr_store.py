"""The files of an OME-Zarr image, which somebody else may have made: only regular files in its folder, and chunks of the size that they should be.

Imported by `ome_zarr` alone, when an image is opened: zarr is an extra.
"""

from __future__ import annotations

import bz2
import lzma
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from zarr.abc.store import RangeByteRequest
from zarr.storage import LocalStore

from gcsa.images.pixels import Refused

METADATA_BYTES = 1 << 26
"""Of the largest file that is no chunk."""
SLACK = 1 << 16
"""Bytes that a chunk may have beside its numbers: headers of codecs, of checksums and of the index of a shard."""
NO_CHUNK = 2**64 - 1
"""In the index of a shard: the chunk holds one value only."""
STREAMS: dict[str, Callable[[], Any]] = {
    "zlib": zlib.decompressobj,
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "bz2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
}
"""Codecs that do not say how much they hold."""


class ArrayFiles(NamedTuple):
    """Bytes of the numbers in a file, a chunk or a shard of several, and in a chunk; the codec that packs a chunk, if one does; where in a
    shard its index stands, and how the numbers in it."""

    file_bytes: int
    chunk_bytes: int
    codec: str | None
    index_first: bool = False
    index_type: str = "<u8"
    index_end: int = 4
    """Bytes behind the numbers of the index: of its checksum."""

    @property
    def in_shards(self) -> bool:
        return self.file_bytes > self.chunk_bytes

    @property
    def index_bytes(self) -> int:
        """Of a shard."""
        return 16 * (self.file_bytes // self.chunk_bytes) + self.index_end

    def places(self, shard: bytes) -> list[tuple[int, int]]:
        """The first byte and the length of each chunk in a shard, as its index holds them."""
        index = shard[: self.index_bytes] if self.index_first else shard[-self.index_bytes :]
        count = max(0, len(index) - self.index_end) // 16
        numbers = np.frombuffer(index, self.index_type, 2 * count).reshape(-1, 2).tolist()
        return [(first, length) for first, length in numbers if first != NO_CHUNK]


class CheckedStore(LocalStore):
    """A folder that is only read.

    Attributes:
        arrays: what is known of each array, by its path; missing: the first chunk that was asked for and not there, which zarr fills with
            one value.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_only=True)
        self.arrays: dict[str, ArrayFiles] = {}
        self.missing: str | None = None

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """As `LocalStore.get`. Raises Refused for what is no regular file in the folder, and for a chunk that is too large."""
        array = None
        if not key.rpartition("/")[2].startswith((".z", "zarr.json")):
            array = next((array for path, array in self.arrays.items() if key.startswith(f"{path}/")), None)
        size, most = self._size(key), METADATA_BYTES if array is None else array.file_bytes + SLACK
        if size is None:
            self.missing = self.missing or (None if array is None else key)
            return None
        if size > most:
            raise Refused(
                f"has the file {key} of {size} bytes, of which at most {most} are expected: it is damaged", "zarr.size"
            )
        in_part = isinstance(byte_range, RangeByteRequest)  # a chunk of a shard, or its index at the start
        if in_part:
            _check_inside(key, byte_range.end, size)
        found = await super().get(key, prototype, byte_range)
        if array is None or array.codec is None or found is None:
            return found
        if in_part and array.index_first and (byte_range.start, byte_range.end) == (0, array.index_bytes):
            return found
        if in_part == array.in_shards:
            _check_unpacked(key, found.to_bytes(), array.codec, array.chunk_bytes + SLACK)
        elif byte_range is None:  # a whole shard
            shard = found.to_bytes()
            for first, length in array.places(shard):
                _check_inside(key, first + length, size)
                _check_unpacked(key, shard[first : first + length], array.codec, array.chunk_bytes + SLACK)
        return found

    def _size(self, key: str) -> int | None:
        """Bytes of a file, None where there is none."""
        path = self.root / key
        try:
            about = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISDIR(about.st_mode):
            return None
        if not stat.S_ISREG(about.st_mode):
            raise Refused(f"has {key}, which is no regular file", "zarr.no_file")
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise Refused(f"has {key}, which is a link out of its folder: copy the file", "zarr.outside")
        return about.st_size


def _check_inside(key: str, end: int, size: int) -> None:
    if end > size:
        raise Refused(f"has the file {key} of {size} bytes, and a chunk in it beyond: it is damaged", "zarr.size")


def _check_unpacked(key: str, data: bytes, codec: str, most: int) -> None:
    """Raises Refused where a chunk becomes larger than `most` bytes when `codec` decodes it."""
    if codec in STREAMS:
        size = _stream_size(data, STREAMS[codec], most)
    else:
        size = _stated_size(data, codec)
    if size > most:
        raise Refused(
            f"has the chunk {key}, which is larger than {most} bytes when decoded: it is damaged", "zarr.size"
        )


def _stated_size(data: bytes, codec: str) -> int:
    """The size that decoding allocates, which the data state; 0 where they need not be decoded."""
    if codec == "blosc":
        return int.from_bytes(data[4:8], "little")
    if codec == "lz4":
        return int.from_bytes(data[:4], "little")
    if codec == "zstd" and len(data) > 4:  # RFC 8878, section 3.1.1.1
        flags = data[4]
        single, width = flags >> 5 & 1, (0, 2, 4, 8)[flags >> 6]
        start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
        if not width and not single:
            raise Refused("has chunks that do not say their size: save it anew", "zarr.size")
        stated = int.from_bytes(data[start : start + (width or 1)], "little")
        return stated + 256 if width == 2 else stated
    return 0


def _stream_size(data: bytes, make: Callable[[], Any], most: int) -> int:
    """The size of decoded data, a part at a time, up to the first that is above `most`."""
    size = 0
    while data and size <= most:
        stream = make()
        part = stream.decompress(data, 1 << 20)
        while part and size <= most:
            size += len(part)
            rest = getattr(stream, "unconsumed_tail", b"")
            part = b"" if stream.eof else stream.decompress(rest, 1 << 20)
        if not stream.eof:
            break
        data = stream.unused_data
    return size
