"""A recogniser from what train.py wrote, with an adapter on top where one is given."""

from __future__ import annotations

from pathlib import Path

from gcsa._utils.errors import UserError
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.weights import Weights, fill, read


def load_recognizer(source: str | Path, adapter: str | Path | None = None) -> CTCRecognizer:
    """The recogniser in a .ckpt or a folder of weights, in eval mode; with the `adapter` in that folder merged.

    Raises FileNotFoundError for a missing file, and ValueError for a damaged one, for weights of a classifier of images
    and for an adapter of another model.
    """
    model = make_recognizer(read(source))
    return model if adapter is None else _adapted(model, adapter)


def make_recognizer(weights: Weights) -> CTCRecognizer:
    """The recogniser that `weights`, as read, describe. Raises ValueError for those of a classifier of images."""
    return fill(lambda: empty_recognizer(weights), weights)


def empty_recognizer(weights: Weights) -> CTCRecognizer:
    """As `make_recognizer`, with numbers at random."""
    if weights.characters is None:
        does = "segments" if weights.kind == "segmenter" else "classifies"
        raise UserError(f"{weights.source} {does} images: name a recogniser of text lines")
    return CTCRecognizer(weights.characters, weights.architecture, **weights.options)


def _adapted(model: CTCRecognizer, folder: str | Path) -> CTCRecognizer:
    from gcsa.adapters import load
    from gcsa.weights import read_adapter

    characters = read_adapter(folder).characters
    if characters is None:
        raise FileNotFoundError(
            f"there is no {Path(folder) / 'charset.txt'}: name the adapter folder of a run on text lines"
        )
    try:
        model.extend(characters)
    except ValueError as error:
        raise UserError(
            f"the adapter {folder} is of another recogniser, which knows other characters: name its base"
        ) from error
    merged: CTCRecognizer = load(model, folder).merge_and_unload()
    return merged.eval()
