"""What an audit asks of a predictor of any task, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, one_line
from gcsa.evaluation.poses import Change
from gcsa.images.reader import read_picture

Progress = Callable[[int], AbstractContextManager[Callable[[int], object]]]
"""Takes the number of images that go through the network, and gives in a `with` what is called with the number of those just seen."""


def silent(total: int) -> AbstractContextManager[Callable[[int], object]]:
    """A `Progress` that nobody sees."""
    return nullcontext(lambda count: None)


@dataclass(frozen=True)
class AuditOptions:
    """What is measured.

    Attributes:
        name: of the network, for messages.
        steps: angles around the circle.
        kind: of networks that give a row of numbers: "classifier", or "embedding" for the features in front of the last layer.
        size: pixels a side of their images; None: as the predictor prepares them.
        batch_size: images that they see together.
        device: where they are computed.
        off_grid: whether one step of shift, blur, light and the like is measured too.
    """

    name: str
    steps: int = 16
    kind: str = "classifier"
    size: int | None = None
    batch_size: int = 32
    device: Any = "cpu"
    off_grid: bool = False


@dataclass(frozen=True)
class Audited:
    """What was measured.

    Attributes:
        kind: what was compared: one of the keys of `gcsa.cli.audit.FIGURES`.
        changes: at each pose and angle.
        failed: a sentence for each image that could not be read.
        size: pixels a side of the images that the network saw; None where it sees whole images.
        off_grid: of `gcsa.tasks.classification.off_grid.off_grid`.
        note: a sentence on what the measurement does not tell.
    """

    kind: str
    changes: list[Change]
    failed: list[str]
    size: int | None = None
    off_grid: dict[str, dict[str, float]] | None = None
    note: str = ""


def read_pictures(images: Sequence[Path], channels: int, failed: list[str]) -> Any:
    """Yields the pictures (H, W, C) that can be read; a sentence for each other goes to `failed`."""
    for path in images:
        try:
            picture: Array = read_picture(path, channels)
        except (ValueError, OSError) as error:
            failed.append(f"{path}: {one_line(error)}" if str(path) not in str(error) else str(error))
        else:
            yield picture


def check_some(images: Sequence[Path], failed: Sequence[str]) -> None:
    """Raises UserError where no image could be read."""
    if len(failed) == len(images):
        raise UserError(f"none of the {len(images)} images could be read: {failed[0]}", "images.unreadable")
