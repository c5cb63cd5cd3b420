package toll

import "encoding/json"

// Person is a human who signs in. The id never changes.
type Person struct {
	ID       UUID   `json:"id"`
	Name     string `json:"name"`     // shown to other people, at most 100 characters
	Operator bool   `json:"operator"` // runs the service
}

// Member is a person in a workspace.
type Member struct {
	UserID UUID   `json:"userId"`
	Name   string `json:"name"`
	Role   Role   `json:"role"`
	Since  Time   `json:"since"`
	// SpendLimitCents is a developer's monthly (UTC) spending limit; SpentCents is the amount spent this month. nil: no limit.
	SpendLimitCents *Cents `json:"spendLimitCents,omitzero"`
	SpentCents      *Cents `json:"spentCents,omitzero"`
}

// Removed is the response to the removal of a member.
type Removed struct {
	Success bool   `json:"success"`
	UserID  UUID   `json:"userId"`
	Ended   Ended  `json:"ended"`         // keys, access tokens, and consents that depended on the membership
	Kept    *Ended `json:"kept,omitzero"` // moved to the membership of the caller
	// Webhooks lists the webhooks whose address the member chose. They are paused, or unchanged when kept.
	Webhooks []WebhookLeft `json:"webhooks,omitempty"`
}

// WebhookLeft is a webhook of a member who was removed.
type WebhookLeft struct {
	ID  string `json:"id"`  // UUID
	URL string `json:"url"` // shortened for mail, see [Webhook]
}

// WorkspaceDeleted is the response to the deletion of a workspace, with counts of the records that ended.
type WorkspaceDeleted struct {
	Success     bool   `json:"success"`
	ID          string `json:"id"`
	Members     int64  `json:"members"`
	Invitations int64  `json:"invitations"`
	Ended       Ended  `json:"ended"` // keys, access tokens and consents
}

// Invitation is an open invitation to a workspace.
type Invitation struct {
	ID        string `json:"id"`
	Role      Role   `json:"role"`
	Note      string `json:"note"`      // note of the inviter about the invitee
	InvitedBy *UUID  `json:"invitedBy"` // null: the operator
	CreatedAt Time   `json:"createdAt"`
	EndsAt    Time   `json:"endsAt"`
	Link      string `json:"link,omitzero"` // single-use; only in the response that creates the invitation
}

// Credential is one sign-in method of a person.
type Credential struct {
	ID        UUID   `json:"id"`
	Kind      string `json:"kind"` // password, passkey, recovery, mail, oidc or wallet
	Name      string `json:"name"` // login name, name of the passkey, mail address, issuer or address
	CreatedAt Time   `json:"createdAt"`
	UsedAt    *Time  `json:"usedAt"` // null: never
}

// Session is a signed-in browser or terminal of a person.
type Session struct {
	ID       string `json:"id"`
	Agent    string `json:"agent"` // program name, as it reports itself
	Since    Time   `json:"since"`
	UsedAt   Time   `json:"usedAt"`
	ProvedAt Time   `json:"provedAt"` // last proof of a credential
	Proof    string `json:"proof"`    // kind of that credential
	EndsAt   Time   `json:"endsAt"`
	Current  bool   `json:"current"` // this call uses the session
}

// Act is an entry of the audit log of a workspace.
type Act struct {
	Number    int64           `json:"number"` // from 1, without gaps
	At        Time            `json:"at"`
	ActorKind string          `json:"actorKind"` // user, key or local: the operator
	Actor     string          `json:"actor"`     // id of the person or the API key; "" for the operator
	Act       string          `json:"act"`       // such as member.removed
	Object    string          `json:"object"`    // id of the affected record
	Detail    json.RawMessage `json:"detail"`    // the state before and after, where available
	Source    string          `json:"source"`    // address of the caller; "" if unknown, and after 90 days
}

// Organization is a workspace, as its members see it.
type Organization struct {
	ID   string `json:"id"`   // the address in lower case, which X-Current-Org-Id takes
	Name string `json:"name"` // may be ""
	Role string `json:"role"` // of the caller
}

// WorkspaceRecord is a workspace with its wallet.
type WorkspaceRecord struct {
	ID        string  `json:"id"`   // the address in lower case, which X-Current-Org-Id takes
	Name      string  `json:"name"` // may be ""
	Address   Address `json:"address"`
	CreatedAt Time    `json:"createdAt"`
}

// SignedIn is the session of a person in a terminal or a browser.
type SignedIn struct {
	Token         string         `json:"token,omitzero"` // usable instead of an API key; only in the response that creates it
	Session       Session        `json:"session"`
	Person        Person         `json:"person"`
	Organizations []Organization `json:"organizations"`
}
