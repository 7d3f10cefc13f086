"""What a network answers when its images rotate and reflect: the measurements of gcsa audit, for any network.

The eight poses of d4 map the pixel grid onto itself, so a change there is the network's own. At angles between them images are
resampled (bilinear) within the inscribed disc, and compared with the disc of the upright image: such a change is that of the
network and of the resampling together, and approximate for every network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode, functional

from gcsa._utils.errors import UserError
from gcsa.actions import act
from gcsa.evaluation.relative_error import relative_error
from gcsa.groups import group as make_group

EXACT = 1e-4
"""A relative change of the outputs below this is rounding."""
NEIGHBOURS = 10
"""As many nearest images are compared, as in arXiv:2412.11938."""
SHARES = {
    "classifier": {"answers": "answers"},
    "segmenter": {"pixels": "pixels", "objects": "objects"},
    "reader": {"texts": "texts"},
}
"""The figures of the sentence, by kind, that are shares of something that changes."""


@dataclass(frozen=True)
class Turn:
    """A rotation counter-clockwise by `degrees`, before it a reflection where `reflected`."""

    degrees: float
    reflected: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it maps the pixel grid onto itself."""
        return self.degrees % 90 == 0

    @property
    def element(self) -> int:
        """The element of d4 that an exact turn is."""
        return round(self.degrees / 90) % 4 + 4 * self.reflected

    def __str__(self) -> str:
        return f"{self.degrees:g} degrees{', reflected' if self.reflected else ''}"


@dataclass(frozen=True)
class Symmetry:
    """A group of exact poses. `degrees` is the rotation that follows its first reflection: 0 for that of `gcsa.groups`, the
    left-right one. `reflections` names them where the group has only some."""

    name: str
    degrees: int = 0
    reflections: str = ""

    @property
    def turns(self) -> set[Turn]:
        """All of its poses, the identity among them."""
        group = make_group(self.name)
        elements = (divmod(g, group.rotations) for g in range(group.order))
        return {Turn(360 * k / group.rotations + self.degrees * flip, bool(flip)) for flip, k in elements}

    def __str__(self) -> str:
        return f"{self.name}, {self.reflections}" if self.reflections else self.name


SYMMETRIES = (
    Symmetry("d4"),
    Symmetry("c4"),
    Symmetry("d2", 0, "left-right and up-down reflections"),
    Symmetry("d2", 90, "reflections across both diagonals"),
    Symmetry("c2"),
    Symmetry("d1", 0, "left-right reflection"),
    Symmetry("d1", 90, "reflection across the diagonal from the upper left"),
    Symmetry("d1", 180, "up-down reflection"),
    Symmetry("d1", 270, "reflection across the diagonal from the upper right"),
    Symmetry("c1"),
)
"""All groups of exact poses, the largest first."""


@dataclass(frozen=True)
class Change:
    """How the outputs (N, D) of N images change with one turn. The figures of the other kind of network are None.

    Attributes:
        turn: the rotation and reflection.
        relative: the norm of the change, relative to that of the outputs; of label maps and texts, the share that changes.
        answers: the share of images with another most probable class; of classifiers.
        probability: the mean largest change of a class probability; of classifiers.
        cosine: the mean cosine distance to the features of the upright image; of embeddings.
        neighbours: the mean share of the nearest images that stay the nearest; of embeddings.
        distance: the mean Euclidean distance relative to the median distance between two images; of embeddings.
        pixels, objects: the shares of them that change; of segmenters.
        texts, characters: the shares of lines and of characters that change; of readers.
    """

    turn: Turn
    relative: float
    answers: float | None = None
    probability: float | None = None
    cosine: float | None = None
    neighbours: float | None = None
    distance: float | None = None
    pixels: float | None = None
    objects: float | None = None
    texts: float | None = None
    characters: float | None = None

    @property
    def is_rounding(self) -> bool:
        """Whether nothing but rounding changes: of label maps and texts, nothing at all."""
        return self.relative <= (EXACT if self.pixels is None and self.texts is None else 0.0)


def turns(steps: int) -> list[Turn]:
    """The eight exact ones, and those of `steps` around the circle that lie between them."""
    exact = [Turn(90.0 * k, reflected) for reflected in (False, True) for k in range(4)]
    return exact + [Turn(360 * k / steps) for k in range(steps) if (360 * k / steps) % 90]


def turned(images: Tensor, turn: Turn) -> Tensor:
    """Images (B, C, H, W) turned; between the exact turns square, in the inscribed disc, with zeros outside."""
    if turn.is_exact:
        return act(images, "d4", turn.element, "image")
    return disc(functional.rotate(images, turn.degrees, InterpolationMode.BILINEAR))


def disc(images: Tensor) -> Tensor:
    """Square images (B, C, S, S), zero outside of the inscribed disc, whose border pixels are left out, too."""
    side = images.shape[-1]
    places = torch.arange(side, device=images.device) - (side - 1) / 2
    return images * (places[:, None] ** 2 + places**2 <= (side / 2 - 1) ** 2)


