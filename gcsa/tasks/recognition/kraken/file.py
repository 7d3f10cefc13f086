"""A recogniser as one file for kraken (7.0 and later), which `gcsa.tasks.recognition.kraken.plugin` opens there."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.weights import to_config

KRAKEN_VERSION = "7.0.0"
"""The oldest kraken that asks other packages for models."""
PLUGIN = "GCSARecognizer"
PREFIX = "gcsa"


def write_kraken(model: CTCRecognizer, file: str | Path) -> None:
    """Writes `model`, not folded, for `kraken ... ocr -m FILE`; whole or not at all. Raises ValueError for a name
    that does not end in .safetensors."""
    if Path(file).suffix != ".safetensors":
        raise UserError(
            f"kraken tells its files by their names, which must end in .safetensors: {file} does not", "kraken.suffix"
        )
    tensors = {f"{PREFIX}.model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    about = {
        "_tasks": ["recognition"],
        "_model": PLUGIN,
        "_kraken_min_version": KRAKEN_VERSION,
        "config": to_config(model.to_weights()),
    }
    with replacing(file) as part:
        save_file(tensors, part, metadata={"kraken_meta": json.dumps({PREFIX: about})})
