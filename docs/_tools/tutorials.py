"""Run the tutorials like notebooks: blocks in order, in one folder, with the names of earlier blocks.

`python docs/_tools/tutorials.py` runs all of them and writes what each block prints into the `text` block below it.
A Python block that begins with the name of a file, such as `# net.py`, is written to that file and not executed; so is
TOML. Of `console` blocks, lines that begin with `$ tacit` are run.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"
BLOCK = re.compile(r"^```(python|toml|console)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def list_tutorials() -> list[Path]:
    """The pages with blocks, in order of their names."""
    return [page for page in sorted(TUTORIALS.glob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


def run_page(page: Path, folder: Path) -> str:
    """Run the blocks of a page in a folder. Returns the page with their output; raises what a block raises."""
    names: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return BLOCK.sub(lambda found: _with_output(found, _run(found[1], found[2], names, page.name)), text)
    finally:
        os.chdir(before)


def _with_output(found: re.Match[str], output: str) -> str:
    if found[3] is None:
        return found[0]
    return f"```{found[1]}\n{found[2]}```\n\n```text\n{output.rstrip()}\n```\n"


def _run(language: str, code: str, names: dict[str, object], place: str) -> str:
    """What a block prints."""
    named = re.match(r"# (\w+\.(?:py|toml))\n", code)
    if named:
        Path(named[1]).write_text(code, encoding="utf-8")
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if language == "python":
            exec(compile(code, place, "exec"), names)
        for line in code.replace("\\\n", " ").splitlines():
            if language == "console" and line.startswith("$ tacit "):
                run_command(line.removeprefix("$ "))
    return printed.getvalue()


def run_command(command: str) -> None:
    """Run a command of tacit in this process; an exit code other than 0 is an error."""
    from tacit.cli import main

    with mock.patch.object(sys, "argv", shlex.split(command, comments=True)):
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code
    if code:
        raise RuntimeError(f"`{command}` ended with exit code {code}.")


if __name__ == "__main__":
    for page in list_tutorials():
        if sys.argv[1:] and page.stem not in sys.argv[1:]:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"COLUMNS": "80"}):
            written = run_page(page, Path(folder))
        page.write_text(written, encoding="utf-8")
        print(f"{page.name}: {time.monotonic() - began:.0f} s")
