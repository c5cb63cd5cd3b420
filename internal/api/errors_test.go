package api_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
)

// scene is a service with what most refusals need.
type scene struct {
	*stack
	t            *testing.T
	crypto, card *railtest.Rail
	plan, agent  string // free, of builder one
	priced, fiat string
	token, hash  string // of the subscriber, for plan
	bare         *stack // without rails
}

func newScene(t *testing.T) *scene {
	s, crypto, card := newPaidStack(t)
	c := &scene{stack: s, t: t, crypto: crypto, card: card, bare: newStack(t)}
	c.plan = s.plan(s.b1, freePlan)
	c.agent = s.agent(s.b1, c.plan)
	c.priced, c.fiat = s.plan(s.b1, pricedPlan), s.plan(s.b1, cardPlan)
	c.token, c.hash = s.token(s.s1, c.plan)
	return c
}

func (c *scene) get(path string) answer        { return c.do(c.b1, "GET", base+path, "") }
func (c *scene) post(path, body string) answer { return c.do(c.b1, "POST", base+path, body) }
func (c *scene) settle(body string) answer     { return c.post("/x402/settle", body) }
func (c *scene) pay(more string) answer        { return c.settle(agentBody(c.plan, c.agent, c.token, more)) }
func (c *scene) hold(more string) string       { return c.held(c.token, more) }
func (c *scene) order(plan, body string) answer {
	return c.do(c.s1, "POST", base+"/protocol/plans/"+plan+"/order", body)
}
func (c *scene) permit(body string) answer { return c.do(c.s1, "POST", base+"/x402/permissions", body) }
func (c *scene) delegate(members string) answer {
	return c.do(c.s1, "POST", base+"/delegation/create", "{"+members+"}")
}
func (c *scene) plans(body string) answer       { return c.post("/protocol/plans", body) }
func (c *scene) paid(plan, token string) answer { return c.settle(paymentBody(plan, token, "")) }
func (c *scene) mint(plan, amount string) answer {
	return c.mintOf(plan, amount, c.s1.address.String())
}

func (c *scene) mintOf(plan, amount, to string) answer {
	return c.post("/protocol/plans/mint", `{"planId":"`+plan+`","amount":"`+amount+`","creditsReceiver":"`+to+`"}`)
}

// held verifies with a hold and returns the id of the request.
func (c *scene) held(token, more string) string {
	c.t.Helper()
	a := c.post("/x402/verify", agentBody(c.plan, c.agent, token, `,"hold":true`+more))
	if a.member(c.t, "isValid") != true {
		c.t.Fatalf("hold: %s", a.body)
	}
	return a.text(c.t, "agentRequestId")
}

// limit returns a delegation of the subscriber.
func (c *scene) limit(members string) string {
	c.t.Helper()
	a := c.delegate(`"provider":"erc4337","spendingLimitCents":150,"durationSecs":3600,"currency":"usdc"` + members)
	if a.status != 201 {
		c.t.Fatalf("delegation: %d %s", a.status, a.body)
	}
	return a.text(c.t, "delegationId")
}

func (c *scene) orderWith(delegation string) answer {
	return c.order(c.priced, `{"delegationId":"`+delegation+`"}`)
}

// stock verifies as standard x402 software does.
func (c *scene) stock(plan, token, amount string) answer {
	return c.post("/x402/verify", `{"x402Version":2,"paymentPayload":"`+token+`","paymentRequirements":{"scheme":"svc:erc4337","network":"eip155:84532","amount":"`+amount+
		`","asset":"svc:credits","payTo":"`+c.b1.address.String()+`","maxTimeoutSeconds":60,"extra":{"version":"1","planId":"`+plan+`"}}}`)
}

// topUp settles on a plan with a price, with a token that may buy credits.
func (c *scene) topUp(more string) answer {
	plan := c.stack.plan(c.b1, pricedPlan)
	return c.paid(plan, c.tokenOf(`{"planId":"`+plan+`","delegationConfig":{"delegationId":"`+c.limit("")+`"}`+more+`}`))
}

// cardLimit returns a delegation of the subscriber that charges a card.
func (c *scene) cardLimit() string {
	c.t.Helper()
	c.stack.card(c.s1, "pm_charged")
	return c.delegate(`"provider":"stripe","spendingLimitCents":1500,"durationSecs":3600,"currency":"usd","providerPaymentMethodId":"pm_charged"`).text(c.t, "delegationId")
}

// charged orders with a card that the bank refuses to charge.
func (c *scene) charged(code toll.Code) answer {
	c.card.Behave(railtest.Behaviour{Decline: true, Code: code, Reason: "the bank said no"})
	defer c.card.Behave(railtest.Behaviour{Person: true})
	return c.order(c.fiat, `{"delegationId":"`+c.cardLimit()+`"}`)
}

