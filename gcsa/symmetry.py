"""Any network made exactly equivariant, for a group that maps the pixel grid onto itself.

Let f be a network, H the group, and rho how its output transforms (the identity for scores). Both wrappers compute

    F(x) = sum over k in H of  w_k(x) rho(k)^-1 f(k x),        sum of w_k = 1,

and differ in the weights of the poses k x. F(g x) = rho(g) F(x) holds for every f, up to rounding, where w_k(g x) = w_{k g}(x):

- `Averaged`: w_k = 1 / |H| (Yarotsky 2018, arXiv:1804.10306). It costs |H| passes.
- `Canonical`: w is 1 at the pose that a chooser scores highest (canonicalization; Kaba et al. 2022, arXiv:2211.06489). It
  costs one pass. Where poses tie, as in symmetric images, they share the weight, so that the order of the elements decides
  nothing. Close to a tie a small change of the image can change the pose, and with it the output.

`RotationAveraged` makes scores that are exact already steadier at the angles between, which is approximate for every network.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from gcsa._utils.errors import UserError
from gcsa._utils.options import Options
from gcsa._utils.validation import check_int
from gcsa.actions import Kind, act
from gcsa.groups import Group, group as make_group
from gcsa.images.resampling import resampled

if TYPE_CHECKING:
    from gcsa.images.windows import WindowedImage

Output = Literal["scores", "map", "vectors", "rays"] | Callable[[Tensor, Group, int], Tensor]
KINDS: dict[str, Kind] = {"scores": "invariant", "map": "image", "vectors": "vector", "rays": "rays"}
"""The outputs of a network, and the kinds of `gcsa.actions` by which they transform."""
OF_THE_NETWORK = {
    *("num_features", "head_hidden_size", "num_classes", "in_chans", "size_divisor", "pretrained_cfg", "default_cfg"),
    *("get_classifier", "reset_classifier"),
}
"""timm's attributes that a wrapper has from its network."""
STRIP = 256
"""Rows of an image that are read at a time."""
TIE = 1e-6
"""Poses whose scores differ by less share the weight. Scores of `moments` are at most 1."""


