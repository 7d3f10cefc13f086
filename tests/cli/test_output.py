"""Text for the screen, whose reader may leave."""

import io
import os

import pytest

from gcsa.cli.output import SCREEN, warn_out_of_distribution, warn_slides_out_of_distribution, written


def test_a_reader_that_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with io.TextIOWrapper(os.fdopen(write_end, "wb"), encoding="ascii") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        with pytest.raises(SystemExit) as stop, written(SCREEN) as file:
            file.write("\N{LATIN SMALL LETTER E WITH ACUTE}\n" * 100_000)
        assert stop.value.code == 1


def test_images_that_are_unlike_those_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, which names the worst; nothing where no image is, or where the weights do not tell."""
    warn_out_of_distribution([("a.png", 0.9), ("b.png", None)])
    assert capsys.readouterr().err == ""
    warn_out_of_distribution([("a.png", 0.9), *((f"{i}.png", 1.5 + i) for i in range(7))])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "warning: 7 of 8 images are unlike those of training (OOD score above 1): 6.png (7.5), 5.png (6.5)"
    )
    assert "2.png (3.5) and 2 more; look" in line


def test_slides_that_are_unlike_the_images_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    """More than half of the patches count."""
    assert not warn_slides_out_of_distribution([("a.svs", 10, 5), ("b.svs", 10, None)])
    assert capsys.readouterr().err == ""
    assert warn_slides_out_of_distribution([("a.svs", 10, 5), ("b.svs", 2000, 1200), ("c.svs", 3, 3)])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: 2 of 3 slides are for the most part unlike")
    assert "c.svs (100% of 3 patches), b.svs (60% of 2,000 patches); look" in line