// unreachableCheckout asks for a page while the processor is away.
func (c *scene) unreachableCheckout(key string) answer {
	c.card.Behave(railtest.Behaviour{Unreachable: toll.CodeCardUnreachable})
	defer c.card.Behave(railtest.Behaviour{Person: true})
	return c.do(c.b2, "POST", base+"/protocol/plans/"+c.fiat+"/checkout", "", "Idempotency-Key", key)
}

func (c *scene) tokenOf(body string) string {
	c.t.Helper()
	a := c.permit(body)
	if a.status != 201 {
		c.t.Fatalf("permission: %d %s", a.status, a.body)
	}
	return a.text(c.t, "accessToken")
}

const someHash = "0x1111111111111111111111111111111111111111111111111111111111111111"

// unprovoked are the codes of the table that no request of this release can meet.
var unprovoked = map[toll.Code]string{
	toll.CodeVersionGateFailed:  "the gate edits only bodies that this service wrote or could read; TestGateFailure has a route that breaks it",
	toll.CodeExists:             "nothing that callers name must be unique",
	toll.CodePaymentRequired:    "the answer of paid, to requests without an access token; see its tests",
	toll.CodeDeprecatedForm:     "stands in warnings only",
	toll.CodeChainContracts:     "of the chain rail",
	toll.CodeChainOrderConflict: "of the chain rail",
	toll.CodeChainFailed:        "of the chain rail",
	toll.CodeChainSignature:     "of the chain rail",
	toll.CodeBurnNotMirrored:    "of the chain mirror",
	toll.CodeWebhookSignature:   "of the card rail",
}

