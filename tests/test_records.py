import errno
import json
import math
import os
import sqlite3
from fractions import Fraction

import numpy as np
import pytest
import rescert.sim.records as records_module
from hypothesis import given
from hypothesis import strategies as st
from rescert.sim.records import (
    APPLICATION_ID,
    RECORD_FORMAT,
    TAG,
    Job,
    Record,
    Result,
    Run,
    RunError,
    Store,
    StoreError,
    plain,
    versions,
)

FUNCTION = "rescert.sim.cells:simulated"
names = st.text(max_size=4).filter(lambda name: name != TAG)
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=6)


def nested(floats):
    return st.recursive(
        scalars | floats,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=8,
    )


def params(floats):
    return st.dictionaries(names, nested(floats), max_size=3)


finite = params(st.floats(allow_nan=False, allow_infinity=False))
anything = params(st.floats())


def record(result=None, *, key="0" * 64, arrays=(), function=FUNCTION):
    return Record(
        key=key,
        function=function,
        params={"M": 2},
        seed=7,
        result=result or {},
        versions=versions(),
        device="cpu",
        wall_seconds=0.5,
        finished="2025-01-01T00:00:00+00:00",
        arrays=arrays,
    )


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(item) for key, item in reversed(value.items())}
    return tuple(map(reversed_keys, value)) if isinstance(value, list) else value


def refuse_constant(name):
    raise AssertionError(f"{name} is not strict JSON")


class TestJob:
    @given(finite, st.integers(0, 2**128))
    def test_key_ignores_the_order_of_dict_keys_and_tuples_for_lists(self, given_params, seed):
        assert Job(FUNCTION, given_params, seed).key == Job(FUNCTION, reversed_keys(given_params), seed).key

    @given(finite, finite)
    def test_key_is_injective_on_plain_json(self, one, other):
        same_text = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
        assert (Job(FUNCTION, one, 0).key == Job(FUNCTION, other, 0).key) is same_text

    def test_key_tells_inputs_apart(self):
        jobs = [
            Job(FUNCTION, {"M": 1}, 0),
            Job(FUNCTION, {"M": 1.0}, 0),
            Job(FUNCTION, {"M": True}, 0),
            Job(FUNCTION, {"M": "1"}, 0),
            Job(FUNCTION, {"M": [1]}, 0),
            Job(FUNCTION, {"M": 1}, 1),
            Job(FUNCTION + "s", {"M": 1}, 0),
            Job(FUNCTION, {"M": math.nextafter(1.0, 2.0)}, 0),
        ]
        assert len({job.key for job in jobs}) == len(jobs)

    def test_key_depends_on_the_record_format(self, monkeypatch):
        before = Job(FUNCTION, {}, 0).key
        monkeypatch.setattr(records_module, "RECORD_FORMAT", RECORD_FORMAT + 1)
        assert Job(FUNCTION, {}, 0).key != before

    def test_key_is_pinned(self):
        # A key that drifts between releases makes every stored record unreachable.
        job = Job(FUNCTION, {"M": 64, "alpha": 0.1, "grid": [[1, 2], [3, 4]]}, 7, label="shown", cost=3.0)
        assert job.key == "11e0617ba0fee0dabe06ddc69f7e1ce858e03016814f3439ce85678d1cb7a3db"

    def test_label_and_cost_do_not_count(self):
        assert Job(FUNCTION, {}, 0, label="a", cost=2.0).key == Job(FUNCTION, {}, 0).key

    def test_numpy_scalars_are_the_numbers_they_hold(self):
        job = Job(
            FUNCTION, {"M": np.int64(3), "x": np.float64(0.1), "y": np.float32(0.5), "b": np.bool_(True)}, np.int64(1)
        )
        assert job.key == Job(FUNCTION, {"M": 3, "x": 0.1, "y": 0.5, "b": True}, 1).key
        assert [type(value) for value in job.params.values()] == [int, float, float, bool]

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan")])
    def test_non_finite_parameter_is_named(self, bad):
        with pytest.raises(ValueError, match=r"Job .*: params\.law\.scales\[1\] is -?(nan|inf); expected a finite"):
            Job(FUNCTION, {"law": {"scales": [1.0, bad]}}, 0)

    @pytest.mark.parametrize(
        ("bad", "match"),
        [
            ({"x": np.ones(2)}, r"params\.x is ndarray; expected None, bool"),
            ({"x": {1}}, r"params\.x is set"),
            ({"x": 1j}, r"params\.x is complex"),
            ({"x": {1: 2}}, r"params\.x: the key 1 is int; JSON has string keys only"),
            ([1], r"params must be a dict, got list"),
        ],
    )
    def test_parameters_that_json_cannot_hold(self, bad, match):
        with pytest.raises(TypeError, match=match):
            Job(FUNCTION, bad, 0)

    @pytest.mark.parametrize("name", ["", "module", "module:", ":function", "a b:f", "a:f.g", "a.:f"])
    def test_function_must_be_importable_by_name(self, name):
        with pytest.raises(ValueError, match=r"function must read 'package\.module:function'"):
            Job(name, {}, 0)

    def test_seed_must_be_whole(self):
        with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
            Job(FUNCTION, {}, 0.5)

    def test_params_are_a_copy(self):
        mine = {"grid": [1, 2]}
        job = Job(FUNCTION, mine, 0)
        mine["grid"].append(3)
        assert job.params == {"grid": [1, 2]}


