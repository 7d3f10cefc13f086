"""Which mask belongs to which picture, in the layouts that users of StarDist and Cellpose have."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from gcsa._utils.errors import UserError
from gcsa.images.folders import list_images
from gcsa.tasks.classification.data.image_folder import SPLIT_FOLDERS
from gcsa.tasks.splits import hold_out

SPLITS = ("train", "val", "test")
LAYOUTS = "images/NAME.tif and masks/NAME.tif, or NAME.tif and NAME_masks.tif"
MASKS, IMAGE = "_masks", "_img"
"""How the names of Cellpose's masks end, and those of its images may."""
NO_PICTURES = ("_flows", "_outlines", "_cp_output")
"""How the names end of what Cellpose leaves beside them."""


class Pair(NamedTuple):
    """The file of a picture, and that of its label map."""

    image: Path
    mask: Path


def list_pairs(path: Path) -> dict[str, list[Pair]]:
    """The pairs of "train", "val" and "test" in the folder `path`, each in the order of the names.

    A split is a folder `images` beside a folder `masks` whose files have the same names up to the suffix (StarDist's
    layout), or a folder of `NAME.tif` (or `NAME_img.tif`) and `NAME_masks.tif` (Cellpose's). `path` holds the folders
    train, test and, if it likes, val (or valid, validation), without which a tenth of train validates; or test alone; or it
    is itself such a folder, which is split 8 : 1 : 1. Splits are the same in every run, and empty where there are too few
    pictures. What is hidden is passed over.

    Raises:
        ValueError: a picture or a mask without its partner or with two, a folder without pictures.
        FileNotFoundError: no such folder.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder: data.path must hold pictures and masks ({LAYOUTS})")
    names = [name for name in SPLIT_FOLDERS if (path / name).is_dir()]
    folders = {SPLIT_FOLDERS[name]: path / name for name in names}
    if len(folders) < len(names):
        raise UserError(f"{path} holds {' and '.join(names)}: keep one folder of validation pictures")
    if folders and set(folders) != {"test"} and not {"train", "test"} <= set(folders):
        raise UserError(f"{path} holds {' and '.join(names)} only: it needs train and test, test alone, or neither")
    parts = {part: pairs_in(folder) for part, folder in folders.items()}
    if not parts:
        rest, parts["test"] = _divide(pairs_in(path), 0.1)
        parts["train"], parts["val"] = _divide(rest, 1 / 9)
    elif "train" in parts and "val" not in parts:
        parts["train"], parts["val"] = _divide(parts["train"], 0.1)
    return {part: parts.get(part, []) for part in SPLITS}


def pairs_in(folder: Path) -> list[Pair]:
    """The pairs in one folder of either layout, by name. Raises ValueError as `list_pairs` does."""
    inside = [name for name in ("images", "masks") if (folder / name).is_dir()]
    if len(inside) == 1:
        raise UserError(f"{folder} holds a folder {inside[0]} only: it needs images and masks")
    if inside:
        images = _by_name((file.stem, file) for file in list_images(folder / "images"))
        masks = _by_name((file.stem, file) for file in list_images(folder / "masks"))
    else:
        files = list_images(folder)
        images = _by_name(
            (file.stem.removesuffix(IMAGE), file) for file in files if not file.stem.endswith((MASKS, *NO_PICTURES))
        )
        masks = _by_name(
            (file.stem.removesuffix(MASKS).removesuffix(IMAGE), file) for file in files if file.stem.endswith(MASKS)
        )
    for name in sorted(images.keys() ^ masks.keys()):
        if name in images:
            raise UserError(f"{images[name]} has no mask: expected {LAYOUTS}")
        raise UserError(f"{masks[name]} is the mask of no picture: expected {LAYOUTS}")
    if not images:
        raise UserError(f"{folder} holds no pictures and masks: expected {LAYOUTS}")
    return [Pair(images[name], masks[name]) for name in sorted(images)]


def _by_name(files: Iterable[tuple[str, Path]]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, file in files:
        if name in found:
            raise UserError(f"{found[name]} and {file} have one name: remove one of them, or give it another name")
        found[name] = file
    return found


def _divide(pairs: list[Pair], fraction: float) -> tuple[list[Pair], list[Pair]]:
    kept, held_out = hold_out(torch.zeros(len(pairs), dtype=torch.long), fraction)
    return [pairs[row] for row in kept], [pairs[row] for row in held_out]
