"""Checks files against a schema, each by its format."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from libs.contracts.bad_input import BadInput
from libs.datasets.findings import Findings, Report
from libs.datasets.schema import DataSchema, json_schema_of, schema_of

Check = Callable[[Findings, DataSchema, str], None]
FORMATS = {
    ".parquet": "Parquet",
    ".csv": "CSV",
    ".csv.gz": "CSV",
    ".jsonl": "JSON lines",
    ".jsonl.gz": "JSON lines",
    ".ndjson": "JSON lines",
    ".tar": "WebDataset",
    ".tar.gz": "WebDataset",
    ".tgz": "WebDataset",
}
"""{end of a file's name: its format}."""


class ToolsMissing(Exception):
    """pyarrow is not installed; the message says how to get it."""


def read_schema(path: str | Path) -> DataSchema:
    """The schema of a file: JSON, else an Arrow schema in IPC form.

    Raises:
        BadInput: it is not there, or is no schema.
        ToolsMissing: it is in IPC form, and pyarrow is not installed.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadInput(str(path), error.strerror or str(error), "a file with a schema") from None
    if data.lstrip()[:1] == b"{" or not data:
        return schema_of(data, str(path))
    with _pyarrow_needed():
        from libs.datasets.arrow_schema import schema_of_arrow

        return schema_of_arrow(data, str(path))


def schema_text(path: str | Path) -> str:
    """The schema of a file as JSON Schema, for a job to take along; errors as of `read_schema`."""
    schema = read_schema(path)
    data = Path(path).read_bytes()
    return data.decode() if data.lstrip()[:1] == b"{" else json_schema_of(schema)


def files_of(patterns: Sequence[str]) -> list[str]:
    """The files that paths, folders and patterns mean: of a folder those of a known format, in order of their names.

    Raises:
        BadInput: a path is not there, a pattern or a folder has no such file, or a file's format is not known.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        folder = Path(pattern)
        several = folder.is_dir()
        names = [str(each) for each in folder.rglob("*")] if several else glob.glob(pattern, recursive=True)
        files = sorted(name for name in names if Path(name).is_file() and (not several or format_of(name)))
        if not files:
            raise BadInput(pattern, "no file" if not several else "a folder without such files", _NAMES)
        found.update(dict.fromkeys(files))
    unknown = next((name for name in found if not format_of(name)), None)
    if unknown is not None:
        raise BadInput(unknown, "a name that says no format", _NAMES)
    return list(found)


_NAMES = f"files that end in {', '.join(FORMATS)}"


def format_of(path: str) -> str:
    """The format that the name says; empty: none that is known."""
    return next((name for end, name in FORMATS.items() if path.endswith(end)), "")


def check_files(schema: DataSchema, patterns: Sequence[str]) -> Report:
    """Check all files that the patterns mean, one after the other, until 20 violations are found.

    The footers of Parquet files come first: what they say of missing columns, other types and files that are cut off
    takes no reading of values, and none are read then.

    Raises:
        BadInput: as `files_of`; or a format cannot hold what the schema says.
        ToolsMissing: Parquet and CSV need pyarrow, which is not installed.
    """
    findings, paths = Findings(), files_of(patterns)
    parquet = [path for path in paths if format_of(path) == "Parquet"]
    _check_footers(findings, schema, parquet)
    if findings.violations:
        findings.files = len(parquet)
        return findings.report(complete=False)
    for path in paths:
        _check_of(path)(findings, schema, path)
        findings.files += 1
        if findings.is_full:
            return findings.report()
    findings.check_rows(schema, ", ".join(patterns))
    return findings.report()


def _check_footers(findings: Findings, schema: DataSchema, paths: Sequence[str]) -> None:
    """Of Parquet files."""
    if not paths:
        return
    with _pyarrow_needed():
        from libs.datasets.parquet_files import check_footer
    for path in paths:
        check_footer(findings, schema, path)


def _check_of(path: str) -> Check:
    """What checks files of its format; imported when there is one."""
    with _pyarrow_needed():
        match format_of(path):
            case "Parquet":
                from libs.datasets.parquet_files import check_parquet

                return check_parquet
            case "CSV":
                from libs.datasets.csv_files import check_csv

                return check_csv
            case "JSON lines":
                from libs.datasets.json_lines import check_json_lines

                return check_json_lines
    from libs.datasets.webdataset import check_webdataset

    return check_webdataset


@contextmanager
def _pyarrow_needed() -> Iterator[None]:
    """What imports pyarrow stands within it.

    Raises:
        ToolsMissing: pyarrow is not installed.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        message = "Parquet, CSV and Arrow schemas need pyarrow: pip install 'pyarrow>=17'"
        raise ToolsMissing(message) from None
