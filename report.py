"""Writes the tables of README.md and docs/imagenet.md, and docs/results/*.png: `python report.py` (`--check` compares).

Every number in them stands in a JSON file under docs/results/ or benchmarks/results/, with seed, configuration,
machine and commit. A training result is the results.json of a run, copied to the folder of its comparison:
docs/results/ itself, `systems/`, `shares/SHARE/`, `performers/DATA/` and `ocr/SCRIPT/`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gcsa.evaluation import Curve, cost_figure, save, scaling_figure, share_figure, shift_figure

ROOT = Path(__file__).parent
START, END = "<!-- results: {name} -->", "<!-- end -->"


Results = dict[str, dict[str, Any]]


def load(folder: str) -> Results:
    return {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / folder).glob("*.json"))}


def accuracy(run: dict[str, Any]) -> float:
    return float(run["results"]["test/accuracy"])


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


def systems() -> Results:
    """The runs on rotated MNIST with one budget, the best first."""
    runs = load("docs/results/systems")
    return dict(sorted(runs.items(), key=lambda item: -accuracy(item[1])))


def systems_table() -> str:
    rows = []
    for name, run in systems().items():
        config = run["config"]
        shown = [f"{run['parameters'] / 1e3:,.0f}k", f"{run['flops'] / 1e6:,.0f}M"]
        shown += [f"{100 * run['results'][key]:.2f}" for key in ("val/accuracy", "test/accuracy")]
        shown += [f"{run['results']['invariance_error']:.0e}", f"{run['fit_seconds'] / 60:.0f}"]
        rows.append([f"`{name}`", *shown, str(config["trainer"]["max_epochs"]), str(run["seed"]), run["commit"][:8]])
    header = ["system", "parameters", "FLOPs an image", "validation %", "test %", "invariance error", "minutes"]
    return table([*header, "epochs", "seed", "commit"], rows)


def shares() -> dict[str, dict[float, dict[str, Any]]]:
    """System to share of the training set to run; the whole set is the run of `systems`."""
    folders = sorted((ROOT / "docs/results/shares").glob("*"), key=lambda folder: float(folder.name))
    runs = {float(folder.name): load(f"docs/results/shares/{folder.name}") for folder in folders} | {1.0: systems()}
    names = sorted(set.intersection(*(set(found) for found in runs.values())))
    return {name: {share: found[name] for share, found in runs.items()} for name in names}


def shares_table() -> str:
    rows = []
    for name, runs in shares().items():
        rows.append([f"`{name}`", *(f"{100 * accuracy(run):.2f}" for run in runs.values())])
    columns = []
    for share, run in next(iter(shares().values())).items():
        columns.append(f"{share:.0%} of the training set, {run['config']['trainer']['max_epochs']} epochs: test %")
    return table(["system", *columns], rows)


def performers_table() -> str:
    names = ("mnist", "fashion_mnist", "cifar10")
    folders = {name: found for name in names if (found := load(f"docs/results/performers/{name}"))}
    rows = []
    for name in sorted(set().union(*folders.values())):
        runs = [found.get(name) for found in folders.values()]
        parameters = next(f"{run['parameters'] / 1e6:.2f}M" for run in runs if run)
        rows.append([f"`{name}`", parameters, *(f"{100 * accuracy(run):.2f}" if run else "not run" for run in runs)])
    columns = []
    for data, found in folders.items():
        config = next(iter(found.values()))["config"]
        columns.append(
            f"{data}, {config['data']['limit_train']} images, {config['trainer']['max_epochs']} epochs: test %"
        )
    return table(["system", "parameters", *columns], rows)


def percent(run: dict[str, Any], rate: str) -> str:
    """An error rate of the test lines, and its 95 % interval."""
    low, high = run["results"][f"test/{rate}_interval"]
    return f"{100 * run['results'][f'test/{rate}']:.2f} ({100 * low:.1f} to {100 * high:.1f})"


def text_table() -> str:
    """Recognisers of one script from scratch, with one budget."""
    rows = []
    for name, run in load("docs/results/ocr/fr17_roman_print").items():
        results = run["results"]
        rows.append([f"`{name}`", f"{run['parameters'] / 1e3:,.0f}k", f"{run['flops'] / 1e6:,.0f}M"])
        rows[-1] += [f"{100 * results['val/cer']:.2f}", percent(run, "cer"), percent(run, "wer")]
        if "test/same_when_turned" in results:
            shown = [f"{results[f'test/{key}']:.2%}" for key in ("same_when_turned", "turn_found")]
            rows[-1] += [*shown, f"{100 * results['test/cer_any']:.2f}"]
        else:
            rows[-1] += ["no", "no", f"{100 * results['test/cer_upside_down']:.1f}"]
        rows[-1] += [f"{run['fit_seconds'] / 60:.0f}", str(run["config"]["trainer"]["max_epochs"])]
        rows[-1] += [str(run["seed"]), run["commit"][:8]]
    header = ["recogniser", "parameters", "FLOPs a line of 480 px", "validation CER %", "test CER % (95 %)"]
    header += ["test WER % (95 %)", "same text at 0, 90, 180, 270 degrees", "turn found"]
    header += ["CER % of turned lines", "minutes", "epochs", "seed", "commit"]
    return table(header, rows)


def adapters_table() -> str:
    """Adapters of the French base to other scripts beside the whole base fine-tuned for as many steps."""
    rows = []
    for folder in sorted((ROOT / "docs/results/ocr").glob("*")):
        for name, run in load(f"docs/results/ocr/{folder.name}").items():
            if run["config"].get("adapter") is None:
                continue
            size = run["adapter_bytes"]
            rows.append([folder.name, name, f"{run['trainable'] / run['parameters']:.1%}"])
            rows[-1] += ["" if size is None else f"{size / 1024:.0f} KiB"]
            rows[-1] += [f"{100 * run['results']['val/cer']:.2f}", percent(run, "cer")]
            rows[-1] += [f"{run['fit_seconds'] / 60:.0f}", str(run["config"]["trainer"]["max_epochs"])]
            rows[-1] += [str(run["seed"]), run["commit"][:8]]
    header = ["script", "trained", "of the parameters", "file", "validation CER %", "test CER % (95 %)"]
    return table([*header, "minutes", "epochs", "seed", "commit"], rows)


def adapter_step_line() -> str:
    results = load("benchmarks/results")["adapters"]
    whole, *adapters = results["step"]
    parts = []
    for side in adapters:
        time = results["step"][side]["median_ms"] / results["step"][whole]["median_ms"]
        memory = results["peak_megabytes"][side] / results["peak_megabytes"][whole]
        share = results["trainable"][side] / results["parameters"]
        parts.append(f"{side} ({share:.1%} trained) {time:.0%} of the time and {memory:.0%} of the memory")
    return f"A training step ({results['shape']}) takes, against that of the {whole}: " + "; ".join(parts) + "."


def transcription_line() -> str:
    results = load("benchmarks/results")["transcribe"]
    sides = ("gcsa_ocr_tiny, upright", "gcsa_ocr_tiny, any", "crnn, upright", "kraken")
    shown = "; ".join(f"{name} {results[name]['lines_per_second']:.0f}" for name in sides)
    return (
        f"From file to text, lines a second ({results['lines']} printed lines, batches of {results['batch']}, "
        f"{results['threads']} threads): {shown}. The last is kraken {results['kraken']['version']} with its default "
        f"network ({results['kraken']['parameters'] / 1e6:.1f}M parameters, lines 120 pixels high), random weights."
    )


def trocr_line() -> str:
    results = load("benchmarks/results")["trocr_overfit"]
    return (
        f"TrOCR with our encoder, both from scratch, learns {results['lines']} lines by heart in {results['steps']} steps: "
        f"loss {results['loss']['first epoch']:.1f} to {results['loss']['last epoch']:.4f}, character error rate "
        f"{results['cer']['greedy']:.1%} by `generate` in a fresh process, the same text for "
        f"{min(results['turned_lines_that_read_the_same'].values())} of the lines at every quarter turn."
    )


def shift_curves(data: str) -> dict[str, Curve]:
    results = load("benchmarks/results")["shifts"][data]
    return {name: Curve(**curve) for name, curve in results["curves"].items()}


def shifts_table() -> str:
    rows = []
    for data in ("mnist", "fashion_mnist"):
        for name, curve in shift_curves(data).items():
            centre = curve.accuracy[curve.positions.index(0)]
            rows.append([data, f"`{name}`", str(curve.images)])
            rows[-1] += [f"{100 * value:.1f}" for value in (centre, curve.accuracy[0], curve.accuracy[-1])]
            rows[-1].append(f"{100 * (max(curve.accuracy) - min(curve.accuracy)):.1f}")
    header = ["data", "system", "images", "in place %", "8 px to the left %", "8 px to the right %", "range, points"]
    return table(header, rows)


def scaling_lines() -> dict[str, dict[int, float]]:
    """Milliseconds by tokens of attention everywhere, by random features, and to a neighbourhood."""
    results = load("benchmarks/results")
    linear = results["linear"]["times by tokens"]
    near = {
        int(key.split()[0]) ** 2: row["tiles"]["median_ms"]
        for key, row in results["neighbourhood"].items()
        if "positions" in key
    }
    lines = {name: {int(count): row["median_ms"] for count, row in times.items()} for name, times in linear.items()}
    return {**lines, "neighbourhood of radius 3": near}


def figures() -> dict[str, Figure]:
    """File name in docs/results/ to figure."""
    costs = {name: (run["flops"], accuracy(run), run["parameters"]) for name, run in systems().items()}
    lines = {name: {share: accuracy(run) for share, run in runs.items()} for name, runs in shares().items()}
    return {
        "accuracy_flops.png": cost_figure(costs, 'Rotated MNIST, 6 epochs but for "same_minutes"'),
        "equivariance_augmentation.png": share_figure(lines, "Rotated MNIST: equivariance against augmentation"),
        "scaling.png": scaling_figure(scaling_lines(), "Attention as the map grows"),
        "shifts_mnist.png": shift_figure(shift_curves("mnist"), "MNIST, digit 1, shifted along x"),
        "shifts_fashion_mnist.png": shift_figure(shift_curves("fashion_mnist"), "Fashion-MNIST, trousers, shifted"),
    }


def invariance_table() -> str:
    """The largest error of each size over its registered groups."""
    results = load("benchmarks/results")["invariance"]
    sizes: dict[str, list[dict[str, Any]]] = {}
    for name, row in results.items():
        if name not in ("commit", "machine"):
            sizes.setdefault(re.sub(r"_[cd]\d+$", "", name), []).append(row)
    rows = []
    for size, found in sizes.items():
        turned = [f"{row['at_45_degrees']:.2f}" for row in found if "at_45_degrees" in row]
        errors = [f"{max(row[key] for row in found):.1e}" for key in ("logits", "features")]
        rows.append([f"`{size}`", str(len(found)), *errors, ", ".join(turned)])
    header = ["model", "registered names", "logits", "features", "logits at 45 degrees, smooth images: c4, c8"]
    return table(header, rows)


def precision_table() -> str:
    """Invariance and rounding of class scores in half precision."""
    results = load("benchmarks/results")["precision"]
    models = [name for name in results if name not in ("commit", "machine")]
    rows = []
    for way in results[models[0]]:
        cells = [f"{results[name][way]['invariance']:.0e} ({results[name][way]['rounding']:.0e})" for name in models]
        rows.append([way, *cells])
    return table(["computed in", *(f"`{name}`" for name in models)], rows)


def memory_line() -> str:
    results = load("benchmarks/results")["memory"]
    shown = []
    for name, row in results.items():
        if name not in ("commit", "machine"):
            kept, again = row["kept"], row["checkpointed"]
            size = " x ".join(map(str, row["images"]))
            change = f"{kept['median_megabytes']:,.0f} to {again['median_megabytes']:,.0f} MB"
            shown.append(f"{name}, {size}, {change}")
    return f"`checkpoint_activations=true` lowers the peak memory of a training step on a CPU: {'; '.join(shown)}."


def imagenet_table() -> str:
    """Step time and hours of the plan for ImageNet, by GPU and achieved fraction of its peak."""
    rows = []
    for row in load("benchmarks/results")["imagenet_plan"]["plan"]:
        rows.append([row["gpu"], f"{row['fraction']:.0%}", f"{row['images_per_second_and_gpu']:,.0f}"])
        rows[-1] += [f"{row['step_ms']:,.0f}", f"{row['hours']:,.1f}", f"{row['gpu_hours']:,.0f}"]
    return table(["GPU", "achieved", "images/s and GPU", "step, ms", "hours", "GPU hours"], rows)


def imagenet_costs() -> str:
    """What the plan for ImageNet is computed from."""
    results = load("benchmarks/results")["imagenet_plan"]
    counted = results["flops_per_image"]
    rows = [
        ["parameters", f"{results['parameters'] / 1e6:.2f} M"],
        ["FLOPs an image, forward", f"{counted['forward'] / 1e9:.2f} G"],
        ["FLOPs an image, forward and backward", f"{counted['training'] / 1e9:.2f} G"],
        ["the same, activations checkpointed", f"{counted['training, checkpointed'] / 1e9:.2f} G"],
    ]
    for kind, size in results["saved_bytes_per_image"].items():
        rows.append([f"kept for the backward pass, an image, {kind}", f"{size / 1e6:,.0f} MB"])
        rows.append(
            [f"the same, {results['assumed']['batch']} images", f"{size * results['assumed']['batch'] / 1e9:,.1f} GB"]
        )
    rows.append(
        ["weights, gradients, AdamW's moments and their average, float32", f"{results['state_bytes'] / 1e6:,.0f} MB"]
    )
    rows.append(
        ["files read, cropped and resized a second and core", f"{results['files_read_per_second_and_core']:,.0f}"]
    )
    return table(["measured", ""], rows)


def speed_table() -> str:
    """Ratios of medians measured side by side in one run."""
    results = load("benchmarks/results")
    shapes = {f"block, {shape}": row for shape, row in results["block"].items() if "times_faster" in row}
    shapes["REViT's rotated MNIST shape, batch 64"] = results["revit_shape"]
    rows = []
    for shape, row in shapes.items():
        ours = [f"{row[mode]['gcsa']['median_ms']:.0f}" for mode in ("forward", "forward_backward")]
        memory = row.get("peak_megabytes", {})
        for peer, fast in row["times_faster"].items():
            rows.append([shape, *ours, peer, f"{fast['forward']:.1f} x", f"{fast['forward_backward']:.1f} x"])
            rows[-1].append(f"{memory['gcsa'] / memory[peer]:.2f}" if peer in memory else "")
    header = ["shape", "ours forward, ms", "forward and backward, ms", "against", "ours is faster, forward"]
    return table([*header, "forward and backward", "training memory of the other's"], rows)


def tax_table() -> str:
    """Our time over that of timm's ViT of the same positions, width, depth and heads."""
    results = load("benchmarks/results")["tax"]
    rows = []
    for width, row in results.items():
        if width.startswith("width"):
            ours, peer = row["forward"]
            flops = row["flops an image"][ours] / row["flops an image"][peer]
            times = [f"{row['tax'][mode]:.2f} x" for mode in ("forward", "forward_backward")]
            parameters = [f"{row['parameters'][side] / 1e6:.1f}M" for side in (ours, peer)]
            rows.append([width, str(row["batch"]), *times, f"{flops:.2f} x", *parameters])
    header = ["network", "batch", "forward", "forward and backward", "FLOPs", "parameters", "of the ViT"]
    return table(header, rows)


