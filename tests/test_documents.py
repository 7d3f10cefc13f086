"""benchmarks/report: tables from small results, and `--check` on a copy of the documents that somebody edited."""

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gcsa._utils.published import list_weights

ROOT = Path(__file__).parents[1]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of documents, results and the program, from which `report` is imported."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "benchmarks/results", tmp_path / "benchmarks/results")
    shutil.copytree(ROOT / "benchmarks/report", tmp_path / "benchmarks/report")
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "benchmarks")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "report"]:
        del sys.modules[name]


def program(name: str) -> ModuleType:
    return importlib.import_module(f"report.{name}")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1))


def test_check_names_what_was_edited_and_writing_repairs_it(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also figures and tables of other results than those beside them; what it writes is what the repository holds."""
    cell = program("training").systems().splitlines()[2].split(" | ")[4]
    edits = {
        "docs/imagenet.md": ("| A100 |", "| A1000 |"),
        "docs/measured/performers.md": (f"| {cell} |", "| 99.99 |"),
        "weights/gcsa_ocr_tiny.fr17/README.md": ("French", "Spanish"),
    }
    for name, (old, new) in edits.items():
        edit(copy / name, old, new)
    (copy / "docs/pictures/scaling.png").unlink()
    angles = "weights/gcsa_pooled_small.pcam/off_grid.png"
    (copy / angles).unlink()
    shifts = copy / "benchmarks/results/shifts.json"
    results = json.loads(shifts.read_text())
    results["mnist"]["curves"]["gcsa_tiny"]["accuracy"][0] = 0.5
    shifts.write_text(json.dumps(results))
    edited = {name: (copy / name).read_text() for name in edits}
    documents = program("documents")
    assert documents.main(["--check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "docs/measured/performers.md differs from the results: run python -m benchmarks.report" in lines
    figures = {*(f"docs/pictures/{name}.png" for name in ("scaling", "shifts_mnist")), angles}
    assert {line.split()[0] for line in lines} == {*edits, *figures}
    assert edited == {name: (copy / name).read_text() for name in edits}
    (copy / "weights/gcsa_ocr_tiny.fr17/README.md").unlink()
    shutil.copy(ROOT / "benchmarks/results/shifts.json", shifts)
    assert documents.main([]) == 0
    written = [*documents.DOCUMENTS, *(f"weights/{name}/README.md" for name in list_weights())]
    assert [name for name in written if (copy / name).read_text() != (ROOT / name).read_text()] == []
    assert (copy / "docs/pictures/scaling.png").is_file()
    assert (copy / angles).stat().st_size < 60_000


def test_every_published_folder_has_a_card(copy: Path) -> None:
    cards = program("cards")
    assert sorted(cards.CARDS) == list_weights()
    run = cards.load_run(cards.CARDS["gcsa_pooled_small.pcam"].run)
    assert f"the weights of epoch {run['best_epoch']}, " in cards.card("gcsa_pooled_small.pcam")


def off_grid_of(changed: float, reflections: float) -> dict[str, Any]:
    """What benchmarks/equivariance/off_grid.py writes, of two families."""

    def member(share: float) -> dict[str, float]:
        return {"changed": share, "accuracy": 0.9, "neighbour_kept": 1 - share}

    exact = {f"element {g}": member(0.0 if g < 4 else reflections) for g in range(1, 8)}
    angles = {"7.5 degrees": member(changed), "15 degrees": member(0.0)}
    families = {"exact": {"members": exact}, "angle": {"members": angles}}
    return {"data": "rotmnist", "images": 600, "accuracy": 0.9, "commit": "0123456789", "families": families}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("gcsa_tiny.rotmnist", "| rotations by 90 degrees | 0.0 % | 0.0 % | 100 % |"),
        ("gcsa_pooled_small.pcam", "| rotations by 90 degrees, reflections | 11.4 % | 20.0 % | 80 % |"),
    ],
)
def test_a_card_counts_reflections_only_where_the_network_knows_them(copy: Path, name: str, row: str) -> None:
    """Of a network of c8 they are not exact, and a reflected digit is another one."""
    (copy / f"benchmarks/results/off_grid/{name}.json").write_text(json.dumps(off_grid_of(0.3, reflections=0.2)))
    section = program("card_sections").off_grid_section(name)
    assert row in section.splitlines()
    assert "| other angles, each 7.5 degrees | 15.0 % | 30.0 % | 70 % |" in section.splitlines()
    assert "blur" not in section  # which was not measured
    assert section in program("cards").card(name)


def test_angles_of_a_card_are_in_order_and_hold_the_exact_ones(copy: Path) -> None:
    file = copy / "benchmarks/results/off_grid/gcsa_tiny.rotmnist.json"
    file.write_text(json.dumps(off_grid_of(0.3, reflections=0.2)))
    shares = program("card_sections").angle_shares("gcsa_tiny.rotmnist")
    assert list(shares.items()) == [(0, 0), (7.5, 0.3), (15, 0), (90, 0), (180, 0), (270, 0), (360, 0)]


def test_a_card_shows_pages_and_sizes_where_they_were_measured(copy: Path) -> None:
    cards = program("cards")
    reader, segmenter = cards.card("gcsa_ocr_tiny.print"), cards.card("gcsa_unet_tiny.nuclei")
    skewed = json.loads((copy / "benchmarks/results/pages/skewed.json").read_text())
    found, given = skewed["found"]["7"]["cer"], skewed["given"]["7"]["straightened"]
    assert f"| rotated by 7 degrees | {100 * found:.1f} % | {100 * given:.1f} % |" in reader
    scores = json.loads((copy / "benchmarks/results/scales/gcsa_unet_tiny.nuclei.json").read_text())["ap50"]
    views = ("0.5", "0.5, read with scale=2", "0.5, read with scale=auto")
    cells = [f"{100 * scores[view]['all']:.1f} %" for view in views]
    assert f"| 0.5 x | {' | '.join(cells)} |" in segmenter
    assert program("card_sections").sections("gcsa_ocr_tiny.fr17") == ""


def test_what_a_test_set_says(copy: Path) -> None:
    """Two seeds on 100 images: in bins of 60 and 40, a tenth too unsure and a tenth too sure."""
    bins = {"images": [60, 40], "probability": [0.5, 0.9], "accuracy": [0.6, 0.8]}
    runs = [{"test": {"images": 100, "accuracy": share, "auroc": None, "reliability": bins}} for share in (0.7, 0.9)]
    cells = program("training").test_cells
    assert cells(runs) == ["80.0 ± 14.1", "71.1 to 86.7", "", "10.0 ± 0.0", ""]
    runs[0]["test"] |= {"auroc": 0.95, "changed_by_turns": 0.25}
    assert cells(runs[:1]) == ["70.0", "60.4 to 78.1", "95.0", "10.0", "25.0"]
    assert cells([*runs, {}]) == [""] * 5  # of all seeds or of none


def wrong_of(*seeds: list[int]) -> list[dict[str, Any]]:
    """Runs of seeds 0, 1, ... that got these test images wrong."""
    return [{"seed": seed, "test": {"wrong": wrong}} for seed, wrong in enumerate(seeds)]


def test_a_paired_test_of_one_seed_counts_the_images_that_one_of_two_gets_wrong(copy: Path) -> None:
    paired = program("training").paired
    ours, other = wrong_of([0, 1]), wrong_of([1, 2, 3, 4, 5, 6, 7])
    assert paired(other, ours) == f"{2 * (1 + 7) / 2**7:.2g}"  # of seven images, one or fewer, on either side
    assert paired(wrong_of([1, 0]), ours) == "1"
    assert paired(ours, ours) == paired([{"seed": 0}], ours) == paired([{**other[0], "seed": 1}], ours) == ""


def test_a_paired_test_of_seeds_has_one_sign_for_each_image(copy: Path) -> None:
    paired = program("training").paired
    ours, other = wrong_of([7], []), wrong_of([1, 2, 3], [1, 2])
    # Differences of 2, 2, 1 and -1: the sum is 4 or more for ++++, +++-, ++-+, and as often -4 or less.
    assert paired(other, ours) == f"{6 / 2**4:.2g}"
    assert paired(other, ours[:1]) == f"{2 * (1 + 4) / 2**4:.2g}"  # of the seed that both have


def test_the_readme_stays_short(copy: Path) -> None:
    assert len((copy / "README.md").read_text().split()) <= 1200


@pytest.mark.parametrize("name", ["learning_systems", "speed", "equivariance"])
def test_a_page_of_results_leads_with_one_short_table_and_one_figure(name: str) -> None:
    lead = (ROOT / f"docs/measured/{name}.md").read_text().partition("## Appendix")[0]
    assert (lead.count("<!-- results: "), lead.count("![")) == (1, 1)
    assert sum(line.startswith("|") for line in lead.splitlines()) <= 2 + 10


def test_a_missing_marker_is_named(copy: Path) -> None:
    documents = program("documents")
    edit(copy / "docs/measured/speed.md", "<!-- results: tax -->", "")
    with pytest.raises(ValueError, match="'<!-- results: tax -->' once"):
        documents.update((copy / "docs/measured/speed.md").read_text(), documents.DOCUMENTS["docs/measured/speed.md"])
