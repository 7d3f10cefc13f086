"""How well a recogniser reads lines, and whether it reads them the same when they are turned."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.batches import LineBatch
from gcsa.tasks.recognition.metrics import text_scores
from gcsa.tasks.recognition.reading import Reading

TURNS = (0, 90, 180, 270)


def measure(model: CTCRecognizer, batches: Iterable[LineBatch]) -> dict[str, float | list[float]]:
    """Reads every line (greedily) and compares with its text; rates are fractions, intervals at 95 %.

    cer, wer: of upright lines, read as such. With quarter turns in the group, further cer_any: of the same lines where
    the frame is found too; turn_found: the share of lines for which it is right; same_when_turned: the share whose
    transcripts are identical at 0, 90, 180 and 270 degrees. Otherwise cer_upside_down: of lines turned by 180 degrees.
    """
    device = next(model.parameters()).device
    turns_too = model.group.rotations % 4 == 0
    texts: list[str] = []
    upright: list[Reading] = []
    turned: dict[int, list[Reading]] = {turn: [] for turn in (TURNS if turns_too else (180,))}
    model.eval()
    for batch in batches:
        images = batch.images.to(device)
        texts += batch.texts
        upright += model.read(images)
        for turn, readings in turned.items():
            readings += model.read(torch.rot90(images, turn // 90, (2, 3)), "any" if turns_too else "upright")
    scores = text_scores([reading.text for reading in upright], texts)
    rates: dict[str, float | list[float]] = {
        "cer": scores.cer,
        "cer_interval": list(scores.cer_interval),
        "wer": scores.wer,
        "wer_interval": list(scores.wer_interval),
    }
    if not turns_too:
        return rates | {"cer_upside_down": text_scores([reading.text for reading in turned[180]], texts).cer}
    same = [len({reading.text for reading in line}) == 1 for line in zip(*turned.values(), strict=True)]
    return rates | {
        "cer_any": text_scores([reading.text for reading in turned[0]], texts).cer,
        "turn_found": sum(reading.turn == 0 for reading in turned[0]) / len(texts),
        "same_when_turned": sum(same) / len(same),
    }
