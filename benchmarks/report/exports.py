"""Tables of what can be exported and compiled."""

from __future__ import annotations

from .equivariance import size_of
from .results import load_benchmark, load_timings, table

WAYS = {
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
"""Key in the results to heading."""


def cell(results: list[float | str]) -> str:
    """The largest difference of one size's groups by one way; "no" where all fail, and "no (failed of all)" where some do."""
    failures = [result for result in results if isinstance(result, str)]
    errors = [result for result in results if not isinstance(result, str)]
    if failures:
        return f"no ({len(failures)} of {len(results)})" if errors else "no"
    if any(errors):
        return f"{max(errors):.0e}"
    return "0" if errors else ""


def exports() -> str:
    """The largest difference of each size over its registered groups, by every way to export and compile, and why some
    ways fail."""
    sizes: dict[str, dict[str, dict[str, float | str]]] = {}
    for name, row in load_benchmark("export_passes")["passes"].items():
        sizes.setdefault(size_of(name), {})[name] = row
    rows, reasons = [], []
    for size, names in sorted(sizes.items()):
        for way in WAYS:
            for name, row in names.items():
                if isinstance(reason := row.get(way), str):
                    reasons.append(f"- `{name}`, {way}: {reason[:150].rstrip()}")
        cells = [cell([row[way] for row in names.values() if way in row]) for way in WAYS]
        rows.append([f"`{size}`", str(len(names)), *cells])
    return "\n".join([table(["model", "names", *WAYS.values()], rows), *(["", *reasons] if reasons else [])])


def deployment() -> str:
    """Narrow ONNX files: size, speed, distance from the model, accuracy and symmetry."""
    machines = load_timings("deployment", lambda content: content["gcsa_small"]["onnx-int8"]["batch 16"]["median_ms"])
    rows = []
    for machine, content in machines.items():
        for model, formats in content.items():
            if not isinstance(formats, dict) or "onnx" not in formats:
                continue
            for name, row in formats.items():
                size = f"{row['megabytes']:.1f}" if "megabytes" in row else ""
                times = [f"{row[batch]['median_ms']:.0f}" for batch in ("batch 1", "batch 16")]
                error = "" if name == "folded" else f"{row['parity_error']:.0e}"
                turned = f"{row['invariance_error']:.0e}" if "invariance_error" in row else ""
                quality = f"accuracy {row['accuracy']:.2%}" if "accuracy" in row else ""
                quality += f"CER {row['cer']:.2%}" if "cer" in row else ""
                rows.append([f"`{model}`", name, machine, size, *times, error, turned, quality])
    header = ["model", "format", "machine", "MB", "batch 1, ms", "batch 16, ms", "differs by", "invariance error"]
    return table([*header, "on validation data"], rows)


def fold() -> str:
    """How much faster a folded model is."""
    sentences = []
    for machine, results in load_timings(
        "export", lambda content: -content["speed"]["gcsa_tiny"]["1"]["speed_up"]
    ).items():
        speeds = "; ".join(
            f"{name} {sizes['1']['speed_up']:.1f} x at batch 1, {sizes['32']['speed_up']:.1f} x at batch 32"
            for name, sizes in results["speed"].items()
        )
        sentences.append(f"A folded model (`gcsa.models.folding.fold`; {machine}) is faster: {speeds}.")
    return "\n\n".join(sentences)
