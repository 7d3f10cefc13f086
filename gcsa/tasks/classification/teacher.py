"""A trained network teaches another: its answers for the training images, computed once, are what the student learns.

Let T be any network, made exact by averaging over poses, and S an exact network of ours. T's answers for the upright images, with or
without labels, train S on augmented ones (Hinton et al. 2015, arXiv:1503.02531, with a fixed teacher's stored answers, Shen and Xing 2021,
arXiv:2112.01528). S then gives in one pass what T gives in |H|. It can be better than T: it cannot express what changes with the pose,
it sees images without labels too (Xie et al. 2020, arXiv:1911.04252), and it averages the noise of T's answers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import UserError
from gcsa._utils.options import Options, Range, Word
from gcsa._utils.paths import expanded
from gcsa._utils.validation import listed
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.groups import group as make_group
from gcsa.images.prepare import Prepare
from gcsa.models.foreign import is_foreign
from gcsa.symmetry import Averaged, Canonical
from gcsa.tasks import load
from gcsa.tasks.classification.stored_answers import STORED, read_answers, stored_classes, stored_width
from gcsa.tasks.classification.targets import Classes
from gcsa.weights.fingerprint import digest

log = logging.getLogger(__name__)
Picture = Path | Tensor
"""An image as it was before the student's own preprocessing: its file, or uint8 pixels (C, H, W)."""
BATCH = 32
"""Images that the teacher answers at once; an averaged one sees as many times the order of the group."""
SECONDS = 60
"""Between two savings of the answers so far."""


@dataclass(frozen=True, kw_only=True)
class TeacherOptions(Options):
    """Who teaches, and what. Raises UserError for a value that cannot work."""

    source: Annotated[
        str | list | None,
        "weights, timm:NAME, a file .onnx or .pt2, MODULE:FUNCTION, or stored answers .csv or .h5; a list: the mean of several",
    ] = None
    of: Annotated[
        Literal["scores", "features"], "scores of the same classes, or features: the student becomes an encoder"
    ] = "scores"
    symmetry: Annotated[
        Literal["averaged", "canonical", "none"], "of the teacher: averaged over all poses, one canonical pose, or none"
    ] = "averaged"
    symmetry_group: Annotated[Word, "of symmetry: c2, c4, d1, d2 or d4"] = "d4"
    temperature: Annotated[
        Annotated[float, Range(0.01, 100)],
        "divides the scores of both: above 1 the teacher's second choices count more",
    ] = 1.0
    label_share: Annotated[
        Annotated[float, Range(0, 1)],
        "share of the loss that the true labels have, for images with one; 0: none is read",
    ] = 0.0
    answers: Annotated[str | None, "file that keeps the teacher's answers for further runs; null: in output_dir"] = None

    @property
    def sources(self) -> tuple[str, ...]:
        """All teachers."""
        given = self.source if isinstance(self.source, list) else [self.source]
        return tuple(str(source) for source in given if source is not None)


