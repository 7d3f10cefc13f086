"""Small images of OME-Zarr, 0.4 in Zarr 2 and 0.5 in Zarr 3."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gcsa._utils.arrays import Array


def write_zarr(
    path: Path,
    levels: Sequence[Array],
    axes: str = "yx",
    version: str = "0.5",
    *,
    scale: float = 0.5,
    unit: str | None = "micrometer",
    names: Sequence[str] = (),
    chunks: tuple[int, ...] | None = None,
    **options: Any,
) -> None:
    """An image of `levels`, the pixels of the first of which are `scale` wide, in chunks of 16 pixels a side or `chunks`."""
    import zarr

    kinds = {"c": "channel", "t": "time"}
    about = [{"name": axis, "type": kinds.get(axis, "space")} for axis in axes]
    about = [{**axis, "unit": unit} if unit and axis["type"] == "space" else axis for axis in about]
    datasets = []
    root = zarr.open_group(str(path), mode="w", zarr_format=2 if version == "0.4" else 3)
    for i, level in enumerate(levels):
        factors = [
            scale * whole / part if axis in "yx" else 1.0
            for axis, whole, part in zip(axes, levels[0].shape, level.shape, strict=True)
        ]
        shape = chunks or (1,) * (level.ndim - 2) + (16, 16)
        root.create_array(str(i), shape=level.shape, dtype=level.dtype, chunks=shape, **options)[...] = level
        datasets.append({"path": str(i), "coordinateTransformations": [{"type": "scale", "scale": factors}]})
    content: dict[str, Any] = {"multiscales": [{"axes": about, "datasets": datasets, "version": version}]}
    if names:
        content["omero"] = {"channels": [{"label": name} for name in names]}
    root.attrs.update(content if version == "0.4" else {"ome": {"version": version, **content}})
