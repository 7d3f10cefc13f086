"""Errors on the command line: which are the user's, and where the traceback of the others is."""

import json
import os
import re
import runpy
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError
from gcsa.cli import errors
from gcsa.cli.composition import composition_errors
from gcsa.cli.errors import tell_failed, user_errors
from gcsa.groups import group

from .conftest import Run


def stopped(
    run: Callable[[], object], capsys: pytest.CaptureFixture[str], folder: Path | None = None
) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit_, user_errors(folder):
        run()
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"error: [^\n]*\n", err)
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, err


def test_what_gcsa_refuses_is_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = stopped(lambda: group("z4"), capsys, tmp_path)
    assert code == 2
    assert "z4" in err
    assert os.listdir(tmp_path) == []


def test_what_the_system_refuses_is_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = stopped(lambda: Path("/proc/run").mkdir(), capsys)
    assert (code, err) == (
        2,
        "error: cannot use /proc/run (No such file or directory): check that path, or name another\n",
    )


def broken_value() -> None:
    """A ValueError of Python within gcsa: a stride that is no number."""
    from gcsa.export.formats import stride_of

    class Model:
        size_divisor = "eight"

    stride_of(Model())  # type: ignore[arg-type]


def unprintable() -> None:
    """With the name of a file that is not UTF-8."""
    raise ZeroDivisionError("\udcff.png")


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (lambda: {}["key"], "KeyError"),
        (lambda: [].colour, "AttributeError"),  # type: ignore[attr-defined]
        (lambda: 1 + "1", "TypeError"),  # type: ignore[operator]
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: int("one"), "ValueError"),
        (lambda: json.loads("{"), "JSONDecodeError"),
        (broken_value, "ValueError"),
        (unprintable, "ZeroDivisionError"),
    ],
)
def test_the_traceback_of_the_unexpected_is_kept(
    run: Callable[[], object], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = stopped(run, capsys, tmp_path)
    assert code == 1
    assert err.startswith(f"error: {kind}: ")
    assert err.endswith(f"(unexpected: please report the traceback in {tmp_path / 'error.log'})\n")
    kept = (tmp_path / "error.log").read_text()
    assert "Traceback (most recent call last)" in kept
    assert kind in kept.splitlines()[-1]


def test_it_is_in_the_temporary_folder_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _, err = stopped(lambda: {}["key"], capsys)
    (file,) = tmp_path.iterdir()
    assert f"the traceback in {file})" in err
    assert "KeyError: 'key'" in file.read_text()


def test_it_is_printed_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/none")
    with pytest.raises(SystemExit), user_errors():
        raise KeyError("key")
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1] == "error: KeyError: 'key' (unexpected: please report the traceback above)"


def test_an_interrupt_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert stopped(interrupt, capsys) == (130, "error: interrupted\n")


@pytest.mark.parametrize("error", [KeyError, ValueError, KeyboardInterrupt])
def test_the_error_itself_on_request(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "TRACEBACK_WANTED", True)
    with pytest.raises(error), user_errors():
        raise error


@pytest.mark.parametrize("wish", ["1", "0"])
def test_the_request_reaches_the_processes_that_a_command_starts(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then, Hydra's own variable is overwritten."""
    monkeypatch.delenv(errors.WISH, raising=False)
    monkeypatch.setenv(errors.FULL_ERROR, wish)
    runpy.run_path(str(errors.__file__))
    with composition_errors():
        in_child = runpy.run_path(str(errors.__file__))
    assert in_child["TRACEBACK_WANTED"] == (wish == "1")


def test_an_adapter_without_peft(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcsa._utils.importing.find_spec", lambda name: None)
    Image.new("L", (64, 32), 255).save("line.png")
    code, _, err = run("transcribe", "gcsa_ocr_tiny.print", "gcsa_ocr_tiny.print.la09", "line.png")
    assert (code, err) == (2, "error: an adapter needs PEFT, which is not installed: pip install gcsa-vit[lora]\n")


def test_sigterm_is_told_and_takes_half_written_files_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write() -> None:
        with replacing(tmp_path / "table.csv") as part:
            part.write_text("half")
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    assert stopped(write, capsys) == (143, "error: ended by SIGTERM\n")
    assert os.listdir(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_names_do_not_reach_the_terminal_as_commands(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise UserError("there is no \x1b[31mred\x07.png, \udcff.png or é.png")

    assert stopped(refuse, capsys) == (2, "error: there is no \\x1b[31mred\\x07.png, \\udcff.png or é.png\n")
    tell_failed(["\x1b]0;title.png cannot be read"], 2, "read")
    assert capsys.readouterr().err == "1 of 2 could not be read:\n  \\x1b]0;title.png cannot be read\n"
