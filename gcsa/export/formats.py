"""Formats in which a folded model runs without its source, each file read back and compared before it appears."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import set_scriptable
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import MissingExtraError, UserError, one_line
from gcsa.export import FORMATS
from gcsa.export.layout import without_transposes
from gcsa.export.narrow import narrow_weights, quantize
from gcsa.layers.attention import GroupAttention
from gcsa.models.folding import FoldedConv2d, fold

TOLERANCE = 1e-4
"""How far an exported file may be from the model, relative to the model's largest output (1 where that is smaller)."""
TOLERANCES = {"onnx-bf16": 0.05, "onnx-int8": 0.2}
"""The same of formats of narrow numbers, where it is to find what is broken: how good they are, only data can tell."""
CALIBRATION = 16
"""The fewest images for "onnx-int8": it is calibrated on all but three, and compared on these."""

Run = Callable[[Tensor], Tensor]


def fixed_height(model: nn.Module) -> int | None:
    """The `height` of a model that takes no other one, such as a recogniser of lines."""
    height = getattr(model, "height", None)
    return height if isinstance(height, int) else None


def stride_of(model: nn.Module) -> tuple[int, int]:
    """The pixels of which the height and the width of an image must be multiples; 0 for a height that is fixed."""
    if fixed_height(model) is not None:
        return 0, int(model.stride)  # type: ignore[arg-type]
    multiple = int(getattr(model, "size_divisor", 1))
    return multiple, multiple


def free_sizes(model: nn.Module, any_size: bool) -> tuple[dict[int, Any]]:
    """What torch.export lets vary: the number of images, and with `any_size` all heights and widths that the strides divide."""
    shapes: dict[int, Any] = {0: Dim("batch")}
    if any_size:
        for axis, name, stride in zip((2, 3), ("height", "width"), stride_of(model), strict=True):
            if stride > 0:
                shapes[axis] = stride * Dim(name, min=1) if stride > 1 else Dim.DYNAMIC
    return (shapes,)


def to_program(model: nn.Module, image: Tensor, any_size: bool = False) -> ExportedProgram:
    """`model` in eval mode by torch.export, for images such as `image` (B, C, H, W), B > 1, and those of `free_sizes`.

    Raises ValueError for an LSTM with `any_size`, since torch.export fixes the length of its input.
    """
    if any_size and any(isinstance(module, nn.LSTM) for module in model.modules()):
        raise UserError(
            "its LSTM can be written for one length only: leave out --any-size, or choose onnx or torchscript",
            "export.any_size",
        )
    with torch.no_grad():
        return torch.export.export(model.eval(), (image,), dynamic_shapes=free_sizes(model, any_size))


def _write(file: Path, save: Callable[[io.BytesIO], object]) -> None:
    """By way of memory: where a disk is full, torch's own writer ends the process."""
    buffer = io.BytesIO()
    save(buffer)
    file.write_bytes(buffer.getbuffer())


