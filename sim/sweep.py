"""Run jobs on worker processes: what the store holds is skipped, what finishes is stored at once."""

import os
import signal
import socket
import sys
import textwrap
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue

import numpy as np
from loky import get_reusable_executor, process_executor

from .records import Job, Record, Result, Store, versions

# Thread pools are sized when BLAS, OpenMP or numba load, so a worker must be born with these.
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA")}
IDLE_SECONDS = 20
ORPHAN_SECONDS = 1
CONNECT_SECONDS = 5
# A pool that breaks is replaced; workers that cannot live at all must not be tried for every job of a large sweep.
POOLS = 10
SHOWN_FAILURES = 10


class ClusterError(RuntimeError):
    """A Dask scheduler that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A job that gave no result: the job, why, and the worker's traceback where there is one."""

    job: Job
    message: str
    traceback: str = ""


class SweepError(RuntimeError):
    """Some jobs failed; every other one is in the store. ``failures`` holds them all, the message the first few."""

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        self.failures = tuple(failures)
        lines = [f"{len(failures)} of {total} jobs failed; the results of the others are stored."]
        for failure in failures[:SHOWN_FAILURES]:
            params = textwrap.shorten(str(failure.job.params), 200)
            lines.append(f"  {failure.job.function} {params} seed {failure.job.seed}: {failure.message}")
        if len(failures) > SHOWN_FAILURES:
            lines.append(f"  and {len(failures) - SHOWN_FAILURES} more")
        super().__init__("\n".join(lines))


def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    *,
    workers: int = 1,
    cluster: str | None = None,
    executor: Executor | None = None,
    on_progress: Callable[[int, int, str], object] = lambda done, total, label: None,
) -> list[Record]:
    """Return the record of every job, computing those that the store does not hold.

    The dearest jobs start first. Only this process writes to the store. By default jobs run in loky processes with one
    BLAS or OpenMP thread each, a single worker included: results then do not depend on the number of workers, and a
    crash costs one job. An executor or cluster of your own brings its own number of threads.

    Args:
        jobs: In the order of the result; equal ones are computed once.
        store: Read first, written as jobs finish.
        workers: Processes, at least 1.
        cluster: Address of a Dask scheduler to use instead, as in "tcp://host:8786".
        executor: Any other executor to use instead; it is not shut down.
        on_progress: Called with (jobs done, jobs in all, label of the last one), first of all with what the store held.

    Raises:
        SweepError: When everything has been tried and some jobs failed.
        StoreError: If a result cannot be stored; workers are ended and earlier records kept, as on KeyboardInterrupt.
        ClusterError: If the scheduler cannot be reached, or ``distributed`` is not installed.
        ValueError: If ``workers`` is below 1, or both ``cluster`` and ``executor`` are given.
    """
    if workers < 1:
        raise ValueError(f"run_jobs: workers must be at least 1, got {workers}.")
    if cluster is not None and executor is not None:
        raise ValueError("run_jobs: give cluster or executor, not both.")
    wanted = {job.key: job for job in jobs}
    stored = store.done(wanted)
    sweep = _Sweep(store, on_progress, done=len(stored), total=len(wanted))
    missing = [job for key, job in wanted.items() if key not in stored]
    queue = deque(sorted(missing, key=lambda job: -job.cost))
    on_progress(sweep.done, sweep.total, "")
    if not queue:
        pass
    elif cluster is not None:
        with _dask(cluster) as remote:
            sweep.on_foreign(queue, remote)
    elif executor is not None:
        sweep.on_foreign(queue, executor)
    else:
        sweep.on_processes(queue, workers)
    if sweep.failures:
        raise SweepError(sweep.failures, sweep.total)
    return [store.get(job.key) for job in jobs]


