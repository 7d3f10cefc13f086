"""Features of our classifiers in other people's frameworks, one small file for each.

What all of them take is the `Embedder`: the numbers in front of the classifier, which are the same for every turn and mirror image
in the model's group that maps the pixel grid onto itself. A framework is imported in its own file alone, and is no dependency
of gcsa; docs/integrations.md shows the lines that a user writes.
"""

from gcsa.images.prepare import Prepare
from gcsa.tasks.classification.embedding import Embedder, load_embedder

__all__ = ["Embedder", "Prepare", "load_embedder"]
