"""Speed on one card in one run of at most eight minutes: `python -m benchmarks.speed.gpu`; `--smoke` tests the script on a CPU.

The networks are the published ones and, at three widths, ours beside timm's ViT of the same positions, depth and heads
(`benchmarks.peers.tax`). Each row is a network, a pass (forward, or forward and backward) and a dtype at one batch. It is timed as
it is, folded and compiled, each also as a CUDA graph. bfloat16 means weights in bfloat16 forward, autocast in training; float32 is
without TF32. A row has images a second, the largest memory allocated, and the share of the rate of a large matrix product in the
same dtype, which is measured first.

The most important rows come first. gpu.json is written after each row, and the run ends when the budget is spent, if need be within
a row: compilation takes most of the time and cannot be foretold.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

BEGAN = psutil.Process().create_time()
"""When this process began: the budget counts what imports take."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}
OURS, PEER = "gcsa", "timm's ViT"
BATCHES = {192: 256, 384: 128, 768: 128}
"""Of `benchmarks.peers.tax` on a GPU, by width."""
SIZES = {"segmentation": (3, 256, 256), "recognition": (1, 40, 800)}
"""Inputs (C, H, W) of the published networks that do not say theirs: a test image of nuclei, a line of print."""
SMOKE_SIZES = {"segmentation": (3, 64, 64), "recognition": (1, 40, 80)}
FILES_ONLY = ("tifffile", "imagecodecs")
"""Packages that gcsa imports to read files of images: none is read here, so they need not be installed."""


class StandIn(ModuleType):
    """A module whose attributes are exceptions, which can be caught and subclassed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


def is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except ModuleNotFoundError:
        return True


for package in filter(is_missing, FILES_ONLY):
    sys.modules[package] = StandIn(package)

import gcsa  # noqa: E402
from gcsa._utils.published import PACKAGE, list_models  # noqa: E402
from gcsa.evaluation.cost import count_flops  # noqa: E402
from gcsa.models.folding import fold  # noqa: E402


@dataclass(frozen=True)
class Case:
    """What is built once and timed in several ways.

    Attributes:
        network: a published one; or `OURS` or `PEER`, of this `width`.
        mode: "forward", or "step", forward and backward.
        compiled: compile it, beside the ways that need no compilation.
    """

    network: str
    mode: str
    dtype: str
    batch: int
    compiled: bool
    width: int | None = None


def cases() -> Iterator[Case]:
    """All cases, the most important first."""
    published = sorted(list_models(), key=lambda name: ("pcam" not in name, "nuclei" not in name, "french" not in name))
    modes = ("forward", "step")

    def pairs(mode: str, dtype: str, batch: int | None, compiled: bool, width: int) -> Iterator[Case]:
        for network in (OURS, PEER):
            yield Case(network, mode, dtype, batch or BATCHES[width], compiled, width)

    for mode in modes:
        yield from pairs(mode, "bfloat16", None, True, 384)
    for batch in (64, 1):
        yield from (Case(name, "forward", "bfloat16", batch, False) for name in published)
    for mode in modes:
        for width in (768, 192):
            yield from pairs(mode, "bfloat16", None, False, width)
    for dtype in ("tf32", "float32"):
        for mode in modes:
            for width in (384, 768, 192):
                yield from pairs(mode, dtype, None, False, width)
        for batch in (64, 1):
            yield from (Case(name, "forward", dtype, batch, False) for name in published)
    for width in (384, 192, 768):
        for batch in (1, 64):
            yield from pairs("forward", "bfloat16", batch, False, width)
    yield from (Case(name, "step", "bfloat16", 64, False) for name in published)
    yield from (Case(name, "forward", "bfloat16", 64, True) for name in published)
    for dtype, width in (("bfloat16", 768), ("bfloat16", 192), ("tf32", 384)):
        for mode in modes:
            yield from pairs(mode, dtype, None, True, width)


def smoke_cases() -> Iterator[Case]:
    """One of each kind, small enough for a CPU."""
    yield Case(OURS, "forward", "bfloat16", 1, False, 192)
    yield Case(PEER, "step", "float32", 1, True, 192)
    for name in ("gcsa_tiny.rotmnist", "gcsa_ocr_tiny.print", "gcsa_unet_tiny.nuclei"):
        yield Case(name, "forward", "float32", 1, False)


def build(case: Case, smoke: bool) -> tuple[nn.Module, tuple[int, ...]]:
    """The network in float32 on the device, and the size (C, H, W) of its inputs."""
    if case.width is None:
        predictor = gcsa.load(case.network)
        sizes = SMOKE_SIZES if smoke else SIZES
        size = sizes.get(predictor.kind) or predictor.network.default_cfg["input_size"]
        return predictor.network.to(DEVICE), tuple(size)
    depth = 1 if smoke else 12
    common: dict[str, Any] = dict(img_size=224, num_classes=1000, depth=depth, num_heads=case.width // 64)
    if case.network == OURS:
        network = timm.create_model("gcsa_base", group="c4", fields=case.width // 4, **common)
    else:
        network = VisionTransformer(patch_size=16, embed_dim=case.width, class_token=False, global_pool="avg", **common)
    return network.to(DEVICE), (3, 224, 224)


def set_precision(dtype: str) -> None:
    """Products of float32 matrices and convolutions: in TF32 or not."""
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"


def forward(network: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            network(x)

    return run


def step(network: nn.Module, x: Tensor, autocast: bool) -> Callable[[], object]:
    def run() -> None:
        network.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=autocast):
            loss = network(x).float().square().mean()
        loss.backward()

    return run


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """`run` as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def milliseconds(run: Callable[[], object]) -> float:
    """How long `run` takes, on a card by its own events."""
    if DEVICE.type == "cpu":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    run()
    after.record()
    after.synchronize()
    return before.elapsed_time(after)


