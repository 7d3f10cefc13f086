"""The model zoo: importing this package registers every model with timm."""

from gcsa.models.baselines import PlainCNN
from gcsa.models.efficient_baselines import LinformerClassifier, RoutingTransformerClassifier
from gcsa.models.gcnn import GCNN
from gcsa.models.gcsa import GCSA
from gcsa.models.gcsa_pyramid import GCSAPyramid
from gcsa.models.gsa import GSA
from gcsa.models.performer import Performer

__all__ = [
    "GCNN",
    "GCSA",
    "GSA",
    "GCSAPyramid",
    "LinformerClassifier",
    "Performer",
    "PlainCNN",
    "RoutingTransformerClassifier",
]
