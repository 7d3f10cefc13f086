"""gcsa: exact rotation equivariance for images. Importing it registers the models with timm.

`gcsa.load(source).predict(images)` uses trained weights of any kind; `gcsa.list_weights()` names those that come along, adapters
of them included.

The models are imported when timm is, and at once where it was before: `import gcsa` alone loads no torch, so that the commands print
their help, and refuse wrong arguments, without it. timm itself has no entry point for the models of other packages.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gcsa._utils.importing import after_import
from gcsa._utils.published import list_weights

if TYPE_CHECKING:
    from gcsa import models
    from gcsa.groups import Group, group
    from gcsa.tasks import load

__version__ = "0.1.0"
__all__ = ["Group", "group", "list_weights", "load", "models"]

_MODULES = {"Group": "gcsa.groups", "group": "gcsa.groups", "load": "gcsa.tasks", "models": "gcsa.models"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'gcsa' has no attribute {name!r}")
    module = import_module(_MODULES[name])
    return module if name == "models" else getattr(module, name)


after_import("timm", lambda: "gcsa.layers" in sys.modules or import_module("gcsa.models"))
after_import(
    "gcsa.layers", lambda: import_module("gcsa.models")
)  # which import timm themselves, and come before the models
