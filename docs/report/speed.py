"""Tables and sentences of speed and memory."""

from __future__ import annotations

from report.results import load_benchmark, measured, table, thousands

MODES = ("forward", "forward_backward")


def models() -> str:
    """Registered models as a user meets them."""
    rows = []
    for name, row in load_benchmark("models")["models"].items():
        size = " x ".join(map(str, row["size"]))
        cells = [f"`{name}`", f"{row['parameters'] / 1e6:.2f}M", f"{row['batch']} of {size}"]
        for mode, side in (("forward", "as created"), ("forward", "folded"), ("forward_backward", "as created")):
            times = row[mode].get(side)
            cells.append(f"{1e3 * row['batch'] / times['median_ms']:,.0f}" if times else "")
        cells += [f"{row['gflop an image']:.2f}", f"{row['of_matmul_rate']:.0%}", f"{row['training_megabytes']:,.0f}"]
        rows.append(cells)
    header = ["model", "parameters", "batch", "images/s", "folded", "in training", "GFLOP an image"]
    return table([*header, "of the matrix-product rate", "training step, MB"], rows)


def layers() -> str:
    """Single layers against what the machine can do."""
    results = load_benchmark("layers")
    rows = []
    for name, row in results["layers"].items():
        times = [f"{row[mode]['median_ms']:.2f}" for mode in MODES]
        rows.append([name, *times, f"{row['gflop']:.2f}", f"{row['gflops']:.0f}", f"{row['of_roofline']:.0%}"])
    rates = results["rates"]
    products, copies = f"{rates['matmul_gflops']:.0f} GFLOP/s", f"{rates['copy_gb_per_s']:.0f} GB/s"
    header = [f"layer ({results['shape']})", "forward, ms", "forward and backward, ms", "GFLOP", "GFLOP/s"]
    return f"Measured rates: {products} in matrix products, {copies} in copies.\n\n" + table(
        [*header, "of the roofline"], rows
    )


def tax() -> str:
    """Our time over that of timm's ViT of the same positions, width, depth and heads."""
    rows = []
    for width, row in load_benchmark("tax").items():
        if not width.startswith("width"):
            continue
        ours, peer = row["forward"]
        times = [f"{row['tax'][mode]:.2f} x" for mode in MODES]
        flops = row["flops an image"][ours] / row["flops an image"][peer]
        parameters = [f"{row['parameters'][side] / 1e6:.1f}M" for side in (ours, peer)]
        rows.append([width, str(row["batch"]), *times, f"{flops:.2f} x", *parameters])
    header = ["network", "batch", "forward", "forward and backward", "FLOPs", "parameters", "of the ViT"]
    return table(header, rows)


def speed() -> str:
    """Ratios of medians, ours against escnn's modules, measured side by side in one run."""
    shapes = {f"block, {shape}": row for shape, row in load_benchmark("block").items() if "times_faster" in row}
    shapes["REViT's rotated MNIST shape, batch 64"] = load_benchmark("revit_shape")
    rows = []
    for shape, row in shapes.items():
        ours = [f"{row[mode]['gcsa']['median_ms']:.0f}" for mode in MODES]
        memory = row.get("peak_megabytes", {})
        for peer, times in row["times_faster"].items():
            share = f"{memory['gcsa'] / memory[peer]:.2f}" if peer in memory else ""
            rows.append([shape, *ours, peer, *(f"{times[mode]:.1f} x" for mode in MODES), share])
    header = ["shape", "ours forward, ms", "forward and backward, ms", "against", "ours is faster, forward"]
    return table([*header, "forward and backward", "training memory of the other's"], rows)


def poster() -> str:
    """G-CSA and G-SA in the poster's setting: medians, peak memory and how many times longer than `spatial` G-CSA."""
    results = load_benchmark("poster")
    fastest = {mode: min(side["median_ms"] for side in results[mode].values()) for mode in MODES}
    rows = []
    for side, parameters in results["parameters"].items():
        times = [results[mode][side]["median_ms"] for mode in MODES]
        cells = [f"{time:,.0f} ({time / fastest[mode]:.1f} x)" for mode, time in zip(MODES, times, strict=True)]
        cells += [f"{results['peak_megabytes'][side][mode]:,.0f}" for mode in MODES]
        rows.append([side, thousands(parameters), *cells])
    header = ["system", "parameters", "forward, ms", "forward and backward, ms"]
    return table([*header, "peak memory forward, MB", "with backward, MB"], rows)


def linear() -> str:
    """Linear attention as the tokens double."""
    results = load_benchmark("linear")
    factors, times = results["factor per doubling"], results["times by tokens"]
    most = max(times["linear"], key=int)
    crossing = results["linear overtakes exact at tokens"]
    return (
        f"Linear attention ({results['attention']}) takes {min(factors.values()):.2f} to {max(factors.values()):.2f} times "
        f"as long per doubling of the tokens up to {int(most):,}, and overtakes exact attention at {crossing:,.0f} tokens; "
        f"at {int(most):,} it takes {times['linear'][most]['median_ms']:.0f} ms against "
        f"{times['exact'][most]['median_ms']:,.0f} ms."
    )


def neighbourhood() -> str:
    """Neighbourhood attention by the number of positions."""
    sizes = {key.split(" positions")[0]: row for key, row in measured("neighbourhood").items() if "positions" in key}
    costs = "; ".join(
        f"{size} positions {row['tiles']['median_ms']:.0f} ms and {row['tiles_megabytes']:.0f} MB"
        for size, row in sizes.items()
    )
    return f"Neighbourhood attention, radius 3, 4 heads of 32, one image, forward: {costs}."


def large_images() -> str:
    """Time and memory of a forward pass by the side of the image."""
    results = load_benchmark("large_images")
    times, memory = results["times by side"], results["megabytes by side"]
    sizes = list(next(iter(times.values())))
    rows = []
    for side, row in times.items():
        costs = {size: f"{row[size]['median_ms']:,.0f} ms, {memory[side][size]:,.0f} MB" for size in row}
        rows.append([side, *(costs.get(size, "") for size in sizes)])
    return table(["attention", *(f"{size} x {size}" for size in sizes)], rows)


def startup() -> str:
    """Seconds to create a model in a fresh process."""
    results = load_benchmark("startup")
    return (
        f'`create_model("gcsa_small_c8")` in a fresh process, beyond importing torch and timm: '
        f"{results['warm']['median_seconds']:.2f} s warm (escnn is not imported), {results['cold']['seconds']:.1f} s the "
        "first time."
    )
