"""Two checkouts of gcsa against each other, in turn, pass by pass: does a change of the code cost time?

    python -m benchmarks.speed.checkouts ../gcsa_before . --pairs 60

Each checkout answers in a process of its own, which stays alive; single passes alternate between them, and the order within
a pair as well. Figures are the new time over the old one: the ratio of the minima, that of the medians, and the median of
the ratios within the pairs. The first checkout runs against itself too: its row says how far two equal programs differ on
this machine, which is more in a training step (where memory lies is luck) than in a forward pass. With `--write` they are
kept in benchmarks/results/MACHINE/checkouts.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import save, timing

MODELS = {
    "gcsa_tiny": "64x1x28x28",
    "gcsa_small": "8x3x96x96",
    "gcsa_pooled_small": "8x3x96x96",
    "gcsa_hybrid_small": "8x3x96x96",
    "gcnn_small": "8x3x96x96",
    "gsa_tiny": "16x1x28x28",
}
SERVER = """
import sys, time
root, name, shape = sys.argv[1:]
sys.path.insert(0, root)
import timm, torch
import gcsa, gcsa.models
assert gcsa.__file__.startswith(root), gcsa.__file__
torch.manual_seed(0)
images = torch.randn([int(size) for size in shape.split("x")])
model = timm.create_model(name, in_chans=images.shape[1], num_classes=2)
optimizer = torch.optim.AdamW(model.parameters())

def forward():
    model.eval()
    with torch.inference_mode():
        model(images)

def step():
    model.train()
    optimizer.zero_grad()
    model(images).square().mean().backward()
    optimizer.step()

for _ in range(3):
    forward(), step()
print("ready", flush=True)
for what in sys.stdin:
    start = time.perf_counter()
    globals()[what.strip()]()
    print(time.perf_counter() - start, flush=True)
"""


def serve(root: Path, name: str) -> subprocess.Popen[str]:
    """A process that makes one pass of the model of this checkout for each line that it reads."""
    command = [sys.executable, "-c", SERVER, str(root.resolve()), name, MODELS[name]]
    server = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    if server.stdout.readline().strip() != "ready":
        raise SystemExit(f"{root} makes no {name}")
    return server


def seconds(server: subprocess.Popen[str], what: str) -> float:
    """How long one pass takes."""
    assert server.stdin is not None
    assert server.stdout is not None
    print(what, file=server.stdin, flush=True)
    return float(server.stdout.readline())


def compare(old: Path, new: Path, name: str, pairs: int) -> list[dict[str, Any]]:
    """The rows of one model: forward pass and training step."""
    rows: list[dict[str, Any]] = []
    with timing():  # from the start of both to their end: what they compute is then known to be ours
        servers = [serve(old, name), serve(new, name)]
        for what, count in (("forward", pairs), ("step", max(1, pairs // 3))):
            times: tuple[list[float], list[float]] = ([], [])
            for i in range(count):
                for side in (0, 1) if i % 2 else (1, 0):
                    times[side].append(seconds(servers[side], what))
            row = {
                "model": name,
                "pass": what,
                "old_ms": round(median(times[0]) * 1e3, 2),
                "minima": round(min(times[1]) / min(times[0]), 3),
                "medians": round(median(times[1]) / median(times[0]), 3),
                "paired": round(median(new / old for old, new in zip(*times, strict=True)), 3),
            }
            rows.append(row)
            print(*row.values(), flush=True)
        for server in servers:
            server.kill()
            server.wait()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=60, help="forward passes of each side; steps are a third of them")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--write", action="store_true", help="keep the figures")
    args = parser.parse_args()
    result: dict[str, Any] = {"pairs": args.pairs, "rows": [], "same": []}
    for name in args.models:
        print("== old against new")
        result["rows"] += compare(args.old, args.new, name, args.pairs)
        print("== old against itself")
        result["same"] += compare(args.old, args.old, name, args.pairs)
    if args.write:
        save("checkouts", result)


if __name__ == "__main__":
    main()
