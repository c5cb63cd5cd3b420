package api

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
)

type delegations struct {
	checkout *checkout.Checkout
	tokens   *tokens.Tokens
	bounds   bounds
}

func (d delegations) routes() []route {
	const at, methods = Base + "/delegation", Base + "/payment-methods"
	one := []toll.Code{toll.CodeBadUUID, toll.CodeUnknownDelegation}
	return []route{
		{
			op: "createDelegation", method: "POST", path: at + "/create", auth: keyed, right: toll.RightSpend, status: 201, tag: "Delegations",
			summary: "Create a delegation, which lets access tokens buy plans up to a spending limit", action: creates(d.createDelegation),
			codes: []toll.Code{
				toll.CodeBadID, toll.CodeBadAddress, toll.CodeBadNumber, toll.CodeBadProvider, toll.CodeDelegationIncomplete, toll.CodeProviderMismatch,
				toll.CodeUnsupportedScheme, toll.CodePaymentMethodUnusable, toll.CodePaymentMethodRevoked, toll.CodePaymentMethodNotAllowed,
				toll.CodePaymentMethodNotFound, toll.CodePlanNotFound, toll.CodeKeyNotFound, toll.CodeChainUnreachable, toll.CodeChainContracts,
				toll.CodeChainForeignCode, toll.CodeRateLimited, toll.CodeSpendLimit,
			},
		},
		{
			op: "signDelegation", method: "POST", path: at + "/{delegationId}/signature", auth: self, right: toll.RightSpend, tag: "Delegations",
			summary: "Submit the signature of a delegation that pays from an account whose key you hold", action: takes(d.signDelegation),
			codes: append([]toll.Code{
				toll.CodeChainSignature, toll.CodeChainForeignCode, toll.CodeDelegationRevoked, toll.CodeDelegationExpired, toll.CodeChainUnreachable,
				toll.CodeChainContracts,
			}, one...),
		},
		{
			op: "listDelegations", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Delegations", summary: "List your delegations",
			action: lists("DelegationList", list.Delegations, d.listDelegations), codes: []toll.Code{toll.CodeBadPage, toll.CodeBadRequest}, query: append([]query{accessible}, sortedBy(store.SortCreated, store.SortUpdated)...),
		},
		{
			op: "readDelegation", method: "GET", path: at + "/{delegationId}", auth: self, right: toll.RightRead, tag: "Delegations", summary: "Read a delegation",
			action: reads(byText("delegationId", d.readDelegation)), codes: one,
		},
		{
			op: "revokeDelegation", method: "DELETE", path: at + "/{delegationId}", auth: self, right: toll.RightSpend, tag: "Delegations",
			summary: "Revoke a delegation and the permissions that use it", action: reads(d.revokeDelegation), codes: append([]toll.Code{toll.CodeForbidden}, one...),
		},
		{
			op: "unfreezeDelegation", method: "POST", path: at + "/{delegationId}/unfreeze", auth: self, right: toll.RightSpend, tag: "Delegations",
			summary: "Unfreeze a delegation", action: reads(d.unfreezeDelegation),
			codes: append([]toll.Code{toll.CodeDelegationFrozen, toll.CodeForbidden}, one...),
		},
		{
			op: "listDelegationTransactions", export: toll.RightRead, method: "GET", path: at + "/{delegationId}/transactions", auth: self, right: toll.RightRead, tag: "Delegations",
			summary: "List the payments of a delegation", action: lists("DelegationTransactionList", list.DelegationTransactions, d.listDelegationTransactions), codes: append([]toll.Code{toll.CodeBadPage}, one...),
			query: sortedBy(store.SortCreated, store.SortUpdated),
		},
		{
			op: "listPaymentMethods", method: "GET", path: methods, auth: keyed, right: toll.RightRead, tag: "Payment methods", summary: "List your cards and your wallet",
			action: reads(d.listPaymentMethods), codes: []toll.Code{toll.CodeBadProvider, toll.CodeBadRequest},
			query: []query{accessible, {"provider", "stripe or erc4337. Defaults to both."}},
		},
		{
			op: "updatePaymentMethod", method: "PATCH", path: methods + "/{paymentMethodId}", auth: self, right: toll.RightSpend, tag: "Payment methods",
			summary: "Rename a payment method or restrict it to some API keys", action: takes(d.updatePaymentMethod),
			codes: []toll.Code{toll.CodePaymentMethodNotFound, toll.CodeKeyNotFound, toll.CodeForbidden},
		},
		{
			op: "deletePaymentMethod", method: "DELETE", path: methods + "/{paymentMethodId}", auth: self, right: toll.RightSpend, tag: "Payment methods",
			summary: "Delete a card and revoke the delegations that use it", action: reads(d.deletePaymentMethod),
			codes: []toll.Code{toll.CodePaymentMethodNotFound, toll.CodeForbidden},
		},
	}
}

