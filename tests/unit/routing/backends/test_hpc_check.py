"""The walk along the hops: the first that fails is named, and none after it is blamed."""

from __future__ import annotations

from routing.backends.hpc.check import Hop, Verdict, settings_hop, walk
from routing.backends.hpc.control import ControlError


def fails() -> str:
    raise ControlError("The relay does not answer.", todo="Start it.")


def never() -> str:
    raise AssertionError("asked after a failure")


def test_all_well() -> None:
    found = [(hop.name, finding.verdict, finding.said) for hop, finding in walk([Hop("a", lambda: "Good.")])]
    assert found == [("a", Verdict.OK, "Good.")]


def test_hops_after_a_failure_are_not_asked() -> None:
    found = [finding for _, finding in walk([Hop("relay", fails), Hop("worker", never), Hop("model", never)])]
    assert [f.verdict for f in found] == [Verdict.FAILS, Verdict.UNASKED, Verdict.UNASKED]
    assert (found[0].said, found[0].todo) == ("The relay does not answer.", "Start it.")
    assert "“relay” comes before it" in found[2].said


def test_settings_that_are_missing_are_named() -> None:
    [(_, finding)] = walk([settings_hop({"ID": "x", "SECRET": ""})])
    assert finding.verdict is Verdict.FAILS
    assert finding.said == "SECRET is not set."
    [(_, finding)] = walk([settings_hop({"ID": "", "SECRET": ""})])
    assert finding.said == "ID and SECRET are not set."
    [(_, finding)] = walk([settings_hop({"ID": "x", "SECRET": "y"})])
    assert finding.verdict is Verdict.OK
