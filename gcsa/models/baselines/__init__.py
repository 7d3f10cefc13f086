"""What the equivariant models are compared with; importing this package registers those that timm lacks with timm."""

from gcsa.models.baselines.efficient import LinformerClassifier, RoutingTransformerClassifier
from gcsa.models.baselines.performer import Performer
from gcsa.models.baselines.plain_cnn import PlainCNN

__all__ = ["LinformerClassifier", "Performer", "PlainCNN", "RoutingTransformerClassifier"]
