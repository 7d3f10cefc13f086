"""gcsa: exact rotation equivariance for images. Importing it registers the models with timm.

`gcsa.load(source).predict(images)` uses trained weights of any kind; `gcsa.list_weights()` names those that come along.
"""

from gcsa import models
from gcsa._utils.published import list_weights
from gcsa.groups import Group, group
from gcsa.tasks import load

__version__ = "0.1.0"
__all__ = ["Group", "group", "list_weights", "load", "models"]
