"""Data modules for Lightning, one a file: `create_datamodule("rotmnist", batch_size=64)`."""

from typing import Any

from gcsa.data.base import GCSADataModule
from gcsa.data.sets.cifar10 import CIFAR10
from gcsa.data.sets.digits import Digits
from gcsa.data.sets.fashion_mnist import FashionMNIST
from gcsa.data.sets.image_folder import ImageFolder
from gcsa.data.sets.mnist import MNIST
from gcsa.data.sets.pcam import PCam
from gcsa.data.sets.rotmnist import RotMNIST

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
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(_MODULES)}")
    return _MODULES[name](**kwargs)
