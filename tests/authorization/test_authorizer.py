"""The authorizer as a core: rules go in, decisions come out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counted_calls import counted_calls
from tidelog.authorization.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    binding_mistake,
)
from tidelog.authorization.authorizer import Authorizer

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def binding(
    name: str,
    operation: Operation = READ,
    *,
    principal: str = ALICE,
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    pattern = ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    return AclBinding(pattern, AclEntry(principal, host, operation, Permission.DENY if deny else Permission.ALLOW))


def authorizer(*bindings: AclBinding, **options: object) -> Authorizer:
    made = Authorizer(**options)  # type: ignore[arg-type]
    for pattern, entry in bindings:
        made.replace(pattern, made.patterns.get(pattern, frozenset()) | {entry})
    return made


def test_without_rules_nobody_may_do_anything() -> None:
    assert not authorizer().allows(ALICE, HOST, READ, TOPIC, "orders")


def test_a_super_user_may_do_everything_in_spite_of_deny_rules() -> None:
    found = authorizer(binding("*", Operation.ALL, deny=True), super_users=[ALICE])
    assert found.allows(ALICE, HOST, WRITE, TOPIC, "orders")
    assert found.allows_any(ALICE, HOST, WRITE, TOPIC)
    assert found.decide(ALICE, HOST, WRITE, TOPIC, "orders").is_super_user


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        (binding("orders"), "orders", True),
        (binding("orders"), "orders2", False),
        (binding("*"), "orders", True),
        (binding("ord", prefixed=True), "orders", True),
        (binding("orders", prefixed=True), "orders", True),
        (binding("orders-", prefixed=True), "orders", False),
        (binding("*", prefixed=True), "orders", False),
        (binding("orders", host=HOST), "orders", True),
        (binding("orders", host="10.0.0.2"), "orders", False),
        (binding("orders", principal=BOB), "orders", False),
        (binding("orders", principal="User:*"), "orders", True),
        (binding("orders", Operation.ALL), "orders", True),
        (binding("orders", WRITE), "orders", False),
        (binding("orders", kind=GROUP), "orders", False),
    ],
)
def test_an_allow_rule_matches_name_host_principal_and_operation(rule: AclBinding, name: str, expected: bool) -> None:
    assert authorizer(rule).allows(ALICE, HOST, READ, TOPIC, name) is expected


@pytest.mark.parametrize(
    "denying",
    [
        binding("orders", deny=True),
        binding("*", deny=True),
        binding("o", deny=True, prefixed=True),
        binding("orders", Operation.ALL, deny=True, principal="User:*"),
    ],
)
def test_deny_wins_over_every_allow(denying: AclBinding) -> None:
    found = authorizer(binding("orders"), binding("*"), binding("ord", prefixed=True), denying)
    decision = found.decide(ALICE, HOST, READ, TOPIC, "orders")
    assert (decision.is_allowed, decision.rule) == (False, denying)


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL, DESCRIBE])
def test_operations_that_imply_describe(operation: Operation) -> None:
    assert authorizer(binding("orders", operation)).allows(ALICE, HOST, DESCRIBE, TOPIC, "orders")


def test_describe_is_not_implied_by_create_nor_by_operations_on_configs() -> None:
    found = authorizer(binding("orders", Operation.CREATE), binding("orders", Operation.ALTER_CONFIGS))
    assert not found.allows(ALICE, HOST, DESCRIBE, TOPIC, "orders")
    assert found.allows(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "orders")


def test_a_deny_rule_implies_nothing() -> None:
    found = authorizer(binding("orders", DESCRIBE), binding("orders", READ, deny=True))
    assert found.allows(ALICE, HOST, DESCRIBE, TOPIC, "orders")


def test_everyone_is_allowed_only_while_the_resource_has_no_rules_at_all() -> None:
    found = authorizer(binding("orders", principal=BOB), allow_everyone_if_no_acl_found=True)
    assert found.allows(ALICE, HOST, READ, TOPIC, "payments")
    assert not found.allows(ALICE, HOST, READ, TOPIC, "orders")
    found = authorizer(binding("o", principal=BOB, prefixed=True), allow_everyone_if_no_acl_found=True)
    assert not found.allows(ALICE, HOST, READ, TOPIC, "orders")


def test_any_resource_with_both_meanings_of_allow_everyone() -> None:
    others = binding("*", WRITE, principal=BOB)
    standard = authorizer(others, allow_everyone_if_no_acl_found=True)
    assert not standard.allows_any(ALICE, HOST, WRITE, TOPIC)
    zookeeper_mode = authorizer(others, allow_everyone_if_no_acl_found=True, asks_like_zookeeper_mode=True)
    assert zookeeper_mode.allows_any(ALICE, HOST, WRITE, TOPIC)
    zookeeper_mode.replace(*replacement(binding("*", WRITE, deny=True)))
    assert not zookeeper_mode.allows_any(ALICE, HOST, WRITE, TOPIC)


def replacement(rule: AclBinding) -> tuple[ResourcePattern, frozenset[AclEntry]]:
    return rule.pattern, frozenset({rule.entry})


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([binding("orders", WRITE)], True),
        ([binding("ord", WRITE, prefixed=True)], True),
        ([binding("orders", READ)], False),
        ([binding("orders", WRITE), binding("orders", WRITE, deny=True)], False),
        ([binding("orders", WRITE), binding("or", WRITE, deny=True, prefixed=True)], False),
        ([binding("orders", WRITE), binding("orders2", WRITE, deny=True, prefixed=True)], True),
        ([binding("*", WRITE), binding("orders", WRITE, deny=True)], True),
        ([binding("orders", WRITE), binding("*", WRITE, deny=True)], False),
    ],
)
def test_any_resource_is_allowed_unless_a_deny_rule_covers_the_allowed_ones(
    rules: list[AclBinding], expected: bool
) -> None:
    assert authorizer(*rules).allows_any(ALICE, HOST, WRITE, TOPIC) is expected
    assert authorizer(*rules, asks_like_zookeeper_mode=True).allows_any(ALICE, HOST, WRITE, TOPIC) is expected


def test_a_change_of_rules_is_effective_at_once() -> None:
    found = authorizer(binding("orders"))
    assert found.allows(ALICE, HOST, READ, TOPIC, "orders")
    found.replace(binding("orders").pattern, frozenset())
    assert not found.allows(ALICE, HOST, READ, TOPIC, "orders")


NAMES = st.text(alphabet="ab*", max_size=3)
BINDINGS = st.builds(
    binding,
    NAMES.filter(bool),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALL]),
    principal=st.sampled_from([ALICE, BOB, "User:*"]),
    host=st.sampled_from(["*", HOST, "10.0.0.2"]),
    deny=st.booleans(),
    prefixed=st.booleans(),
)


@given(st.lists(BINDINGS, max_size=6), NAMES, st.sampled_from([READ, WRITE, DESCRIBE]), st.booleans())
def test_the_index_decides_like_a_search_through_all_rules(
    rules: list[AclBinding], name: str, operation: Operation, everyone: bool
) -> None:
    selected = AclFilter(resource_type=TOPIC, name=name, pattern_type=PatternType.MATCH)
    matching = [rule for rule in rules if selected.matches_pattern(rule.pattern)]

    def holds(rule: AclBinding) -> bool:
        entry = rule.entry
        implied = entry.permission is Permission.ALLOW and operation is DESCRIBE and entry.operation in (READ, WRITE)
        return (
            entry.principal in (ALICE, "User:*")
            and entry.host in (HOST, "*")
            and (entry.operation in (operation, Operation.ALL) or implied)
        )

    permissions = {rule.entry.permission for rule in matching if holds(rule)}
    expected = Permission.DENY not in permissions and (Permission.ALLOW in permissions or (not matching and everyone))
    found = authorizer(*rules, allow_everyone_if_no_acl_found=everyone)
    assert found.allows(ALICE, HOST, operation, TOPIC, name) is expected


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        (AclFilter(), {"orders", "*", "ord"}),
        (AclFilter(name="orders"), {"orders"}),
        (AclFilter(name="ord", pattern_type=PatternType.PREFIXED), {"ord"}),
        (AclFilter(name="orders", pattern_type=PatternType.LITERAL), {"orders"}),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), {"orders", "*", "ord"}),
        (AclFilter(name="other", pattern_type=PatternType.MATCH), {"*"}),
        (AclFilter(pattern_type=PatternType.LITERAL), {"orders", "*"}),
        (AclFilter(resource_type=GROUP), set()),
        (AclFilter(principal=BOB), set()),
        (AclFilter(operation=WRITE), {"*"}),
        (AclFilter(permission=Permission.DENY), {"ord"}),
        (AclFilter(host=HOST), {"ord"}),
    ],
)
def test_filters(selected: AclFilter, expected: set[str]) -> None:
    found = authorizer(binding("orders"), binding("*", WRITE), binding("ord", deny=True, prefixed=True, host=HOST))
    matching = {pattern: entries for pattern, entries in found.patterns.items() if selected.matches_pattern(pattern)}
    assert {each.name for each, entries in matching.items() if any(map(selected.matches_entry, entries))} == expected


@pytest.mark.parametrize(
    "bad",
    [
        binding("a/b"),
        binding(""),
        binding("other", kind=ResourceType.CLUSTER),
        binding("orders", Operation.ANY),
        binding("orders", kind=ResourceType.ANY),
        binding("orders", principal="alice"),
    ],
)
def test_bindings_that_cannot_be_stored(bad: AclBinding) -> None:
    assert binding_mistake(bad)
    assert binding_mistake(binding("orders")) is None


@pytest.mark.parametrize(
    ("written", "connected"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_deny_rule_for_a_host_matches_every_form_of_its_address(written: str, connected: str) -> None:
    made = authorizer(binding("orders"), binding("orders", host=written, deny=True))
    assert not made.allows(ALICE, connected, READ, TOPIC, "orders")
    assert not made.allows_any(ALICE, connected, READ, TOPIC)
    assert made.allows(ALICE, "10.0.0.2", READ, TOPIC, "orders")


# -- decisions in time that does not depend on the rules of others

RULE_NAMES = ["a", "ab", "abc", "b", "*"]
PRINCIPALS = [ALICE, BOB, "User:*"]
rules = st.builds(
    binding,
    st.sampled_from(RULE_NAMES),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALL]),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(["*", HOST, "10.0.0.2"]),
    deny=st.booleans(),
    prefixed=st.booleans(),
    kind=st.sampled_from([TOPIC, GROUP]),
)


@given(
    before=st.lists(rules, max_size=12),
    after=st.lists(rules, max_size=12),
    everyone=st.booleans(),
    at_once=st.booleans(),
)
def test_a_decision_is_that_which_is_explained(
    before: list[AclBinding], after: list[AclBinding], *, everyone: bool, at_once: bool
) -> None:
    found = authorizer(*before, allow_everyone_if_no_acl_found=everyone)
    wanted: dict[ResourcePattern, frozenset[AclEntry]] = dict.fromkeys(found.patterns, frozenset())
    for pattern, entry in after:
        wanted[pattern] = wanted.get(pattern, frozenset()) | {entry}
    if at_once:
        found.replace_all(wanted)
    else:
        found.update(wanted)
    for name in RULE_NAMES:
        for principal in (ALICE, BOB):
            for kind in (TOPIC, GROUP):
                asked = (principal, HOST, READ, kind, name)
                assert found.allows(*asked) == found.decide(*asked).is_allowed


def test_a_decision_costs_no_more_if_thousands_of_others_have_rules() -> None:
    others = [binding("*", principal=f"User:{number}") for number in range(1000)]
    others += [binding("p" * length, principal="User:x", prefixed=True) for length in range(1, 100)]
    found = authorizer()
    entries: dict[ResourcePattern, frozenset[AclEntry]] = {}
    for pattern, entry in others:
        entries[pattern] = entries.get(pattern, frozenset()) | {entry}
    found.replace_all(entries)
    with counted_calls() as calls:
        for number in range(100):
            assert not found.allows(ALICE, HOST, READ, TOPIC, f"{'p' * 200}-{number}")
    assert calls.count / 100 < 20
