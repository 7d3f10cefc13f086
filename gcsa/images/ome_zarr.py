"""The one picture of an OME-Zarr image (OME-NGFF 0.4 in Zarr 2, 0.5 in Zarr 3): a folder of levels, each an array in chunks.

zarr-python (extra `zarr`) reads the chunks of a window, a few at a time. https://ngff.openmicroscopy.org/0.5 defines the metadata.
"""

from __future__ import annotations

import logging
import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gcsa._utils.arrays import Array
from gcsa._utils.errors import MissingExtraError
from gcsa.images.folders import ZARR
from gcsa.images.pixels import Pixels, Refused
from gcsa.images.planes import MICROMETRES, Plane, numbers
from gcsa.images.source import MAX_SEGMENT, ImageSource

log = logging.getLogger(__name__)
METADATA = ("zarr.json", ".zgroup")
"""One of these lies in every group of Zarr."""
SHARDS = "sharding_indexed"
PACKED = ("blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma")
CODECS = {
    *PACKED,
    *("shuffle", "delta", "bytes", "transpose", "crc32c", SHARDS),
}
"""Those that decode numbers; numcodecs has others, of which `pickle` runs what it reads."""


def is_zarr(path: Path) -> bool:
    """Whether a folder is called as OME-Zarr is, or is a group of Zarr."""
    return path.is_dir() and (path.suffix.lower() == ZARR or any((path / name).is_file() for name in METADATA))


class _Image(NamedTuple):
    """store: its files; axes: their names, those of the picture last; levels: the finest first; mpp: height and width of a pixel of the first, in
    micrometres; names: of channels, where the file has some."""

    store: Any
    axes: str
    levels: list[Any]
    pixel_size: tuple[float, float] | None
    names: list[str]


class OmeZarr(ImageSource):
    """The picture in an OME-Zarr image, or one of its smaller levels.

    plane: which channel, slice and time, where there are several. Three channels without a choice are red, green and blue.

    Raises:
        Refused: no OME-Zarr image, a plate or several images, a choice that is missing or not there, chunks that are too large.
        MissingExtraError: without zarr.
    """

    def __init__(self, path: Path, plane: Plane | None = None, *, image: _Image | None = None, level: int = 0) -> None:
        self.path, self.level, self.name = path, level, str(path)
        self.plane = Plane() if plane is None else plane
        self.image = _open(path) if image is None else image
        self.array = self.image.levels[level]
        self.dtype: Any = self.array.dtype
        self.shape = (int(self.array.shape[-2]), int(self.array.shape[-1]))
        self.part_size = (int(self.array.chunks[-2]), int(self.array.chunks[-1]))
        self.pixel_size = self.image.pixel_size if level == 0 else None
        self.white = int(np.iinfo(self.dtype).max) if self.dtype in (np.uint8, np.uint16) else None
        self.is_deep, self.levels_stored = self.dtype.itemsize > 1, len(self.image.levels)
        self._choose()
        self.slice_count = len(self.slices)

    @property
    def smaller_levels(self) -> list[ImageSource]:
        return [OmeZarr(self.path, self.plane, image=self.image, level=i) for i in range(1, len(self.image.levels))]

    def _choose(self) -> None:
        """Which channels and slices are read, as indices of the axes in front of the picture."""
        axes, shape = self.image.axes[:-2], self.array.shape
        if self.dtype.kind not in "buif" or len(shape) != len(axes) + 2:
            raise Refused(f"holds {self.dtype} values in {len(shape)} axes, which are not read here", "image.axes")
        if math.prod(self.array.chunks) > MAX_SEGMENT:
            raise Refused(
                f"is stored in chunks of {' x '.join(map(str, self.array.chunks))}, too large to be decoded one by one: save it in "
                "smaller ones",
                "image.chunks",
            )
        as_stored = f"{' x '.join(map(str, shape))} as {self.image.axes.upper()}"
        wanted = {"c": self.plane.channel, "z": self.plane.z, "t": self.plane.time}
        chosen = {}
        for axis, value in wanted.items():
            count = shape[axes.index(axis)] if axis in axes else 1
            names = self.image.names if axis == "c" and len(self.image.names) == count else ()
            is_colour = axis == "c" and value is None and count == 3
            chosen[axis] = [0, 1, 2] if is_colour else numbers(axis.upper(), value, count, names, as_stored)
        self.channels, self.slices, (self.time,) = chosen["c"], chosen["z"], chosen["t"]

    def window(self, top: int, left: int, bottom: int, right: int) -> Pixels:
        planes = []
        for channel in self.channels:
            values = self._plane(channel, self.slices[0], top, left, bottom, right)
            for z in self.slices[1:]:
                np.maximum(values, self._plane(channel, z, top, left, bottom, right), out=values)
            planes.append(values)
        return Pixels(planes[0] if len(planes) == 1 else np.stack(planes, -1), self.white)

    def _plane(self, channel: int, z: int, top: int, left: int, bottom: int, right: int) -> Array:
        index = {"c": channel, "z": z, "t": self.time}
        window = slice(top, bottom), slice(left, right)
        told = self.image.store.missing
        values = self.array[tuple(index[axis] for axis in self.image.axes[:-2]) + window]
        if told is None and (missing := self.image.store.missing) is not None:
            log.warning(
                "%s lacks chunk %s, and %d of %d in all: it counts as %s there",
                self.name,
                missing,
                self.array.nchunks - self.array.nchunks_initialized,
                self.array.nchunks,
                self.array.fill_value,
            )
        return np.asarray(values).astype(self.dtype.newbyteorder("="), copy=False)


