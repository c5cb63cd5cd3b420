package pay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// asked is what verify, settle, and release have in common, in either body.
type asked struct {
	stock     *x402.StockPayment    // nil: the spec body
	required  *x402.PaymentRequired // of the spec body
	accepts   []x402.Requirements   // what the server asks for
	token     string
	requestID string // of the spec body
}

func newAsked(stock *x402.StockPayment, required *x402.PaymentRequired, token, id string) *asked {
	if stock != nil {
		return &asked{stock: stock, accepts: []x402.Requirements{stock.Requirements}, token: stock.Payload}
	}
	return &asked{required: required, accepts: required.Accepts, token: token, requestID: id}
}

// payment is a verify or settle request that has been read: whose access token, for what.
type payment struct {
	stock   bool
	caller  toll.Address // zero until it is read
	network string       // that the server asks for, "" when it was not read
	token   *x402.Token
	claims  *auth.Claims // shared with other requests; empty until they are read
	expired bool         // the access token verifies but for its end
	entry   *x402.Requirements
	plan    *toll.Plan
	url     string
	account ledger.AccountID
	agentID toll.AgentID     // of the entry, else of the access token; "" when neither names one
	agent   *catalogue.Agent // nil when the entry names none
	keys    []string         // that name the request, see ledger.HoldOp
	cached  bool             // the agent was not read for this request

	urlMatching, verbMatching string
}

func (p *payment) permission() tokens.Key { return tokens.Key{Account: p.account, Hash: p.claims.Hash} }

// newPayment returns a payment of which nothing was read.
func newPayment(stock bool) *payment { return &payment{stock: stock, claims: &noClaims} }

var noClaims auth.Claims

// buyer stands for the subscriber and the builder of the plan together, as the key of a quota. A builder opens and releases holds
// as it likes, and must not use up what the subscriber may do with others.
func (p *payment) buyer() toll.Address {
	sum := sha256.Sum256(slices.Concat(p.plan.Owner[:], p.claims.Subscriber[:]))
	return toll.Address(sum[:len(toll.Address{})])
}

// networkOf is the network of an answer, as the server that asks spells it: "stripe" or "stripe:" and the environment for
// cards. Without an entry of the server it has the form of x402 objects.
func (p *payment) networkOf(brand catalogue.Brand) string {
	if p.entry != nil {
		return p.entry.Network
	}
	return brand.Network(p.claims.Network)
}

// read makes the checks of verify and settle that do not depend on the state of the request, in the order of the wire contract, section 16:
// body, access token decodable, entry of accepts, plan, caller, signature. What it returns beside an error says as much as could be read.
func (f *Facilitator) read(ctx context.Context, caller toll.Address, in *asked) (*payment, *toll.Error) {
	p := newPayment(in.stock != nil)
	p.caller = caller
	if len(in.accepts) > 0 {
		p.network = in.accepts[0].Network
	}
	if !p.stock {
		p.url = in.required.Resource.URL
		if e := in.check(); e != nil {
			return p, e
		}
	}
	var err error
	if p.token, err = x402.DecodeToken(in.token); err != nil {
		return p, refusal.Undecodable(err)
	}
	if p.stock {
		// No server of this kind says which url it serves.
		p.url = p.token.ResourceURL
		if p.token.IdentifierRequired && p.token.PaymentIdentifier == "" {
			return p, refusal.Malformed("paymentPayload.extensions.payment-identifier.info.id", "is required by the server")
		}
	}
	if e := refusal.BadURL(p.url); e != nil {
		return p, e
	}
	// The claims are needed before the signature counts, because a wrong plan or a wrong caller is told first.
	claims, signature := f.Auth.VerifyToken(p.token.JWS)
	switch {
	case signature == nil:
		p.claims = claims
	case claims != nil && errors.Is(signature, toll.NewError(toll.CodePermissionExpired)):
		p.claims, p.expired, signature = claims, true, nil
	default:
		unverified, err := auth.DecodeUnverified(p.token.JWS)
		if err != nil {
			return p, badSignature(f.brand.Names, signature)
		}
		p.claims = &unverified
	}
	if err := p.match(f.brand, in.accepts); err != nil {
		return p, err
	}
	if err := p.checkEntry(f.brand); err != nil {
		return p, err
	}
	var e *toll.Error
	if p.plan, e = f.Catalogue.Plan(ctx, p.claims.PlanID, toll.CodePaymentPlanNotFound); e != nil {
		return p, e
	}
	if p.plan.Owner != caller {
		return p, refusal.New(toll.CodeNotPlanOwner, x402.ReasonUnauthorizedServer, "")
	}
	if signature != nil {
		return p, badSignature(f.brand.Names, signature)
	}
	if e := p.agree(f.brand); e != nil {
		return p, e
	}
	p.account = ledger.NewAccountID(p.claims.PlanID, p.claims.Subscriber)
	p.agentID = p.claims.AgentID
	if id := p.entry.Extra.AgentID; id != "" {
		p.agentID = toll.AgentID(id)
	}
	// The rendering as it was issued carries the jti as its nonce: that names no request.
	if n := p.token.Nonce; n != "" && !strings.EqualFold(n, p.claims.Hash.String()) {
		p.keys = append(p.keys, "n:"+n)
	}
	if id := p.token.PaymentIdentifier; id != "" {
		p.keys = append(p.keys, "p:"+id)
	}
	// Nothing else goes from verify to settle of a stock server, so the access token itself names one request.
	if p.stock && len(p.keys) == 0 {
		p.keys = append(p.keys, "j:"+p.claims.Hash.String())
	}
	return p, nil
}

