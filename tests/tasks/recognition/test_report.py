"""The report of a run: a row for each page, which a second run completes."""

import csv
from pathlib import Path

import pytest
from PIL import Image
from rich.progress import Task

from gcsa.batch.pace import AMinute
from gcsa.batch.report import check_report
from gcsa.cli.transcribe import main
from tests.errors import raises
from tests.tasks.recognition.test_page_text import write_page


def rows(report: Path) -> list[dict[str, str]]:
    with report.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_second_run_completes_it(weights: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    write_page(folder, tmp_path / "pages")
    bad, out, report = tmp_path / "pages" / "0.xml", tmp_path / "out", tmp_path / "out" / "report.csv"
    bad.write_text("<PcGts><Page>")
    arguments = [str(weights), str(tmp_path / "pages"), "--output", f"{out}/", "--report", str(report)]
    assert main(arguments) == 1
    first, second = rows(report)
    assert (first["status"], "0.xml" in first["message"]) == ("failed", True)
    assert (first["lines"], second["lines"], second["low_confidence_lines"]) == ("0", "2", "1 2"), (
        "the weights are random"
    )
    bad.write_text((tmp_path / "pages" / "1.xml").read_text())
    assert main(arguments) == 0
    again, kept = rows(report)
    assert kept == second
    assert (Path(again["file"]), again["lines"], again["status"], again["message"]) == (bad, "2", "done", "")
    assert main([str(weights), str(folder / "0.png"), "--report", str(report)]) == 0, (
        "another run has a report of its own"
    )
    (line,) = rows(report)
    assert (line["lines"], line["seconds"]) == ("1", "")


def test_what_is_no_report_stays(tmp_path: Path) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "1.png")
    (tmp_path / "letter.txt").write_text("Dear,\n")
    for name, key in (("1.png", "report.is_input"), ("letter.txt", "report.other_file"), ("", "file.is_folder")):
        with raises(key):
            check_report(str(tmp_path / name), [tmp_path / "1.png"], [])
    check_report(str(tmp_path / "new" / "report.csv"), [], [])


@pytest.mark.parametrize(("output", "report"), [("text.csv", "text.csv"), ("out/", "out/0.txt"), ("out/", "out")])
def test_text_does_not_overwrite_it(
    output: str, report: str, weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(weights), str(folder / "0.png"), "--output", f"{tmp_path}/{output}"]
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--report", f"{tmp_path}/{report}"])
    assert "is where --output writes" in capsys.readouterr().err


def test_speed_is_shown_in_pages_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "speed", 0.05)
    task = Task(0, "", 10, 1, _get_time=lambda: 0.0)  # type: ignore[arg-type]
    assert str(AMinute().render(task)) == "3.0 a minute"
