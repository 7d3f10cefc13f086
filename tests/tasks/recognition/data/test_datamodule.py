from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from gcsa.tasks.recognition.data.augment import LineAugment
from gcsa.tasks.recognition.data.batches import LineBatch, LineSet, WidthSampler, steps_needed
from gcsa.tasks.recognition.data.charset import Charset, display_order
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from gcsa.tasks.recognition.data.line_image import Line
from tests.errors import raises

MILD = {
    "shear": 4,
    "scale": 0.1,
    "shift": 0.05,
    "stroke": 0.5,
    "blur": 0.5,
    "contrast": 0.2,
    "noise": 0.1,
    "bend": 0.05,
    "fade": 0.3,
    "bleed": 0.3,
}


def write(folder: Path, splits: str = "train " * 12 + "val val test", text: str = "word {}") -> Path:
    """Lines of four widths; a line's number is its text."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["split\tfile\tdocument"]
    for number, split in enumerate(splits.split()):
        grey = np.full((20, 60 + 20 * (number % 4)), 255, np.uint8)
        grey[5:9, 4 : 14 + number] = 0
        Image.fromarray(grey).save(folder / f"{number}.png")
        (folder / f"{number}.gt.txt").write_text(text.format(number), encoding="utf-8")
        rows.append(f"{split}\t{number}.png\tbook")
    (folder / "manifest.tsv").write_text("\n".join(rows))
    return folder


def module(folder: Path, stage: str | None = "fit", **kwargs: Any) -> LinesDataModule:
    data = LinesDataModule(path=folder, batch_size=2, **kwargs)
    data.setup(stage)
    return data


def equal(left: LineBatch, right: LineBatch) -> bool:
    return left.texts == right.texts and all(map(torch.equal, left[:3], right[:3]))


def test_a_batch_has_one_width_and_its_texts_as_classes(tmp_path: Path) -> None:
    data = module(write(tmp_path))
    assert data.charset == Charset(" 0123456789dorw")
    texts, widths = [], set()
    for batch in data.train_dataloader():
        count, channels, height, width = batch.images.shape
        assert (channels, height, width % 8) == (1, 40, 0)
        assert batch.images.dtype == torch.float32
        assert (batch.images.min(), batch.images.max()) == (0, 1)
        assert count == len(batch.lengths) == len(batch.texts) <= 2
        parts = batch.targets.split(batch.lengths.tolist())
        assert [data.charset.decode(part.tolist()) for part in parts] == batch.texts
        texts += batch.texts
        widths.add(width)
    assert sorted(texts) == sorted(f"word {i}" for i in range(12))
    assert widths == {120, 160, 200, 240}


def test_the_first_epoch_goes_from_short_to_long(tmp_path: Path) -> None:
    def widths(short_first: bool, epoch: int) -> list[int]:
        loader = module(write(tmp_path), short_first=short_first).train_dataloader()
        loader.set_epoch(epoch)
        return [batch.images.shape[-1] for batch in loader]

    assert widths(True, 0) == sorted(widths(True, 0))
    assert widths(True, 1) != sorted(widths(True, 1))
    assert widths(False, 0) != sorted(widths(False, 0))
    assert widths(True, 1) == widths(False, 1)


def test_batches_depend_on_seed_and_epoch_only(tmp_path: Path) -> None:
    folder = write(tmp_path)
    first, again, other = (module(folder, seed=seed, augment=MILD).train_dataloader() for seed in (1, 1, 2))
    batches = list(first)
    torch.manual_seed(9)
    assert all(map(equal, batches, again))
    assert [batch.texts for batch in other] != [batch.texts for batch in batches]
    first.set_epoch(1)
    assert [batch.texts for batch in first] != [batch.texts for batch in batches]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_loader_continues_where_it_was(tmp_path: Path, epoch: int, num_workers: int) -> None:
    folder = write(tmp_path)
    whole = module(folder, augment=MILD).train_dataloader()
    whole.set_epoch(epoch)
    batches = iter(whole)
    for _ in range(3):
        next(batches)
    state = whole.state_dict()
    rest = list(batches)
    resumed = module(folder, augment=MILD, num_workers=num_workers).train_dataloader()
    resumed.load_state_dict(state)
    resumed.set_epoch(epoch)
    continued = list(resumed)
    assert len(continued) == len(rest) == len(whole) - 3
    assert all(map(equal, continued, rest))
    other = module(folder, seed=5).train_dataloader()
    other.load_state_dict(state)
    other.set_epoch(epoch)
    with raises("checkpoint.order"):
        next(iter(other))


@pytest.mark.parametrize("world", [2, 3])
def test_processes_together_see_every_line_in_equally_many_batches(world: int) -> None:
    widths = torch.randint(10, (101,)).tolist()
    ranks = [WidthSampler(widths, 4, shuffle=True, seed=1, rank=r, world_size=world) for r in range(world)]
    shares = [list(sampler) for sampler in ranks]
    assert {len(share) for share in shares} == {len(sampler) for sampler in ranks}
    for draws in zip(*shares, strict=True):
        assert len({widths[row] for draw in draws for row in draw.rows}) == 1, "and of one width at a time"
        assert all(draw.rows for draw in draws)
        assert len({draw.key for draw in draws}) == world
    assert {row for share in shares for draw in share for row in draw.rows} == set(range(101))


def test_texts_that_ctc_cannot_align_are_left_out_of_training_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert [steps_needed(classes) for classes in ([], [1, 2], [1, 1, 2], [1, 1, 1])] == [0, 2, 4, 5]
    folder = write(tmp_path)
    for number, letters in ((0, "ab" * 15), (4, "ab" * 15 + "a"), (8, "aa" * 11), (12, "a" * 90)):  # 30 steps; val
        (folder / f"{number}.gt.txt").write_text(letters)
    data = module(folder)
    texts = {line.text for line in data.lines("train").lines}
    assert len(texts) == 10
    assert "ab" * 15 in texts
    assert "2 of 12 training lines hold more text" in caplog.text
    assert len(data.lines("val")) == 2


def test_unknown_characters_stay_in_the_reference(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path)
    (folder / "12.gt.txt").write_text("wor✠✠", encoding="utf-8")
    data = module(folder)
    assert (
        "the val split holds characters outside the charset: '✠' (U+2720 MALTESE CROSS) 2x. No training line has them"
        in caplog.text
    )
    batch = next(batch for batch in data.val_dataloader() if "wor✠✠" in batch.texts)
    assert data.charset.decode(batch.targets.tolist()) == "wor"


@pytest.mark.parametrize("given", ["xyz", Charset("xyz")])
def test_a_charset_is_continued(tmp_path: Path, given: Charset | str) -> None:
    data = LinesDataModule(path=write(tmp_path), charset=given)
    assert data.charset.characters == "xyz 0123456789dorw"


def test_the_test_split_is_read_for_the_test_only(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "14.png").write_bytes(b"")
    (folder / "14.gt.txt").write_text("")
    data = module(folder)
    with raises("split.not_read"):
        data.test_dataloader()
    with raises("lines.empty_text"):
        data.setup("test")
    (folder / "14.gt.txt").write_text("word")
    with raises("image.unreadable"):
        data.setup("test")
    write(tmp_path)
    data.setup("test")
    assert [batch.texts for batch in data.test_dataloader()] == [["word 14"]]


@pytest.mark.parametrize(("limit", "count"), [(3, 3), (0.5, 6)])
def test_a_share_of_the_lines(tmp_path: Path, limit: float, count: int) -> None:
    lines = module(write(tmp_path), limit_train=limit).lines("train").lines
    assert len({line.text for line in lines}) == count
    assert lines == module(tmp_path, limit_train=limit).lines("train").lines


def test_an_image_in_two_splits_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path)
    module(folder)
    assert not any("are in train" in message for message in caplog.messages)
    (folder / "14.png").write_bytes((folder / "3.png").read_bytes())
    module(folder)
    assert any(message.startswith("1 images of test are in train, too") for message in caplog.messages)
    with raises("split.leaks"):
        module(folder, leaks="refuse")


def test_bad_lines_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path)
    Image.new("L", (20000, 40), "white").save(folder / "3.png")
    with raises("line.too_wide"):
        module(folder)
    Image.new("L", (200, 40), "white").save(folder / "3.png")
    with raises("line.blank"):
        module(folder)
    write(tmp_path, "train train test")
    with raises("lines.none"):
        module(tmp_path)
    write(tmp_path, "train train val", text="x" * 200)
    with raises("lines.too_long"):
        module(tmp_path)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "data.script_or_path"),
        ({"path": "x", "script": "y"}, "data.script_or_path"),
        ({"path": "x", "height": 42}, "height.step"),
        ({"path": "x", "limit_train": 0}, "limit_train"),
        ({"path": "x", "charset": "aa"}, "charset.twice"),
        ({"path": "x", "augment": {"turn": 1}}, "augment.unknown_option"),
        ({"path": "x", "augment": {"shear": 90}}, "augment.shear"),
    ],
)
def test_bad_arguments(options: dict[str, Any], key: str) -> None:
    with raises(key):
        LinesDataModule(**options)


def test_scripts(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="GCSA_DATA"):
        LinesDataModule(root=tmp_path, script="latin").setup("fit")
    write(tmp_path / "ocr_lines" / "latin")
    LinesDataModule(root=tmp_path, script="latin").setup("fit")
    with raises("data.script"):
        LinesDataModule(root=tmp_path, script="greek").setup("fit")
    with raises("limit_train.too_many"):
        module(tmp_path / "ocr_lines" / "latin", limit_train=13)


def test_augmentation_is_mild_and_a_function_of_its_generator() -> None:
    lines = torch.zeros(4, 1, 40, 120)
    lines[:, :, 15:25, 10:110] = 1

    def augmented(seed: int = 0, **options: float) -> torch.Tensor:
        return LineAugment(**options)(lines, torch.Generator().manual_seed(seed))

    assert torch.equal(augmented(), lines)
    assert torch.equal(augmented(**MILD), augmented(**MILD))
    assert not torch.equal(augmented(**MILD), augmented(1, **MILD))
    for option, amount in MILD.items():
        changed = augmented(**{option: amount})
        assert changed.shape == lines.shape
        assert 0 <= changed.min() <= changed.max() <= 1
        difference = (changed - lines).abs().mean((1, 2, 3))
        assert (difference > 0).all(), f"{option} changes every line"
        assert (difference < 0.1).all(), f"{option} leaves it readable"
        assert len(set(difference.tolist())) == 4, f"{option} differs from line to line"


def test_some_lines_upside_down() -> None:
    lines = torch.rand(64, 1, 8, 24)
    turned = LineAugment(upside_down=0.5)(lines, torch.Generator().manual_seed(0))
    kinds = [
        (torch.equal(new, old), torch.equal(new, torch.rot90(old, 2, (1, 2))))
        for new, old in zip(turned, lines, strict=True)
    ]
    assert {(True, False), (False, True)} == set(kinds)
    assert 20 < sum(upright for upright, _ in kinds) < 44


def test_texts_are_also_set_in_fonts(tmp_path: Path) -> None:
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    folder = write(tmp_path / "lines", text="word w\u017fe {}")
    data = LinesDataModule(path=folder, fonts=fonts, seed=3)
    data.setup("fit")
    scans, everything = module(folder), data.lines("train")
    scans.setup("fit")
    assert len(everything) == 24
    for image, scan in zip(everything.images, scans.lines("train").images, strict=False):
        assert torch.equal(image, scan)
    texts = [line.text for line in everything.lines[12:]]
    assert all("\u017f" not in text for text in texts), "today's letters"
    assert sum(text.endswith(f"wse {number}") for number, text in enumerate(texts)) >= 5
    again = LinesDataModule(path=folder, fonts=fonts, seed=3)
    assert again.charset == data.charset, "a resumed run has the same classes"
    assert len(data.lines("val")) == len(scans.lines("val"))
    with raises("fonts.none"):
        LinesDataModule(path=folder, fonts=folder)


def test_targets_are_in_display_order() -> None:
    """With the brackets that are printed; one that the charset lacks is left out."""
    texts = ["\u05d0 (\u05d1", "\u05d0) \u05d1"]
    images = [torch.zeros(1, 40, 80, dtype=torch.uint8)] * 2
    charset = Charset("").extended(map(display_order, texts[:1]))
    lines = LineSet(images, [Line(Path("1.png"), text) for text in texts], charset)
    assert [charset.decode(target) for target in lines.targets] == ["\u05d1) \u05d0", "\u05d1 \u05d0"]
