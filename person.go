package toll

import "encoding/json"

// Person is somebody who signs in. The id never changes.
type Person struct {
	ID       UUID   `json:"id"`
	Name     string `json:"name"`     // as others see it, at most 100 characters
	Operator bool   `json:"operator"` // runs the service
}

// Member is a person in a workspace.
type Member struct {
	UserID UUID   `json:"userId"`
	Name   string `json:"name"`
	Role   Role   `json:"role"`
	Since  Time   `json:"since"`
	// SpendLimitCents is what a developer may have the workspace pay in a month (UTC), SpentCents what this month counts so far. nil: no limit.
	SpendLimitCents *Cents `json:"spendLimitCents,omitzero"`
	SpentCents      *Cents `json:"spentCents,omitzero"`
}

// Removed is the answer to the end of a membership.
type Removed struct {
	Success bool   `json:"success"`
	UserID  UUID   `json:"userId"`
	Ended   Ended  `json:"ended"`         // what stood under the membership
	Kept    *Ended `json:"kept,omitzero"` // what stands under that of the caller now
	// Webhooks are those whose address the member chose: paused or, when they are kept, as they were.
	Webhooks []WebhookLeft `json:"webhooks,omitempty"`
}

// WebhookLeft is a webhook of a member who was removed.
type WebhookLeft struct {
	ID  string `json:"id"`  // UUID
	URL string `json:"url"` // of mails shortened, see [Webhook]
}

// WorkspaceDeleted is the answer to the deletion of a workspace: what ended with it.
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
	Note      string `json:"note"`      // for whom it is, as its maker wrote
	InvitedBy *UUID  `json:"invitedBy"` // null: the operator
	CreatedAt Time   `json:"createdAt"`
	EndsAt    Time   `json:"endsAt"`
	Link      string `json:"link,omitzero"` // once, in the answer that makes it; it works once
}

// Credential is one way in which a person signs in.
type Credential struct {
	ID        UUID   `json:"id"`
	Kind      string `json:"kind"` // password, passkey, recovery, mail, oidc or wallet
	Name      string `json:"name"` // login name, name of the passkey, mail address, issuer or address
	CreatedAt Time   `json:"createdAt"`
	UsedAt    *Time  `json:"usedAt"` // null: never
}

// Session is a browser or a terminal in which a person signed in.
type Session struct {
	ID       string `json:"id"`
	Agent    string `json:"agent"` // program, as it says
	Since    Time   `json:"since"`
	UsedAt   Time   `json:"usedAt"`
	ProvedAt Time   `json:"provedAt"` // last proof of a credential
	Proof    string `json:"proof"`    // its kind
	EndsAt   Time   `json:"endsAt"`
	Current  bool   `json:"current"` // the one of this call
}

// Act is an entry of the audit log of a workspace.
type Act struct {
	Number    int64           `json:"number"` // from 1, without gaps
	At        Time            `json:"at"`
	ActorKind string          `json:"actorKind"` // user, key or local: the operator
	Actor     string          `json:"actor"`     // id of the person or the API key; "" for the operator
	Act       string          `json:"act"`       // such as member.removed
	Object    string          `json:"object"`    // id of what it was done to
	Detail    json.RawMessage `json:"detail"`    // at best before and after
	Source    string          `json:"source"`    // address of the caller; "" for none, and after 90 days
}

// Organization is a workspace, as its members see it.
type Organization struct {
	ID   string `json:"id"`   // the address in lower case, which X-Current-Org-Id takes
	Name string `json:"name"` // "" for none
	Role string `json:"role"` // of the caller
}

// Workspace is a workspace with its wallet.
type Workspace struct {
	ID        string  `json:"id"`   // the address in lower case, which X-Current-Org-Id takes
	Name      string  `json:"name"` // "" for none
	Address   Address `json:"address"`
	CreatedAt Time    `json:"createdAt"`
}

// SignedIn is the session of a person in a terminal or a browser.
type SignedIn struct {
	Token         string         `json:"token,omitzero"` // once, in the answer that makes it: it stands in place of an API key
	Session       Session        `json:"session"`
	Person        Person         `json:"person"`
	Organizations []Organization `json:"organizations"`
}
