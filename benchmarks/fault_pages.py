"""Names that try to be programs in a report, and archives and names that try to leave their folder."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

from fault_counts import Counts, Kind, Lost, Trial, alone, judge
from fault_inputs import BOUNDS, make_table, say

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "--><svg onload=alert(1)>",
    "</title></svg><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    '<a href="javascript:alert(1)">x</a>',
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "$x_{$ \\frac{ & % #",
    "</style><style>@import 'http://x'</style>",
    "<base href=//evil><meta http-equiv=refresh content=0>",
)
_LOADED = ("iframe", "object", "embed", "base", "form", "link", "applet", "frame", "img", "audio", "video")


class _Page(HTMLParser):
    """Everything of a page that could be executed or loaded."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in _LOADED or values.get("http-equiv"):
            self.found.append(self.get_starttag_text() or tag)
        self.found += [f"{name}={value}" for name, value in values.items() if name.startswith("on") or name == "srcdoc"]
        self.found += [value for value in values.values() if re.match(r"\s*(javascript|vbscript|data):", value, re.I)]
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("" if values.get("type") != "application/json" else "facts:")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def find_executable(page: str) -> list[str]:
    """What a browser would execute or load, beyond the script of the template; and facts that would end too early."""
    from importlib.resources import files

    template = (files("tacit.reports") / "pages" / "comparison.html").read_text(encoding="utf-8")
    ours = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    parsed = _Page(page)
    found = list(parsed.found)
    for script in parsed.scripts:
        if script.startswith("facts:"):
            # "<!--" and "<script" change how a browser looks for the end of the element.
            found += re.findall(r"<[!/]?\w*", script)
            try:
                json.loads(script.removeprefix("facts:"))
            except ValueError as error:
                found.append(f"facts that are not JSON: {error}")
        elif script.strip() not in [each.strip() for each in ours]:
            found.append(script)
    raw = [payload for payload in PAYLOADS if "<" in payload and payload in page]
    return [*found, *(f"not escaped: {payload}" for payload in raw)]


