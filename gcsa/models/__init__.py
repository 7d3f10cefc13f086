"""The equivariant models: importing this package registers them with timm."""

from gcsa.models import baselines
from gcsa.models.create import register_options
from gcsa.models.gcnn import GCNN
from gcsa.models.gcsa import GCSA
from gcsa.models.gcsa_pyramid import GCSAPyramid

__all__ = ["GCNN", "GCSA", "GCSAPyramid", "baselines", "register_options"]