def outputs(
    network: Callable[[Tensor], Tensor],
    batches: Iterable[Tensor],
    steps: int,
    advance: Callable[[int], object] = lambda count: None,
) -> dict[Turn | None, Tensor]:
    """The outputs (N, D) of the images of all batches (B, C, S, S) at each of `turns(steps)`; None: of their discs.

    `advance` is called with the number of images that went through the network. Raises UserError for outputs of another shape,
    and for a network in training mode.
    """
    found: dict[Turn | None, list[Tensor]] = {}
    with torch.inference_mode():
        for images in batches:
            for turn in (*turns(steps), None):
                rows = network(disc(images) if turn is None else turned(images, turn))
                if not isinstance(rows, Tensor) or rows.ndim != 2 or len(rows) != len(images):
                    given = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
                    raise UserError(
                        f"the network gives {given} for {len(images)} images: a row of numbers for each is wanted",
                        "network.outputs",
                    )
                if not found:  # the first turn is none
                    _check_alone(network, images, rows)
                found.setdefault(turn, []).append(rows.float().cpu())
                advance(len(images))
    return {turn: torch.cat(rows) for turn, rows in found.items()}


def _check_alone(network: Callable[[Tensor], Tensor], images: Tensor, rows: Tensor) -> None:
    """Raises UserError where the outputs `rows` of a batch depend on the other images of it, or on chance: batch norm and dropout
    do in training."""
    some = network(images[: max(1, len(images) // 2)])
    kept = rows[: len(some)]
    if (kept - some).norm() > 1e-3 * kept.norm():
        raise UserError(
            "the network gives an image other outputs in another batch: put it into eval mode", "network.train_mode"
        )


def compare(found: dict[Turn | None, Tensor], kind: str) -> list[Change]:
    """The changes of the outputs that `outputs` found, of a "classifier" or an "embedding"; without the identity."""
    upright = Turn(0.0)
    changes = []
    for turn, rows in found.items():
        if turn is not None and turn != upright:
            changes.append(_change(turn, rows, found[upright if turn.is_exact else None], kind))
    return changes


def _change(turn: Turn, rows: Tensor, reference: Tensor, kind: str) -> Change:
    relative = relative_error(rows, reference)
    if kind == "classifier":
        answers = (rows.argmax(1) != reference.argmax(1)).double().mean().item()
        probability = (rows.softmax(1) - reference.softmax(1)).abs().amax(1).mean().item()
        return Change(turn, relative, answers=answers, probability=probability)
    cosine = 1 - torch.cosine_similarity(rows.double(), reference.double()).mean().item()
    between = torch.pdist(reference[:1000].double()).median()  # of half a million pairs
    distance = ((rows - reference).norm(dim=1).mean() / between.clamp_min(1e-12)).item()
    return Change(turn, relative, cosine=cosine, neighbours=neighbour_overlap(rows, reference), distance=distance)


def neighbour_overlap(rows: Tensor, reference: Tensor, count: int = NEIGHBOURS) -> float | None:
    """The mean share of the `count` nearest other images (cosine) that an image has by both sets of features (N, D); None for
    fewer than `count` + 2 images (the mutual nearest-neighbour metric; Huh et al. 2024, arXiv:2405.07987)."""
    if len(rows) < count + 2:
        return None
    nearest = []
    for features in (rows, reference):
        unit = torch.nn.functional.normalize(features.double(), dim=1)
        similarity = unit @ unit.T
        similarity.fill_diagonal_(-2.0)
        nearest.append(torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, similarity.topk(count).indices, True))
    return ((nearest[0] & nearest[1]).sum(1).double().mean() / count).item()


def exact_symmetry(changes: Sequence[Change]) -> Symmetry:
    """The largest of `SYMMETRIES` by whose poses the outputs change by rounding only."""
    unchanged = {change.turn for change in changes if change.is_rounding} | {Turn(0.0)}
    return next(symmetry for symmetry in SYMMETRIES if symmetry.turns <= unchanged)


def verdict(changes: Sequence[Change], kind: str) -> str:
    """One sentence for a reader who is no programmer."""
    symmetry = exact_symmetry(changes)
    inside = [change for change in changes if change.turn in symmetry.turns]
    outside = [change for change in changes if change.turn.is_exact and change.turn not in symmetry.turns]
    alone = [change for change in outside if change.is_rounding]  # rounding may split a group
    exact = [change for change in outside if not change.is_rounding]
    between = [change for change in changes if not change.turn.is_exact]
    start, others = "not exact for any rotation or reflection", "at multiples of 90 degrees and reflections"
    if inside or alone:
        largest = max(change.relative for change in [*inside, *alone])
        under = [f"under {symmetry}"] if inside else []
        under += [f"at {change.turn}" for change in alone]
        start = f"exact {' and '.join(under)} " + (f"to {largest:.0e}" if largest else "without any change")
        others = "at other multiples of 90 degrees and reflections"
    rest = [
        f"{words} {_in_words(some, kind)}" for words, some in ((others, exact), ("at angles between", between)) if some
    ]
    return "; ".join([start, *rest])


def _in_words(changes: Sequence[Change], kind: str) -> str:
    """The mean over `changes`."""
    if kind in SHARES:
        words = [
            f"{_mean(values):.1%} of {name}".replace("%", " %")
            for key, name in SHARES[kind].items()
            if None not in (values := [getattr(change, key) for change in changes])
        ]
        return f"{' and '.join(words)} change"
    shares = [change.neighbours for change in changes]
    if None in shares:
        return (
            f"features move by {_mean([change.distance for change in changes]):.2f} of the distance between two images"
        )
    return f"{_mean(shares):.0%} of the nearest images stay the nearest".replace("%", " %")


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known)
