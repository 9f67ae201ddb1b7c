"""What parts of a run cost, against a count of every step by hand."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import Composed, Gaussian, Repeated
from tacit.errors import InvalidArgument
from tacit.ledger import Block, Course

FIRST, SECOND = Gaussian(1.1).sampled(0.1), Gaussian(0.9).sampled(0.2)


def counted(event) -> Counter:
    """How often each plain event occurs."""
    if isinstance(event, Composed):
        return sum((counted(part) for part in event.parts), Counter())
    if isinstance(event, Repeated):
        return Counter({inner: times * event.times for inner, times in counted(event.inside).items()})
    return Counter({event: 1})


@st.composite
def drawn_courses(draw):
    sizes = st.integers(1, 4)
    blocks = [Block(draw(st.sampled_from([FIRST, SECOND])), draw(sizes), draw(sizes)) for _ in range(draw(sizes))]
    course = Course(tuple(blocks), draw(st.booleans()))
    ends = st.integers(0, course.steps)
    ranges = draw(st.lists(st.tuples(ends, ends).map(sorted).map(tuple), max_size=5))
    return course, ranges


def by_hand(course: Course, ranges) -> Counter:
    """Step by step, unit by unit."""
    times = Counter(step for start, stop in ranges for step in range(start, stop))
    spent: Counter = Counter()
    first = 0
    for block in course.blocks:
        for _ in range(block.times):
            most = max(times[step] for step in range(first, first + block.length))
            spent[block.event] += min(most, 1) if course.is_repeatable else most
            first += block.length
    return +spent


@pytest.mark.slow
@given(drawn_courses())
def test_every_unit_costs_as_often_as_its_most_drawn_step(case):
    course, ranges = case
    assert counted(course.cost(ranges)) - Counter() == by_hand(course, ranges)


@given(drawn_courses())
def test_drawing_more_never_costs_less(case):
    course, ranges = case
    more = counted(course.cost([*ranges, (0, course.steps)]))
    assert all(more[event] >= times for event, times in counted(course.cost(ranges)).items())


def test_nothing_drawn_costs_nothing_and_keeps_its_neighbours():
    nothing = Course((Block(FIRST, 5),)).cost([(3, 3)])
    assert nothing == FIRST * 0
    assert nothing.adjacency is FIRST.adjacency


def test_a_run_stopped_in_the_middle_of_an_epoch_pays_for_that_epoch_once():
    epochs = Course((Block(Gaussian(1.0), times=2, length=7),))
    assert epochs.cost([(0, 5), (5, 12)]) == Gaussian(1.0) * 2
    assert epochs.cost([(0, 5), (3, 12)]) == Gaussian(1.0) * 3


@given(drawn_courses())
def test_a_course_survives_json(case):
    course, _ = case
    assert Course.from_data(json.loads(json.dumps(course.to_data()))) == course


@pytest.mark.parametrize("wrong", [(-1, 2), (2, 1), (0, 6)])
def test_steps_that_are_not_there_are_refused(wrong):
    with pytest.raises(InvalidArgument, match="not within a course of 5 steps"):
        Course((Block(FIRST, 5),)).cost([wrong])


def test_a_course_without_steps_is_refused():
    with pytest.raises(InvalidArgument, match="at least one block"):
        Course(())
