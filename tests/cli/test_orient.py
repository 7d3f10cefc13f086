"""gcsa orient: a row for every image, upright copies that lose nothing, one sentence for every bad image."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gcsa.tasks.recognition.pages import orientation, upright as upright_pages
from gcsa.tasks.recognition.pages.orientation import Orientation

from .conftest import Run

DEGREES = {"a.png": 0, "b.png": 90, "c.tif": 180, "d.jpg": 270, "e.png": 0}


@pytest.fixture
def upright() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (40, 30)).astype(np.uint8)


@pytest.fixture
def scans(tmp_path: Path, upright: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pages in four orientations and a blank one, with a stand-in for the network that finds the corner with the darkest pixels."""
    (tmp_path / "scans").mkdir()
    upright[:8, :8] = 0
    for name, degrees in DEGREES.items():
        pixels = np.rot90(upright, degrees // 90) if name != "e.png" else np.full((40, 30), 200, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "scans" / name, quality=100, dpi=(300, 300))

    def find(levels: np.ndarray) -> Orientation:
        darkest = [np.rot90(levels, -k)[:8, :8].mean() for k in range(4)]
        best = int(np.argmin(darkest))
        return Orientation(90 * best, tuple(0.97 if k == best else 0.01 for k in range(4)), bool(levels.std() < 1))

    monkeypatch.setattr(upright_pages, "find_orientation", find)
    return tmp_path / "scans"


def test_a_row_for_every_image(run: Run, scans: Path) -> None:
    code, out, err = run("orient", scans)
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["file"] for row in rows] == [str(scans / name) for name in DEGREES]
    assert [row["orientation"] for row in rows] == ["0", "90", "180", "270", ""]
    assert [row["probability"] for row in rows] == ["0.970000"] * 4 + [""]
    assert [row["blank"] for row in rows] == ["no"] * 4 + ["yes"]
    assert [row["doubtful"] for row in rows] == ["no"] * 5
    assert rows[4]["skew"] == ""
    assert run("orient", scans, "--output", "o.json") == (0, "o.json: 5 images\n", "")
    found = json.loads(Path("o.json").read_text())
    assert [row["orientation"] for row in found] == [0, 90, 180, 270, None]


def test_a_name_that_is_not_utf8_is_escaped(run: Run, scans: Path) -> None:
    (scans / "a.png").rename(scans / os.fsdecode(b"\xff.png"))
    code, out, err = run("orient", scans)
    assert (code, err) == (0, "")
    assert f"{scans}/\\udcff.png,0," in out
    assert run("orient", scans, "--output", "o.csv")[0] == 0
    assert Path("o.csv").read_text(encoding="utf-8") == out


def test_upright_copies_lose_nothing(run: Run, scans: Path, upright: np.ndarray) -> None:
    assert run("orient", scans, "--fix", "fixed", "--output", "o.csv")[0] == 0
    assert sorted(path.name for path in Path("fixed").iterdir()) == sorted([*DEGREES, "gcsa_orient.ledger"])
    for name in ("a.png", "e.png"):
        assert Path("fixed", name).read_bytes() == (scans / name).read_bytes()
    for name in ("b.png", "c.tif"):
        with Image.open(Path("fixed", name)) as image:
            assert np.array_equal(np.asarray(image), upright)
            assert image.info["dpi"][0] == pytest.approx(300, abs=0.1)
    assert np.abs(np.asarray(Image.open("fixed/d.jpg")).astype(int) - upright).mean() < 4


