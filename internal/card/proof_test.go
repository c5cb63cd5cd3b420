package card_test

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"strings"
	"sync"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// audit proves that credits, orders and money agree on both sides, to the cent.
func (s *scene) audit() {
	s.Helper()
	ctx := context.Background()
	found, err := s.ledger.Audit(ctx)
	orders, err2 := store.AuditOrders(ctx, s.store)
	cards, err3 := store.AuditCards(ctx, s.store, s.clock())
	if err := errors.Join(err, err2, err3); err != nil || len(found)+len(orders)+len(cards) > 0 {
		s.Error(err, found, orders, cards)
	}
	if s.others {
		return
	}
	books := s.double.Books()
	type sum struct{ net, fees int64 }
	ours, theirs := map[string]sum{}, map[string]sum{}
	for currency, b := range books.Currencies {
		theirs[currency] = sum{b.Net, b.Fees}
	}
	rows, err := s.store.Query(ctx, "SELECT currency, CAST(SUM(cents - fee) AS BIGINT), CAST(SUM(fee) AS BIGINT) FROM card_moves GROUP BY currency")
	if err != nil {
		s.Error(err)
		return
	}
	for rows.Next() {
		var currency string
		var v sum
		must.Check(s, rows.Scan(&currency, &v.net, &v.fees))
		ours[currency] = v
	}
	if rows.Close(); rows.Err() != nil {
		s.Error(rows.Err())
	}
	if !maps.Equal(ours, theirs) {
		s.Errorf("the books differ: ours %+v, of the double %+v", ours, theirs)
	}
	// I13: each captured payment is that of an order, goes back, or is an orphan.
	for _, b := range books.Payments {
		n := s.countOf(ctx, `SELECT (SELECT COUNT(*) FROM card_payments WHERE intent_id = $1 AND state = 'paid')
			+ (SELECT COUNT(*) FROM card_refunds WHERE intent_id = $1 AND origin = 'rejected')
			+ (SELECT COUNT(*) FROM card_orphans WHERE object_id = $1)`, b.PaymentIntent)
		if n == 0 && b.Refunded != b.Captured {
			s.Errorf("nothing explains the payment %+v", b)
		}
	}
	// I12: each paid order is one mint, and each mint one paid order.
	if n := s.countOf(ctx, `SELECT COUNT(*) FROM card_payments p LEFT JOIN orders o ON o.order_id = p.order_id
		WHERE NOT p.undecided AND (p.state = 'paid') <> (COALESCE(o.status, '') IN ('confirmed', 'final'))`); n != 0 {
		s.Errorf("%d payments and their orders disagree", n)
	}
}

// secrets are what nothing may hold after it: client secrets, keys and webhook secrets of Stripe, addresses of its pages, and
// numbers of cards.
var secrets = regexp.MustCompile(`_secret_[0-9A-Za-z]|sk_test_|whsec_|/c/(?:pay|embed|authenticate)/|\b(?:4\d{3} ?(?:\d{4} ?){3})\b`)

// silent proves that no log line, no record and no event has a secret, whatever the test did.
func (s *scene) silent() {
	s.Helper()
	places := s.log.with("")
	rows, err := s.store.Query(context.Background(), `SELECT data FROM card_payments UNION ALL SELECT params FROM card_calls
		UNION ALL SELECT reason FROM card_refunds UNION ALL SELECT reason FROM card_disputes UNION ALL SELECT reason FROM card_orphans
		UNION ALL SELECT failure_reason FROM orders UNION ALL SELECT COALESCE(failure_params, '') FROM orders UNION ALL SELECT data FROM events`)
	if err != nil {
		s.Error(err)
		return
	}
	for rows.Next() {
		var text string
		must.Check(s, rows.Scan(&text))
		places = append(places, text)
	}
	if rows.Close(); rows.Err() != nil {
		s.Error(rows.Err())
	}
	for _, text := range places {
		if found := secrets.FindString(text); found != "" {
			s.Errorf("a secret (%q) is in %s", found, text)
		}
	}
}

func (s *scene) countOf(ctx context.Context, statement string, args ...any) (n int64) {
	must.Check(s, s.store.QueryRow(ctx, statement, args...).Scan(&n))
	return n
}

// logs keeps log lines.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

func (l *logs) with(text string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}
