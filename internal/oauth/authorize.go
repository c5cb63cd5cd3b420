package oauth

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// PageError is a refusal shown on a page of this service, because client or target is not proved. Its text is safe to show.
type PageError struct{ Text string }

func (e *PageError) Error() string { return e.Text }

// RedirectError is a request that is refused to its client, which learns the error at URL.
type RedirectError struct {
	URL  string
	Host string // as in [Authorization]
	Text string // what is wrong; safe to show
	// Status is that of a page which says so: 400, or from 500 on when nothing is wrong with the request.
	Status int
	// Local says that a program on the machine of the person answers there, so that the browser can go at once. Anybody can
	// register any other address, and this service must not lead to one for everybody who has a link (RFC 9700, section 4.11.2).
	Local bool
}

func (e *RedirectError) Error() string { return "oauth: authorization request rejected: " + e.Text }

// Authorization is a checked request of a program to a person. It is made again from the same query after the person decided.
type Authorization struct {
	Client       Client
	RedirectURI  string
	RedirectHost string // host of RedirectURI with its port; of a scheme of a program also the scheme
	State        string
	Asked

	challenge, nonce string
	registered       string // address that RedirectURI matches
	stored           bool   // the client registered itself
}

// Choice is what a person agrees to.
type Choice struct {
	PlanID          toll.PlanID
	RedemptionLimit *toll.Credits // credits for the whole consent, renewals counted; nil: no limit
	OrderLimit      *int64        // orders for the whole consent; nil: no limit but that of the delegation
	DelegationID    string        // "": existing credits and free plans only
	Lifetime        time.Duration // of the consent; 0: 30 days, for an API key 90
	// Rights of an API key, of those that were asked for; nil: all of them that the person has.
	Rights toll.Rights
}

// Bounds of the parameters of a request, in characters.
const (
	maxState = 2048
	maxNonce = 512
	maxScope = 256
)

// Authorize reads a request to be let in (RFC 6749, section 4.1.1). Errors: [*PageError], [*RedirectError], and those of the database.
func (o *OAuth) Authorize(ctx context.Context, q url.Values) (*Authorization, error) {
	for _, name := range []string{"client_id", "redirect_uri"} {
		switch {
		case q.Get(name) == "":
			return nil, &PageError{name + " is missing in the request of the app."}
		case len(q[name]) > 1:
			return nil, &PageError{name + " appears more than once in the request of the app."}
		}
	}
	client, err := o.client(ctx, q.Get("client_id"))
	if err != nil {
		return nil, shownOnPage(err)
	}
	a := &Authorization{RedirectURI: q.Get("redirect_uri")}
	known, ok, err := o.redirect(ctx, client, a.RedirectURI)
	if err != nil {
		return nil, err
	}
	if !ok && o.agentRedirect(a.RedirectURI) {
		unregistered, err := o.agentClient(ctx, client.ID)
		if ok = err == nil; ok {
			client = unregistered
		} else if !errors.Is(err, errUnknownClient) {
			return nil, err
		}
	}
	if !ok {
		return nil, &PageError{"The redirect_uri in the request is not registered for this app."}
	}
	a.Client, a.stored = client.Client, client.stored
	a.Client.Name, a.registered = cmp.Or(known.Name, a.Client.Name), known.URI
	a.RedirectHost = hostOf(a.RedirectURI)
	a.State = q.Get("state")
	if len(q["state"]) > 1 || len(a.State) > maxState || !printable(a.State) {
		a.State = ""
		return nil, o.back(a, refused("invalid_request", "state must be at most 2048 visible characters."))
	}
	if err := o.readRequest(ctx, client, a, q); err != nil {
		return nil, o.back(a, o.refusalOf(ctx, err))
	}
	return a, nil
}

