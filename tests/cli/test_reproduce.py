"""`tacit reproduce`: what is missing is run, what was run is kept, tables and pictures are written."""

import json
import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest
from experiments.library import Cell, Records, Target
from experiments.library.running import put_tables, records_of, tables_in, tables_without_runs
from experiments.library.targets import all_targets, read_order

from support.small_images import write_few_images
from tacit.errors import InvalidArgument

ROOT = Path(__file__).parents[2]
EXPERIMENT = '''
"""Accounts for a few steps; a run leaves a line in runs.txt."""
from pathlib import Path
from matplotlib.figure import Figure
from tacit.accounting import Gaussian, curve
from tacit.errors import DataMissing
from experiments.library import Cell, markdown_table

def cells(order, records):
    for steps in order.settings["steps"]:
        yield Cell("table 1", {"steps": steps}, lambda steps=steps: make(order, steps))
    yield Cell("table 2", {}, lambda: lack())

def make(order, steps):
    with Path(__file__).with_name("runs.txt").open("a") as file:
        file.write(f"{steps}\\n")
    if steps == 666:
        raise KeyboardInterrupt
    return {"epsilon": curve(Gaussian(order.settings["multiplier"]) * steps).epsilon(1e-5)}

def lack():
    raise DataMissing("svhn is not on this machine.", "Try --data-path PATH.")

def tables(order, records):
    rows = [(str(r.asked["steps"]), str(order.expected["epsilon"]), f"{r.found['epsilon']:.3f}") for r in records]
    return {"Table 1": markdown_table([("steps", "paper", "certified"), *rows])}

def pictures(order, records):
    figure = Figure()
    figure.subplots().plot([r.found["epsilon"] for r in records])
    return {"figure_1": figure}
'''
SETTINGS = """
title = "A few steps"
steps = [1, 4, 9]
multiplier = 5.0
[quick]
steps = [1]
"""
README = "# Few\n\n<!-- Table 1: begin -->\n\n<!-- Table 1: end -->\n\nThe rest.\n"


@pytest.fixture
def target(tmp_path, request):
    """A target in a clone that has no other; its name is of this test, for modules are imported once."""
    name = request.node.name.partition("[")[0]
    folder = tmp_path / "experiments" / name
    folder.mkdir(parents=True)
    (tmp_path / "experiments" / "library").symlink_to(ROOT / "experiments" / "library")
    for file, text in {
        "experiment.py": EXPERIMENT,
        "settings.toml": SETTINGS,
        "expected.toml": "epsilon = 1.0\n",
        "README.md": README,
    }.items():
        (folder / file).write_text(text, encoding="utf-8")
    return Target(folder)


def runs(target):
    path = target.folder / "runs.txt"
    return path.read_text().split() if path.exists() else []


@pytest.mark.slow
def test_tables_and_pictures_are_written_and_what_could_not_be_had_is_named(run_cli, target, tmp_path):
    out = tmp_path / "out"
    run = run_cli(f"reproduce {target.name} --experiments {target.folder.parent} --out {out}")
    assert run.code == 0
    # Gaussian noise of multiplier 5 over nine steps is one of multiplier 5/3.
    from tacit.accounting import Gaussian, curve

    assert f"| 9 | 1.0 | {curve(Gaussian(5 / 3)).epsilon(1e-5):.3f} |" in run.out
    assert run.out.count("|---|---|---|") == 1
    # This command has no --data-path.
    assert "Left out: svhn is not on this machine. Or set TACIT_DATA" in run.err
    assert "--data-path" not in run.err
    assert "| 9 | 1.0 |" in (out / "tables.md").read_text()
    assert (out / "pictures" / "figure_1.png").stat().st_size > 1000
    record = json.loads((out / "results.jsonl").read_text().splitlines()[0])
    assert record["asked"] == {"steps": 1}
    assert "cores" in record["machine"]
    assert record["date"] >= "2026"


