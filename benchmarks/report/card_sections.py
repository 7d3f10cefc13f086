"""Sections of model cards: what other angles, sizes and pages do to the answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .equivariance import FAMILIES
from .results import ROOT, load_benchmark, load_runs, table

RESULTS = ROOT / "benchmarks/results"
ANGLE_PICTURE = "off_grid.png"
"""The figure beside the weights of a classifier, drawn by `report.figures`."""


def off_grid_weights() -> list[str]:
    """Names of the published weights that benchmarks/equivariance/off_grid.py measured."""
    return [name for name in load_runs("off_grid") if (ROOT / "weights" / name).is_dir()]


def sections(name: str) -> str:
    """All sections of the weights called `name`, each with its heading and a blank line behind it; "" where nothing was measured."""
    parts = []
    if name in off_grid_weights():
        parts.append(off_grid_section(name))
    if (RESULTS / f"scales/{name}.json").is_file():
        parts.append(scales_section(name))
    if (RESULTS / f"pages/{name}.json").is_file():
        parts.append(pages_section(name))
    return "".join(f"{part}\n\n" for part in parts)


def off_grid_section(name: str) -> str:
    """The answers of a classifier that change, and its features, by family of changes."""
    content = load_benchmark(f"off_grid/{name}")
    families = {family: content["families"][family]["members"] for family in FAMILIES if family in content["families"]}
    words = dict(FAMILIES)
    if not _knows_reflections(name):
        families["exact"] = _rotations(families["exact"])
        words["exact"] = "rotations by 90 degrees"
    rows = [[words[family], *_shares(members.values())] for family, members in families.items()]
    header = [
        "images changed by",
        "answers that change, mean",
        "worst",
        "images that stay nearest to themselves, at least",
    ]
    about = (
        f"On {content['images']} validation images, of which {_percent(content['accuracy'])} are classified correctly as they are. "
        "An image stays nearest to itself where, by features, its unchanged copy is the nearest of all unchanged images "
        f"(`python -m benchmarks.equivariance.off_grid`; commit {content['commit'][:8]})."
    )
    return f"""## One step off the pixel grid

{about}

{table(header, rows)}

![the share of answers that change, by the angle of rotation]({ANGLE_PICTURE})"""


def angle_shares(name: str) -> dict[float, float]:
    """Angle in degrees, 0 to 360, to the share of answers that change there; multiples of 90 degrees are exact on the pixel grid."""
    families = load_benchmark(f"off_grid/{name}")["families"]
    shares = {0.0: 0.0, 360.0: 0.0}
    shares |= {90.0 * k: row["changed"] for k, row in enumerate(_rotations(families["exact"]["members"]).values(), 1)}
    shares |= {float(angle.split()[0]): row["changed"] for angle, row in families["angle"]["members"].items()}
    return dict(sorted(shares.items()))


def scales_section(name: str) -> str:
    """Average precision of a segmenter at other sizes."""
    content = load_benchmark(f"scales/{name}")
    scores = {view: _percent(found["all"]) for view, found in content["ap50"].items()}
    own = {"0.5": scores["0.5, read with scale=2"], "1": scores["1"], "2": scores["2, read with scale=0.5"]}
    rows = [
        [f"{size} x", scores[size], at_own, scores[f"{size}, read with scale=auto"]] for size, at_own in own.items()
    ]
    rows.append(["1 x, negatives", scores["negative"], "", ""])
    objects = content["objects without nuclei"]
    header = ["size of the images", "AP50 as they are", "read at their scale (`--scale`)", "`--scale auto`"]
    about = (
        f"Average precision at IoU 0.5 on the {content['images']} validation images, each resized. In {len(objects)} photographs and "
        f"textures without nuclei, it found {sum(objects.values()):,} objects (`python -m benchmarks.dense.scales`; commit "
        f"{content['commit'][:8]})."
    )
    return f"""## Other sizes

{about}

{table(header, rows)}"""


def pages_section(name: str) -> str:
    """Character error rates of a page in its four orientations, rotated by small angles, and photographed."""
    upright, skewed = load_benchmark(f"pages/{name}"), load_benchmark("pages/skewed")
    rows = [
        [f"rotated by {degrees} degrees" if degrees != "0" else "upright", _percent(scan["cer"]), ""]
        for degrees, scan in upright["page"]["orientations"].items()
    ]
    if skewed["weights"] == name:
        rows[0][2] = _percent(skewed["given"]["0"]["straightened"])
        for view, found in skewed["found"].items():
            if view != "0":
                given = skewed["given"].get(view)
                page = f"rotated by {view} degrees" if view.isdigit() else view
                rows.append([page, _percent(found["cer"]), _percent(given["straightened"]) if given else ""])
    header = ["page", "character error rate, lines found", "lines given"]
    about = (
        "One page of French print of about 1800, of a printer that was not trained on. Its lines are found on the page, or given "
        "(`python -m benchmarks.text.pages`, `python -m benchmarks.text.skewed_pages`; commits "
        f"{upright['commit'][:8]}, {skewed['commit'][:8]})."
    )
    return f"""## A page in other positions

{about}

{table(header, rows)}"""


def _knows_reflections(name: str) -> bool:
    return any("reflection" in move for move in load_benchmark(f"published/{name}")["invariance"])


def _rotations(exact: dict[str, Any]) -> dict[str, Any]:
    """Of the elements of d4, those that rotate: 1 to 3 (`gcsa.groups.Group` counts reflections behind them)."""
    return {element: exact[element] for element in ("element 1", "element 2", "element 3")}


def _shares(members: Iterable[dict[str, float]]) -> list[str]:
    """Mean and worst share of answers that change, and the least share of images nearest to themselves."""
    rows = list(members)
    changed = [row["changed"] for row in rows]
    kept = min(row["neighbour_kept"] for row in rows)
    return [_percent(sum(changed) / len(changed)), _percent(max(changed)), f"{100 * kept:.0f} %"]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
