"""Reading lines with a TrOCR decoder (Li et al. 2021, TrOCR: transformer-based optical character recognition).

A `VisionEncoderDecoderModel` of transformers: our equivariant encoder, and a `TrOCRForCausalLM` that writes one token after the
other. Train `recognizer.model` with transformers' own loss,

    recognizer = create_trocr(characters)
    loss = recognizer.model(pixel_values=images, labels=recognizer.labels(texts)).loss

and keep model and tokenizer in one folder by `save_pretrained` and `from_pretrained`. The confidence of a text is the geometric
mean of the probabilities of its tokens, the end of the text included.

The encoder, `GcsaOcrModel`, is known to AutoConfig and AutoModel once this module is imported. All rows and group elements of a
column of the map of an upright line (see `reading`) become `upsample` tokens,

    token_t = norm(gelu(W column_t)) + p_t,   p_t = (sin(t f_i), cos(t f_i)),  f_i = 10000^(-i / (hidden_size / 2)),

with the sinusoids of Vaswani et al. 2017, Attention is all you need. The positions do not break equivariance, because left and
right of an upright line are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    TrOCRConfig,
    TrOCRForCausalLM,
    VisionEncoderDecoderModel,
)
from transformers.modeling_outputs import BaseModelOutput

from gcsa._utils.errors import UserError, one_line
from gcsa.groups import group as make_group
from gcsa.layers.conv import SteerableConv2d
from gcsa.layers.layout import from_nchw
from gcsa.layers.norm import FieldNorm
from gcsa.layers.stem import LowPass
from gcsa.models.gcsa import GCSA
from gcsa.tasks.recognition.ctc import create_encoder
from gcsa.tasks.recognition.data.charset import Charset, describe, normalize
from gcsa.tasks.recognition.reading import Reading, most_confident, orientations, to_upright

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
IGNORED = -100
"""The label that transformers' losses pass over."""


def sinusoids(steps: int, size: int) -> Tensor:
    """p (steps, size) of the equation above, float32, sines first."""
    frequencies = torch.exp(torch.arange(size // 2) * (-2 * math.log(10000) / size))
    angles = torch.arange(steps)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), 1)


class GcsaOcrConfig(PreTrainedConfig):
    """Of `GcsaOcrModel`.

    Attributes:
        architecture: timm name of a `GCSA` model.
        options: its arguments, where they are not the defaults.
        height: of the lines in pixels.
        hidden_size: numbers a token, even.
        upsample: tokens a column of the map.
    """

    model_type = "gcsa_ocr"

    architecture: str = "gcsa_ocr_tiny"
    options: dict[str, Any] | None = None
    height: int = 40
    hidden_size: int = 256
    upsample: int = 2


