"""Features of our classifiers in other people's frameworks, a file for each.

The features in front of the classifier stay the same when an image rotates or reflects by an element of the model's group
that maps the pixel grid onto itself (`ClassificationPredictor.embedding`). Each framework is imported in its own file only,
and gcsa does not depend on it. docs/integrations.md shows the lines that a user writes.
"""

from __future__ import annotations

from pathlib import Path

from gcsa.tasks import load
from gcsa.tasks.classification.predict import ClassificationPredictor


def load_classifier(source: str | Path, adapter: str | Path | None = None) -> ClassificationPredictor:
    """`gcsa.load(source, adapter)`, of classifiers only."""
    predictor = load(source, adapter, task=ClassificationPredictor.kind)
    assert isinstance(predictor, ClassificationPredictor)
    return predictor