def models_table() -> str:
    results = load("benchmarks/results")["models"]
    rows = []
    for name, row in results["models"].items():
        size = " x ".join(map(str, row["size"]))
        shown = [f"`{name}`", f"{row['parameters'] / 1e6:.2f}M", f"{row['batch']} of {size}"]
        for mode, side in (("forward", "as created"), ("forward", "folded"), ("forward_backward", "as created")):
            found = row[mode].get(side)
            shown.append(f"{1e3 * row['batch'] / found['median_ms']:,.0f}" if found else "")
        rows.append([*shown, f"{row['gflop an image']:.2f}", f"{row['of_matmul_rate']:.0%}"])
        rows[-1].append(f"{row['training_megabytes']:,.0f}")
    header = ["model", "parameters", "batch", "images/s", "folded", "in training", "GFLOP an image"]
    return table([*header, "of the matrix-product rate", "training step, MB"], rows)


def layers_table() -> str:
    results = load("benchmarks/results")["layers"]
    rows = []
    for name, row in results["layers"].items():
        times = [f"{row[mode]['median_ms']:.2f}" for mode in ("forward", "forward_backward")]
        rows.append([name, *times, f"{row['gflop']:.2f}", f"{row['gflops']:.0f}", f"{row['of_roofline']:.0%}"])
    rates = results["rates"]
    header = [f"layer ({results['shape']})", "forward, ms", "forward and backward, ms", "GFLOP", "GFLOP/s"]
    line = f"Measured rates: {rates['matmul_gflops']:.0f} GFLOP/s in matrix products, {rates['copy_gb_per_s']:.0f} GB/s in copies."
    return f"{line}\n\n" + table([*header, "of the roofline"], rows)


