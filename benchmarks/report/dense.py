"""Tables of segmenters."""

from __future__ import annotations

from typing import Any

from .results import Run, budget_cells, load_benchmark, load_runs, load_timings, table, thousands
from .training import load_seeds

SHARES = {"": "all", "_30": "30 %", "_10": "10 %"}
"""What stands behind the name of the folder of a share of the training images, and that share in words."""
SCORES = ("ap50", "ap60", "ap70", "ap80", "ap90", "pq", "dice")


def nuclei() -> str:
    """One row for each system and seed. Changes are those of the test images rotated and reflected in seven ways."""
    rows = []
    for suffix, share in SHARES.items():
        for name, runs in load_seeds(f"learning/nuclei{suffix}").items():
            rows += [[f"`{name}`", share, *_cells(run)] for run in runs]
    rows += [_of_stardist(run) for run in load_runs("stardist").values()]
    header = ["system", "training images", "parameters", "FLOPs, 256 x 256", "validation AP50 %"]
    header += ["AP50 %", "60", "70", "80", "90", "PQ %", "Dice %"]
    header += [
        "AP50 rotated %",
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
    cells += ["", "", ""] if turned is None else _turned_cells(turned)
    minutes, *rest = budget_cells(run)
    return [*cells, minutes, str(run["machine"]["threads"]), *rest]


def _turned_cells(turned: dict[str, Any]) -> list[str]:
    changed = (f"{turned[kind]:,} of {turned[f'of_{kind}']:,}" for kind in ("pixels", "objects"))
    return [f"{100 * turned['ap50']:.1f}", *changed]


def _of_stardist(run: Run) -> list[str]:
    """The row of StarDist's own package, from benchmarks.dense.stardist_peer."""
    upright = run["results"]["upright"]
    scores = [f"{100 * upright[name]:.1f}" if name in upright else "" for name in SCORES]
    share = "all" if run["share"] == 1 else f"{run['share']:.0%}"
    cells = ["StarDist's package", share, thousands(run["parameters"]), "", "", *scores]
    cells += _turned_cells(run["results"]["turned"])
    minutes, commit = f"{run['fit_seconds'] / 60:.0f}", run["commit"][:8]
    return [*cells, minutes, str(run["threads"]), str(run["epochs"]), str(run["seed"]), commit]


def networks() -> str:
    """Time of an image and of a training step of each network of instances."""
    rows = []
    for machine, content in load_timings("dense_images", lambda content: _against(content, "image")).items():
        for name, about in content["about"].items():
            image, step = (content[kind][name]["median_ms"] for kind in ("image", "step"))
            cells = [f"`{name}`", machine, thousands(about["parameters"]), f"{about['flops'] / 1e9:.1f}G"]
            rows.append([*cells, f"{image:.0f}", f"{step:.0f}", f"{_against(content, 'image', name):.2f}"])
    header = ["network", "machine", "parameters", "FLOPs", "ms an image of 256 x 256, folded"]
    return table([*header, "ms a training step of four crops of 128 x 128", "time of an image against smp"], rows)


def _against(content: dict[str, Any], kind: str, name: str = "gcsa_unet_tiny") -> float:
    """The time of a network over that of the U-Net of segmentation_models_pytorch."""
    times = content[kind]
    return float(times[name]["median_ms"] / times["smp_unet_resnet18"]["median_ms"])


def mosaic() -> str:
    """A large picture in tiles."""
    sentences = []
    for machine, content in load_timings("mosaic_8192", lambda content: content["megabytes"]).items():
        side, places = content["side"], content["differences"]
        pixels, objects = (sum(counts) for counts in zip(*places, strict=True))
        sentences.append(
            f"`{content['weights']}` finds {content['objects']:,} objects in {side:,} x {side:,} pixels in "
            f"{content['seconds'] / 60:.1f} minutes with {content['megabytes']:,.0f} MB beyond the model ({machine}); around "
            f"{len(places)} crossings of tiles, {pixels} pixels and {objects} objects differ from a window of that place alone."
        )
    return "\n\n".join(sentences)


def slide() -> str:
    """A pyramid of JPEG tiles through gcsa segment."""
    content = load_benchmark("slide/nuclei")
    pixels, objects = (sum(counts) for counts in zip(*content["differences"], strict=True))
    row = [
        f"{content['width']:,} x {content['height']:,}",
        f"{content['file_megabytes']:.0f}",
        f"{content['cpu_seconds'] / 60:.0f}",
        f"{content['megabytes']:,.0f}",
        f"{content['megabytes_beyond_model']:,.0f}",
        f"{content['objects']:,}",
        f"{pixels} and {objects} around {len(content['differences'])}",
    ]
    header = [
        *("pixels", "MB of the file", "CPU-minutes", "MB at most", "MB beyond the model", "objects"),
        "pixels and objects that differ around crossings of tiles",
    ]
    return table(header, [row])


def scales() -> str:
    """AP50 of each published segmenter on the validation images at other sizes, by colour, and objects where there are none."""
    contents = load_runs("scales")
    views = list(dict.fromkeys(view for content in contents.values() for view in content["ap50"]))
    rows = []
    for name, content in contents.items():
        found = content["objects without nuclei"]
        for kind in ("all", "grey", "coloured"):
            cells = [f"{100 * content['ap50'][view][kind]:.1f}" if view in content["ap50"] else "" for view in views]
            empty = f"{sum(found.values())} in {len(found)}" if kind == "all" else ""
            rows.append([f"`{name}`", kind, *cells, empty, content["commit"][:8] if kind == "all" else ""])
    names = [
        f"{view.replace(',', ' x,', 1)}" if "," in view else f"{view} x" if view[0].isdigit() else view
        for view in views
    ]
    header = ["network", "images", *names, "objects in photographs and textures", "commit"]
    return table(header, rows)


def empty_fields() -> str:
    """Objects in noise and in parts of images that hold none, with and without the least contrast, and what noise costs."""
    content = load_benchmark("empty_fields")
    rows = [
        [f"`{name}`" if "(" in name else name, *(f"{row[key]:,}" for key in ("contrast", "network", "predict"))]
        for name, row in content["noise"].items()
    ]
    parts = content["empty_parts"]
    label = f"{parts['parts']} parts without nuclei, {parts['below']} of them below {content['least_contrast']:g}"
    rows.append([label, "", *(f"{parts['objects'][key]:,}" for key in ("network", "predict"))])
    header = ["picture", "contrast", "objects of the network alone", "objects"]
    noisy = [
        [f"{row[key]:.{digits}f}" for key, digits in (("signal", 0), ("contrast", 1))] for row in content["noise_added"]
    ]
    for cells, row in zip(noisy, content["noise_added"], strict=True):
        cells.append(f"{100 * row['ap50']:.1f}")
    added = table(
        ["range of an image, in deviations of noise added to it", "contrast", "AP50 % of the network alone"], noisy
    )
    least = ", ".join(f"{value:.0f} ({split})" for split, value in content["least_of_images"].items())
    return f"{table(header, rows)}\n\n{added}\n\nLeast contrast of the images: {least}. Commit {content['commit'][:8]}."


def stains() -> str:
    """By kind of picture in colour: OOD scores of picture and stain, which one `--stain auto` chooses, and AP50 where there are masks."""
    content = load_benchmark("stains")
    rows = []
    for kind, row in content["kinds"].items():
        scores = [f"{min(row[key]):.2f} to {max(row[key]):.2f}" for key in ("ood", "ood_stain")]
        points = [f"{100 * row['ap50'][key]:.1f}" if "ap50" in row else "" for key in ("none", "haematoxylin", "auto")]
        rows.append([kind, str(len(row["ood"])), *scores, str(row["chosen"]), *points])
    header = ["pictures", "", "OOD score", "of the stain", "read by the stain", "AP50 % without", "with", "`auto`"]
    return f"{table(header, rows)}\n\nCommit {content['commit'][:8]}."


def few_images() -> str:
    """AP50 of a laboratory that the published weights have not seen, from them and from random weights by a few of its images."""
    content = load_benchmark("few_images/gnf")
    names = {
        "averaged": "published weights, trained on",
        "tuned": "the same with `adapter.base_share=0`",
        "scratch": "random weights",
    }
    rows, order = [], ["published", *names]
    ordered = sorted(content["rows"].items(), key=lambda item: order.index(item[1].get("system", "published")))
    for name, row in ordered:
        cells = [f"{100 * row[key]:.1f}" if key in row else "" for key in ("laboratory", "in_domain")]
        if name == "published":
            rows.append(["published weights as they are", "", "", *cells, ""])
            if "laboratory_auto" in row:
                rows.append(["the same with `--scale auto`", "", "", f"{100 * row['laboratory_auto']:.1f}", "", ""])
            continue
        minutes = f"{row['cpu_seconds'] / 60:.1f}"
        rows.append([names[row["system"]], str(row["images"]), str(row["nuclei"]), *cells, minutes])
    header = ["start", "images", "nuclei in them", "AP50 % there", "AP50 % of the 65 test images", "CPU-minutes"]
    return table(header, rows)


def tissue() -> str:
    """Nuclei in H&E that nothing was trained on, by a threshold and by networks."""
    content = load_benchmark("tissue/monuseg")
    rows = []
    for system, row in content["rows"].items():
        chosen, test = row["validation"][row["chosen"]], row["test"]
        scores = [f"{100 * scores[key]:.1f}" for scores in (chosen, test) for key in ("dice", "ap50")]
        rows.append([f"`{system}`" if "gcsa" in system else system, f"`{row['chosen']}`", *scores])
        rows[-1].append(f"{test['brighter']:,} of {test['objects']:,}")
    header = ["segmented by", "chosen", "validation Dice %", "validation AP50 %", "Dice %", "AP50 %"]
    return table([*header, "objects brighter than the background"], rows) + f"\n\nCommit {content['commit'][:8]}."
