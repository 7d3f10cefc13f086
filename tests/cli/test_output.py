"""Text for the screen, whose reader may leave."""

import io
import os

import pytest

from gcsa.cli.output import SCREEN, written


def test_a_reader_that_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with io.TextIOWrapper(os.fdopen(write_end, "wb"), encoding="ascii") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        with pytest.raises(SystemExit) as stop, written(SCREEN) as file:
            file.write("\N{LATIN SMALL LETTER E WITH ACUTE}\n" * 100_000)
        assert stop.value.code == 1
