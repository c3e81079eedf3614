"""Runs the tests of the package with each supported version of the SDK: `python3 run.py --program PATH`.

Makes a virtual environment for each version below the cargo target directory, with packages from PyPI, and runs mypy and pytest in it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent.parent.parent

#: The packages of each environment. The first two have an old and a new version of what the package itself uses.
ENVIRONMENTS = {
    "1.26.0": ["mcp==1.26.0", "anyio==4.5.0"],
    "1.30.0": ["mcp==1.30.0"],
    "2.3.0": ["mcp==2.3.0", "trio==0.35.0"],
}
TOOLS = ["pytest==9.2.0", "mypy==2.4.1"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=Path, help="the program everlink")
    parser.add_argument("--sdk", action="append", choices=list(ENVIRONMENTS), help="only this version; can be given more than once")
    parser.add_argument("--python", default=sys.executable, help="the interpreter, 3.10 or newer [default: the one that runs this script]")
    parser.add_argument("--rounds", type=int, default=5, help="how often a host is killed [default: 5]")
    parser.add_argument("--target", type=Path, default=Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")), help="where environments are made")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after `--`")
    args = parser.parse_args()
    program = args.program.resolve(strict=True)
    results = {}
    for version in args.sdk or ENVIRONMENTS:
        python = install(args.target.resolve() / "peers" / "python-package", args.python, version)
        print(f"\n== mcp {version}", flush=True)
        mypy = [python, "-m", "mypy", "--config-file", "pyproject.toml", "--no-incremental"]
        for platform in ("linux", "win32"):
            results[f"mcp {version}: mypy, {platform}"] = run([*mypy, "--platform", platform], cwd=PACKAGE)
        environment = {
            **os.environ,
            "EVERLINK_PROGRAM": str(program),
            "EVERLINK_TEST_ROUNDS": str(args.rounds),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(PACKAGE / "src"),
        }
        results[f"mcp {version}: pytest"] = run([python, "-W", "error", "-m", "pytest", "-q", *args.pytest], cwd=PACKAGE, env=environment)
    print()
    for name, is_good in results.items():
        print(f"{name:<26} {'passed' if is_good else 'FAILED'}")
    return 0 if all(results.values()) else 1


def install(directory: Path, interpreter: str, version: str) -> Path:
    """The interpreter of the environment for this version, which is made if it is not there."""
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    python_version = subprocess.run([interpreter, "-c", show], check=True, capture_output=True, text=True).stdout.strip()
    packages = [*ENVIRONMENTS[version], *TOOLS]
    place = directory / f"{version}-python{python_version}"
    python = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    note = place / "installed"
    if not note.exists() or note.read_text().split() != packages:
        print(f"installing {' '.join(packages)}", flush=True)
        subprocess.run([interpreter, "-m", "venv", "--clear", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
        note.write_text("\n".join(packages))
    return python


def run(command: list[str | Path], **options: object) -> bool:
    return subprocess.run(command, **options).returncode == 0  # type: ignore[call-overload, no-any-return]


if __name__ == "__main__":
    sys.exit(main())
