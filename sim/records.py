"""What a simulation leaves behind: jobs, their records, the store that holds them and the run folder around it."""

import errno
import hashlib
import json
import math
import operator
import os
import platform
import sqlite3
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import import_module, metadata
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from ..version import VERSION

RECORD_FORMAT = 1
RUN_FORMAT = 1
APPLICATION_ID = 0x72636572  # "rcer": tells a store from any other SQLite file
BUSY_SECONDS = 10
# JSON has no NaN and no infinity: {"__float__": "nan"} stands for them, and nothing else may use the name.
TAG = "__float__"

_FULL = "free space on that disk and go on with `rescert resume {folder}`: every record stored so far is kept"
_UNWRITABLE = "choose a folder that you may write to with --out"
_DAMAGED = (
    "the file is damaged and was left as it is: move it away and `rescert resume {folder}` computes its records again"
)
_FIXES = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _UNWRITABLE,
    sqlite3.SQLITE_CANTOPEN: _UNWRITABLE,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_BUSY: "another process holds it: wait for that one, or end it",
}


class StoreError(RuntimeError):
    """A store that cannot be read or written; what it holds is untouched."""


class RunError(RuntimeError):
    """A run folder that cannot be made, or does not fit this version or these options."""


def plain(value: Any, where: str, *, finite: bool = False) -> Any:
    """Return a copy of ``value`` in JSON's own types: tuples become lists, NumPy scalars Python numbers.

    Args:
        value: None, bool, int, float, str, or lists, tuples and dicts of them.
        where: What to call it in an error.
        finite: Refuse NaN and infinities.

    Raises:
        TypeError: For any other type, or a dict key that is not a string.
        ValueError: For the reserved key "__float__"; for a non-finite number if ``finite``.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and finite and not math.isfinite(value):
        raise ValueError(f"{where} is {value}; expected a finite number (None can stand for a missing one).")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{index}]", finite=finite) for index, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is {type(key).__name__}; JSON has string keys only.")
        if TAG in value:
            raise ValueError(f"{where}: the key {TAG!r} is reserved for non-finite numbers; choose another name.")
        return {key: plain(item, f"{where}.{key}", finite=finite) for key, item in value.items()}
    raise TypeError(
        f"{where} is {type(value).__name__}; expected None, bool, int, float, str, list or dict "
        "(arrays go into Result.arrays)."
    )


@dataclass(frozen=True, eq=False)
class Job:
    """A pure function of (parameters, seed), by name, so that it travels to any worker.

    Attributes:
        function: "package.module:function", called as ``function(params, seed)`` and returning a dict or a ``Result``.
        params: JSON types, finite. 1 and 1.0 are different parameters: a function can tell them apart.
        seed: Root of the job's random streams.
        label: What progress shows; not part of the key.
        cost: Expected effort in any unit, for the order of starting; not part of the key.
    """

    function: str
    params: dict[str, Any]
    seed: int
    label: str = field(default="", kw_only=True)
    cost: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        module, _, name = self.function.partition(":")
        if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            raise ValueError(f"Job: function must read 'package.module:function', got {self.function!r}.")
        if not isinstance(self.params, dict):
            raise TypeError(f"Job {self.function}: params must be a dict, got {type(self.params).__name__}.")
        object.__setattr__(self, "params", plain(self.params, f"Job {self.function}: params", finite=True))
        object.__setattr__(self, "seed", operator.index(self.seed))

    @cached_property
    def key(self) -> str:
        """SHA-256 of the canonical JSON of (function, params, seed, record format): the job's identity."""
        inputs = [self.function, self.params, self.seed, RECORD_FORMAT]
        text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def resolve(self) -> Callable[[dict[str, Any], int], Any]:
        """Import the function that ``function`` names."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a job function returns when it has arrays; a plain dict stands for values alone.

    A string ``values["device"]`` says where the job ran; without it the record says "cpu".
    """

    values: dict[str, Any]
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            raise TypeError(f"a job function must return a dict or a Result, got {type(self.values).__name__}.")
        object.__setattr__(self, "values", plain(self.values, "result"))
        for name, array in self.arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype.hasobject:
                found = f"dtype {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
                raise TypeError(f"result array {name!r} must be a NumPy array of numbers, got {found}.")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One finished job: inputs, result and provenance.

    Attributes:
        key: Of the job.
        function: Of the job.
        params: Of the job.
        seed: Of the job.
        result: JSON types; floats come back to the bit, NaN and infinities included.
        versions: As ``versions()`` in the process that computed it.
        device: Where it was computed.
        wall_seconds: Duration of the call.
        finished: UTC, ISO 8601.
        arrays: Names in ``Store.arrays(key)``.
    """

    key: str
    function: str
    params: dict[str, Any]
    seed: int
    result: dict[str, Any]
    versions: dict[str, str]
    device: str
    wall_seconds: float
    finished: str
    arrays: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Serialise as strict JSON, non-finite numbers of the result tagged."""
        return json.dumps(asdict(self) | {"result": _tag(self.result)}, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of ``to_json``."""
        fields = json.loads(text, object_hook=_untag)
        return cls(**fields | {"arrays": tuple(fields["arrays"])})


def _tag(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {TAG: str(value)}
    if isinstance(value, dict):
        return {key: _tag(item) for key, item in value.items()}
    return [_tag(item) for item in value] if isinstance(value, list) else value


def _untag(found: dict[str, Any]) -> Any:
    return float(found[TAG]) if TAG in found else found


@cache
def versions() -> dict[str, str]:
    """Return the versions that can change a result, without importing what they belong to."""
    packages = ("numpy", "scipy", "sympy", "torch", "scikit-learn")
    return {"rescert": VERSION, "python": platform.python_version(), **{p: metadata.version(p) for p in packages}}


class Store:
    """Records by key in ``folder/records.sqlite`` (WAL), arrays beside it in ``folder/arrays/KEY.npz``.

    ``put`` commits at once, so a killed process loses nothing that was put. For one thread at a time; other processes
    may read meanwhile.

    Raises:
        StoreError: If the file is damaged, of another format or not a store, or cannot be written.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "records.sqlite"
        with self._errors(self.path):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self.close = weakref.finalize(self, self._database.close)
            self._prepare()

    def _prepare(self) -> None:
        application, version, tables = (
            self._database.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if tables and application != APPLICATION_ID:
            raise StoreError(f"{self.path}: a database, but not one of rescert's; choose another folder with --out.")
        if tables and version != RECORD_FORMAT:
            raise StoreError(
                f"{self.path}: record format {version}, this version reads {RECORD_FORMAT}; "
                "use the version of rescert that wrote it, or choose another folder with --out."
            )
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        if not tables:
            self._database.executescript(
                "BEGIN IMMEDIATE;"
                "CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, function TEXT, record TEXT NOT NULL);"
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {RECORD_FORMAT}; COMMIT;"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __contains__(self, key: str) -> bool:
        return bool(self._query("SELECT 1 FROM records WHERE key = ?", key))

    def get(self, key: str) -> Record:
        """Return the record of a key.

        Raises:
            KeyError: If there is none.
        """
        found = self._query("SELECT record FROM records WHERE key = ?", key)
        if not found:
            raise KeyError(f"{self.path}: no record {key}.")
        return self._read(found[0][0])

    def records(self, function: str | None = None) -> list[Record]:
        """Return all records, or those of one function, in the order of their keys."""
        rows = self._query("SELECT record FROM records WHERE ifnull(function = ?, 1) ORDER BY key", function)
        return [self._read(text) for (text,) in rows]

    def done(self, keys: Iterable[str]) -> set[str]:
        """Return those of ``keys`` that have a record."""
        return {key for (key,) in self._query("SELECT key FROM records")}.intersection(keys)

    def put(self, record: Record, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Store a record with its arrays, whole or not at all; a record that is there already stays."""
        if arrays:
            target = self._arrays_path(record.key)
            with self._errors(target):
                target.parent.mkdir(exist_ok=True)
                _replace(target, lambda handle: _write_arrays(handle, arrays))
        row = (record.key, record.function, record.to_json())
        self._query("INSERT OR IGNORE INTO records VALUES (?, ?, ?)", *row)

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a record, {} where it has none."""
        if not self.get(key).arrays:
            return {}
        path = self._arrays_path(key)
        with self._errors(path):
            try:
                with path.open("rb") as handle, np.load(handle, allow_pickle=False) as found:
                    return dict(found)
            except (ValueError, EOFError, zipfile.BadZipFile, FileNotFoundError) as error:
                raise StoreError(
                    f"{path}: arrays of a record are missing or damaged ({error}); restore the file, "
                    "or choose another folder with --out and run again."
                ) from error

    def _arrays_path(self, key: str) -> Path:
        return self.folder / "arrays" / f"{key}.npz"

    def _query(self, statement: str, *values: str | None) -> list[tuple[Any, ...]]:
        with self._errors(self.path):
            return self._database.execute(statement, values).fetchall()

    def _read(self, text: str) -> Record:
        try:
            return Record.from_json(text)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self.path}: broken record ({error!r}); {_DAMAGED.format(folder=self.folder)}."
            ) from error

    @contextmanager
    def _errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            fix = _FIXES.get(code, "check the disk and the folder's permissions")
            raise StoreError(f"{path}: {error}; {fix.format(folder=self.folder)}.") from error
        except OSError as error:
            fix = _FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else _UNWRITABLE
            raise StoreError(f"{path}: {error.strerror}; {fix.format(folder=self.folder)}.") from error


def _write_arrays(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    # numpy.savez reserves the names of its own parameters, "file" among them.
    with zipfile.ZipFile(handle, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _replace(target: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole or not at all, even if the machine goes down in the middle."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as handle:
            write(handle)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A run folder: ``run.json`` says what was asked, the store beside it holds what is finished.

    Attributes:
        path: The folder.
        job: What was asked for, as in "verify".
        options: What decides the results, the seed included; JSON types, finite.
        created: UTC, ISO 8601.
    """

    path: Path
    job: str
    options: dict[str, Any]
    created: str

    @cached_property
    def store(self) -> Store:
        """The run's records."""
        return Store(self.path)

    @classmethod
    def create(cls, path: Path | str, *, job: str, options: Mapping[str, Any]) -> Self:
        """Make a run folder, or reopen the one that is there for the same job and options.

        Raises:
            RunError: If the folder cannot be written or holds a run of another job, options or version.
        """
        folder, wanted = Path(path), plain(dict(options), f"Run {job}: options", finite=True)
        if os.path.exists(folder / "run.json"):
            run = cls.open(folder)
            asked, held = {"job": job, **wanted}, {"job": run.job, **run.options}
            for name in asked | held:
                if asked.get(name) != held.get(name):
                    raise RunError(
                        f"{folder}: holds a run with {name} = {held.get(name)!r}, asked for {asked.get(name)!r}; "
                        f"choose another folder with --out, or go on with that run by `rescert resume {folder}`."
                    )
            return run
        run = cls(path=folder, job=job, options=wanted, created=datetime.now(UTC).isoformat(timespec="seconds"))
        about = {"format": RUN_FORMAT, "rescert": VERSION, "job": job, "options": wanted, "created": run.created}
        text = json.dumps(about, indent=1, allow_nan=False) + "\n"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _replace(folder / "run.json", lambda handle: handle.write(text.encode()))
        except OSError as error:
            raise RunError(f"{folder}: cannot make a run folder here ({error.strerror}); {_UNWRITABLE}.") from error
        return run

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open the run folder at ``path``.

        Raises:
            RunError: If it is none, its ``run.json`` is broken, or another version (major.minor) wrote it.
        """
        folder = Path(path)
        file = folder / "run.json"
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise RunError(f"{file}: {error.strerror}; give a folder that rescert made with --out.") from error
        except ValueError as error:
            raise RunError(f"{file}: not valid JSON ({error}); start again in another folder with --out.") from error
        if not isinstance(about, dict) or about.get("format") != RUN_FORMAT:
            found = about.get("format") if isinstance(about, dict) else None
            raise RunError(
                f"{file}: run format {found!r}, this version reads {RUN_FORMAT}; "
                "start again in another folder with --out."
            )
        wrote = str(about.get("rescert"))
        if wrote.split(".")[:2] != VERSION.split(".")[:2]:
            raise RunError(
                f"{file}: written by rescert {wrote}, this is {VERSION}; install rescert {wrote} to go on with it, "
                "or start again in another folder with --out."
            )
        if not isinstance(about.get("options"), dict) or not isinstance(about.get("job"), str):
            raise RunError(f"{file}: job or options are missing; start again in another folder with --out.")
        return cls(path=folder, job=about["job"], options=about["options"], created=str(about.get("created")))