@dataclass(frozen=True, kw_only=True)
class SymmetryOptions(Options):
    """How a network is made exact; `gcsa.models.pose.symmetrize` does it to a classifier."""

    symmetry: Annotated[
        Literal["averaged", "canonical", "learned"] | None,
        "averaged: the mean over all poses; canonical: one pose, chosen by moments; learned: by a small network",
    ] = None
    symmetry_group: Annotated[Literal["c2", "c4", "d1", "d2", "d4"] | None, "of symmetry; null: d4"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symmetry is None and self.symmetry_group is not None:
            raise UserError(
                f"symmetry_group={self.symmetry_group} is of symmetry: add symmetry=canonical, for example",
                "symmetry_group.needs_symmetry",
            )

    @property
    def group(self) -> Group:
        """The group under which it is made exact; c1 without `symmetry`."""
        return make_group("c1" if self.symmetry is None else self.symmetry_group or "d4")

    def check_needed(self, name: str, group: Group) -> None:
        """Raises UserError where there is a `symmetry`, and the network called `name` is exact already, under its `group`."""
        if self.symmetry is not None and group.covers(self.group):
            raise UserError(f"{name} is exact under {group} already: leave out symmetry", "symmetry.exact", group=group)


def pose_scores(moment: Tensor, group: Group) -> Tensor:
    """The rule for the canonical pose: it is the pose k x of the highest score, among the exact elements k of the group.

    The score of a pose is the component of its first moment in the direction at 22.5 degrees from the rows' own. Poses tie where
    the moment is zero. Else they tie for a group with reflections where it lies on an axis of reflection, and for rotations alone
    where it lies half way between two poses.

    moment: (B, 2), row and column, of images x about their centre. Returns (B, exact elements).
    """
    matrices = torch.stack([torch.from_numpy(group.array_matrix(k).round()) for k in group.exact_elements]).to(moment)
    moved = (matrices * moment[:, None, None, :]).sum(
        3
    )  # without rounding, so that a pose has one score from every side
    return math.cos(math.pi / 8) * moved[..., 0] + math.sin(math.pi / 8) * moved[..., 1]


def moments(x: Tensor, group: Group) -> Tensor:
    """Scores (B, |H|) of the poses of images (B, C, H, W) by their first moments about the centre: `pose_scores`, relative to the
    largest possible moment. For `Canonical`, whose group has exact elements alone."""
    values = x.detach().double().sum(1)
    height, width = values.shape[1:]
    rows = torch.arange(height, dtype=torch.float64, device=x.device) - (height - 1) / 2
    columns = torch.arange(width, dtype=torch.float64, device=x.device) - (width - 1) / 2
    moment = torch.stack([(values.sum(2) * rows).sum(1), (values.sum(1) * columns).sum(1)], 1)
    largest = values.abs().sum((1, 2)) * max(height, width) / 2
    return pose_scores(moment, group) / largest.clamp_min(torch.finfo(torch.float64).tiny)[:, None]


def canonical_pose(image: WindowedImage, group: Group) -> int:
    """The exact element of `group` that takes an image to its canonical pose (`pose_scores`). The image is read in strips. Of poses
    that tie, it is the first: of a symmetric image, these show the same picture."""
    if len(group.exact_elements) == 1:
        return group.exact_elements[0]
    height, width = image.shape
    moment = np.zeros(2)
    columns = np.arange(width) - (width - 1) / 2
    for top in range(0, height, STRIP):
        bottom = min(height, top + STRIP)
        values = image.window(top, 0, bottom, width).sum(2, dtype=np.float64)
        rows = np.arange(top, bottom) - (height - 1) / 2
        moment += ((rows[:, None] * values).sum(), (values * columns).sum())
    return group.exact_elements[int(pose_scores(torch.from_numpy(moment)[None], group).argmax())]


@dataclass(frozen=True)
class Pose:
    """The pose k x of some images x of a batch, and its weight in their sums.

    Attributes:
        element: k.
        rows: the indices (n,) of the images; None: all of them.
        weight: of each of them, (n,); one number for all.
    """

    element: int
    rows: Tensor | None
    weight: Tensor | float

    def of(self, x: Tensor) -> Tensor:
        """The images of this pose among all images x."""
        return x if self.rows is None else x[self.rows]


class Wrapper(nn.Module):
    """A module around `network`, whose attributes `OF_THE_NETWORK` it has."""

    def __getattr__(self, name: str) -> Any:
        if name in OF_THE_NETWORK and "network" in self._modules:
            return getattr(self.network, name)
        return super().__getattr__(name)


class Symmetrized(Wrapper, ABC):
    """The sum F above; a subclass says which poses it is taken over.

    `num_features`, `num_classes`, `pretrained_cfg` and the like are the network's. `forward_features` is not: what a network
    computes inside is not exact. The features of a timm model with `num_classes=0` are its output. In training, dropout draws
    anew for each pose, and batch norm sees all poses that go through the network at once.

    Args:
        network: takes images (B, C, H, W) alone, and returns a tensor with the batch first, or a tuple, list or dict of them.
        group: whose elements all map the pixel grid onto itself: c1, c2, c4, d1, d2 or d4.
        output: how the network's output transforms: "scores" and features of the whole image, (B, C) or (B,) (not at all),
            "map" (B, C, H, W) (with the image), "vectors" (B, 2 C, H, W) (pairs of a row and a column component), "rays" (B, R, H, W)
            (StarDist's distances), or a function of an output, the group and the element g that gives rho(g) of it.
        batch: the most images that go through the network at once; None: all poses of all images.

    Raises:
        UserError: a group with other elements, an unknown output, or a batch below 1.
    """

    def __init__(
        self, network: nn.Module, group: str | Group = "d4", output: Output = "scores", batch: int | None = None
    ) -> None:
        super().__init__()
        self.group = make_group(group)
        if len(self.group.exact_elements) < self.group.order:
            raise UserError(
                f"{self.group} holds rotations that do not map a pixel grid onto itself: choose c1, c2, c4, d1, d2 or d4",
                "symmetry.off_grid",
            )
        if not callable(output) and (not isinstance(output, str) or output not in KINDS):
            raise UserError(
                f"unknown output {output!r}: choose {', '.join(KINDS)}, or give a function", "symmetry.output"
            )
        if batch is not None:
            check_int("batch", batch)
        self.network, self.output, self.batch = network, output, batch

    def extra_repr(self) -> str:
        output = self.output if isinstance(self.output, str) else getattr(self.output, "__name__", "function")
        return f"group={self.group}, output={output}, exact under {self.group.exactness}"

    def around(self, network: nn.Module) -> Symmetrized:
        """This wrapper around another network."""
        other = copy.copy(self)
        other._modules = {**self._modules, "network": network}
        return other

    @abstractmethod
    def poses(self, x: Tensor) -> list[Pose]:
        """The poses of images (B, C, H, W) whose weight is not 0."""

    def forward(self, x: Tensor) -> Any:
        """What the network returns, for images (B, C, H, W).

        Raises UserError for inputs that are no batch of images, and for outputs that do not fit `output`.
        """
        if x.ndim != 4 or x.shape[0] == 0:
            raise UserError(
                f"expected one or more images of the shape (batch, channels, height, width), not {tuple(x.shape)}",
                "input.shape",
            )
        poses, parts = self.poses(x), []
        for swapped in (False, True):  # the poses of an oblong image have two shapes: one pass for each
            alike = [pose for pose in poses if self._swaps(pose.element, x) == swapped]
            if alike:
                inputs = torch.cat([self.group.act_on_grid(pose.of(x), pose.element) for pose in alike])
                batches = [inputs] if self.batch is None else inputs.split(self.batch)
                outputs = [self.network(part) for part in batches]
                joined = tree_map(lambda *tensors: torch.cat(tensors), *outputs)
                parts.append(tree_map(lambda y, alike=alike: self._sum(y, alike, x.shape[0]), joined))
        return parts[0] if len(parts) == 1 else tree_map(torch.add, *parts)

    def _swaps(self, k: int, x: Tensor) -> bool:
        """Whether the pose k x of an image has another shape than the image."""
        return x.shape[2] != x.shape[3] and not self.group.array_matrix(k).round()[0, 0]

    def _sum(self, y: Tensor, poses: list[Pose], images: int) -> Tensor:
        """The weighted sum, for each of `images` inputs, of the outputs y of their poses, each brought back."""
        if poses[0].rows is None:  # a fixed number of parts, which exports with any number of images
            parts: Sequence[Tensor] = y.unflatten(0, (len(poses), -1)).unbind()
        else:
            parts = y.split([len(pose.rows) for pose in poses if pose.rows is not None])
        total: Tensor | None = None
        for part, pose in zip(parts, poses, strict=True):
            back = self.bring_back(part, pose.element)
            back = back if back.is_floating_point() or back.is_complex() else back.to(torch.get_default_dtype())
            if pose.rows is None:
                total = back * pose.weight if total is None else total + back * pose.weight
                continue
            assert isinstance(pose.weight, Tensor)
            total = back.new_zeros(images, *back.shape[1:]) if total is None else total
            total = total.index_add(0, pose.rows, back * pose.weight.to(back.dtype).view(-1, *[1] * (back.ndim - 1)))
        assert total is not None
        return total

    def bring_back(self, y: Tensor, k: int) -> Tensor:
        """rho(k)^-1 y, for an output y of the pose k x. Raises UserError for one that does not fit `output`."""
        g = int(self.group.inverse[k])
        if not isinstance(self.output, str):
            return self.output(y, self.group, g)
        if y.ndim > 2 if self.output == "scores" else y.ndim != 4:
            raise UserError(
                f"the network gives outputs of the shape {tuple(y.shape)}, which are no {self.output}: say by output= how they "
                f"transform ({', '.join(KINDS)}, or a function)",
                "network.outputs",
            )
        return act(y, self.group, g, KINDS[self.output])


class Averaged(Symmetrized):
    """The mean of a network's outputs over all poses of the image, each brought back; see `Symmetrized` for the arguments."""

    def poses(self, x: Tensor) -> list[Pose]:
        return [Pose(k, None, 1 / self.group.order) for k in range(self.group.order)]


class Canonical(Symmetrized):
    """A network that sees the image in a pose that depends on its content alone; its output is brought back.

    Args:
        network, group, output, batch: see `Symmetrized`.
        chooser: of images (B, C, H, W) and the group, scores (B, |H|) of the poses k x, with s_k(g x) = s_{k g}(x): `moments`,
            which needs no training, `gcsa.models.pose.LearnedPose`, or your own function or module. It learns by
            `gcsa.training.pose_loss`, and where `top` is above 1 also by the gradients of the output.
        top: how many of the best poses share the output, weighted by the softmax of their scores (in between: lambda-equitune,
            arXiv:2305.09900); 1 is the best alone. Poses that tie with the last one are taken too.

    Raises:
        UserError: as `Symmetrized`, or a `top` that is not between 1 and the number of poses.
    """

    def __init__(
        self,
        network: nn.Module,
        group: str | Group = "d4",
        chooser: Callable[[Tensor, Group], Tensor] = moments,
        output: Output = "scores",
        batch: int | None = None,
        top: int = 1,
    ) -> None:
        super().__init__(network, group, output, batch)
        check_int("top", top, 1, self.group.order)
        self.chooser, self.top = chooser, top

    def forward(self, x: Tensor) -> Any:
        return self._exported(x) if torch.compiler.is_exporting() else super().forward(x)

    def _exported(self, x: Tensor) -> Any:
        """`forward` as one graph for every image, in one pass. Of poses that tie, it takes the one that is largest along a fixed
        pattern: with an image that is symmetric itself, these poses show the same picture, and give the same scores."""
        if self.top > 1:
            raise UserError(f"Canonical is exported with top=1, not {self.top}", "symmetry.top_exported", top=self.top)
        if x.shape[2] != x.shape[3]:
            raise UserError(
                f"Canonical is exported for square images, not {x.shape[2]} x {x.shape[3]}", "symmetry.square_exported"
            )
        elements = range(self.group.order)
        shown = torch.stack([self.group.act_on_grid(x, k) for k in elements], 1)
        pattern = torch.arange(shown[0, 0].numel(), device=x.device).double().square().mul(0.5).sin().to(x.dtype)
        projected = (shown.flatten(2) * pattern).sum(2)
        best = projected.masked_fill(self.weights(x) == 0, float("-inf")).argmax(1)
        rows = torch.arange(x.shape[0], device=x.device)

        def back(y: Tensor) -> Tensor:
            return torch.stack([self.bring_back(y, k) for k in elements], 1)[rows, best]

        return tree_map(back, self.network(shown[rows, best]))

    def poses(self, x: Tensor) -> list[Pose]:
        weights = self.weights(x)
        rows = [weights[:, k].nonzero().flatten() for k in range(self.group.order)]
        return [Pose(k, which, weights[which, k]) for k, which in enumerate(rows) if len(which)]

    def weights(self, x: Tensor) -> Tensor:
        """The weights w (B, |H|) of the poses of images (B, C, H, W); the sum of each row is 1."""
        scores = self.chooser(x, self.group)
        if scores.shape != (x.shape[0], self.group.order):
            raise UserError(
                f"the chooser gave scores of the shape {tuple(scores.shape)}, not one for each of {x.shape[0]} images and "
                f"{self.group.order} poses",
                "chooser.scores",
            )
        last = scores.detach().sort(1, descending=True).values[:, self.top - 1 : self.top]
        # Scores of a network have its rounding, which grows with them.
        rounding = torch.finfo(scores.dtype).eps ** 0.5 * scores.detach().abs().amax(1, keepdim=True)
        kept = scores.detach() >= last - rounding.clamp_min(TIE)
        if self.top == 1:
            return kept / kept.sum(1, keepdim=True)
        return scores.masked_fill(~kept, float("-inf")).softmax(1)


class RotationAveraged(Wrapper):
    """The mean of the scores for copies of the image that are rotated by angles between those of the group: steadier at every
    angle, and as exact as the network under its group.

    A network that is exact for rotations by 90 degrees needs the angles below 90 degrees alone, for the others give the same. So 8
    rotations cost two passes, at 0 and at 45 degrees. The copies are resampled bilinearly and go on beyond the border by
    reflection, so their mean is approximate: it is invariant to multiples of 45 degrees up to what resampling changes.

    Args:
        network: images (B, C, H, W) to scores or features (B, D), or a tuple, list or dict of them.
        group: under which it is exact: of a network of gcsa its `group`, or that of `Averaged` or `Canonical`.
        rotations: how many in all, a multiple of those of the group that are exact.

    Raises:
        UserError: a group without exact rotations, or another number.
    """

    def __init__(self, network: nn.Module, group: str | Group = "d4", rotations: int = 8) -> None:
        super().__init__()
        self.network, self.group, self.rotations = network, make_group(group), rotations
        exact = sum(g < self.group.rotations for g in self.group.exact_elements)
        if exact == 1:
            raise UserError(
                f"rotations={rotations} is for a network that is exact for rotations, not for {self.group}: make it exact first, "
                "by symmetry averaged or canonical",
                "rotations.not_exact",
            )
        check_int("rotations", rotations)
        if rotations % exact or rotations == exact:
            raise UserError(
                f"rotations={rotations} must be a multiple of {exact}, the exact ones of {self.group}, such as {2 * exact}",
                "rotations.multiple",
            )
        self.angles = tuple(360 / rotations * k for k in range(rotations // exact))

    def extra_repr(self) -> str:
        return f"mean at {', '.join(f'{angle:g}' for angle in self.angles)} degrees, exact under {self.group.exactness}"

    def around(self, network: nn.Module) -> RotationAveraged:
        """This wrapper around another network."""
        return RotationAveraged(network, self.group, self.rotations)

    def forward(self, x: Tensor) -> Any:
        """What the network returns, for images (B, C, S, S). Raises UserError for oblong ones, whose copies at 45 and at -45 degrees
        hold different parts of the image."""
        if x.shape[-2] != x.shape[-1]:
            raise UserError(
                f"rotations={self.rotations} takes square images, not {x.shape[-2]} x {x.shape[-1]}", "rotations.square"
            )
        outputs = [self.network(resampled(x, angle) if angle else x) for angle in self.angles]
        return tree_map(lambda *parts: torch.stack(parts).mean(0), *outputs)