def neighbourhood_line() -> str:
    results = {key: row for key, row in load("benchmarks/results")["neighbourhood"].items() if "positions" in key}
    shown = "; ".join(
        f"{key.split(' positions')[0]} positions {row['tiles']['median_ms']:.0f} ms and {row['tiles_megabytes']:.0f} MB"
        for key, row in results.items()
    )
    return f"Neighbourhood attention, radius 3, 4 heads of 32, one image, forward: {shown}."


def large_images_table() -> str:
    results = load("benchmarks/results")["large_images"]
    times, memory = results["times by side"], results["megabytes by side"]
    sizes = list(next(iter(times.values())))
    rows = []
    for side, found in times.items():
        cells = [
            f"{found[size]['median_ms']:,.0f} ms, {memory[side][size]:,.0f} MB" if size in found else ""
            for size in sizes
        ]
        rows.append([side, *cells])
    return table(["attention", *(f"{size} x {size}" for size in sizes)], rows)


def poster_table() -> str:
    """G-CSA and G-SA in the poster's setting: medians, peak memory and how many times longer than `spatial` G-CSA."""
    results = load("benchmarks/results")["poster"]
    modes = ("forward", "forward_backward")
    fastest = {mode: min(side["median_ms"] for side in results[mode].values()) for mode in modes}
    rows = []
    for side, parameters in results["parameters"].items():
        times = [results[mode][side]["median_ms"] for mode in modes]
        cells = [f"{time:,.0f} ({time / fastest[mode]:.1f} x)" for mode, time in zip(modes, times, strict=True)]
        cells += [f"{results['peak_megabytes'][side][mode]:,.0f}" for mode in modes]
        rows.append([side, f"{parameters / 1e3:,.0f}k", *cells])
    header = ["system", "parameters", "forward, ms", "forward and backward, ms"]
    return table([*header, "peak memory forward, MB", "with backward, MB"], rows)


