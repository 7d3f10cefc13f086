"""The line recogniser: an encoder, a head that reads its map as a line, and the reading of turned lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_int
from gcsa.groups import group as make_group
from gcsa.layers.layout import from_nchw
from gcsa.models.backbone import Backbone
from gcsa.models.create import check_options
from gcsa.tasks.recognition.data.charset import Charset, display_order
from gcsa.tasks.recognition.decoding import beam_search, greedy
from gcsa.tasks.recognition.encoder import create_encoder
from gcsa.tasks.recognition.reading import Reading, Sign, frames, in_frame, most_confident
from gcsa.weights import save_recognizer
from gcsa.weights.files import CHARSET


class CTCHead(nn.Module):
    """Features of an upright line (B, H, W, N, C) to log-probabilities of the classes over time, left to right.

    All rows and group elements of a column become `upsample` time steps. Nothing here is equivariant, nor need it be,
    for every line comes in its own frame.
    """

    def __init__(self, channels: int, rows: int, classes: int, hidden: int, upsample: int, drop_rate: float) -> None:
        super().__init__()
        self.upsample = upsample
        self.columns = nn.Linear(rows * channels, upsample * hidden)
        self.norm = nn.LayerNorm(hidden)
        self.drop = nn.Dropout(drop_rate)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, N, C) to (B, upsample * W, classes)."""
        x = self.columns(x.transpose(1, 2).flatten(2))
        x = F.gelu(x.unflatten(2, (self.upsample, -1)).flatten(1, 2))
        return self.classifier(self.drop(self.norm(x))).log_softmax(-1)


class CTCRecognizer(nn.Module):
    """Line images (B, 1, height, W), ink 1 on paper 0, to log-probabilities (B, T, classes) of the upright line.

    Args:
        characters: the charset, in the order of the classes from 1 on.
        encoder: a timm model with `forward_features`, such as "gcsa_ocr_tiny", or "crnn", the baseline.
        height: of the lines in pixels.
        hidden: channels in front of the classifier.
        upsample: time steps a column of the encoder's map.
        drop_rate: dropout in front of the classifier.
        options: of the encoder.

    Raises:
        ValueError: an unknown encoder or option, a height that its stride does not divide, sizes below 1.

    Attributes:
        stride: pixels of which the width of a line must be a multiple.
        steps: time steps for each such multiple.
        options: the arguments other than `characters`, so that a recogniser can be made again.
    """

    defaults: ClassVar[dict[str, Any]] = dict(height=40, hidden=256, upsample=2, drop_rate=0.1)

    def __init__(
        self,
        characters: str,
        encoder: str = "gcsa_ocr_tiny",
        height: int = defaults["height"],
        hidden: int = defaults["hidden"],
        upsample: int = defaults["upsample"],
        drop_rate: float = defaults["drop_rate"],
        **options: Any,
    ) -> None:
        super().__init__()
        check_options({"hidden": hidden, "drop_rate": drop_rate})
        for name, value in (("height", height), ("upsample", upsample)):
            check_int(name, value, 1, 1024)
        self.charset = Charset(characters)
        self.options: dict[str, Any] = dict(
            encoder=encoder, height=height, hidden=hidden, upsample=upsample, drop_rate=drop_rate, **options
        )
        network: Any = create_encoder(encoder, height, **options)
        self.group = make_group(getattr(network, "group", "c1"))
        self.order = self.group.order  # which TorchScript understands
        self.stride = getattr(network, "multiple", None) or network.feature_info[-1]["reduction"]
        if height % self.stride != 0:
            raise UserError(f"height must be a multiple of {self.stride}, the stride of {encoder}, not {height}")
        self.height = height
        self.rows, columns = height // self.stride, 1
        if not isinstance(network, Backbone):  # of which the map's size is not told by its stride
            with torch.no_grad():
                _, _, self.rows, columns = network.eval().forward_features(torch.zeros(1, 1, height, self.stride)).shape
        self.steps = columns * upsample
        self.encoder = network.train()
        self.head = CTCHead(network.num_features, self.rows, len(self.charset), hidden, upsample, drop_rate)

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
            raise UserError(f"the charset must begin with the {len(known)} characters that the recogniser knows")
        old = self.head.classifier
        new = nn.Linear(old.in_features, 1 + len(characters)).to(old.weight)
        new.weight[: old.out_features], new.bias[: old.out_features] = old.weight, old.bias
        # Less likely than all that is known until training says otherwise, so that the readings stay as they were.
        new.weight[old.out_features :], new.bias[old.out_features :] = 0.0, float(old.bias.min()) - 4.0
        self.head.classifier, self.charset = new, Charset(characters)

    def grown(self, weights: dict[str, Tensor], characters: str) -> dict[str, Tensor]:
        """The `weights` of a recogniser of these options and fewer `characters`, extended to this one's charset."""
        smaller = CTCRecognizer(characters, **self.options)
        smaller.load_state_dict(weights)
        smaller.extend(self.charset.characters)
        return smaller.state_dict()

    def save_charset(self, folder: Path) -> None:
        """Writes charset.txt beside an adapter, whose classifier may know more characters than its base."""
        (folder / CHARSET).write_text(self.charset.characters, encoding="utf-8")

    def save_pretrained(self, folder: str | Path) -> Path:
        """Writes config.json and model.safetensors into `folder`, for `gcsa.load`. Returns it."""
        return save_recognizer(self, folder)

    def text(self, classes: Iterable[int]) -> str:
        """What classes from left to right say, in logical order."""
        return display_order(self.charset.decode(classes))

    def read(self, images: Tensor, orientation: str = "upright", beams: int = 1) -> list[Reading]:
        """What lines (B, 1, H, W) of one size say, read in every frame that fits if `orientation` is "any".

        The most confident one is given (see `frames`). With `beams` > 1 its text comes from a beam search.

        Raises ValueError for beams below 1, an unknown orientation, one that the group lacks, and lines of another
        height.
        """
        return [most_confident(readings) for readings in self.read_frames(images, orientation, beams)]

    @torch.no_grad()
    def read_frames(self, images: Tensor, orientation: str = "upright", beams: int = 1) -> list[dict[int, Reading]]:
        """As `read`, all readings of each line: {degrees that the line is turned by: what it says if it is}."""
        if beams < 1:
            raise UserError(f"beams must be 1 or more, not {beams}")
        turns = frames(self.group, orientation, images.shape[2], images.shape[3], self.height)
        features = self.features(images)
        read = {turn: self.head(in_frame(features, self.group, g)).float().cpu() for turn, g in turns.items()}
        return [
            {turn: self.reading(scores[i], turn, beams) for turn, scores in read.items()} for i in range(len(images))
        ]

    def reading(self, log_probs: Tensor, turn: int = 0, beams: int = 1) -> Reading:
        """What the scores (T, classes) of one line say. With `beams` > 1 the characters have no places."""
        runs, confidence = greedy(log_probs)
        if beams > 1:
            return Reading(self.text(beam_search(log_probs, beams)), confidence, turn)
        names = self.charset.characters
        signs = tuple(
            Sign(names[run.label - 1], run.start / len(log_probs), run.end / len(log_probs), run.probability)
            for run in runs
        )
        return Reading(self.text(run.label for run in runs), confidence, turn, signs)
