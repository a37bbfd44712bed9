import builtins
import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from loky import get_reusable_executor
from rescert.sim import sweep
from rescert.sim.records import Job, Result, Store, StoreError
from rescert.sim.sweep import ClusterError, SweepError, run_jobs

HERE = "test_sweep"
WAIT = 60  # seconds until a test gives up on another process; never spent when all is well


# The jobs: importable by name in any worker, since tests/ is on the path. "log" counts their calls.


def log_call(params):
    if "log" in params:
        with open(params["log"], "a") as log:
            log.write(f"{params['x']} {os.getpid()}\n")


def product(params, seed):
    """Linear algebra whose last bits depend on the number of threads."""
    log_call(params)
    if params["x"] >= 4:  # a sweep under test gets so far, and is cut off in jobs that would go on for long
        time.sleep(float(os.environ.get("SWEEP_TEST_SECONDS", 0)))
    A = np.random.default_rng([seed, params["x"]]).standard_normal((200, 200))
    B = np.linalg.inv(A @ A.T)
    return Result(
        values={"trace": float(np.trace(B)), "sum": float(B.sum()), "nan": float("nan")}, arrays={"row": B[0]}
    )


def picky(params, seed):
    log_call(params)
    if params["x"] in params["bad"]:
        raise UnpicklableError(params["x"], "extra")
    return {"x": params["x"]}


def deadly(params, seed):
    log_call(params)
    if params["x"] in params["bad"] and not Path(params.get("spare", "/nonexistent")).exists():
        if "spare" in params:
            Path(params["spare"]).touch()
        os._exit(1)
    return {"x": params["x"]}


class UnpicklableError(Exception):
    def __init__(self, x, extra):
        super().__init__(f"x = {x} will not do")


def wrong_type(params, seed):
    return {"p": {1, 2}}


def leave(params, seed):
    sys.exit("leaving")


def inner_threads(params, seed):
    import threadpoolctl
    import torch

    return {
        "torch": torch.get_num_threads(),
        "pools": [pool["num_threads"] for pool in threadpoolctl.threadpool_info()],
    }


def jobs_of(function, xs, seed=0, **params):
    return [Job(f"{HERE}:{function}", {"x": x, **params}, seed, label=f"x={x}") for x in xs]


def calls(log):
    return sorted(int(line.split()[0]) for line in Path(log).read_text().splitlines()) if Path(log).exists() else []


def contents(store):
    return [
        (found.key, found.params, repr(found.result), store.arrays(found.key)["row"].tobytes())
        for found in store.records()
    ]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "run") as store:
        yield store


@pytest.fixture(scope="module", autouse=True)
def _no_pool_left():
    yield
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


def test_results_do_not_depend_on_the_number_of_workers(tmp_path):
    found = []
    for workers in (1, 2):
        with Store(tmp_path / str(workers)) as store:
            returned = run_jobs(jobs_of("product", range(5)), store, workers=workers)
            assert [record.params["x"] for record in returned] == list(range(5))
            assert all(record.wall_seconds > 0 and record.device == "cpu" for record in returned)
            found.append(contents(store))
    assert found[0] == found[1]


def test_workers_have_one_inner_thread_and_the_parent_keeps_its_own(store, monkeypatch):
    get_reusable_executor().shutdown(wait=True)  # or workers born earlier would answer
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "2")
    (record,) = run_jobs(jobs_of("inner_threads", [0]), store, workers=1)
    assert record.result["torch"] == 1
    assert record.result["pools"]
    assert set(record.result["pools"]) == {1}
    assert os.environ["OMP_NUM_THREADS"] == "2"