def linear_line() -> str:
    results = load("benchmarks/results")["linear"]
    factors = results["factor per doubling"]
    times = results["times by tokens"]
    most = max(times["linear"], key=int)
    crossing = results["linear overtakes exact at tokens"]
    return (
        f"Linear attention ({results['attention']}) takes {min(factors.values()):.2f} to {max(factors.values()):.2f} times "
        f"as long per doubling of the tokens up to {int(most):,}, and overtakes exact attention at {crossing:,.0f} tokens; "
        f"at {int(most):,} it takes {times['linear'][most]['median_ms']:.0f} ms against "
        f"{times['exact'][most]['median_ms']:,.0f} ms."
    )


def fold_line() -> str:
    results = load("benchmarks/results")["export"]
    speed, threads = results["speed"], results["machine"]["threads"]
    shown = [
        f"{name} {sizes['1']['speed_up']:.1f} x at batch 1, {sizes['32']['speed_up']:.1f} x at batch 32"
        for name, sizes in speed.items()
    ]
    return f"A folded model (`gcsa.export.fold`, {threads} threads) is faster: {'; '.join(shown)}."


EXPORTS = {
    "folded": "folded",
    "torchscript": "TorchScript",
    "pt2": "torch.export",
    "pt2_any_size": "any size",
    "onnx": "ONNX",
    "onnx_any_size": "any size",
    "aoti": "AOTInductor",
    "compile_eval": "compile, eval",
    "compile_train": "train",
    "inductor_eval": "Inductor, eval",
    "inductor_train": "train",
}


