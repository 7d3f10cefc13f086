"""One picture of a stack: its channel, slice and time, by the axes that tifffile finds in OME-TIFF, ImageJ's TIFF and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tifffile

from gcsa.images.choices import MAX
from gcsa.images.pixels import Pixels, Refused

MICROMETRES = {
    **{"nm": 1e-3, "um": 1.0, "micron": 1.0, "microns": 1.0, "mm": 1e3, "cm": 1e4, "m": 1e6, "inch": 25_400.0},
    **{"angstrom": 1e-4, "nanometer": 1e-3, "micrometer": 1.0, "millimeter": 1e3, "centimeter": 1e4, "meter": 1e6},
}
"""Of the units of length in OME-XML and in ImageJ, where the sign for micro is u, and in OME-NGFF."""
COLOURS = ("red", "green", "blue")


@dataclass(frozen=True)
class Plane:
    """Which picture of a stack is read; numbers count from 1, as in Fiji. None: the only one.

    channel: a number, or a name in the file; of a picture in colour also red, green or blue.
    z: a slice, or "max", the largest value of every pixel over all slices.
    time: a frame.
    """

    channel: int | str | None = None
    z: int | str | None = None
    time: int | None = None


class Choice(NamedTuple):
    """slices: the numbers of the pages of each slice, of which the largest value counts; sample: the only one of the pages' samples
    that is read, or None for all."""

    slices: list[list[int]]
    sample: int | None


def choose(series: tifffile.TiffPageSeries, plane: Plane, names: Sequence[str]) -> Choice:
    """Which pages and sample of a file are the picture `plane`. `names` are those of its channels, as far as it has any.

    An axis that has no meaning in the file is the one of channel, z and time that `plane` names, if the file has no such axis.
    Raises Refused for a choice that is missing, and for one that is not there.
    """
    page: Any = series.keyframe
    as_stored = f"{' x '.join(map(str, series.shape))} as {series.axes}"
    wanted = {"C": plane.channel, "Z": plane.z, "T": plane.time}
    sizes = [(axis, count) for axis, count in zip(series.axes, series.shape, strict=True) if axis not in "YX"]
    samples = page.samplesperpixel
    in_page = next((axis for axis in "SC" if samples > 1 and axis in series.axes), "")
    leading = [("C" if axis == "S" else axis, count) for axis, count in sizes if axis != in_page]
    unknown = [axis for axis, _ in leading if axis not in wanted]
    there = {axis for axis, _ in leading} | ({"C"} if in_page else set())
    free = [axis for axis, value in wanted.items() if value is not None and axis not in there]
    if len(unknown) > 1:
        raise Refused(f"does not say what its axes are ({as_stored}): save it as OME-TIFF", "image.axes_unknown")
    meaning = {unknown[0]: free[0]} if len(unknown) == len(free) == 1 else {}
    counts = {meaning.get(axis, axis): count for axis, count in leading}
    if len(series.pages) != math.prod(counts.values()):
        raise Refused(
            f"does not hold each of its planes ({as_stored}) as a page: save it as OME-TIFF or BigTIFF",
            "image.planes_not_pages",
        )

    chosen = {
        axis: numbers(axis, wanted.get(axis), count, names if axis == "C" and len(names) == count else (), as_stored)
        for axis, count in counts.items()
        # Three channels are red, green and blue.
        if not (axis == "C" and plane.channel is None and count == 3 and samples == 1)
    }
    channels = chosen.get("C", list(range(counts.get("C", 1))))
    chosen = {axis: chosen.get(axis, channels) for axis in counts}
    for axis in {"Z", "T"} - counts.keys():
        numbers(axis, wanted[axis], 1, (), as_stored)
    sample = None
    if "C" not in counts and (plane.channel is not None or not _is_colour(page)):
        in_colour = COLOURS if samples in (3, 4) else ()
        (sample,) = numbers("C", plane.channel, samples, names if len(names) == samples else in_colour, as_stored)
    pages = np.arange(len(series.pages)).reshape(list(counts.values()))[np.ix_(*chosen.values())]
    channels_last = sorted(range(len(counts)), key=lambda i: list(counts)[i] == "C")
    return Choice(pages.transpose(channels_last).reshape(-1, len(channels)).tolist(), sample if samples > 1 else None)


def _is_colour(page: Any) -> bool:
    """Whether the samples of a page are grey or colours, with or without alpha, not channels of their own."""
    count = page.samplesperpixel
    has_alpha = tuple(page.extrasamples)[-1:] in ((1,), (2,))
    return count in (1, 3) or (count == 4 and page.photometric in (2, 5)) or (count in (2, 4) and has_alpha)


def numbers(axis: str, value: int | str | None, count: int, names: Sequence[str], as_stored: str) -> list[int]:
    """The numbers, from 0, along the axis C, Z, T or another, of which `value` names one. Raises Refused as `choose`."""
    noun, option = {"C": ("channels", "channel"), "Z": ("slices", "z"), "T": ("frames", "time")}.get(axis, ("", ""))
    noun = noun.removesuffix("s") if count == 1 else noun
    known = f" ({', '.join(names)})" if names and len(names) <= 20 else ""
    if value is None or not option:
        if count == 1:
            return [0]
        if not option:
            raise Refused(
                f"holds {count} planes ({as_stored}): say by --channel, --z or --time what they are", "planes.which"
            )
        raise Refused(f"holds {count} {noun}{known}, {as_stored}: choose by --{option}", "planes.needed", count=count)
    if value == MAX and axis == "Z":
        return list(range(count))
    if isinstance(value, int) and 1 <= value <= count:
        return [value - 1]
    called = [i for i, name in enumerate(names) if name == str(value)]  # a wavelength is a name, too
    if len(called) != 1:
        problem = f"there are several channels called {value}" if called else f"there is no --{option} {value}"
        remedy = f"give a number from 1 to {count}" if count > 1 else "leave it out"
        raise Refused(f"holds {count} {noun}{known}, {as_stored}: {problem}; {remedy}", "planes.choice", count=count)
    return called


def choose_channel(pixels: Pixels, plane: Plane) -> Pixels:
    """The channel of a picture that is no stack. Raises Refused for what it does not hold."""
    for axis, value in (("Z", plane.z), ("T", plane.time)):
        numbers(axis, value, 1, (), "one image")
    if plane.channel is None:
        return pixels
    count = 1 if pixels.values.ndim == 2 else 3
    (number,) = numbers("C", plane.channel, count, COLOURS if count == 3 else (), "one image")
    return Pixels(pixels.values if count == 1 else pixels.values[..., number], pixels.white)


def channel_names(content: tifffile.TiffFile) -> list[str]:
    """The names of the channels in OME-XML, or the labels of ImageJ's first planes; empty where there are none."""
    if content.ome_metadata:
        channels = _pixels_of_ome(content).get("Channel", [])
        channels = channels if isinstance(channels, list) else [channels]
        names = [str(channel.get("Name", "")) for channel in channels]
        return names if all(names) else []
    metadata = content.imagej_metadata or {}
    labels, count = metadata.get("Labels"), metadata.get("channels", 1)
    return [str(label) for label in labels[:count]] if isinstance(labels, list) and len(labels) >= count else []


