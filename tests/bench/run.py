"""Every bench_*.py beside this file, as one table and bench.json: name, figure, baseline, goal."""

import importlib.util
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent


def main() -> None:
    results = {}
    for path in sorted(HERE.glob("bench_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        results |= module.bench()
    table = Table("benchmark", "figure", "unit", "goal", "baseline", box=None, header_style="bold")
    for name, entry in results.items():
        figure = entry.get("ratio", entry.get("value"))
        table.add_row(name, f"{figure:.4g}", entry["unit"], str(entry["goal"]), entry["baseline"])
    Console().print(table)
    (HERE.parents[1] / "bench.json").write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
