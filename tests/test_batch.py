"""The one loop over files: it goes on after a bad one, and ends where it is asked to."""

import errno
import hashlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gcsa import batch
from gcsa._utils.errors import Terminated, UserError

ERRORS = {
    "a.png": UserError("a.png is empty"),
    "b.png": ValueError("no\nname"),
    "c.png": MemoryError(),
    "d.png": RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    "e.png": FileNotFoundError(errno.ENOENT, "No such file", "e.png"),
}


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of a program in the foreground, and that a run gives them back: a shell that starts the tests in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.set_wakeup_fd(-1) == -1
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_bad_item_is_named_at_once_and_the_others_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def do(name: str, pace: batch.Pace) -> str:
        said.append(capsys.readouterr().err)
        if name in ERRORS:
            raise ERRORS[name]
        return name.upper()

    def write(name: str, result: str, seconds: float) -> None:
        if result == "Y.PNG":
            raise UserError("y.png could not be written")
        written.append(result)

    written: list[str] = []
    outcome = batch.run([*ERRORS, "x.png", "y.png", "z.png"], batch.one_by_one(do), write, smaller="cut it")
    assert said[1:6] == [f"{line}\n" for line in outcome.failed[:5]]
    assert outcome.failed == [
        "a.png is empty",
        "b.png: no name",
        "c.png: not enough memory: cut it",
        "d.png: not enough memory: cut it",
        "[Errno 2] No such file: 'e.png'",
        "y.png could not be written",
    ]
    assert written == ["X.PNG", "Z.PNG"]
    assert outcome.tell("read") == 1
    assert capsys.readouterr().err.endswith("6 of 8 could not be read\n")
    assert batch.Outcome(3).tell("read") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), BrokenPipeError(), RuntimeError("a fault"), KeyError()]
)
def test_what_is_not_of_one_item_ends_the_run(error: Exception) -> None:
    def do(name: str, pace: batch.Pace) -> str:
        raise error

    with pytest.raises(type(error)):
        batch.run(["a", "b"], batch.one_by_one(do), lambda *_: None)


def test_workers_may_take_several_items_together() -> None:
    def work(names: Sequence[str], pace: batch.Pace) -> Iterator[str | Exception]:
        for start in range(0, len(names), 2):
            pair = names[start : start + 2]
            yield from (f"{name} of {len(pair)}" if name != "b" else UserError("b is bad") for name in pair)

    found: list[str] = []
    outcome = batch.run("abcde", work, lambda name, result, seconds: found.append(result))
    assert (found, outcome.failed) == (["a of 2", "c of 2", "d of 2", "e of 1"], ["b is bad"])
    with pytest.raises(ValueError, match="shorter"):
        batch.run("abc", lambda names, pace: ["a"], lambda *_: None)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
@pytest.mark.usefixtures("handlers")
def test_the_first_signal_lets_the_item_be_finished(
    number: signal.Signals, error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def do(name: str, pace: batch.Pace) -> str:
        if name == "b":
            signal.raise_signal(number)
        return name

    with pytest.raises(error):
        batch.run("abc", batch.one_by_one(do), lambda name, *_: done.append(name))
    assert done == ["a", "b"]
    assert capsys.readouterr().err == "finishing b, then stopping; the same again stops at once\n"


@pytest.mark.usefixtures("handlers")
def test_the_second_signal_and_an_item_that_may_stop_end_at_once() -> None:
    done: list[str] = []

    def twice(name: str, pace: batch.Pace) -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        done.append(name)

    def kept(name: str, pace: batch.Pace) -> None:
        pace.may_stop()
        signal.raise_signal(signal.SIGTERM)
        pace.may_stop()
        done.append(name)

    for do, error in ((twice, KeyboardInterrupt), (kept, Terminated)):
        with pytest.raises(error):
            batch.run("ab", batch.one_by_one(do), lambda *_: None)
    assert done == []


@pytest.mark.usefixtures("handlers")
def test_a_signal_is_answered_while_the_main_thread_computes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events: list[str] = []

    class Screen:
        def write(self, text: str) -> None:
            events.extend(["word"] if "finishing" in text else [])

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

    def do(name: str, pace: batch.Pace) -> None:
        asked = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        asked.start()
        while not events:  # one call is not interrupted, and its seconds depend on the machine
            hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)
            events.extend(["computed"] if pace.stop is not None else [])
        asked.join()

    monkeypatch.setattr("sys.stderr", Screen())
    with pytest.raises(Terminated):
        batch.run("a", batch.one_by_one(do), lambda *_: None)
    assert events[0] == "word"


def test_in_the_threads_of_another_program_signals_are_its_own() -> None:
    before, found = signal.getsignal(signal.SIGTERM), list[object]()

    def do(name: str, pace: batch.Pace) -> str:
        found.append(signal.getsignal(signal.SIGTERM))
        return name

    thread = threading.Thread(target=lambda: batch.run("a", batch.one_by_one(do), lambda *_: None))
    thread.start()
    thread.join()
    assert found == [before]