def _write_table(folder: Path, payload: str, name: str) -> Path:
    """A table whose columns and values are called so, with bounds beside it."""
    column, label, target = f"{payload} one", f"{payload} two", f"{payload} three"
    rows = [f"{i % 9},{i % 2},{i % 3 % 2}" for i in range(60)]

    def quote(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    def fill(row: str) -> str:
        x, c, y = row.split(",")
        return f"{x},{quote(f'{payload} {c}')},{quote(f'{payload} class {y}')}"

    path = folder / name
    lines = [",".join(map(quote, (column, label, target))), *map(fill, rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def show(*values: str) -> str:
        return "[" + ", ".join(json.dumps(value) for value in values) + "]"

    (folder / "bounds.toml").write_text(
        f"rows = 60\nexample = {json.dumps(payload)}\n[columns]\n{json.dumps(column)} = {{ low = 0, high = 9 }}\n"
        f"{json.dumps(label)} = {show(f'{payload} 0', f'{payload} 1')}\n"
        f"{json.dumps(target)} = {show(f'{payload} class 0', f'{payload} class 1')}\n",
        encoding="utf-8",
    )
    return path


def try_page(number: int, folder: Path) -> Counts:
    """A run, and every other time a comparison, on a table with such names; the pages are searched."""
    warnings.simplefilter("ignore")
    payload = PAYLOADS[number // 2 % len(PAYLOADS)]
    here = folder / f"page-{number}"
    here.mkdir()
    os.chdir(here)

    def attempt() -> None:
        name = payload.replace("/", "")[:80] + ".csv"
        table = _write_table(here, payload, name)
        words = [str(table), "--target", f"{payload} three", "--bounds", str(here / "bounds.toml"), "--steps", "2"]
        out = here / f"out {payload.replace('/', '')[:80]}"
        if number % 2:
            more = ["--epsilon", "8", "--methods", "output_perturbation,dpsgd", "--seeds", "1", "--workers", "1"]
            command = ["compare", *words, *more, "--out", str(out)]
        else:
            command = ["train", *words, "--epsilon", "8", "--recipe", "none", "--out", str(out)]
        code, _, err = say(*command)
        if code:
            raise RuntimeError(f"{command} ended with {code}: {err[-300:]}")
        if not number % 2:
            code, _, err = say("report", str(out), "--no-baseline")
            if code:
                raise RuntimeError(f"the report ended with {code}: {err[-300:]}")
        executable = find_executable((out / "report.html").read_text(encoding="utf-8"))
        if executable:
            raise Lost(f"{payload!r} can be executed: {executable[:3]}")

    counts = judge(attempt)
    # Names of a column, of two classes, of the target, of what an example is, of the file and of the folder.
    counts.done, counts.notes = (6 if not counts.faults else counts.done), {"pages": 1, **counts.notes}
    return counts


# What the name of a member of an archive becomes.
_NAMES = (
    *("../{}", "../../{}", "/{}", "a/../../{}", "..\\{}", "C:\\{}", "./{}", "\x00/{}", "~/{}", "{}/", "日本/../{}"),
    "a/" * 200 + "{}",
)
_LINKS = ("/etc/passwd", "../../../etc/passwd", "data_batch_1.bin", "nowhere")
# Ending, names, type, and where links lead.
ARCHIVES = (
    *(("tar.gz", name, kind, link) for name, kind, link in product(_NAMES, ("symlink", "hardlink"), _LINKS)),
    *(("tar.gz", name, kind, "") for name, kind in product(_NAMES, ("file", "device", "pipe"))),
    *(("zip", name, kind, "") for name, kind in product(_NAMES, ("file", "symlink"))),
)
# Names of tables and folders.
_PLACES = (
    "..csv",
    "...csv",
    "..",
    "../out.csv",
    "a..b.csv",
    "-.csv",
    "~.csv",
    "$HOME.csv",
    "..%2f..%2fx.csv",
    "\\..\\x.csv",
)


def make_archive(ending: str, name: str, kind: str, link: str) -> bytes:
    """Adult's files in a zip, or those of CIFAR-10 in a tar, with such names and of such a type."""
    from support.published_files import PUBLISHED

    packed = io.BytesIO()
    if ending == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            for each, content in PUBLISHED["adult"].items():
                about = zipfile.ZipInfo(name.format(each))
                # The type as Unix notes it.
                about.external_attr = (0o120777 if kind == "symlink" else 0o100644) << 16
                archive.writestr(about, content)
        return packed.getvalue()
    types = {
        **{"file": tarfile.REGTYPE, "symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE},
        **{"device": tarfile.CHRTYPE, "pipe": tarfile.FIFOTYPE},
    }
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for each, content in PUBLISHED["cifar10"].items():
            member = tarfile.TarInfo(name.format(each))
            member.type, member.linkname = types[kind], link
            member.size = len(content) if kind == "file" else 0
            archive.addfile(member, io.BytesIO(content) if kind == "file" else None)
    return packed.getvalue()


def list_tree(folder: Path) -> set[str]:
    """Every file and folder below this one."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def try_path(number: int, folder: Path) -> Counts:
    """Read an archive, or train on a table, whose names lead elsewhere: nothing may appear outside."""
    from support.published_files import PUBLISHED
    from tacit import datasets

    warnings.simplefilter("ignore")
    sandbox = folder / f"path-{number}"
    inside = sandbox / "x" / "y" / "z"
    inside.mkdir(parents=True)
    os.chdir(inside)
    number %= len(ARCHIVES) + len(_PLACES)

    def read_archive() -> None:
        ending, name, kind, link = ARCHIVES[number]
        data = "adult" if ending == "zip" else "cifar10"
        file = inside / ("adult.zip" if ending == "zip" else "cifar-10-binary.tar.gz")
        file.write_bytes(make_archive(ending, name, kind, link))
        before = list_tree(sandbox)
        try:
            datasets.load(data, inside)
        finally:
            if list_tree(sandbox) != before or any(Path(f"/{each}").exists() for each in PUBLISHED[data]):
                raise Lost(f"a file was written: {list_tree(sandbox) - before}")

    def train_on_table() -> None:
        name, table = _PLACES[number - len(ARCHIVES)], make_table()
        (inside / "b.toml").write_text(BOUNDS, encoding="utf-8")
        lines = [",".join(table), *(",".join("" if v is None else str(v) for v in row) for row in zip(*table.values()))]  # noqa: B905
        if not Path(name).is_dir():
            Path(name).write_text("\n".join(lines), encoding="utf-8")
        before = list_tree(sandbox)
        say("train", "--target", "outcome", "--bounds", "b.toml", "--epsilon", "8", "--steps", "2", "--", name)
        new = list_tree(sandbox) - before
        if any(not each.startswith("x/y/z/runs") for each in new):
            raise Lost(f"files were written outside of runs: {sorted(new)}")

    return judge(read_archive if number < len(ARCHIVES) else train_on_table)


@contextmanager
def open_pages(_: Path) -> Iterator[Trial]:
    """Names in reports."""
    import torch

    torch.set_num_threads(1)
    with alone(try_page) as trial:
        yield trial


@contextmanager
def open_paths(_: Path) -> Iterator[Trial]:
    """Names in archives and of tables."""
    import torch

    torch.set_num_threads(1)
    with alone(try_path) as trial:
        yield trial


KINDS = (
    Kind(
        "pages",
        "names with markup and scripts, in reports of runs and comparisons",
        6 * 2 * len(PAYLOADS),
        open_pages,
        seconds=120,
    ),
    Kind("paths", "archives and tables with paths that lead elsewhere", len(ARCHIVES) + len(_PLACES), open_paths),
)
