"""The model zoo: importing this package registers every model with timm."""

from gcsa.models.gcsa import GCSA
from gcsa.models.gcsa_pyramid import GCSAPyramid

__all__ = ["GCSA", "GCSAPyramid"]