def exports_table() -> str:
    """The worst parity of each size over its registered groups, by every way to export and compile, and why some fail."""
    passes = load("benchmarks/results")["export_passes"]["passes"]
    sizes: dict[str, dict[str, dict[str, float | str]]] = {}
    for name, row in passes.items():
        sizes.setdefault(re.sub(r"_[cd]\d+$", "", name), {})[name] = row
    rows, reasons = [], []
    for size, found in sorted(sizes.items()):
        cells = []
        for way in EXPORTS:
            results = {name: row[way] for name, row in found.items() if way in row}
            failed = {name: reason for name, reason in results.items() if isinstance(reason, str)}
            reasons += [f"- `{name}`, {way}: {reason[:150].rstrip()}" for name, reason in failed.items()]
            errors = [error for error in results.values() if not isinstance(error, str)]
            share = f" ({len(failed)} of {len(results)})" if errors else ""
            cells.append(f"no{share}" if failed else f"{max(errors):.0e}" if any(errors) else "0" if errors else "")
        rows.append([f"`{size}`", str(len(found)), *cells])
    return "\n".join([table(["model", "names", *EXPORTS.values()], rows), *(["", *reasons] if reasons else [])])


def startup_line() -> str:
    startup = load("benchmarks/results")["startup"]
    return (
        f'`create_model("gcsa_small_c8")` in a fresh process, beyond importing torch and timm: '
        f"{startup['warm']['median_seconds']:.2f} s warm (escnn is not imported), {startup['cold']['seconds']:.1f} s the "
        "first time."
    )