// provoked makes a request that meets the code, for every other one.
func provoked() map[toll.Code]func(c *scene) answer {
	declined := func(code toll.Code) func(c *scene) answer {
		return func(c *scene) answer {
			c.crypto.Behave(railtest.Behaviour{Decline: true, Code: code, Reason: "declined"})
			defer c.crypto.Behave(railtest.Behaviour{})
			return c.order(c.priced, "")
		}
	}
	away := func(code toll.Code) func(c *scene) answer {
		return func(c *scene) answer {
			c.crypto.Behave(railtest.Behaviour{Unreachable: code})
			defer c.crypto.Behave(railtest.Behaviour{})
			return c.order(c.stack.plan(c.b1, pricedPlan), "")
		}
	}
	auth := func(line string) func(c *scene) answer {
		return func(c *scene) answer { return c.do(actor{}, "GET", base+"/protocol/plans", "", "Authorization", line) }
	}
	bad := func(plan string) func(c *scene) answer { return func(c *scene) answer { return c.plans(plan) } }
	return map[toll.Code]func(c *scene) answer{
		toll.CodeNotAuthenticated: func(c *scene) answer { return c.do(actor{}, "GET", base+"/protocol/plans", "") },
		toll.CodeForbidden:        func(c *scene) answer { return c.post("/sandbox/clock", `{"advanceSecs":1}`) },
		toll.CodeBadAuthorization: auth("Basic x"),
		toll.CodeKeyNotFound:      func(c *scene) answer { return c.get("/api-keys/" + someHash) },
		toll.CodeKeyAlreadyRevoked: func(c *scene) answer {
			path := base + "/api-keys/" + c.post("/api-keys", "{}").text(c.t, "id")
			c.do(c.b1, "DELETE", path, "")
			return c.do(c.b1, "DELETE", path, "")
		},
		toll.CodeKeyForeign:          func(c *scene) answer { return auth("Bearer " + c.token)(c) },
		toll.CodeKeyExpiryPast:       func(c *scene) answer { return c.post("/api-keys", `{"expiresAt":"2001-01-01T00:00:00Z"}`) },
		toll.CodeKeyMalformed:        auth("Bearer sandbox:abc"),
		toll.CodeKeyNothingToUpdate:  func(c *scene) answer { return c.do(c.b1, "PATCH", base+"/api-keys/"+c.b1.keyID.String(), "{}") },
		toll.CodeKeyWrongEnvironment: func(c *scene) answer { return auth("Bearer live:" + c.b1.key[strings.Index(c.b1.key, ":")+1:])(c) },
		toll.CodeVersionUnknown:      func(c *scene) answer { return c.do(c.b1, "GET", base+"/protocol/plans", "", "Service-Version", "9.9") },
		toll.CodeBadUUID:             func(c *scene) answer { return c.get("/protocol/orders/x") },
		toll.CodeBadID:               func(c *scene) answer { return c.get("/protocol/plans/007") },
		toll.CodeBadAddress:          func(c *scene) answer { return c.get("/protocol/plans/" + c.plan + "/balance/0x1") },
		toll.CodeDatabaseUnavailable: func(c *scene) answer {
			ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
			defer cancel()
			return c.throughContext(ctx, c.handler, c.b1, "GET", base+"/protocol/plans", "")
		},
		toll.CodeQueryTooLong: func(c *scene) answer { return c.get("/protocol/plans?x=" + strings.Repeat("x", 5000)) },
		toll.CodeIdempotencyMismatch: func(c *scene) answer {
			c.do(c.b1, "POST", base+"/protocol/plans", freePlan, "Idempotency-Key", "one")
			return c.do(c.b1, "POST", base+"/protocol/plans", pricedPlan, "Idempotency-Key", "one")
		},
		toll.CodeBadPage:         func(c *scene) answer { return c.get("/protocol/plans?page=0") },
		toll.CodeMintNotPositive: func(c *scene) answer { return c.mint(c.plan, "0") },
		toll.CodeCreditsNotFree: func(c *scene) answer {
			return c.do(c.b1, "POST", base+"/protocol/plans/takeBack",
				`{"planId":"`+c.plan+`","amount":"1","holderAddress":"0x70997970c51812dc3a010c7d01b50e0d17dc79c8"}`)
		},
		toll.CodeCreditsOverflow: func(c *scene) answer {
			c.mintOf(c.plan, toll.MaxCredits.String(), c.b2.address.String())
			return c.mintOf(c.plan, "1", c.b2.address.String())
		},
		toll.CodePlanNotFound:     func(c *scene) answer { return c.get("/protocol/plans/1") },
		toll.CodeAgentNotFound:    func(c *scene) answer { return c.get("/protocol/agents/1") },
		toll.CodeOrderLacksMoney:  declined(toll.CodeOrderLacksMoney),
		toll.CodeChainBalance:     declined(toll.CodeChainBalance),
		toll.CodeChainToken:       declined(toll.CodeChainToken),
		toll.CodeChainForeignCode: declined(toll.CodeChainForeignCode),
		toll.CodeNotAgentOwner:    func(c *scene) answer { return c.do(c.b2, "PUT", base+"/protocol/agents/"+c.agent, "{}") },
		toll.CodeNotPlanOwner:     func(c *scene) answer { return c.do(c.b2, "PUT", base+"/protocol/plans/"+c.plan, "{}") },
		toll.CodeAgentListedAlready: func(c *scene) answer {
			return c.do(c.b1, "PUT", base+"/protocol/agents/"+c.agent+"/list/true", "")
		},
		toll.CodePlanListedAlready:   func(c *scene) answer { return c.do(c.b1, "PUT", base+"/protocol/plans/"+c.plan+"/list/true", "") },
		toll.CodePlansOfUnknownAgent: func(c *scene) answer { return c.get("/protocol/agents/1/plans") },
		toll.CodeAgentsOfUnknownPlan: func(c *scene) answer { return c.get("/protocol/plans/1/agents") },
		toll.CodePlanNotAttached: func(c *scene) answer {
			return c.do(c.b1, "DELETE", base+"/protocol/agents/"+c.agent+"/plan/"+c.priced, "")
		},
		toll.CodeEndpointMismatch: func(c *scene) answer {
			return c.settle(strings.Replace(agentBody(c.plan, c.agent, c.token, ""), "agent.example.com/ask", "agent.example.com/other", 1))
		},
		toll.CodeFiatPriceTooHigh:      bad(strings.Replace(cardPlan, "1000000", "999999990001", 1)),
		toll.CodeFiatPriceTooLow:       bad(strings.Replace(cardPlan, "1000000", "999999", 1)),
		toll.CodeFiatPlanOnCryptoRoute: func(c *scene) answer { return c.order(c.fiat, "") },
		toll.CodeWrongNetwork:          func(c *scene) answer { return c.permit(`{"planId":"` + c.plan + `","network":"eip155:8453"}`) },
		toll.CodeTrialUsed: func(c *scene) answer {
			trial := c.stack.plan(c.b1, strings.Replace(freePlan, `{"name"`, `{"isTrialPlan":true,"name"`, 1))
			c.order(trial, "")
			return c.order(trial, "")
		},
		toll.CodeBadNumber: func(c *scene) answer { return c.mint(c.plan, "01") },
		toll.CodePlanSoldOut: func(c *scene) answer {
			one := c.stack.plan(c.b1, strings.Replace(freePlan, `{"name"`, `{"maxOrders":1,"name"`, 1))
			c.order(one, "")
			return c.order(one, "")
		},
		toll.CodeSuspended: func(c *scene) answer {
			plan := c.stack.plan(c.b1, freePlan)
			if _, err := c.stack.auth.Suspend(context.Background(), plan, true); err != nil {
				c.t.Fatal(err)
			}
			return c.order(plan, "")
		},
		toll.CodePlanUnlisted: func(c *scene) answer {
			plan := c.stack.plan(c.b1, freePlan)
			c.do(c.b1, "PUT", base+"/protocol/plans/"+plan+"/list/false", "")
			return c.order(plan, "")
		},
		toll.CodeBadCreditsConfig: bad(`{"name":"x","priceConfig":{},"creditsConfig":{"minAmount":2,"maxAmount":1}}`),
		toll.CodeBadPriceConfig:   bad(`{"name":"x","priceConfig":{"amounts":[1,2]},"creditsConfig":{}}`),
		toll.CodeNonceConflict: func(c *scene) answer {
			c.plans(strings.Replace(freePlan, `{"name"`, `{"nonce":"1","name"`, 1))
			return c.plans(strings.Replace(pricedPlan, `{"name"`, `{"nonce":"1","name"`, 1))
		},
		toll.CodeOrderNotFound: func(c *scene) answer { return c.get("/protocol/orders/" + toll.NewUUID()) },
		toll.CodePlanTermsFixed: func(c *scene) answer {
			return c.do(c.b1, "PUT", base+"/protocol/plans/"+c.plan, `{"accessLimit":"time"}`)
		},
		toll.CodeRecordChanged: func(c *scene) answer {
			return c.do(c.b1, "PUT", base+"/protocol/plans/"+c.plan, `{"description":"x"}`, "If-Match", "99")
		},

		toll.CodePaymentAgentNotFound: func(c *scene) answer { return c.settle(agentBody(c.plan, "1", c.token, "")) },
		toll.CodePaymentPlanNotFound:  func(c *scene) answer { return c.permit(`{"planId":"1"}`) },
		toll.CodeAgentMismatch: func(c *scene) answer {
			other := c.stack.agent(c.b1, c.priced)
			return c.settle(agentBody(c.plan, other, c.token, ""))
		},
		toll.CodeTokenSignature: func(c *scene) answer {
			parts := strings.Split(c.token, ".")
			flip := "A"
			if strings.HasPrefix(parts[2], "A") {
				flip = "B"
			}
			return c.paid(c.plan, parts[0]+"."+parts[1]+"."+flip+parts[2][1:])
		},
		toll.CodeTokenUndecodable: func(c *scene) answer { return c.paid(c.plan, "nonsense") },
		toll.CodeBadRequirements: func(c *scene) answer {
			strict := c.post("/protocol/agents", `{"name":"x","endpoints":[{"POST":"https://agent.example.com/ask"}],"strictEndpoints":true,"plans":["`+c.plan+`"]}`).text(c.t, "agentId")
			return c.settle(strings.Replace(agentBody(c.plan, strict, c.token, ""), `"https://agent.example.com/ask"`, `""`, 1))
		},
		toll.CodePlanMismatch:           func(c *scene) answer { return c.paid(c.priced, c.token) },
		toll.CodeDelegationPlanMismatch: func(c *scene) answer { return c.orderWith(c.limit(`,"planId":"` + c.plan + `"`)) },
		toll.CodePermissionNotFound:     func(c *scene) answer { return c.get("/x402/permissions/" + someHash) },
		toll.CodePermissionAlreadyRevoked: func(c *scene) answer {
			_, hash := c.stack.token(c.s1, c.plan)
			c.do(c.s1, "DELETE", base+"/x402/permissions/"+hash, "")
			return c.do(c.s1, "DELETE", base+"/x402/permissions/"+hash, "")
		},
		toll.CodeDelegationNotFound: func(c *scene) answer { return c.orderWith(toll.NewUUID()) },
		toll.CodeDelegationRevoked: func(c *scene) answer {
			id := c.limit("")
			c.do(c.s1, "DELETE", base+"/delegation/"+id, "")
			return c.orderWith(id)
		},
		toll.CodeDelegationExpired: func(c *scene) answer {
			id := c.limit("")
			c.clock.advance(3601 * time.Second)
			return c.orderWith(id)
		},
		toll.CodeDelegationExhausted: func(c *scene) answer {
			id := c.limit(`,"maxTransactions":1`)
			c.orderWith(id)
			return c.orderWith(id)
		},
		toll.CodeDelegationInsufficient: func(c *scene) answer {
			id := c.limit("")
			c.orderWith(id)
			return c.orderWith(id)
		},
		toll.CodePermissionUnknown: func(c *scene) answer {
			token, _ := c.stack.token(c.s1, c.plan)
			ctx := context.Background()
			must.Do(c.t, c.store.Tx(ctx, func(tx *store.Tx) error {
				_, err := tx.Exec(ctx, "DELETE FROM permissions WHERE created_at = (SELECT MAX(created_at) FROM permissions) AND permission_hash NOT IN (SELECT permission_hash FROM requests)")
				return err
			}))
			return c.paid(c.plan, token)
		},
		toll.CodePermissionRevoked: func(c *scene) answer {
			token, hash := c.stack.token(c.s1, c.plan)
			c.do(c.s1, "DELETE", base+"/x402/permissions/"+hash, "")
			return c.paid(c.plan, token)
		},
		toll.CodePermissionExpired: func(c *scene) answer {
			token := c.tokenOf(`{"planId":"` + c.plan + `","expiresInSecs":60}`)
			c.clock.advance(61 * time.Second)
			return c.paid(c.plan, token)
		},
		toll.CodePaymentMethodUnusable: func(c *scene) answer {
			c.stack.cardUntil(c.s1, "pm_expired", 2020)
			return c.delegate(`"provider":"stripe","spendingLimitCents":1,"durationSecs":60,"currency":"usd","providerPaymentMethodId":"pm_expired"`)
		},
		toll.CodePaymentMethodRevoked: func(c *scene) answer {
			c.stack.card(c.s1, "pm_revoked")
			c.do(c.s1, "DELETE", base+"/payment-methods/pm_revoked", "")
			return c.delegate(`"provider":"stripe","spendingLimitCents":1,"durationSecs":60,"currency":"usd","providerPaymentMethodId":"pm_revoked"`)
		},
		toll.CodePaymentMethodNotAllowed: func(c *scene) answer {
			c.stack.card(c.s1, "pm_other")
			c.do(c.s1, "PATCH", base+"/payment-methods/pm_other", `{"allowedApiKeyIds":["`+c.keyOf(c.s1.address, "1.1").keyID.String()+`"]}`)
			return c.delegate(`"provider":"stripe","spendingLimitCents":1,"durationSecs":60,"currency":"usd","providerPaymentMethodId":"pm_other"`)
		},
		toll.CodeUnsupportedScheme: func(c *scene) answer { return c.permit(`{"planId":"` + c.plan + `","scheme":"svc:other"}`) },
		toll.CodeRedemptionLimit: func(c *scene) answer {
			return c.paid(c.plan, c.tokenOf(`{"planId":"`+c.plan+`","redemptionLimit":"1"}`))
		},
		toll.CodeReleaseOfSettled: func(c *scene) answer {
			id := c.pay("").text(c.t, "extra.agentRequestId")
			return c.post("/x402/release", `{"agentRequestId":"`+id+`"}`)
		},
		toll.CodeHoldOver: func(c *scene) answer {
			id := c.held(c.tokenOf(`{"planId":"`+c.plan+`"}`), "")
			c.post("/x402/release", `{"agentRequestId":"`+id+`"}`)
			return c.post("/x402/renew", `{"agentRequestId":"`+id+`"}`)
		},
		toll.CodeRequestUsed: func(c *scene) answer {
			return c.post("/x402/verify", agentBody(c.plan, c.agent, c.token, `,"agentRequestId":"`+c.hold("")+`"`))
		},
		toll.CodeHoldExpired: func(c *scene) answer {
			token := c.tokenOf(`{"planId":"` + c.plan + `","expiresInSecs":60}`)
			id := c.held(token, `,"holdSecs":1`)
			c.clock.advance(2 * time.Hour)
			return c.settle(agentBody(c.plan, c.agent, token, `,"agentRequestId":"`+id+`"`))
		},
		toll.CodeSettleConflict: func(c *scene) answer {
			id := c.pay("").text(c.t, "extra.agentRequestId")
			return c.pay(`,"maxAmount":"7","agentRequestId":"` + id + `"`)
		},
		toll.CodeTooManyHolds: func(c *scene) answer {
			c.mint(c.plan, "1000")
			token, _ := c.stack.token(c.s1, c.plan)
			for range 64 {
				c.held(token, "")
			}
			return c.post("/x402/verify", agentBody(c.plan, c.agent, token, `,"hold":true`))
		},
		toll.CodeSettlementNotFound: func(c *scene) answer { return c.post("/x402/release", `{"agentRequestId":"unknown"}`) },
		toll.CodeSettlementGone: func(c *scene) answer {
			id := c.post("/x402/verify", agentBody(c.plan, c.agent, c.token, "")).text(c.t, "agentRequestId")
			c.clock.advance(401 * 24 * time.Hour)
			return c.get("/x402/settlements/" + id)
		},
		toll.CodeBodyDialect: func(c *scene) answer { return c.settle(`{}`) },
		toll.CodePlanPeriodOver: func(c *scene) answer {
			timed := c.stack.plan(c.b1, `{"name":"Day","priceConfig":{"tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":[1]},"creditsConfig":{"durationSecs":"60"}}`)
			return c.paid(timed, c.tokenOf(`{"planId":"`+timed+`"}`))
		},
		toll.CodeInsufficientCredits: func(c *scene) answer {
			plan := c.stack.plan(c.b1, pricedPlan)
			return c.paid(plan, c.tokenOf(`{"planId":"`+plan+`"}`))
		},
		toll.CodeAgentUnlisted: func(c *scene) answer {
			agent := c.stack.agent(c.b1, c.plan)
			c.do(c.b1, "PUT", base+"/protocol/agents/"+agent+"/list/false", "")
			return c.settle(agentBody(c.plan, agent, c.token, ""))
		},
		toll.CodeBadX402Version: func(c *scene) answer {
			return c.settle(strings.Replace(paymentBody(c.plan, c.token, ""), `"x402Version":2`, `"x402Version":1`, 1))
		},

		toll.CodeAmountOutOfRange: func(c *scene) answer {
			return c.stock(c.plan, c.tokenOf(`{"planId":"`+c.plan+`","tokenFormat":"x402"}`), "9")
		},
		toll.CodeOrderLimit: func(c *scene) answer { return c.topUp(`,"orderLimit":0`) },
		toll.CodeTopUpRefused: func(c *scene) answer {
			c.crypto.Behave(railtest.Behaviour{Decline: true, Reason: "declined"})
			defer c.crypto.Behave(railtest.Behaviour{})
			return c.topUp("")
		},
		toll.CodeSettlementPending: func(c *scene) answer {
			c.crypto.Behave(railtest.Behaviour{Steps: 1000})
			defer c.crypto.Behave(railtest.Behaviour{})
			hasty := *c
			hasty.stack = c.hasty()
			return hasty.topUp("")
		},
		toll.CodeSubTaskRequestUnknown: func(c *scene) answer { return c.get("/protocol/agent-sub-tasks?agentRequestId=unknown") },
		toll.CodeAmountAndMargin:       func(c *scene) answer { return c.pay(`,"maxAmount":"5","marginPercent":1`) },
		toll.CodeMarginOnFixedPlan:     func(c *scene) answer { return c.pay(`,"marginPercent":1`) },
		toll.CodeMarginWithoutSubTasks: func(c *scene) answer {
			dynamic := c.stack.plan(c.b1, `{"name":"x","priceConfig":{},"creditsConfig":{"amount":100,"minAmount":1,"maxAmount":9}}`)
			token := c.tokenOf(`{"planId":"` + dynamic + `"}`)
			id := c.post("/x402/verify", paymentBody(dynamic, token, `,"hold":true`)).text(c.t, "agentRequestId")
			return c.settle(paymentBody(dynamic, token, `,"marginPercent":1,"agentRequestId":"`+id+`"`))
		},

		toll.CodePaymentMethodNotFound: func(c *scene) answer { return c.do(c.b1, "DELETE", base+"/payment-methods/pm_9", "") },
		toll.CodeUnknownDelegation:     func(c *scene) answer { return c.get("/delegation/" + toll.NewUUID()) },
		toll.CodeBadProvider: func(c *scene) answer {
			return c.delegate(`"provider":"paypal","spendingLimitCents":1,"durationSecs":60,"currency":"usd"`)
		},
		toll.CodeDelegationIncomplete: func(c *scene) answer { return c.delegate("") },
		toll.CodeProviderMismatch: func(c *scene) answer {
			c.stack.card(c.s1, "pm_card")
			return c.delegate(`"provider":"erc4337","spendingLimitCents":1,"durationSecs":60,"currency":"usdc","providerPaymentMethodId":"pm_card"`)
		},
		toll.CodeChainUnreachable: func(c *scene) answer {
			return c.bare.do(c.bare.s1, "POST", base+"/protocol/plans/"+c.bare.plan(c.bare.b1, pricedPlan)+"/order", "")
		},
		toll.CodeChainRelayerLow: away(toll.CodeChainRelayerLow),
		toll.CodeChainFeeCap:     away(toll.CodeChainFeeCap),
		toll.CodeChainPaused:     away(toll.CodeChainPaused),
		toll.CodeChainSignerCap:  away(toll.CodeChainSignerCap),
		toll.CodeChainNativeDelegation: func(c *scene) answer {
			return c.order(c.stack.plan(c.b1, `{"name":"x","priceConfig":{"amounts":["1"]},"creditsConfig":{}}`), `{"delegationId":"`+c.limit("")+`"}`)
		},
		toll.CodeCheckoutWrongPlan: func(c *scene) answer { return c.post("/protocol/plans/"+c.plan+"/checkout", "") },
		toll.CodeCheckoutFailed: func(c *scene) answer {
			c.card.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeCheckoutFailed, Reason: "no session"})
			defer c.card.Behave(railtest.Behaviour{Person: true})
			return c.post("/protocol/plans/"+c.fiat+"/checkout", "")
		},
		toll.CodeCardDeclined:       func(c *scene) answer { return c.charged(toll.CodeCardDeclined) },
		toll.CodeCardAuthentication: func(c *scene) answer { return c.charged(toll.CodeCardAuthentication) },
		toll.CodeDelegationFrozen: func(c *scene) answer {
			ctx := context.Background()
			id := c.cardLimit()
			must.Do(c.t, c.store.Tx(ctx, func(tx *store.Tx) error {
				_, err := tx.Exec(ctx, "UPDATE delegations SET frozen_at = 1, frozen_for = 'declines' WHERE delegation_id = $1", id)
				return err
			}))
			return c.order(c.fiat, `{"delegationId":"`+id+`"}`)
		},
		toll.CodeRefundRefused: func(c *scene) answer {
			order := c.order(c.stack.plan(c.b1, freePlan), "").text(c.t, "orderId")
			return c.post("/protocol/orders/"+order+"/refund", "")
		},
		toll.CodeCardUnreachable:    func(c *scene) answer { return c.unreachableCheckout("first") },
		toll.CodeIdempotencyRunning: func(c *scene) answer { c.unreachableCheckout("again"); return c.unreachableCheckout("again") },
		toll.CodeCardOff: func(c *scene) answer {
			return c.bare.do(c.bare.s1, "POST", base+"/protocol/plans/"+c.bare.plan(c.bare.b1, cardPlan)+"/checkout", "")
		},

		toll.CodeWebhookNotFound: func(c *scene) answer { return c.get("/webhooks/" + toll.NewUUID()) },
		toll.CodeWebhookURL:      func(c *scene) answer { return c.post("/webhooks", `{"url":"https://10.0.0.1/"}`) },
		toll.CodeWebhookTooMany: func(c *scene) answer {
			var a answer
			for range 21 {
				a = c.post("/webhooks", `{"url":"https://hooks.example.com/toll"}`)
			}
			return a
		},

		toll.CodePersonNeeded:   func(c *scene) answer { return c.do(c.b1, "GET", base+"/session", "") },
		toll.CodeLastOwner:      func(c *scene) answer { return c.human("last").do("DELETE", "/members/me", "") },
		toll.CodePersonNotFound: func(c *scene) answer { return c.human("lonely").do("DELETE", "/members/"+toll.NewUUID(), "") },
		toll.CodeWorkspaceOwes: func(c *scene) answer {
			p := c.human("owes")
			who := actor{key: p.do("POST", "/api-keys", "{}").text(c.t, "key")}
			plan := c.stack.plan(who, pricedPlan)
			c.do(who, "POST", base+"/protocol/plans/mint", `{"planId":"`+plan+`","amount":"5","creditsReceiver":"`+c.s1.address.String()+`"}`)
			return p.do("DELETE", "/workspaces/"+p.workspace, "")
		},
		toll.CodeSpendLimit: func(c *scene) answer {
			return c.do(c.thrifty("thrifty").key(), "POST", base+"/delegation/create", fiveDollars)
		},
		toll.CodeSpendLimitDelegation: func(c *scene) answer {
			boss := c.human("generous")
			dev := boss.invites(c.human("frugal"), toll.RoleDeveloper)
			boss.do("PATCH", "/members/"+dev.id.String(), `{"spendLimitCents":0}`)
			id := c.do(boss.key(), "POST", base+"/delegation/create", fiveDollars).text(c.t, "delegationId")
			return c.do(dev.key(), "POST", base+"/protocol/plans/"+c.priced+"/order", `{"delegationId":"`+id+`"}`)
		},
		toll.CodePasswordsOff: func(c *scene) answer {
			c.built.People.Credentials.NoPasswords = true
			defer func() { c.built.People.Credentials.NoPasswords = false }()
			return c.do(actor{}, "POST", base+"/session", `{"login":"alice","password":"four words are enough"}`)
		},
		toll.CodeProofNeeded: func(c *scene) answer {
			p := c.human("late")
			c.clock.advance(people.FreshTime)
			return p.do("POST", "/invitations", `{"role":"viewer"}`)
		},

		toll.CodeRightMissing: func(c *scene) answer {
			return c.do(c.keyWith(c.b1, toll.RightRead), "POST", base+"/protocol/plans", freePlan)
		},
		toll.CodeWrongWorkspace: func(c *scene) answer {
			return c.do(c.b1, "GET", base+"/protocol/plans", "", "X-Current-Org-Id", c.b2.address.String())
		},
		toll.CodeBadRequest:       func(c *scene) answer { return c.plans("[") },
		toll.CodePathNotFound:     func(c *scene) answer { return c.get("/nothing") },
		toll.CodeMethodNotAllowed: func(c *scene) answer { return c.do(c.b1, "PATCH", base+"/protocol/plans", "") },
		toll.CodeRequestTimeout: func(c *scene) answer {
			answers, _ := c.impatient().raw(c.t, "POST "+base+"/protocol/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+c.b1.key+"\r\nContent-Length: 9\r\n\r\n{")
			return answers[0]
		},
		toll.CodeMPPOff:       func(c *scene) answer { return c.post("/mpp/challenge", "") },
		toll.CodeGone:         func(c *scene) answer { return c.post("/protocol/plans/burn", "") },
		toll.CodeBodyTooLarge: func(c *scene) answer { return c.plans(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`) },
		toll.CodeURITooLong:   func(c *scene) answer { return c.get("/" + strings.Repeat("x", 9<<10)) },
		toll.CodeMediaType: func(c *scene) answer {
			return c.do(c.b1, "POST", base+"/protocol/plans", freePlan, "Content-Encoding", "gzip")
		},
		toll.CodeHeadersTooLarge: func(c *scene) answer { return c.do(c.b1, "GET", "/health", "", "X-Fill", strings.Repeat("x", 17<<10)) },
		toll.CodeRateLimited: func(c *scene) answer {
			return c.through(api.New(c.deps(func(d *api.Deps) { d.Policy.Quotas.APIKeys = 1 })), c.b1, "POST", base+"/api-keys", "{}")
		},
		toll.CodeInternal: func(c *scene) answer {
			broken := api.New(c.deps(func(d *api.Deps) {
				d.Vault = brokenVault{d.Vault}
			}))
			return c.through(broken, c.b1, "POST", base+"/protocol/agents", `{"metadataAttributes":{"name":"x"},"agentApiAttributes":{"token":"t"}}`)
		},
		toll.CodeUnavailable: func(c *scene) answer {
			plan := c.bare.plan(c.bare.b1, freePlan)
			token, _ := c.bare.token(c.bare.s1, plan)
			must.Do(c.t, c.bare.ledger.Close(context.Background()))
			return c.bare.do(c.bare.b1, "POST", base+"/x402/settle", paymentBody(plan, token, ""))
		},
	}
}

// Every code of the table is met by a request, with its status, in the one shape of errors and with a next step.
func TestErrorTable(t *testing.T) {
	requests := provoked()
	for _, info := range toll.Codes() {
		request := requests[info.Code]
		if _, excused := unprovoked[info.Code]; excused == (request != nil) {
			t.Errorf("%s needs either a request that meets it or a reason why there is none", info.Code)
		}
	}
	c := newScene(t)
	for _, info := range toll.Codes() {
		request := requests[info.Code]
		if request == nil {
			continue
		}
		a := request(c)
		status := info.Status
		if a.status == http.StatusOK && a.code() == string(info.Code) && strings.Contains(string(a.body), `"isValid":false`) {
			status = http.StatusOK // a verdict of verify
		}
		if a.status != status || a.code() != string(info.Code) {
			t.Errorf("%s: %d %s; want %d", info.Code, a.status, a.body, info.Status)
			continue
		}
		if a.status < 400 {
			continue
		}
		if a.text(t, "hint") == "" || a.text(t, "category") != string(info.Category) || a.member(t, "retryable") != info.Retryable ||
			a.text(t, "docsUrl") != publicURL+"/docs/errors#"+strings.ToLower(strings.ReplaceAll(string(info.Code), ".", "-")) {
			t.Errorf("%s: %s", info.Code, a.body)
		}
		if retry := a.header.Get("Retry-After"); (a.status == 429 || a.status == 503) && retry == "" {
			t.Errorf("%s has no Retry-After", info.Code)
		}
	}
	if strings.Contains(c.log.String(), c.token) {
		t.Error("an access token is in the log")
	}
}

// The table of codes that implementations in other languages compare with is the table of the vocabulary.
func TestCodes_ConformanceTable(t *testing.T) {
	statuses := map[toll.Code]string{
		toll.CodeChainFailed:      "500, 502", // 500 when nothing was sent
		toll.CodeTokenUndecodable: "400, 402", // 402 from verify and settle
		toll.CodeBadRequirements:  "400, 402",
		toll.CodeBadX402Version:   "400, 402",
	}
	var rows []string
	for _, info := range toll.Codes() {
		status := cmp.Or(statuses[info.Code], strconv.Itoa(info.Status))
		rows = append(rows, fmt.Sprintf(`  %q: {"status": [%s], "category": %q}`, info.Code, status, info.Category))
	}
	slices.Sort(rows)
	compareGolden(t, filepath.Join("..", "..", "testdata", "conformance", "tables", "codes.json"), []byte("{\n"+strings.Join(rows, ",\n")+"\n}\n"))
}

// brokenVault fails to seal.
type brokenVault struct{ api.Vault }

func (brokenVault) Seal([]byte, []byte) ([]byte, error) {
	return nil, errors.New("canary of the inside")
}
