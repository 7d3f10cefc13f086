"""Kernel bases in closed form, as small tables of planar functions.

A kernel between regular fields is k[g, gh](x) = psi_h(g^-1 x) with any planar functions psi_h, one for each h; from
an image it is k[g](x) = psi(g^-1 x) (poster eq. 1). So every equivariant filter follows from planar functions b_j,
sampled at the turned points g^-1 x. There are two sets of them:

- "full": the k^2 pixels, which every element of the group must map onto one another, as quarter turns and mirrors do.
  No filter is left out (Cohen & Welling 2016, Group equivariant convolutional networks, arXiv:1602.07576).
- "band": Gaussian rings times circular harmonics, with escnn's widths and cut-off, for any group: what a grid of pixels
  can show of other angles (Weiler & Cesa 2019, arXiv:1911.08251).

Nothing is solved for, so the tables are the same on every machine.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcsa.groups import Group

BASES = ("full", "band")
_VERSION = 1  # part of each cached file's name: raise it with any change of the functions below


def rings(kernel_size: int) -> tuple[list[float], list[float]]:
    """Radii and widths (in pixels) of the Gaussian rings of a k x k kernel.

    For odd k they are escnn's defaults (0, 1, ..., (k - 1) / 2). For even k no grid point lies at the centre, so
    the rings are put at 0.5, 1.5, ..., where escnn's own choice loses a function.
    """
    radii = [(kernel_size - 1) / 2 - i for i in reversed(range(math.ceil(kernel_size / 2)))]
    widths = [0.6] * (len(radii) - 1) + [0.4]
    return radii, [0.005 if radius == 0 else width for radius, width in zip(radii, widths, strict=True)]


def max_frequency(radius: float, kernel_size: int) -> float:
    """The highest circular frequency kept on the ring of this radius: escnn's default, extended to half radii."""
    if radius == (kernel_size - 1) / 2:
        return min(2 * radius, 2)
    return 2 * radius - (1 if radius and radius % 2 == 0 else 0)


def check_basis(basis: str, group: Group) -> None:
    """Raises ValueError for anything but "full" and "band", and for "full" of a group with elements that do not map the
    pixels onto themselves."""
    if basis not in BASES:
        raise ValueError(f"unknown basis {basis!r}: choose one of {', '.join(BASES)}")
    if basis == "full" and len(group.exact_elements) < group.order:
        raise ValueError(
            f"basis='full' needs a group of quarter turns and mirrors, such as c4 or d4, not {group}: use band"
        )


def planar_tables(group: Group, kernel_size: int, basis: str = "band") -> NDArray[np.float64]:
    """Table [g, j] holds b_j(g^-1 x) on the k x k grid: shape (|H|, J, k, k), unit mean energy for each j.

    Those of the band-limited basis are read from the cache folder (`GCSA_CACHE`, else gcsa in the user's cache folder)
    where escnn need not be imported; a missing or damaged file is built again.
    """
    return _tables(group, kernel_size, basis).copy()


@cache
def turns(group: Group, kernel_size: int, basis: str) -> NDArray[np.float64]:
    """Numbers [h, i, j], (|H|, J, J), with b_i(h^-1 x) = sum over j of [h, i, j] b_j(x)."""
    tables = planar_tables(group, kernel_size, basis)
    samples = tables.reshape(*tables.shape[:2], -1).swapaxes(1, 2)  # (|H|, k * k, J)
    count = tables.shape[1]
    functions = samples.reshape(-1, count)
    turned = [samples[group.cayley[:, h]].reshape(-1, count) for h in range(group.order)]
    return np.stack([np.linalg.lstsq(functions, each, rcond=None)[0].T for each in turned])


@cache
def fingerprint(group: Group, kernel_size: int, basis: str = "band") -> int:
    """48 bits that identify the tables to four decimals: equal on every machine that builds the same functions."""
    return _digest(np.rint(_tables(group, kernel_size, basis) * 1e4).astype("<i4").tobytes())


def fingerprint_of(tables: Tensor, group: Group, kernel_size: int, basis: str = "band") -> int:
    """`fingerprint` for a layer's own tables (|H|, J, k, k): the same number where they hold `planar_tables`, up to the
    rounding of any floating-point type, and another where they hold anything else. Those of the meta device hold
    nothing, and count as filled."""
    if not tables.is_meta:
        held = tables.detach().cpu().double().numpy()
        if not np.allclose(held, _tables(group, kernel_size, basis), rtol=1e-2, atol=1e-2):
            return _digest(held.tobytes())
    return fingerprint(group, kernel_size, basis)


def _tables(group: Group, kernel_size: int, basis: str) -> NDArray[np.float64]:
    return _pixels(group, kernel_size) if basis == "full" else _planar_tables(group, kernel_size)


@cache
def _pixels(group: Group, kernel_size: int) -> NDArray[np.float64]:
    with torch.device("cpu"):  # also where a model is created on the meta device
        pixels = torch.eye(kernel_size**2, dtype=torch.float64).unflatten(1, (kernel_size, kernel_size))
        return np.stack([group.act_on_grid(pixels, g).numpy() for g in range(group.order)])


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")


