"""What folding, export and compilation do to every registered model, and how much faster a folded one is.

`python benchmarks/export.py [PATTERN...]`: which formats of `gcsa.export` and torch.compile pass for the models whose bare
names match, added to those already in results/export.json, so that a sweep can be made in parts; without patterns, the
speed of folding at batch 1 and 32. Parity is relative to the largest output (or 1), in float32, on other sizes of batch
than traced; images are small, 4 positions a side.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from common import RESULTS, alternate, arguments, save
from torch import nn

import gcsa  # noqa: F401  (registers the models)
from gcsa.export import FORMATS, export, fold
from gcsa.export.formats import parity_error
from gcsa.ocr.recognizer import CTCRecognizer

FAMILIES = ["gcsa*", "gcnn*", "gsa*", "z2sa*", "performer*"]
SUFFIXES = ("_c4", "_c8", "_d4", "_d8")
RECOGNIZER = "recognizer"
SPEED = ("gcsa_tiny", "gcsa_small")
FILE = RESULTS / "export.json"


def bare_names() -> list[str]:
    """Every registered model once, without the groups' variants, and the recogniser."""
    return [name for name in timm.list_models(FAMILIES) if not name.endswith(SUFFIXES)] + [RECOGNIZER]


def create(name: str) -> tuple[nn.Module, tuple[int, int, int]]:
    """The model in eval mode, and the (C, H, W) of small images for it."""
    if name == RECOGNIZER:
        return CTCRecognizer("abc").eval(), (1, 40, 80)
    model = timm.create_model(name).eval()
    side = max(4 * getattr(model, "multiple", 4), 16)
    return model, (model.default_cfg["input_size"][0], side, side)


def outcome(run: Callable[[], float]) -> float | str:
    """What `run` gives, or the error."""
    try:
        return run()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def compile_error(model: nn.Module, size: tuple[int, int, int], train: bool) -> float:
    """Parity of `torch.compile(fullgraph=True)` over batches of 2, 3 and 5, by one graph; in training, of the
    forward in front of a backward. Raises RuntimeError where it is compiled more than once."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model.train(train), fullgraph=True, dynamic=True)
    errors = []
    for batch in (2, 3, 5):
        x = torch.randn(batch, *size)
        if train:
            model.zero_grad()
            out = compiled(x)
            out.sum().backward()
            errors.append((out.detach() - model(x).detach()).abs().max().item())
        else:
            errors.append(parity_error(model, compiled, x))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    if graphs > 1:
        raise RuntimeError(f"{graphs} graphs for three batch sizes")
    return max(errors)


def passes(name: str) -> dict[str, Any]:
    """The parity error of each way to run the model, or why there is none."""
    model, size = create(name)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for format in FORMATS:
            file = Path(folder) / f"model.{'pt2' if format in ('pt2', 'aoti') else format}"
            found[format] = outcome(lambda f=format, p=file: export(model, p, f, size))
            if format in ("onnx", "pt2"):
                found[f"{format}_any_size"] = outcome(lambda f=format, p=file: export(model, p, f, size, any_size=True))
    for label, module in (("compile", model), ("compile_folded", fold(model))):
        found[f"{label}_eval"] = outcome(lambda m=module: compile_error(m, size, False))
        found[f"{label}_train"] = outcome(lambda m=module: compile_error(m, size, True))
    return found


def speed(name: str, batch: int, repeats: int) -> dict[str, Any]:
    """Evaluation forward of the model and of its folded copy at its own size, after a check that they agree."""
    model, _ = create(name)
    folded = fold(model)
    x = torch.randn(batch, *model.default_cfg["input_size"])
    error = parity_error(model, folded, x)
    if error > 1e-5:
        raise RuntimeError(f"folded {name} is off by {error:.1e}")
    with torch.no_grad():
        times = alternate({"plain": lambda: model(x), "folded": lambda: folded(x)}, repeats)
    return {**times, "speed_up": times["plain"]["median_ms"] / times["folded"]["median_ms"], "error": error}


def main() -> None:
    patterns = [sys.argv.pop(1) for _ in sys.argv[1:] if not sys.argv[1].startswith("-")]
    args = arguments(__doc__)
    warnings.simplefilter("ignore")
    content: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {"passes": {}, "speed": {}}
    content = {key: content[key] for key in ("passes", "speed")}
    if patterns:
        chosen = [name for name in bare_names() if any(Path(name).match(pattern) for pattern in patterns)]
        for name in chosen:
            content["passes"][name] = passes(name)
            save("export", content)
    else:
        for name in SPEED:
            content["speed"][name] = {str(batch): speed(name, batch, args.repeats) for batch in (1, 32)}
        save("export", content)


if __name__ == "__main__":
    main()
