"""Fine-tuning a trained base through low-rank adapters: `train.py adapter=lora adapter.base=outputs/.../best.ckpt`.

For any LightningModule whose network is `self.model`, saved hyperparameters included. Its `__init__` takes `adapter`,
None by default, and calls `attach` where there is one, which is how a checkpoint opens again without its base; a run
calls `adapt` on the fresh module, and `save_and_merge` at its end. The base stays as it is, but for the classifier
(`get_classifier()`, where the model has it), which PEFT trains and saves whole beside the deltas.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.importing import check_peft
from gcsa._utils.validation import check_float, check_int, check_rate, listed, shown
from gcsa.models.create import classifier_names
from gcsa.training.callbacks import running_statistics
from gcsa.weights import check_tensors, load_tensors, read, save_label_names
from gcsa.weights.fingerprint import fingerprint

FREE_OPTIONS = ("_rate", "_thresh", "diameter", "img_size", "num_classes", "in_chans", "recurrent")
"""Ends of the model options that may differ from the base's, or that the shapes of its tensors tell already."""


KEYS = ("base", "rank", "alpha", "rslora", "dropout", "target_modules", "train_head")
"""Of conf/adapter/lora.yaml."""
OF_FULL = {"base", "base_share"}
"""Of conf/adapter/full.yaml."""


def adapt(module: pl.LightningModule, adapter: Mapping[str, Any]) -> None:
    """Puts the base's weights into `module.model`, wraps it by `attach` and prints the share that is trained.

    adapter: the keys of conf/adapter/lora.yaml. All but `base` become the hyperparameter `adapter`; `train_head` is
    true there if the base's classifier did not fit. With those of conf/adapter/full.yaml all of it is trained.
    Raises ValueError for options that cannot work and for a base that is damaged or of another architecture, and
    FileNotFoundError if there is none.
    """
    check_adapter(adapter)
    options = {key: value for key, value in adapter.items() if key not in OF_FULL}
    fresh = load_base(module.model, adapter["base"], module.hparams.get("model", {}))
    if (share := adapter.get("base_share", 0)) and (fresh or hasattr(module.model, "grown")):
        raise UserError(
            f"adapter.base_share={share:g} averages outputs with those of {adapter['base']}, which are of other classes or "
            "characters: set adapter.base_share=0",
            "adapter.base_share",
        )
    if options:
        module.hparams["adapter"] = {**options, "train_head": options["train_head"] or fresh}
        module.model = attach(module.model, module.hparams["adapter"])  # type: ignore[arg-type]
    trainable, total = count_parameters(module.model)  # type: ignore[arg-type]
    rank_zero_only(print)(
        f"trainable {trainable:,} of {total:,} parameters ({trainable / total:.1%})".replace("%", " %")
    )


def attach(model: nn.Module, adapter: Mapping[str, Any]) -> nn.Module:
    """`model` as a `PeftModel` with a fresh adapter, in which only the adapter and what it saves whole is trained.

    Raises ValueError for a rank, a target or a combination that `model` does not take.
    """
    check_peft()
    from gcsa.adapters.lora import get_peft_model, lora_config

    whole = classifier_names(model) if adapter["train_head"] else []
    config = lora_config(
        model,
        adapter["rank"],
        adapter["alpha"],
        adapter["target_modules"],
        use_rslora=adapter["rslora"],
        lora_dropout=adapter["dropout"],
        modules_to_save=whole or None,
    )
    for name in sorted(set(whole) & set(config.target_modules or ())):
        raise UserError(
            f"adapter.target_modules names {name}, which is trained whole: leave it out", "adapter.target_modules_whole"
        )
    return get_peft_model(model, config)


def save_and_merge(module: pl.LightningModule, folder: Path) -> Path:
    """Writes the adapter as PEFT does, and leaves the plain, merged model in `module.model`. Returns `folder`."""
    adapted: Any = module.model
    config = adapted.peft_config["default"]
    # A checkpoint makes its adapter around random weights, and fills them afterwards.
    config.revision = fingerprint(adapted, config.modules_to_save or ())
    adapted.save_pretrained(str(folder))
    merged = adapted.merge_and_unload(safe_merge=True)
    if hasattr(merged, "save_charset"):  # a recogniser of text lines
        merged.save_charset(folder)
    if names := (module.hparams.get("preprocessing") or {}).get("label_names"):
        save_label_names(folder, names)
    module.model = merged
    return folder


