"""benchmarks/dense/stardist_peer.py: what it measures of label maps that another package drew."""

from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.dense.stardist_peer import POSES, measure, turned, upright


def test_poses_are_turned_back() -> None:
    picture = np.arange(24).reshape(4, 6)
    shown = {turned(picture, pose).tobytes() for pose in POSES}
    assert len(shown) == len(POSES)
    assert all(np.array_equal(upright(turned(picture, pose), pose), picture) for pose in POSES)


def test_what_changes_in_one_pose_is_counted(tmp_path: Path) -> None:
    drawn = np.zeros((32, 32), np.uint8)
    drawn[2:10, 2:10], drawn[20:30, 12:22] = 1, 2
    other = drawn.copy()
    other[20:30, 12] = 0
    for folder, name in ((tmp_path / "nuclei/test/images", "a.png"), (tmp_path / "nuclei/test/masks", "a.png")):
        folder.mkdir(parents=True)
        Image.fromarray(drawn).save(folder / name)
    for pose in POSES:
        Image.fromarray(other if pose == 3 else drawn).save(tmp_path / f"a_{pose}.png")
    result = measure(tmp_path, tmp_path / "nuclei")
    assert result["upright"]["ap50"] == result["turned"]["ap90"] == 1
    assert {key: result["turned"][key] for key in ("pixels", "of_pixels", "objects", "of_objects")} == {
        "pixels": 10,
        "of_pixels": 7 * 32 * 32,
        "objects": 2,
        "of_objects": 7 * 4,
    }
