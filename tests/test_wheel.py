"""The wheel and the source distribution: they hold every file of the package, and the quick starts run with them."""

import json
import os
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from test_repository import GUIDE, PROJECT, ROOT, blocks_of, commands_of

pytestmark = pytest.mark.slow

# Each block as a program of its own, with the package that the path names.
RUN_BLOCKS = """
import json, sys
import tacit
import tacit.cli
print(tacit.__file__, tacit.__version__)
assert tacit.datasets.load("adult").population == 32561
blocks, commands, bounds = json.load(sys.stdin)
for text in blocks:
    exec(compile(text, "README.md", "exec"), {"__name__": "__main__"})
for sys.argv in commands:
    if "bounds.toml" in sys.argv:
        # The template that `tacit bounds` writes is filled in.
        open("bounds.toml", "w").write(bounds)
    try:
        tacit.cli.main()
    except SystemExit as stop:
        assert not stop.code, sys.argv
"""


def build(source: Path, target: str, folder: Path) -> Path:
    """Build one distribution without network and without an environment of its own."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (found,) = folder.iterdir()
    return found


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as packed:
        return {name for name in packed.namelist() if name.startswith("tacit/")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_file_of_the_package(wheel):
    source = ROOT / "src"
    written = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert files_in(wheel) == {name for name in written if "__pycache__" not in name and ".egg-info" not in name}
    assert {"tacit/py.typed", "tacit/reports/pages/run.html"} <= files_in(wheel)
    assert any(name.startswith("tacit/datasets/files/adult") for name in files_in(wheel))


def test_the_source_distribution_makes_the_same_wheel(wheel, tmp_path):
    packed = build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("tacit-*")
    assert files_in(build(source, "wheel", tmp_path / "again")) == files_in(wheel)
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "mkdocs.yml", "tests", "docs"} <= {
        path.name for path in source.iterdir()
    }


def test_the_quick_starts_run_with_the_installed_wheel(wheel, tmp_path):
    """The package comes from the wheel alone; what it depends on, from the environment of the tests."""

    installed = tmp_path / "installed"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        installed,
        wheel,
    ]
    subprocess.run(command, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(installed), "TACIT_DATA": str(tmp_path / "no data")}
    place = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "check": False}
    readme = ROOT / "README.md"
    commands = [shlex.split(line, comments=True) for line in commands_of(blocks_of(readme, "console")[0])]
    table, bounds = blocks_of(GUIDE, "python")[0], blocks_of(GUIDE, "toml")[0]
    programs = json.dumps([[block.text for block in (table, *blocks_of(readme, "python"))], commands, bounds.text])
    ran = subprocess.run([sys.executable, "-c", RUN_BLOCKS], input=programs, **place)
    assert ran.returncode == 0, ran.stderr
    file, version = ran.stdout.splitlines()[0].split()
    assert Path(file).is_relative_to(installed)
    assert version == PROJECT["version"]
    assert (tmp_path / "predictions.csv").is_file()
    assert (tmp_path / "runs/patients/report.html").is_file()
    script = subprocess.run([sys.executable, installed / "bin" / "tacit", "--version"], **place)
    assert script.stdout.strip() == f"tacit {version}", script.stderr