// readRequest reads what does not decide where the answer goes.
func (o *OAuth) readRequest(ctx context.Context, client *knownClient, a *Authorization, q url.Values) (err error) {
	for name, values := range q {
		if len(values) > 1 && name != "resource" {
			return refused("invalid_request", "A parameter appears more than once.")
		}
	}
	switch {
	case q.Has("request") || q.Has("request_uri"):
		return refused("request_not_supported", "request and request_uri are not supported. Send the parameters in the query.")
	case q.Get("response_type") == "":
		return refused("invalid_request", "response_type is missing.")
	case q.Get("response_type") != "code":
		return refused("unsupported_response_type", "response_type must be code.")
	case q.Has("response_mode") && q.Get("response_mode") != "query":
		return refused("invalid_request", "response_mode must be query.")
	case !slices.Contains(client.grants, grantCode):
		return refused("unauthorized_client", "The client is not registered for the authorization code grant.")
	case q.Get("code_challenge") == "":
		return refused("invalid_request", "code_challenge is missing. PKCE is required.")
	case q.Get("code_challenge_method") != "S256":
		return refused("invalid_request", "code_challenge_method must be S256.")
	case !challenged(q.Get("code_challenge")):
		return refused("invalid_request", "code_challenge must be an S256 challenge of 43 characters.")
	case len(q.Get("nonce")) > maxNonce || !printable(q.Get("nonce")):
		return refused("invalid_request", "nonce must be at most 512 visible characters.")
	case slices.Contains(strings.Fields(q.Get("prompt")), "none"):
		return refused("interaction_required", "prompt=none cannot be used: a person must approve each request.")
	}
	a.challenge, a.nonce = q.Get("code_challenge"), q.Get("nonce")
	a.Asked, err = o.read(ctx, client, q)
	return err
}

// back returns the refusal of a request to its client.
func (o *OAuth) back(a *Authorization, no *refusal) *RedirectError {
	u, err := url.Parse(a.RedirectURI)
	return &RedirectError{
		URL:  o.answer(a, url.Values{"error": {no.Word}, "error_description": {no.Description}}),
		Host: a.RedirectHost, Text: no.Description, Status: no.status,
		Local: err == nil && u.Scheme == "http" && toll.IsLoopback(u.Hostname()),
	}
}

// answer returns where the browser goes with these members; iss says who answers (RFC 9207).
func (o *OAuth) answer(a *Authorization, members url.Values) string {
	members.Set("iss", o.Issuer)
	if a.State != "" {
		members.Set("state", a.State)
	}
	separator := "?"
	if strings.Contains(a.RedirectURI, "?") {
		separator = "&"
	}
	return a.RedirectURI + separator + members.Encode()
}

// Shown notes that a person reads a request: so that they can decide, its registration gives way as late as a fresh one. That is done
// for the first maxShown requests of a person in a minute, as nobody is to keep the room from others.
func (o *OAuth) Shown(ctx context.Context, a *Authorization, person toll.Address) error {
	if !a.stored || !o.allows(o.shown, person.String()) {
		return nil
	}
	return o.Store.Tx(ctx, func(tx *store.Tx) error { return store.RenewOAuthClient(ctx, tx, a.Client.ID, a.registered, o.Clock()) })
}

// Deny returns where the browser goes after a person refused.
func (o *OAuth) Deny(a *Authorization) string {
	return o.answer(a, url.Values{"error": {"access_denied"}, "error_description": {"The person denied access."}})
}

// Approve records that a person agrees, and returns where the browser goes with the code. The person is known by an API key: the consent
// ends with it. Errors: those of a permission that cannot be made, as [*toll.Error]; [toll.CodeRightMissing]; those of the database.
func (o *OAuth) Approve(ctx context.Context, a *Authorization, person auth.Caller, c Choice) (redirect string, err error) {
	g, err := o.grant(ctx, a.Client, a.Asked, person, c)
	if err != nil {
		return "", err
	}
	g.Nonce = a.nonce
	code, err := o.insertCode(ctx, g, a.RedirectURI, a.challenge, a.registered)
	if err != nil {
		return "", err
	}
	return o.answer(a, url.Values{"code": {code}}), nil
}

