"""Data sets of images with one class each, a Lightning data module a file: `create_datamodule("rotmnist", batch_size=64)`.

Each file of this folder is imported, so that a data module in a new file is known by its `name`.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from gcsa._utils.validation import check_choice
from gcsa.tasks.classification.data.base import DATAMODULES, GCSADataModule, Split

__all__ = ["GCSADataModule", "Split", "create_datamodule", "list_datamodules"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def list_datamodules() -> list[str]:
    """The names that `create_datamodule` knows, sorted."""
    return sorted(DATAMODULES)


def create_datamodule(name: str, **kwargs: Any) -> GCSADataModule:
    """The data module called `name`; keyword arguments as in `GCSADataModule` and in the module's own class.

    Raises:
        UserError: an unknown name or a bad value.
        FileNotFoundError: a folder of images that is not there.
    """
    check_choice("data", name, list_datamodules())
    return DATAMODULES[name](**kwargs)
