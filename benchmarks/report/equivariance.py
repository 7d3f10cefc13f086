"""Tables of equivariance errors."""

from __future__ import annotations

import re
from statistics import mean
from typing import Any

from gcsa.groups import group

from .results import load_benchmark, load_runs, measured, table
from .training import DATA_SETS, SPLIT_CELLS, split_cells, spread_cell


def size_of(name: str) -> str:
    """The model of an entry of the benchmark: "gcsa_tiny" of "gcsa_tiny_c8"."""
    return re.sub(r"_[cd]\d+$", "", name)


def invariance() -> str:
    """The largest error of each model over the groups c4, c8, d4 and d8."""
    sizes: dict[str, list[dict[str, Any]]] = {}
    for name, row in measured("invariance").items():
        sizes.setdefault(size_of(name), []).append(row)
    rows = []
    for size, groups in sizes.items():
        at_45_degrees = [f"{row['at_45_degrees']:.2f}" for row in groups if "at_45_degrees" in row]
        errors = [f"{max(row[key] for row in groups):.1e}" for key in ("logits", "features")]
        rows.append([f"`{size}`", str(len(groups)), *errors, ", ".join(at_45_degrees)])
    header = ["model", "groups", "logits", "features", "logits at 45 degrees, smooth images: c4, c8"]
    return table(header, rows)


FAMILIES = {
    "exact": "rotations by 90 degrees, reflections",
    "angle": "other angles, each 7.5 degrees",
    "shift": "shifts by 0.5, 1 and 2 pixels",
    "blur": "blur, sigma 0.5 to 1",
    "magnification": "magnification 0.8 to 1.25",
    "jpeg": "JPEG, quality 50 and 80",
    "stain": "stains 10 % stronger or weaker",
    "brightness": "brightness 0.9 and 1.1",
}
"""The families of benchmarks/equivariance/off_grid.py, in words."""


def off_grid() -> str:
    """The share of the answers that change one step off the grid, on PatchCamelyon: the mean over a family, and its worst member."""
    return _off_grid("pcam")


def off_grid_plankton() -> str:
    """The same on plankton."""
    return _off_grid("plankton")


def _off_grid(data: str) -> str:
    models = {name: content for name, content in load_runs("off_grid").items() if content["data"] == data}
    rows = [["accuracy, upright", *(f"{100 * content['accuracy']:.1f} %" for content in models.values())]]
    measured_families = next(iter(models.values()))["families"]  # grey images have no stains
    for family in measured_families:
        rows.append([FAMILIES[family], *(_mean_and_worst(content["families"][family]) for content in models.values())])
    kept = []
    for content in models.values():
        members = content["families"]["angle"]["members"]
        shares = [members[f"{angle} degrees"]["neighbour_kept"] for angle in (15, 45)]
        kept.append(" / ".join(f"{100 * share:.0f}" for share in shares) + " %")
    rows.append(["images that stay nearest to themselves at 15 / 45 degrees, by features", *kept])
    return table(["answers that change, mean / worst", *(f"`{name}`" for name in models)], rows)


def _mean_and_worst(family: dict[str, Any]) -> str:
    return f"{100 * family['mean_changed']:.1f} / {100 * family['worst_changed']:.1f} %"


def real_context() -> str:
    """The share of the answers that change where the slide around each patch rotates too."""
    rows = []
    for name, content in load_runs("real_context").items():
        angles = {float(degrees): row for degrees, row in content["angles"].items()}
        between = [row["changed"] for degrees, row in angles.items() if degrees % 90]
        exact = max(row["changed"] for degrees, row in angles.items() if not degrees % 90)
        kept = [angles[degrees]["neighbour_kept"] for degrees in (7.5, 15, 45)]
        cells = [f"`{name}`", f"{100 * exact:.1f} %", f"{100 * mean(between):.1f} / {100 * max(between):.1f} %"]
        rows.append([*cells, *(f"{100 * share:.0f} %" for share in kept)])
    header = ["network", "answers that change at 90, 180, 270 degrees", "at other angles, mean / worst"]
    return table([*header, *(f"nearest to themselves at {angle} degrees" for angle in ("7.5", "15", "45"))], rows)


def two_views() -> str:
    """Variants of training on two views of each image, the shortest first, on the validation patches."""
    rows = []
    for one in sorted(
        load_runs("two_views").values(), key=lambda one: (one["epochs"], -one["families"]["angle"]["worst_changed"])
    ):
        families = one["families"]
        worst = [f"{100 * families[name]['worst_changed']:.1f}" for name in ("angle", "shift")]
        blur = 100 * families["blur"]["members"]["sigma 0.7"]["changed"]
        kept = [families["angle"]["members"][f"{angle} degrees"]["neighbour_kept"] for angle in (15, 45)]
        cells = [one["model"], str(one["epochs"]), f"{one['flops'] / 1e9:.2f}", f"{100 * one['accuracy']:.1f}"]
        cells += [f"{one['auroc']:.3f}", *worst, f"{blur:.1f}", " / ".join(f"{100 * share:.0f}" for share in kept)]
        rows.append(cells)
    header = [
        "variant",
        "epochs",
        "GFLOP",
        "accuracy %",
        "AUROC",
        "answers that change at worst, any angle %",
        "shift %",
    ]
    return table([*header, "blur 0.7 %", "own nearest image at 15 / 45 degrees %"], rows)


