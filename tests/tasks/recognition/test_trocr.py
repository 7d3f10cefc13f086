"""TrOCR on our encoder: what it writes, that a turned line reads the same, that a folder brings everything back."""

import copy
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from peft import get_peft_model
from transformers import AutoTokenizer, TrOCRConfig, TrOCRForCausalLM, VisionEncoderDecoderModel, ViTConfig, ViTModel

from gcsa import adapters
from gcsa.tasks.recognition.trocr import TrOCRRecognizer, character_tokenizer, create_trocr
from gcsa.testing import randomize, relative_error
from tests.errors import raises
from tests.tasks.recognition.small import CHARACTERS, lines

SIZES: dict[str, Any] = dict(fields=8, depth=1, num_heads=2, hidden_size=32, decoder_layers=1, max_length=32)
TARGETS = ("q", "k", "v", "out", "q_proj", "v_proj")


def recognizer(**options: Any) -> TrOCRRecognizer:
    """One that writes different things about different lines, as an untrained model would not."""
    torch.manual_seed(0)
    made = create_trocr(CHARACTERS, **(SIZES | options))
    encoder, decoder = randomize(made.model).eval().encoder, made.model.decoder
    with torch.no_grad():
        # Columns that differ as much as they can, and a decoder that looks at few of them.
        seen = encoder.features(lines(96, 8)).transpose(1, 2).flatten(2)
        encoder.columns.weight.normal_().div_(seen.std((0, 1)) * seen.shape[2] ** 0.5)
        encoder.columns.bias.copy_(-encoder.columns.weight @ seen.mean((0, 1)))
        for layer in decoder.model.decoder.layers:
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                getattr(layer.encoder_attn, name).weight.normal_(std=0.4)
        decoder.output_projection.weight = torch.nn.Parameter(torch.randn_like(decoder.output_projection.weight))
    return made


TEXTS = ["a bad cafe", "hedge", "bead a bee", "fad"]


