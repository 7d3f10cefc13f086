"""What transformers expects of a model: its Auto classes, files, `generate`, and that every parameter is trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, TrOCRConfig, TrOCRForCausalLM, VisionEncoderDecoderModel

from gcsa.tasks.recognition.trocr import GcsaOcrConfig, GcsaOcrModel
from tests.errors import raises

OPTIONS: dict[str, Any] = dict(fields=8, depth=1, num_heads=2)


def encoder(**options: Any) -> GcsaOcrModel:
    torch.manual_seed(0)
    return GcsaOcrModel(GcsaOcrConfig(options=OPTIONS | options, hidden_size=32)).eval()


def model() -> VisionEncoderDecoderModel:
    torch.manual_seed(0)
    sizes = dict(vocab_size=12, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16)
    made = VisionEncoderDecoderModel(encoder=encoder(), decoder=TrOCRForCausalLM(TrOCRConfig(**sizes)))
    for name, token in (("pad_token_id", 1), ("eos_token_id", 2), ("decoder_start_token_id", 2)):
        setattr(made.config, name, token)
        setattr(made.generation_config, name, token)
    return made.eval()


def images() -> torch.Tensor:
    return torch.rand(2, 1, 40, 64, generator=torch.Generator().manual_seed(0))


def test_auto_classes(tmp_path: Path) -> None:
    encoder().save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, GcsaOcrConfig)
    assert (config.options, config.hidden_size, config.architecture) == (OPTIONS, 32, "gcsa_ocr_tiny")
    assert isinstance(AutoModel.from_config(config), GcsaOcrModel)
    assert isinstance(AutoModel.from_pretrained(tmp_path), GcsaOcrModel)


def test_the_output_is_that_of_an_encoder() -> None:
    made = encoder()
    out = made(pixel_values=images(), output_attentions=None)
    assert out.last_hidden_state.shape == (2, 2 * 64 // 8, 32)
    assert torch.equal(made(images(), return_dict=False)[0], out.last_hidden_state)


@pytest.mark.parametrize("options", [{}, dict(attention="group", radius=2, group="d4"), dict(attention="linear")])
def test_loading_from_the_meta_device_changes_no_bit(options: dict, tmp_path: Path) -> None:
    made = encoder(**options)
    made.save_pretrained(tmp_path)
    loaded = GcsaOcrModel.from_pretrained(tmp_path)
    assert torch.equal(loaded(images()).last_hidden_state, made(images()).last_hidden_state)
    for name, buffer in made.named_buffers():
        assert torch.equal(loaded.get_buffer(name), buffer), name


def test_what_a_file_lacks_is_initialised(tmp_path: Path) -> None:
    made = encoder()
    made.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    lost = [name for name in tensors if "stages.0" in name and not name.endswith("_extra_state")]
    save_file({name: tensor for name, tensor in tensors.items() if name not in lost}, path, {"format": "pt"})
    loaded, report = GcsaOcrModel.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(lost)
    for name in lost:
        fresh, expected = loaded.get_parameter(name), made.get_parameter(name)
        if expected.ndim > 1:
            assert float(fresh.detach().std()) == pytest.approx(float(expected.detach().std()), rel=0.3)
        else:
            assert torch.equal(fresh, expected)


def test_a_foreign_basis_is_refused(tmp_path: Path) -> None:
    encoder().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("_extra_state"))
    save_file({**tensors, name: tensors[name] + 1}, path, {"format": "pt"})
    with raises("weights.basis"):
        GcsaOcrModel.from_pretrained(tmp_path)


def test_half_precision(tmp_path: Path) -> None:
    made = model()
    made.save_pretrained(tmp_path)
    loaded = VisionEncoderDecoderModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    full, half = made.encoder(images())[0], loaded.encoder(images().bfloat16())[0]
    assert (half.float() - full).norm() < 0.05 * full.norm()


def test_vision_encoder_decoder(tmp_path: Path) -> None:
    made = model()
    made.save_pretrained(tmp_path)
    loaded = VisionEncoderDecoderModel.from_pretrained(tmp_path)
    assert isinstance(loaded.encoder, GcsaOcrModel)
    labels = torch.tensor([[3, 4, 2], [5, 2, -100]])
    out, again = (each(pixel_values=images(), labels=labels) for each in (made, loaded))
    assert torch.equal(out.logits, again.logits)
    assert torch.equal(out.loss, torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), labels.flatten()))
    for beams in (1, 3):
        written = made.generate(images(), num_beams=beams, max_new_tokens=8)
        assert written[:, 0].tolist() == [2, 2]
        assert torch.equal(loaded.generate(images(), num_beams=beams, max_new_tokens=8), written)
        encoded = made.encoder(images())
        assert torch.equal(made.generate(encoder_outputs=encoded, num_beams=beams, max_new_tokens=8), written)