@pytest.mark.slow
def test_what_was_run_is_not_run_again_and_a_quick_run_is_a_part(run_cli, target, tmp_path):
    line = f"reproduce {target.name} --experiments {target.folder.parent} --out {tmp_path / 'out'}"
    quick = run_cli(f"{line} --quick")
    assert runs(target) == ["1"]
    assert "| 4 |" not in quick.out
    assert "| 4 |" in run_cli(line).out
    assert runs(target) == ["1", "4", "9"]
    run_cli(line)
    assert runs(target) == ["1", "4", "9"]


@pytest.mark.slow
def test_one_part_only(run_cli, target, tmp_path):
    line = f"reproduce {target.name} --experiments {target.folder.parent} --out {tmp_path / 'out'}"
    run = run_cli(f"{line} --part 'table 2'")
    assert run.code == 2
    assert "Nothing" in run.err
    assert runs(target) == []
    assert run_cli(f"{line} --part 'table 1'").code == 0
    run = run_cli(f"{line} --part 'table 2'")
    assert (run.code, "Left out" in run.err) == (1, True)
    run = run_cli(f"{line} --part 'table 3'")
    assert run.code == 2
    assert "has no part 'table 3'. Known: table 1, table 2." in run.err


def test_an_interruption_keeps_what_was_finished(run_cli, target, tmp_path):
    text = SETTINGS.replace("[1, 4, 9]", "[1, 666, 9]")
    (target.folder / "settings.toml").write_text(text)
    line = f"reproduce {target.name} --experiments {target.folder.parent} --out {tmp_path / 'out'}"
    run = run_cli(line)
    assert run.code == 130
    assert "the same command resumes" in run.err
    (target.folder / "settings.toml").write_text(text.replace("666", "16"))
    assert run_cli(line).code == 0
    assert runs(target) == ["1", "666", "16", "9"]


@pytest.mark.slow
def test_in_its_own_folder_the_readme_is_written_anew_and_the_rest_of_it_stays(run_cli, target):
    line = f"reproduce {target.name} --experiments {target.folder.parent} --out {target.folder}"
    assert run_cli(line).code == 0
    page = (target.folder / "README.md").read_text()
    assert page.startswith("# Few")
    assert page.endswith("\n\nThe rest.\n")
    assert "| 9 | 1.0 |" in tables_in(page)["Table 1"]
    run_cli(line)
    assert (target.folder / "README.md").read_text() == page


@pytest.mark.slow
def test_a_line_cut_off_by_a_crash_is_run_again(run_cli, target, tmp_path):
    line = f"reproduce {target.name} --experiments {target.folder.parent} --out {tmp_path / 'out'}"
    run_cli(line)
    path = tmp_path / "out" / "results.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-30])
    run_cli(line)
    assert runs(target) == ["1", "4", "9", "9"]
    assert [r.asked for r in Records(path).read()] == [{"steps": 1}, {"steps": 4}, {"steps": 9}]


def test_machines_get_the_tables(run_cli, target, tmp_path):
    line = f"reproduce {target.name} --experiments {target.folder.parent} --out {tmp_path / 'out'} --json"
    found = json.loads(run_cli(line).out)
    assert found["tables"]["Table 1"].startswith("| steps | paper | certified |")
    assert Path(found["page"]).exists()


def test_without_a_name_every_target_is_listed(run_cli, target):
    run = run_cli(f"reproduce --experiments {target.folder.parent}")
    assert run.code == 0
    assert f"{target.name}  A few steps" in run.out


def test_an_unknown_name_and_a_folder_without_experiments_are_errors(run_cli, target, tmp_path, monkeypatch):
    run = run_cli(f"reproduce nothing --experiments {target.folder.parent}")
    assert run.code == 2
    assert f"Known: {target.name}" in run.err
    run = run_cli(f"reproduce {target.name} --experiments {tmp_path}")
    assert run.code == 2
    assert "clone" in run.err
    assert run_cli(f"reproduce {target.name} --quick --reduced --experiments {target.folder.parent}").code == 2


