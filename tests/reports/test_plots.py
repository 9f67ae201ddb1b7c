"""Pictures: the right lines, the right numbers in them, and nothing on top of anything."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm

from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, Laplace, curve
from tacit.reports.plots import draw_epsilon_over_steps, draw_privacy, draw_tradeoff

MNIST = Gaussian(1.1).sampled(256 / 60_000) * 14_062
MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def labelled(axes, start: str):
    """The line whose label begins so."""
    (line,) = [line for line in axes.get_lines() if str(line.get_label()).startswith(start)]
    return line


@pytest.fixture(scope="module")
def mnist():
    return draw_privacy(MNIST, delta=1e-5, budget=3.0)


@pytest.mark.slow
def test_the_picture_has_both_panels_with_greek_labels(mnist):
    left, right = mnist.axes
    assert left.get_xlabel() == "false alarms α"
    assert left.get_ylabel() == "members missed β"
    assert right.get_xlabel() == "steps"
    assert right.get_ylabel() == "ε at δ = 1e-05"
    assert mnist.get_suptitle() == "ε ≤ 2.3816 at δ = 1e-05, certified (add/remove one example, 14,062 steps)"


@pytest.mark.slow
def test_the_steps_end_at_the_published_numbers(mnist):
    axes = mnist.axes[1]
    for label, epsilon in [("certified", 2.38160), ("central limit", 2.3243), ("moments", 3.008)]:
        line = labelled(axes, label)
        assert line.get_xdata()[-1] == 14_062
        assert line.get_ydata()[-1] == pytest.approx(epsilon, rel=2e-4)
        assert np.all(np.diff(line.get_ydata()) > 0)


@pytest.mark.slow
def test_the_accountants_stand_in_their_order(mnist):
    certified, rdp, moments = (labelled(mnist.axes[1], name).get_ydata() for name in ("certified", "RDP", "moments"))
    assert np.all(certified < rdp)
    assert np.all(rdp < moments)


@pytest.mark.slow
def test_only_what_promises_something_is_drawn_solid(mnist):
    for axes in mnist.axes:
        assert labelled(axes, "certified").get_linestyle() == "-"
        assert labelled(axes, "central limit").get_linestyle() == "--"


@pytest.mark.slow
def test_the_budget_is_marked(mnist):
    axes = mnist.axes[1]
    assert [text.get_text() for text in axes.texts] == ["budget 3"]
    assert [3.0, 3.0] in [list(line.get_ydata()) for line in axes.get_lines()]


@pytest.mark.slow
def test_legends_cover_nothing_and_stay_in_the_picture(mnist):
    mnist.draw_without_rendering()
    boxes = [axes.get_legend().get_window_extent() for axes in mnist.axes]
    assert not boxes[0].overlaps(boxes[1])
    for box in boxes:
        assert mnist.bbox.x0 <= box.x0
        assert mnist.bbox.y0 <= box.y0
        assert box.x1 <= mnist.bbox.x1
        for axes in mnist.axes:
            assert not box.overlaps(axes.get_window_extent())


@pytest.mark.slow
def test_the_inset_stays_above_the_diagonal_with_all_its_labels(mnist):
    mnist.draw_without_rendering()
    axes = mnist.axes[0]
    (inset,) = axes.child_axes
    corner = axes.transAxes.inverted().transform(inset.get_tightbbox().min)
    assert corner.sum() > 0.9
    assert inset.get_tightbbox().x1 <= axes.get_window_extent().x1


def test_the_trade_off_of_a_gaussian_is_the_closed_form():
    axes = draw_tradeoff(curve(Gaussian(1.0)), delta=1e-5)
    line = labelled(axes, "certified")
    alphas, missed = line.get_xdata(), line.get_ydata()
    exact = norm.cdf(norm.isf(alphas) - 1)
    assert np.all(missed <= exact + 1e-12)
    assert missed == pytest.approx(exact, abs=1e-3)


def test_what_epsilon_and_delta_promise_alone_is_less():
    axes = draw_tradeoff(curve(MNIST), delta=1e-5)
    alone, certified = (
        labelled(axes, "implied by ε = 2.3816, δ = 1e-05").get_ydata(),
        labelled(axes, "certified").get_ydata(),
    )
    assert np.all(alone <= certified + 1e-9)
    assert alone.min() >= 0


def test_the_inset_shows_the_attacker_with_few_false_alarms():
    (inset,) = draw_tradeoff(curve(Gaussian(1.0))).child_axes
    assert inset.get_xscale() == inset.get_yscale() == "log"
    # 1 - Phi(Phi^-1(0.999) - 1) = 1.8297 % and 1 - Phi(Phi^-1(0.99) - 1) = 9.236 %, rounded up.
    assert [text.get_text() for text in inset.texts] == ["0.1 % → 1.83 %\n1 % → 9.24 %"]
    [marks] = [line for line in inset.get_lines() if line.get_marker() == "o"]
    assert list(marks.get_xdata()) == [0.001, 0.01]
    assert list(marks.get_ydata()) == pytest.approx(norm.sf(norm.isf([0.001, 0.01]) - 1), rel=2e-3)


def test_an_accountant_that_refuses_is_left_out():
    axes = draw_epsilon_over_steps(EpsilonDelta(0.1, 1e-8), delta=1e-5)
    assert len(axes.get_lines()) == 1
    assert labelled(axes, "certified").get_xdata().tolist() == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        Gaussian(1.0),
        Gaussian(1.0) * 0,
        EpsilonDelta(0.1, 1e-3),
        Gaussian(2.0) + Laplace(4.0) + Gaussian(1.0).sampled(0.01) * 50,
        Gaussian(5.0, Adjacency.REPLACE_ONE).sampled(0.1),
    ],
    ids=["one step", "no steps", "no finite epsilon", "parts", "replace one"],
)
def test_every_kind_of_event_can_be_drawn(event, tmp_path):
    draw_privacy(event, delta=1e-5).savefig(tmp_path / "a.png")


def test_a_group_is_drawn_for_all_of_its_examples():
    figure = draw_privacy(Gaussian(1.0) * 4, delta=1e-5, group=2)
    assert "add/remove 2 examples" in figure.get_suptitle()
    # mu = 2 examples * sqrt(4 steps) / 1 = 4.
    assert labelled(figure.axes[0], "certified").get_ydata()[-60] < 0.01
    assert labelled(figure.axes[1], "certified").get_ydata()[0] == pytest.approx(9.9972561, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", MAGIC)
def test_the_command_line_writes_the_kind_of_file_that_the_suffix_names(suffix, tmp_path):
    path = tmp_path / f"picture{suffix}"
    program = "\n".join(
        [
            "import sys",
            "from tacit.cli import main",
            "try:",
            "    main()",
            "except SystemExit as stop:",
            "    assert not stop.code",
            "assert 'matplotlib.pyplot' not in sys.modules",
        ]
    )
    line = ["epsilon", "--multiplier", "5", "--rate", "1", "--steps", "9", "--delta", "1e-5", "--plot", str(path)]
    run = subprocess.run([sys.executable, "-W", "error", "-c", program, *line], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    assert path.read_bytes().startswith(MAGIC[suffix])