def exact() -> str:
    """Trained classifiers as they are, and made exact by the wrappers of `gcsa.symmetry`; the mean over seeds where there are some."""
    seeds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for file, found in load_runs("exact").items():
        data, _, name = file.partition("_seed")[0].removesuffix("_tenth").partition("_")
        seeds.setdefault((DATA_SETS[data], found["labels"], name, found["group"]), []).append(found["rows"])
    rows = []
    for (data, labels, name, elements), runs in seeds.items():
        for kind, passes in {"as it is": 1, "Averaged": group(elements).order, "Canonical": 1}.items():
            cells = split_cells({split: [one[f"{kind}, {split}"] for one in runs] for split in ("val", "test")})
            rows.append([data, labels, f"`{name}`", str(len(runs)), kind, str(passes), *cells])
    return table(["data", "labels", "network", "seeds", "used", "passes", *SPLIT_CELLS], rows)


def learned_pose() -> str:
    """A frozen classifier in one pose, in poses that a chooser finds, and in all of them; choosers of several seeds."""
    found = list(load_runs("learned_pose", "pcam_tf_efficientnet_lite0_seed*").values())
    passes = {
        "one pose": "1",
        "canonical, moments": "1",
        "canonical, learned": spread_cell([content["passes"] for content in found], 2),
        "averaged": "8",
        "best pose": "8, and the label",
    }
    rows = []
    for name, cost in passes.items():
        learned = found if name == "canonical, learned" else found[:1]  # no other row depends on the chooser
        runs = {split: [content["rows"][f"{name}, {split}"] for content in learned] for split in ("val", "test")}
        rows.append([name, cost, *split_cells(runs)])
    commits = ", ".join(dict.fromkeys(content["commit"][:8] for content in found))
    return (
        table(["used", "passes", *SPLIT_CELLS], rows)
        + f"\n\nChoosers of the seeds {', '.join(str(c['seed']) for c in found)}; commits {commits}."
    )


def audits() -> str:
    """Audits of networks by gcsa audit: the sentence of each, and the features at the exact poses and between them."""
    rows = []
    for network, content in load_runs("audit").items():
        for name, system in content["systems"].items():
            cells = []
            for is_exact in (True, False):
                some = [change for change in system["changes"] if (change["turn"]["degrees"] % 90 == 0) == is_exact]
                kept, moved = (mean(change[key] for change in some) for key in ("neighbours", "distance"))
                cells += [f"{100 * kept:.0f} %", f"{moved:.2f}"]
            rows.append([f"`{network}`, {name}", system["group"], *cells])
    header = ["features of", "exact under", "nearest images kept, exact poses", "distance / between images"]
    return table([*header, "nearest images kept, between them", "distance / between images"], rows)


def choosers() -> str:
    """A classifier in the wrappers of gcsa and behind equiadapt: the change of its scores, for images of 96 and of 97 pixels."""
    found = list(load_runs("symmetry", "equiadapt_*").values())
    rows = []
    for content in found:
        for name, sizes in content["rows"].items():
            cells = []
            for one in sizes.values():
                shares = [f"{100 * one[key]:.0f} %" for key in ("above_rounding", "answers")]
                cells += [_size(one["relative"]), *shares]
            rows.append([name, content["group"], *cells, f"{sizes['96']['passes']:.3g}"])
    header = [
        f"{words}, {size} pixels" for size in (96, 97) for words in ("largest change", "scores that change", "answers")
    ]
    about = found[0]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return table(["network", "group", *header, "passes"], rows) + f"\n\n{versions}; commit {about['commit'][:8]}."


def trained_choosers() -> str:
    """A frozen classifier behind choosers of poses that were trained for it: what it gains, and what rotations still change."""
    content = load_benchmark("learned_pose/equiadapt_c4")
    rows = []
    for name, one in content["rows"].items():
        figures = split_cells({split: [one[split]] for split in ("val", "test")})
        changes = [_size(one["changes"]["relative"])]
        changes += [f"{100 * one['changes'][key]:.1f} %" for key in ("above_rounding", "answers")]
        rows.append([name, f"{one['minutes']:.1f}", f"{one['passes']:.2f}", *figures, *changes])
    header = ["network", "minutes", "passes", *SPLIT_CELLS]
    header += ["largest change", "scores that change", "answers that change"]
    return (
        table(header, rows)
        + f"\n\nSeed {content['seed']}; {content['machine']['cpu']}; commit {content['commit'][:8]}."
    )


