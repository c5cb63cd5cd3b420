package ledger

import "github.com/tollhq/toll"

// countOrder counts an order on its permission, or takes the count back.
type countOrder struct {
	account    AccountID
	permission toll.Hash // zero: none
	by         int64
}

func (o countOrder) accountID() AccountID { return o.account }

func (o countOrder) needs(n *needs) { n.permission(o.permission) }

func (o countOrder) apply(s *state, _ bool) (any, error) {
	if o.permission.IsZero() {
		return nil, nil
	}
	if o.by < 0 {
		s.countOrder(o.permission, o.by)
		return nil, nil
	}
	p, err := s.usable(o.permission)
	if err != nil {
		return nil, err
	}
	if p.OrderLimit != nil && p.Orders >= *p.OrderLimit {
		return nil, refuse(OrderLimit)
	}
	p.Orders += o.by
	p.changed, p.cold = true, true
	return nil, nil
}

// countOrder changes how many orders count on a permission, whatever its state and its limit: money has moved, or came back.
func (s *state) countOrder(permission toll.Hash, by int64) {
	if p := s.perms[permission]; p != nil && p.Orders+by >= 0 {
		p.Orders += by
		p.changed, p.cold = true, true
	}
}
