"""Tables and sentences of speed and memory, each with every machine that was measured, the worst first."""

from __future__ import annotations

from typing import Any

from .results import entries, load_benchmark, load_timings, measured, sides, table, thousands

MODES = ("forward", "forward_backward")
Content = dict[str, Any]


def rows_of(machines: dict[str, Content], name: str, part: str | None = None) -> list[tuple[str, Content]]:
    """The machines that measured `name`, each with its row."""
    contents = {machine: content[part] if part else content for machine, content in machines.items()}
    return [(machine, content[name]) for machine, content in contents.items() if name in content]


def images_a_second(row: Content, mode: str, side: str) -> float:
    """How many images a second `side` of a model takes in `mode`."""
    return 1e3 * row["batch"] / row[mode][side]["median_ms"]


def times_of(rows: dict[str, Content]) -> list[float]:
    """All medians of rows with several sides or sizes, in milliseconds."""
    return [side["median_ms"] for row in rows.values() for side in row.values() if isinstance(side, dict)]


def models() -> str:
    """Registered models as a user meets them."""
    machines = {name: content for name, content in timed_models().items() if not content["machine"]["gpu"]}
    rows = []
    for name in dict.fromkeys(name for content in machines.values() for name in content["models"]):
        for machine, row in rows_of(machines, name, "models"):
            cells = [f"`{name}`", machine, f"{row['parameters'] / 1e6:.2f}M", f"{row['batch']} of {sides(row['size'])}"]
            for mode, side in (("forward", "as created"), ("forward", "folded"), ("forward_backward", "as created")):
                cells.append(f"{images_a_second(row, mode, side):,.0f}" if side in row[mode] else "")
            cells += [
                f"{row['gflop an image']:.2f}",
                f"{row['of_matmul_rate']:.0%}",
                f"{row['training_megabytes']:,.0f}",
            ]
            rows.append(cells)
    header = ["model", "machine", "parameters", "batch", "images/s", "folded", "in training", "GFLOP an image"]
    return table([*header, "of the matrix-product rate", "training step, MB"], rows)


def timed_models() -> dict[str, Content]:
    """The machines that measured registered models, the slowest first."""
    slowest = lambda content: content["models"]["gcsa_pyramid_small"]["forward"]["as created"]["median_ms"]
    return load_timings("models", slowest)


def models_on_gpu() -> str:
    """Registered models on a GPU, in float32 and by bfloat16 autocast, nothing compiled."""
    rows = []
    for machine, content in timed_models().items():
        if not content["machine"]["gpu"]:
            continue
        for name, row in content["models"].items():
            cells = [f"`{name}`", machine, f"{row['batch']} of {sides(row['size'])}"]
            for mode, side in (
                ("forward", "as created"),
                ("forward", "folded"),
                ("forward", "bf16"),
                ("forward_backward", "as created"),
                ("forward_backward", "bf16"),
            ):
                cells.append(f"{images_a_second(row, mode, side):,.0f}" if side in row[mode] else "")
            rows.append([*cells, f"{row['training_megabytes']:,.0f}"])
    header = ["model", "machine", "batch", "images/s", "folded", "bfloat16", "in training", "in training, bfloat16"]
    return table([*header, "training step, MB"], rows)


def cards() -> str:
    """Ours beside timm's ViT on a card, each in every way that was timed (`benchmarks.speed.gpu`)."""
    rows = []
    for content in load_timings("gpu", str).values():
        for row in content["rows"]:
            what = f"{row['network']}, width {row['width']}" if row["width"] else f"`{row['network']}`"
            mode = {"forward": "forward", "step": "forward and backward"}[row["mode"]]
            cells = [f"{row['images_per_s']:,.0f}", f"{row['of_rate']:.1%}", f"{row['peak_mib']:,.0f}"]
            rows.append([what, content["machine"]["gpu"], str(row["batch"]), mode, row["dtype"], row["way"], *cells])
    header = ["network", "card", "batch", "pass", "dtype", "way", "images/s", "of the card's rate", "peak, MiB"]
    return table(header, rows)


