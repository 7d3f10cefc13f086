"""What several processes that train one model need beyond Lightning: shards, and an end.

Batches are shared out by `gcsa.data.loaders.EpochSampler`. Fully sharded data parallelism (Rajbhandari et al. 2020, ZeRO
stage 3) is PyTorch's `fully_shard`: every process keeps its share of the weights, gradients and optimizer state, and
gathers the weights of one block at a time.
"""

from collections.abc import Iterator

import pytorch_lightning as pl
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def members(sequence: nn.Module) -> Iterator[nn.Module]:
    """The modules that a sequence, with the sequences in it, runs one after the other: the blocks of a transformer."""
    for member in sequence.children():
        if isinstance(member, nn.Sequential):
            yield from members(member)
        else:
            yield member


def shard(model: nn.Module, mesh: DeviceMesh | None) -> None:
    """Shards the parameters of `model` over `mesh["data_parallel"]`, in place; nothing without a mesh.

    Buffers stay whole. Weights are freed after every use, also those outside the blocks, so that whoever looks at the
    parameters between two steps, such as a checkpoint, always finds the shards.
    """
    if mesh is None:
        return
    sequences = [child for child in model.children() if isinstance(child, nn.Sequential | nn.ModuleList)]
    for part in (*(member for sequence in sequences for member in members(sequence)), model):
        fully_shard(part, mesh=mesh["data_parallel"], reshard_after_forward=True)


def leave_group(trainer: pl.Trainer) -> bool:
    """Ends what connects the processes of a fit. Returns whether this one is the first, which reports."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return trainer.is_global_zero
