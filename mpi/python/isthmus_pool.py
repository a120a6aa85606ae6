"""Pools of workers over sites: a concurrent.futures.Executor.

    from isthmus_pool import Pool

    with Pool() as pool:
        for result in pool.map(work, pieces):
            ...

Every process of the job runs the script as far as Pool(). The first one goes on, as the
master. The others run tasks from there on, and leave the script when the master does. In an
MPI job (mpi4py) the first process is rank 0 of the communicator; under `isthmus run --each`
it is the one on ISTHMUS_HEAD. A process alone runs its tasks itself.

Tasks and results are pickled: a function is found by its name, so that the module that
defines it must be there at all sites. A task is run again if its process ends meanwhile,
until `attempts` processes have certainly ended by it. Its future has a LostError then. Other
tasks go on.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import ctypes
import hashlib
import os
import pickle
import shutil
import socket
import stat
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Counts", "LostError", "Pool", "PoolError", "Site"]

# What the library's calls return, and what an item is (isthmus_pool.h).
_NOTHING = 0
_DONE, _FAILED, _LOST = range(3)
_ERROR_BYTES = 512
_SITES_BYTES = 1 << 16
_LIBRARY = "libisthmus_pool.so"
# Where the master listens under `isthmus run --each`, unless ISTHMUS_POOL_PORT says another port.
_PORT = "7790"
# Of messages by which ranks learn of a pool.
_TAG = 7790
_LONGEST_PAUSE_S = 0.02
# For so long a call waits in the library, where no signal reaches Python.
_WAIT_MS = 200
# Workers under `isthmus run --each` wait for so long for their master to begin.
_PATIENCE_S = 24 * 3600
# How long a task may go on once its pool has ended.
_LAST_TASK_S = 1.0


class PoolError(RuntimeError):
    """A pool can't begin, or has ended."""


class LostError(PoolError):
    """The processes that ran a task have ended meanwhile, as often as it may be tried."""


class Counts(NamedTuple):
    """Numbers of a pool: tasks that wait, that are at workers, that have a result, that were
    given to another worker; results that came twice; workers there are, and that were lost."""

    waiting: int
    running: int
    done: int
    again: int
    dropped: int
    workers: int
    lost: int


class Site(NamedTuple):
    """Numbers of a site, or of a place of the widest level that is named: workers there are, and tasks
    that have a result from there."""

    workers: int
    done: int


class _Item(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("owner", ctypes.c_void_p),
    ]


class _Numbers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Counts._fields]


def _library_paths() -> Iterator[str]:
    if named := os.environ.get("ISTHMUS_POOL_LIBRARY"):
        yield named
        return
    # Beside the library that isthmus has loaded into this process.
    for preloaded in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        if "isthmus" in preloaded:
            yield str(Path(preloaded).with_name(_LIBRARY))
    # Where isthmus is installed: by this file in share/isthmus/python, by pip, by the command.
    prefixes = [*Path(__file__).resolve().parents[3:4], Path(sys.prefix)]
    if command := shutil.which("isthmus"):
        prefixes.append(Path(command).resolve().parents[1])
    for prefix in prefixes:
        yield str(prefix / "lib" / "isthmus" / _LIBRARY)
    yield _LIBRARY


def _load() -> ctypes.CDLL:
    tried = []
    for path in _library_paths():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for name in ("begin", "join"):
            getattr(library, f"isthmus_pool_{name}").restype = ctypes.c_void_p
        library.isthmus_pool_ticket.restype = ctypes.c_char_p
        return library
    raise PoolError(f"{_LIBRARY} isn't found: {'; '.join(tried)}")