def test_an_installed_package_finds_the_experiments_of_the_working_folder(target, tmp_path, monkeypatch):
    command = import_module("tacit.cli.reproduce")
    monkeypatch.setattr(command, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "reproduce.py"))
    monkeypatch.chdir(target.folder)
    with pytest.raises(InvalidArgument, match="not with the installed package"):
        command.find_experiments()
    monkeypatch.chdir(tmp_path)
    assert command.find_experiments() == target.folder.parent.resolve()


def test_a_size_that_changes_what_is_no_setting_is_refused(target):
    (target.folder / "settings.toml").write_text(SETTINGS + "epoch = 3\n")
    with pytest.raises(InvalidArgument, match="epoch"):
        read_order(target.folder, "quick")


def test_a_table_without_a_place_on_the_page_is_an_error():
    with pytest.raises(InvalidArgument, match="Table 2"):
        put_tables(README, {"Table 2": "| a |"})


def test_a_page_that_the_settings_name_shows_its_tables_too(run_cli, target, tmp_path):
    other = tmp_path / "README.md"
    other.write_text(f"# All\n\n{README}<!-- Mine: begin -->\n\nkept\n\n<!-- Mine: end -->\n", encoding="utf-8")
    (target.folder / "settings.toml").write_text(f'also_in = ["../../README.md"]\n{SETTINGS}', encoding="utf-8")
    assert run_cli(f"reproduce {target.name} --experiments {target.folder.parent} --out {target.folder}").code == 0
    page = other.read_text(encoding="utf-8")
    assert tables_in(page)["Table 1"] == tables_in((target.folder / "README.md").read_text(encoding="utf-8"))["Table 1"]
    assert "| 9 | 1.0 |" in page
    assert "kept" in page


def test_a_table_may_be_on_another_page_of_the_target_alone(run_cli, target):
    (target.folder / "details.md").write_text(README, encoding="utf-8")
    (target.folder / "README.md").write_text("# Few\n", encoding="utf-8")
    (target.folder / "settings.toml").write_text(f'also_in = ["details.md"]\n{SETTINGS}', encoding="utf-8")
    assert run_cli(f"reproduce {target.name} --experiments {target.folder.parent} --out {target.folder}").code == 0
    assert "| 9 | 1.0 |" in tables_in((target.folder / "details.md").read_text(encoding="utf-8"))["Table 1"]
    assert (target.folder / "README.md").read_text(encoding="utf-8") == "# Few\n"