// insertCode records a grant with a code, and returns that. The code is for the program that is answered at redirect and has the
// verifier of the challenge; registered is the address that redirect matches.
func (o *OAuth) insertCode(ctx context.Context, g store.OAuthGrant, redirect, challenge, registered string) (string, error) {
	code := random()
	g.EndsAt = g.CreatedAt.Add(codeLife)
	row := store.OAuthCode{Hash: sumOf(code), GrantID: g.ID, Redirect: redirect, Challenge: challenge, ExpiresAt: g.EndsAt}
	return code, o.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := o.insertGrant(ctx, tx, g, registered); err != nil {
			return err
		}
		if err := store.InsertOAuthCode(ctx, tx, row); err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.GrantAct("grant.created", g, o.Clock()))
	})
}

// insertGrant adds a grant, unless the API key with which the person agreed has ended meanwhile. Its client, if it is registered,
// is in use from now on; registered is the address at which it is answered, "" for none.
func (o *OAuth) insertGrant(ctx context.Context, tx *store.Tx, g store.OAuthGrant, registered string) error {
	if err := o.Auth.Lock(ctx, tx, auth.Caller{Address: g.Owner, KeyID: g.Parent, UserID: g.UserID}); err != nil {
		return err
	}
	if err := store.InsertOAuthGrant(ctx, tx, g); err != nil || g.ClientID == "" {
		return err
	}
	return store.GrantOAuthClient(ctx, tx, g.ClientID, registered, g.CreatedAt)
}

// grant returns what a person agrees to, proved to be possible now and counted. Its end is the caller's to set.
func (o *OAuth) grant(ctx context.Context, client Client, w Asked, person auth.Caller, c Choice) (store.OAuthGrant, error) {
	g := store.OAuthGrant{
		ID: toll.NewHash(), ClientID: client.ID, ClientName: client.Name, Digest: client.digest, Owner: person.Address, Kind: w.Kind,
		Scope: w.Scope, Resource: w.Resource, CreatedAt: o.Clock(), Life: life(c.Lifetime, grantLife), Parent: person.KeyID, UserID: person.UserID,
	}
	if err := mayLetIn(person, w.Kind); err != nil {
		return g, err
	}
	if w.Kind == KindAPIKey {
		if err := o.takesPerson(ctx, person); err != nil {
			return g, err
		}
		g.Life = life(c.Lifetime, keyLife)
		var err error
		if g.Rights, err = rightsOf(person, w.Rights, c.Rights); err != nil {
			return g, err
		}
		g.Scope = scopeOf(w.Scope, g.Rights)
		return g, o.count(person)
	}
	if w.PlanID != "" && w.PlanID != c.PlanID {
		return g, toll.Errorf(toll.CodeBadRequest, "The app requested access to another plan. Choose the plan that the app requested.")
	}
	if c.RedemptionLimit != nil && *c.RedemptionLimit < 1 {
		return g, toll.Errorf(toll.CodeBadNumber, "The credit limit must be at least 1.")
	}
	g.PlanID, g.AgentID, g.DelegationID = c.PlanID, w.AgentID, c.DelegationID
	g.RedemptionLimit, g.OrderLimit = c.RedemptionLimit, c.OrderLimit
	g.Refreshes = client.refreshes
	err := o.Tokens.Check(ctx, auth.Caller{Address: g.Owner, UserID: person.UserID}, permission(&g, g.Life))
	if err == nil {
		err = o.count(person)
	}
	return g, err
}

// takesPerson refuses an API key of a workspace that has people: only they let programs have keys.
func (o *OAuth) takesPerson(ctx context.Context, c auth.Caller) error {
	if !c.UserID.IsZero() && c.KeyID.IsZero() {
		return nil
	}
	people, err := store.MembersOf(ctx, o.Store, c.Address)
	if err == nil && len(people) > 0 {
		err = toll.Errorf(toll.CodeForbidden, "Only a member of this workspace can approve API keys for apps, and you signed in with an API key.").
			WithHint("Sign out, and sign in as a person.")
	}
	return err
}

// count returns an error if a person approves too many apps within an hour.
func (o *OAuth) count(person auth.Caller) error {
	if e := o.consents.Take(person.Address, 1); e != nil {
		e.Message = "You approved too many apps within an hour."
		return e
	}
	return nil
}
