package pay

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/x402"
)

// The first byte of a stored answer names its form. Forms are permanent, and so is the text that each stands for: a repeat
// has the bytes of the first answer in every later release.
const (
	// storedText is the whole JSON: answers with a signed receipt, since a later key or public address would sign other bytes.
	storedText = '{'
	// storedParts1 is what [settled.parts] writes and [render1] reads out.
	storedParts1 = 1
)

// settled is all that the answer to a settlement says, but for a signed receipt. The ledger, the request and the account keep most of it.
type settled struct {
	ledger.Receipt
	payer toll.Address
	plan  toll.PlanID
	agent toll.AgentID

	// Only the stored parts keep what follows, and Ended and OrderTx of the receipt.
	network string
	raised  *toll.Credits // what was asked for, when the bounds of the plan changed it
}

func (s *settled) remaining() toll.Credits { return s.Balance - s.Ended }

// Flags of storedParts1, the second byte. They say what follows, in this order: credits as uvarint, the hash as 32 bytes, texts
// as their length (uvarint) and their bytes.
const (
	partEnded = 1 << iota
	partRaised
	partOrderHash
	partOrderText
	partNetwork // a text follows in place of an index

	partsKnown = 1<<iota - 1
)

// wireNetworks are the networks that one byte stands for. New ones are added at the end.
var wireNetworks = []string{"eip155:84532", "eip155:8453", "stripe:sandbox", "stripe:live", catalogue.CardNetwork}

// parts returns the form storedParts1.
func (s *settled) parts() []byte {
	b := []byte{storedParts1, 0}
	text := func(t string) { b = append(binary.AppendUvarint(b, uint64(len(t))), t...) }
	if s.Ended != 0 {
		b[1] |= partEnded
		b = binary.AppendUvarint(b, uint64(s.Ended))
	}
	if s.raised != nil {
		b[1] |= partRaised
		b = binary.AppendUvarint(b, uint64(*s.raised))
	}
	if s.OrderTx != "" {
		if h, err := toll.ParseHash(s.OrderTx); err == nil && h.String() == s.OrderTx {
			b[1] |= partOrderHash
			b = append(b, h[:]...)
		} else {
			b[1] |= partOrderText
			text(s.OrderTx)
		}
	}
	if i := slices.Index(wireNetworks, s.network); i >= 0 {
		return append(b, byte(i))
	}
	b[1] |= partNetwork
	text(s.network)
	return b
}

// readParts adds what parts wrote.
func (s *settled) readParts(stored []byte) error {
	if len(stored) < 2 {
		return errDamaged
	}
	flags, b := stored[1], stored[2:]
	ok := flags&^partsKnown == 0
	take := func(n uint64) []byte {
		if ok = ok && n <= uint64(len(b)); !ok {
			return nil
		}
		taken := b[:n]
		b = b[n:]
		return taken
	}
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		ok = ok && n > 0
		take(uint64(max(n, 0)))
		return v
	}
	if flags&partEnded != 0 {
		s.Ended = toll.Credits(number())
	}
	if flags&partRaised != 0 {
		s.raised = toll.Credits(number()).Ptr()
	}
	if flags&partOrderHash != 0 {
		var h toll.Hash
		copy(h[:], take(uint64(len(h))))
		s.OrderTx = h.String()
	}
	if flags&partOrderText != 0 {
		s.OrderTx = string(take(number()))
	}
	if flags&partNetwork != 0 {
		s.network = string(take(number()))
	} else if i := number(); i < uint64(len(wireNetworks)) {
		s.network = wireNetworks[i]
	} else {
		ok = false
	}
	if !ok || len(b) > 0 {
		return errDamaged
	}
	return nil
}

var errDamaged = errors.New("the stored response is damaged")

// storedAnswer returns what the ledger keeps of the answer to a settlement.
func (f *Facilitator) storedAnswer(ctx context.Context, p *payment, raised *toll.Credits) func(ledger.Receipt) []byte {
	return func(r ledger.Receipt) []byte {
		s := &settled{
			Receipt: r, payer: p.claims.Subscriber, plan: p.plan.ID, agent: p.agentID, network: p.networkOf(f.brand),
			raised: raised,
		}
		if f.Purchases.Receipts {
			signed := f.Purchases.Receipt(ctx, p.url, f.brand.Network(s.network), s.payer.String(), r.Transaction.String(), r.At)[x402.ExtensionOfferReceipt]
			if signed != nil {
				return render1(s, f.brand.Names.CreditsExtension(), signed)
			}
		}
		return s.parts()
	}
}

