"""Kernel bases in closed form, as small tables of planar functions.

A kernel between regular fields is k[g, gh](x) = psi_h(g^-1 x) with any planar functions psi_h, one for each h; from
an image it is k[g](x) = psi(g^-1 x) (poster eq. 1). So every equivariant filter follows from planar functions b_j,
sampled at the turned points g^-1 x. There are two sets of them:

- "full": the k^2 pixels, which every element of the group must map onto one another, as quarter turns and mirrors do.
  No filter is left out (Cohen & Welling 2016, Group equivariant convolutional networks, arXiv:1602.07576).
- "band": Gaussian rings times circular harmonics, with escnn's widths and cut-off, for any group: what a grid of pixels
  can show of other angles (Weiler & Cesa 2019, arXiv:1911.08251).

Nothing is solved for, so the tables are the same on every machine (ADR 2, ADR 24).
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa.groups import Group
from gcsa.layers.planar import turned_functions

BASES = ("full", "band")


def check_basis(basis: str, group: Group) -> None:
    """Raises ValueError for anything but "full" and "band", and for "full" of a group with elements that do not map the
    pixels onto themselves."""
    if basis not in BASES:
        raise UserError(f"unknown basis {basis!r}: choose one of {', '.join(BASES)}")
    if basis == "full" and len(group.exact_elements) < group.order:
        raise UserError(
            f"basis='full' needs a group of quarter turns and mirrors, such as c4 or d4, not {group}: use band"
        )


def planar_tables(group: Group, kernel_size: int, basis: str = "band") -> NDArray[np.float64]:
    """Table [g, j] holds b_j(g^-1 x) on the k x k grid: shape (|H|, J, k, k), unit mean energy for each j.

    Those of the band-limited basis come with the package for the common groups and kernel sizes; for others, escnn makes
    them. Raises ImportError where it is needed and not installed.
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

    They are filled again after the meta device and with every `load_state_dict`, because neither `to_empty` nor a state
    dict does so, and where they get a wider type, which would keep the rounding of the narrow one;
    `init_non_persistent_buffers` is what timm's `reinit_non_persistent_buffers` calls.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_load_state_dict_post_hook(fill_buffers)

    def init_non_persistent_buffers(self) -> None:
        """Fills the buffers in place."""
        raise NotImplementedError

    def _apply(self, fn: Any, recurse: bool = True) -> ComputedBuffers:
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        if any(
            old.is_meta or self.get_buffer(name).element_size() > old.element_size() for name, old in before.items()
        ):
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
    tables = turned_functions(group.rotations, kernel_size)
    if group.mirror:
        # Element N + r, a mirror and then a turn by r, is the turn by -r and then a mirror, which only flips the pixels.
        tables = np.concatenate([tables, np.flip(tables[-np.arange(group.rotations)], -1)])
    return tables / np.sqrt(np.square(tables).sum(axis=(2, 3)).mean(axis=0))[None, :, None, None]