@pytest.fixture(scope="module")
def trained() -> TrOCRRecognizer:
    """Knows four lines of 96 pixels by heart."""
    torch.manual_seed(0)
    made = create_trocr(CHARACTERS, dropout=0.0, **SIZES)
    labels = made.labels(TEXTS)
    optimizer = torch.optim.AdamW(made.model.parameters(), lr=3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        made.model(pixel_values=lines(96, 4), labels=labels).loss.backward()
        optimizer.step()
    made.model.eval()
    return made


def texts(found: list[Any]) -> list[str]:
    return [reading.text for reading in found]


def test_learns_lines_by_heart_and_reads_them_at_any_turn_from_a_folder(
    trained: TrOCRRecognizer, tmp_path: Path
) -> None:
    assert texts(trained.read(lines(96, 4))) == TEXTS
    assert texts(trained.read(lines(96, 4), beams=3)) == TEXTS
    for turn in range(4):
        found = trained.read(torch.rot90(lines(96, 4), turn, (2, 3)), "any")
        assert [(reading.text, reading.orientation) for reading in found] == [(text, 90 * turn) for text in TEXTS]
        assert all(reading.confidence > 0.8 for reading in found)
    trained.save_pretrained(tmp_path / "model")
    logits = trained.model(pixel_values=lines(96, 4), labels=trained.labels(TEXTS)).logits
    opened = TrOCRRecognizer.from_pretrained(tmp_path / "model")
    assert texts(opened.read(lines(96, 4))) == TEXTS
    assert torch.equal(opened.model(pixel_values=lines(96, 4), labels=opened.labels(TEXTS)).logits, logits)


@pytest.mark.parametrize("group", ["c4", "c8", "d4"])
@pytest.mark.parametrize(("width", "beams"), [(96, 1), (96, 3), (40, 1)])
def test_a_turned_line_reads_the_same(group: str, width: int, beams: int) -> None:
    model = recognizer(group=group)
    upright = model.read(lines(width), "any", beams)
    assert len(set(texts(upright))) == 3
    assert all(texts(upright))
    for turn in (90, 180, 270):
        turned = model.read(torch.rot90(lines(width), turn // 90, (2, 3)), "any", beams)
        for plain, other in zip(upright, turned, strict=True):
            assert other.text == plain.text
            assert other.confidence == pytest.approx(plain.confidence, rel=1e-3)
            assert other.orientation == (plain.orientation + turn) % 360


def test_upright_is_one_of_the_frames() -> None:
    model = recognizer()
    upright, best = model.read(lines(96)), model.read(lines(96), "any")
    assert {reading.orientation for reading in upright} == {0}
    assert {reading.orientation for reading in best} == {0, 180}
    for one, other in zip(upright, best, strict=True):
        assert other.text == one.text if other.orientation == 0 else other.confidence > one.confidence


def test_the_confidence_is_the_mean_over_what_was_generated() -> None:
    model = recognizer()
    written = model.model.generate(
        pixel_values=lines(96), max_new_tokens=24, output_scores=True, return_dict_in_generate=True
    )
    scores = model.model.compute_transition_scores(written.sequences, written.scores, normalize_logits=True)
    counts = (written.sequences[:, 1:] != 0).sum(1)
    means = (scores.where(written.sequences[:, 1:] != 0, 0).sum(1) / counts).exp()
    for reading, mean in zip(model.read(lines(96)), means, strict=True):
        assert reading.confidence == pytest.approx(float(mean), rel=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        "  a  b ",
        "<s>ab</s><pad>",
        "e\u0301\u0302e",
        "\u00e9",
        "\u0645\u0631\u062d\u0628\u0627 ab",
        "\u05d0\u05b7\n\t\U0001d504",
        "Don 't , do .",
    ],
)
def test_text_passes_through_the_tokenizer_as_it_is(text: str, tmp_path: Path) -> None:
    characters = "".join(dict.fromkeys(c for c in text if c not in "\n\t\u0301\u0302"))
    tokenizer = character_tokenizer(characters)
    text = "".join(c for c in text if c in characters)
    tokenizer.save_pretrained(tmp_path)
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        tokens = each(text)["input_ids"]
        assert tokens == [3 + characters.index(c) for c in text]
        assert each.decode([1, *tokens, 2, 0], skip_special_tokens=True) == text


def test_labels() -> None:
    model = create_trocr(CHARACTERS, **SIZES)
    assert model.labels(["ab", " c "]).tolist() == [[3, 4, 2], [5, 2, -100]]
    with raises("charset.unknown"):
        model.labels(["a?"])
    with raises("text.too_long"):
        model.labels(["a" * 32])
    assert model.labels(["a" * 31]).shape == (1, 32)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks transformers
def test_one_adapter_for_encoder_and_decoder(trained: TrOCRRecognizer, tmp_path: Path) -> None:
    base, fresh = copy.deepcopy(trained.model), copy.deepcopy(trained.model)
    images, labels = lines(104, 2), trained.labels(["cab", "dad"])
    before = base(pixel_values=images, labels=labels).logits
    model = get_peft_model(base, adapters.lora_config(base, rank=2, target_modules=TARGETS))
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert any("encoder.backbone.stages.0.attn.q" in name for name in names)
    assert any("decoder.layers.0.encoder_attn.q_proj" in name for name in names)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = model(pixel_values=images, labels=labels).loss
        loss.backward()
        assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.eval()
    adapted = model(pixel_values=images, labels=labels).logits
    assert relative_error(adapted, before) > 1e-2
    with model.disable_adapter():
        assert torch.equal(model(pixel_values=images, labels=labels).logits, before)
    model.save_pretrained(tmp_path)
    loaded = adapters.load(fresh, tmp_path)
    assert torch.equal(loaded(pixel_values=images, labels=labels).logits, adapted)
    read = TrOCRRecognizer(loaded, trained.tokenizer).read(images, "any")
    turned = TrOCRRecognizer(loaded, trained.tokenizer).read(torch.rot90(images, 1, (2, 3)), "any")
    assert texts(read) == texts(turned)
    merged = model.merge_and_unload()
    assert isinstance(merged, VisionEncoderDecoderModel)
    assert relative_error(merged(pixel_values=images, labels=labels).logits, adapted) < 1e-5


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks transformers
def test_an_adapter_learns_characters_that_the_base_does_not_know(trained: TrOCRRecognizer, tmp_path: Path) -> None:
    images, known = lines(104, 2), trained.labels(["cab", "dad"])
    model = TrOCRRecognizer(copy.deepcopy(trained.model), trained.tokenizer)
    before = model.model(pixel_values=images, labels=known).logits
    tokens = model.extend("a\u00e4x")
    count = len(trained.tokenizer)
    assert tokens == [count, count + 1]
    assert torch.equal(model.labels(["cab", "dad"]), known)
    after = model.model(pixel_values=images, labels=known).logits
    assert after.shape[2] == count + 2
    assert relative_error(after[..., :count], before) < 1e-6
    extended = TrOCRRecognizer(copy.deepcopy(model.model), model.tokenizer)
    saved = dict(modules_to_save=["output_projection"], trainable_token_indices={"embed_tokens": tokens})
    model.model = get_peft_model(
        model.model, adapters.lora_config(model.model, rank=2, target_modules=TARGETS, **saved)
    )
    optimizer = torch.optim.AdamW((p for p in model.model.parameters() if p.requires_grad), lr=1e-2)
    wanted = ["x\u00e4", "\u00e4x\u00e4"]
    for _ in range(80):
        optimizer.zero_grad()
        model.model(pixel_values=images, labels=model.labels(wanted)).loss.backward()
        optimizer.step()
    model.model.eval()
    assert texts(model.read(images)) == wanted
    model.model.save_pretrained(tmp_path / "adapter")
    loaded = TrOCRRecognizer(adapters.load(copy.deepcopy(extended.model), tmp_path / "adapter"), extended.tokenizer)
    assert texts(loaded.read(images)) == wanted
    with raises("adapter.other_weights"):
        adapters.load(randomize(copy.deepcopy(extended.model)), tmp_path / "adapter")
    merged = TrOCRRecognizer(model.model.merge_and_unload(), model.tokenizer)
    merged.save_pretrained(tmp_path / "merged")
    assert texts(TrOCRRecognizer.from_pretrained(tmp_path / "merged").read(images)) == wanted
    plain = copy.deepcopy(trained.model)
    with raises("adapter.other_model"):
        adapters.load(plain, tmp_path / "adapter")
    assert [name for name, _ in plain.named_modules()] == [name for name, _ in trained.model.named_modules()]


def test_a_decoder_is_extended_twice(trained: TrOCRRecognizer) -> None:
    images, known = lines(104, 2), trained.labels(["cab", "dad"])
    model = TrOCRRecognizer(copy.deepcopy(trained.model), trained.tokenizer)
    before = model.model(pixel_values=images, labels=known).logits
    assert model.extend("ab") == []
    assert torch.equal(model.model(pixel_values=images, labels=known).logits, before)
    first, second = model.extend("x\u0301"), model.extend("y")
    assert (len(first), len(second)) == (2, 1)
    with torch.no_grad():  # as an adapter that was merged
        model.model.decoder.get_output_embeddings().weight.neg_()
    model.extend("z")
    after = model.model(pixel_values=images, labels=known).logits[..., : before.shape[2]]
    assert relative_error(after, -before) < 1e-6


def test_only_a_decoder_of_characters_is_extended(trained: TrOCRRecognizer) -> None:
    tokenizer = character_tokenizer(CHARACTERS)
    tokenizer.add_tokens(["word"])
    with raises("trocr.extend"):
        TrOCRRecognizer(trained.model, tokenizer).extend("x")


def save_tiny_trocr(folder: Path, d_model: int = 32, cross: int | None = None) -> VisionEncoderDecoderModel:
    tokenizer = character_tokenizer(CHARACTERS)
    vit = dict(hidden_size=cross or 16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32)
    decoder = TrOCRForCausalLM(
        TrOCRConfig(
            vocab_size=len(tokenizer),
            d_model=d_model,
            decoder_layers=1,
            decoder_attention_heads=2,
            decoder_ffn_dim=16,
            max_position_embeddings=32,
            cross_attention_hidden_size=cross,
            decoder_start_token_id=2,
            pad_token_id=0,
            bos_token_id=1,
        )
    )
    model = VisionEncoderDecoderModel(encoder=ViTModel(ViTConfig(**vit), add_pooling_layer=False), decoder=decoder)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    ("d_model", "cross", "hidden_size", "bridged"),
    [(32, None, None, False), (32, None, 48, True), (32, 24, None, False)],
)
def test_a_pretrained_decoder(
    tmp_path: Path, d_model: int, cross: int | None, hidden_size: int | None, bridged: bool
) -> None:
    pretrained = save_tiny_trocr(tmp_path / "trocr", d_model, cross)
    made = create_trocr(decoder=tmp_path / "trocr", hidden_size=hidden_size, fields=8, depth=1, num_heads=2)
    for name, tensor in pretrained.decoder.state_dict().items():
        assert torch.equal(made.model.decoder.state_dict()[name], tensor)
    assert hasattr(made.model, "enc_to_dec_proj") is bridged
    assert made.model.generation_config.decoder_start_token_id == 2
    made.model(pixel_values=lines(96), labels=made.labels(["a", "bc", ""])).loss.backward()
    assert all(p.grad is not None for p in made.model.parameters())
    made.model.eval()
    made.save_pretrained(tmp_path / "ours")
    again = TrOCRRecognizer.from_pretrained(tmp_path / "ours")
    assert again.read(lines(96), "any") == made.read(lines(96), "any")


def test_a_decoder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with raises("trocr.fetch"):
        create_trocr(decoder="microsoft/trocr-small-printed")
    with raises("trocr.incomplete"):
        create_trocr(decoder=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no .*config.json"):
        TrOCRRecognizer.from_pretrained(tmp_path)


def test_a_decoder_of_another_kind(tmp_path: Path) -> None:
    save_tiny_trocr(tmp_path, cross=24)
    with raises("hidden_size.decoder"):
        create_trocr(decoder=tmp_path, hidden_size=32)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with raises("trocr.incomplete"):
        create_trocr(decoder=tmp_path)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (dict(characters=None), "trocr.decoder"),
        (dict(decoder="somewhere"), "trocr.decoder"),
        (dict(characters="aa"), "charset.twice"),
        (dict(encoder="crnn"), "option.unknown"),
        (dict(encoder="gsa_tiny", fields=None, depth=None, num_heads=None), "architecture"),
        (dict(height=42), "height.stride"),
        (dict(upsample=0), "config.value"),
        (dict(hidden_size=33, decoder_heads=3), "hidden_size.odd"),
        (dict(decoder_heads=3), "decoder_heads"),
    ],
)
def test_bad_arguments(options: dict[str, Any], key: str) -> None:
    with raises(key):
        create_trocr(**(dict(characters=CHARACTERS) | SIZES | options))


def test_beams_below_one() -> None:
    with raises("beams", beams=0):
        recognizer().read(lines(96), "any", 0)