def pixel_size(content: tifffile.TiffFile, page: Any) -> tuple[float, float] | None:
    """Height and width of a pixel in micrometres, as OME-XML or ImageJ state them; None where nothing does.

    The resolution of other files is not looked at: most often it is that of a print or a screen.
    """
    if content.ome_metadata:
        pixels = _pixels_of_ome(content)
        sides = [
            _micrometres(pixels.get(f"PhysicalSize{axis}"), pixels.get(f"PhysicalSize{axis}Unit", "um"))
            for axis in "YX"
        ]
    else:
        unit = (content.imagej_metadata or {}).get("unit")
        resolutions = [page.tags.valueof(tag, default=(0, 1)) for tag in (283, 282)]
        sides = [_micrometres(parts / pixels if pixels else None, unit) for pixels, parts in resolutions]
    height, width = sides
    return None if height is None or width is None else (height, width)


def _micrometres(size: Any, unit: Any) -> float | None:
    plain = str(unit).replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u")
    if not isinstance(size, int | float) or plain not in MICROMETRES:
        return None
    micrometres = size * MICROMETRES[plain]
    return micrometres if 0 < micrometres < 1e6 else None


def _pixels_of_ome(content: tifffile.TiffFile) -> dict[str, Any]:
    """The element Pixels of the only, or first, image in OME-XML."""
    image = tifffile.xml2dict(content.ome_metadata or "").get("OME", {}).get("Image", {})
    image = image[0] if isinstance(image, list) else image
    pixels = image.get("Pixels", {})
    return pixels if isinstance(pixels, dict) else {}