class Teacher:
    """One or more opened networks, or stored answers, that answer for the images of a data module.

    Args:
        options: with at least one source.
        class_names: of the student's classes, in the order of its scores; None where the data name none.
        file: where the answers are kept.

    Attributes:
        class_names: those of the answers; None for features, and where neither teacher nor data name them.

    Raises:
        UserError: a source that cannot be opened, or of other classes.
    """

    def __init__(self, options: TeacherOptions, class_names: Sequence[str] | None, file: Path) -> None:
        self.options, self.file = options, file
        self.stored = any(Path(source).suffix in STORED for source in options.sources)
        if len(options.sources) > 1 and (self.stored or options.of == "features"):
            raise UserError(
                "task.teacher.source lists several networks, which are for task.teacher.of=scores: name one",
                "teacher.several",
            )
        self.class_names: tuple[str, ...] | None = tuple(class_names or ()) or None
        if self.stored and options.of == "scores":
            self.class_names = self.class_names or stored_classes(expanded(options.sources[0]))
        self.members: list[Member] = []
        for source in () if self.stored else options.sources:
            member = Member.open(source, options)
            if options.of == "scores":
                self.class_names = self.class_names or member.class_names
                member = member.in_order_of(self.class_names)
                if member.class_names is None:  # before any work, as where the classes have names
                    self._checked(member.of_nothing())
            self.members.append(member)

    @property
    def width(self) -> int:
        """Numbers in an answer: scores, or features."""
        if self.options.of == "scores" and self.class_names is not None:
            return len(self.class_names)
        if self.stored:
            return stored_width(expanded(self.options.sources[0]))
        return self.members[0].of_nothing().shape[1]

    @torch.no_grad()
    def answers(self, pictures: Sequence[Picture], what: str) -> Tensor:
        """Scores (N, K) or features (N, D), float32, of the pictures; `what` they are, for messages.

        They are read from the file where it holds them, else computed, with progress in the log and a saving every minute, so that a
        run that was killed goes on where it stopped. Several processes share the file: the first computes.

        Raises UserError for a file with answers of other teachers or images, and for answers that are not finite or of another
        number of classes.
        """
        if self.stored:
            return self._checked(
                read_answers(expanded(self.options.sources[0]), pictures, self.class_names or (), self.options.of)
            )
        key = {"teacher": self.fingerprint(), "images": fingerprint(pictures)}
        file = self.file.with_name(f"{self.file.stem}.{what}{self.file.suffix}")
        check_writable(file)
        with FileLock(f"{file}.lock"):
            done = _read(file, key, len(pictures))
            rows = [] if done is None else [done]
            count, began, saved = sum(map(len, rows)), time.monotonic(), time.monotonic()
            first = count
            while count < len(pictures):
                rows.append(self._checked(self._of_batch(pictures[count : count + BATCH])))
                count += len(rows[-1])
                now = time.monotonic()
                if count == len(pictures) or now - saved > SECONDS:
                    rows, saved = [torch.cat(rows)], now
                    with replacing(file) as part:
                        save_file({"answers": rows[0]}, part, metadata=key)
                    left = (now - began) / (count - first) * (len(pictures) - count)
                    log.info(
                        "the teacher answered %d of %d %s images, about %d s left", count, len(pictures), what, left
                    )
        return torch.cat(rows)

    def fingerprint(self) -> str:
        """Of everything on which the answers depend but the images."""
        options = self.options
        parts = [
            options.of,
            options.symmetry,
            options.symmetry_group,
            *(member.fingerprint() for member in self.members),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _of_batch(self, pictures: Sequence[Picture]) -> Tensor:
        found = [member(pictures) for member in self.members]
        if len(found) == 1:
            return found[0]
        return torch.stack([scores.log_softmax(1) for scores in found]).logsumexp(0)

    def _checked(self, rows: Tensor) -> Tensor:
        if not rows.isfinite().all():
            raise UserError(
                f"{', '.join(self.options.sources)} gives NaN or infinite {self.options.of}", "answers.not_finite"
            )
        if self.options.of == "scores" and self.class_names is not None and rows.shape[1] != len(self.class_names):
            raise UserError(
                f"{', '.join(self.options.sources)} gives {rows.shape[1]} scores, but the data have "
                f"{len(self.class_names)} classes: name a teacher of the same classes",
                "answers.classes",
            )
        return rows


@dataclass(frozen=True)
class Member:
    """One network that teaches: prepared images (B, C, S, S) to its answers (B, K), in the order `columns` of its own."""

    source: str
    network: nn.Module
    prepare: Prepare
    class_names: tuple[str, ...] | None
    columns: tuple[int, ...] | None = None

    @classmethod
    def open(cls, source: str, options: TeacherOptions) -> Member:
        """Raises UserError and FileNotFoundError for a source that cannot be opened."""
        predictor: Any = load(source, trust_code=True)  # whoever writes a configuration may run code
        of_classes = isinstance(getattr(predictor, "target", Classes()), Classes)
        if predictor.kind not in ("classification", "network") or (options.of == "scores" and not of_classes):
            raise UserError(
                f"task.teacher.source={source} tells no classes: name a classifier, or task.teacher.of=features",
                "teacher.no_classes",
            )
        network = predictor.embedding if options.of == "features" else predictor.network
        names = None if is_foreign(source) else predictor.class_names
        if options.symmetry != "none" and not predictor.group.covers(make_group(options.symmetry_group)):
            network = (Averaged if options.symmetry == "averaged" else Canonical)(network, options.symmetry_group)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return cls(source, network.eval().to(device), predictor.preprocess, names)

    def in_order_of(self, class_names: Sequence[str] | None) -> Member:
        """The same with its scores in this order. Raises UserError for a teacher of other classes."""
        if self.class_names is None or class_names is None or tuple(class_names) == self.class_names:
            return self
        if sorted(class_names) != sorted(self.class_names):
            different = sorted(set(class_names) ^ set(self.class_names))
            raise UserError(
                f"task.teacher.source={self.source} tells {listed(self.class_names[:8])} apart, and the data hold "
                f"{listed(tuple(class_names)[:8])} (they differ in {different[0]!r}): name a teacher of the same classes",
                "teacher.classes",
            )
        return replace(self, columns=tuple(self.class_names.index(name) for name in class_names))

    def __call__(self, pictures: Sequence[Picture]) -> Tensor:
        """Answers (B, K), float32 on the CPU."""
        images = torch.stack([self.prepare(picture) for picture in pictures])
        with evaluation_mode(self.network) as device:
            rows = self.network(images.to(device)).float().cpu()
        return rows if self.columns is None else rows[:, list(self.columns)]

    def of_nothing(self) -> Tensor:
        """Answers (1, K) for a black image, which tell how many there are."""
        return self([torch.zeros(3, self.prepare.size, self.prepare.size, dtype=torch.uint8)])

    def fingerprint(self) -> str:
        """Of the network's numbers, of the file that holds it where it has none, and of its preprocessing."""
        about = {"kind": type(self.network).__name__, "prepare": repr(self.prepare), "columns": self.columns}
        return digest(self.network, about, self.source)


def fingerprint(pictures: Sequence[Picture]) -> str:
    """Of the contents of the pictures, in their order."""
    found = hashlib.sha256()
    for part in _contents(pictures):
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()


def _contents(pictures: Sequence[Picture]) -> Iterator[bytes]:
    for picture in pictures:
        yield picture.numpy().tobytes() if isinstance(picture, Tensor) else picture.read_bytes()


def _read(file: Path, key: dict[str, str], count: int) -> Tensor | None:
    """The answers in `file`, of the first of `count` pictures; None where there is no file."""
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as opened:
            stored, answers = opened.metadata() or {}, opened.get_tensor("answers")
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{file} is damaged ({error}): remove it, and the teacher answers anew", "answers.damaged"
        ) from error
    for name, whose in (("teacher", "another teacher"), ("images", "other images")):
        if stored.get(name) != key[name]:
            raise UserError(
                f"{file} holds the answers of {whose}: name another file by task.teacher.answers, or remove it",
                "answers.of_others",
            )
    if answers.ndim != 2 or len(answers) > count or not answers.isfinite().all():
        raise UserError(f"{file} is damaged: remove it, and the teacher answers anew", "answers.damaged")
    return answers


def score_loss(scores: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """The cross-entropy (B,) of the student's scores (B, K) against the teacher's probabilities, both at this temperature, whose gradients
    are as large as without it (Hinton et al. 2015, section 2)."""
    wanted = (answers / temperature).softmax(1)
    return -(wanted * (scores / temperature).log_softmax(1)).sum(1) * temperature**2


def feature_loss(features: Tensor, answers: Tensor) -> Tensor:
    """1 - cosine (B,) of the student's projected features (B, D) and the teacher's."""
    return 1 - F.cosine_similarity(features, answers)
