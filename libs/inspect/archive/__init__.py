"""Archives: the oldest part of a log as files, and the log's space given back.

`writing` adds segments to a directory, `removing` removes from the log what is safely in one, `reading` and `whole`
read an archive alone and together with what the log has kept. `infra/archive.md` has the format and the procedure.
"""

from libs.inspect.archive.manifest import FORMAT, MANIFEST
from libs.inspect.archive.reading import Archive
from libs.inspect.archive.removing import NotGivenBack, give_back
from libs.inspect.archive.whole import whole_reader
from libs.inspect.archive.writing import archive

__all__ = [
    "FORMAT",
    "MANIFEST",
    "Archive",
    "NotGivenBack",
    "archive",
    "give_back",
    "whole_reader",
]
