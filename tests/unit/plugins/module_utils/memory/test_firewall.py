from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory.firewall import Leg, blocks

LEGS = [Leg("enp1s0f0np0", "10.100.0.0/24"), Leg("enp1s0f1np1", "10.100.2.0/24")]
BOTH = ("enp1s0f0np0", "enp1s0f1np1")
IIF = {"meta": {"key": "iifname"}}
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}


def chain(hook="input", policy="drop", family="ip", name="INPUT"):
    base = {"hook": hook, "policy": policy} if hook else {}
    return {"chain": {"family": family, "table": "filter", "name": name, **base}}


def rule(*expressions, name="INPUT", family="ip"):
    return {"rule": {"family": family, "table": "filter", "chain": name, "expr": list(expressions)}}


def match(left, right, op="=="):
    return {"match": {"op": op, "left": left, "right": right}}


ACCEPT, DROP, REJECT = {"accept": None}, {"drop": None}, {"reject": {"type": "icmpx"}}
ESTABLISHED = match({"ct": {"key": "state"}}, ["established", "related"], "in")


@pytest.mark.parametrize(
    ("ruleset", "shut"),
    [
        ([], ()),
        ([chain(policy="accept")], ()),
        ([chain()], BOTH),
        ([chain(), rule(ACCEPT)], ()),
        ([chain(policy="accept"), rule(DROP)], BOTH),
        ([chain(policy="accept"), rule(ESTABLISHED, ACCEPT), rule(REJECT)], BOTH),
        ([chain(), rule(match(IIF, "lo"), ACCEPT)], BOTH),
        ([chain(), rule(match(IIF, "enp1s0f0np0"), ACCEPT)], ("enp1s0f1np1",)),
        ([chain(), rule(match(IIF, "enp1s0f*"), ACCEPT)], ()),
        ([chain(), rule(match(IIF, {"set": ["enp1s0f0np0", "enp1s0f1np1"]}), ACCEPT)], ()),
        ([chain(policy="accept"), rule(match(IIF, "enP7s7", "!="), DROP)], BOTH),
        ([chain(), rule(match(SADDR, {"prefix": {"addr": "10.100.0.0", "len": 16}}), ACCEPT)], ()),
        ([chain(), rule(match(SADDR, {"prefix": {"addr": "10.100.0.0", "len": 24}}), ACCEPT)], ("enp1s0f1np1",)),
        ([chain(), rule(match(SADDR, "10.100.0.2"), ACCEPT)], BOTH),
        ([chain(), rule(match({"ct": {"key": "state"}}, "new"), ACCEPT)], ()),
        ([chain(), rule(match({"payload": {"protocol": "tcp", "field": "dport"}}, 22), ACCEPT)], BOTH),
        # ufw: a jump into a chain of the user's rules
        (
            [
                chain(),
                chain("", name="ufw-user"),
                rule({"jump": {"target": "ufw-user"}}),
                rule(match(IIF, "enp1s0f*"), ACCEPT, name="ufw-user"),
            ],
            (),
        ),
        (
            [
                chain(),
                chain("", name="ufw-user"),
                rule({"jump": {"target": "ufw-user"}}),
                rule(match(IIF, "wlan0"), ACCEPT, name="ufw-user"),
            ],
            BOTH,
        ),
        # a match of iptables that nft does not tell
        ([chain(), rule({"xt": {"type": "match", "name": "addrtype"}}, ACCEPT)], BOTH),
        # a chain that jumps to itself ends
        ([chain(), rule({"jump": {"target": "INPUT"}})], BOTH),
        ([chain(family="ip6")], ()),
        ([chain(family="inet"), rule(ACCEPT, family="inet")], ()),
    ],
)
def test_which_legs_are_shut(ruleset, shut):
    found = blocks(ruleset, LEGS)
    assert tuple(netdev for block in found for netdev in block.netdevs) == shut


def test_dockers_forward_chain_is_told_apart():
    (block,) = blocks([chain("forward", name="FORWARD"), chain("input", "accept")], LEGS)
    assert (block.chain, block.hook, block.netdevs) == ("ip filter FORWARD", "forward", BOTH)


UDP = Leg("enP7s7", "192.0.2.12/32", 7873)
L4 = {"meta": {"key": "l4proto"}}
DPORT = {"payload": {"protocol": "udp", "field": "dport"}}


@pytest.mark.parametrize(
    ("rules", "shut"),
    [
        ([], True),
        ([rule(match(DPORT, 7873), ACCEPT)], False),
        ([rule(match(L4, "udp"), match(DPORT, {"range": [7000, 8000]}), ACCEPT)], False),
        (
            [
                rule(
                    match(L4, 17), match({"payload": {"protocol": "th", "field": "dport"}}, {"set": [22, 7873]}), ACCEPT
                )
            ],
            False,
        ),
        ([rule(match({"payload": {"protocol": "ip", "field": "protocol"}}, "udp"), ACCEPT)], False),
        ([rule(match(DPORT, 7872), ACCEPT)], True),
        ([rule(match(DPORT, {"range": [1, 1023]}), ACCEPT)], True),
        ([rule(match(L4, "tcp"), ACCEPT)], True),
        ([rule(match({"payload": {"protocol": "tcp", "field": "dport"}}, 7873), ACCEPT)], True),
        ([rule(match(SADDR, "192.0.2.12"), match(DPORT, 7873), ACCEPT)], False),
        ([rule(match(SADDR, "192.0.2.13"), match(DPORT, 7873), ACCEPT)], True),
        ([rule(match(IIF, "enP7s7"), ACCEPT)], False),
        ([rule(match(DPORT, 7873, "!="), ACCEPT)], True),
    ],
)
def test_udp_to_a_port(rules, shut):
    assert bool(blocks([chain(), *rules], [UDP])) is shut


def test_a_rule_for_one_port_says_nothing_of_a_whole_leg():
    assert blocks([chain(), rule(match(L4, "udp"), match(DPORT, 7873), ACCEPT)], LEGS)[0].netdevs == BOTH
