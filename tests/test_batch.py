"""The one loop over files: it goes on after a bad one, ends where it is asked to, and then goes on where it stopped."""

import csv
import errno
import hashlib
import json
import os
import signal
import threading
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gcsa import batch
from gcsa._utils.errors import Terminated, UserError
from gcsa.batch import pace as of_pace
from tests.errors import raises

ERRORS = {
    "a.png": UserError("a.png is empty"),
    "b.png": ValueError("no\nname"),
    "c.png": MemoryError(),
    "d.png": RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    "e.png": FileNotFoundError(errno.ENOENT, "No such file", "e.png"),
}


class Upper(batch.Work[Any]):
    """Writes each file in capitals into a folder, or gives them back where there is none."""

    smaller = "cut it"
    columns = ("length",)

    def __init__(self, folder: Path | None = None, then: Any = lambda item, pace: None, **settings: Any) -> None:
        self.folder, self.then, self.settings = folder, then, settings
        self.seen: list[str] = []

    def outputs(self, item: Any) -> list[Path]:
        return [] if self.folder is None else [self.folder / Path(item).name]

    def one(self, item: Any, pace: batch.Pace) -> batch.Result:
        self.seen.append(Path(item).name)
        self.then(item, pace)
        if self.folder is not None:
            (self.folder / Path(item).name).write_text(Path(item).read_text().upper())
        return batch.Result({"upper": Path(item).name.upper(), "length": len(str(item)), "confidence": 0.5})


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_text(name * 3)
    return sorted((tmp_path / "in").iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


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


def run(items: Sequence[Any], work: batch.Work[Any], ledger: Path | None = None, **how: Any) -> batch.Outcome:
    in_folder = bool(items and work.outputs(items[0]))
    with batch.Run(items, work, ledger, batch.How(**how), in_folder=in_folder) as it:
        return it.do()


def test_a_bad_item_is_named_at_once_and_the_others_are_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said: list[str] = []

    def fail(name: str, pace: batch.Pace) -> None:
        said.append(capsys.readouterr().err)
        if name in ERRORS:
            raise ERRORS[name]

    report = tmp_path / "report.csv"
    with batch.Run([*ERRORS, "x.png"], Upper(then=fail), None, batch.How(report=str(report))) as it:
        finished: list[Any] = []
        outcome = it.do(lambda item, result: finished.append(item))
        found = [result.values["upper"] for _, result in it.results() if result.finished]
    sentences = [
        "a.png is empty",
        "b.png: no name",
        "c.png: not enough memory: cut it",
        "d.png: not enough memory: cut it",
        "[Errno 2] No such file: 'e.png'",
    ]
    assert said[1:6] == [f"{line}\n" for line in sentences]
    assert (found, finished) == (["X.PNG"], [*ERRORS, "x.png"])
    with report.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["message"] for row in rows] == [*sentences, ""]
    assert (rows[0]["status"], rows[5]["status"]) == ("failed", "done")
    assert (rows[5]["file"], rows[5]["confidence"], rows[5]["length"]) == ("x.png", "0.5000", "5")
    assert outcome.tell("read") == 1
    assert capsys.readouterr().err.endswith("5 of 6 could not be read\n")
    assert batch.Outcome(3).tell("read") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), BrokenPipeError(), RuntimeError("a fault"), KeyError()]
)
def test_what_is_not_of_one_item_ends_the_run(error: Exception) -> None:
    def fail(name: str, pace: batch.Pace) -> None:
        raise error

    with pytest.raises(type(error)):
        run(["a", "b"], Upper(then=fail))