def averageable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and the statistics of batch norm, by their names. An average of other buffers, such as draws of random features,
    is none."""
    return dict(model.named_parameters()) | running_statistics(model)


@torch.no_grad()
def average_with_base(model: nn.Module, base: Mapping[str, Tensor], share: float) -> None:
    """Makes each weight of `model` `share` times that of `base` plus 1 - `share` times its own (WiSE-FT, Wortsman et al. 2022,
    arXiv:2109.01903, section 3), which forgets less of what the base knows than the trained weights do.

    base: a copy of `averageable` of the same network.
    """
    for name, tensor in averageable(model).items():
        tensor.lerp_(base[name].to(tensor), share)


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """The trainable parameters, and those of the model without an adapter (or with it merged)."""
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    return trainable, total - trainable if hasattr(model, "peft_config") else total


def pooling_of(model: nn.Module) -> str | None:
    """The name of the pooling in front of the classifier, which timm looks for in the head and then in the model."""
    for owner in (getattr(model, "head", None), model):
        pool = getattr(owner, "global_pool", None)
        pool = getattr(pool, "pool_type", pool)
        if isinstance(pool, str):
            return pool
    return None


def load_base(model: Any, source: str, options: Mapping[str, Any]) -> bool:
    """Loads the weights of `source` into `model`, made with `options`. Returns whether the classifier did not fit and
    was left fresh; that of a recogniser keeps what it knows (`CTCRecognizer.grown`)."""
    base = read(source)
    weights = base.tensors
    made_with = {"name": base.architecture, **base.options}
    wanted = model.state_dict()
    head = tuple(f"{name}." for name in classifier_names(model))
    of_head = {name for name in weights.keys() | wanted.keys() if name.startswith(head)}
    if hasattr(model, "grown"):  # a recogniser
        weights = model.untrained_branch(weights) | weights
        check_tensors(
            source, *({n: t for n, t in tensors.items() if n not in of_head} for tensors in (weights, wanted))
        )
        weights = model.grown(weights, base)
        made_with = {**model.defaults, "encoder": base.architecture, **base.options}
        options = model.options
    elif hasattr(model, "options"):  # a segmenter, whose weights hold every option
        options = {**model.options, **options}
    fresh = any(name not in weights or weights[name].shape != wanted[name].shape for name in of_head & wanted.keys())
    if fresh:
        weights, wanted = (
            {name: tensor for name, tensor in tensors.items() if name not in of_head} for tensors in (weights, wanted)
        )
    check_tensors(source, weights, wanted)
    # timm writes the pooling down, also where nobody gave it.
    if options.get("global_pool") is None and "global_pool" in made_with:
        options = {**options, "global_pool": pooling_of(model)}
    # Some options, such as the number of heads, change no shape.
    for key in sorted(key for key in made_with.keys() | options.keys() if not key.endswith(FREE_OPTIONS)):
        if made_with.get(key) != options.get(key):
            mine, other = ("null" if given.get(key) is None else given[key] for given in (options, made_with))
            raise UserError(f"{source} was made with model.{key}={other}, not {mine}: pass that", "adapter.base_option")
    load_tensors(model, weights, source, strict=not fresh)
    return fresh


def check_adapter(adapter: Mapping[str, Any]) -> None:
    """Raises ValueError for values of conf/adapter that fit no model."""
    if not isinstance(adapter["base"], str):
        raise UserError(
            "adapter.base is missing: give a .ckpt of train.py, local-dir:FOLDER or the name of published weights, "
            "which are then adapted",
            "adapter.base",
        )
    if adapter.keys() <= OF_FULL:
        check_rate("adapter.base_share", adapter.get("base_share", 0))
        return
    if unknown := sorted(adapter.keys() - KEYS):
        raise UserError(f"unknown key 'adapter.{unknown[0]}': choose one of {listed(KEYS)}", "adapter.unknown_key")
    check_peft()
    check_int("adapter.rank", adapter["rank"])
    if adapter["alpha"] is not None:
        check_float("adapter.alpha", adapter["alpha"], above=0)
    check_rate("adapter.dropout", adapter["dropout"])
    if not isinstance(adapter["target_modules"], list) or not adapter["target_modules"]:
        raise UserError(
            f"adapter.target_modules={shown(adapter['target_modules'])} must be a list such as [q,v]",
            "adapter.target_modules",
        )
