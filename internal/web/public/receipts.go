package public

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/x402"
)

// maxReceipt bounds a pasted receipt, in bytes.
const maxReceipt = 12 << 10

type receiptPage struct {
	Text   string // that was pasted
	Result string // in a sentence; "" before a check
	Holds  bool
	Checks []page.Step
	Facts  []page.Fact
}

func askReceipt(c *page.Context) (page.View, error) {
	return drawPublic(c, "receipts", "Check a receipt", receiptPage{})
}

type pasted struct {
	tx      toll.Hash
	signed  *x402.SignedReceipt
	payer   string
	plan    toll.PlanID
	credits *toll.Credits
}

// readReceipt takes a signed receipt (JWS), a settlement as JSON or as the value of the header payment-response, or a transaction.
func readReceipt(text string) (p pasted, err error) {
	if p.tx, err = toll.ParseHash(text); err == nil {
		return p, nil
	}
	if strings.Count(text, ".") == 2 && !strings.HasPrefix(text, "{") {
		p.signed = &x402.SignedReceipt{Format: x402.FormatJWS, Signature: text}
		return p, nil
	}
	if !strings.HasPrefix(text, "{") {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return p, errNoReceipt
		}
		text = string(b)
	}
	var s x402.SettleResponse
	if x402.Decode([]byte(text), &s) != nil {
		return p, errNoReceipt
	}
	if s.Transaction == "" {
		return p, receiptFault("This receipt is for a refused request. No credits were burned.")
	}
	if p.tx, err = toll.ParseHash(s.Transaction); err != nil {
		return p, receiptFault("The transaction in this receipt is not a valid transaction hash.")
	}
	extra := cmp.Or(s.Extra, new(x402.SettleExtra))
	p.payer, p.plan, p.credits = s.Payer, extra.PlanID, cmp.Or(s.CreditsRedeemed, extra.CreditsRedeemed)
	if signed, ok := x402.ReceiptOf(s.Extensions); ok {
		p.signed = &signed
	}
	return p, nil
}

type receiptFault string

func (f receiptFault) Error() string { return string(f) }

const errNoReceipt = receiptFault("This is not a receipt. Paste the value of the payment-response header, its decoded JSON, a signed receipt (JWS), or a transaction hash.")

// checkReceipt says what a receipt proves: whose signature it has, that the ledger has its burn in
// the chain of its account, and that the burn is in the mirror on the chain.
func (w *pages) checkReceipt(c *page.Context) (page.View, error) {
	c.At = page.PathReceipts
	body := receiptPage{Text: strings.TrimSpace(c.Form.Get("receipt"))}
	var p pasted
	var err error = errNoReceipt
	if body.Text != "" && len(body.Text) <= maxReceipt {
		p, err = readReceipt(body.Text)
	}
	if err == nil && p.signed != nil {
		err = w.checkSignature(c, &body, &p)
	}
	if err != nil {
		c.Status, c.Fault = http.StatusBadRequest, err.Error()
		return drawPublic(c, "receipts", "Check a receipt", body)
	}
	burn, err := w.Records.Burn(c.Ctx(), p.tx)
	if err != nil && toll.AsError(err).HTTPStatus() != http.StatusNotFound {
		return nil, err
	}
	if body.Holds = err == nil && checkBurn(&body, &p, burn); body.Holds {
		body.Holds = checkMirror(c, &body, p.tx)
	}
	body.Result = "This receipt is not valid."
	if body.Holds {
		body.Result = "Settled. This service burned the credits, and the receipt matches the ledger."
	}
	return drawPublic(c, "receipts", "Check a receipt", body)
}

