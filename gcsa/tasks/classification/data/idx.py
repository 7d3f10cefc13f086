"""MNIST's IDX files, read from the .gz as it is: nothing is unpacked to disk.

Format: http://yann.lecun.com/exdb/mnist, a big-endian header (0, 0, 8 for uint8, number of dimensions,
sizes), then the values.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gcsa.data.storage import damaged


def find_idx(folder: Path, stem: str) -> Path:
    """`folder/stem` where it is unpacked, else `folder/stem.gz`."""
    plain = folder / stem
    return plain if plain.exists() else folder / f"{stem}.gz"


def read_idx(path: Path, shape: tuple[int, ...], name: str) -> Tensor:
    """The uint8 tensor of `shape` in an IDX file, packed or not, of the data set called `name`.

    Raises:
        ValueError: not an IDX file of that shape, truncated or otherwise damaged.
    """
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    expected = len(header) + math.prod(shape)
    try:
        # One byte more than there should be tells a file that is too long, however much a small .gz unpacks to.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(expected + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, error, name) from error
    if not data.startswith(header):
        raise damaged(path, f"its header is not that of uint8 values of shape {shape}", name)
    if len(data) != expected:
        held = f"more than {expected}" if len(data) > expected else len(data)
        raise damaged(path, f"{held} bytes where its header says {expected}", name)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape).copy())


def check_idx(path: Path, shape: tuple[int, ...], name: str) -> None:
    """Raise the ValueError of `read_idx` where the ends of the file show it already; the values are not read."""
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
    expected = len(header) + int(np.prod(shape))
    try:
        with path.open("rb") as file:
            length = file.seek(0, 2)
            if path.suffix == ".gz":  # whose last four bytes are the length of what it holds
                file.seek(max(0, length - 4))
                length = int.from_bytes(file.read(4), "little")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(len(header))
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, error, name) from error
    if start != header or length != expected:
        raise damaged(path, f"it is not a file of uint8 values of shape {shape}", name)


def read_idx_pair(images: Path, labels: Path, count: int, name: str) -> tuple[Tensor, Tensor]:
    """Images uint8 (count, 1, 28, 28) and labels int64 (count,)."""
    return read_idx(images, (count, 28, 28), name).unsqueeze(1), read_idx(labels, (count,), name).long()
