package server

import (
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/checkout"
)

// PaymentOf is what checkout is told of an outcome.
func PaymentOf(o chain.Outcome) checkout.Payment { return paymentOf(o) }