// checkSignature reads what a signed receipt says. An error is of one that this service did not sign.
func (w *pages) checkSignature(c *page.Context, body *receiptPage, p *pasted) error {
	const bad = receiptFault("This service did not sign this receipt, or the receipt was changed.")
	id := x402.KeyID(p.signed.Signature)
	key, err := x402.StatementKey(w.Records.Auth.DID(), id)
	if err != nil {
		return bad
	}
	r, err := p.signed.Verify(key)
	if err != nil {
		return bad
	}
	tx, err := toll.ParseHash(r.Transaction)
	if err != nil || !p.tx.IsZero() && p.tx != tx {
		return receiptFault("The signature is valid but belongs to another transaction.")
	}
	p.tx, p.payer = tx, cmp.Or(p.payer, r.Payer)
	body.Checks = append(body.Checks, page.Step{
		Title: "Signed by this service", Tone: "good", At: time.Unix(r.IssuedAt, 0),
		Text: "Signed with the key " + page.Short(id[strings.IndexByte(id, '#')+1:]) + " of " + strings.SplitN(id, "#", 2)[0] + " for " + plain.Text(r.ResourceURL, shortText) + ".",
	})
	return nil
}

// checkBurn compares the receipt with the ledger. It reports whether they agree.
func checkBurn(body *receiptPage, p *pasted, burn *records.Burn) bool {
	differs := ""
	switch {
	case !burn.Chained:
		differs = "The ledger entry was changed: its commitment does not match the previous entry."
	case p.credits != nil && *p.credits != burn.Credits:
		differs = fmt.Sprintf("The receipt shows %s, but the ledger shows %s.", p.credits.Text(), burn.Credits.Text())
	case p.plan != "" && p.plan != burn.Plan:
		differs = "The receipt and the ledger name different plans."
	case p.payer != "" && !strings.EqualFold(p.payer, burn.Holder.String()):
		differs = "The receipt and the ledger name different payers."
	}
	if differs != "" {
		body.Checks = append(body.Checks, page.Step{Title: "Different from the ledger", Tone: "bad", Text: differs})
		return false
	}
	body.Checks = append(body.Checks, page.Step{
		Title: "In the ledger", Tone: "good", At: burn.At,
		Text: fmt.Sprintf("Entry %d of the balance. Its commitment is a hash of this entry and the previous commitment, so any change is detected.", burn.Entry),
	})
	body.Facts = []page.Fact{
		{Label: "Transaction", Cell: page.Cell{ID: p.tx.String()}}, {Label: "Settled", Cell: page.Cell{At: burn.At}}, {Label: "Plan", Cell: page.Cell{ID: string(burn.Plan), To: "/p/" + string(burn.Plan)}},
	}
	if p.credits != nil {
		body.Facts = append(body.Facts, page.Fact{Label: "Credits burned", Cell: page.Credits(burn.Credits)})
	}
	if p.payer != "" {
		body.Facts = append(body.Facts, page.Fact{Label: "Payer", Cell: page.Cell{ID: burn.Holder.String()}})
	}
	return true
}

// checkMirror looks the burn up in the mirror on the chain. It reports false for a proof that does
// not hold; a burn that is not there yet is no fault.
func checkMirror(c *page.Context, body *receiptPage, tx toll.Hash) bool {
	proof, err := c.API.BurnProof(c.Acting(), tx)
	s := page.Step{Title: "On-chain proof"}
	switch {
	case err != nil:
		s.Title, s.Text = "Not published on a chain", "The seller has not published the burned credits of this plan, so the signature and the ledger are the proof."
	case proof.Status == toll.ProofOpen:
		s.Title, s.Text = "No on-chain proof yet", "The service writes the Merkle root of all burns to the chain after each period."
	case proof.Fields.Commitment != tx:
		s.Tone, s.Text = "bad", "The proof belongs to another burn."
	default:
		s.Tone = "good"
		s.Text = fmt.Sprintf("Included in the Merkle tree of period %d. The root %s is in transaction %s of contract %s on %s. To check it without this service, run: toll proof verify %s --rpc URL",
			proof.Period, page.Short(proof.Root.String()), proof.AnchorTransaction, proof.Contract, proof.Network, tx)
		if err := proof.Check(); err != nil {
			s.Tone, s.Text = "bad", "The Merkle proof is not valid: "+err.Error()+"."
		}
	}
	body.Checks = append(body.Checks, s)
	return s.Tone != "bad"
}
