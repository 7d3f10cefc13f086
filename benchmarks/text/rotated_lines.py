"""Three ways to read lines scanned in any orientation: `python -m benchmarks.text.rotated_lines NAME=WEIGHTS...`.

WEIGHTS are folders of recognisers, or published names. One with a group reads any orientation by itself. A plain one lays every
line on its long side, always in the same direction, and then reads it once ("one pass", for one that was trained with lines
upside down) and, in another row, in both orientations, of which the more confident counts ("two passes"). Error rates are of
validation lines at 0, 90, 180 and 270 degrees, and of test lines, which choose nothing here. `--speed` times the rows instead, on
validation lines in memory. Needs GCSA_DATA.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

import gcsa
from benchmarks.common import CPU, alternate, save
from gcsa._utils.atomic import write_json
from gcsa._utils.memory import keep_compiled_kernels, keep_freed_memory
from gcsa.data.storage import data_root
from gcsa.groups import group
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.line_image import read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.predict import RecognitionPredictor
from gcsa.tasks.recognition.reading import Reading, orientations
from gcsa.training.results import git_commit, machine

ROOT = Path(__file__).parents[2]
SCRIPT = "fr17_roman_print"
DEGREES = (0, 90, 180, 270)


class Laid(nn.Module):
    """A plain recogniser that lays a line on its long side, always in the same direction, and reads it there once."""

    def __init__(self, model: CTCRecognizer) -> None:
        super().__init__()
        self.model = model
        self.height, self.stride = model.height, model.stride

    def read_orientations(self, images: Tensor, orientation: str, beams: int = 1) -> list[dict[int, Reading]]:
        """As of `CTCRecognizer`."""
        first, *_ = orientations(group("c4"), orientation, images.shape[2], images.shape[3], self.height)
        lines = self.model.read_orientations(torch.rot90(images, -first // 90, (2, 3)), "upright", beams)
        return [{first: line[0]} for line in lines]


@dataclass(frozen=True)
class Side:
    """One way to read lines in any orientation."""

    model: Any
    parameters: int

    def read(self, inks: list[Tensor], orientation: str = "any") -> list[str]:
        lines = [partial(torch.clone, ink) for ink in inks]
        readings = RecognitionPredictor(self.model).read_lines(lines, (), orientation)
        return [reading.text if isinstance(reading, Reading) else "" for reading in readings]

    def errors(self, inks: list[Tensor], meant: list[str]) -> dict[str, Any]:
        texts = {degrees: self.read([torch.rot90(ink, degrees // 90, (1, 2)) for ink in inks]) for degrees in DEGREES}
        cer = {degrees: text_scores(read, meant).cer for degrees, read in texts.items()}
        same = mean(len(set(line)) == 1 for line in zip(*texts.values(), strict=True))
        return {"cer": cer, "mean_cer": mean(cer.values()), "same_when_rotated": same}


def sides(named: list[str]) -> dict[str, Side]:
    """The rows of `named` weights, NAME=WEIGHTS each; BASE+ADAPTER are weights too."""
    found = {}
    for name, _, weights in (entry.partition("=") for entry in named):
        model = gcsa.load(*weights.split("+")).fold().network
        parameters = sum(p.numel() for p in gcsa.load(*weights.split("+")).network.parameters())
        if model.group.rotations % 4 == 0:
            found[name] = Side(model, parameters)
        else:
            found[f"{name}, one pass"] = Side(Laid(model), parameters)
            found[f"{name}, two passes"] = Side(model, parameters)
    return found


def lines(split: str, height: int) -> tuple[list[Tensor], list[str]]:
    """The lines of a split as ink, and what they say."""
    listed = list_lines(data_root(None) / "ocr_lines" / SCRIPT, (split,))
    return [read_line(line, height) for line in listed], [line.text for line in listed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("weights", nargs="+", metavar="NAME=WEIGHTS")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--speed", action="store_true", help="time the rows instead, three times each")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    keep_compiled_kernels()
    commit, rows = git_commit(), sides(args.weights)
    content: dict[str, Any] = {name: {"parameters": side.parameters} for name, side in rows.items()}
    height = next(iter(rows.values())).model.height
    if args.speed:
        inks, _ = lines("val", height)
        timings = alternate({name: partial(side.read, inks) for name, side in rows.items()}, repeats=3, warm_up=1)
        for name, times in timings.items():
            content[name] |= {**times, "lines_per_second": len(inks) / times["median_ms"] * 1e3}
        save("rotated_lines", {"lines": len(inks), "threads": args.threads, **content}, CPU)
        return
    for split in ("val", "test"):
        inks, meant = lines(split, height)
        for name, side in rows.items():
            content[name][split] = {"lines": len(inks), **side.errors(inks, meant)}
            print(name, split, content[name][split], flush=True)
    about = {"script": SCRIPT, "commit": commit, "machine": machine()}
    print(write_json(ROOT / "benchmarks/results/pages/rotated.json", {"rows": content, **about}))


if __name__ == "__main__":
    main()