class _Sweep:
    """The bookkeeping of one call of ``run_jobs``."""

    def __init__(self, store: Store, on_progress: Callable[[int, int, str], object], *, done: int, total: int) -> None:
        self.store, self.on_progress, self.done, self.total = store, on_progress, done, total
        self.failures: list[Failure] = []

    def on_processes(self, queue: deque[Job], workers: int) -> None:
        """Run on loky; jobs that were in flight when a worker died are run again, alone, after all others.

        Alone, because which of them killed the worker is not known: so no innocent job is ever reported, and one that
        ran out of memory gets all there is.
        """
        lost: list[Job] = []
        for _ in range(POOLS):
            with _processes(workers) as pool:
                # One job ahead of each worker keeps them busy; more would only widen the circle of suspects.
                lost += self.drain(queue, pool, in_flight=2 * workers)
            if not queue:
                break
        for job in lost:
            with _processes(1) as pool:
                if self.drain(deque([job]), pool, in_flight=1):
                    self.fail(job, "its worker process died twice (out of memory, or a crash in native code)")
        for job in queue:
            self.fail(job, f"not run: worker processes died in {POOLS} pools")

    def on_foreign(self, queue: deque[Job], executor: Executor) -> None:
        """Run on an executor that cannot be replaced when it breaks."""
        for job in [*self.drain(queue, executor, in_flight=len(queue)), *queue]:
            self.fail(job, f"not finished: {type(executor).__name__} broke")

    def drain(self, queue: deque[Job], executor: Executor, *, in_flight: int) -> list[Job]:
        """Take jobs from the queue and settle them until it is empty or the executor breaks.

        Returns:
            The jobs lost in a broken executor; what it never got is still in the queue.
        """
        flying: dict[Future, Job] = {}
        landed: SimpleQueue[Future] = SimpleQueue()
        lost: list[Job] = []
        try:
            while flying or (queue and not lost):
                while queue and not lost and len(flying) < in_flight:
                    job = queue.popleft()
                    try:
                        with _uninterrupted():
                            future = executor.submit(execute, job)
                    except BrokenExecutor:
                        lost.append(job)
                        continue
                    flying[future] = job
                    future.add_done_callback(landed.put)
                if flying:
                    future = landed.get()
                    job = flying.pop(future)
                    if not self.settle(job, future):
                        lost.append(job)
        finally:
            for future in flying:
                future.cancel()
        return lost

    def settle(self, job: Job, future: Future) -> bool:
        """Store what a job gave, or note that it failed; False if its executor broke."""
        try:
            outcome = future.result()
        except BrokenExecutor:
            return False
        except CancelledError:
            self.fail(job, "cancelled by its executor (a scheduler that ended, or a lost connection)")
            return True
        except Exception as error:  # whatever the executor itself says of a job
            self.fail(job, _one_line(error))
            return True
        if isinstance(outcome, Failure):
            self.fail(job, outcome.message, outcome.traceback)
        else:
            self.store.put(*outcome)
            self.count(job)
        return True

    def fail(self, job: Job, message: str, trace: str = "") -> None:
        self.failures.append(Failure(job=job, message=message, traceback=trace))
        self.count(job)

    def count(self, job: Job) -> None:
        self.done += 1
        self.on_progress(self.done, self.total, job.label)


def execute(job: Job) -> tuple[Record, Mapping[str, np.ndarray]] | Failure:
    """Run one job in this process; a failure comes back as data, since not every exception can be pickled."""
    started = time.perf_counter()
    try:
        returned = job.resolve()(job.params, job.seed)
        result = returned if isinstance(returned, Result) else Result(values=returned)
    except (Exception, SystemExit) as error:  # the one place where a job's own error is turned into a report
        return Failure(job=job, message=_one_line(error), traceback=traceback.format_exc())
    record = Record(
        key=job.key,
        function=job.function,
        params=job.params,
        seed=job.seed,
        result=result.values,
        versions=versions(),
        device=str(result.values.get("device") or "cpu"),
        wall_seconds=time.perf_counter() - started,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        arrays=tuple(result.arrays),
    )
    return record, result.arrays


def _one_line(error: BaseException) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {error}", 500)


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    # Reused by the next sweep if that comes within IDLE_SECONDS: importing torch anew costs seconds.
    with _uninterrupted():
        pool = get_reusable_executor(
            workers, timeout=IDLE_SECONDS, initializer=_live_and_die_with, initargs=(os.getpid(),), env=ONE_THREAD
        )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=True, kill_workers=True)
        raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait while workers are born: half a birth ends in a traceback on standard output.

    They inherit the blocked signal, so that a terminal's Ctrl-C does not reach them before they can ignore it.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    caught: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if caught:
        raise KeyboardInterrupt


def _live_and_die_with(parent: int) -> None:
    # A terminal sends Ctrl-C to the workers too; the parent alone decides, and ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    # Jobs of one sweep need very different amounts of memory: growth is no leak, and a restart imports torch anew.
    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize

    # A killed parent ends nobody: its workers would train on, beside those of the resumed run.
    threading.Thread(target=watch, daemon=True).start()


def _reach(address: str) -> None:
    """Knock before Dask does: what it leaves behind when nobody answers is a traceback, not a line."""
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in ("", "tcp", "tls") or not (host and port.isdigit()):
        return  # not a socket, or not an address: Dask says which
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"cluster {address}: no Dask scheduler answers ({_one_line(error)}); start one with `dask scheduler`, "
            "or leave --cluster out."
        ) from error


def check_cluster(address: str) -> None:
    """Connect to a Dask scheduler once, before anything is written.

    Raises:
        ClusterError: If it cannot be reached, or ``distributed`` is not installed.
    """
    with _dask(address):
        pass


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise ClusterError(f'cluster {address}: needs Dask; pip install "rescert[cluster]".') from error
    _reach(address)
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"cluster {address}: no Dask scheduler answers ({_one_line(error)}); start one with `dask scheduler`, "
            "or leave --cluster out."
        ) from error
    with client:
        yield client.get_executor(pure=False)