class TestResult:
    def test_arrays_of_objects_are_refused(self):
        with pytest.raises(TypeError, match="result array 'a' must be a NumPy array of numbers, got dtype object"):
            Result(values={}, arrays={"a": np.array([{}])})
        with pytest.raises(TypeError, match="result array 'a' must be a NumPy array of numbers, got list"):
            Result(values={}, arrays={"a": [1.0]})

    def test_values_must_be_plain(self):
        with pytest.raises(TypeError, match=r"result\.p is Fraction"):
            Result(values={"p": Fraction(1, 3)})
        with pytest.raises(TypeError, match="must return a dict or a Result, got NoneType"):
            Result(values=None)

    def test_reserved_key(self):
        with pytest.raises(ValueError, match=f"the key '{TAG}' is reserved"):
            Result(values={"a": {TAG: "nan"}})


class TestStore:
    @given(anything)
    def test_json_is_strict_and_comes_back_to_the_bit(self, result):
        result = plain(result, "result")
        text = record(result).to_json()
        json.loads(text, parse_constant=refuse_constant)
        assert repr(Record.from_json(text)) == repr(record(result))

    def test_non_finite_results_survive_the_disk(self, tmp_path):
        result = {"p": math.nan, "upper": [math.inf, -math.inf, -0.0, 5e-324], "name": "BaNaNa NaN Infinity"}
        with Store(tmp_path) as store:
            store.put(record(result))
        with Store(tmp_path) as store:
            assert repr(store.get("0" * 64).result) == repr(result)
        (text,) = sqlite3.connect(tmp_path / "records.sqlite").execute("SELECT record FROM records").fetchone()
        json.loads(text, parse_constant=refuse_constant)

    def test_round_trip_membership_and_order(self, tmp_path):
        with Store(tmp_path / "new" / "folder") as store:
            for key in ("c", "a", "b"):
                store.put(record({"from": key}, key=key, function=f"module:{key}"))
            assert "a" in store
            assert "z" not in store
            assert store.done(["a", "z", "c"]) == {"a", "c"}
            assert [found.key for found in store.records()] == ["a", "b", "c"]
            assert [found.result for found in store.records("module:b")] == [{"from": "b"}]
            assert store.get("a") == record({"from": "a"}, key="a", function="module:a")
            with pytest.raises(KeyError, match="no record z"):
                store.get("z")

    def test_a_record_that_is_there_stays(self, tmp_path):
        with Store(tmp_path) as store:
            store.put(record({"x": 1}))
            store.put(record({"x": 2}))
            assert [found.result for found in store.records()] == [{"x": 1}]

    def test_second_reader_sees_what_was_put(self, tmp_path):
        with Store(tmp_path) as writer, Store(tmp_path) as reader:
            writer.put(record({"x": 1}))
            assert reader.get("0" * 64).result == {"x": 1}

    def test_arrays(self, tmp_path):
        arrays = {"file": np.arange(6.0).reshape(2, 3).T, "empty": np.zeros((0, 3), np.float32), "mask": np.array(True)}
        with Store(tmp_path) as store:
            store.put(record(arrays=tuple(arrays)), arrays)
            store.put(record(key="b"))
            assert store.arrays("b") == {}
            found = store.arrays("0" * 64)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
        assert [path.name for path in (tmp_path / "arrays").iterdir()] == ["0" * 64 + ".npz"]

    @pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"PK\3\4 not a zip")])
    def test_lost_or_damaged_arrays(self, tmp_path, damage):
        with Store(tmp_path) as store:
            store.put(record(arrays=("q",)), {"q": np.ones(3)})
            damage(tmp_path / "arrays" / ("0" * 64 + ".npz"))
            with pytest.raises(StoreError, match=r"\.npz: arrays of a record are missing or damaged.*restore the file"):
                store.arrays("0" * 64)