def write_folded(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> Run:
    folded = fold(model, "portable").eval()
    _write(file, lambda buffer: torch.save(folded, buffer))
    return torch.load(file, weights_only=False)


def write_pt2(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> Run:
    program = to_program(fold(model, "portable"), image, any_size)
    _write(file, lambda buffer: torch.export.save(program, buffer))
    return torch.export.load(file).module()


def write_aoti(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> Run:
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    aoti_compile_and_package(to_program(fold(model, "portable"), image, any_size), package_path=str(file))
    return aoti_load_package(str(file))


def write_torchscript(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> Run:
    with set_scriptable(True):
        folded = fold(model, "portable").eval()
        for attention in folded.modules():
            if isinstance(attention, GroupAttention):
                vars(attention)["fused_attn"] = False  # whose kernel is Python
        script = torch.jit.script(folded)
    _write(file, lambda buffer: torch.jit.save(script, buffer))
    return torch.jit.load(file)


def _write_onnx(folded: nn.Module, image: Tensor, any_size: bool, file: Path, narrow: bool = False) -> None:
    try:
        import onnx
        import onnxruntime  # noqa: F401  (runs what is written)
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"ONNX needs the package {error.name!r}: install gcsa-vit[export]", "onnx.missing"
        ) from error
    for conv in folded.modules():
        if isinstance(conv, FoldedConv2d):
            conv.dilation = 1  # the other is for PyTorch, and onnxruntime has a fast path for this one
    # Not by way of `to_program`, which would fix the length of an LSTM.
    shapes = free_sizes(folded, any_size)
    program = torch.onnx.export(folded.eval(), (image,), dynamic_shapes=shapes, dynamo=True, verbose=False)
    assert program is not None  # only the old exporter gives none
    program.save(file)
    content = without_transposes(onnx.load(file))
    if narrow:
        narrow_weights(content.graph)
    onnx.save(content, file)


def _annotate_onnx(file: Path, about: Mapping[str, Any]) -> None:
    """Writes `about` into the metadata of an ONNX file, each value as JSON."""
    import onnx

    content = onnx.load(file)
    for key, value in about.items():
        content.metadata_props.add(key=key, value=json.dumps(value, ensure_ascii=False))
    onnx.save(content, file)


def _run_onnx(file: Path) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def write_onnx(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> Run:
    _write_onnx(fold(model, "portable"), image, any_size, file)
    return _run_onnx(file)


def write_onnx_bf16(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> Run:
    # In the basis of irreps, rounding would not commute with the group.
    _write_onnx(fold(model, "direct"), image, any_size, file, narrow=True)
    return _run_onnx(file)


def write_onnx_int8(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> Run:
    wide = file.with_name(f"{file.name}.wide")
    try:
        _write_onnx(fold(model, "direct"), image[:2], any_size, wide)
        quantize(wide, file, image)
    finally:
        wide.unlink(missing_ok=True)
    return _run_onnx(file)


Writer = Callable[[nn.Module, Tensor, bool, Path], Run]
"""Writes a file and gives back what runs it, read from the file."""
WRITERS: dict[str, Writer] = dict(
    zip(
        FORMATS,
        (write_onnx, write_onnx_bf16, write_onnx_int8, write_pt2, write_aoti, write_folded, write_torchscript),
        strict=True,
    )
)


def parity_error(model: nn.Module, run: Run, image: Tensor) -> float:
    """The largest difference between `run` and `model` in eval mode, relative to the largest output or 1; infinite
    where either is not a number."""
    with torch.no_grad():
        expected, exported = model.eval()(image), run(image)
    if expected.shape != exported.shape:
        return float("inf")
    error = ((exported - expected).abs().max() / expected.abs().max().clamp_min(1)).item()
    return error if error == error else float("inf")


def check_file(file: Path, format: str) -> None:
    """Raises ValueError for a compiled package by a name that torch does not take, and what `check_writable` raises."""
    if format == "aoti" and file.suffix != ".pt2":
        raise UserError(f"the name of an AOTInductor package must end in .pt2: {file.name} does not", "export.suffix")
    check_writable(file)


def check_images(model: nn.Module, images: Tensor, hint: str) -> None:
    """Raises ValueError with a `hint` unless `model` takes `images` (B, C, H, W), and gives one tensor of them."""
    shape = " x ".join(map(str, images.shape[1:]))
    try:
        with torch.no_grad():
            outputs = model.eval()(images)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise UserError(
            f"{type(model).__name__} takes no images of {shape}{hint}: {_in_short(error)}", "export.shape", shape=shape
        ) from error
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"{type(model).__name__} gives several outputs, and a file holds one: export the model without features_only",
            "export.several_outputs",
        )


def _in_short(error: Exception) -> str:
    return one_line(error, 300) or type(error).__name__


def export(
    model: nn.Module,
    file: str | Path,
    format: str,
    size: tuple[int, int, int],
    any_size: bool = False,
    images: Tensor | None = None,
    about: Mapping[str, Any] | None = None,
) -> float:
    """Writes `model` into `file`, which appears whole and checked or not at all; returns the `parity_error`.

    Args:
        model: of images; in float32.
        format: "onnx", "onnx-bf16" (weights of 16 bits, a file of half the size), "onnx-int8" (convolutions and linear
            layers of 8 bits), "pt2" (torch.export), "aoti" (a compiled package for this kind of machine), "folded" (a
            pickled module, which needs gcsa to load) or "torchscript".
        size: (C, H, W) of the images. Any number of them can be run.
        any_size: also all heights and widths that the strides divide; "folded" and "torchscript" always take those.
        images: (M, C, H, W), on which the file is compared with the model; noise by default. "onnx-int8" needs 16 or more
            such as it is to see, as the model takes them, for they tell how large the numbers in its maps become.
        about: what an ONNX file says in its metadata, each value as JSON.

    Raises ValueError for an unknown format, a file that cannot be written, images that the model does not take or too few,
    an unmerged adapter, a model that the format cannot express and a parity error above 1e-4 (onnx-bf16 0.05, onnx-int8
    0.2); ImportError for a missing package.
    """
    if format not in FORMATS:
        raise UserError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}", "format", format=format)
    if min(size) < 1:
        raise UserError(
            f"images of {' x '.join(map(str, size))} are empty: channels and sides must be 1 or more", "export.size"
        )
    file = Path(file)
    check_file(file, format)
    if fixed_height(model) not in (None, size[1]):
        raise UserError(
            f"{type(model).__name__} takes images {fixed_height(model)} pixels high, not {size[1]}", "export.height"
        )
    if images is None and format == "onnx-int8":
        raise UserError(
            "onnx-int8 is calibrated on images like those that it is to see: give some", "export.calibration"
        )
    least = CALIBRATION if format == "onnx-int8" else 3
    if images is None:
        images = torch.randn(least, *size)
    elif images.shape[1:] != size or len(images) < least:
        shape = " x ".join(map(str, images.shape))
        raise UserError(f"images must be {least} or more of {' x '.join(map(str, size))}, not {shape}", "export.images")
    model = copy.deepcopy(model).eval()  # the caller's may be in training
    check_images(model, images[:2], "")
    # Another number than was traced, and with any_size another size.
    strides = stride_of(model) if any_size else (0, 0)
    others = F.pad(images[-3:], (0, strides[1], 0, strides[0]), mode="replicate")
    check_images(model, others, ", so any_size is not for it")
    traced = images[: -3 if format == "onnx-int8" else 2]
    tolerance = TOLERANCES.get(format, TOLERANCE)
    with replacing(file) as part:
        try:
            error = parity_error(model, WRITERS[format](model, traced, any_size, part), others)
            if about and format.startswith("onnx"):
                _annotate_onnx(part, about)
        except (ImportError, OSError):
            raise
        except Exception as failure:
            raise UserError(
                f"{type(model).__name__} cannot be written as {format}: {_in_short(failure)}", "export.failed"
            ) from failure
        if not error <= tolerance:
            raise UserError(
                f"{file} was not written: as {format}, {type(model).__name__} is off by {error:.1e}, above {tolerance:.0e}",
                "export.tolerance",
            )
    return error
