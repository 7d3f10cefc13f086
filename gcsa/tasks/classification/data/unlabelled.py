"""A folder of images of which nobody says what they show: a teacher does."""

import torch

from gcsa._utils.errors import UserError
from gcsa.images.folders import list_images
from gcsa.tasks.classification.data.base import NO_LABEL, Split
from gcsa.tasks.classification.data.image_folder import Files, ImageFolder, divided
from gcsa.tasks.classification.teacher import Teacher


class Unlabelled(ImageFolder):
    """All images in a folder and below. A tenth validates, by the teacher's answers; the arguments are those of `ImageFolder`.

    Until `teach` says who answers, it has no classes. Raises UserError for a folder without images.
    """

    name = "unlabelled"

    def list_splits(self) -> tuple[tuple[str, ...], dict[str, Files]]:
        files = list_images(self.path, recursive=True) if self.path.is_dir() else []
        if not files:
            raise UserError(f"data.path={self.path} is no folder with images", "data.path")
        parts = divided({"all": (files, torch.zeros(len(files), dtype=torch.long))}, self.path)
        return (), {part: (chosen, torch.full_like(labels, NO_LABEL)) for part, (chosen, labels) in parts.items()}

    def teach(self, teacher: Teacher) -> None:
        super().teach(teacher)
        if teacher.options.of == "scores":
            self.class_names = teacher.class_names or tuple(map(str, range(teacher.width)))
            self.num_classes = len(self.class_names)

    def _check(self, split: Split) -> None:
        """There is no label to check."""