def test_what_would_lose_bits_is_refused(run: Run, scans: Path) -> None:
    deep = Image.fromarray((np.rot90(np.arange(1200).reshape(40, 30)) * 50).astype(np.uint16))
    deep.save(scans / "f.png")
    Image.open(scans / "b.png").save(scans / "g.gif")
    (scans / "h.png").write_bytes(b"no picture")
    code, out, err = run("orient", scans, "--fix", "fixed")
    assert code == 1
    assert "2 of 8 could not be made upright" in err
    assert "g.gif is GIF, which --fix does not write" in err
    assert "h.png" in err
    assert "g.gif" not in out
    assert not Path("fixed/g.gif").exists()
    with Image.open("fixed/f.png") as image:
        assert image.mode.startswith("I")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "o.txt"], "--output o.txt must end in .csv or .json"),
        (["--fix", "@"], "would be overwritten: name another folder"),
        (["--fix", "@/a.png"], "is a file: name a folder"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, run: Run, scans: Path) -> None:
    before = {path.name: path.read_bytes() for path in scans.iterdir()}
    code, out, err = run("orient", scans, *(argument.replace("@", str(scans)) for argument in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert {path.name: path.read_bytes() for path in scans.iterdir()} == before


def test_two_files_of_one_name_are_refused_before_any_is_written(run: Run, scans: Path) -> None:
    (scans / "more").mkdir()
    Image.open(scans / "a.png").save(scans / "more/a.png")
    code, _, err = run("orient", scans, "--fix", "fixed")
    assert code == 2
    assert "have one name" in err
    assert not Path("fixed").exists()


def test_the_first_picture_of_a_phone(run: Run, scans: Path, upright: np.ndarray) -> None:
    """MPO: a JPEG with more pictures behind it."""
    rotated = Image.fromarray(np.rot90(upright)).convert("RGB")
    for path in scans.iterdir():
        path.unlink()
    rotated.save(
        scans / "p.jpg", format="MPO", save_all=True, append_images=[Image.new("RGB", rotated.size)], quality=100
    )
    assert run("orient", scans, "--fix", "fixed", "--output", "o.csv")[0] == 0
    with Image.open(Path("fixed", "p.jpg")) as fixed:
        assert fixed.format == "JPEG"
        assert np.abs(np.asarray(fixed.convert("L")).astype(int) - upright).mean() < 5


@pytest.fixture
def unsure(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network believes with a probability of 0.89 that every page lies upside down."""
    monkeypatch.setattr(
        upright_pages, "find_orientation", lambda grey: Orientation(180, (0.05, 0.03, 0.89, 0.03), False)
    )


@pytest.mark.usefixtures("unsure")
def test_a_doubtful_page_is_told_and_left_as_it_is(run: Run, scans: Path) -> None:
    code, out, err = run("orient", scans, "--fix", "fixed")
    assert code == 3
    assert f"{scans / 'b.png'}: look at it: 180 degrees with a probability of only 0.89, left as it is" in err
    assert "5 of 5 are doubtful" in err
    assert [row["doubtful"] for row in csv.DictReader(out.splitlines())] == ["yes"] * 5
    for name in DEGREES:
        assert Path("fixed", name).read_bytes() == (scans / name).read_bytes()


@pytest.mark.usefixtures("unsure")
def test_a_doubtful_page_is_rotated_on_demand(run: Run, scans: Path) -> None:
    code, _, err = run("orient", scans, "--fix", "fixed", "--fix-doubtful")
    assert code == 3
    assert "left as it is" not in err
    with Image.open("fixed/b.png") as fixed, Image.open(scans / "b.png") as scan:
        assert np.array_equal(np.asarray(fixed), np.rot90(np.asarray(scan), 2))


def test_a_bad_image_counts_more_than_a_doubtful_page(run: Run, scans: Path, unsure: None) -> None:
    (scans / "h.png").write_bytes(b"no picture")
    assert run("orient", scans)[0] == 1


@pytest.mark.parametrize("option", ["--deskew", "--fix-doubtful"])
def test_what_needs_copies(option: str, run: Run, scans: Path) -> None:
    code, _, err = run("orient", scans, option)
    assert code == 2
    assert f"{option} is about copies: add --fix FOLDER" in err


def ruled(degrees: float) -> Image.Image:
    """A page with twenty lines of short strokes, rotated by `degrees` counter-clockwise, and then lying on its side."""
    page = np.full((420, 320), 200, np.uint8)
    for top in range(20, 400, 19):
        for left in range(20, 290, 9):
            page[top : top + 8, left : left + 5] = 20
    return (
        Image.fromarray(page)
        .rotate(degrees, Image.Resampling.BICUBIC, fillcolor=200)
        .transpose(Image.Transpose.ROTATE_90)
    )


@pytest.mark.parametrize("mode", ["L", "RGB", "1", "P", "I;16"])
def test_deskew_makes_lines_level(mode: str, run: Run, scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upright_pages, "find_orientation", lambda grey: Orientation(90, (0.0, 1.0, 0.0, 0.0), False))
    for path in scans.iterdir():
        path.unlink()
    page = ruled(4.0)
    page = (
        Image.fromarray(np.asarray(page).astype(np.uint16) * 200)
        if mode == "I;16"
        else page.convert(mode, dither=Image.Dither.NONE)
    )
    page.save(scans / "a.png", dpi=(300, 300))
    code, out, _ = run("orient", scans, "--fix", "fixed", "--deskew")
    assert code == 0
    (row,) = csv.DictReader(out.splitlines())
    assert float(row["skew"]) == pytest.approx(4.0, abs=0.2)
    with Image.open("fixed/a.png") as fixed:
        assert fixed.mode == {"P": "RGB"}.get(mode, mode)
        assert fixed.info["dpi"][0] == pytest.approx(300, abs=0.1)
        assert fixed.width < fixed.height
        level = np.asarray(fixed.convert("L") if mode != "I;16" else fixed).astype(float)
        assert level[2, 2] == pytest.approx(level[2, -3], abs=2), "the corners have the colour of the paper"
    monkeypatch.setattr(upright_pages, "find_orientation", lambda grey: Orientation(0, (1.0, 0.0, 0.0, 0.0), False))
    _, out, _ = run("orient", "fixed/a.png")
    assert abs(float(next(csv.DictReader(out.splitlines()))["skew"])) <= 0.2


@pytest.mark.usefixtures("unsure")
def test_a_doubtful_page_keeps_its_skew(run: Run, scans: Path) -> None:
    for path in scans.iterdir():
        path.unlink()
    ruled(4.0).save(scans / "a.png")
    assert run("orient", scans, "--fix", "fixed", "--deskew")[0] == 3
    assert Path("fixed/a.png").read_bytes() == (scans / "a.png").read_bytes()


def test_copies_of_another_network_are_not_taken_for_done(
    run: Run, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another version of gcsa brings one."""
    assert run("orient", scans, "--fix", "fixed", "--output", "o.csv")[0] == 0
    code, _, err = run("orient", scans, "--fix", "fixed", "--output", "o.csv")
    assert code == 0
    assert "5 of 5 are done already" in err
    monkeypatch.setattr(orientation, "stored_scorer", lambda: orientation.OrientationScorer(8))
    code, _, err = run("orient", scans, "--fix", "fixed", "--output", "o.csv")
    assert code == 2
    assert "made with other weights" in err
