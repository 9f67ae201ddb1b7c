"""Build what is released, twice, and describe it: `make release`.

dist/ then holds a wheel, a source distribution and a bill of materials (CycloneDX 1.6) with the installed version and
the licence of everything that `pip install tacit` brings. It fails if the two builds differ by one byte, or if
pip-audit, where it is installed, knows a flaw of a dependency.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
NAME = "tacit"
# 1 January 2020: the time of every file in the wheel, whenever it is built.
EPOCH = "1577836800"


def build(folder: Path) -> dict[str, str]:
    """The hash of every file that is built."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def find_dependencies(name: str = NAME) -> dict[str, metadata.Distribution]:
    """Everything that installing the package without extras brings, at its installed version."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [(name, frozenset[str]())]
    seen = set(waiting)
    while waiting:
        current, extras = waiting.pop()
        distribution = metadata.distribution(current)
        found[re.sub(r"[-_.]+", "-", current).lower()] = distribution
        for text in distribution.requires or ():
            needed = Requirement(text)
            applies = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in (extras or {""})
            )
            step = (re.sub(r"[-_.]+", "-", needed.name).lower(), frozenset(needed.extras))
            if applies and step not in seen:
                seen.add(step)
                waiting.append(step)
    found.pop(name, None)
    return dict(sorted(found.items()))


def read_licence(distribution: metadata.Distribution) -> str:
    """The licence as the package states it: an expression, or the names of its classifiers."""
    about = distribution.metadata
    named = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or () if one.startswith("License ::")]
    # Some packages put the whole text here.
    written = (about.get("License") or "").strip().splitlines()[:1]
    return about.get("License-Expression") or ", ".join(named) or (written[0] if written else "not stated")


def describe_materials(files: dict[str, str], version: str) -> dict[str, Any]:
    """The bill of materials."""

    def component(name: str, distribution: metadata.Distribution) -> dict[str, Any]:
        purl = f"pkg:pypi/{name}@{distribution.version}"
        licences = [{"license": {"name": read_licence(distribution)}}]
        about = {"name": name, "version": distribution.version, "licenses": licences}
        return {**about, "type": "library", "bom-ref": purl, "purl": purl}

    own = f"pkg:pypi/{NAME}@{version}"
    hashes = [{"alg": "SHA-256", "content": value} for name, value in files.items() if name.endswith(".whl")]
    about = {"name": NAME, "version": version}
    parts = [component(*item) for item in find_dependencies().items()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**about, "type": "library", "bom-ref": own, "purl": own, "hashes": hashes}},
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def find_flaws() -> str:
    """What pip-audit knows of the versions in constraints.txt; it fails if one has a known flaw.

    It reports success where it could look up nothing, so what it skipped is counted.
    """
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "-f", "json", "-r", "constraints.txt"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        return f"pip-audit did not run: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
    return describe_flaws(json.loads(done.stdout)["dependencies"])


def describe_flaws(packages: list[dict[str, Any]]) -> str:
    """How many packages were looked up, and that none has a known flaw."""
    known = [one for one in packages if "vulns" in one]
    flaws = [f"{one['name']} {one['version']}: {flaw['id']}" for one in known for flaw in one["vulns"]]
    if flaws:
        raise SystemExit(f"Known flaws: {', '.join(flaws)}. Raise these versions.")
    return f"pip-audit looked up {len(known)} of {len(packages)} packages; none has a known flaw"


def main() -> None:
    """Build twice, compare, and write the bill of materials."""
    with tempfile.TemporaryDirectory() as folder:
        first = build(ROOT / "dist")
        second = build(Path(folder))
    differing = [name for name, value in second.items() if first.get(name) != value]
    if differing:
        raise SystemExit(f"Two builds differ in {', '.join(differing)}, so nobody could check them. Find out why.")
    version = metadata.version(NAME)
    materials = describe_materials({name: first[name] for name in second}, version)
    path = ROOT / "dist" / f"{NAME}-{version}.cdx.json"
    path.write_text(json.dumps(materials, indent=1, sort_keys=True))
    for name, value in second.items():
        print(f"{value}  {name}")
    print(f"{len(materials['components'])} dependencies with licences: {path.relative_to(ROOT)}")
    print(find_flaws())


if __name__ == "__main__":
    main()