def test_what_is_finished_by_the_same_is_left(
    files: list[Path], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, other = folder / "x.ledger", Upper(folder, fingerprint="1", scale=2, group=("d4",))
    run(files[:2], Upper(folder, fingerprint="1", scale=1), ledger)
    again = Upper(folder, fingerprint="1", scale=1)
    run(files, again, ledger)
    assert again.seen == ["c"], "a and b are done"
    assert "2 of 3 are done already" in capsys.readouterr().err

    with raises("output.other_settings") as caught:
        run(files, other, ledger)
    assert "out/a is there, made with --group left out (now d4), --scale 1 (now 2): --overwrite" in str(caught.value)
    with raises("output.other_settings") as caught:
        run(files[1:], Upper(folder, fingerprint="2", scale=1), ledger)
    assert "out/b is there, made with other weights: --overwrite makes it anew" in str(caught.value)
    assert other.seen == []
    run(files[:1], other, ledger, overwrite=True)
    run(files, other, ledger, overwrite=True)
    assert other.seen == ["a", "b", "c"], "a is done by the same"

    (folder / "b").unlink()
    files[2].write_text("new")
    other.seen.clear()
    run(files, other, ledger)
    assert (other.seen, (folder / "c").read_text()) == (["b", "c"], "NEW"), "a file that is gone, and a new original"
    (folder.parent / "moved").mkdir()
    for name in ("in", "out"):
        (folder.parent / name).rename(folder.parent / "moved" / name)
    moved = Upper(folder.parent / "moved/out", fingerprint="1", scale=2, group=("d4",))
    run([folder.parent / "moved/in" / file.name for file in files], moved, folder.parent / "moved/out/x.ledger")
    assert moved.seen == [], "both folders together"


def test_a_file_of_nobody_is_not_overwritten(files: list[Path], folder: Path) -> None:
    (folder / "b").write_text("by hand")
    with raises("output.unknown") as caught:
        run(files, Upper(folder), folder / "x.ledger")
    assert "out/b is there, and no run that is known here wrote it: --overwrite" in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["b"]
    run(files, Upper(folder), folder / "x.ledger", overwrite=True)
    assert (folder / "b").read_text() == "BBB"


def test_a_file_that_was_begun_by_others_is_theirs(files: list[Path], folder: Path) -> None:
    """The process is gone behind the file of b, which it makes anew by other settings."""
    ledger = folder / "x.ledger"
    run(files, Upper(folder, scale=1), ledger)
    run(files[:2], Upper(folder, scale=2), ledger, overwrite=True)
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    with raises("output.other_settings"):
        run(files[1:2], Upper(folder, scale=1), ledger)
    again = Upper(folder, scale=2)
    run(files[:2], again, ledger)
    assert again.seen == ["b"]


def test_memory_does_not_grow_with_the_items(tmp_path: Path) -> None:
    class Numbered(batch.Work[str]):
        def one(self, item: str, pace: batch.Pace) -> batch.Result:
            return batch.Result({"number": pace.number})

    sizes: list[int] = []

    def look(item: str, result: batch.Result) -> None:
        if result.values["number"] in (999, 2999):
            sizes.append(tracemalloc.get_traced_memory()[0])

    how = batch.How(report=str(tmp_path / "report.csv"))
    tracemalloc.start()
    try:
        with batch.Run(["abcdefgh"] * 3000, Numbered(), tmp_path / "x", how) as it:
            it.do(look)
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 2000 * 100, "bytes; what is done again and again keeps some tuples"


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_a_killed_run_goes_on(files: list[Path], folder: Path, cut: int) -> None:
    """The process is gone behind the file of b, before or within the line that says so."""
    ledger = folder / "x.ledger"
    run(files[:2], Upper(folder), ledger)
    lines = ledger.read_bytes().splitlines(keepends=True)
    assert [next(iter(json.loads(line))) for line in lines] == ["settings", "begun", "item", "begun", "item"]
    ledger.write_bytes(b"".join(lines[:-1]) + lines[-1][:cut])
    again = Upper(folder)
    run(files, again, ledger)
    assert again.seen == ["b", "c"]
    run(files, again, ledger)
    assert again.seen == ["b", "c"]


def test_what_is_no_ledger_stays_and_one_run_has_it(files: list[Path], folder: Path) -> None:
    (folder / "x.ledger").write_text("Dear,\n")
    with raises("ledger.foreign"):
        run(files, Upper(folder), folder / "x.ledger")
    assert (folder / "x.ledger").read_text() == "Dear,\n"

    def second(item: Path, pace: batch.Pace) -> None:
        if item.name == "b":
            with raises("output.in_use"):
                run(files, Upper(folder), folder / "y.ledger")

    run(files, Upper(folder, second), folder / "y.ledger")


def test_a_table_has_the_results_of_the_runs_before(files: list[Path], tmp_path: Path) -> None:
    part = tmp_path / "answers.csv.part"

    def stop(item: Path, pace: batch.Pace) -> None:
        if item.name == "b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(files, Upper(then=stop), part)
    with batch.Run(files, Upper(), part) as it:
        it.do()
        assert [result.values["upper"] for _, result in it.results()] == ["A", "B", "C"]
        assert part.exists()
    assert it.work.seen == ["b", "c"]
    assert not part.exists()


def test_batches_stay_as_they_are(files: list[Path], tmp_path: Path) -> None:
    """Whatever is done already."""

    class Pairs(Upper):
        together = 2

        def do(self, items: Sequence[Any], pace: batch.Pace) -> Iterable[batch.Result | Exception]:
            self.seen.append("".join(item.name for item in items))
            yield from (batch.Result({"with": len(items)}) for _ in items)

    part = tmp_path / "x.part"
    with batch.Run(files, Pairs(), part) as it:
        it.do()
        assert (it.work.seen, [result.values["with"] for _, result in it.results()]) == (["ab", "c"], [2, 2, 1])
        part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:2]))
        kept = part.read_bytes()
    part.write_bytes(kept)
    with batch.Run(files, Pairs(), part) as it:
        assert it.do().total == 2, "a is done"
        assert it.work.seen == ["ab", "c"]


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
@pytest.mark.usefixtures("handlers")
def test_the_first_signal_lets_the_item_be_finished(
    number: signal.Signals,
    error: type[BaseException],
    files: list[Path],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ask(item: Path, pace: batch.Pace) -> None:
        if item.name == "b":
            signal.raise_signal(number)

    with pytest.raises(error):
        run(files, Upper(folder, ask), folder / "x.ledger")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "x.ledger"]
    assert sorted(capsys.readouterr().err.splitlines(), reverse=True) == [
        f"finishing {files[1]}, then stopping; the same again stops at once",
        "2 of 3 are finished: the same command goes on",
    ]
    again = Upper(folder)
    run(files, again, folder / "x.ledger")
    assert again.seen == ["c"]


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

    for then, error in ((twice, KeyboardInterrupt), (kept, Terminated)):
        with pytest.raises(error):
            run("ab", Upper(then=then))
    assert done == []


@pytest.mark.usefixtures("handlers")
def test_a_signal_is_answered_while_the_main_thread_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Screen:
        def write(self, text: str) -> None:
            events.extend(["word"] if "finishing" in text else [])

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

    def compute(name: str, pace: batch.Pace) -> None:
        asked = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        asked.start()
        while not events:  # one call is not interrupted, and its seconds depend on the machine
            hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)
            events.extend(["computed"] if pace.stop is not None else [])
        asked.join()

    monkeypatch.setattr("sys.stderr", Screen())
    with pytest.raises(Terminated):
        run("a", Upper(then=compute))
    assert events[0] == "word"


def test_in_the_threads_of_another_program_signals_are_its_own() -> None:
    before, found = signal.getsignal(signal.SIGTERM), list[object]()

    def look(name: str, pace: batch.Pace) -> None:
        found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=lambda: run("a", Upper(then=look)))
    thread.start()
    thread.join()
    assert found == [before]


def test_without_a_terminal_a_line_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(of_pace, "LINE_SECONDS", -1)
    run("ab", Upper())
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == ["1 of 2", "2 of 2"]
