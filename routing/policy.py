"""The policy: from a judgement and the state of the tiers to a route. Pure.

Data policy first, then what is configured, what fits, what can be paid; then the order of the complexity.
The user's own choice of a tier or model is never left: it answers, or it is said why it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing.context import Ask, build_prompt, prompt_room, question_fits, whole_tokens
from routing.pricing import upper_bound_micro
from routing.types import Candidate, Complexity, DataPolicy, Judgement, ModelSpec, RouteDecision, Tier, TierStatus
from stream_site.errors import AccessError, BudgetError, InputError, RoutingError, StreamError, TooLongError

ORDER: dict[Complexity, tuple[Tier, ...]] = {
    Complexity.LOW: (Tier.LOCAL, Tier.HPC, Tier.CLOUD),
    Complexity.MEDIUM: (Tier.HPC, Tier.CLOUD, Tier.LOCAL),
    Complexity.HIGH: (Tier.CLOUD, Tier.HPC, Tier.LOCAL),
}
AUTO = "auto"


@dataclass(frozen=True)
class PolicyInput:
    """All that a decision rests on. `budget_left_micro` is what paid tiers may still cost this user."""

    ask: Ask
    tiers: Sequence[TierStatus]
    tier_choice: str = AUTO
    model_choice: str = ""
    data_policy: DataPolicy = DataPolicy.PUBLIC
    budget_left_micro: int = 0


@dataclass(frozen=True)
class Seen:
    """One model as the policy saw it. `block` is why it cannot answer, or None."""

    model: ModelSpec
    cost_micro: int
    block: StreamError | None
    fits_whole: bool

    def as_candidate(self) -> Candidate:
        why = self.block.happened if self.block else ""
        return Candidate(
            self.model.tier, self.model.name, not self.block, why, self.cost_micro, self.model.typical_first_text_s
        )


def decide(inp: PolicyInput, judgement: Judgement | None) -> RouteDecision:
    """Return the route. Raises the error that keeps a pinned tier shut, or one for all tiers when none can answer."""
    seen = {t.tier: look(inp, t) for t in inp.tiers}
    candidates = tuple(s[0].as_candidate() for s in seen.values() if s)
    if inp.tier_choice != AUTO:
        return pinned(inp, seen, candidates)
    complexity = judgement.complexity if judgement else Complexity.MEDIUM
    open_models = [s for tier in ORDER[complexity] for s in seen.get(tier, [])[:1] if not s.block]
    if not open_models:
        raise none_open(seen)
    # The first whose window holds the whole conversation; if there is none, the first that holds the question.
    chosen = next((s for s in open_models if s.fits_whole), open_models[0])
    fallbacks = tuple(s.model for s in open_models if s is not chosen)
    prompt = build_prompt(inp.ask, chosen.model)
    return RouteDecision(
        model=chosen.model,
        reason=reason(inp, complexity, chosen, seen, prompt.dropped),
        judgement=judgement,
        candidates=candidates,
        fallbacks=fallbacks,
        dropped_messages=prompt.dropped,
    )


def look(inp: PolicyInput, tier: TierStatus) -> list[Seen]:
    """Return the models of `tier`, those that can answer first, in the catalogue's order."""
    seen = [look_at_model(inp, tier, model) for model in tier.models]
    return sorted(seen, key=lambda s: (s.block is not None, not s.fits_whole))


def look_at_model(inp: PolicyInput, tier: TierStatus, model: ModelSpec) -> Seen:
    prompt = build_prompt(inp.ask, model)
    cost = upper_bound_micro(model.price, prompt.tokens, prompt.max_tokens)
    fits_whole = whole_tokens(inp.ask) <= prompt_room(model)
    return Seen(model, cost, block(inp, tier, model, cost), fits_whole)


