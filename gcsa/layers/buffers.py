"""Buffers computed from a module's arguments, such as kernel tables, and the initialisation of a whole model.

The contract: every tensor that a forward pass reads is a parameter or a buffer, and `init_weights` fills all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class ComputedBuffers(nn.Module):
    """A module with non-persistent buffers computed from its arguments.

    `init_non_persistent_buffers` fills them again in three cases: after the meta device, because `to_empty` does not; after
    `load_state_dict`, because a state dict does not hold them; and on a cast to a wider type, which would keep the rounding of
    the narrow one. timm's `reinit_non_persistent_buffers` calls it too.
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


def init_weights(model: nn.Module) -> None:
    """Fills all parameters and buffers of `model`, whatever they hold, such as memory that `to_empty` allocated.

    Each module's `reset_parameters` runs after those of its children, whose values it may replace.
    """
    for module in reversed(list(model.modules())):
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    fill_buffers(model)


def fill_buffers(model: nn.Module, _: Any = None) -> None:
    """Fills the buffers of all `ComputedBuffers` in `model`; a hook after `load_state_dict`.

    Buffers stay on the meta device if the weights were assigned instead of copied. They are then allocated on the device of
    the first parameter.
    """
    like = next(model.parameters(), None)
    for module in model.modules():
        if isinstance(module, ComputedBuffers):
            for name in module._non_persistent_buffers_set:
                buffer = getattr(module, name)
                if buffer is not None and buffer.is_meta and like is not None:
                    setattr(module, name, torch.empty_like(buffer, device=like.device, dtype=like.dtype))
            module.init_non_persistent_buffers()