PARTS = {
    "training": training_table,
    "systems": systems_table,
    "shares": shares_table,
    "performers": performers_table,
    "shifts": shifts_table,
    "text": text_table,
    "adapters": adapters_table,
    "adapter_step": adapter_step_line,
    "transcription": transcription_line,
    "trocr": trocr_line,
    "invariance": invariance_table,
    "models": models_table,
    "layers": layers_table,
    "tax": tax_table,
    "speed": speed_table,
    "poster": poster_table,
    "linear": linear_line,
    "neighbourhood": neighbourhood_line,
    "large_images": large_images_table,
    "precision": precision_table,
    "fold": fold_line,
    "exports": exports_table,
    "startup": startup_line,
}


PLAN = {"imagenet_costs": imagenet_costs, "imagenet": imagenet_table, "memory": memory_line}
TEXTS = {"README.md": PARTS, "docs/imagenet.md": PLAN}
"""Files with generated parts."""


def updated(text: str, parts: dict[str, Callable[[], str]]) -> str:
    """`text` with each part between its markers written anew."""
    for name, part in parts.items():
        start = START.format(name=name)
        before, rest = text.split(start)
        text = f"{before}{start}\n{part()}\n{END}{rest.split(END, 1)[1]}"
    return text


def main() -> int:
    old = {name: (ROOT / name).read_text() for name in TEXTS}
    new = {name: updated(old[name], parts) for name, parts in TEXTS.items()}
    if "--check" in sys.argv[1:]:
        for name in TEXTS:
            if new[name] != old[name]:
                print(f"{name} differs from the results: run python report.py")
        return int(new != old)
    for name, text in new.items():
        (ROOT / name).write_text(text)
    for name, figure in figures().items():
        save(figure, ROOT / "docs/results" / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
