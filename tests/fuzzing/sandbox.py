"""A sandbox to read files in."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import resource

ROOT = Path(__file__).parents[2]
READABLE = (sys.prefix, sys.base_prefix, *(str(ROOT / name) for name in ("gcsa", "tests", "conf")), "/dev", "/proc")
"""What modules that are imported late are read from, and what the system is asked through."""


class Leak(AssertionError):
    """What must not happen while a file is read."""


@contextmanager
def sealed(
    folder: Path, *, memory: int = 1 << 30, seconds: float = 30.0, readable: Sequence[Path] = (), write: bool = True
) -> Iterator[None]:
    """Raises `Leak` for what the code within does beyond reading files and writing into `folder`.

    Python's audit events tell of sockets, programs and files, so what a C library opens by itself is not seen: test
    that with a file it should not reach. Only one thread and one sandbox at a time.

    Args:
        memory: bytes of address space that may be added. An allocation beyond fails, and is a `Leak` even where its
            MemoryError was turned into another error on the way out. Not on Windows and macOS.
        seconds: of time. Not on Windows.
        readable: files and folders beyond `folder` and the installed packages that may be read.
        write: whether files may be written into `folder`.
    """
    global _sandbox
    sandbox = _Sandbox(folder, readable, write)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    with _bounded_memory(memory), _bounded_time(seconds):
        _install_hook()
        _sandbox = sandbox
        try:
            yield
        except MemoryError as error:
            raise Leak(f"more than {memory >> 20} MiB of memory") from error
        except Exception as error:
            if _out_of_memory(error):
                raise Leak(f"more than {memory >> 20} MiB of memory, as {error!r}") from error
            raise
        finally:
            _sandbox = None
            sys.dont_write_bytecode = bytecode
            if sandbox.leaks:
                raise Leak("; ".join(dict.fromkeys(sandbox.leaks)))


class _Sandbox:
    """What may be touched, and what was touched beyond."""

    def __init__(self, folder: Path, readable: Sequence[Path], write: bool) -> None:
        self.writable = [os.path.realpath(folder)] if write else []
        self.readable = [os.path.realpath(path) for path in (folder, *readable, *READABLE)]
        self.leaks: list[str] = []
        self.thread = threading.get_ident()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int) or flags & getattr(os, "O_DIRECTORY", 0):
                return
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
            self.check(path, event if mode is None else f"open {mode}", writes)
        elif event.startswith(_FORBIDDEN):
            self.leak(f"{event} {arguments!r:.200}")
        elif event in _PATH_EVENTS:
            paths = arguments[: _PATH_EVENTS[event]]
            for path, descriptor in zip(paths, arguments[-len(paths) :], strict=True):
                if not (isinstance(descriptor, int) and descriptor >= 0):  # paths relative to a folder that is open
                    self.check(path, event, writes=True)

    def check(self, path: Any, event: str, writes: bool) -> None:
        real = os.path.realpath(os.fsdecode(path))
        if real == os.devnull:
            return
        allowed = self.writable if writes else self.readable
        if not any(real == folder or real.startswith(folder.rstrip(os.sep) + os.sep) for folder in allowed):
            self.leak(f"{event} {real}")

    def leak(self, what: str) -> None:
        self.leaks.append(what)
        raise Leak(what)


_sandbox: _Sandbox | None = None
_hooked = False
_FORBIDDEN = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "urllib.",
    "webbrowser.",
)
# How many of the first arguments are paths; the last arguments are descriptors of folders, where there are any.
_PATH_EVENTS = {
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), 1),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2),
}  # fmt: skip


def _install_hook() -> None:
    """Once a process: audit hooks cannot be removed."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(lambda event, arguments: _sandbox.audit(event, arguments) if _watched() else None)


def _watched() -> bool:
    return _sandbox is not None and _sandbox.thread == threading.get_ident()


@contextmanager
def _bounded_memory(limit: int) -> Iterator[None]:
    if not sys.platform.startswith("linux"):
        yield
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or re.search(r"allocate|out of memory|MemoryError", str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def _bounded_time(seconds: float) -> Iterator[None]:
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise Leak(f"more than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
