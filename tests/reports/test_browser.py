"""The report in a real browser: it is all there, fits a phone, follows the dark theme, and prints."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")

PHONE, DESK = 390, 1280
# A page that opens the report as wide as a phone and as a desk, and writes down what it sees.
LOOK = """<!doctype html><meta charset="utf-8"><pre id="seen"></pre>
<iframe id="phone" src="report.html" width="390" height="800"></iframe>
<iframe id="desk" src="report.html" width="1280" height="800"></iframe>
<script>
function look(frame) {
  frame.contentDocument.querySelectorAll("details").forEach(each => { each.open = true; });
  const page = frame.contentDocument, style = element => frame.contentWindow.getComputedStyle(element);
  const boxes = [...page.querySelectorAll("figure svg")].map(each => each.getBoundingClientRect());
  return {
    title: page.title,
    text: page.body.innerText,
    wide: page.documentElement.scrollWidth,
    sticking_out: [...page.querySelectorAll("body *")].filter(each => !each.closest(".scroll, .skip, svg")
      && each.getBoundingClientRect().right > frame.clientWidth + 1).map(each => each.tagName),
    figures: boxes.map(box => [box.width, box.height]),
    small_text: [...page.querySelectorAll("svg text")].filter(each => each.getBoundingClientRect().height < 6).length,
    colours: [style(page.body).color, style(page.body).backgroundColor],
    can_be_reached: [...page.querySelectorAll("a[href], [tabindex='0']")].length,
    facts: JSON.parse(page.getElementById("facts").textContent).schema,
  };
}
addEventListener("load", () => {
  const seen = Object.fromEntries(["phone", "desk"].map(id => [id, look(document.getElementById(id))]));
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>"""


def browse(folder: Path, page: str, *options: str) -> str:
    """What the browser says of a page in the folder, offline and with a profile of its own."""
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--allow-file-access-from-files",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
        *options,
        f"file://{folder / page}",
    ]
    environment = {**os.environ, "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True).stdout


def seen_in(folder: Path, *options: str) -> dict:
    (folder / "look.html").write_text(LOOK)
    [text] = re.findall(r'<pre id="seen">(.*?)</pre>', browse(folder, "look.html", *options, "--dump-dom"), re.DOTALL)
    return json.loads(unescape(text))


@pytest.fixture(scope="module", params=["run_folder", "recipe_folder", "own_folder", "comparison_folder"])
def folder(request, tmp_path_factory) -> Path:
    """A report by itself, as it would be mailed."""
    made, alone = request.getfixturevalue(request.param), tmp_path_factory.mktemp("alone")
    for name in ("report.html", "report.json"):
        shutil.copy(made / name, alone / name)
    return alone


@pytest.mark.slow
def test_the_page_is_whole_and_fits_a_phone_and_a_desk(folder):
    seen = seen_in(folder)
    facts = json.loads((folder / "report.json").read_text())
    for width, page in ((PHONE, seen["phone"]), (DESK, seen["desk"])):
        assert facts["title"] in page["title"]
        assert facts["schema"] == page["facts"]
        assert page["wide"] <= width
        assert page["sticking_out"] == []
        assert page["figures"]
        assert all(0.5 * min(width, 500) < across <= width and high > 150 for across, high in page["figures"])
        assert page["small_text"] == 0
        assert page["can_be_reached"] > 1
        command, does = (facts["command"], "train") if facts["kind"] == "run" else (facts["commands"][0], "compare")
        assert command.split()[:2] == ["tacit", does]
        assert command in " ".join(page["text"].split())
    for words in facts["guarantee"]["sentences"][:1] if facts["kind"] == "run" else facts["words"]:
        assert " ".join(words.split()) in " ".join(seen["desk"]["text"].split())


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"\d+", colour)[:3])) / 765


@pytest.mark.slow
def test_the_page_is_dark_where_the_reader_wants_it_dark(folder):
    ink, paper = seen_in(folder, "--blink-settings=preferredColorScheme=0")["desk"]["colours"]
    assert brightness(paper) < 0.2
    assert brightness(ink) > 0.8


@pytest.mark.slow
def test_the_page_prints(folder):
    browse(folder, "report.html", f"--print-to-pdf={folder / 'report.pdf'}", "--no-pdf-header-footer")
    pdf = (folder / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    facts = json.loads((folder / "report.json").read_text())
    # On paper the guarantee of every method is open, and takes half a page or more.
    rows = len({row["label"] for row in facts.get("rows", []) if row["details"] is not None})
    assert 2 + rows / 2 <= pages <= 12 + 2 * rows


SORT = """<!doctype html><meta charset="utf-8"><pre id="seen"></pre>
<iframe id="page" src="report.html" width="1280" height="800"></iframe>
<script>
addEventListener("load", () => {
  const page = document.getElementById("page").contentDocument, table = page.querySelector("table.sorts");
  const column = place => [...table.tBodies[0].rows].map(row => row.cells[place].textContent);
  const head = place => table.tHead.rows[0].cells[place];
  const grey = () => [...page.querySelectorAll('svg [id*="-others-"]')].map(each => getComputedStyle(each).display);
  const seen = {before: column(0), hidden: grey()};
  head(2).querySelector("button").click();
  Object.assign(seen, {falling: column(2), way: head(2).getAttribute("aria-sort")});
  head(2).querySelector("button").click();
  Object.assign(seen, {rising: column(2), then: head(2).getAttribute("aria-sort")});
  page.getElementById("others").click();
  seen.shown = grey();
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>"""


@pytest.mark.slow
def test_the_table_sorts_and_a_switch_shows_the_other_methods(comparison_folder, tmp_path):
    shutil.copy(comparison_folder / "report.html", tmp_path / "report.html")
    (tmp_path / "look.html").write_text(SORT)
    [text] = re.findall(r'<pre id="seen">(.*?)</pre>', browse(tmp_path, "look.html", "--dump-dom"), re.DOTALL)
    seen = json.loads(unescape(text))
    scores = [float(words.split()[0]) for words in seen["falling"]]
    assert len(set(scores)) > 1
    assert scores == sorted(scores, reverse=True)
    assert [float(words.split()[0]) for words in seen["rising"]] == sorted(scores)
    assert (seen["way"], seen["then"]) == ("descending", "ascending")
    assert set(seen["hidden"]) <= {"none"}
    assert "none" not in seen["shown"]
    assert len(seen["hidden"]) == len(seen["shown"])