class TestBookkeeping:
    """On a thread of this process: what is skipped, counted and ordered does not depend on the executor."""

    @pytest.fixture
    def thread(self):
        with ThreadPoolExecutor(1) as executor:
            yield executor

    def test_stored_and_equal_jobs_are_not_run(self, store, thread, tmp_path):
        log = str(tmp_path / "log")
        run_jobs(jobs_of("picky", [1, 2], bad=[], log=log), store, executor=thread)
        returned = run_jobs(jobs_of("picky", [3, 2, 3, 1, 1], bad=[], log=log), store, executor=thread)
        assert [record.result["x"] for record in returned] == [3, 2, 3, 1, 1]
        assert calls(log) == [1, 2, 3]

    def test_progress_starts_with_what_is_stored(self, store, thread):
        seen = []
        run_jobs(jobs_of("picky", [1], bad=[]), store, executor=thread)
        run_jobs(
            jobs_of("picky", [1, 2, 3, 3], bad=[]), store, executor=thread, on_progress=lambda *step: seen.append(step)
        )
        assert seen == [(1, 3, ""), (2, 3, "x=2"), (3, 3, "x=3")]

    def test_the_dearest_start_first(self, store, thread, tmp_path):
        log = tmp_path / "log"
        jobs = [Job(f"{HERE}:picky", {"x": x, "bad": [], "log": str(log)}, 0, cost=x % 3) for x in range(6)]
        run_jobs(jobs, store, executor=thread)
        assert [int(line.split()[0]) for line in log.read_text().splitlines()] == [2, 5, 1, 4, 0, 3]

    def test_no_jobs(self, store):
        assert run_jobs([], store) == []

    def test_nothing_missing_starts_nothing(self, store, thread):
        jobs = jobs_of("picky", [1], bad=[])
        run_jobs(jobs, store, executor=thread)
        assert len(run_jobs(jobs, store, cluster="tcp://nowhere:1")) == 1

    def test_an_executor_of_ones_own_stays_open(self, store, thread):
        run_jobs(jobs_of("picky", [1], bad=[]), store, executor=thread)
        assert thread.submit(int, 3).result() == 3

    def test_usage(self, store, thread):
        with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
            run_jobs([], store, workers=0)
        with pytest.raises(ValueError, match="give cluster or executor, not both"):
            run_jobs([], store, cluster="tcp://host:1", executor=thread)

    def test_a_result_that_cannot_be_stored_ends_the_sweep(self, store, thread, tmp_path, monkeypatch):
        log = str(tmp_path / "log")
        put, room = store.put, iter([True, True, False])

        def put_while_there_is_room(record, arrays):
            if not next(room):
                raise StoreError("disk is full")
            put(record, arrays)

        monkeypatch.setattr(store, "put", put_while_there_is_room)
        with pytest.raises(StoreError, match="disk is full"):
            run_jobs(jobs_of("picky", range(500), bad=[], log=log), store, executor=thread)
        assert [record.result["x"] for record in store.records()] in ([0, 1], [1, 0])
        assert len(calls(log)) < 500

    def test_an_executor_that_cancels(self, store):
        class Cancelling(Executor):
            def submit(self, fn, *args):
                future = Future()
                future.cancel()
                return future

        with pytest.raises(SweepError, match=r"cancelled by its executor"):
            run_jobs(jobs_of("picky", [1], bad=[]), store, executor=Cancelling())

    def test_an_executor_that_breaks(self, store):
        class Broken(Executor):
            def submit(self, fn, *args):
                future = Future()
                future.set_exception(BrokenExecutor("gone"))
                return future

        with pytest.raises(SweepError, match="2 of 2 jobs failed") as caught:
            run_jobs(jobs_of("picky", [1, 2], bad=[]), store, executor=Broken())
        assert {failure.message for failure in caught.value.failures} == {"not finished: Broken broke"}


