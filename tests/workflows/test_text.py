"""Results as text: what `print` writes is what a notebook shows."""

from tacit.workflows.text import Printable


class Result(Printable):
    def paragraphs(self):
        return [("Answer", ["first line", "second line"])]


class Printer:
    """The part of IPython's printer that results use."""

    def __init__(self):
        self.shown = ""

    def text(self, text):
        self.shown += text


def test_a_notebook_shows_what_print_writes():
    printer = Printer()
    Result()._repr_pretty_(printer, cycle=False)
    assert printer.shown == str(Result()) == "Answer\n  first line\n  second line"
