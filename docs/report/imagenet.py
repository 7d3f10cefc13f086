"""Tables of docs/imagenet.md."""

from __future__ import annotations

from report.results import load_benchmark, measured, table


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
    files = "files read, cropped and resized a second and core"
    rows.append([files, f"{results['files_read_per_second_and_core']:,.0f}"])
    return table(["measured", ""], rows)


def memory() -> str:
    """What recomputation saves."""
    changes = []
    for name, row in measured("memory").items():
        before, after = (row[kind]["median_megabytes"] for kind in ("kept", "checkpointed"))
        changes.append(f"{name}, {' x '.join(map(str, row['images']))}, {before:,.0f} to {after:,.0f} MB")
    return f"`checkpoint_activations=true` lowers the peak memory of a training step on a CPU: {'; '.join(changes)}."