def bfloat16() -> str:
    """A training step in bfloat16 beside float32."""
    machines = load_timings("bfloat16", str)
    rows = []
    for machine, content in machines.items():
        for name, row in entries(content).items():
            wide, narrow = (row[side]["median_ms"] for side in ("float32", "bfloat16"))
            cells = [
                f"{row['batch']} of {sides(row['size'])}",
                f"{wide:,.0f}",
                f"{narrow:,.0f}",
                f"{wide / narrow:.1f} x",
            ]
            rows.append([f"`{name}`", machine, *cells])
    return table(["model", "machine", "batch", "float32, ms", "bfloat16, ms", "bfloat16 is faster"], rows)


def operators() -> str:
    """Where a training step of small networks goes."""
    machines, rows = load_timings("operators", str), []
    kinds: list[str] = []
    for machine, content in machines.items():
        for name, row in content["networks"].items():
            kinds = [*row["shares"]]
            shares = [*row["shares"].values(), 1 - sum(row["shares"].values())]
            rate = row["convolutions of the matrix-product rate"]
            cells = [
                f"{row['batch']} of {sides(row['size'])}",
                f"{row['milliseconds']:,.0f}",
                *(f"{share:.0%}" for share in shares),
                f"{rate:.0%}",
            ]
            rows.append([f"`{name}`", machine, *cells])
    other = ["the rest", "rate of the convolutions, of matrix products"]
    return table(["network", "machine", "batch", "step, ms", *kinds, *other], rows)


def layers() -> str:
    """Single layers against what the machine can do."""
    parts = []
    machines = load_timings("layers", lambda content: -min(row["of_roofline"] for row in content["layers"].values()))
    for machine, results in machines.items():
        rows = []
        for name, row in results["layers"].items():
            times = [f"{row[mode]['median_ms']:.2f}" for mode in MODES]
            rows.append([name, *times, f"{row['gflop']:.2f}", f"{row['gflops']:.0f}", f"{row['of_roofline']:.0%}"])
        rates = results["rates"]
        products, copies = f"{rates['matmul_gflops']:.0f} GFLOP/s", f"{rates['copy_gb_per_s']:.0f} GB/s"
        header = [f"layer ({results['shape']})", "forward, ms", "forward and backward, ms", "GFLOP", "GFLOP/s"]
        parts.append(f"{machine}: measured rates {products} in matrix products, {copies} in copies.")
        parts.append(table([*header, "of the roofline"], rows))
    return "\n\n".join(parts)


def tax() -> str:
    """Our time over that of timm's ViT of the same positions, width, depth and heads."""
    machines = load_timings("tax", lambda content: content["width 384"]["tax"]["forward"])
    rows = []
    for width in dict.fromkeys(width for content in machines.values() for width in entries(content)):
        for machine, row in sorted(rows_of(machines, width), key=lambda pair: -pair[1]["tax"]["forward"]):
            ours, peer = row["flops an image"]
            times = [f"{row['tax'][mode]:.2f} x" for mode in MODES]
            flops = row["flops an image"][ours] / row["flops an image"][peer]
            parameters = [f"{row['parameters'][side] / 1e6:.1f}M" for side in (ours, peer)]
            cells = [width, machine, str(row["batch"]), *times, f"{flops:.2f} x", *parameters]
            rows.append([*cells, str(len(row["forward"])), row.get("commit", machines[machine]["commit"])[:8]])
    header = ["network", "machine", "batch", "forward", "forward and backward", "FLOPs", "parameters", "of the ViT"]
    header += ["ways tried, of both", "commit"]
    return table(header, rows)


