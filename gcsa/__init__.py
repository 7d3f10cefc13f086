"""gcsa: rotation-equivariant vision transformers. Importing it registers the models with timm."""

from gcsa import baselines, models
from gcsa.groups import Group, group

__version__ = "0.1.0"
__all__ = ["Group", "baselines", "group", "models"]
