"""Tables of what can be exported and compiled."""

from __future__ import annotations

from report.equivariance import size_of
from report.results import load_benchmark, load_timings, table

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
        sentences.append(f"A folded model (`gcsa.export.fold`; {machine}) is faster: {speeds}.")
    return "\n\n".join(sentences)
