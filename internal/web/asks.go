package web

import (
	"cmp"
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/oauth"
)

// asksFor is what a program asks for by a redirect.
func (w *Web) asksFor(ctx context.Context, who auth.Caller, request string, in *oauth.Authorization) (*asked, error) {
	a := asks(in.Client)
	a.rights(who, in.Rights)
	a.Action, a.Request = PathAuthorize, request
	a.Answer, a.leads = addressText(in.RedirectHost), leadsTo(in.RedirectURI)
	if agent := in.Client.Agent; agent != nil {
		a.Agent, a.AgentID, a.AgentOwner = cmp.Or(plainText(agent.Metadata.Name), "without a name"), string(agent.ID), agent.Owner.String()
		a.NamesUs = namesUs(agent.Metadata.Name)
		a.AnswerURL = addressText(in.RedirectURI)
	}
	a.Resource, a.Scope, a.Key = addressText(in.Resource), in.Scope, in.Kind == oauth.KindAPIKey
	a.named = in.PlanID != "" || in.AgentID != ""
	return a, w.offerIn(ctx, a, who.Address, in.PlanID, in.AgentID, in.Resource)
}

// asksOn is what a program on a device asks for.
func (w *Web) asksOn(ctx context.Context, who auth.Caller, d *oauth.DeviceRequest) (*asked, error) {
	a := asks(d.Client)
	a.rights(who, d.Rights)
	a.Action, a.Request = PathDevice, d.UserCode
	a.Device, a.Origin = d.UserCode, addressText(d.Source)
	a.Resource, a.Scope, a.Key = addressText(d.Resource), d.Scope, d.Kind == oauth.KindAPIKey
	a.named = d.PlanID != "" || d.AgentID != ""
	return a, w.offerIn(ctx, a, who.Address, d.PlanID, d.AgentID, d.Resource)
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

func asks(c oauth.Client) *asked {
	return &asked{
		Name: cmp.Or(plainText(c.Name), "A program without a name"), NamesUs: !c.Ours && namesUs(c.Name), ClientID: c.ID, Site: addressText(c.Site),
		Website: addressText(c.URI),
	}
}

// offerIn adds the plans and the delegations among which the owner chooses.
func (w *Web) offerIn(
	ctx context.Context,
	a *asked,
	owner toll.Address,
	plan toll.PlanID,
	agent toll.AgentID,
	resource string,
) (err error) {
	if a.Key {
		return nil
	}
	if a.Offers, err = w.offers(
		ctx,
		owner,
		plan,
		agent,
		resource,
	); err != nil ||
		len(a.Offers) == 0 {
		return err
	}
	a.Purses, err = w.purses(ctx, owner)
	return err
}