// check looks at the members of the spec body.
func (in *asked) check() *toll.Error {
	if in.required.X402Version != x402.Version {
		return refusal.New(toll.CodeBadX402Version, x402.ReasonInvalidVersion, "")
	}
	if in.token == "" {
		return refusal.Malformed("x402AccessToken", "is required")
	}
	if in.requestID != "" && !x402.ValidRequestID(in.requestID) {
		return refusal.Malformed("agentRequestId", "must be 1 to 128 visible ASCII characters")
	}
	return nil
}

func badSignature(names x402.Namespace, cause error) *toll.Error {
	e := toll.AsError(cause)
	if e.Code == toll.CodeTokenSignature || e.Code == toll.CodeTokenUndecodable {
		return refusal.New(toll.CodeTokenSignature, names.ReasonSignature(), "").WithCause(cause)
	}
	if e.Code == toll.CodePermissionExpired {
		return e.WithReason(names.ReasonExpired())
	}
	return e
}

// match finds the entry of accepts that fits the access token. Where only the scheme or only the network differs, the refusal says so.
func (p *payment) match(brand catalogue.Brand, accepts []x402.Requirements) *toll.Error {
	var plan, scheme bool
	var other string // why the scheme of an entry for the plan does not fit
	for i := range accepts {
		r := &accepts[i]
		id := cmp.Or(r.PlanID, r.Extra.PlanID)
		if id != string(p.claims.PlanID) || (r.Extra.PlanID != "" && r.Extra.PlanID != id) {
			continue
		}
		plan = true
		if r.Scheme != p.claims.Scheme {
			other = cmp.Or(other, brand.Names.OtherBrand(r.Scheme))
			continue
		}
		scheme = true
		if x402.SameNetwork(r.Network, p.claims.Network, brand.Environment) {
			p.entry = r
			return nil
		}
	}
	switch {
	case scheme:
		return refusal.New(toll.CodeUnsupportedScheme, x402.ReasonInvalidNetwork, "The payment requirements do not accept the network of the access token.")
	case other != "":
		return refusal.New(toll.CodeUnsupportedScheme, x402.ReasonUnsupportedScheme, "Wrong namespace: "+other+".")
	case plan:
		return refusal.New(toll.CodeUnsupportedScheme, x402.ReasonUnsupportedScheme, "The payment requirements do not accept the scheme of the access token.")
	}
	return refusal.New(toll.CodePlanMismatch, brand.Names.ReasonPlanMismatch(), "")
}

// checkEntry refuses requirements that cannot be served. A server that asks for another flow would settle before the work is done, and
// a stock server that prices in another asset does not mean credits.
func (p *payment) checkEntry(brand catalogue.Brand) *toll.Error {
	if flow := p.entry.Extra.PaymentFlow; flow != "" && flow != purchases.FlowAuthorization {
		return refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "extra.paymentFlow must be authorization.")
	}
	if asset := p.entry.Asset; p.stock && asset != "" && asset != brand.Names.Asset() {
		return refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "The asset must be "+brand.Names.Asset()+".")
	}
	return nil
}

