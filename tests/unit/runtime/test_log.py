"""Log lines are lines."""

import logging

from libs.runtime.log import LineFormatter, fields


def line(message: str, **values: object) -> str:
    record = logging.LogRecord("libs.runtime.shell", logging.INFO, "", 0, message, (), None)
    record.__dict__.update(fields(**values))
    return LineFormatter("quota").format(record).split(" ", 1)[1]


def test_pairs_follow_the_message():
    assert line("started", offset=12) == "INFO quota libs.runtime.shell msg=started offset=12"


def test_what_could_break_the_line_is_quoted():
    said = line("two words", error='a "b"\nc', empty="", share=1 / 3)
    assert said == r'INFO quota libs.runtime.shell msg="two words" error="a \"b\"\nc" empty="" share=0.333333'


def test_a_traceback_stays_on_the_line():
    try:
        raise ValueError("bad")
    except ValueError:
        import sys

        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    text = LineFormatter("quota").format(record)
    assert "\n" not in text
    assert "ValueError: bad" in text
