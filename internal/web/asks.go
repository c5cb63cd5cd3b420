package web

import (
	"cmp"
	"context"
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/plain"
)

// maxBack bounds the address to which a person comes back from the page of a card, in bytes.
const maxBack = 2048

// asksFor is what a program asks for by a redirect.
func asksFor(v *visit, ctx context.Context, request string, in *oauth.Authorization) (*asked, error) {
	a, err := v.w.asks(ctx, v.person, in.Client, in.Asked)
	if err != nil {
		return nil, err
	}
	a.Action, a.Request = PathAuthorize, request
	if back := v.origin() + place(PathAuthorize+"?"+request); len(back) <= maxBack {
		a.Back = back
	}
	a.Answer, a.leads = addressText(in.RedirectHost), leadsTo(in.RedirectURI)
	if agent := in.Client.Agent; agent != nil {
		a.Agent, a.AgentID, a.AgentOwner = cmp.Or(plain.Name(agent.Metadata.Name), "without a name"), string(agent.ID), agent.Owner.String()
		a.NamesUs = namesUs(agent.Metadata.Name)
		a.AnswerURL = addressText(in.RedirectURI)
	}
	return a, nil
}

// asksOn is what a program on a device asks for.
func asksOn(v *visit, ctx context.Context, d *oauth.DeviceRequest) (*asked, error) {
	a, err := v.w.asks(ctx, v.person, d.Client, d.Asked)
	if err != nil {
		return nil, err
	}
	a.Action, a.Request = PathDevice, d.UserCode
	a.Back = v.origin() + PathDevice + "?" + url.Values{"user_code": {d.UserCode}}.Encode()
	a.Device, a.Origin = d.UserCode, addressText(d.Source)
	return a, nil
}

// rights says which rights of an API key a person can give, of those that are asked for.
func (a *asked) rights(who auth.Caller, asked toll.Rights) {
	if !who.Rights.Has(toll.RightKeys) {
		return
	}
	for _, r := range asked.Within(who.Gives()) {
		a.Rights = append(a.Rights, right{r, rightTexts[r]})
	}
}

// asks is what a program asks for, with the plans and the delegations among which the person chooses.
func (w *Web) asks(ctx context.Context, who *person, c oauth.Client, in oauth.Asked) (a *asked, err error) {
	a = &asked{
		Name: cmp.Or(plain.Name(c.Name), "A program without a name"), NamesUs: !c.Ours && namesUs(c.Name),
		ClientID: c.ID, Site: addressText(c.Site), Website: addressText(c.URI),
		Resource: addressText(in.Resource), Scope: in.Scope, Key: in.Kind == oauth.KindAPIKey,
		named: in.PlanID != "" || in.AgentID != "",
	}
	a.rights(who.Caller, in.Rights)
	if a.Key {
		return a, nil
	}
	a.Offers, err = w.offers(ctx, who.Address, in)
	for _, o := range a.Offers {
		w.orders(who, o)
	}
	if err == nil && len(a.Offers) > 0 {
		a.Purses, err = w.purses(ctx, who)
	}
	return a, err
}