// agree compares what the sender wrote around the access token with what was signed.
func (p *payment) agree(brand catalogue.Brand) *toll.Error {
	c := p.claims
	path := p.token.Contradicts(x402.Signed{
		From: c.Subscriber, PlanID: c.PlanID, AgentID: c.AgentID, Scheme: c.Scheme, Network: c.Network,
	}, brand.Environment)
	var e *toll.Error
	switch path {
	case "":
		return sameTerms(p)
	case "accepted.scheme":
		e = refusal.New(toll.CodeUnsupportedScheme, x402.ReasonUnsupportedScheme, "")
	case "accepted.network":
		e = refusal.New(toll.CodeUnsupportedScheme, x402.ReasonInvalidNetwork, "")
	case "accepted.planId", "accepted.extra.planId":
		e = refusal.New(toll.CodePlanMismatch, brand.Names.ReasonPlanMismatch(), "")
	case "accepted.extra.agentId":
		e = refusal.New(toll.CodeAgentMismatch, brand.Names.ReasonAgentMismatch(), "")
	default:
		e = refusal.New(toll.CodeTokenSignature, brand.Names.ReasonSignature(), "")
	}
	e.Message = "The payment payload does not match its access token: " + path + "."
	return e
}

// bind checks the agent, the endpoint and the end of the access token. None of these stops a request that was held while
// they were in order.
func (f *Facilitator) bind(ctx context.Context, p *payment) *toll.Error {
	if p.expired {
		return refusal.New(toll.CodePermissionExpired, f.brand.Names.ReasonExpired(), "")
	}
	if p.plan.Suspended {
		return refusal.Suspended(p.plan)
	}
	err := f.bindNow(ctx, p)
	if err != nil && p.cached {
		// Somebody else may have listed the agent or given it the plan a moment ago.
		f.Catalogue.Reread(p.agentID, p.plan.ID)
		err = f.bindNow(ctx, p)
	}
	return f.afterToken(ctx, p, err)
}

// afterToken returns e, or what is wrong with the access token itself, which goes before what is wrong with agent or amount.
func (f *Facilitator) afterToken(ctx context.Context, p *payment, e *toll.Error) *toll.Error {
	if e == nil || e.Reason == "" {
		return e
	}
	perm, _, err := f.snapshots.Permission(ctx, p.permission())
	if err != nil {
		return toll.AsError(err)
	}
	if refused := perm.Usable(f.Clock()); refused != nil {
		return refusal.By(f.brand.Names, refused)
	}
	return e
}

func (f *Facilitator) bindNow(ctx context.Context, p *payment) *toll.Error {
	if err := f.bindAgent(ctx, p); err != nil {
		return err
	}
	return p.bindEndpoint(f.brand)
}

func (f *Facilitator) bindAgent(ctx context.Context, p *payment) *toll.Error {
	var allowed []toll.AgentID
	if p.claims.AgentID != "" {
		allowed = []toll.AgentID{p.claims.AgentID}
	} else {
		var err error
		if allowed, err = f.snapshots.Agents(ctx, p.permission()); err != nil {
			return toll.AsError(err)
		}
	}
	if p.entry.Extra.AgentID == "" {
		return f.bindOnlyAgent(ctx, p, allowed)
	}
	id, err := toll.ParseAgentID(p.entry.Extra.AgentID)
	if err != nil {
		return refusal.Malformed("paymentRequired.accepts.extra.agentId", "must be a decimal uint256 above zero")
	}
	a, cached, e := f.Catalogue.Agent(ctx, id)
	if e != nil {
		return e
	}
	p.agent, p.cached = a, cached
	switch {
	case !a.HasPlan(p.plan.ID):
		return refusal.New(toll.CodeAgentMismatch, f.brand.Names.ReasonAgentMismatch(), "The plan is not attached to the agent.")
	case !a.IsListed:
		return refusal.New(toll.CodeAgentUnlisted, x402.ReasonAgentInactive, "")
	case len(allowed) > 0 && !slices.Contains(allowed, id):
		return refusal.New(toll.CodeAgentMismatch, f.brand.Names.ReasonAgentMismatch(), "The access token is for another agent.")
	}
	return nil
}

