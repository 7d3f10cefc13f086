"""Which ways to export and compile pass for which registered models, and how much faster a folded model is.

`python -m benchmarks.speed.export PATTERN...` tries every name that matches ("*": all) in every way that is not yet in
results/export_passes.json, which is written after each, so that a sweep can be done in parts; delete the file to start
again. A difference is relative to the largest output (or to 1), in float32. Files are tried on another number of images
than was traced, and with "any size" also on another height and width; torch.compile on batches of 2, 3 and 5 with one
graph, in training with the gradients of the parameters, each relative to its largest entry (or to 1). Images are small, 4
positions a side. Each way runs in a process of its own with a limit of CPU time. Slow ways are tried for bare names only,
because the groups of a size share their code.

`python -m benchmarks.speed.export`: the speed of folding at batch 1 and 32, into results/export.json.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

import gcsa  # noqa: F401  (registers the models)
from benchmarks.common import CPU, RESULTS, alternate, arguments, keep, save
from gcsa.export import export
from gcsa.export.formats import TOLERANCE, parity_error
from gcsa.models.folding import fold
from gcsa.tasks.recognition.ctc import CTCRecognizer

FAMILIES = "gcsa*", "gcnn*", "gsa*", "z2sa*", "performer*", "linformer_tiny", "routing_transformer_tiny"
BASELINES = "alexnet_small", "vgg16_small"
RECOGNIZERS = {f"CTCRecognizer, {name}": name for name in timm.list_models("gcsa_ocr*")}
SPEED = ("gcsa_tiny", "gcsa_small")
LIMIT, SLOW_LIMIT = 120, 240
"""CPU seconds for one way and one model."""


def create(name: str) -> tuple[nn.Module, tuple[int, int, int]]:
    """The model in eval mode, and the (C, H, W) of small images for it."""
    torch.manual_seed(0)
    if name in RECOGNIZERS:
        return CTCRecognizer("abc", RECOGNIZERS[name]).eval(), (1, 40, 80)
    model = timm.create_model(name).eval()
    cfg = model.default_cfg
    if cfg.get("fixed_input_size"):
        return model, cfg["input_size"]
    side = max(4 * getattr(model, "size_divisor", 4), 16)
    return model, (cfg["input_size"][0], side, side)


def file_error(name: str, format: str, any_size: bool = False) -> float:
    """The parity error of an exported file."""
    model, size = create(name)
    with tempfile.TemporaryDirectory() as folder:
        return export(model, Path(folder) / f"model.{'pt2' if format == 'aoti' else format}", format, size, any_size)


def compile_error(name: str, backend: str, train: bool) -> float:
    """The parity error of `torch.compile(fullgraph=True)` over three numbers of images. Raises RuntimeError where it
    takes more than one graph or the error is too large."""
    model, size = create(name)
    torch._inductor.config.fallback_random = True  # so that dropout drops the same
    twin = copy.deepcopy(model.train(train))
    compiled = torch.compile(twin, fullgraph=True, backend=backend)
    worst = 0.0
    for batch in (2, 3, 5):
        x = torch.randn(batch, *size)
        torch._dynamo.mark_dynamic(x, 0)
        sides = [outputs(run, x, module, train) for run, module in ((compiled, twin), (model, model))]
        for a, b in zip(*sides, strict=True):
            worst = max(worst, parity_error(nn.Identity(), lambda _, a=a: a, b))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    if graphs > 1:
        raise RuntimeError(f"{graphs} graphs for three numbers of images")
    if not worst <= TOLERANCE:
        raise RuntimeError(f"off by {worst:.1e}")
    return worst


def outputs(run: Callable[[Tensor], Tensor], x: Tensor, module: nn.Module, train: bool) -> list[Tensor]:
    """What `run` gives for x, and in training also the gradients of the parameters of `module`."""
    torch.manual_seed(len(x))
    if not train:
        with torch.no_grad():
            return [run(x)]
    module.zero_grad()
    out = run(x)
    out.square().mean().backward()
    return [out.detach(), *(p.grad for p in module.parameters() if p.grad is not None)]


QUICK: dict[str, Callable[[str], float]] = {
    "folded": lambda name: file_error(name, "folded"),
    "torchscript": lambda name: file_error(name, "torchscript"),
    "pt2": lambda name: file_error(name, "pt2"),
    "onnx": lambda name: file_error(name, "onnx"),
    "compile_eval": lambda name: compile_error(name, "aot_eager", False),
    "compile_train": lambda name: compile_error(name, "aot_eager", True),
}
SLOW: dict[str, Callable[[str], float]] = {
    "pt2_any_size": lambda name: file_error(name, "pt2", any_size=True),
    "onnx_any_size": lambda name: file_error(name, "onnx", any_size=True),
    "aoti": lambda name: file_error(name, "aoti"),
    "inductor_eval": lambda name: compile_error(name, "inductor", False),
    "inductor_train": lambda name: compile_error(name, "inductor", True),
}


# What each process needs and takes long to import; nothing that looks for a GPU, after which forks die now and then.
IMPORTS = (
    "timm",
    "gcsa.export",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.onnx._internal.exporter._core",
    "onnxruntime",
)


def work(way: str, name: str, seconds: int, sender: Connection) -> None:
    """Sends the error of a way for a model, or why there is none."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    warnings.simplefilter("ignore")
    for stream in (1, 2):  # exporters and compilers chat
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        sender.send({**QUICK, **SLOW}[way](name))
    except Exception as error:
        reason = re.sub(r"\S*/site-packages/", "", " ".join(str(error).split()))
        sender.send(f"{type(error).__name__}: {reason[:300]}")


def within(seconds: int, way: str, name: str) -> float | str:
    """What a way gives for a model in a process of its own, or why it gives nothing within so much CPU time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTS))
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(way, name, seconds, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return f"not within {seconds} s of CPU time"
        return f"the process died ({process.exitcode})"
    finally:
        process.join()


def sweep(patterns: list[str]) -> None:
    """Adds what results/export_passes.json does not have yet of every model that matches."""
    file = RESULTS / "export_passes.json"
    passes: dict[str, Any] = json.loads(file.read_text())["passes"] if file.is_file() else {}
    names = [*timm.list_models(list(FAMILIES)), *BASELINES, *RECOGNIZERS]
    names = [name for name in names if any(Path(name).match(pattern) for pattern in patterns)]
    names.sort(key=lambda name: ("tiny" not in name, "small" not in name))
    for ways, seconds in ((QUICK, LIMIT), (SLOW, SLOW_LIMIT)):
        for name in names:
            row = passes.setdefault(name, {})
            for way in (way for way in ways if way not in row):
                row[way] = within(seconds, way, name)
                print(name, way, row[way], flush=True)
                keep(file, {"passes": passes})


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
    if patterns:
        sweep(patterns)
    else:
        speeds = {name: {str(batch): speed(name, batch, args.repeats) for batch in (1, 32)} for name in SPEED}
        save("export", {"speed": speeds}, CPU)


if __name__ == "__main__":
    main()
