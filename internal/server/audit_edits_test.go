package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
)

// auditRecords runs the audits that read through one transaction, at a time when the processor has reported everything.
func auditRecords(ctx context.Context, q store.Querier, at time.Time) (found []string, err error) {
	for _, audit := range []func() ([]string, error){
		func() ([]string, error) { return store.AuditOrders(ctx, q) },
		func() ([]string, error) { return store.AuditCards(ctx, q, at) },
		func() ([]string, error) { return store.AuditChains(ctx, q) },
		func() ([]string, error) { return store.AuditLogged(ctx, q) },
	} {
		lines, e := audit()
		found, err = append(found, lines...), errors.Join(err, e)
	}
	return found, err
}

// The audit finds each edit of one row of card money, owners, prices, limits and rights.
func TestAudit_FindsEdits(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		ctx := t.Context()
		c := newCashier(t, o, 1)
		k, method := c.shops("buyer", plainCard)
		limit := c.limit(k, method, 100_000)
		must.Get(c.as(c.builder).CreateKey(ctx, client.KeyParams{
			Name: "limited", Rights: toll.Rights{toll.RightRead}, ExpiresIn: time.Hour,
		}))(t)
		var ids []string
		for i := range 3 {
			made := c.buys(client.WithIdempotencyKey(ctx, fmt.Sprint(i)), k, limit)
			ids = append(ids, made.OrderID)
		}
		c.settled()
		must.Get(c.as(c.builder).RefundOrder(ctx, ids[1], 200))(t)
		for _, p := range c.bank.books().Payments {
			if c.count("SELECT COUNT(*) FROM card_payments WHERE order_id = $1 AND intent_id = $2", ids[2], p.PaymentIntent) == 1 {
				c.bank.fault(double.Fault{Kind: "dispute", Object: p.Charge})
			}
		}
		eventually(t, "the refund and the dispute are seen", func() bool {
			return c.count("SELECT COUNT(*) FROM card_refunds WHERE state = 'succeeded'") == 1 &&
				c.count("SELECT COUNT(*) FROM card_moves") == 5 && c.count("SELECT COUNT(*) FROM orders WHERE dispute = 'open'") == 1
		})
		c.services[0].Kill()
		cfg := server.Config{Data: o.Data, Database: o.Database, MasterKeyFile: o.MasterKeyFile}
		must.Get(admin.MarkPayout(ctx, cfg, rails.Payout{
			ID: toll.NewUUID(), Builder: c.builder.Address, Month: time.Now().UTC().Format("2006-01"), Currency: "usd", Cents: 100,
		}, true))(t)
		st, later := c.store(), time.Now().Add(48*time.Hour)
		defer st.Close()
		if found, err := auditRecords(ctx, st, later); err != nil || len(found) > 0 {
			t.Fatalf("before the edits: %q, %v", found, err)
		}
		paid, refunded, disputed := "'"+ids[0]+"'", "'"+ids[1]+"'", "'"+ids[2]+"'"
		other := "'" + toll.MustAddress("0x1111111111111111111111111111111111111111").Lower() + "'"
		for _, edit := range []string{
			"UPDATE card_payments SET seller = " + other + " WHERE order_id = " + paid,
			"UPDATE card_payments SET payer = " + other + " WHERE order_id = " + paid,
			"UPDATE card_payments SET cents = cents - 100 WHERE order_id = " + paid,
			"UPDATE card_payments SET currency = 'eur' WHERE order_id = " + paid,
			"UPDATE card_payments SET state = 'failed' WHERE order_id = " + paid,
			"UPDATE card_payments SET state = 'rejected' WHERE order_id = " + refunded,
			"UPDATE card_payments SET intent_id = 'pi_other' WHERE order_id = " + refunded,
			"UPDATE card_payments SET charge_id = NULL WHERE order_id = " + paid,
			"UPDATE card_payments SET delegation_id = NULL WHERE order_id = " + paid,
			"UPDATE card_payments SET undecided = (1 = 1) WHERE order_id = " + paid,
			"DELETE FROM card_payments WHERE order_id = " + paid,
			"UPDATE card_moves SET cents = cents + 100 WHERE kind = 'charge' AND order_id = " + paid,
			"UPDATE card_moves SET order_id = " + refunded + " WHERE kind = 'charge' AND order_id = " + paid,
			"UPDATE card_moves SET kind = 'rejected' WHERE kind = 'charge' AND order_id = " + paid,
			"DELETE FROM card_moves WHERE kind = 'charge' AND order_id = " + paid,
			"INSERT INTO card_moves (move_id, order_id, kind, cents, fee, currency, at) VALUES ('txn_x', " + paid + ", 'charge', 500, 0, 'usd', 1)",
			"UPDATE card_moves SET cents = cents + 100 WHERE kind = 'refund'",
			"UPDATE card_moves SET kind = 'rejected' WHERE kind = 'refund'",
			"UPDATE card_moves SET currency = 'eur' WHERE kind = 'refund'",
			"DELETE FROM card_moves WHERE kind = 'refund'",
			"UPDATE card_moves SET cents = cents + 100 WHERE kind = 'dispute'",
			"DELETE FROM card_moves WHERE kind = 'dispute'",
			"UPDATE card_refunds SET cents = 100",
			"UPDATE card_refunds SET state = 'failed'",
			"UPDATE card_refunds SET origin = 'rejected'",
			"UPDATE card_refunds SET order_id = " + paid,
			"DELETE FROM card_refunds",
			"UPDATE card_disputes SET state = 'won', withdrawn = (1 = 0)",
			"UPDATE card_disputes SET withdrawn = (1 = 0)",
			"UPDATE card_disputes SET cents = 1",
			"DELETE FROM card_disputes",
			"UPDATE orders SET refunded_cents = 100 WHERE order_id = " + refunded,
			"UPDATE orders SET refunded_cents = 100 WHERE order_id = " + paid,
			"UPDATE orders SET dispute = 'won' WHERE order_id = " + disputed,
			"UPDATE orders SET seller = " + other + " WHERE order_id = " + paid,
			"UPDATE orders SET subscriber = " + other + " WHERE order_id = " + paid,
			"UPDATE orders SET amount = '4000000' WHERE order_id = " + paid,
			"UPDATE card_payouts SET cents = 1",
			"UPDATE card_payouts SET seller = " + other,
			"UPDATE card_payouts SET month = '2020-01'",
			"DELETE FROM card_payouts",
			"INSERT INTO card_payouts (payout_id, seller, month, currency, cents, note, paid_at) VALUES ('x', " + other + ", '2026-01', 'usd', 5, '', 1)",
			"UPDATE plans SET owner = " + other,
			"UPDATE plans SET max_orders = 7",
			"UPDATE plans SET price = REPLACE(price, '5000000', '5000001')",
			"UPDATE delegations SET limit_cents = limit_cents + 1",
			"UPDATE delegations SET expires_at = expires_at + 86400000000",
			"UPDATE delegations SET owner = " + other,
			"UPDATE api_keys SET rights = REPLACE(rights, 'read', 'money') WHERE name = 'limited'",
			"UPDATE api_keys SET expires_at = 0 WHERE name = 'limited'",
			"UPDATE api_keys SET address = " + other + " WHERE name = 'limited'",
			"UPDATE audit_log SET detail = REPLACE(detail, '5000000', '5000001') WHERE act = 'plan.created'",
			"INSERT INTO memberships (workspace, user_id, role, created_at) SELECT address, account_id, 'admin', 1 FROM api_keys, accounts LIMIT 1",
		} {
			undo := errors.New("undo")
			err := st.Tx(ctx, func(tx *store.Tx) error {
				if n, err := tx.Exec(ctx, edit); err != nil || n != 1 {
					return fmt.Errorf("%d rows, %w", n, err)
				}
				found, err := auditRecords(ctx, tx, later)
				if err != nil {
					return err
				}
				if len(found) == 0 {
					t.Errorf("not found: %s", edit)
				}
				return undo
			})
			if !errors.Is(err, undo) {
				t.Errorf("%s: %v", edit, err)
			}
		}
	})
}
