"""People and calls for tests of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from accounts.models import User
from routing.ledger import CallRef
from routing.types import Tier

NewCall = Callable[..., CallRef]


@pytest.fixture
def alice(db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def new_call(alice: User) -> NewCall:
    """Make a fresh call of alice at the cloud; keywords change it."""

    def make(**changes: object) -> CallRef:
        fields = {"turn_id": uuid4(), "attempt": 1, "user_id": alice.pk, "tier": Tier.CLOUD, "model": "big"}
        return CallRef(**{**fields, **changes})  # type: ignore[arg-type]

    return make
