import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def shared() -> Path:
    """The folder of real data sets, or a skip."""
    folder = Path(os.environ.get("GCSA_DATA") or Path(__file__).parents[4].parent / "shared" / "data")
    if not (folder / "rotated_mnist").is_dir():
        pytest.skip(f"no real data in {folder}: set GCSA_DATA to the folder that holds them")
    return folder


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], None]:
    def write(path: Path, values: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
        data = header + values.astype(np.uint8).tobytes()
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)

    return write


@pytest.fixture
def tree() -> Callable[[Path], list[Path]]:
    """Everything below a folder: equal before and after what must not write."""
    return lambda folder: sorted(folder.rglob("*"))