class GcsaOcrModel(PreTrainedModel):
    """Line images (B, 1, height, W), ink 1 on paper 0, to tokens (B, upsample * W / stride, hidden_size).

    Raises ValueError for an architecture that is no `GCSA` model, an option that it does not take, a height that its
    stride does not divide, an odd hidden_size and sizes below 1.
    """

    config: GcsaOcrConfig
    config_class = GcsaOcrConfig
    base_model_prefix = "gcsa_ocr"
    main_input_name = "pixel_values"
    input_modalities = "image"

    def __init__(self, config: GcsaOcrConfig) -> None:
        super().__init__(config)
        for name in ("height", "hidden_size", "upsample"):
            if getattr(config, name) < 1:
                raise UserError(f"{name}={getattr(config, name)} must be 1 or more", "config.value")
        if config.hidden_size % 2:
            raise UserError(
                f"hidden_size must be even, for sines and cosines, not {config.hidden_size}", "hidden_size.odd"
            )
        self.backbone: Any = create_encoder(config.architecture, config.height, **(config.options or {}))
        if not isinstance(self.backbone, GCSA):
            raise UserError(
                f"{config.architecture!r} is no G-CSA model: choose gcsa_ocr_tiny or gcsa_ocr_small", "architecture"
            )
        self.group = make_group(self.backbone.group)
        self.stride = self.backbone.size_divisor
        if config.height % self.stride:
            raise UserError(
                f"height must be a multiple of {self.stride}, the stride, not {config.height}", "height.stride"
            )
        self.rows = config.height // self.stride
        self.columns = nn.Linear(self.rows * self.backbone.num_features, config.upsample * config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """What no checkpoint holds. transformers builds on the meta device and guards loaded parameters."""
        super()._init_weights(module)
        if isinstance(module, SteerableConv2d):
            module.init_non_persistent_buffers()
            module.reset_parameters()
        elif isinstance(module, LowPass):
            module.init_non_persistent_buffers()
        elif isinstance(module, FieldNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)

    def features(self, images: Tensor) -> Tensor:
        """Lines (B, 1, H, W), in any orientation, to feature maps (B, h, w, N, C)."""
        return from_nchw(self.backbone.forward_features(images), self.group.order)

    def tokens(self, features: Tensor) -> Tensor:
        """Maps (B, rows, w, N, C) of upright lines to tokens (B, upsample * w, hidden_size)."""
        x = self.columns(features.transpose(1, 2).flatten(2))
        x = self.norm(F.gelu(x.unflatten(2, (self.config.upsample, -1)).flatten(1, 2)))
        return x + sinusoids(x.shape[1], x.shape[2]).to(x)

    def forward(
        self, pixel_values: Tensor, return_dict: bool | None = None, **kwargs: Any
    ) -> BaseModelOutput | tuple[Tensor]:
        """Upright lines (B, 1, height, W) of one width, for no token is masked. Other arguments of transformers'
        encoders are ignored."""
        tokens = self.tokens(self.features(pixel_values))
        return (tokens,) if return_dict is False else BaseModelOutput(last_hidden_state=tokens)


AutoConfig.register(GcsaOcrConfig.model_type, GcsaOcrConfig)
AutoModel.register(GcsaOcrConfig, GcsaOcrModel)


def character_tokenizer(characters: str) -> PreTrainedTokenizerFast:
    """One token for each code point behind pad, begin and end; text passes through it as it is, "<s>" included.

    Raises ValueError for what `Charset` refuses.
    """
    vocabulary = {token: i for i, token in enumerate([*SPECIAL.values(), *Charset(characters).characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?m)."), "isolated")  # (?m): of line breaks too
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, split_special_tokens=True, **SPECIAL
    )


def create_trocr(
    characters: str | None = None,
    decoder: str | Path | None = None,
    encoder: str = "gcsa_ocr_tiny",
    height: int = 40,
    hidden_size: int | None = None,
    upsample: int = 2,
    decoder_layers: int = 2,
    decoder_heads: int = 4,
    max_length: int = 512,
    dropout: float = 0.1,
    **options: Any,
) -> TrOCRRecognizer:
    """An untrained encoder with an untrained decoder of `characters`, or with the pretrained `decoder` of a TrOCR.

    Args:
        characters: what an untrained decoder can write.
        decoder: a folder, or a name on the Hugging Face hub such as "microsoft/trocr-small-printed". It brings its own
            tokenizer, and the arguments `decoder_layers` to `dropout` are not for it.
        encoder: timm name of a `GCSA` model.
        height: of the lines in pixels.
        hidden_size: of the encoder's tokens, and of an untrained decoder; 256, or what `decoder` attends to.
        upsample: tokens a column of the encoder's map.
        decoder_layers, decoder_heads, dropout: of an untrained decoder.
        max_length: tokens that it can write at most.
        options: of the encoder.

    Raises:
        ValueError: both or neither of `characters` and `decoder`, a decoder that cannot be loaded, sizes that do not
            fit, and what `GcsaOcrModel` refuses.
    """
    if (characters is None) == (decoder is None):
        raise UserError(
            "give either characters, for a new decoder, or decoder, the name or folder of a TrOCR", "trocr.decoder"
        )
    if characters is not None:
        hidden_size = hidden_size or 256
        if decoder_heads < 1 or hidden_size % decoder_heads:
            raise UserError(f"decoder_heads={decoder_heads} does not divide hidden_size={hidden_size}", "decoder_heads")
        tokenizer: PreTrainedTokenizerBase = character_tokenizer(characters)
        writer = TrOCRForCausalLM(
            TrOCRConfig(
                vocab_size=len(tokenizer),
                d_model=hidden_size,
                decoder_layers=decoder_layers,
                decoder_attention_heads=decoder_heads,
                decoder_ffn_dim=4 * hidden_size,
                max_position_embeddings=max_length,
                dropout=dropout,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                decoder_start_token_id=tokenizer.bos_token_id,
            )
        )
    else:
        writer, tokenizer = _pretrained(str(decoder))
    attended = writer.config.cross_attention_hidden_size
    if attended is not None and hidden_size not in (None, attended):
        raise UserError(
            f"{decoder} attends to tokens of {attended} numbers: use hidden_size={attended}", "hidden_size.decoder"
        )
    config = GcsaOcrConfig(
        architecture=encoder,
        options=options,
        height=height,
        hidden_size=hidden_size or attended or writer.config.d_model,
        upsample=upsample,
    )
    model = VisionEncoderDecoderModel(encoder=GcsaOcrModel(config), decoder=writer)
    special = {
        name: getattr(writer.config, name) for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    }
    for name, token in special.items():
        setattr(model.config, name, token)
    model.generation_config = GenerationConfig(**special)
    return TrOCRRecognizer(model, tokenizer)


def _pretrained(name: str) -> tuple[TrOCRForCausalLM, PreTrainedTokenizerBase]:
    """The decoder and the tokenizer of a saved TrOCR."""
    try:
        writer: Any = VisionEncoderDecoderModel.from_pretrained(name).decoder
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, TypeError, ImportError, SafetensorError) as error:
        reason = one_line(error)
        if Path(name).is_dir():
            raise UserError(
                f"{name} does not hold a whole TrOCR with its tokenizer: {reason}", "trocr.incomplete"
            ) from error
        raise UserError(
            f"decoder {name!r} is no folder and could not be loaded from the Hugging Face hub: download it where the "
            f"hub can be reached and give its folder ({reason})",
            "trocr.fetch",
        ) from error
    if not isinstance(writer, TrOCRForCausalLM):
        raise UserError(f"the decoder of {name} is a {type(writer).__name__}: use a TrOCR", "trocr.kind")
    return writer, tokenizer


@dataclass
class TrOCRRecognizer:
    """`model`, also wrapped by PEFT, with the tokenizer of what it writes."""

    model: Any
    tokenizer: PreTrainedTokenizerBase

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> TrOCRRecognizer:
        """What `save_pretrained` wrote, in evaluation mode. Raises FileNotFoundError where there is nothing."""
        if not (Path(folder) / "config.json").is_file():
            raise FileNotFoundError(f"there is no {folder}/config.json: name a folder as save_pretrained writes it")
        return cls(VisionEncoderDecoderModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder))

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes model and tokenizer into one folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @torch.no_grad()
    def extend(self, characters: str) -> list[int]:
        """Lets a decoder of characters also write those of `characters`, in NFC, that it does not know; returns their tokens.

        Their weights begin as the mean of the others', and the decoder's last layer gets its own. So an adapter learns them with

            lora_config(model, ..., modules_to_save=["output_projection"], trainable_token_indices={"embed_tokens": tokens})

        and is loaded onto a base that was extended by the same characters in the same order, which nothing checks: keep the tokenizer
        beside the adapter. Raises ValueError for a pretrained decoder,
        whose tokens are not characters, and for characters that `Charset` refuses.
        """
        vocabulary = self.tokenizer.get_vocab()
        known = sorted(vocabulary, key=vocabulary.__getitem__)
        if known[: len(SPECIAL)] != [*SPECIAL.values()] or any(len(token) != 1 for token in known[len(SPECIAL) :]):
            raise UserError("the decoder has its own tokens: only one of characters can be extended", "trocr.extend")
        new = [character for character in dict.fromkeys(characters) if character not in vocabulary]
        if not new:
            return []
        self.tokenizer = character_tokenizer("".join([*known[len(SPECIAL) :], *new]))
        decoder = self.model.decoder
        before = [layer.weight.clone() for layer in (decoder.get_input_embeddings(), decoder.get_output_embeddings())]
        decoder.config.tie_word_embeddings = False  # of tied layers PEFT would adapt the first alone
        decoder.resize_token_embeddings(len(self.tokenizer), mean_resizing=False)
        for layer, weight in zip(
            (decoder.get_input_embeddings(), decoder.get_output_embeddings()), before, strict=True
        ):
            fresh = weight.mean(0).expand(len(new), -1)
            layer.weight = nn.Parameter(torch.cat([weight, fresh]), requires_grad=layer.weight.requires_grad)
        return list(range(len(known), len(self.tokenizer)))

    def labels(self, texts: Sequence[str]) -> Tensor:
        """The tokens (B, L) that the model must write, IGNORED behind the end; the texts are normalised.

        Raises ValueError for characters that it cannot write, and for texts longer than it can write.
        """
        texts = [normalize(text) for text in texts]
        if self.tokenizer.unk_token is None and (
            unknown := sorted(set().union(*texts) - self.tokenizer.get_vocab().keys())
        ):
            raise UserError(
                f"the decoder cannot write {', '.join(map(describe, unknown))}: create it with them", "charset.unknown"
            )
        rows = self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        ends = [torch.tensor([*row, self.model.config.eos_token_id]) for row in rows]
        most = self.model.config.decoder.max_position_embeddings
        for text, row in zip(texts, ends, strict=True):
            if len(row) > most:
                raise UserError(
                    f"{text!r} takes {len(row)} tokens, more than the {most} that the decoder can write",
                    "text.too_long",
                )
        return torch.nn.utils.rnn.pad_sequence(ends, batch_first=True, padding_value=IGNORED)

    @torch.no_grad()
    def read(self, images: Tensor, orientation: str = "upright", beams: int = 1) -> list[Reading]:
        """What lines (B, 1, H, W) of one size say, as of `CTCRecognizer.read`, with transformers' beam search.

        Raises ValueError for beams below 1, an unknown orientation, one that the group lacks, and lines of another
        height.
        """
        encoder = self.model.encoder
        if beams < 1:
            raise UserError(f"beams must be 1 or more, not {beams}", "beams", beams=beams)
        elements = orientations(encoder.group, orientation, images.shape[2], images.shape[3], encoder.config.height)
        features = encoder.features(images)
        readings = [
            self._write(encoder.tokens(to_upright(features, encoder.group, g)), beams, degrees)
            for degrees, g in elements.items()
        ]
        return [
            most_confident({reading.orientation: reading for reading in line}) for line in zip(*readings, strict=True)
        ]

    def _write(self, tokens: Tensor, beams: int, orientation: int) -> list[Reading]:
        """The texts of lines given as tokens (B, T, hidden_size); a line has at most T of its own."""
        encoded = BaseModelOutput(last_hidden_state=tokens)
        longest = min(tokens.shape[1], self.model.config.decoder.max_position_embeddings - 1)
        written = self.model.generate(encoder_outputs=encoded, num_beams=beams, do_sample=False, max_new_tokens=longest)
        before, chosen = written[:, :-1], written[:, 1:]
        log_probs = self.model(encoder_outputs=encoded, decoder_input_ids=before).logits.float().log_softmax(-1)
        counted = chosen != self.model.config.pad_token_id
        scores = log_probs.gather(2, chosen[..., None])[..., 0].where(counted, 0).sum(1) / counted.sum(1)
        texts = map(normalize, self.tokenizer.batch_decode(written, skip_special_tokens=True))
        # An empty text is easily certain, and must not win over another.
        return [
            Reading(text, score if text else 0.0, orientation)
            for text, score in zip(texts, scores.exp().tolist(), strict=True)
        ]
