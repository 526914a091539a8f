"""Every event in one sentence, for the story and for people: a file per owner of events, as in `libs/contracts/`."""

from libs.inspect.sentences import (  # noqa: F401 - each fills the table
    admission,
    agent,
    failure_analysis,
    gateway,
    introspection,
    migration,
    placement,
    quota,
    runtime,
    sweeps,
)
from libs.inspect.sentences.table import UNTOLD, says, sentence
from libs.inspect.sentences.words import where

__all__ = ["UNTOLD", "says", "sentence", "where"]