class _Handle:
    """One end of a pool in the library. Calls that wait let other threads run."""

    def __init__(self, library: ctypes.CDLL, pointer: int | None, error: ctypes.Array[ctypes.c_char]) -> None:
        if not pointer:
            raise PoolError(error.value.decode("utf-8", "replace"))
        self._library = library
        self._pointer = ctypes.c_void_p(pointer)

    @classmethod
    def begin(cls, options: str, setup: bytes) -> _Handle:
        library, error = _load(), ctypes.create_string_buffer(_ERROR_BYTES)
        begin = library.isthmus_pool_begin
        size = ctypes.c_size_t(len(setup))
        return cls(library, begin(options.encode(), setup, size, error, ctypes.c_size_t(_ERROR_BYTES)), error)

    @classmethod
    def join(cls, ticket: str, options: str) -> _Handle:
        library, error = _load(), ctypes.create_string_buffer(_ERROR_BYTES)
        join = library.isthmus_pool_join
        return cls(library, join(ticket.encode(), options.encode(), error, ctypes.c_size_t(_ERROR_BYTES)), error)

    def ticket(self) -> str:
        return self._library.isthmus_pool_ticket(self._pointer).decode()

    def submit(self, data: bytes) -> int:
        number, error = ctypes.c_uint64(), ctypes.create_string_buffer(_ERROR_BYTES)
        size = ctypes.c_size_t(len(data))
        submit = self._library.isthmus_pool_submit
        room = ctypes.c_size_t(_ERROR_BYTES)
        if submit(self._pointer, data, size, ctypes.byref(number), error, room) <= 0:
            raise PoolError(error.value.decode("utf-8", "replace"))
        return number.value

    def cancel(self, number: int) -> bool:
        return self._library.isthmus_pool_cancel(self._pointer, ctypes.c_uint64(number)) > 0

    def _item(self, call: str, *arguments: Any) -> tuple[int, int, bytes] | None:
        """An item's number, kind and bytes; None if the pool has ended."""
        item = _Item()
        while (found := self._library[call](self._pointer, *arguments, ctypes.byref(item))) == _NOTHING:
            pass
        if found < 0:
            return None
        data = ctypes.string_at(item.data, item.bytes) if item.bytes else b""
        self._library.isthmus_pool_free(ctypes.byref(item))
        return item.id, item.kind, data

    def result(self) -> tuple[int, int, bytes] | None:
        return self._item("isthmus_pool_result", _WAIT_MS)

    def task(self) -> tuple[int, int, bytes] | None:
        return self._item("isthmus_pool_task", _WAIT_MS)

    def setup(self) -> bytes | None:
        found = self._item("isthmus_pool_setup")
        return found and found[2]

    def done(self, number: int, failed: bool, data: bytes) -> bool:
        size = ctypes.c_size_t(len(data))
        return self._library.isthmus_pool_done(self._pointer, ctypes.c_uint64(number), failed, data, size) > 0

    def counts(self) -> Counts:
        numbers = _Numbers()
        self._library.isthmus_pool_numbers(self._pointer, ctypes.byref(numbers))
        return Counts(*(getattr(numbers, name) for name in Counts._fields))

    def sites(self) -> dict[str, Site]:
        lines = ctypes.create_string_buffer(_SITES_BYTES)
        self._library.isthmus_pool_sites(self._pointer, lines, ctypes.c_size_t(_SITES_BYTES))
        found = (line.split(" ", 2) for line in lines.value.decode("utf-8", "replace").split("\n") if line)
        return {name: Site(int(workers), int(done)) for workers, done, name in found}

    def failure(self) -> str | None:
        """Why it has ended, unless that is in order."""
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        found = self._library.isthmus_pool_why(self._pointer, error, ctypes.c_size_t(_ERROR_BYTES))
        return error.value.decode("utf-8", "replace") if found < 0 else None

    def end(self) -> None:
        """Ends it: calls that wait return. Its memory stays, as threads may still look at it."""
        self._library.isthmus_pool_end(self._pointer)


