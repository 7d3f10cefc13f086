"""Files of weights as plain values and tensors: bounded in size, free of code, damage told in one sentence."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.published import CONFIG, TENSORS

CHARSET = "charset.txt"
MOST_JSON = 1 << 20
"""Bytes of a config.json, which holds names and some thousand characters or classes."""
MOST_NAMES = 100_000
"""Characters of a charset, and classes."""

DAMAGE = (
    OSError,
    EOFError,
    RuntimeError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    MemoryError,
    OverflowError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    SafetensorError,
    UserWarning,
)
"""What the readers of torch, safetensors and json raise for files that are not what they should be."""


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What Lightning wrote into a checkpoint: tensors, numbers and words, never code.

    Raises FileNotFoundError where there is none, and ValueError for a damaged file, one that is packed (whose size would
    not bound what it takes to read it), or one of something else than train.py.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist())
        if packed or sum(entry.file_size for entry in archive.infolist()) > 2 * path.stat().st_size:
            raise UserError("its entries are packed or overlap", "checkpoint.packed")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of pickles that torch did not write
            stored = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(stored["state_dict"], dict) or not all(
            isinstance(name, str) for name in stored["state_dict"]
        ):
            raise TypeError("no state dict")
    except DAMAGE as error:
        raise UserError(
            f"{path} is damaged or not a checkpoint of train.py ({type(error).__name__})", "checkpoint.damaged"
        ) from error
    return stored


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of at most `MOST_JSON` bytes. Raises ValueError for anything else."""
    try:
        if file.stat().st_size > MOST_JSON:
            raise UserError(f"it has more than {MOST_JSON} bytes", "json.too_large")
        content = json.loads(file.read_bytes().decode("utf-8"), parse_constant=_refuse)
        if not isinstance(content, dict):
            raise TypeError("it is not an object")
    except DAMAGE as error:  # RecursionError, of deep nesting, is a RuntimeError
        raise UserError(
            f"{file} is damaged or not weights of gcsa: {one_line(error)}", "weights.damaged_json"
        ) from error
    return content


def _refuse(constant: str) -> None:
    raise UserError(f"{constant} is no JSON", "json.constant", constant=constant)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU. Raises ValueError where it is damaged."""
    try:
        return load_file(file)
    except DAMAGE as error:
        raise UserError(f"{file} is damaged or not safetensors: {one_line(error)}", "weights.damaged") from error


def download(repository: str) -> Path:
    """The two files of a repository of the hub, `OWNER/NAME` or `OWNER/NAME@REVISION`, in its cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    name, _, revision = repository.partition("@")
    try:
        files = [hf_hub_download(name, file, revision=revision or None) for file in (CONFIG, TENSORS)]
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise FileNotFoundError(f"hf-hub:{repository} could not be fetched: {one_line(error)}") from error
    return Path(files[0]).parent


def read_charset(file: Path) -> str | None:
    """The text of a charset.txt, or None where there is none. Raises ValueError where it is damaged."""
    if not file.is_file():
        return None
    try:
        if file.stat().st_size > 4 * MOST_NAMES:
            raise UserError(f"it has more than {4 * MOST_NAMES} bytes", "charset.too_large")
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged: {one_line(error)}", "charset.damaged") from error