class TestStoreRefuses:
    def filled(self, folder, count=200):
        with Store(folder) as store:
            for number in range(count):
                store.put(record({"x": "y" * 100}, key=f"{number:064}"))
        return folder / "records.sqlite"

    def test_a_file_that_is_no_database(self, tmp_path):
        path = tmp_path / "records.sqlite"
        path.write_bytes(b"this was never a database" * 100)
        before = path.read_bytes()
        with pytest.raises(StoreError, match=r"records\.sqlite: file is not a database; .*move it away") as caught:
            Store(tmp_path)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == before

    def test_a_truncated_database(self, tmp_path):
        path = self.filled(tmp_path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(StoreError, match=r"malformed; .*rescert resume"), Store(tmp_path) as store:
            store.records()

    def test_a_record_with_rotten_json(self, tmp_path):
        path = self.filled(tmp_path, count=1)
        with sqlite3.connect(path) as database:
            database.execute("UPDATE records SET record = '{\"key\": '")
        with Store(tmp_path) as store, pytest.raises(StoreError, match="broken record"):
            store.records()

    def test_another_format(self, tmp_path):
        with sqlite3.connect(self.filled(tmp_path)) as database:
            database.execute(f"PRAGMA user_version = {RECORD_FORMAT + 1}")
        with pytest.raises(StoreError, match=f"record format {RECORD_FORMAT + 1}, this version reads {RECORD_FORMAT}"):
            Store(tmp_path)

    def test_somebody_elses_database(self, tmp_path):
        path = tmp_path / "records.sqlite"
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE accounts (name TEXT)")
        before = path.read_bytes()
        with pytest.raises(StoreError, match="not one of rescert's"):
            Store(tmp_path)
        assert path.read_bytes() == before

    def test_an_empty_file_is_a_new_store(self, tmp_path):
        # A process killed between making the file and its first commit leaves this.
        (tmp_path / "records.sqlite").touch()
        with Store(tmp_path) as store:
            store.put(record())
        with sqlite3.connect(tmp_path / "records.sqlite") as database:
            assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)

    def test_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match=r"Not a directory; choose a folder that you may write to"):
            Store(tmp_path / "file" / "run")

    def test_a_database_that_cannot_be_opened(self, tmp_path):
        (tmp_path / "records.sqlite").mkdir()
        with pytest.raises(StoreError, match="unable to open database file; choose a folder that you may write to"):
            Store(tmp_path)

    def test_a_read_only_database(self, tmp_path):
        with Store(tmp_path) as store:
            store._database.execute("PRAGMA query_only = ON")
            with pytest.raises(StoreError, match="readonly database; choose a folder that you may write to"):
                store.put(record())

    def test_another_process_holding_it(self, tmp_path, monkeypatch):
        monkeypatch.setattr(records_module, "BUSY_SECONDS", 0)
        with Store(tmp_path) as holder, Store(tmp_path) as store:
            holder._database.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="database is locked; another process holds it"):
                store.put(record())

    def test_a_full_disk_keeps_earlier_records(self, tmp_path):
        with Store(tmp_path) as store:
            (pages,) = store._database.execute("PRAGMA page_count").fetchone()
            store._database.execute(f"PRAGMA max_page_count = {pages + 2}")
            store.put(record({"x": 1}))
            with pytest.raises(StoreError, match=r"disk is full; free space .*rescert resume.* kept"):
                store.put(record({"x": "y" * 100_000}, key="big"))
        with Store(tmp_path) as store:
            assert [found.result for found in store.records()] == [{"x": 1}]

    def test_a_full_disk_leaves_no_half_array(self, tmp_path, monkeypatch):
        def full(descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with Store(tmp_path) as store:
            monkeypatch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match=r"npz: No space left on device; free space"):
                store.put(record(arrays=("q",)), {"q": np.ones(3)})
            assert store.records() == []
        assert list((tmp_path / "arrays").iterdir()) == []


