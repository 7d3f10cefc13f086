"""The line recogniser: an encoder, a head that reads its map as a line, and connectionist temporal classification (CTC).

CTC gives scores of the classes over time (Graves et al. 2006). Class 0 is the blank; a path of classes becomes text by merging
repeats and then dropping blanks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.options import Options, Range, Rate, Width, check_options, explain
from gcsa.groups import group as make_group
from gcsa.layers.layout import from_nchw
from gcsa.layers.pooling import NoHead
from gcsa.models.backbone import Backbone
from gcsa.models.baselines.crnn import CRNN, CRNNOptions
from gcsa.models.create import create_model
from gcsa.tasks.recognition.data.charset import Charset, display_order, normalize, stored_characters
from gcsa.tasks.recognition.reading import (
    CALIBRATION,
    Character,
    Reading,
    most_confident,
    normalized,
    orientations,
    to_upright,
)
from gcsa.weights import Weights, write
from gcsa.weights.files import CHARSET

BLANK = 0


def ctc_loss(log_probs: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """The mean over lines of -log p(text) / characters.

    log_probs (B, T, classes); targets (sum of lengths,), the lines' classes one after the other; lengths (B,).
    """
    times = torch.full_like(lengths, log_probs.shape[1])
    return F.ctc_loss(log_probs.transpose(0, 1).float(), targets, times, lengths, BLANK, zero_infinity=True)


class Run(NamedTuple):
    """A character of the best path: its class, the time steps from `start` to before `end`, and its probability."""

    label: int
    start: int
    end: int
    probability: float


def greedy(log_probs: Tensor) -> tuple[list[Run], float]:
    """The characters of the best path of (T, classes), and its confidence between 0 and 1.

    The confidence is the geometric mean of two geometric means of the path's probabilities: over all time steps, and
    over those of characters alone. Blanks are easily certain and must not speak for a line by themselves.
    """
    best, path = log_probs.max(-1)
    emits = path != BLANK
    changes = path != F.pad(path[:-1], (1, 0), value=BLANK)
    changes[:1] = True
    bounds = [*changes.nonzero().flatten().tolist(), len(path)]
    labels, certain = path.tolist(), best.exp().tolist()
    runs = [
        Run(labels[start], start, end, max(certain[start:end]))
        for start, end in pairwise(bounds)
        if labels[start] != BLANK
    ]
    if not runs:
        return [], 0.0
    return runs, math.exp((float(best.mean()) + float(best[emits].mean())) / 2)


def beam_search(log_probs: Tensor, beams: int, classes_a_step: int = 12) -> list[int]:
    """The most probable classes of (T, classes), summed over their paths, by prefix beam search (Graves 2012)."""
    top, choices = log_probs.topk(min(classes_a_step, log_probs.shape[1]))
    # A prefix, and the log-probabilities of its paths that end in a blank and of those that do not.
    state: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for scores, indices in zip(top.tolist(), choices.tolist(), strict=True):
        after: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-math.inf, -math.inf])
        for prefix, (blank, label) in state.items():
            total = _log_add(blank, label)
            for score, index in zip(scores, indices, strict=True):
                if index == BLANK:
                    after[prefix][0] = _log_add(after[prefix][0], total + score)
                    continue
                extended = (*prefix, index)
                longer = after[extended]
                if prefix and prefix[-1] == index:
                    after[prefix][1] = _log_add(after[prefix][1], label + score)
                    longer[1] = _log_add(longer[1], blank + score)
                else:
                    longer[1] = _log_add(longer[1], total + score)
        ranked = sorted(after.items(), key=lambda item: _log_add(*item[1]), reverse=True)[:beams]
        state = {prefix: (blank, label) for prefix, (blank, label) in ranked}
    return list(next(iter(state)))


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


HEAD_OPTIONS = ("centred", "global_pool", "head_fields")
"""Options of the head of a classifier, which an encoder does not have."""


def create_encoder(name: str, height: int, **options: Any) -> nn.Module:
    """The encoder of lines called `name`: "crnn", or a timm model for grey images without its classifier.

    Options that are None are left out. Raises ValueError for an unknown name and for options that it does not take.
    """
    unused = [option for option in HEAD_OPTIONS if options.get(option) is not None]
    if unused:
        raise UserError(
            f"an encoder of text lines has no classifier, and does not use {', '.join(unused)}: leave out",
            "encoder.unused",
        )
    if name != "crnn":
        if not timm.is_model(str(name)):
            choices = ", ".join(["crnn", *timm.list_models("gcsa_ocr_*")])
            raise UserError(
                f"unknown encoder {str(name)[:60]!r}: choose one of {choices} or any of timm.list_models()", "encoder"
            )
        encoder = create_model(name, in_chans=1, num_classes=0, **options)
        if isinstance(encoder, Backbone) and encoder.feature_kind != "regular":
            raise UserError(
                f"encoder {name!r} has scalar fields, which do not tell which way up a line is: set scalar_fields=0",
                "encoder.scalar_fields",
            )
        encoder.head = NoHead()
        return encoder
    return CRNN(height, **check_options(options, CRNNOptions, owner=name))


class RecurrentBranch(nn.Module):
    """x + f(x) for columns x (B, T, hidden), f a bidirectional LSTM of two layers with `width` units a direction, as the CRNN has it (Shi et
    al. 2017). A time step then knows the letters on both sides.

    f begins at 0: a trained recogniser without the branch reads the same with a fresh one.
    """

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.lstm = nn.LSTM(hidden, width, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, hidden)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(self.lstm(self.norm(x))[0])


class CTCHead(nn.Module):
    """Features of an upright line (B, H, W, N, C) to log-probabilities of the classes over time, left to right.

    All rows and group elements of a column become `upsample` time steps. The head need not be equivariant, because it only
    sees the features of upright lines.
    """

    def __init__(
        self, channels: int, rows: int, classes: int, hidden: int, upsample: int, recurrent: int, drop_rate: float
    ) -> None:
        super().__init__()
        self.upsample = upsample
        self.columns = nn.Linear(rows * channels, upsample * hidden)
        self.recurrent = RecurrentBranch(hidden, recurrent) if recurrent else nn.Identity()
        self.norm = nn.LayerNorm(hidden)
        self.drop = nn.Dropout(drop_rate)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, upsample * W, classes)."""
        x = self.columns(x.transpose(1, 2).flatten(2))
        x = self.recurrent(F.gelu(x.unflatten(2, (self.upsample, -1)).flatten(1, 2)))
        return self.classifier(self.drop(self.norm(x))).log_softmax(-1)


