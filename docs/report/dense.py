"""Tables of segmenters."""

from __future__ import annotations

from report.results import Run, budget_cells, table, thousands
from report.training import load_seeds

SHARES = {"": "all", "_30": "30 %", "_10": "10 %"}
"""What stands behind the name of the folder of a share of the training images, and that share in words."""
SCORES = ("ap50", "ap60", "ap70", "ap80", "ap90", "pq", "dice")


def nuclei() -> str:
    """One row a system and seed: the test images upright, turned and mirrored, which were read once."""
    rows = []
    for suffix, share in SHARES.items():
        for name, runs in load_seeds(f"learning/nuclei{suffix}").items():
            rows += [[f"`{name}`", share, *_cells(run)] for run in runs]
    header = ["system", "training images", "parameters", "FLOPs, 256 x 256", "validation AP50 %"]
    header += ["AP50 %", "60", "70", "80", "90", "PQ %", "Dice %"]
    header += [
        "AP50 turned %",
        "pixels that change",
        "objects that change",
        "minutes",
        "threads",
        "epochs",
        "seed",
        "commit",
    ]
    return table(header, rows)


def _cells(run: Run) -> list[str]:
    results, turned = run["results"], run["results"].get("turned")
    cells = [thousands(run["parameters"]), f"{run['flops'] / 1e9:.1f}G", f"{100 * results['val/ap50']:.1f}"]
    cells += [f"{100 * results[f'test/{name}']:.1f}" if f"test/{name}" in results else "" for name in SCORES]
    if turned is None:
        cells += ["", "", ""]
    else:
        cells.append(f"{100 * turned['ap50']:.1f}")
        cells += [f"{turned[kind]:,} of {turned[f'of_{kind}']:,}" for kind in ("pixels", "objects")]
    minutes, *rest = budget_cells(run)
    return [*cells, minutes, str(run["machine"]["threads"]), *rest]
