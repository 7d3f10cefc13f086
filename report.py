"""Writes the README's tables from the results: `python report.py` (`--check` only compares).

Every number in them stands in a JSON file under docs/results/ or benchmarks/results/, with seed, configuration,
machine and commit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
START, END = "<!-- results: {name} -->", "<!-- end -->"


def load(folder: str) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / folder).glob("*.json"))}


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def training_table() -> str:
    """One row a training run: the best validation epoch, and the test set read once with it."""
    rows = []
    for name, run in load("docs/results").items():
        results, config = run["results"], run["config"]
        shown = [f"{100 * results['val/accuracy']:.2f}"]
        for key in ("test/accuracy", "test/auroc"):
            shown.append(f"{100 * results[key]:.2f}" if key in results else "")
        minutes = run["fit_seconds"] / 60
        budget = f"{config['trainer']['max_epochs']} epochs, {minutes:.0f} min on {run['machine']['threads']} thread(s)"
        rows.append([name, f"{run['parameters'] / 1e3:,.0f}k", *shown, budget, str(run["seed"]), run["commit"][:8]])
    return table(["run", "parameters", "validation %", "test %", "test AUROC %", "budget", "seed", "commit"], rows)


def invariance_table() -> str:
    """The largest error of each size over its registered groups."""
    results = load("benchmarks/results")["invariance"]
    rows = []
    for name, row in results.items():
        if name in ("commit", "machine"):
            continue
        turned = f"{row['at_45_degrees']:.2f}" if "at_45_degrees" in row else ""
        rows.append([f"`{name}`", str(row["elements"]), f"{row['logits']:.1e}", f"{row['features']:.1e}", turned])
    header = ["model", "exact elements", "logits", "features", "logits at 45 degrees, smooth images"]
    return table(header, rows)


def speed_table() -> str:
    """Ratios of medians measured side by side in one run."""
    results = load("benchmarks/results")
    shapes = {f"block, {shape}": row for shape, row in results["block"].items() if "times_faster" in row}
    shapes["REViT's rotated MNIST shape, batch 64"] = results["revit_shape"]
    rows = []
    for shape, row in shapes.items():
        ours = [f"{row[mode]['gcsa']['median_ms']:.0f}" for mode in ("forward", "forward_backward")]
        for peer, fast in row["times_faster"].items():
            rows.append([shape, *ours, peer, f"{fast['forward']:.1f} x", f"{fast['forward_backward']:.1f} x"])
    header = ["shape", "ours forward, ms", "forward and backward, ms"]
    return table([*header, "against", "ours is faster, forward", "forward and backward"], rows)


def startup_line() -> str:
    startup = load("benchmarks/results")["startup"]
    return (
        f'`create_model("gcsa_small_c8")` in a fresh process, beyond importing torch and timm: '
        f"{startup['warm']['median_seconds']:.2f} s warm (escnn is not imported), {startup['cold']['seconds']:.1f} s the "
        "first time."
    )


PARTS = {
    "training": training_table,
    "invariance": invariance_table,
    "speed": speed_table,
    "startup": startup_line,
}


def updated(text: str) -> str:
    """`text` with each part between its markers written anew."""
    for name, part in PARTS.items():
        start = START.format(name=name)
        before, rest = text.split(start)
        text = f"{before}{start}\n{part()}\n{END}{rest.split(END, 1)[1]}"
    return text


def main() -> int:
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = updated(old)
    if "--check" in sys.argv[1:]:
        return int(new != old)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
