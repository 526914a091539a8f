"""The table of consequences: as it comes, and as operators change it."""

import pytest

from libs.contracts.bad_input import BadInput
from libs.failures.consequences import Consequence, consequence_of, package_table, read_table
from libs.failures.package import package_files

CAUSES = ("xid_79", "xid_13", "syntax", "port_in_use")


@pytest.mark.parametrize(
    ("cause", "consequence"),
    [
        ("syntax", Consequence.NEVER),
        ("module_missing", Consequence.NEVER),
        ("data_schema", Consequence.NEVER),
        ("file_permission", Consequence.NEVER),
        ("diverged", Consequence.NEVER),
        ("xid_79", Consequence.ELSEWHERE),
        ("xid_13", Consequence.LATER),
        ("ecc_uncorrectable", Consequence.ELSEWHERE),
        ("nvswitch_error", Consequence.ELSEWHERE),
        ("peer_lost", Consequence.ELSEWHERE),
        ("hub_throttled", Consequence.LATER),
        ("store_unreachable", Consequence.LATER),
        ("gpu_memory_full", Consequence.ALLOCATOR),
        ("cgroup_limit", Consequence.MORE_MEMORY),
        ("host_memory_exceeded", Consequence.MORE_MEMORY),
        ("checkpoint_write", Consequence.RESUME),
    ],
)
def test_each_kind_of_cause_has_what_fits_it(cause: str, consequence: Consequence):
    known = package_files().causes.get(cause)
    assert consequence_of(cause, known is not None and known.retry, {}) is consequence


def test_no_cause_of_wrong_input_or_program_is_tried_again_by_the_packages_table():
    changed = (Consequence.ALLOCATOR, Consequence.MORE_MEMORY)
    for cause, row in package_files().causes.items():
        if not row.retry:
            assert consequence_of(cause, row.retry, {}) in (Consequence.NEVER, *changed), cause


def test_the_operators_table_goes_first_and_a_whole_name_before_a_beginning():
    own = read_table("own", "never: [port_in_use, xid_*]\nlater: [xid_79]", CAUSES)
    assert consequence_of("port_in_use", True, own) is Consequence.NEVER
    assert consequence_of("xid_79", True, own) is Consequence.LATER
    assert consequence_of("xid_13", True, own) is Consequence.NEVER
    assert consequence_of("syntax", False, own) is Consequence.NEVER
    assert own != package_table()


@pytest.mark.parametrize(
    ("text", "found", "where"),
    [
        ("never: [", "expected", "own:1"),
        ("- never", "no mapping", "own"),
        ("sometimes: [syntax]", "unknown consequence 'sometimes'", "own"),
        ("never: syntax", "'syntax'", "own: never"),
        ("never: [typo]", "unknown cause 'typo'", "own: never"),
        ("never: [typo_*]", "unknown cause 'typo_*'", "own: never"),
        ("never: [syntax]\nlater: [syntax]", "syntax is under never already", "own: later"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(text: str, found: str, where: str):
    with pytest.raises(BadInput) as error:
        read_table("own", text, CAUSES)
    assert found in str(error.value) and str(error.value).startswith(where)
