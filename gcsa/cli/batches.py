"""Many images through a classifier, or a part of it: what cannot be read is listed, and the others are answered."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import nn

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.images.prepare import MOST_NUMBERS, Prepare
from gcsa.images.reader import image_size
from gcsa.images.slides import has_levels

MOST_PIXELS = 16**2
"""How many times the pixels of the network's input an image may have: of more, the network would see a thumbnail."""
CUT = "cut it into patches of that size"


def answer_all(
    network: nn.Module, preprocess: Prepare, images: Sequence[Path], batch_size: int, instead: str = CUT
) -> tuple[list[Array], list[str], list[str]]:
    """What `network` gives (n, D) for batches of the images that can be read, of at most `batch_size` images and `MOST_NUMBERS`
    numbers, the names of the images, and a sentence for each other image. A slide, and an image above `MOST_PIXELS`, is none that the
    network sees whole: `instead` says what to do with it. How many had another size than the network's is said on stderr. The bar is shown on a terminal only."""
    rows, names, failed, resized = [], [], [], 0
    console = Console(stderr=True)
    batch_size = max(1, min(batch_size, MOST_NUMBERS // (len(preprocess.mean) * preprocess.size**2)))
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        evaluation_mode(network) as where,
    ):
        task = progress.add_task("images", total=len(images))
        for start in range(0, len(images), batch_size):
            batch = []
            for path in images[start : start + batch_size]:
                try:
                    str(path).encode()
                    size = _checked_size(path, preprocess.size, instead)
                    batch.append(preprocess(path))
                    names.append(str(path))
                    resized += size != (preprocess.size, preprocess.size)
                except UnicodeEncodeError:
                    failed.append(f"{str(path)!a} has a name that is not UTF-8: rename it")
                except ValueError as error:
                    failed.append(str(error))
                except MemoryError:
                    failed.append(f"{path}: not enough memory: cut the image")
                progress.advance(task)
            if batch:
                rows.append(network(torch.stack(batch).to(where)).float().cpu().numpy())
    if resized:
        what = "they are padded to a square and resized" if preprocess.pad else "their centre square is resized"
        side = preprocess.size
        print(f"{resized} of {len(images)} images are not {side} x {side} pixels: {what}", file=sys.stderr)
    return rows, names, failed


def _checked_size(path: Path, side: int, instead: str) -> tuple[int, int]:
    """Width and height of an image. Raises UserError for one that is too large to be seen as a square of `side` pixels."""
    if has_levels(path):
        raise UserError(f"{path} is a slide or a pyramid, of which the network would see a thumbnail: {instead}")
    width, height = image_size(path)
    if width * height > MOST_PIXELS * side**2:
        raise UserError(f"{path} holds {height} x {width} pixels, and the network sees {side} x {side}: {instead}")
    return width, height
