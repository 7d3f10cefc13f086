"""What evaluate.py measures of recognisers of text lines."""

from __future__ import annotations

from typing import Any

import torch

from gcsa._utils.published import published
from gcsa.tasks import load
from gcsa.tasks.evaluating import check_config, chosen_device, content, evenly_spread, show
from gcsa.tasks.recognition.data.batches import LineSet, WidthSampler
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from gcsa.tasks.recognition.data.line_image import fit_line, read_line
from gcsa.tasks.recognition.data.lines import SPLITS
from gcsa.tasks.recognition.measure import measure

NAMES = {
    "cer": "CER, upright lines",
    "wer": "WER, upright lines",
    "cer_any": "CER, orientation unknown",
    "turn_found": "orientation recognised",
    "same_when_turned": "same text at 0, 90, 180 and 270 degrees",
    "cer_upside_down": "CER, lines upside down",
}
"""Of the results in the table."""


def evaluate_lines(config: dict[str, Any], data: LinesDataModule) -> dict[str, Any]:
    """CER and WER of `config["model"]` on the lines of a split of `data`, or on "all" of them, upright and turned.

    Prints a table and returns JSON-ready values. Raises ValueError or FileNotFoundError for a configuration or a model that
    cannot work, before any line is read, and for lines that cannot be read.
    """
    check_config(config, (*SPLITS, "all"), options=("adapter",))
    adapter = config["adapter"] and (published(config["adapter"]) or config["adapter"])
    model = load(config["model"], adapter, "recognition").network.to(chosen_device(config))
    wanted = SPLITS if config["split"] == "all" else (config["split"],)
    lines = evenly_spread(data.listed(*wanted), config["limit"])
    inks = (fit_line(read_line(line, model.height), model.height, model.stride, upright=True) for line in lines)
    read = LineSet([ink.mul(255).round_().to(torch.uint8) for ink in inks], lines, model.charset)
    batches = WidthSampler(read.widths, data.batch_size, shuffle=False, seed=0)
    rates = measure(model, (read[draw] for draw in batches))
    show(config, f"{len(lines)} lines", rates, NAMES)
    return content(config, lines=len(lines), results=rates)