class TestFailures:
    def test_the_others_finish(self, store):
        with pytest.raises(SweepError, match="2 of 6 jobs failed; the results of the others are stored") as caught:
            run_jobs(jobs_of("picky", range(6), bad=[1, 4]), store, workers=2)
        assert sorted(record.result["x"] for record in store.records()) == [0, 2, 3, 5]
        failures = sorted(caught.value.failures, key=lambda failure: failure.job.params["x"])
        assert [failure.message for failure in failures] == [f"UnpicklableError: x = {x} will not do" for x in (1, 4)]
        assert "in picky" in failures[0].traceback
        assert "test_sweep:picky {'x': 1, 'bad': [1, 4]} seed 0: UnpicklableError" in str(caught.value)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (f"{HERE}:wrong_type", r"TypeError: result\.p is set; expected None, bool"),
            (f"{HERE}:leave", "SystemExit: leaving"),
            (f"{HERE}:absent", "AttributeError: module 'test_sweep' has no attribute 'absent'"),
            ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ],
    )
    def test_each_kind_is_reported(self, store, function, message):
        with pytest.raises(SweepError, match=message):
            run_jobs([Job(function, {}, 0)], store)

    def test_a_long_list_is_cut_in_the_message_only(self, store):
        with ThreadPoolExecutor(1) as executor, pytest.raises(SweepError, match="and 15 more") as caught:
            run_jobs(jobs_of("picky", range(25), bad=list(range(25))), store, executor=executor)
        assert len(caught.value.failures) == 25
        assert len(str(caught.value).splitlines()) == 12

    def test_a_job_that_kills_its_worker_is_reported_and_no_other(self, store, tmp_path):
        log = str(tmp_path / "log")
        with pytest.raises(SweepError, match="1 of 12 jobs failed") as caught:
            run_jobs(jobs_of("deadly", range(12), bad=[3], log=log), store, workers=2)
        assert [failure.job.params["x"] for failure in caught.value.failures] == [3]
        assert "its worker process died twice" in caught.value.failures[0].message
        assert sorted(record.result["x"] for record in store.records()) == [x for x in range(12) if x != 3]
        assert calls(log).count(3) == 2

    def test_a_job_whose_worker_died_once_is_run_again(self, store, tmp_path):
        spare, log = str(tmp_path / "spare"), str(tmp_path / "log")
        returned = run_jobs(jobs_of("deadly", range(4), bad=[2], spare=spare, log=log), store, workers=2)
        assert [record.result["x"] for record in returned] == [0, 1, 2, 3]
        assert calls(log).count(2) == 2

    def test_workers_that_never_live_do_not_take_for_ever(self, store, monkeypatch):
        monkeypatch.setattr(sweep, "POOLS", 1)
        with pytest.raises(SweepError, match="20 of 20 jobs failed") as caught:
            run_jobs(jobs_of("deadly", range(20), bad=list(range(20))), store, workers=1)
        untried = [
            failure for failure in caught.value.failures if failure.message.startswith("not run: worker processes")
        ]
        assert len(untried) == 18


SWEEP = """
import sys
from rescert.sim import sweep
from rescert.sim.records import Job, Store
from rescert.sim.sweep import run_jobs
folder, log = sys.argv[1:]
jobs = [Job("test_sweep:product", {"x": x, "log": log}, 5) for x in range(12)]
run_jobs(jobs, Store(folder), workers=2)
"""


def start_sweep(folder, log, seconds):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "SWEEP_TEST_SECONDS": str(seconds)}
    arguments = [sys.executable, "-c", SWEEP, str(folder), str(log)]
    # A session of its own, as a terminal gives: the whole group can be signalled.
    return subprocess.Popen(arguments, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)


def wait_until(condition, what):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        time.sleep(0.02)


def stored(folder):
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder}/records.sqlite?mode=ro", uri=True)) as database:
            return database.execute("SELECT count(*) FROM records").fetchone()[0]
    except sqlite3.OperationalError:  # the child has not made it yet
        return 0


def offspring(pid):
    return psutil.Process(pid).children(recursive=True)


def alive(processes):
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    return True  # one ended while it was looked at: ask again