class _RemoteTraceback(Exception):
    """An exception's text at the process that raised it, as the cause of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


def _pack(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> bytes:
    return pickle.dumps(call, pickle.HIGHEST_PROTOCOL)


def _pack_error(error: BaseException) -> bytes:
    try:
        text = "".join(traceback.format_exception(error)).rstrip()
    except Exception:
        text = type(error).__name__
    where = f"\n(on {socket.gethostname()}, process {os.getpid()})\n{text}"
    try:
        packed = pickle.dumps((error, where), pickle.HIGHEST_PROTOCOL)
        pickle.loads(packed)
    except Exception:
        # The exception can't be sent, or not be made again.
        try:
            said = str(error)
        except Exception:
            said = "no text"
        plain = PoolError(f"{type(error).__name__}: {said}")
        packed = pickle.dumps((plain, where), pickle.HIGHEST_PROTOCOL)
    return packed


def _run(data: bytes) -> tuple[bool, bytes]:
    """Runs a task. Whether it failed, and its result or error."""
    try:
        function, arguments, named = pickle.loads(data)
        return False, pickle.dumps(function(*arguments, **named), pickle.HIGHEST_PROTOCOL)
    except (Exception, SystemExit) as error:
        return True, _pack_error(error)


def _serve_task(handle: _Handle, task: tuple[int, int, bytes], broken: bytes | None = None) -> None:
    number, _, data = task
    failed, result = (True, broken) if broken is not None else _run(data)
    if not handle.done(number, failed, result):
        error = PoolError(f"the result takes {len(result)} bytes, which is too much")
        handle.done(number, True, _pack_error(error))


def _serve(handle: _Handle, may_exit: bool) -> None:
    """Runs tasks until the pool has ended."""
    setup = handle.setup()
    if setup is None:
        return
    failed, found = _run(setup) if setup else (False, b"")
    broken = found if failed else None
    busy = threading.Event()
    if may_exit:
        threading.Thread(target=_leave_task, args=(handle, busy), daemon=True).start()
    while (task := handle.task()) is not None:
        busy.set()
        _serve_task(handle, task, broken)
        busy.clear()


def _leave_task(handle: _Handle, busy: threading.Event) -> None:
    """Ends the process if it runs a task long after its pool has ended: nobody wants the result."""
    handle.setup()
    deadline = time.monotonic() + _LAST_TASK_S
    while busy.is_set() and time.monotonic() < deadline:
        time.sleep(0.05)
    if busy.is_set():
        os._exit(0)


class _Future(concurrent.futures.Future):
    """A future whose task can be taken back as long as no worker has got it."""

    def __init__(self, pool: Pool, call: bytes | None) -> None:
        super().__init__()
        self._pool = pool
        self._number = -1
        # Under which its result is kept.
        self._call = call

    def cancel(self) -> bool:
        if not self._pool._take_back(self):
            return self.cancelled()
        super().cancel()
        # Tells those that wait for it.
        self.set_running_or_notify_cancel()
        return True


class _State:
    """Results that outlive the program, by their calls: a database of SQLite. What can't be read or
    written isn't kept: the pool goes on without it."""

    def __init__(self, path: str | os.PathLike[str], of: bytes) -> None:
        """`of` is what else results depend on."""
        import sqlite3

        self._of = of
        self._lock = threading.Lock()
        self._has_failed = False
        path = os.path.abspath(path)
        try:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            _refuse_others(path)
            self._file = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
            # One program at a time, also over NFS. What was written is there even if the process is killed.
            for words in "locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=NORMAL":
                self._file.execute(f"PRAGMA {words}")
            self._file.execute("CREATE TABLE IF NOT EXISTS results (call BLOB PRIMARY KEY, result BLOB)")
        except (OSError, sqlite3.Error) as error:
            raise PoolError(f"cannot keep results in {path}: {error}") from error

    def call(self, data: bytes) -> bytes:
        """Under which a call's result is kept."""
        return hashlib.sha256(self._of + data).digest()

    def find(self, call: bytes) -> bytes | None:
        try:
            with self._lock:
                found = self._file.execute("SELECT result FROM results WHERE call = ?", (call,)).fetchone()
            return found and found[0]
        except Exception as error:
            self._fail(error)
            return None

    def keep(self, call: bytes, result: bytes) -> None:
        try:
            with self._lock:
                self._file.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (call, result))
        except Exception as error:
            # Such as a full disk, or a result of over 1 GB.
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Says so once. Nobody waits for results because of it, so it never fails."""
        if not self._has_failed:
            self._has_failed = True
            with contextlib.suppress(Exception):
                sys.stderr.write(f"isthmus_pool: results aren't kept: {error}\n")

    def close(self) -> None:
        with self._lock, contextlib.suppress(Exception):
            self._file.close()


def _refuse_others(path: str) -> None:
    """Results run as code when they are read: nobody else may have put them there."""
    for name in path, f"{path}-wal", f"{path}-journal":
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PoolError(f"{name} must be a file of yours that nobody else can write: results run as code")
    directory = os.path.dirname(path)
    if os.stat(directory).st_mode & 0o002:
        raise PoolError(f"everybody can write in {directory}: keep results elsewhere, as they run as code")


class _Alone:
    """A process alone: it is the master."""

    options: list[str] = ["slots=1"]
    has_many_pools = True

    def is_master(self) -> bool:
        return True

    def announce(self, ticket: str | None) -> None:
        pass

    def tickets(self) -> Iterator[str]:
        yield from ()


class _Each:
    """The nodes of `isthmus run --each`: one process on each, which all know where the first one is.
    Nobody tells workers whether there will be another pool."""

    has_many_pools = False

    def __init__(self) -> None:
        env = os.environ
        node, self._head = env["ISTHMUS_NODE"], env["ISTHMUS_HEAD"]
        self._is_master = env["ISTHMUS_NODE_RANK"] == "0" and not env.get("ISTHMUS_JOINED")
        self._port = env.get("ISTHMUS_POOL_PORT", _PORT)
        self._key = env.get("ISTHMUS_POOL_KEY", "")
        if not self._key:
            raise PoolError(
                "ISTHMUS_POOL_KEY isn't set: let it be 64 hexadecimal digits, the same on all nodes, "
                "by `export ISTHMUS_POOL_KEY=$(openssl rand -hex 32)` and `isthmus run --env ISTHMUS_POOL_KEY`"
            )
        site = node.rpartition(".")[2]
        self.options = [f"places={site}/{node}"]
        if self._is_master:
            self.options += [f"host={self._head}", f"port={self._port}", f"key={self._key}"]
            self.options.append(f"expects={int(env.get('ISTHMUS_NODES', '1')) - 1}")
        else:
            self.options.append(f"patience_s={_PATIENCE_S}")

    def is_master(self) -> bool:
        return self._is_master

    def announce(self, ticket: str | None) -> None:
        pass

    def tickets(self) -> Iterator[str]:
        yield f"{self._head}:{self._port}:{self._key}"

    def fail(self) -> None:
        pass


class _Ranks:
    """The ranks of an MPI job. Rank 0 tells the others of each pool, and when there will be none."""

    has_many_pools = True

    def __init__(self, comm: Any) -> None:
        self.of = comm
        self._comm = comm.Dup()
        self._rank = comm.Get_rank()
        self.options = [f"places={'/'.join(self._places(comm))}", f"expects={comm.Get_size() - 1}"]

    def _places(self, comm: Any) -> list[str]:
        import isthmus_mpi

        if not isthmus_mpi.active():
            return [socket.gethostname()]
        levels = range(1, len(isthmus_mpi.levels(comm)))
        return [isthmus_mpi.place(comm, self._rank, level) for level in levels]

    def is_master(self) -> bool:
        return self._rank == 0

    def announce(self, ticket: str | None) -> None:
        for rank in range(1, self._comm.Get_size()):
            self._comm.send(ticket, rank, _TAG)

    def fail(self) -> None:
        # By itself a rank that ends waits for all others to end MPI.
        self._comm.Abort(1)

    def tickets(self) -> Iterator[str]:
        while True:
            pause = 1e-4
            while not self._comm.iprobe(0, _TAG):
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            ticket = self._comm.recv(source=0, tag=_TAG)
            if ticket is None:
                return
            yield ticket


_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
_job: _Alone | _Each | _Ranks | None = None


_has_begun = False
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _find_job(comm: Any) -> _Alone | _Each | _Ranks:
    """What this process is part of, found out once."""
    global _job
    if _job is not None:
        if comm is not None and (not isinstance(_job, _Ranks) or _job.of != comm):
            raise PoolError("all pools of a program are of the same communicator")
        return _job
    env = os.environ
    if comm is None and "ISTHMUS_NODE_RANK" in env:
        is_one_of_many = int(env.get("ISTHMUS_NODES", "1")) > 1 or "ISTHMUS_JOINED" in env
        _job = _Each() if is_one_of_many or "ISTHMUS_POOL_KEY" in env else _Alone()
    else:
        if comm is None and any(name in env for name in _LAUNCHED):
            try:
                from mpi4py import MPI
            except ImportError as error:
                raise PoolError(f"a pool of MPI ranks needs mpi4py: {error}") from error
            comm = MPI.COMM_WORLD
        _job = _Ranks(comm) if comm is not None and comm.Get_size() > 1 else _Alone()
    if _job.is_master():
        # Before mpi4py ends MPI, which it does when Python itself has ended.
        atexit.register(_end_all, _job)
    return _job


def _end_all(job: _Alone | _Each | _Ranks) -> None:
    """Ends pools that the program has left open, and lets workers go."""
    for pool in list(_pools):
        pool._drop_futures()
        pool.shutdown()
    job.announce(None)


def _work(job: _Each | _Ranks) -> int:
    """Runs tasks of the job's pools until there are no more. Returns the process's status."""
    try:
        for ticket in job.tickets():
            handle = _Handle.join(ticket, "\n".join(job.options))
            # MPI ends all ranks if one ends by itself.
            _serve(handle, may_exit=isinstance(job, _Each))
            failure = handle.failure()
            handle.end()
            if failure:
                raise PoolError(failure)
    except PoolError as error:
        sys.stderr.write(f"isthmus_pool: {error}\n")
        sys.stderr.flush()
        job.fail()
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


class _Progress:
    """A line on the terminal: how many tasks are done, how fast, how long the rest takes."""

    _EVERY_S = 0.5
    # The rate is that of this time, so that it follows.
    _WINDOW_S = 10.0

    def __init__(self, counts: Callable[[], Counts], sites: Callable[[], dict[str, Site]]) -> None:
        self._counts = counts
        self._sites = sites
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._show, name="isthmus-pool-progress", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def _show(self) -> None:
        seen = [(time.monotonic(), 0)]
        while not self._end.wait(self._EVERY_S):
            now, counts = time.monotonic(), self._counts()
            seen.append((now, counts.done))
            while len(seen) > 2 and seen[1][0] < now - self._WINDOW_S:
                seen.pop(0)
            (then, before), (now, done) = seen[0], seen[-1]
            self._print(_progress(counts, self._sites(), (done - before) / (now - then)))
        self._print("")

    def _print(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{line[:width]}\033[K")
        sys.stderr.flush()


def _progress(counts: Counts, sites: dict[str, Site], rate: float) -> str:
    """The line. `rate` is in tasks per second."""
    left = counts.waiting + counts.running
    total = counts.done + left
    filled = 20 * counts.done // max(total, 1)
    line = f"[{'#' * filled:20}] {counts.done} of {total} tasks, {rate:.1f}/s"
    if rate > 0 and left:
        minutes, seconds = divmod(round(left / rate), 60)
        line += f", {minutes}:{seconds:02} left"
    line += f"; {counts.workers} workers"
    if counts.lost:
        line += f", {counts.lost} lost, {counts.again} tasks again"
    by_site = ", ".join(f"{name} {site.done}" for name, site in sites.items() if site.done)
    return f"{line}; {by_site}" if len(sites) > 1 and by_site else line


class Pool(concurrent.futures.Executor):
    """Workers on all nodes of the job. See the module's text for who is one.

    `comm` is a communicator of mpi4py, of all ranks by default. `initializer(*initargs)` runs
    once in each worker. A task isn't tried again once `attempts` processes have ended by it,
    after a first one, of which the first one isn't certain. Below `flat_below` workers all get tasks from
    the master, and else from the boss of their node or site. `progress` shows a line on the terminal; by default if stderr is one. `state` names a
    file that keeps results: calls of the same function with the same arguments take theirs from there, when
    the program runs again as well.
    """

    def __init__(
        self,
        comm: Any = None,
        *,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        attempts: int = 2,
        flat_below: int | None = None,
        progress: bool | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> None:
        job = _find_job(comm)
        if not job.is_master():
            sys.exit(_work(job))
        global _has_begun
        if not job.has_many_pools and _has_begun:
            raise PoolError("under `isthmus run --each` a program has one pool: use it for all tasks")
        setup = _pack((initializer, tuple(initargs), {})) if initializer else b""
        program = os.path.basename(getattr(sys.modules["__main__"], "__file__", None) or "")
        self._state = None if state is None else _State(state, f"{program}\n".encode() + setup)
        _has_begun = True
        options = [*job.options, f"attempts={attempts}"]
        if flat_below is not None:
            options.append(f"flat_below={flat_below}")
        self._futures: dict[int, _Future] = {}
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._is_shut = False
        # The reader has taken a future out, and calls its callbacks.
        self._settling = False
        self._handle = _Handle.begin("\n".join(options), setup)
        self._counts = self._handle.counts
        self._sites = self._handle.sites
        job.announce(self._handle.ticket())
        if isinstance(job, _Alone):
            threading.Thread(target=self._serve_here, args=(setup,), daemon=True).start()
        self._reader = threading.Thread(target=self._read, name="isthmus-pool-results", daemon=True)
        self._ender = threading.Thread(target=self._end, name="isthmus-pool-end")
        self._reader.start()
        _pools.add(self)
        is_shown = sys.stderr.isatty() if progress is None else progress
        self._progress = _Progress(self.counts, self.sites) if is_shown else None

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> concurrent.futures.Future:
        data = _pack((function, arguments, named))
        future = _Future(self, self._state.call(data) if self._state else None)
        is_kept, result = self._find_kept(future)
        with self._lock:
            if self._is_shut:
                raise PoolError("the pool has been shut down")
            if is_kept:
                _give(future, None, result)
                return future
            future._number = self._handle.submit(data)
            self._futures[future._number] = future
        return future

    def _find_kept(self, future: _Future) -> tuple[bool, Any]:
        """Whether a call's result was kept, and the result. One that can't be made here isn't there."""
        kept = self._state.find(future._call) if self._state else None
        if kept is None:
            return False, None
        error, result = _unpack(_DONE, kept)
        return error is None, result

    def starmap(
        self,
        function: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:
        """As map(), with all arguments of a call in one element."""
        if chunksize < 1:
            raise ValueError("chunksize must be at least 1")
        calls = [tuple(arguments) for arguments in iterable]
        chunks = [calls[at : at + chunksize] for at in range(0, len(calls), chunksize)]
        results = super().map(_run_chunk, [function] * len(chunks), chunks, timeout=timeout)
        return (result for chunk in results for result in chunk)

    def map(
        self,
        function: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:
        """The results of function(*one of each iterable), in order. `chunksize` calls make a task."""
        if chunksize == 1:
            return super().map(function, *iterables, timeout=timeout)
        return self.starmap(function, zip(*iterables), timeout, chunksize)

    def counts(self) -> Counts:
        """How many tasks and workers there are."""
        return self._counts()

    def sites(self) -> dict[str, Site]:
        """How many workers there are at each site, and how many tasks were done there. Where the grid's
        administrator has named wider levels, it is the widest."""
        return self._sites()

    @property
    def num_workers(self) -> int:
        """How many workers take part now."""
        return self.counts().workers

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the pool once all tasks have a result. With `wait` it returns after that."""
        with self._lock:
            is_first, self._is_shut = not self._is_shut, True
            futures = list(self._futures.values()) if cancel_futures else []
        for future in futures:
            future.cancel()
        if is_first:
            self._ender.start()
        # A callback of a future is called by the thread that is waited for.
        if wait and threading.current_thread() is not self._reader:
            self._ender.join()

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        # What an exception leaves behind isn't waited for.
        if kind is not None:
            self._drop_futures()
        self.shutdown(wait=True)
        return False

    def _drop_futures(self) -> None:
        with self._idle:
            left, self._futures = list(self._futures.values()), {}
            self._idle.notify_all()
        for future in left:
            _give(future, PoolError("the pool has ended"))

    def _end(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._futures and not self._settling)
        if self._progress:
            self._progress.end()
        try:
            counts, sites = self._counts(), self._sites()
            self._counts, self._sites = lambda: counts, lambda: sites
        finally:
            self._handle.end()
            self._reader.join()
        if self._state:
            self._state.close()

    def _take_back(self, future: _Future) -> bool:
        with self._lock:
            if future._number not in self._futures or not self._handle.cancel(future._number):
                return False
            del self._futures[future._number]
            self._idle.notify_all()
            return True

    def _serve_here(self, setup: bytes) -> None:
        failed, found = _run(setup) if setup else (False, b"")
        while (task := self._handle.task()) is not None:
            _serve_task(self._handle, task, found if failed else None)

    def _read(self) -> None:
        while (found := self._handle.result()) is not None:
            number, kind, data = found
            with self._lock:
                future = self._futures.pop(number, None)
                self._settling = future is not None
            if future is not None:
                if self._state and kind == _DONE:
                    self._state.keep(future._call, data)
                _give(future, *_unpack(kind, data))
            with self._idle:
                self._settling = False
                if not self._futures:
                    self._idle.notify_all()
        self._drop_futures()


def _unpack(kind: int, data: bytes) -> tuple[BaseException | None, Any]:
    """A task's error, and its result if it has none."""
    try:
        if kind == _LOST:
            return LostError(data.decode("utf-8", "replace")), None
        found = pickle.loads(data)
        if kind == _DONE:
            return None, found
        error, where = found
        error.__cause__ = _RemoteTraceback(where)
        return error, None
    except Exception as error:
        # What came can't be made here.
        return error, None


def _give(future: concurrent.futures.Future, error: BaseException | None, result: Any = None) -> None:
    """Ends a future, unless it has ended already."""
    try:
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
    except concurrent.futures.InvalidStateError:
        pass


def _run_chunk(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
    return [function(*arguments) for arguments in calls]
