"""The arrows between the rooms, and what no room may do."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("theory", "models", "sim", "verify", "reports")
ALLOWED = {
    "theory": {"theory"},
    "models": {"models"},
    "sim": {"sim", "models", "theory.symbols", "theory.claims", "theory.mean_ode", "version"},
    "verify": {"verify", "sim", "models", "theory", "version"},
    "reports": {"reports", "verify", "sim.records", "theory", "version"},
}
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TOP = [ROOT / name for name in ("__init__.py", "cli.py", "version.py")]


def _imports(path: Path) -> list[tuple[int, str]]:
    """Every import as (level, dotted name); a relative one is resolved to a name below the package."""
    package = path.relative_to(ROOT).parent.parts
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            prefix = ".".join((*base, node.module) if node.module else base)
            found += [(node.level, f"{prefix}.{alias.name}".lstrip(".")) for alias in node.names]
    return found


def _allowed(target: str, names: set[str]) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_data_flows_one_way(path):
    room = path.relative_to(ROOT).parts[0]
    for level, target in _imports(path):
        if level:
            assert _allowed(target, ALLOWED[room]), f"{path}: {room} must not import {target}"


@pytest.mark.parametrize("path", [*FILES, *TOP], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_loads_a_second_copy_or_the_wrong_library(path):
    for level, target in _imports(path):
        first = target.split(".")[0]
        if level == 0:
            assert first not in (*ROOMS, "cli", "rescert"), f"{path}: import {target} relatively"
            if first == "matplotlib":
                assert path.is_relative_to(ROOT / "reports"), f"{path}: pictures are drawn in reports/"
            if path.is_relative_to(ROOT / "theory"):
                assert first not in ("torch", "numpy", "scipy"), f"{path}: theory knows sympy only"


@pytest.mark.parametrize("path", [*FILES, *TOP], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_global_seed_no_broad_except_no_eval(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            assert name not in ("torch.manual_seed", "np.random.seed", "random.seed", "torch.cuda.manual_seed_all"), (
                name
            )
        if isinstance(node, ast.ExceptHandler):
            caught = {leaf.id for leaf in ast.walk(node.type) if isinstance(leaf, ast.Name)} if node.type else {"bare"}
            reraised = isinstance(node.body[-1], ast.Raise)
            # Where any error of a job becomes a line of the report, and where a defect becomes an exit code.
            boundary = path in (ROOT / "sim" / "sweep.py", ROOT / "cli.py")
            assert not caught & {"bare", "Exception", "BaseException"} or reraised or boundary, f"{path}:{node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec", "print"), f"{path}:{node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in ("sympify", "parse_expr"), f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.name)
def test_tests_import_the_installed_package(path):
    for level, target in _imports(path):
        assert level == 0, f"{path}: tests import absolutely"
        assert target.split(".")[0] not in (*ROOMS, "cli"), f"{path}: import rescert.{target}"


def test_rooms_have_no_import_cycle():
    graph = {}
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    for name, path in names.items():
        tree = ast.parse(path.read_text())
        lazy = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
        graph[name] = set()
        package = path.relative_to(ROOT).parent.parts
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level and id(node) not in lazy:
                base = package[: len(package) - node.level + 1]
                stem = ".".join((*base, node.module)) if node.module else ".".join(base)
                graph[name] |= {t for t in (stem, *(f"{stem}.{a.name}" for a in node.names)) if t in names}
    done: set[str] = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for target in graph[name]:
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())