def median_time(run: Callable[[], object], smoke: bool) -> dict[str, float]:
    """The median of 5 to 50 repetitions, half a second of them, after three to warm up; milliseconds."""
    if smoke:
        return {"median_ms": milliseconds(run), "min_ms": 0.0, "repeats": 1}
    warm = min(milliseconds(run) for _ in range(3))
    times = [milliseconds(run) for _ in range(min(max(int(500 / warm), 5), 50))]
    return {"median_ms": statistics.median(times), "min_ms": min(times), "repeats": len(times)}


def rate(dtype: str, smoke: bool) -> float:
    """What the card reaches in products of large square matrices, in TFLOP/s."""
    set_precision(dtype)
    side = 256 if smoke else 8192
    a, b = (torch.randn(side, side, device=DEVICE, dtype=DTYPES[dtype]) for _ in range(2))
    return 2 * side**3 / median_time(lambda: a @ b, smoke)["median_ms"] / 1e9


def copy_rate(smoke: bool) -> float:
    """Bytes read and written in a copy, in GB/s."""
    source = torch.empty(2**20 if smoke else 2**30, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * len(source) / median_time(lambda: target.copy_(source), smoke)["median_ms"] / 1e6


def kernels(run: Callable[[], object], count: int = 15) -> list[dict[str, Any]]:
    """The slowest kernels of one run: their name, calls, microseconds, and share of the time of all."""
    from torch.profiler import ProfilerActivity, profile

    on_cpu = DEVICE.type == "cpu"
    with profile(activities=[ProfilerActivity.CPU if on_cpu else ProfilerActivity.CUDA]) as profiler:
        run()
        if not on_cpu:
            torch.cuda.synchronize()
    times = [
        (event.self_cpu_time_total if on_cpu else event.self_device_time_total, event)
        for event in profiler.key_averages()
    ]
    total = sum(taken for taken, _ in times) or 1
    slowest = sorted(times, key=lambda pair: -pair[0])[:count]
    return [
        {"kernel": event.key[:120], "calls": event.count, "us": round(taken, 1), "share": round(taken / total, 4)}
        for taken, event in slowest
    ]


class Report:
    """gpu.json, written after each row.

    Attributes:
        content: machine, rates, rows, errors, profiles.
    """

    def __init__(self, folder: Path, minutes: float) -> None:
        self.file, self.lock = folder / "gpu.json", threading.Lock()
        self.minutes, self.current = minutes, "rates"
        self.content: dict[str, Any] = {
            "machine": machine(),
            "rates": {},
            "copy_gb_per_s": None,
            "rows": [],
            "errors": [],
            "profiles": {},
            "cut_off": None,
        }
        folder.mkdir(parents=True, exist_ok=True)

    def write(self) -> None:
        with self.lock:
            self.content["seconds"] = round(time.time() - BEGAN, 1)
            part = self.file.with_suffix(".part")
            part.write_text(json.dumps(self.content, indent=1))
            os.replace(part, self.file)

    def add(self, label: str, row: dict[str, Any]) -> None:
        self.content["rows"].append(row)
        self.write()
        print(f"{label}: {row['images_per_s']:.0f} images/s, {row['of_rate']:.1%} of the rate", flush=True)

    def fail(self, label: str, error: Exception) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {str(error)[:300]} ({Path(where.filename).name}:{where.lineno})"
        self.content["errors"].append({"row": label, "error": message})
        self.write()
        print(f"{label}: {message}", flush=True)

    def stop(self) -> None:
        """Ends the process, whatever it does: a compilation cannot be interrupted otherwise."""
        try:
            self.content["cut_off"] = self.current
            self.write()
            print(f"the budget of {self.minutes:g} minutes is spent within: {self.current}", flush=True)
        finally:
            os._exit(0)


def machine() -> dict[str, Any]:
    on_card = DEVICE.type == "cuda"
    driver = ["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader"]
    return {
        "gpu": torch.cuda.get_device_name() if on_card else None,
        "memory_gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1) if on_card else None,
        "driver": output(driver) if on_card else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "torch": torch.__version__,
        "timm": timm.__version__,
        "python": sys.version.split()[0],
        "commit": output(["git", "-C", str(PACKAGE), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]),
    }


def output(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def ways(case: Case, network: nn.Module, x: Tensor, smoke: bool) -> dict[str, Callable[[], Callable[[], object]]]:
    """What makes each way of a case ready to run; a way as a graph follows the way that it repeats."""
    compiler: dict[str, Any] = dict(backend="aot_eager") if smoke else {}
    runs: dict[str, Callable[[], object]] = {}

    def ready(way: str, make: Callable[[], nn.Module]) -> Callable[[], object]:
        if case.mode == "forward":
            runs[way] = forward(make(), x)
        else:
            runs[way] = step(make(), x, autocast=case.dtype == "bfloat16")
        runs[way]()  # compiles
        return runs[way]

    folds = case.mode == "forward" and case.network != PEER
    best = (lambda: fold(network)) if folds else (lambda: network)
    modules: dict[str, Callable[[], nn.Module]] = {"eager": lambda: network}
    if folds:
        modules["folded"] = best
    if case.compiled:
        modules["compiled"] = lambda: torch.compile(best(), dynamic=False, **compiler)
    made: dict[str, Callable[[], Callable[[], object]]] = {}
    for way, make in modules.items():
        made[way] = lambda way=way, make=make: ready(way, make)
        if DEVICE.type == "cuda":
            made[f"{way}, graph"] = lambda way=way: captured(runs[way])
    return made


def measure(case: Case, report: Report, smoke: bool) -> None:
    """The rows of a case, and profiles of the ways that are looked at. A way that fails costs its own row and no other."""
    torch.manual_seed(0)
    torch.compiler.reset()  # or the batch of another case makes this one dynamic
    set_precision(case.dtype)
    network, size = build(case, smoke)
    network = network.train(case.mode == "step")
    x = torch.randn(case.batch, *size, device=DEVICE)
    operations = count_flops(network, x[0]) * case.batch * (3 if case.mode == "step" else 1)
    if case.dtype == "bfloat16" and case.mode == "forward":
        network, x = network.bfloat16(), x.bfloat16()
    for way, make in ways(case, network, x, smoke).items():
        label = report.current = " ".join(
            [
                case.network,
                *([f"width {case.width}"] if case.width else []),
                case.mode,
                case.dtype,
                f"batch {case.batch}",
                way,
            ]
        )
        try:
            if DEVICE.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            start = time.monotonic()
            run = make()
            if DEVICE.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.monotonic() - start
            times = median_time(run, smoke)
        except Exception as error:
            report.fail(label, error)
            continue
        row = {
            **asdict(case),
            "way": way,
            "size": size,
            **times,
            "images_per_s": 1e3 * case.batch / times["median_ms"],
            "of_rate": operations / times["median_ms"] / 1e9 / report.content["rates"][case.dtype],
            "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if DEVICE.type == "cuda" else None,
            "first_run_s": round(seconds, 1),
        }
        report.add(label, row)
        if profiled(case, way):
            try:
                report.content["profiles"][label] = kernels(run)
            except Exception as error:
                report.fail(f"profile of {label}", error)


def profiled(case: Case, way: str) -> bool:
    """Whether the kernels of this way are looked at: the compiled ones, and the folded ones of published networks."""
    if case.compiled:
        return way == "compiled"
    return case.width is None and case.batch == 64 and case.dtype == "bfloat16" and way == "folded"


def default_folder() -> Path:
    if os.environ.get("OUT"):
        return Path(os.environ["OUT"])
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu"
    return Path(__file__).parents[1] / "results" / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8, help="budget; the run ends when it is spent")
    parser.add_argument("--output", type=Path, default=default_folder(), help="folder of gpu.json")
    parser.add_argument("--smoke", action="store_true", help="a few tiny rows, one repetition each, also on a CPU")
    args = parser.parse_args()
    if DEVICE.type == "cpu" and not args.smoke:
        raise SystemExit("error: there is no CUDA device: add --smoke to test the script on a CPU")
    report = Report(args.output, args.minutes)
    guard = threading.Timer(max(60 * args.minutes - (time.time() - BEGAN) - 5, 1), report.stop)
    guard.daemon = True
    guard.start()
    for dtype in DTYPES:
        report.content["rates"][dtype] = rate(dtype, args.smoke)
    report.content["copy_gb_per_s"] = copy_rate(args.smoke)
    print(report.content["rates"], report.content["copy_gb_per_s"], flush=True)
    for case in smoke_cases() if args.smoke else cases():
        try:
            measure(case, report, args.smoke)
        except Exception as error:
            report.fail(str(case), error)
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()
    guard.cancel()
    report.write()
    print(report.file)


if __name__ == "__main__":
    main()
