"""Why jobs failed, from their logs alone: `classify`, `rules test`, `rules candidates`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libs.cli.context import USAGE, fail
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Sort, asked, listed
from libs.cli.output import Column, Form, Row
from libs.cli.writing import check_writable, write_text
from libs.contracts.bad_input import BadInput
from libs.kernel.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from libs.failures.reading import Rules
    from libs.failures.records import Record
    from libs.failures.ruleset import RuleSet
    from libs.failures.scoring import Score
    from libs.failures.verdict import Verdict

COLUMNS = (
    Column("ID", lambda row: row["id"]),
    Column("REASON", lambda row: row["reason"]),
    Column("CATEGORY", lambda row: row["category"] or "–"),
    Column("CONFIDENCE", lambda row: f"{row['confidence']:.2f}"),
    Column("CAUSE", lambda row: row["cause"], wide=True),
    Column("RULE", lambda row: row["rule"] or "–", wide=True),
    Column("RETRY", lambda row: "may help" if row["retry_can_help"] else "cannot help", wide=True),
    Column("ACTION", lambda row: row["action"] or "–", wide=True),
    Column("DECIDING LINE", lambda row: row["deciding_line"] or f"({row['status']})"),
)
GROUPS = (
    Column("LINES", lambda row: str(row["lines"])),
    Column("LOGS", lambda row: str(row["logs"])),
    Column("TEMPLATE", lambda row: row["template"]),
    Column("EXAMPLE", lambda row: row["example"], wide=True),
)
Files = Annotated[list[str], typer.Argument(help="Records (failures/1), or a log; - for standard input.")]
OwnRules = Annotated[
    list[str] | None, typer.Option("--rules", help="A file of rules beside the package's; may be repeated.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(classify)
    group = typer.Typer(help="Rules that tell why a job failed.", no_args_is_help=True, rich_markup_mode=None)
    group.command("test")(test_rules)
    group.command("candidates")(candidates)
    app.add_typer(group, name="rules")


def classify(
    files: Files,
    exit_code: Annotated[int | None, typer.Option(help="Of a log's process: 128 + n for signal n.")] = None,
    signal: Annotated[str | None, typer.Option(help="That ended a log's process: a name or a number.")] = None,
    own: OwnRules = None,
    confusion: Annotated[
        str | None, typer.Option(help="Labelled records: write how verdicts fit labels to this file, as Markdown.")
    ] = None,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Limit = None,
) -> None:
    """Say why jobs failed: reason, category, confidence, and the line that decided."""
    from libs.failures.records import classify as verdict_on

    if confusion is not None:
        check_writable(confusion)
    rules = _rules(own)
    found = [(file, [(each, verdict_on(each, rules)) for each in _records(file, exit_code, signal)]) for file in files]
    rows = [_row(record, verdict) for _, verdicts in found for record, verdict in verdicts]
    listed(lambda: rows, COLUMNS, asked(output, as_json, no_headers, sort, limit))
    scores = [score for file, verdicts in found if (score := _score(file, verdicts)) is not None]
    for score in scores:
        typer.echo(score.summary(), err=True)
    if confusion is not None:
        if not scores:
            fail(f"--confusion {confusion}: no record has a label", USAGE)
        write_text(_accuracy(scores, rules), confusion)


def test_rules(files: Annotated[list[str], typer.Argument(help="Files of rules, YAML; - for standard input.")]) -> None:
    """Check own rules beside the package's: syntax, names, and every example against every rule."""
    from libs.failures.checking import problems
    from libs.failures.ruleset import RuleSet

    read = _read(files)
    rules = RuleSet(read)
    wrong = list(problems(read, rules))
    for problem in wrong:
        typer.echo(f"error: {problem}", err=True)
    if wrong:
        sys.exit(USAGE)
    for rule in rules.looks_at_every_line():
        typer.echo(
            f"warning: {read.place(rule)}: its pattern has no literal text, so it is tried on every line", err=True
        )
    typer.echo(
        f"{counted(len(read.rules), 'rule', 'rules')}, {counted(len(read.causes), 'cause', 'causes')}: "
        f"every example is decided by its own rule; digest {rules.digest}"
    )


def candidates(
    files: Files,
    own: OwnRules = None,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Limit = 50,
) -> None:
    """List lines that look like errors and that no rule knows, grouped by template."""
    from libs.failures.candidates import Candidates

    groups = Candidates(_rules(own))
    for file in files:
        for record in _records(file, None, None):
            groups.feed(f"{file}:{record.id}", record.log.encode("utf-8", "surrogateescape"))
    rows: list[Row] = [
        {"lines": each.lines, "logs": len(each.jobs), "template": each.template, "example": each.example}
        for each in groups.found()
    ]
    listed(lambda: rows, GROUPS, asked(output, as_json, no_headers, sort, limit))


def _rules(own: Sequence[str] | None) -> RuleSet:
    from libs.failures.package import package_rules
    from libs.failures.ruleset import RuleSet

    return RuleSet(_read(own)) if own else package_rules()


def _read(files: Sequence[str]) -> Rules:
    from libs.failures.package import package_files
    from libs.failures.reading import read

    return read([(file, _bytes(file).decode("utf-8", "replace")) for file in files], package_files())


def _records(file: str, exit_code: int | None, signal: str | None) -> list[Record]:
    """The records of a file, or the file as the log of one job."""
    from libs.failures.records import Record, looks_like_records, records, signal_of
    from libs.failures.verdict import Ended

    text = _bytes(file).decode("utf-8", "surrogateescape")
    if not looks_like_records(file, text):
        ended = Ended(exit_code=exit_code, signal=signal_of("--signal", signal))
        return [Record(id=file, log=text, ended=ended)]
    found = list(records(file, text))
    if unknown := sorted({name for record in found for name in record.unknown}):
        typer.echo(f"warning: {file}: unknown fields are ignored: {', '.join(unknown)}", err=True)
    return found


def _bytes(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise BadInput(file, error.strerror or str(error), "a file that can be read") from None


def _row(record: Record, verdict: Verdict) -> Row:
    from libs.failures.exits import said

    return {
        "id": record.id,
        "reason": verdict.reason,
        "category": verdict.category or None,
        "confidence": verdict.confidence,
        "deciding_line": verdict.deciding_line or None,
        "cause": verdict.cause,
        "rule": verdict.rule or None,
        "rank": verdict.rank,
        "status": said(record.ended),
        "retry_can_help": verdict.retry_can_help,
        "action": verdict.action or None,
    }


def _score(file: str, verdicts: Sequence[tuple[Record, Verdict]]) -> Score | None:
    from libs.failures.scoring import Score

    score = Score(Path(file).name)
    for record, verdict in verdicts:
        if record.reason is not None:
            score.add(record.reason, record.deciding_line, verdict)
    return score if score.total else None


def _accuracy(scores: Sequence[Score], rules: RuleSet) -> str:
    names = " ".join(score.name for score in scores)
    head = (
        "# How well verdicts fit labelled logs\n\n"
        f"Made by `sanjaya classify {names} --confusion FILE`: {len(rules.rules)} rules, digest `{rules.digest}`.\n\n"
    )
    return head + "\n".join(score.markdown() for score in scores)