// answerOf returns the answer to a settlement from what the ledger keeps of it; about says what else is known.
func answerOf(names x402.Namespace, stored []byte, about settled) (*x402.SettleResponse, error) {
	if len(stored) == 0 {
		return nil, fmt.Errorf("request %s has no stored response", about.RequestID)
	}
	switch stored[0] {
	case storedText:
		resp := new(x402.SettleResponse)
		err := x402.Decode(stored, resp)
		resp.Raw = stored
		return resp, err
	case storedParts1:
		if err := about.readParts(stored); err != nil {
			return nil, fmt.Errorf("request %s: %w", about.RequestID, err)
		}
		credits := names.CreditsExtension()
		resp := about.response(credits)
		resp.Raw = render1(&about, credits, nil)
		return resp, nil
	}
	return nil, fmt.Errorf("the stored response of request %s has format %d, which this release cannot read: use a newer release", about.RequestID, stored[0])
}

func quoted(s string) string {
	b, err := x402.Encode(s)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(b)
}

// render1 returns the text of an answer, which never changes. credits is the name of our extension, one for the life of a
// database; signed is the extension with a signed receipt, nil for none.
func render1(s *settled, credits string, signed json.RawMessage) []byte {
	amount, remaining := strconv.FormatInt(int64(s.Amount), 10), strconv.FormatInt(int64(s.remaining()), 10)
	b := make([]byte, 0, 768+len(signed))
	add := func(parts ...string) {
		for _, p := range parts {
			b = append(b, p...)
		}
	}
	var order string
	if s.OrderTx != "" {
		order = `,"orderTx":` + quoted(s.OrderTx)
	}
	add(`{"success":true,"transaction":"0x`)
	b = hex.AppendEncode(b, s.Transaction[:])
	add(`","network":`, quoted(s.network), `,"payer":"`, s.payer.String(), `","creditsRedeemed":"`, amount,
		`","remainingBalance":"`, remaining, `","amount":"`, amount, `"`, order, `,"extra":{"agentRequestId":`)
	// Request ids are visible ASCII, for which Go and JSON quote alike; ids of plans and agents are digits.
	b = strconv.AppendQuote(b, s.RequestID)
	if s.plan != "" {
		add(`,"planId":"`, string(s.plan), `"`)
	}
	if s.agent != "" {
		add(`,"agentId":"`, string(s.agent), `"`)
	}
	add(`,"creditsRedeemed":"`, amount, `","remainingBalance":"`, remaining, `"`, order)
	if s.raised != nil {
		add(`,"requestedAmount":"`, s.raised.String(), `"`)
	}
	add(`},"extensions":{`)
	first := credits < x402.ExtensionOfferReceipt // members are sorted
	if signed != nil && !first {
		add(`"`, x402.ExtensionOfferReceipt, `":`, string(signed), `,`)
	}
	add(quoted(credits), `:`)
	b = s.info(b)
	if signed != nil && first {
		add(`,"`, x402.ExtensionOfferReceipt, `":`, string(signed))
	}
	return append(b, "}}"...)
}

// info appends our extension.
func (s *settled) info(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"info":{"creditsRedeemed":"`...), int64(s.Amount), 10)
	b = strconv.AppendInt(append(b, `","remainingBalance":"`...), int64(s.remaining()), 10)
	b = strconv.AppendQuote(append(b, `","agentRequestId":`...), s.RequestID)
	return append(b, "}}"...)
}

// response says what render1 writes, without a signed receipt.
func (s *settled) response(credits string) *x402.SettleResponse {
	amount, remaining := s.Amount, s.remaining()
	return &x402.SettleResponse{
		Success: true, Transaction: s.Transaction.String(), Network: s.network, Payer: s.payer.String(),
		CreditsRedeemed: &amount, RemainingBalance: &remaining, Amount: &amount, OrderTx: s.OrderTx,
		Extra: &x402.SettleExtra{
			AgentRequestID: s.RequestID, PlanID: s.plan, AgentID: s.agent, CreditsRedeemed: &amount,
			RemainingBalance: &remaining, OrderTx: s.OrderTx, RequestedAmount: s.raised,
		},
		Extensions: map[string]json.RawMessage{credits: s.info(nil)},
	}
}