def block(inp: PolicyInput, tier: TierStatus, model: ModelSpec, cost_micro: int) -> StreamError | None:
    """Return what keeps `model` from answering, or None."""
    name = tier.tier.label
    if inp.data_policy is not DataPolicy.PUBLIC and tier.tier is Tier.CLOUD:
        return AccessError(
            "This conversation is campus only, so it may not go to Cloud.",
            kept="Your question is saved and nothing left the university.",
            todo="Pick Auto, Local or Campus HPC, or take the campus-only lock off.",
        )
    if not tier.configured:
        return RoutingError(f"{name} is not set up here. {tier.why}".strip(), todo="Pick another tier.")
    if not tier.healthy:
        return RoutingError(f"{name} does not answer now. {tier.why}".strip(), todo="Pick another tier or wait.")
    if not question_fits(inp.ask, model):
        return TooLongError(f"The question does not fit the window of {model.label} ({model.window:,} tokens).")
    if cost_micro > inp.budget_left_micro:
        return BudgetError(f"The answer could cost more than what is left of your {name} budget.")
    return None


def pinned(inp: PolicyInput, seen: dict[Tier, list[Seen]], candidates: tuple[Candidate, ...]) -> RouteDecision:
    """Return the route the user chose, without fallbacks. Raises what keeps it shut."""
    tier = Tier(inp.tier_choice)
    models = seen.get(tier, [])
    if inp.model_choice:
        models = [s for s in models if s.model.name == inp.model_choice]
        if not models:
            raise InputError(
                f"{tier.label} has no model {inp.model_choice!r}.", field="model", todo="Pick another model."
            )
    if not models:
        raise RoutingError(f"{tier.label} is not set up here.", todo="Pick another tier.")
    chosen = models[0]
    if chosen.block:
        raise chosen.block
    what = chosen.model.label if inp.model_choice else tier.label
    dropped = build_prompt(inp.ask, chosen.model).dropped
    return RouteDecision(
        model=chosen.model,
        reason=f"You chose {what}." + left_out(dropped),
        judgement=None,
        candidates=tuple(c if c.tier is not tier else chosen.as_candidate() for c in candidates),
        fallbacks=(),
        pinned=True,
        dropped_messages=dropped,
    )


def reason(inp: PolicyInput, complexity: Complexity, chosen: Seen, seen: dict[Tier, list[Seen]], dropped: int) -> str:
    """Return why `chosen` answers, in words: the rule, and why each tier before it in the order was passed over."""
    tier = chosen.model.tier
    passed = []
    for earlier in ORDER[complexity]:
        if earlier is tier:
            break
        options = seen.get(earlier)
        if not options:
            continue
        first = options[0]
        passed.append(first.block.happened if first.block else f"{earlier.label} cannot hold the whole conversation.")
    lead = {
        Complexity.LOW: "A short, simple question goes to the cheapest tier.",
        Complexity.MEDIUM: "A standard procedure goes to the large free model first.",
        Complexity.HIGH: "A question that needs a path of its own goes to the strongest model first.",
    }[complexity]
    end = f"{tier.label} answers." if not passed else f"So {tier.label} answers."
    return " ".join([lead, *passed, end]) + left_out(dropped)


def left_out(dropped: int) -> str:
    if not dropped:
        return ""
    if dropped == 1:
        return " 1 earlier message does not fit its window and was left out."
    return f" {dropped} earlier messages do not fit its window and were left out."


def none_open(seen: dict[Tier, list[Seen]]) -> StreamError:
    """Return one error for all tiers: of the same kind when all have the same reason."""
    blocks = [models[0].block for models in seen.values() if models and models[0].block]
    if not blocks:
        return RoutingError("No tier is set up on this site.", todo="Ask an administrator to connect a model.")
    if len({type(b) for b in blocks}) == 1 and len(blocks) == 1:
        return blocks[0]
    kind = TooLongError if all(isinstance(b, TooLongError) for b in blocks) else RoutingError
    return kind(" ".join(b.happened for b in blocks))