def speed() -> str:
    """Ratios of medians, ours against escnn's modules, measured side by side in one run."""
    revit = "REViT's rotated MNIST shape, batch 64"
    by_shape: dict[str, dict[str, Content]] = {}
    for machine, content in load_timings("block", str).items():
        for shape, row in entries(content).items():
            by_shape.setdefault(f"block, {shape}", {})[machine] = row
    by_shape[revit] = load_timings("revit_shape", str)
    rows = []
    for shape, by_machine in by_shape.items():
        lines = []
        for machine, row in by_machine.items():
            ours = [f"{row[mode]['gcsa']['median_ms']:.0f}" for mode in MODES]
            memory = row.get("peak_megabytes", {})
            for peer, times in row["times_faster"].items():
                share = f"{memory['gcsa'] / memory[peer]:.2f}" if peer in memory else ""
                cells = [shape, machine, *ours, peer, *(f"{times[mode]:.1f} x" for mode in MODES), share]
                lines.append((times["forward"], cells))
        rows += [cells for _, cells in sorted(lines)]
    header = ["shape", "machine", "ours forward, ms", "forward and backward, ms", "against", "ours is faster, forward"]
    return table([*header, "forward and backward", "training memory of the other's"], rows)


def poster() -> str:
    """G-CSA and G-SA in the poster's setting: medians, peak memory and how many times longer than `spatial` G-CSA."""
    rows = []
    machines = load_timings("poster", lambda content: content["forward"]["G-CSA, spatial"]["median_ms"])
    for machine, results in machines.items():
        fastest = {mode: min(side["median_ms"] for side in results[mode].values()) for mode in MODES}
        for side, parameters in results["parameters"].items():
            times = [results[mode][side]["median_ms"] for mode in MODES]
            cells = [f"{time:,.0f} ({time / fastest[mode]:.1f} x)" for mode, time in zip(MODES, times, strict=True)]
            cells += [f"{results['peak_megabytes'][side][mode]:,.0f}" for mode in MODES]
            rows.append([side, machine, thousands(parameters), *cells])
    header = ["system", "machine", "parameters", "forward, ms", "forward and backward, ms"]
    return table([*header, "peak memory forward, MB", "with backward, MB"], rows)


def linear() -> str:
    """Linear attention as the tokens double."""
    sentences = []
    for machine, results in load_timings(
        "linear", lambda content: max(content["factor per doubling"].values())
    ).items():
        factors, times = results["factor per doubling"], results["times by tokens"]
        most = max(times["linear"], key=int)
        crossing = results["linear overtakes exact at tokens"]
        sentences.append(
            f"{machine}: linear attention ({results['attention']}) takes {min(factors.values()):.2f} to "
            f"{max(factors.values()):.2f} times as long per doubling of the tokens up to {int(most):,}, and overtakes exact "
            f"attention at {crossing:,.0f} tokens; at {int(most):,} it takes {times['linear'][most]['median_ms']:.0f} ms "
            f"against {times['exact'][most]['median_ms']:,.0f} ms."
        )
    return "\n\n".join(sentences)


def neighbourhood() -> str:
    """Neighbourhood attention by the number of positions."""
    sentences = []
    machines = load_timings("neighbourhood", lambda content: max(times_of(entries(content))))
    for machine, results in machines.items():
        sizes = {key.split(" positions")[0]: row for key, row in entries(results).items() if "positions" in key}
        costs = "; ".join(
            f"{size} positions {row['tiles']['median_ms']:.0f} ms and {row['tiles_megabytes']:.0f} MB"
            for size, row in sizes.items()
        )
        sentences.append(f"{machine}: neighbourhood attention, radius 3, 4 heads of 32, one image, forward: {costs}.")
    return "\n\n".join(sentences)


