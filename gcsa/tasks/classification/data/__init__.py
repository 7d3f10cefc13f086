"""Data modules for Lightning, one a file: `create_datamodule("rotmnist", batch_size=64)`."""

from typing import Any

from gcsa._utils.errors import UserError
from gcsa.tasks.classification.data.base import GCSADataModule
from gcsa.tasks.classification.data.cifar10 import CIFAR10
from gcsa.tasks.classification.data.digits import Digits
from gcsa.tasks.classification.data.fashion_mnist import FashionMNIST
from gcsa.tasks.classification.data.image_folder import ImageFolder
from gcsa.tasks.classification.data.mnist import MNIST
from gcsa.tasks.classification.data.pcam import PCam
from gcsa.tasks.classification.data.rotmnist import RotMNIST

__all__ = ["GCSADataModule", "create_datamodule", "list_datamodules"]

_MODULES: dict[str, type[GCSADataModule]] = {
    module.name: module for module in (Digits, RotMNIST, MNIST, FashionMNIST, CIFAR10, PCam, ImageFolder)
}


def list_datamodules() -> list[str]:
    """The names `create_datamodule` knows, the default one first."""
    return list(_MODULES)


def create_datamodule(name: str, **kwargs: Any) -> GCSADataModule:
    """The data module called `name`; keyword arguments as in `GCSADataModule` and the module's own class.

    Raises:
        ValueError: an unknown name or a bad value; FileNotFoundError: a folder of images that is not there.
    """
    if name not in _MODULES:
        raise UserError(f"unknown data set {name!r}: choose one of {', '.join(_MODULES)}")
    return _MODULES[name](**kwargs)