def _open(path: Path) -> _Image:
    """The levels and metadata of the only image in a folder. Raises as `OmeZarr`."""
    try:
        import zarr

        from gcsa.images.zarr_store import ArrayFiles, CheckedStore
    except ImportError as error:
        raise MissingExtraError(
            f"{path} needs zarr, of Python 3.11 or newer: pip install gcsa-vit[zarr]", "zarr.missing"
        ) from error
    store = CheckedStore(path)
    try:
        group = zarr.open_group(store, mode="r")
    except FileNotFoundError as error:
        raise Refused("holds no group of Zarr: name the folder of an OME-Zarr image", "zarr.no_group") from error
    content: dict[str, Any] = dict(group.attrs)
    content = content.get("ome", content)
    if "plate" in content or "well" in content:
        raise Refused("is a plate or a well: name the image of a field, such as PLATE.zarr/A/1/0", "zarr.plate")
    if "multiscales" not in content and "bioformats2raw.layout" in content:
        inside = sorted(name for name, _ in group.groups() if name != "OME")
        if len(inside) != 1:
            raise Refused(
                f"holds {len(inside)} images: name one of them, such as {path.name}/{(inside or ['0'])[0]}",
                "zarr.images",
            )
        return _open(path / inside[0])
    images = content.get("multiscales") or []
    if len(images) != 1:
        raise Refused(f"holds {len(images)} multiscale images: name the folder of one OME-Zarr image", "zarr.images")
    (image,) = images
    axes = [str(axis.get("name")) if isinstance(axis, dict) else str(axis) for axis in image.get("axes", ())]
    if axes[-2:] != ["y", "x"] or not set(axes[:-2]) <= set("tcz") or len(set(axes)) != len(axes):
        raise Refused(
            f"has the axes {', '.join(map(str, axes)) or 'of none'}: t, c, z, y and x are read, in OME-Zarr 0.4 or 0.5",
            "zarr.axes",
        )
    named = [group[part["path"]] for part in image["datasets"]]
    levels: list[Any] = [level for level in named if hasattr(level, "shape")]
    if len(levels) < len(named):
        raise Refused("names a folder as a level of its image: save it anew", "zarr.level_folder")
    for level in levels:
        in_file, in_chunk = (
            math.prod(sides) * level.dtype.itemsize for sides in (level.shards or level.chunks, level.chunks)
        )
        store.arrays[level.path] = ArrayFiles(in_file, in_chunk, _check_codecs(level), *_shard_index(level))
    sides = [np.array(level.shape[-2:]) for level in levels]
    if any((smaller > larger).any() for larger, smaller in pairwise(sides)):
        raise Refused("does not list its levels from the finest on: save it anew", "zarr.level_order")
    channels = (content.get("omero") or {}).get("channels", [])
    names = [str(channel.get("label", "")) for channel in channels]
    return _Image(store, "".join(axes), levels, _pixel_size(image), names if all(names) else [])


def _check_codecs(array: Any) -> str | None:
    """The codec that packs the chunks of an array. Raises Refused for others than `CODECS`, and for two."""
    metadata = array.metadata
    if metadata.zarr_format == 2:
        names = [codec.codec_id for codec in (metadata.compressor, *(metadata.filters or ())) if codec is not None]
    else:
        names = _names([codec.to_dict() for codec in metadata.codecs])
    if unknown := sorted(set(names) - CODECS):
        raise Refused(
            f"is compressed by {', '.join(unknown)}, which is not read here: save it by Blosc, Zstandard or gzip",
            "image.compression",
        )
    packed = [name for name in names if name in PACKED]
    if len(packed) > 1:
        raise Refused(f"is compressed twice, by {' and '.join(packed)}: save it by one of them", "image.compression")
    return packed[0] if packed else None


def _shard_index(array: Any) -> tuple[bool, str, int] | tuple[()]:
    """How the index of a shard is written, as in `ArrayFiles`; nothing without shards. Raises Refused for shards in shards."""
    if array.metadata.zarr_format == 2:
        return ()
    codecs = [codec.to_dict() for codec in array.metadata.codecs]
    if _names(codecs).count(SHARDS) > 1:
        raise Refused("has shards in its shards, which are not read here: save it anew", "image.compression")
    for codec in codecs:
        if codec["name"] == SHARDS:
            about = codec["configuration"]
            written = {part["name"]: part.get("configuration", {}) for part in about["index_codecs"]}
            big = written.get("bytes", {}).get("endian") == "big"
            return about["index_location"] == "start", ">u8" if big else "<u8", 4 if "crc32c" in written else 0
    return ()


def _names(codecs: list[Any]) -> list[str]:
    """The names of codecs of Zarr 3, those within shards included."""
    names = []
    for codec in codecs:
        names.append(codec["name"].removeprefix("numcodecs."))
        inner = codec.get("configuration", {})
        names += _names([*inner.get("codecs", ()), *inner.get("index_codecs", ())])
    return names


def _pixel_size(image: dict[str, Any]) -> tuple[float, float] | None:
    """Height and width of a pixel of the first level in micrometres; None where the metadata does not say them."""
    units = [str(axis.get("unit")) if isinstance(axis, dict) else "" for axis in image["axes"][-2:]]
    size = np.array([MICROMETRES.get(unit, 0.0) for unit in units])
    stated = False
    for transformation in [
        *image["datasets"][0].get("coordinateTransformations", ()),
        *image.get("coordinateTransformations", ()),
    ]:
        if transformation.get("type") == "scale":
            size, stated = size * np.array(transformation["scale"][-2:], float), True
    height, width = size.tolist()
    return (height, width) if stated and 0 < height < 1e6 and 0 < width < 1e6 else None
