"""The display of a comparison: bar, count and time stay whatever the width, and only what is being trained is named."""

import io
import multiprocessing
from dataclasses import replace

import pytest
from rich.console import Console

from tacit.workflows import progress
from tacit.workflows.cells import NON_PRIVATE, Job
from tacit.workflows.progress import ComparisonProgress, make_bar
from tacit.workflows.workers import run_jobs

LONG = [Job("output_perturbation", mode, epsilon, (0,)) for mode in ("rigorous", "paper") for epsilon in (0.5, 1.0)]


def draw_bar(width: int, done: int, total: int, seen: list[str]) -> str:
    """The line of a progress bar in a terminal of this width."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    bar = make_bar(console)
    bar.add_task("Comparing", total=total, completed=done, seen=seen)
    console.print(bar.get_renderable())
    (line,) = console.file.getvalue().splitlines()
    assert len(line.rstrip()) <= width
    return line.rstrip()


@pytest.mark.parametrize(("width", "jobs"), [(60, 1), (80, 1), (120, 2), (160, 3)])
def test_jobs_are_named_while_there_is_room_and_never_in_part(width, jobs):
    line = draw_bar(width, 7, 42, [str(job) for job in LONG])
    assert line.startswith("Comparing ━" if width >= 100 else "━")
    assert " 7/42 " in line
    assert line.endswith("-:--:-- left " + "  ".join(map(str, LONG[:jobs])))


def test_epsilon_and_score_are_seen_at_80_columns():
    line = draw_bar(80, 608, 4000, ["epsilon 1.057 of 3", "test accuracy 85.04 %", "loss 0.412 (private)"])
    assert line.endswith("left epsilon 1.057 of 3  test accuracy 85.04 %")


def test_what_waits_for_a_process_is_not_said_to_be_trained(tmp_path):
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    display = ComparisonProgress(0, 8, tmp_path, queue)
    assert display.list_running(LONG) == []
    queue.put((7, LONG[0]))
    queue.put((8, LONG[2]))
    assert display.list_running(LONG) == [LONG[0], LONG[2]]
    assert display.list_running(LONG[1:]) == [LONG[2]]
    # That it has ended is known a little later than what its process does next.
    queue.put((8, LONG[3]))
    assert display.list_running(LONG[1:]) == [LONG[3]]


def test_cells_from_before_are_not_counted(tmp_path, capsys):
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.json").touch()
    # One of the three belongs to this comparison.
    display = ComparisonProgress(1, 4, tmp_path, multiprocessing.get_context("spawn").SimpleQueue())
    (tmp_path / "four.json").touch()
    display._lines._seconds = 0.0
    display.update([])
    assert capsys.readouterr().err.startswith("2 of 4 cells, ")


def test_a_log_promises_no_time_before_a_tenth_is_done(tmp_path, capsys):
    display = ComparisonProgress(0, 20, tmp_path, multiprocessing.get_context("spawn").SimpleQueue())
    display._lines._seconds = 0.0
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").touch()
        display.update([])
    first, second = capsys.readouterr().err.splitlines()
    assert first == "1 of 20 cells"
    assert second.startswith("2 of 20 cells, about ")


def test_a_job_says_its_form():
    assert [str(job) for job in LONG[1:3]] == ["output_perturbation at 1", "output_perturbation (as published) at 0.5"]
    assert str(Job(NON_PRIVATE, "rigorous", None, (0,))) == "without privacy"


@pytest.mark.slow
def test_processes_say_what_they_begin(tmp_path, monkeypatch):
    """In a real comparison no more is named than there are processes, and something is."""
    from support.report_folders import comparison_of

    named = []
    show = ComparisonProgress.update

    def seen(self, unfinished):
        jobs = list(unfinished)
        show(self, jobs)
        named.append(self.list_running(jobs))

    monkeypatch.setattr(ComparisonProgress, "update", seen)
    data, comparison = comparison_of(methods=("output_perturbation", "gradient_perturbation"), seeds=1)
    few = replace(data, train=(data.train[0][:20], data.train[1][:20]))
    assert run_jobs(comparison.list_jobs(), few, comparison.options, tmp_path, 1)
    assert max(map(len, named)) == 1


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_without_widgets_gets_lines_like_a_log(monkeypatch, has_widgets):
    monkeypatch.setattr(progress, "find_spec", lambda name: object() if has_widgets else None)
    console = Console(force_jupyter=True, force_terminal=False)
    assert progress.is_watched(console) == has_widgets
    assert progress.make_bar(console).disable != has_widgets