@dataclass(frozen=True, kw_only=True)
class RecognizerOptions(Options):
    """Options of a recogniser besides those of its encoder."""

    height: Annotated[Annotated[int, Range(1, 1024)], "of the lines in pixels"] = 40
    hidden: Annotated[Width, "channels in front of the classifier"] = 256
    upsample: Annotated[Annotated[int, Range(1, 1024)], "time steps for each column of the encoder's map"] = 2
    recurrent: Annotated[
        Annotated[int, Range(0, 1024)], "units a direction of an LSTM along the upright line; 0: none"
    ] = 0
    drop_rate: Annotated[Rate, "dropout in front of the classifier"] = 0.1


class CTCRecognizer(nn.Module):
    """Line images (B, 1, height, W), ink 1 on paper 0, to log-probabilities (B, T, classes) of the upright line.

    Args:
        characters: the charset, in the order of the classes from 1 on.
        encoder: a timm model with `forward_features`, such as "gcsa_ocr_tiny", or "crnn", the baseline.
        height, hidden, upsample, recurrent, drop_rate: those of `RecognizerOptions`.
        options: of the encoder.

    Raises:
        ValueError: an unknown encoder or option, a height that its stride does not divide, sizes below 1.

    Attributes:
        stride: pixels of which the width of a line must be a multiple.
        steps: time steps for each such multiple.
        options: the arguments other than `characters`, from which the recogniser can be made again.
        calibration: of `calibrated`, for what these weights say of themselves.
    """

    defaults: ClassVar = {name: option.default for name, option in explain(RecognizerOptions).items()}

    def __init__(
        self,
        characters: str,
        encoder: str = "gcsa_ocr_tiny",
        height: int = RecognizerOptions.height,
        hidden: int = RecognizerOptions.hidden,
        upsample: int = RecognizerOptions.upsample,
        recurrent: int = RecognizerOptions.recurrent,
        drop_rate: float = RecognizerOptions.drop_rate,
        **options: Any,
    ) -> None:
        super().__init__()
        head: dict[str, Any] = dict(hidden=hidden, upsample=upsample, recurrent=recurrent, drop_rate=drop_rate)
        RecognizerOptions(height=height, **head)
        self.charset = Charset(characters)
        self.calibration = CALIBRATION
        self.options: dict[str, Any] = dict(encoder=encoder, height=height, **head, **options)
        network: Any = create_encoder(encoder, height, **options)
        self.group = make_group(getattr(network, "group", "c1"))
        self.order = self.group.order  # which TorchScript understands
        self.stride = getattr(network, "size_divisor", None) or network.feature_info[-1]["reduction"]
        if height % self.stride != 0:
            raise UserError(
                f"height must be a multiple of {self.stride}, the stride of {encoder}, not {height}", "height.stride"
            )
        self.height = height
        self.rows, columns = height // self.stride, 1
        if not isinstance(network, Backbone):  # whose stride does not give the size of its map
            with torch.no_grad():
                _, _, self.rows, columns = network.eval().forward_features(torch.zeros(1, 1, height, self.stride)).shape
        self.steps = columns * upsample
        self.encoder = network.train()
        self.head = CTCHead(network.num_features, self.rows, len(self.charset), **head)

    def features(self, images: Tensor) -> Tensor:
        """(B, 1, H, W) to feature maps (B, h, w, N, C); N = 1 for encoders without a group."""
        return from_nchw(self.encoder.forward_features(images), self.order)

    def forward(self, images: Tensor) -> Tensor:
        """Upright lines (B, 1, height, W) to log-probabilities (B, T, classes), T = steps * W / stride."""
        return self.head(self.features(images))

    def get_classifier(self) -> nn.Linear:
        """The layer that knows the charset."""
        return self.head.classifier

    @torch.no_grad()
    def extend(self, characters: str) -> None:
        """Gives the recogniser a longer charset; known characters keep their classes and weights, new ones begin rare.

        Raises ValueError unless `characters` begins with those known so far.
        """
        known = self.charset.characters
        if not characters.startswith(known):
            raise UserError(
                f"the charset must begin with the {len(known)} characters that the recogniser knows", "charset.extend"
            )
        old = self.head.classifier
        new = nn.Linear(old.in_features, 1 + len(characters)).to(old.weight)
        new.weight[: old.out_features], new.bias[: old.out_features] = old.weight, old.bias
        # Less likely than all that is known until training says otherwise, so that the readings stay as they were.
        new.weight[old.out_features :], new.bias[old.out_features :] = 0.0, float(old.bias.min()) - 4.0
        self.head.classifier, self.charset = new, Charset(characters)

    def untrained_branch(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of this recogniser's `RecurrentBranch` where `weights` have none; they change no reading before training."""
        name = "head.recurrent."
        known = any(key.startswith(name) for key in weights)
        return {} if known else {key: value for key, value in self.state_dict().items() if key.startswith(name)}

    def grown(self, weights: dict[str, Tensor], base: Weights) -> dict[str, Tensor]:
        """The `weights` of `base`, a recogniser of these options and fewer characters, extended to this one's charset."""
        smaller = CTCRecognizer(stored_characters(base), **self.options)
        smaller.load_state_dict(weights)
        smaller.extend(self.charset.characters)
        return smaller.state_dict()

    def save_charset(self, folder: Path) -> None:
        """Writes charset.txt beside an adapter, whose classifier may know more characters than its base."""
        (folder / CHARSET).write_text(self.charset.characters, encoding="utf-8")

    def to_weights(self, about: Mapping[str, Any] | None = None) -> Weights:
        """What a file of weights holds of this recogniser; `about` is for people, as in `Weights`."""
        options = dict(self.options)
        encoder, characters = options.pop("encoder"), self.charset.characters
        entries: dict[str, Any] = {"characters": characters}
        if self.calibration != CALIBRATION:
            entries["calibration"] = list(self.calibration)
        source, tensors = type(self).__name__, self.state_dict()
        return Weights(
            source,
            "recognition",
            encoder,
            options,
            tensors,
            about=dict(about or {}),
            entries=entries,
        )

    def save_pretrained(self, folder: str | Path, about: Mapping[str, Any] | None = None) -> Path:
        """Writes config.json and model.safetensors into `folder`, for `gcsa.load`; returns it. Raises as `gcsa.weights.write`."""
        return write(self.to_weights(about), folder)

    def read(self, images: Tensor, orientation: str = "upright", beams: int = 1) -> list[Reading]:
        """The most confident of the readings of each line (B, 1, H, W); see `read_orientations`."""
        return [most_confident(readings) for readings in self.read_orientations(images, orientation, beams)]

    @torch.no_grad()
    def read_orientations(
        self, images: Tensor, orientation: str = "upright", beams: int = 1
    ) -> list[dict[int, Reading]]:
        """All readings of each of the lines (B, 1, H, W), which have one size, as {degrees: reading}; see `orientations`.

        orientation: "upright", or "any" for every orientation that fits: from one pass through the encoder if its group has the
        rotations by 90 degrees, else from a pass for each, of the rotated line. beams: above 1, the text comes from a beam search.

        Raises ValueError for beams below 1, an unknown orientation, and lines of another height.
        """
        if beams < 1:
            raise UserError(f"beams must be 1 or more, not {beams}", "beams", beams=beams)
        copies = orientation == "any" and self.group.rotations % 4 != 0
        group = make_group("c4") if copies else self.group
        elements = orientations(group, orientation, images.shape[2], images.shape[3], self.height)
        if copies:
            scores = {degrees: self(torch.rot90(images, -degrees // 90, (2, 3))).float().cpu() for degrees in elements}
        else:
            features = self.features(images)
            scores = {
                degrees: self.head(to_upright(features, group, g)).float().cpu() for degrees, g in elements.items()
            }
        return [
            {degrees: self.reading(lines[i], degrees, beams) for degrees, lines in scores.items()}
            for i in range(len(images))
        ]

    def reading(self, log_probs: Tensor, orientation: int = 0, beams: int = 1) -> Reading:
        """What the scores (T, classes) of one line say. With `beams` > 1 the characters have no positions."""
        runs, confidence = greedy(log_probs)
        if beams > 1:
            text = self.charset.decode(beam_search(log_probs, beams))
            return Reading(normalize(display_order(text)), confidence, orientation)
        names, steps = self.charset.characters, len(log_probs)
        characters = normalized(
            Character(names[run.label - 1], run.start / steps, run.end / steps, run.probability) for run in runs
        )
        text = normalize(display_order("".join(character.character for character in characters)))
        return Reading(text, confidence, orientation, characters)
