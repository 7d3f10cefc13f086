"""The kinds of work that train.py can do, one file each; what a task is stands in `gcsa.training.task`."""

from gcsa.training.task import Task


def task_of(data: str) -> Task:
    """The task of the data set called `data`: text lines to be read, images to be segmented or classified.

    Imported here, so that classifying images needs nothing of the others.
    """
    if data == "lines":
        from gcsa.tasks.recognition import Recognition

        return Recognition()
    if data in ("nuclei", "mask_folder"):
        from gcsa.tasks.segmentation import SegmentationTask

        return SegmentationTask()
    from gcsa.tasks.classification import Classification

    return Classification()
