package rails

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
)

var errNoDouble = errors.New("this service does not run a card double")

// FillPage pays an order on its page of the double in this process, like a person in a browser who agrees to 3-D Secure. Then it has the rail
// read the payment, like the page to which the browser returns, which decides the order before the webhook arrives. FillPage does nothing for
// an order that is already paid. Errors: [double.ErrDeclined], errors of the rail.
func (p *Cards) FillPage(ctx context.Context, orderID, number string) error {
	if p.double == nil {
		return errNoDouble
	}
	shown, err := p.rail.Page(ctx, orderID, true)
	if err == nil && shown.URL != "" {
		if _, err = double.Fill(ctx, shown.URL, number); err == nil {
			_, err = p.rail.Page(ctx, orderID, false)
		}
	}
	return err
}

// FillEnrolment enrols a test card of an account on the page of the double in this process, and returns its id.
func (p *Cards) FillEnrolment(ctx context.Context, owner toll.Address, number string) (string, error) {
	if p.double == nil {
		return "", errNoDouble
	}
	setup, page, err := p.rail.Enroll(ctx, owner, toll.NewUUID(), p.deps.PublicURL+"/cards/enroll")
	if err != nil {
		return "", err
	}
	if _, err := double.Fill(ctx, page, number); err != nil {
		return "", err
	}
	id, failure, err := p.rail.Enrolled(ctx, owner, setup)
	if err == nil && id == "" {
		err = fmt.Errorf("the card was not enrolled: %s", failure)
	}
	return id, err
}
