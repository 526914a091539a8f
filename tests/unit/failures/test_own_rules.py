"""Rules of operators: what is wrong is named by file, line and rule; records and logs are read strictly."""

from __future__ import annotations

import json

import pytest

from libs.contracts.bad_input import BadInput
from libs.failures.candidates import Candidates
from libs.failures.checking import problems
from libs.failures.classifier import Classifier
from libs.failures.package import package_files, package_rules
from libs.failures.reading import read
from libs.failures.records import classify, looks_like_records, records
from libs.failures.ruleset import RuleSet
from libs.failures.verdict import Ended

OWN = {
    "id": "licence_server",
    "reason": "incorrect_inputs",
    "cause": "service_unreachable",
    "category": "infrastructure",
    "rank": 20,
    "pattern": "licence server .* does not answer",
    "example": "licence server lic1 does not answer",
    "counter_example": "licence server lic1 answers",
}


def own(**changes: object) -> str:
    return "rules:\n  - " + json.dumps({key: value for key, value in {**OWN, **changes}.items() if value is not None})


def test_an_own_rule_decides_beside_the_packages():
    together = read([("my.yaml", own())], package_files())
    rules = RuleSet(together)
    assert not list(problems(together, rules))
    assert rules.digest != package_rules().digest
    classifier = Classifier(rules)
    classifier.feed("licence server lic1 does not answer\nValueError: no licence\n")
    found = classifier.verdict(Ended(exit_code=1))
    assert found is not None and found.rule == "licence_server"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [", "my.yaml:"),
        ("- 1", "my.yaml: no mapping"),
        ("rule: []", "my.yaml:1: unknown section 'rule'"),
        (own(reason="bad_luck"), "my.yaml:2: rule licence_server: unknown reason 'bad_luck'"),
        (own(cause="bad_luck"), "my.yaml:2: rule licence_server: unknown cause 'bad_luck'"),
        (own(category="ai_engine"), "my.yaml:2: rule licence_server: category 'ai_engine'"),
        (own(rank=100), "my.yaml:2: rule licence_server: rank 100"),
        (own(rank="low"), "my.yaml:2: rule licence_server: Expected `int`"),
        (own(streams=["printer"]), "my.yaml:2: rule licence_server: streams: printer"),
        (own(pattern=None), "my.yaml:2: rule licence_server: Object missing required field `pattern`"),
        (own(colour="red"), "my.yaml:2: rule licence_server: Object contains unknown field `colour`"),
        (own(id="torch_oom"), "rule torch_oom is also at"),
    ],
)
def test_a_wrong_file_is_named_by_line_and_rule(text: str, said: str):
    with pytest.raises(BadInput) as raised:
        read([("my.yaml", text)], package_files())
    assert said in str(raised.value)


@pytest.mark.parametrize("pattern", ["licence (", r"(a)\1", "(?=x)"])
def test_a_pattern_that_re2_does_not_take_is_named(pattern: str):
    together = read([("my.yaml", own(pattern=pattern))], package_files())
    with pytest.raises(BadInput, match=r"my\.yaml:2: rule licence_server: pattern"):
        RuleSet(together)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"example": "all is well"}, "no rule matches it"),
        ({"example": "CUDA out of memory: licence server x does not answer", "rank": 90}, "rule torch_oom takes it"),
        ({"counter_example": "licence server lic1 does not answer"}, "it matches its counter-example"),
    ],
)
def test_an_example_that_another_rule_decides_is_named(changes: dict[str, object], said: str):
    together = read([("my.yaml", own(**changes))], package_files())
    assert [said in str(problem) for problem in problems(together, RuleSet(together))] == [True]


@pytest.mark.parametrize("signal", ["SIGSEGV", "segv", 11, "11"])
def test_a_signal_is_a_name_or_a_number(signal: object):
    record = next(records("f", json.dumps({"id": "a", "log": "", "exit_code": None, "signal": signal})))
    assert classify(record, package_rules()).reason == "invalid_mem_access"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "f:2: no JSON"),
        ("[1]", "f:2: a list"),
        ('{"id": "a"}', "f:2: no `log`"),
        ('{"id": "a", "log": 3}', "f:2: `log` is a int"),
        ('{"id": "a", "log": "", "signal": "SIGNOT"}', "f:2: signal 'SIGNOT'"),
        ('{"id": "a", "log": "", "exit_code": "one"}', "f:2: exit_code 'one'"),
    ],
)
def test_a_wrong_record_is_named_by_its_line(line: str, said: str):
    with pytest.raises(BadInput) as raised:
        list(records("f", '{"id": "x", "log": "ok"}\n' + line))
    assert said in str(raised.value)


@pytest.mark.parametrize("log", ["", "\ud800 half a letter", "\x00" * 9])
def test_any_text_is_a_log(log: str):
    record = next(records("f", json.dumps({"log": log, "exit_code": 1})))
    assert (record.id, classify(record, package_rules()).reason) == ("1", "no_signature")


def test_logs_that_are_lines_of_json_are_no_records():
    assert looks_like_records("a.log", '{"id": 1, "log": "x"}\n') and looks_like_records("a.jsonl", "x")
    assert not looks_like_records("a.log", '{"level": "INFO", "msg": "x"}\n')


def test_unknown_errors_are_grouped_by_template_over_jobs():
    groups = Candidates(package_rules())
    for job in ("a", "b"):
        lines = [f"error: flux capacitor {number} lost phase at 0x{number:x}" for number in range(3)]
        groups.feed(job, "\n".join([*lines, "ValueError: known", "step 1 loss 2", "retrying after an error"]).encode())
    found = list(groups.found())
    assert [(each.lines, len(each.jobs)) for each in found] == [(6, 2)]
    assert "flux capacitor" in found[0].template