class ComputedBuffers(nn.Module):
    """A module with non-persistent buffers that follow from its arguments.

    They are filled again after the meta device and with every `load_state_dict`, because neither `to_empty` nor a
    state dict does so; `init_non_persistent_buffers` is what timm's `reinit_non_persistent_buffers` calls.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_load_state_dict_post_hook(fill_buffers)

    def init_non_persistent_buffers(self) -> None:
        """Fills the buffers in place."""
        raise NotImplementedError

    def _apply(self, fn: Any, recurse: bool = True) -> ComputedBuffers:
        empty = any(buffer.is_meta for buffer in self.buffers(recurse=False))
        super()._apply(fn, recurse)
        if empty:
            self.init_non_persistent_buffers()
        return self


def fill_buffers(model: nn.Module, _: Any = None) -> None:
    """Fills the buffers of all `ComputedBuffers` in `model`, as a hook behind `load_state_dict`: those still on the meta
    device, where weights were assigned instead of copied, are made anew where the first parameter is."""
    like = next(model.parameters(), None)
    for module in model.modules():
        if isinstance(module, ComputedBuffers):
            for name in module._non_persistent_buffers_set:
                buffer = getattr(module, name)
                if buffer is not None and buffer.is_meta and like is not None:
                    setattr(module, name, torch.empty_like(buffer, device=like.device, dtype=like.dtype))
            module.init_non_persistent_buffers()


@cache
def _planar_tables(group: Group, kernel_size: int) -> NDArray[np.float64]:
    folder = cache_folder()
    if folder is None:
        return _build(group, kernel_size)
    path = folder / f"tables-v{_VERSION}-{group}-k{kernel_size}"
    tables = _read(path)
    if tables is None:
        with torch.device("cpu"):  # also where a model is created on the meta device, which holds no numbers
            tables = _build(group, kernel_size)
        _write(path, tables)
    return tables


def _build(group: Group, kernel_size: int) -> NDArray[np.float64]:
    offsets = np.arange(kernel_size) - (kernel_size - 1) / 2
    points = np.stack([np.tile(offsets, kernel_size), -np.repeat(offsets, kernel_size)])
    exact = group.exact_elements
    tables: dict[int, NDArray[np.float64]] = {}
    for g in range(group.order):
        if g in tables:
            continue
        sampled = _planar_functions(group.matrix(int(group.inverse[g])) @ points, kernel_size)
        image = torch.from_numpy(sampled.reshape(-1, kernel_size, kernel_size))
        # The rest of g's coset by quarter turns and mirrors of the pixels, so that exact elements stay exact to the
        # last bit, whatever the precision the tables are rounded to.
        for t in exact:
            tables[int(group.cayley[t, g])] = group.act_on_grid(image, t).numpy()
    stacked = np.stack([tables[g] for g in range(group.order)])
    return stacked / np.sqrt(np.square(stacked).sum(axis=(2, 3)).mean(axis=0))[None, :, None, None]


def _planar_functions(points: NDArray[np.float64], kernel_size: int) -> NDArray[np.float64]:
    """escnn's functions b_j at points (2, P), x to the right and y upwards: shape (J, P)."""
    with warnings.catch_warnings():
        # escnn reports the absence of py3nj, which only its three-dimensional groups use; the first import of its
        # sources also reports their invalid escape sequences.
        warnings.filterwarnings("ignore", message=".*py3nj.*")
        warnings.filterwarnings("ignore", message="invalid escape sequence")
        from escnn import gspaces

    radii, widths = rings(kernel_size)
    cut_off = {np.float32(radius): max_frequency(radius, kernel_size) for radius in radii}
    space = gspaces.trivialOnR2()
    basis = space.build_kernel_basis(
        space.trivial_repr,
        space.trivial_repr,
        sigma=widths,
        rings=radii,
        maximum_frequency=math.ceil(max(cut_off.values())),
    )
    keep = [i for i, b in enumerate(basis) if b["irrep:frequency"] <= cut_off[np.float32(b["radius"])]]
    # escnn shares one basis process-wide and samples it in its own float32, so the precision is put back after use.
    sampled = basis.double().sample(torch.from_numpy(points.T.copy()))[:, keep, 0, 0].T.numpy()
    basis.float()
    return sampled


def cache_folder() -> Path | None:
    """Where the tables are kept: `GCSA_CACHE`, else gcsa in XDG_CACHE_HOME or ~/.cache; None for a user without a home,
    as in some containers."""
    if folder := os.environ.get("GCSA_CACHE"):
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gcsa"
    except RuntimeError:
        return None


def _read(path: Path) -> NDArray[np.float64] | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:32], content[32:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    return np.load(io.BytesIO(payload), allow_pickle=False)


def _write(path: Path, tables: NDArray[np.float64]) -> None:
    buffer = io.BytesIO()
    np.save(buffer, tables, allow_pickle=False)
    payload = buffer.getvalue()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            whole = Path(folder) / path.name
            whole.write_bytes(hashlib.sha256(payload).digest() + payload)
            os.replace(whole, path)  # atomic: another process sees the old file or the whole new one
    except OSError:
        return  # a read-only home costs the next start a second, and is no reason to fail
