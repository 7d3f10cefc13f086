"""Which part stands in which document, and the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from . import cards, dense, equivariance, exports, options, speed, text, training
from .figures import outdated_figures, write_figures
from .results import ROOT

START, END = "<!-- results: {name} -->", "<!-- end -->"
"""The lines around a generated part, which is named as the function that writes it."""

Part = Callable[[], str]

DOCUMENTS: dict[str, tuple[Part, ...]] = {
    "README.md": (cards.published,),
    "docs/use.md": (cards.published_pages, options.model_options),
    "docs/export.md": (exports.deployment, exports.exports),
    "docs/measured/learning.md": (training.gains, equivariance.exact, equivariance.learned_pose),
    "docs/audit.md": (equivariance.audits,),
    "docs/scale.md": (speed.files, speed.workers),
    "docs/teach.md": (training.teaching, training.teaching_rivals, training.teaching_features),
    "docs/weights.md": (cards.ood_score,),
    "docs/adr/0038-steady-between-the-poses.md": (equivariance.two_views,),
    "docs/adr/0039-lines-that-are-not-flat.md": (text.small_skews,),
    "docs/measured/learning_systems.md": (
        training.best_systems,
        training.training,
        training.learning,
        training.few_labels,
        training.trials,
        training.ceiling,
    ),
    "docs/measured/performers.md": (training.systems, training.shares, training.performers, training.shifts),
    "docs/segment.md": (dense.few_images,),
    "docs/measured/nuclei.md": (
        dense.nuclei,
        dense.scales,
        dense.empty_fields,
        dense.tissue,
        dense.stains,
        dense.networks,
        dense.mosaic,
        dense.slide,
    ),
    "docs/measured/text.md": (
        text.test_lines,
        text.confidence,
        text.rivals,
        text.page_rivals,
        text.page_notes,
        text.right_angles,
        text.order,
        text.pages,
        text.skewed,
        text.orientation,
        text.skew,
        text.few_lines,
        text.transcription,
    ),
    "docs/measured/text_systems.md": (
        text.text,
        text.rotated_lines,
        text.adapters,
        text.adapter_trials,
        text.adapter_step,
        text.trocr,
    ),
    "docs/measured/equivariance.md": (
        equivariance.who_is_exact_in_short,
        equivariance.invariance,
        equivariance.who_is_exact,
        equivariance.choosers,
        equivariance.trained_choosers,
        equivariance.off_grid,
        equivariance.real_context,
        equivariance.off_grid_plankton,
        equivariance.precision,
    ),
    "docs/measured/speed.md": (
        speed.inference_in_short,
        speed.models,
        speed.inference,
        speed.models_on_gpu,
        speed.cards,
        speed.bfloat16,
        speed.operators,
        speed.layers,
        speed.tax,
        speed.speed,
        speed.poster,
        speed.linear,
        speed.neighbourhood,
        speed.large_images,
        speed.startup,
        exports.fold,
    ),
    "docs/integrations.md": (equivariance.integrations, equivariance.backbones),
    "docs/imagenet.md": (speed.imagenet_costs, speed.imagenet, speed.memory, speed.image_input),
}


def update(document: str, parts: Iterable[Part]) -> str:
    """The text of a document with each part between its markers written anew.

    Raises ValueError where the start of a part does not stand there exactly once or has no end.
    """
    for part in parts:
        start = START.format(name=part.__name__)
        if document.count(start) != 1 or END not in document.partition(start)[2]:
            raise ValueError(f"the document must hold {start!r} once, and {END!r} behind it")
        before, _, rest = document.partition(start)
        document = f"{before}{start}\n{part()}\n{END}{rest.partition(END)[2]}"
    return document


def main(arguments: list[str]) -> int:
    """Writes documents and figures, or with "--check" compares them; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description="Writes tables and figures of the results."
    )
    parser.add_argument(
        "--check", action="store_true", help="compare, write nothing, and exit with 1 where they differ"
    )
    check = parser.parse_args(arguments).check
    new = {name: update((ROOT / name).read_text(), parts) for name, parts in DOCUMENTS.items()}
    new |= {f"weights/{name}/README.md": cards.card(name) for name in cards.CARDS}
    if check:
        outdated = [name for name in new if not (ROOT / name).is_file() or (ROOT / name).read_text() != new[name]]
        outdated += outdated_figures()
        for name in outdated:
            print(f"{name} differs from the results: run python -m benchmarks.report")
        return int(bool(outdated))
    for name, document in new.items():
        (ROOT / name).write_text(document)
    write_figures()
    return 0