// bindOnlyAgent lets an access token that is bound to agents pass an entry that names none only where it could mean no
// other: the plan has one agent, and the token is for it.
func (f *Facilitator) bindOnlyAgent(ctx context.Context, p *payment, allowed []toll.AgentID) *toll.Error {
	if len(allowed) == 0 {
		return nil
	}
	ids, cached, err := f.Catalogue.AgentsOf(ctx, p.plan.ID)
	if err != nil {
		return toll.AsError(err)
	}
	p.cached = cached
	if len(ids) != 1 || !slices.Contains(allowed, ids[0]) {
		e := refusal.New(toll.CodeAgentMismatch, f.brand.Names.ReasonAgentMismatch(), "")
		e.Message = "The access token is restricted to an agent, but the payment requirements do not name an agent."
		return e
	}
	a, agentCached, e := f.Catalogue.Agent(ctx, ids[0])
	if e != nil {
		return e
	}
	p.cached = cached || agentCached
	if !a.IsListed {
		return refusal.New(toll.CodeAgentUnlisted, x402.ReasonAgentInactive, "")
	}
	return nil
}

func (p *payment) bindEndpoint(brand catalogue.Brand) *toll.Error {
	p.urlMatching, p.verbMatching = p.url, p.entry.Extra.HTTPVerb
	if p.agent == nil || len(p.agent.API.Endpoints) == 0 {
		return nil
	}
	if !catalogue.IsAbsolute(p.url) {
		if !p.agent.API.StrictEndpoints {
			return nil
		}
		if p.url == "" {
			return refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "resource.url is required because the agent has strict endpoints.")
		}
	}
	pattern, verb, ok := p.agent.Endpoints.Match(p.url, p.entry.Extra.HTTPVerb)
	if !ok {
		return refusal.New(toll.CodeEndpointMismatch, brand.Names.ReasonResourceMismatch(), "")
	}
	p.urlMatching, p.verbMatching = pattern, verb
	return nil
}

// isOtherAccount reports whether an agentRequestId was issued for another account, or only looks like an issued one.
func isOtherAccount(l *ledger.Ledger, account ledger.AccountID, id string) bool {
	if !strings.HasPrefix(id, ledger.RequestPrefix) {
		return false
	}
	of, ours := l.AccountOfRequestID(id)
	return !ours || of != account
}

// known returns the request that the id or one of the keys names, if it has left the state new.
func (f *Facilitator) known(ctx context.Context, p *payment, id string) (ledger.Request, bool, error) {
	if id != "" {
		if r, found, err := store.IfThere(f.Ledger.Request(ctx, p.account, id)); found || err != nil {
			return r, found, err
		}
	}
	for _, k := range p.keys {
		if r, found, err := store.IfThere(f.Ledger.RequestOfKey(ctx, p.account, k)); found || err != nil {
			return r, found, err
		}
	}
	return ledger.Request{}, false, nil
}

// sameTerms compares what the client accepted with what the server asks for, as far as both say it: asset and receiver. Neither
// moves credits; a payment for others was meant for another server.
func sameTerms(p *payment) *toll.Error {
	a, r := p.token.Accepted, p.entry
	switch {
	case a == nil:
		return nil
	case a.Asset != "" && r.Asset != "" && a.Asset != r.Asset:
		return otherTerms("accepted.asset")
	case a.PayTo != "" && r.PayTo != "" && !strings.EqualFold(a.PayTo, r.PayTo):
		return otherTerms("accepted.payTo")
	case !p.stock:
		return sameAmount(p)
	}
	return nil
}

// sameAmount is sameTerms for the amount, which in a stock settle is what is burned, and may be less.
func sameAmount(p *payment) *toll.Error {
	if a := p.token.Accepted; a != nil && a.Amount != "" && p.entry.Amount != "" && a.Amount != p.entry.Amount {
		return otherTerms("accepted.amount")
	}
	return nil
}

func otherTerms(path string) *toll.Error {
	return refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "The client accepted terms that differ from the terms of the server: "+path+".")
}

// withinAccepted refuses a settle above what the client accepted, whether or not a verify held it. nil is no amount.
func (p *payment) withinAccepted(names x402.Namespace, n *toll.Credits) *toll.Error {
	a := p.token.Accepted
	if a == nil || a.Amount == "" || n == nil {
		return nil
	}
	most, err := toll.ParseCredits(a.Amount)
	if err != nil || *n > most {
		return refusal.By(names, &ledger.Refusal{Kind: ledger.ExceedsHold, Needed: *n, Available: most})
	}
	return nil
}
