"""Several processes do the work of one: nothing is lost with a worker or the scheduler, and nothing is done twice."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gcsa import batch, cluster
from gcsa._utils.errors import Terminated
from gcsa.cli.classify import main
from tests.errors import raises

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Dask's own sockets


class Copy(batch.Work[Path]):
    """Writes each file in capitals into a folder, with the number of times that it was begun; "kill" in it ends the process that often.

    A file "share" has a part for each process, of which the second ends it.
    """

    def __init__(self, folder: Path, together: int = 1, seconds: float = 0.0) -> None:
        self.folder, self.together, self.seconds = folder, together, seconds
        with (folder.parent / "made").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def outputs(self, item: Path) -> list[Path]:
        return [self.folder / item.name]

    def parts(self, item: Path, most: int) -> int:
        return most if item.read_text() == "share" else 1

    def part(self, item: Path, number: int, parts: int) -> None:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        (self.folder.parent / f"{item.name}.part.{number}").write_text(str(parts))

    def one(self, item: Path, pace: batch.Pace) -> batch.Result:
        text, tries = item.read_text(), self.folder.parent / f"{item.name}.tries"
        with tries.open("a") as file:
            file.write("x")
        if text.startswith("kill") and tries.stat().st_size <= int(text.split()[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "bad":
            raise ValueError("is bad")
        time.sleep(self.seconds)
        (self.folder / item.name).write_text(text.upper())
        return batch.Result({"name": item.name, "pid": os.getpid()})


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    return tmp_path / "in", tmp_path / "out"


def fill(folder: Path, *texts: str) -> list[Path]:
    for number, text in enumerate(texts):
        (folder / f"{number:02}").write_text(text)
    return sorted(folder.iterdir())


def run(files: list[Path], out: Path, told: list[str] | None = None, **options: Any) -> batch.Outcome:
    recipe = partial(Copy, out, **{key: options.pop(key) for key in ("together", "seconds") if key in options})
    how = batch.How(engine=cluster.Dask(recipe, **options), report=str(out.parent / "report.csv"))
    with batch.Run(files, recipe(), out / "x.ledger", how, in_folder=True) as it:
        return it.do(None if told is None else lambda item, result: told.append(item.name))


def test_workers_that_die_lose_nothing(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kills a worker and is done by the next; one kills all; another is bad."""
    monkeypatch.setattr(cluster, "TRIES", 2)
    files = fill(folders[0], "a", "kill 1", "b", "bad", "c", "kill 99", "d")
    told: list[str] = []
    outcome = run(files, folders[1], told, workers=2)
    assert told == [file.name for file in files], "in their order"
    assert (outcome.total, outcome.failed) == (7, 2)
    err = capsys.readouterr().err
    assert f"{files[3]}: is bad\n" in err
    assert f"{files[5]}: {cluster.TRIES} workers died of it, of memory perhaps: cut the image\n" in err
    done = {path.name: path.read_text() for path in folders[1].iterdir() if path.suffix == ""}
    assert done == {"00": "A", "01": "KILL 1", "02": "B", "04": "C", "06": "D"}
    assert (folders[1].parent / "05.tries").stat().st_size == cluster.TRIES
    lines = [json.loads(line) for line in (folders[1] / "x.ledger").read_text().splitlines()]
    assert sorted(line["item"][-2:] for line in lines if "item" in line) == [file.name for file in files], "each once"
    with (folders[1].parent / "report.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["status"] for row in rows] == ["done"] * 3 + ["failed", "done", "failed", "done"]
    made = (folders[1].parent / "made").read_text().split()
    assert len(made) == len(set(made)), "the work is made once a process"


def test_a_worker_begins_with_its_own_settings() -> None:
    """In a process that has not imported Dask, whose defaults would have memory given back at once."""
    code = """if True:
        import os, signal
        from contextlib import ExitStack
        from gcsa.cluster import Dask
        with ExitStack() as stack:
            engine = Dask(None, workers=1)
            engine.start(stack)
            asked = (os.getenv, "MALLOC_TRIM_THRESHOLD_"), (os.getenv, "OMP_NUM_THREADS"), (signal.getsignal, signal.SIGINT)
            print(*[engine.client.submit(*one).result() for one in asked])
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["None", "1", str(int(signal.SIG_IGN))]


def test_of_a_chunk_only_the_item_fails(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "TRIES", 1)
    files = fill(folders[0], "a", "kill 99", "b")
    outcome = run(files, folders[1], workers=1, together=3)
    assert (outcome.total, outcome.failed) == (3, 1)
    assert sorted(path.name for path in folders[1].iterdir()) == ["00", "02", "x.ledger"]


def test_workers_share_an_item_where_there_are_more_of_them(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "TRIES", 1)
    files = fill(folders[0], "share")
    assert run(files, folders[1], workers=2).failed == 0
    assert [(path.name, path.read_text()) for path in folders[1].parent.glob("*.part.*")] == [("00.part.0", "2")]
    assert ((folders[1] / "00").read_text(), (folders[1].parent / "00.tries").read_text()) == ("SHARE", "x")


def test_a_signal_lets_items_be_finished(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    files = fill(folders[0], *"abcdef")

    def ask() -> None:
        while not list(folders[1].parent.glob("*.tries")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(Terminated):
        run(files, folders[1], workers=1, seconds=0.5)
    asking.join()
    assert sorted(path.name for path in folders[1].iterdir()) == ["00", "x.ledger"]
    assert f"finishing {files[0]}, then stopping" in capsys.readouterr().err
    assert run(files, folders[1], workers=1).total == 5


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of one in a process of its own, with a worker, and both processes."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    processes = [subprocess.Popen([*command, "--no-dashboard", "--scheduler-file", file], stderr=subprocess.DEVNULL)]
    while not file.exists() or not file.read_text().endswith("}"):
        assert processes[0].poll() is None
        time.sleep(0.05)
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--nthreads", "1"]
    root = Path(__file__).parents[1]
    processes.append(subprocess.Popen([*worker, "--no-dashboard"], stderr=subprocess.DEVNULL, cwd=root))
    yield json.loads(file.read_text())["address"], processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_scheduler_that_dies_is_said_and_the_next_call_goes_on(
    folders: tuple[Path, Path],
    scheduler: tuple[str, list[subprocess.Popen[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, processes = scheduler
    files = fill(folders[0], *"abc")

    def end() -> None:
        while not (folders[1].parent / "01.tries").exists():
            time.sleep(0.01)
        processes[0].kill()

    ending = threading.Thread(target=end)
    ending.start()
    with raises("scheduler.gone"):
        run(files, folders[1], scheduler=address, seconds=0.5)
    ending.join()
    monkeypatch.setattr(cluster, "CONNECT", "0.5s")
    with raises("scheduler.none"):
        run(files, folders[1], scheduler="tcp://127.0.0.1:9")
    with batch.Run(files, Copy(folders[1]), folders[1] / "x.ledger", in_folder=True) as it:
        assert it.do().total == 2, "a is done"
    assert (folders[1] / "02").read_text() == "C"


def test_the_jobs_of_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    jobqueue = pytest.importorskip("dask_jobqueue")
    made: list[dict[str, Any]] = []

    class Jobs:
        def __init__(self, **options: Any) -> None:
            made.append(options)

        def scale(self, jobs: int) -> None:
            made.append({"jobs": jobs})

    monkeypatch.setattr(jobqueue, "SLURMCluster", Jobs)
    cluster.Dask(partial(Copy, Path()), workers=3, cluster="slurm", partition="gpu")._jobs()
    assert made == [{"processes": 1, "cores": 1, "memory": cluster.MEMORY, "queue": "gpu"}, {"jobs": 3}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--partition gpu", "--partition gpu is of --cluster"),
        ("--cluster slurm", "add --workers"),
        ("--workers 2 --scheduler tcp://a:1", "leave out --workers"),
        ("--workers 2 --threads 2", "a worker has one thread"),
        ("--workers 2", "pip install 'gcsa-vit[scale]'"),
    ],
)
def test_wrong_options(
    options: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    Image.new("L", (300, 40)).save(tmp_path / "image.png")
    with pytest.raises(SystemExit, match="2"):
        main(["weights", str(tmp_path / "image.png"), *options.split()])
    assert words in capsys.readouterr().err