var accessible = query{"accessible", "true: only delegations or payment methods with which this API key can pay now."}

func (c *call) owner() checkout.Owner {
	return checkout.Owner{Address: c.caller.Address, KeyID: c.caller.KeyID, UserID: c.caller.UserID}
}

func (d delegations) createDelegation(c *call, in *toll.DelegationInput, once *store.Once) (*toll.DelegationCreated, error) {
	once.Quota = d.bounds.of(store.KindDelegation, c.caller.Address)
	return d.checkout.Delegations.Create(c.context, c.owner(), *in, once)
}

// DelegationSignature is the signature of an account that the caller holds.
type DelegationSignature struct {
	Signature     string          `json:"signature" doc:"Signature of the typed data of the delegation, in hexadecimal."`
	Authorization json.RawMessage `json:"authorization,omitzero" doc:"Signed EIP-7702 authorization (an object). Required if the account has no contract code."`
}

func (*DelegationSignature) required() []string { return []string{"signature"} }

func (d delegations) signDelegation(c *call, in *DelegationSignature) (*toll.Delegation, error) {
	return d.checkout.Delegations.Sign(c.context, c.caller.Address, c.param("delegationId"), in.Signature, in.Authorization)
}

func (d delegations) readDelegation(ctx context.Context, owner toll.Address, id string) (*toll.Delegation, error) {
	return d.checkout.Delegations.Read(ctx, owner, id)
}

func (d delegations) listDelegations(c *call, p store.Page, q url.Values) (none store.List[*toll.Delegation], err error) {
	usable, err := flag(q, "accessible")
	if err != nil {
		return none, err
	}
	return d.checkout.Delegations.List(c.context, c.owner(), usable, p)
}

func (d delegations) unfreezeDelegation(c *call) (*toll.Delegation, error) {
	if err := d.checkout.Delegations.MayChange(c.context, c.owner(), c.param("delegationId")); err != nil {
		return nil, err
	}
	return d.checkout.Delegations.Unfreeze(c.context, c.caller.Address, c.param("delegationId"))
}

func (d delegations) revokeDelegation(c *call) (*toll.ActResult, error) {
	if err := d.checkout.Delegations.MayChange(c.context, c.owner(), c.param("delegationId")); err != nil {
		return nil, err
	}
	out, err := d.checkout.Delegations.Revoke(c.context, c.caller.Address, c.param("delegationId"))
	d.tokens.Snapshots.ForgetPermissions()
	return out, err
}

func (d delegations) listDelegationTransactions(c *call, p store.Page, _ url.Values) (store.List[*toll.DelegationTransaction], error) {
	return d.checkout.Delegations.Transactions(c.context, c.caller.Address, c.param("delegationId"), p)
}

func (d delegations) listPaymentMethods(c *call) ([]toll.PaymentMethod, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	usable, err := flag(q, "accessible")
	if err != nil {
		return nil, err
	}
	provider := toll.Provider(strings.ToLower(q.Get("provider")))
	switch provider {
	case "", toll.ProviderCrypto, toll.ProviderCard:
	default:
		return nil, toll.NewError(toll.CodeBadProvider).WithHint("Send erc4337 or stripe.")
	}
	return d.checkout.PaymentMethods.List(c.context, c.owner(), usable, provider)
}

func (d delegations) updatePaymentMethod(c *call, in *toll.PaymentMethodChange) (*toll.PaymentMethod, error) {
	return d.checkout.PaymentMethods.Change(c.context, c.owner(), c.param("paymentMethodId"), *in)
}

// PaymentMethodRemoved is the answer to the removal of a card.
type PaymentMethodRemoved struct {
	Success bool `json:"success"`
}

func (d delegations) deletePaymentMethod(c *call) (*PaymentMethodRemoved, error) {
	err := d.checkout.PaymentMethods.Remove(c.context, c.owner(), c.param("paymentMethodId"))
	d.tokens.Snapshots.ForgetPermissions()
	return &PaymentMethodRemoved{Success: true}, err
}

func flag(q map[string][]string, name string) (bool, error) {
	values, ok := q[name]
	switch {
	case !ok:
		return false, nil
	case len(values) == 1 && strings.EqualFold(values[0], "true"):
		return true, nil
	case len(values) == 1 && (strings.EqualFold(values[0], "false") || values[0] == ""):
		return false, nil
	}
	return false, toll.Faults([]toll.Fault{{Path: name, Message: "must be true or false, and sent once"}})
}
