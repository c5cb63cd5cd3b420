"""People of a workspace, and what they ask, against a running service."""

from __future__ import annotations

import pytest

import toll
from toll.testing import Service

def test_people_and_usage(svc: Service) -> None:
    """A person signs up, invites another one, who joins and leaves; usage names what was burned."""
    anybody = toll.Toll(url=svc.url, api_key="")
    owner = anybody.session.sign_up(
        "owner-py", "four words are enough", name="Owner", workspace="Acme"
    )
    assert owner.organizations[0].name == "Acme"
    guest = anybody.session.sign_up("guest-py", "four words are enough")
    at = owner.organizations[0].id
    shop = toll.Toll(url=svc.url, api_key=owner.token, workspace=at)
    visitor = toll.Toll(url=svc.url, api_key=guest.token, workspace=at)

    link = shop.members.invite("developer", note="for the test").link
    assert link and [i.note for i in shop.members.invitations()] == ["for the test"]
    assert visitor.members.accept(link).id == at
    roles = {m.name: m.role for m in shop.members.list()}
    assert roles == {"Owner": "owner", "guest-py": "developer"}
    who = guest.person.id
    limited = shop.members.set_spend_limit(who, 5000)
    assert (limited.spend_limit_cents, limited.spent_cents) == (5000, 0)
    assert shop.members.set_spend_limit(who, None).spend_limit_cents is None
    with pytest.raises(TypeError):
        shop.members.set_spend_limit(who, 1.5)  # type: ignore[arg-type]
    assert shop.members.set_role(who, "viewer").role == "viewer"
    with pytest.raises(toll.TollError):
        visitor.members.invite("viewer")
    assert len([*shop.members.sessions(who)]) == 1  # it was used in this workspace now
    assert visitor.members.remove("me").success
    assert "member.joined" in [a.act for a in shop.members.audit_log()]

    assert shop.session.get().person.name == "Owner"
    assert shop.session.prove("four words are enough")
    assert len(shop.session.renew_recovery_codes().codes) == 10
    assert {c.kind for c in shop.session.credentials()} == {"password", "recovery"}
    assert [o.id for o in shop.meta.organizations()] == [at]
    assert [*shop.usage.settled(by="day")] == [] and [*shop.usage.revenue(by="plan")] == []
    assert [*shop.usage.refusals()] == []
    assert shop.session.sign_out().success
    with pytest.raises(toll.AuthError):
        shop.session.get()
