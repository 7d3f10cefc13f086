"""Which mask belongs to which picture, in the layouts that users of StarDist and Cellpose have."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from gcsa._utils.errors import UserError
from gcsa._utils.paths import composed
from gcsa.data.splits import SPLIT_FOLDERS, hold_out
from gcsa.images.folders import SUFFIXES, list_files, list_images
from gcsa.tasks.segmentation.data.annotations import COCO, OUTLINES, coco_names

SPLITS = ("train", "val", "test")
LAYOUTS = "images/NAME.tif and masks/NAME.tif, or NAME.tif and NAME_masks.tif"
INSTEAD = "instead of a mask NAME.geojson, NAME.zip (ROIs of ImageJ), or for all images one .json of COCO"
IMAGE = "_img"
"""How the names of Cellpose's images may end."""
MASKS = ("_masks", "_cp_masks")
"""How the names of Cellpose's masks end."""
NO_PICTURES = tuple(name + end for name in ("_flows", "_dP", "_outlines", "_cp_output") for end in ("", "_cp_masks"))
"""How the names end of what Cellpose leaves beside them, and which is neither image nor mask."""
PICKLED = "_seg.npy"
"""How the names of the files end in which Cellpose's window keeps its work."""


class Pair(NamedTuple):
    """The file of a picture, and that of its label map or its outlines."""

    image: Path
    mask: Path


def list_pairs(path: Path) -> dict[str, list[Pair]]:
    """The pairs of "train", "val" and "test" in the folder `path`, each in the order of the names.

    A split is a folder `images` beside a folder `masks` whose files have the same names up to the suffix (StarDist's
    layout), or a folder of `NAME.tif` (or `NAME_img.tif`) and `NAME_masks.tif` or `NAME_cp_masks.png` (Cellpose's). In the place of
    a mask there may be outlines: `NAME.geojson`, ROIs of ImageJ in `NAME.zip` or `NAME.roi`, or one `.json` file of
    COCO that lists the images, in the split, its folder `masks` or its folder `annotations`. `path` holds the folders
    train, test and, if it likes, val (or valid, validation), without which a tenth of train validates; or test alone; or it
    is itself such a folder, which is split 8 : 1 : 1. Splits are the same in every run, and empty where there are too few
    pictures. What is hidden is passed over.

    Raises:
        ValueError: a picture or a mask without its partner or with two, a folder without pictures, a picture with nothing but
            Cellpose's `_seg.npy`, which is a pickle: reading one may run code.
        FileNotFoundError: no such folder.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder: data.path must hold images and masks ({LAYOUTS})")
    names = [name for name in SPLIT_FOLDERS if (path / name).is_dir()]
    folders = {SPLIT_FOLDERS[name]: path / name for name in names}
    if len(folders) < len(names):
        raise UserError(
            f"{path} holds {' and '.join(names)}: keep one folder of validation images", "data.splits_twice"
        )
    if folders and set(folders) != {"test"} and not {"train", "test"} <= set(folders):
        raise UserError(
            f"{path} holds {' and '.join(names)} only: it needs train and test, test alone, or neither", "data.splits"
        )
    parts = {part: pairs_in(folder) for part, folder in folders.items()}
    if not parts:
        rest, parts["test"] = _divide(pairs_in(path), 0.1)
        parts["train"], parts["val"] = _divide(rest, 1 / 9)
    elif "train" in parts and "val" not in parts:
        parts["train"], parts["val"] = _divide(parts["train"], 0.1)
    return {part: parts.get(part, []) for part in SPLITS}


def pairs_in(folder: Path) -> list[Pair]:
    """The pairs in one folder of either layout, by name. Raises ValueError as `list_pairs` does."""
    nested = (folder / "images").is_dir() or (folder / "masks").is_dir()
    files = list_images(folder / "images" if nested else folder)
    pictures = [file for file in files if nested or not file.stem.endswith((*MASKS, *NO_PICTURES))]
    names = [_name(file) if nested else _name(file).removesuffix(IMAGE) for file in pictures]
    images = _by_name(zip(names, pictures, strict=True), "have one name: remove one of them, or give it another name")
    places = (folder, folder / "masks", folder / "annotations")
    annotations = (one for place in places for one in annotations_in(place, images, all_images=place != folder))
    masks = _by_name(annotations, "belong to one image: keep one of them")
    if nested and not (images and masks):
        inside = [name for name in ("images", "masks") if (folder / name).is_dir()]
        if len(inside) == 1:
            raise UserError(f"{folder} holds a folder {inside[0]} only: it needs images and masks", "pairs.nested")
    for name in sorted(images.keys() ^ masks.keys()):
        if name not in images:
            raise UserError(
                f"{masks[name]} is the mask of no image: expected {LAYOUTS}, or {INSTEAD}", "pairs.no_image"
            )
        pickled = images[name].with_name(images[name].stem + PICKLED)
        if pickled.exists():
            raise UserError(
                f"{pickled} is not read, since a pickle can run code: save the masks in Cellpose's window as PNG or TIFF "
                f"({name}_cp_masks.png)",
                "pairs.pickled",
            )
        raise UserError(f"{images[name]} has no mask: expected {LAYOUTS}, or {INSTEAD}", "pairs.no_mask")
    if not images:
        raise UserError(f"{folder} holds no images and masks: expected {LAYOUTS}, or {INSTEAD}", "pairs.none")
    return [Pair(images[name], masks[name]) for name in sorted(images)]


def annotations_in(folder: Path, images: Mapping[str, Path], *, all_images: bool) -> Iterator[tuple[str, Path]]:
    """Label maps and outlines in `folder`, each with the name of its image, or with its own where there is none of `images`.

    all_images: every image in the folder is a label map, else those only that are called like Cellpose's. A .zip or .roi of no
    image is passed over, and so is a .json that is none of COCO. Raises UserError where COCO lists an image that is not there.
    """
    if not folder.is_dir():
        return
    for file in list_files(folder, (*SUFFIXES, *OUTLINES)):
        suffix = file.suffix.lower()
        if suffix == COCO:
            by_stem = {_name(image): name for name, image in images.items()}
            for stem in coco_names(file):
                if stem not in by_stem:
                    raise UserError(
                        f"{file} lists the image {stem}, which is not there: add it, or take it out of the list",
                        "annotations.no_image",
                    )
                yield by_stem[stem], file
        elif suffix in OUTLINES or all_images or (file.stem.endswith(MASKS) and not file.stem.endswith(NO_PICTURES)):
            stems = [_name(file).removesuffix(ending) for ending in ("", *MASKS) if file.stem.endswith(ending)]
            names = [name for stem in stems for name in (stem, stem.removesuffix(IMAGE)) if name in images]
            if names or suffix in (*SUFFIXES, ".geojson"):
                yield names[0] if names else _name(file), file


def _name(file: Path) -> str:
    """The name without its suffix, in one form of Unicode."""
    return composed(file.stem)


def _by_name(files: Iterable[tuple[str, Path]], complaint: str) -> dict[str, Path]:
    """Raises UserError with `complaint` for two files of one name."""
    found: dict[str, Path] = {}
    for name, file in files:
        if name in found:
            raise UserError(f"{found[name]} and {file} {complaint}", "pairs.same_name")
        found[name] = file
    return found


def _divide(pairs: list[Pair], fraction: float) -> tuple[list[Pair], list[Pair]]:
    kept, held_out = hold_out(torch.zeros(len(pairs), dtype=torch.long), fraction)
    return [pairs[row] for row in kept], [pairs[row] for row in held_out]