def test_resume_after_kill_computes_only_what_is_missing(tmp_path):
    folder, log = tmp_path / "killed", tmp_path / "log"
    child = start_sweep(folder, log, seconds=30)
    wait_until(lambda: stored(folder) >= 3, "three records")
    orphans = offspring(child.pid)
    child.kill()
    child.wait()
    killed = time.monotonic()
    wait_until(lambda: not alive(orphans), "orphaned workers to end")
    assert time.monotonic() - killed < sweep.ORPHAN_SECONDS + 4
    child.stderr.close()
    started, kept = calls(log), stored(folder)
    assert 3 <= kept < 12

    jobs = jobs_of("product", range(12), seed=5, log=str(log))
    with Store(folder) as store:
        missing = [job.params["x"] for job in jobs if job.key not in store]
        run_jobs(jobs, store, workers=2)
        resumed = contents(store)
    assert len(missing) == 12 - kept
    assert calls(log) == sorted(started + missing)
    with Store(tmp_path / "whole") as store:
        run_jobs(jobs, store, workers=1)
        assert contents(store) == resumed


@pytest.mark.parametrize(
    "to_the_group", [pytest.param(True, id="terminal"), pytest.param(False, id="parent only", marks=pytest.mark.slow)]
)
def test_interrupt_keeps_what_is_stored_and_ends_the_workers(tmp_path, to_the_group):
    folder, log = tmp_path / "run", tmp_path / "log"
    child = start_sweep(folder, log, seconds=30)
    wait_until(lambda: stored(folder) >= 2, "two records")
    kept, workers = stored(folder), offspring(child.pid)
    started = time.monotonic()
    (os.killpg if to_the_group else os.kill)(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=WAIT)
    assert time.monotonic() - started < 5
    assert child.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1
    wait_until(lambda: not alive(workers), "workers to end")
    assert time.monotonic() - started < 5
    assert kept <= stored(folder) < 12


def test_the_process_ends_soon_after_the_last_job(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    child = start_sweep(folder, log, seconds=0)
    wait_until(lambda: stored(folder) == 12, "the last record")
    started = time.monotonic()
    _, errors = child.communicate(timeout=WAIT)
    assert time.monotonic() - started < 5
    assert child.returncode == 0
    assert errors == ""


def test_idle_workers_leave(store, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "IDLE_SECONDS", 2)
    log = tmp_path / "log"
    run_jobs(jobs_of("picky", range(4), bad=[], log=str(log)), store, workers=2)
    finished = time.monotonic()
    pids = {int(line.split()[1]) for line in log.read_text().splitlines()}
    workers = [process for process in offspring(os.getpid()) if process.pid in pids]
    assert workers
    wait_until(lambda: not alive(workers), "workers to end")
    assert time.monotonic() - finished < 2 + 2


@pytest.fixture(scope="module")
def scheduler():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


class TestCluster:
    def test_same_results_as_here(self, scheduler, tmp_path):
        found = []
        for cluster in (scheduler, None):
            with Store(tmp_path / str(cluster is None)) as store:
                run_jobs(jobs_of("product", range(4)), store, cluster=cluster)
                found.append(contents(store))
        assert found[0] == found[1]

    def test_failing_job(self, scheduler, store):
        with pytest.raises(SweepError, match="1 of 3 jobs failed"):
            run_jobs(jobs_of("picky", range(3), bad=[1]), store, cluster=scheduler)
        assert len(store.records()) == 2

    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:{free}", "nonsense://x"])
    def test_nobody_there(self, store, address, monkeypatch):
        assert sweep.CONNECT_SECONDS <= 8
        monkeypatch.setattr(sweep, "CONNECT_SECONDS", 1)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        started = time.monotonic()
        with pytest.raises(
            ClusterError, match=r"no Dask scheduler answers .*start one with `dask scheduler`"
        ) as caught:
            run_jobs(jobs_of("picky", [1], bad=[]), store, cluster=address.format(free=free))
        assert time.monotonic() - started < 3
        assert "\n" not in str(caught.value)

    def test_dask_not_installed(self, store, monkeypatch):
        real = builtins.__import__

        def without_dask(name, *rest, **more):
            if name == "distributed":
                raise ModuleNotFoundError("No module named 'distributed'")
            return real(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", without_dask)
        with pytest.raises(ClusterError, match=r'pip install "rescert\[cluster\]"'):
            run_jobs(jobs_of("picky", [1], bad=[]), store, cluster="tcp://127.0.0.1:1")
