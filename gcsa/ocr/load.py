"""A recogniser from what train.py wrote, with an adapter on top where one is given."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import torch

from gcsa.ocr.recognizers.ctc import CHARSET_FILE, CTCRecognizer

DAMAGE = (OSError, EOFError, RuntimeError, KeyError, TypeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile)


def load_recognizer(source: str | Path, adapter: str | Path | None = None) -> CTCRecognizer:
    """The recogniser in a .ckpt or a folder of weights, in eval mode; with the `adapter` in that folder merged.

    Raises FileNotFoundError for a missing file, and ValueError for a damaged one and for an adapter of another model.
    """
    path = Path(str(source).removeprefix("local-dir:"))
    model = _from_checkpoint(path) if path.suffix == ".ckpt" else CTCRecognizer.from_pretrained(path)
    return model if adapter is None else _adapted(model, Path(adapter)).eval()


def _from_checkpoint(path: Path) -> CTCRecognizer:
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        made = stored["hyper_parameters"]
        characters, options = made["characters"], made["model"]
        tensors = stored["state_dict"].items()
        weights = {key.removeprefix("model."): value for key, value in tensors if key.startswith("model.")}
    except DAMAGE as error:
        raise ValueError(f"{path} is damaged or not a recogniser of train.py ({type(error).__name__})") from error
    if made.get("adapter"):
        raise ValueError(f"{path} has an adapter: give the weights folder of that run, which holds the merged model")
    model = CTCRecognizer(characters, **options)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path} does not fit the recogniser that it names: {' '.join(str(error).split())}") from error
    return model.eval()


def _adapted(model: CTCRecognizer, folder: Path) -> CTCRecognizer:
    from gcsa.adapters import load

    charset = folder / CHARSET_FILE
    if not charset.is_file():
        raise FileNotFoundError(f"there is no {charset}: name the adapter folder of a run on text lines")
    model.extend(charset.read_text(encoding="utf-8"))
    merged: CTCRecognizer = load(model, folder).merge_and_unload()
    return merged