IN_SHORT = (
    "features",
    "as it is",
    "Averaged",
    "moments",
    "whole image",
    "gcsa_unet_tiny",
    "StarDist",
    "gcsa_ocr_tiny",
    "one pass",
)
"""What is in the names of the rows of `who_is_exact_in_short`, the first that has it."""
EXACT = ["system", "poses", "measured on", "what changes"]


def who_is_exact_in_short() -> str:
    """The rows of `who_is_exact` that stand for the others."""
    rows = exact_rows()
    return table(EXACT, [next(row for row in rows if part in row[0]) for part in IN_SHORT])


def who_is_exact() -> str:
    """What changes when images rotate by multiples of 90 degrees (and reflect), of systems of all kinds, theirs and ours."""
    return table(EXACT, exact_rows())


def exact_rows() -> list[list[str]]:
    """The rows of `who_is_exact`."""
    ours = load_benchmark("integrations/invariance")
    moved = max(ours["models"]["gcsa_pooled_small.pcam"][key] for key in ("turns", "mirrors"))
    rows = [["`gcsa_pooled_small.pcam`, features", "d4", f"{ours['patches']} patches", f"features by {_size(moved)}"]]
    classifiers = load_benchmark("symmetry/equiadapt_c4")
    for name, sizes in classifiers["rows"].items():
        largest = max(one["relative"] for one in sizes.values())
        patches = f"{classifiers['images']} patches, 96 and 97 pixels"
        rows.append([f"`{classifiers['model']}`, {name}", "c4", patches, f"scores by {_size(largest)}"])
    stardist = load_benchmark("stardist/nuclei_seed0")
    smp = load_benchmark("symmetry/smp_unet_resnet18")
    segmenters = {
        "`gcsa_unet_tiny`, as `gcsa segment` uses it": load_benchmark("learning/nuclei/seed0/gcsa_unet_tiny")[
            "results"
        ]["turned"],
        f"StarDist's package {stardist['versions']['stardist']}": stardist["results"]["turned"],
        "U-Net of smp, ResNet-18, as it is": smp["as it is"],
        "U-Net of smp, ResNet-18, gcsa, Canonical": smp["canonical"],
    }
    for name, one in segmenters.items():
        parts = [f"{one[kind]:,.0f} of {one[f'of_{kind}']:,.0f} {kind}" for kind in ("pixels", "objects")]
        rows.append([name, "d4", f"{one.get('images turned', 65)} images", " and ".join(parts)])
    for name, one in load_benchmark("pages/rotated")["rows"].items():
        if "+turns" not in name:
            lines = one["test"]["lines"]
            changed = round((1 - one["test"]["same_when_rotated"]) * lines)
            rows.append([f"`{name}`", "c4", f"{lines} lines", f"{changed} of {lines} texts"])
    docorient = load_benchmark("symmetry/docorient")
    pages, alike = (sum(kind[key] for kind in docorient["kinds"].values()) for key in ("pages", "alike"))
    name = f"docorient {docorient['version']}, how it lays a page"
    rows.append([name, "c4", f"{pages} pages", f"{pages - alike} of {pages} pages"])
    return rows


def precision() -> str:
    """Invariance and rounding of class scores in half precision."""
    models = measured("precision")
    rows = []
    for way in next(iter(models.values())):
        rows.append([way, *(f"{row[way]['invariance']:.0e} ({row[way]['rounding']:.0e})" for row in models.values())])
    return table(["computed in", *(f"`{name}`" for name in models)], rows)


FRAMEWORKS = {
    "tiatoolbox": "TIAToolbox",
    "lightly_train": "lightly-train",
    "trident": "TRIDENT",
    "torchgeo": "TorchGeo",
    "smp": "segmentation_models_pytorch",
}


def _size(change: float) -> str:
    return f"{change:.2f}" if change > 0.01 else f"{change:.0e}" if change else "0"


def integrations() -> str:
    """The largest and the median change of a patch's features under quarter turns, through each framework."""
    rows = []
    for name, title in FRAMEWORKS.items():
        content = load_benchmark(f"integrations/{name}")
        for side, found in content.items():
            if isinstance(found, dict) and "largest" in found:
                numbers = f"{found['numbers']:,}"
                rows.append(
                    [title, content["version"], side, numbers, f"{_size(found['largest'])} ({_size(found['median'])})"]
                )
    return table(["framework", "version", "way", "numbers", "change"], rows)


def backbones() -> str:
    """How far features of ours and of timm's common backbones move, relative to their spread over patches."""
    rows = []
    for name, found in load_benchmark("integrations/invariance")["models"].items():
        changes = [_size(found[key]) for key in ("turns", "mirrors")]
        rows.append([f"`{name}`", found["weights"], *changes, f"{100 * found['found']:.0f} %"])
    return table(["model", "weights", "rotations by 90 degrees", "reflections", "found"], rows)