class TestRun:
    OPTIONS = {"suites": ["alignment"], "preset": "quick", "seed": 3, "scale": 0.5}  # noqa: RUF012

    def test_create_open_and_reopen(self, tmp_path):
        made = Run.create(tmp_path / "a" / "run", job="verify", options=self.OPTIONS)
        made.store.put(record({"x": 1}))
        opened = Run.open(made.path)
        again = Run.create(str(made.path), job="verify", options={**self.OPTIONS, "suites": ("alignment",)})
        for run in (opened, again):
            assert (run.path, run.job, run.options, run.created) == (made.path, "verify", self.OPTIONS, made.created)
            assert run.store.get("0" * 64).result == {"x": 1}
        about = json.loads((made.path / "run.json").read_text(), parse_constant=refuse_constant)
        assert about["rescert"] == versions()["rescert"]
        assert about["options"] == self.OPTIONS

    @pytest.mark.parametrize(
        ("job", "change", "match"),
        [
            ("verify", {"seed": 4}, r"a run with seed = 3, asked for 4; choose another folder"),
            ("verify", {"extra": 1}, r"a run with extra = None, asked for 1"),
            ("rates", {}, r"a run with job = 'verify', asked for 'rates'"),
        ],
    )
    def test_create_in_a_run_of_other_options(self, tmp_path, job, change, match):
        Run.create(tmp_path, job="verify", options=self.OPTIONS)
        before = (tmp_path / "run.json").read_bytes()
        with pytest.raises(RunError, match=match):
            Run.create(tmp_path, job=job, options=self.OPTIONS | change)
        assert (tmp_path / "run.json").read_bytes() == before

    def test_create_where_nothing_can_be_written(self, tmp_path):
        (tmp_path / "file").touch()
        for folder in (tmp_path / "file", tmp_path / "file" / "run"):
            with pytest.raises(RunError, match=r"cannot make a run folder here .*; choose a folder"):
                Run.create(folder, job="verify", options={})
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_create_with_options_that_json_cannot_hold(self, tmp_path):
        with pytest.raises(ValueError, match=r"Run verify: options\.scale is nan"):
            Run.create(tmp_path / "run", job="verify", options={"scale": math.nan})
        assert not (tmp_path / "run").exists()

    def test_open_where_there_is_none(self, tmp_path):
        with pytest.raises(RunError, match=r"run\.json: No such file or directory; give a folder that rescert made"):
            Run.open(tmp_path)

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ('{"format": 1, "resc', "not valid JSON"),
            ("[1]", "run format None, this version reads 1"),
            ('{"format": 2}', "run format 2, this version reads 1"),
            ('{"format": 1, "rescert": "0.0.9"}', r"written by rescert 0\.0\.9, this is .*install rescert 0\.0\.9"),
            ('{"format": 1}', "written by rescert None"),
            ('{"format": 1, "rescert": "VERSION", "job": "verify"}', "job or options are missing"),
        ],
    )
    def test_open_refuses(self, tmp_path, text, match):
        (tmp_path / "run.json").write_text(text.replace("VERSION", versions()["rescert"]))
        with pytest.raises(RunError, match=match) as caught:
            Run.open(tmp_path)
        assert "\n" not in str(caught.value)

    def test_a_patch_release_may_go_on(self, tmp_path):
        run = Run.create(tmp_path, job="verify", options={})
        major, minor, _ = versions()["rescert"].split(".")
        text = (tmp_path / "run.json").read_text()
        (tmp_path / "run.json").write_text(text.replace(versions()["rescert"], f"{major}.{minor}.99"))
        assert Run.open(tmp_path).created == run.created
