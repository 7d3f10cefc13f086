"""What the equivariant models are compared with; importing this package registers those that timm lacks with timm."""

from gcsa.baselines.efficient import LinformerClassifier, RoutingTransformerClassifier
from gcsa.baselines.performer import Performer
from gcsa.baselines.plain_cnn import PlainCNN

__all__ = ["LinformerClassifier", "Performer", "PlainCNN", "RoutingTransformerClassifier"]