def large_images() -> str:
    """Time and memory of a forward pass by the side of the image."""
    machines = load_timings("large_images", lambda content: max(times_of(content["times by side"])))
    by_side = [row for content in machines.values() for row in content["times by side"].values()]
    sizes = dict.fromkeys(size for row in by_side for size in row)
    rows = []
    for machine, results in machines.items():
        times, memory = results["times by side"], results["megabytes by side"]
        for side, row in times.items():
            costs = {size: f"{row[size]['median_ms']:,.0f} ms, {memory[side][size]:,.0f} MB" for size in row}
            rows.append([side, machine, *(costs.get(size, "") for size in sizes)])
    return table(["attention", "machine", *(f"{size} x {size}" for size in sizes)], rows)


def startup() -> str:
    """Seconds from a fresh process to a first answer."""
    case = 'create_model("gcsa_small", group="c8")'
    rows = [
        [name.replace(case, f"`{case}`"), machine, f"{times['median_seconds']:.2f}"]
        for machine, results in load_timings("startup", lambda content: content[case]["median_seconds"]).items()
        for name, times in results.items()
        if isinstance(times, dict) and "median_seconds" in times
    ]
    return table(["first answer", "machine", "seconds beyond the imports of torch and timm"], rows)


def files() -> str:
    """What the loop over files costs."""
    results = load_benchmark("scaling/loop")
    cpu, (early, late) = results["cpu_ms_an_item"], results["memory_mb"].items()
    known = results["bytes_a_finished_file"]
    rows = [
        ["to look at what is done, of CPU", f"{cpu['list']:.2f} ms a file"],
        ["the loop, the ledger and a report, of CPU", f"{cpu['loop and report']:.2f} ms a file"],
        ["to read the results for a table, of CPU", f"{cpu['results']:.3f} ms a file"],
        [f"memory {early[0]}, and {late[0]}", f"{early[1]:.0f} MB, and {late[1]:.0f} MB"],
        ["memory at the start for files that are done", f"{known['while the ledger is read']:,.0f} bytes a file"],
    ]
    return table([f"{results['items']:,} small images, a network that does nothing", "cost"], rows)


def workers() -> str:
    """Of each number of processes, the share of their time in which they work."""
    results = load_benchmark("scaling/workers")
    rows = [
        [
            str(row["workers"]),
            f"{row['efficiency']:.3f}",
            f"{1000 * results['seconds_an_item'] * (1 / row['efficiency'] - 1):.0f}",
            f"{row['cpu_ms_an_item']:.0f}",
            f"{row['start_seconds']:.0f}",
            f"{row['cores_of_others']:.1f} of {results['machine']['cores']}",
        ]
        for row in results["rows"]
    ]
    heading = f"share of the time in which they slept, {results['seconds_an_item']:g} s an item"
    others = "cores that other programs kept busy"
    return table(["workers", heading, "lost, ms an item", "CPU of the command, ms an item", "start, s", others], rows)


def imagenet() -> str:
    """Step time and hours of the plan for ImageNet, by GPU and achieved fraction of its peak."""
    rows = []
    for row in load_benchmark("imagenet_plan")["plan"]:
        cells = [row["gpu"], f"{row['fraction']:.0%}", f"{row['images_per_second_and_gpu']:,.0f}"]
        rows.append([*cells, f"{row['step_ms']:,.0f}", f"{row['hours']:,.1f}", f"{row['gpu_hours']:,.0f}"])
    return table(["GPU", "achieved", "images/s and GPU", "step, ms", "hours", "GPU hours"], rows)


def imagenet_costs() -> str:
    """What the plan for ImageNet is computed from."""
    results = load_benchmark("imagenet_plan")
    flops, batch = results["flops_per_image"], results["assumed"]["batch"]
    rows = [
        ["parameters", f"{results['parameters'] / 1e6:.2f} M"],
        ["FLOPs an image, forward", f"{flops['forward'] / 1e9:.2f} G"],
        ["FLOPs an image, forward and backward", f"{flops['training'] / 1e9:.2f} G"],
        ["the same, activations checkpointed", f"{flops['training, checkpointed'] / 1e9:.2f} G"],
    ]
    for kind, size in results["saved_bytes_per_image"].items():
        rows.append([f"kept for the backward pass, an image, {kind}", f"{size / 1e6:,.0f} MB"])
        rows.append([f"the same, {batch} images", f"{size * batch / 1e9:,.1f} GB"])
    state = "weights, gradients, AdamW's moments and their average, float32"
    rows.append([state, f"{results['state_bytes'] / 1e6:,.0f} MB"])
    return table(["measured", ""], rows)


