from pathlib import Path

import matplotlib
import pytest

from gcsa.tasks.recognition.data.typeset import list_fonts, set_lines
from tests.errors import raises

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def test_fonts_set_what_they_have_letters_for() -> None:
    fonts = [font for font in list_fonts(FONTS) if font.name == "DejaVuSerif.ttf"]
    texts = ["qu\u2019il \u017foit heu¬", "\u4e2d \u6587 \u4e2d"]
    ((text, image),) = set_lines(texts, fonts, seed=0)
    assert text == "qu\u2019il soit heu¬"
    assert image.mode == "L"
    assert image.width > 4 * image.height
    ((_, again),) = set_lines(texts, fonts, seed=0)
    ((_, other),) = set_lines(texts, fonts, seed=5)
    assert again.tobytes() == image.tobytes() != other.tobytes()
    with raises("fonts.none"):
        list_fonts(Path(__file__).parent)


def test_fonts_do_not_set_right_to_left_texts(caplog: pytest.LogCaptureFixture) -> None:
    fonts = [font for font in list_fonts(FONTS) if font.name == "DejaVuSans.ttf"]
    texts = ["\u0643\u062a\u0627\u0628", "left to right", "a \u05d0"]
    assert len(list(set_lines(texts, fonts, seed=0))) == 1
    assert "2 of 3 texts hold right-to-left letters and are not set in fonts" in caplog.text
    with raises("fonts.right_to_left"):
        list(set_lines(texts[::2], fonts, seed=0))


@pytest.mark.parametrize("keep", [0, 3, 2000])
def test_a_damaged_font_is_named(tmp_path: Path, keep: int) -> None:
    font = tmp_path / "bad.ttf"
    font.write_bytes((FONTS / "DejaVuSans.ttf").read_bytes()[:keep])
    with raises("fonts.unreadable"):
        list(set_lines(["a text"], [font], seed=0))