def test_values_that_json_does_not_know_are_not_written(target, tmp_path):
    records = Records(tmp_path / "results.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.make(Cell("part", {}, lambda: {"epsilon": float("inf")}))
    assert records.read() == []


@pytest.fixture
def few_images(tmp_path, monkeypatch):
    """Images in the form of MNIST, few of them, where data are looked for."""
    from experiments.library import targets

    (tmp_path / "data" / "mnist").mkdir(parents=True)
    write_few_images(tmp_path / "data" / "mnist" / "mnist.npz", train=300, test=50)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(targets, "_LOADED", {})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
def test_a_quick_run_of_a_paper_on_few_images(run_cli, few_images, tmp_path):
    out = tmp_path / "out"
    run = run_cli(f"reproduce gaussian_dp --quick --part 'table 1' --out {out} --experiments {ROOT / 'experiments'}")
    assert run.code == 0, run.err
    accounting, training = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    # The published epsilons are about 60,000 images, whatever the user has; what was trained has its own.
    assert accounting["asked"]["steps"] == 234
    from tacit.accounting import Gaussian, curve

    assert training["found"]["certified"] == pytest.approx(
        curve(Gaussian(1.3).sampled(256 / 300)).epsilon(1e-5), rel=1e-6
    )
    assert 0 <= training["found"]["scores"][-1] <= 0.5
    assert "| 0.25 | 1.5 | 1.3 | 1 | 95.0 % |" in run.out
    assert {path.name for path in (out / "pictures").iterdir()} == {f"figure_{number}.png" for number in (2, 3, 4, 5)}


TARGETS = all_targets(ROOT / "experiments")


@pytest.mark.parametrize("one", TARGETS, ids=lambda one: one.name)
def test_every_target_has_orders_of_every_size_a_title_and_what_was_published(one):
    assert one.title
    for size in ("full", "reduced", "quick"):
        assert one.order(size).expected
    assert one.order(one.shown).size == one.shown


@pytest.mark.slow
@pytest.mark.parametrize("one", TARGETS, ids=lambda one: one.name)
def test_every_readme_shows_the_tables_that_the_results_give(one):
    experiment, order = one.experiment(), one.order(one.shown)
    found = records_of(experiment, order, Records(one.folder / "results.jsonl"))
    assert found
    tables = experiment.tables(order, found)
    also_in = order.settings.get("also_in", ())
    pages = ["README.md", *(name for name in also_in if (one.folder / name).parent == one.folder)]
    page = "\n".join((one.folder / name).read_text(encoding="utf-8") for name in pages)
    # A page elsewhere shows tables of others too.
    elsewhere = "\n".join((one.folder / name).read_text(encoding="utf-8") for name in also_in if name not in pages)
    shown = tables_in(page) | {name: text for name, text in tables_in(elsewhere).items() if name in tables}
    assert shown == {name: text.strip() for name, text in tables.items()}
    drawn = {f"pictures/{name}.png" for name in experiment.pictures(order, found)}
    assert set(re.findall(r"\]\((pictures/[^)]+)\)", page)) <= drawn
    assert all((one.folder / picture).is_file() for picture in drawn)


@pytest.mark.slow
@pytest.mark.parametrize("one", TARGETS, ids=lambda one: one.name)
def test_every_part_can_be_shown_alone_without_the_tables_of_others(one):
    experiment, order = one.experiment(), one.order(one.shown)
    found = records_of(experiment, order, Records(one.folder / "results.jsonl"))
    whole = experiment.tables(order, found)
    # What is shown in the README has been run.
    assert tables_without_runs(whole, experiment.tables(order, [])) == ()
    for part in dict.fromkeys(record.part for record in found):
        alone = [record for record in found if record.part == part]
        tables = experiment.tables(order, alone)
        left_out = tables_without_runs(tables, experiment.tables(order, []))
        # The pictures of this one are accounting, the same for every part, and take seconds.
        pictures = {} if one.name == "gaussian_dp" else experiment.pictures(order, alone)
        assert len(left_out) < len(tables) or pictures, part
        assert all(tables[name] != whole[name] for name in left_out), part


@pytest.mark.slow
def test_tables_in_which_nothing_was_run_are_named_and_not_shown(run_cli, few_images, tmp_path):
    out = tmp_path / "out"
    run = run_cli(f"reproduce directional --part 'table 1' --out {out} --experiments {ROOT / 'experiments'}")
    assert run.code == 0, run.err
    assert "| MNIST | 512 of 55,000 | 60 | 1 |" in run.out
    # The summary names what was not run; other tables without runs are left out.
    after = run.out.partition("| set | lots |")[2]
    assert after
    assert "not run" not in after.lower()
    assert "Nothing was run for: Table 2; Learning rates; Figures 3 and 4, one learning rate;" in run.err
    assert "## Table 2" not in (out / "tables.md").read_text(encoding="utf-8")


def test_the_check_of_readmes_can_fail(tmp_path):
    one = next(target for target in TARGETS if target.name == "erm")
    folder = tmp_path / "experiments" / "erm"
    shutil.copytree(one.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    lines = (folder / "results.jsonl").read_text().splitlines()
    record = json.loads(lines[1])
    record["found"]["accuracy"] = [0.123]
    (folder / "results.jsonl").write_text("\n".join([lines[0], json.dumps(record), *lines[2:]]) + "\n")
    experiment, order = one.experiment(), one.order(one.shown)
    tables = experiment.tables(order, records_of(experiment, order, Records(folder / "results.jsonl")))
    assert tables_in((folder / "README.md").read_text()) != {name: text.strip() for name, text in tables.items()}
