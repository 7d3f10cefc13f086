"""Many images through a classifier, or a part of it: what cannot be read is listed, and the others are answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch import Tensor, nn

from gcsa._utils.arrays import Array
from gcsa.evaluation.evaluation_mode import evaluation_mode


def answer_all(
    network: nn.Module, preprocess: Callable[[Path], Tensor], images: Sequence[Path], size: int
) -> tuple[list[Array], list[str], list[str]]:
    """What `network` gives (n, D) for batches of the images that can be read, the names of these, and a sentence for each other
    image. The bar is shown on a terminal only."""
    rows, names, failed = [], [], []
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        evaluation_mode(network) as where,
    ):
        task = progress.add_task("images", total=len(images))
        for start in range(0, len(images), size):
            batch = []
            for path in images[start : start + size]:
                try:
                    str(path).encode()
                    batch.append(preprocess(path))
                    names.append(str(path))
                except UnicodeEncodeError:
                    failed.append(f"{str(path)!a} has a name that is not UTF-8: rename it")
                except ValueError as error:
                    failed.append(str(error))
                except MemoryError:
                    failed.append(f"{path}: not enough memory: cut the image")
                progress.advance(task)
            if batch:
                rows.append(network(torch.stack(batch).to(where)).float().cpu().numpy())
    return rows, names, failed
