"""The audit of a network that gives a row of numbers for an image: scores of classes, or features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError, one_line
from gcsa.evaluation.audited import Audited, AuditOptions, Progress, check_some
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.evaluation.poses import Turn, compare, outputs, turns
from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.off_grid import families, off_grid
from gcsa.tasks.classification.targets import Classes

ONE_ANSWER = "all images have one answer of {classes}, so it says little how many change. Features: --kind embedding"


def network_of(predictor: Any, options: AuditOptions) -> nn.Module:
    """What is audited of a predictor: its classifier, or the part that gives features. Raises UserError for weights of something else
    than classes."""
    if options.kind == "embedding":
        embedding: nn.Module = predictor.embedding
        return embedding
    target = getattr(predictor, "target", None)
    if target is not None and not isinstance(target, Classes):
        raise UserError(
            f"{options.name} was trained for target={target.kind}, not for classes: take --kind embedding",
            "audit.target",
        )
    network: nn.Module = predictor.network
    return network


def audit(
    network: nn.Module, prepare: Prepare, images: Sequence[Path], options: AuditOptions, progress: Progress
) -> Audited:
    """How the outputs of `network` for `images`, as `prepare` makes them, change. Raises UserError for a network that does not take them or
    gives no row of numbers for each, and where none can be read."""
    prepare = replace(prepare, size=options.size or prepare.size)
    failed: list[str] = []
    with progress(len(images) * (len(turns(options.steps)) + 1)) as advance, evaluation_mode(network):
        try:
            found = outputs(network, _batches(prepare, images, options, failed), options.steps, advance)
        except (UserError, OSError):
            raise
        except Exception as error:  # of a stranger's network
            raise UserError(
                f"{options.name} does not take these images ({type(error).__name__}: {one_line(error)})", "audit.images"
            ) from error
    check_some(images, failed)
    upright = found[Turn(0.0)]
    if options.kind == "classifier" and upright.shape[1] < 2:
        raise UserError(f"{options.name} gives one number for an image: take --kind embedding", "audit.one_number")
    if options.kind == "embedding" and len(upright) < 2:
        raise UserError("features are compared with those of other images: give two images or more", "audit.one_image")
    if any(not values.isfinite().all() for values in found.values()):
        raise UserError(f"{options.name} gives NaN or infinite outputs", "scores.not_finite")
    is_one = options.kind == "classifier" and len(upright.argmax(1).unique()) == 1
    note = ONE_ANSWER.format(classes=upright.shape[1]) if is_one else ""
    steady = _off_grid(network, prepare, images, options, progress) if options.off_grid else None
    return Audited(options.kind, compare(found, options.kind), failed, prepare.size, steady, note)


def _off_grid(
    network: nn.Module, prepare: Prepare, images: Sequence[Path], options: AuditOptions, progress: Progress
) -> dict[str, dict[str, float]]:
    """What `off_grid` finds; images that cannot be read were told of before."""
    passes = sum(map(len, families(len(prepare.mean), options.steps).values()))
    with progress(passes * len(images)) as advance, evaluation_mode(network):
        batches = _batches(prepare, images, options, [])
        return off_grid(network, batches, prepare.mean, prepare.std, options.kind, options.steps, advance)


def _batches(prepare: Prepare, images: Sequence[Path], options: AuditOptions, failed: list[str]) -> Iterator[Tensor]:
    """Prepared images; a sentence for each that cannot be read goes to `failed`."""
    for start in range(0, len(images), options.batch_size):
        batch = []
        for path in images[start : start + options.batch_size]:
            try:
                batch.append(prepare(path))
            except ValueError as error:
                failed.append(str(error))
        if batch:
            yield torch.stack(batch).to(options.device)