WAYS = {"eager": "as it is", "folded": "folded", "compiled": "compiled", "onnx": "ONNX", "onnx-int8": "ONNX, int8"}


def timed_inference() -> dict[str, Content]:
    """The machines that measured published networks and their peers, the fastest last."""
    return load_timings("inference", lambda content: -content["resnet18"]["threads 1"]["eager"])


def inference() -> str:
    """Images a second of each published network and of its peers, the slowest of each size of image first."""
    rows = []
    for machine, results in timed_inference().items():
        networks = [(name, row) for name, row in results.items() if isinstance(row, dict) and "threads 1" in row]
        for name, row in sorted(networks, key=lambda item: (item[1]["shape"], item[1]["threads 1"]["eager"])):
            cells = []
            for way in WAYS:
                rates = [row[f"threads {threads}"].get(way) for threads in (1, 2)]
                cells.append("" if None in rates else " / ".join(f"{rate:,.0f}" for rate in rates))
            rows.append([f"`{name}`", machine.split(",")[0], f"{row['batch']} of {sides(row['shape'])}", *cells])
    return table(["network", "machine", "batch", *WAYS.values()], rows)


PEERS_IN_SHORT = ("resnet18", "tf_efficientnet_lite0", "CRNN", "StarDist")
"""Rows of `inference_in_short` beside those of published networks."""


def inference_in_short() -> str:
    """`inference` of the published networks and one or two peers of each kind, in the fastest way that was measured, on two threads."""
    rows = []
    for machine, results in timed_inference().items():
        for name, row in results.items():
            if isinstance(row, dict) and "threads 2" in row and ("." in name or name in PEERS_IN_SHORT):
                rates = {way: row["threads 2"].get(way) for way in WAYS}
                best = max((way for way in WAYS if way != "onnx-int8" and rates[way]), key=lambda way: rates[way])
                cells = [f"{rates['eager']:,.0f}", f"{rates[best]:,.0f}", WAYS[best]]
                cells += [f"{rates['onnx-int8']:,.0f}" if rates["onnx-int8"] else ""]
                exact = "yes" if name.startswith("gcsa") else "no"
                about = [f"`{name}`", machine.split(",")[0], sides(row["shape"]), exact]
                rows.append((row["shape"], rates["eager"], [*about, *cells]))
    header = [
        "network",
        "machine",
        "image",
        "exact",
        "images/s as it is",
        "fastest in float32",
        "which is",
        "ONNX, int8",
    ]
    return table(header, [row for *_, row in sorted(rows, key=lambda row: row[:2])])


def image_input() -> str:
    """Images a second that a core reads for training at ImageNet's size, by the way they are read."""
    rows = []
    rates = "images_per_second_and_core"
    for machine, results in load_timings("image_input", lambda content: -min(content[rates].values())).items():
        rows += [[name, machine, f"{rate:,.0f}"] for name, rate in results[rates].items()]
    return table(["read from, decoded by, cut", "machine", "images/s and core"], rows)


def memory() -> str:
    """What recomputation saves."""
    changes = []
    for name, row in measured("memory").items():
        before, after = (row[kind]["median_megabytes"] for kind in ("kept", "checkpointed"))
        changes.append(f"{name}, {sides(row['images'])}, {before:,.0f} to {after:,.0f} MB")
    return f"`checkpoint_activations=true` lowers the peak memory of a training step on a CPU: {'; '.join(changes)}."
