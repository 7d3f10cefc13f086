"""Low-rank adapters through PEFT that keep a model equivariant; `pip install gcsa-vit[lora]`.

    model = peft.get_peft_model(model, gcsa.adapters.lora_config(model, rank=8))  # and train
    model.save_pretrained("adapter")
    model = gcsa.adapters.load(model_without_adapter, "adapter")

Everything else is PEFT's own: several adapters, `set_adapter`, `add_weighted_adapter` (`cat`, which is exact, or
`linear`), `disable_adapter`, `merge_and_unload`, and batches of several adapters (`adapter_names`), which G-SA does not
take, as its keys see encodings too, which have no batch.
"""

from gcsa.adapters.convolutional_lora import ConvolutionalLora, delta
from gcsa.adapters.lora import load, lora_config, register

__all__ = ["ConvolutionalLora", "delta", "load", "lora_config", "register"]
