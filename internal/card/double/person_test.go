package double_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/card/double"
)

// A person pays with a card that asks for 3-D Secure, and is told why another one is not taken.
func TestFill(t *testing.T) {
	s := start(t)
	page := s.session(payment(500))
	if _, err := double.Fill(s.ctx, page.URL, "4000 0000 0000 9995"); !errors.Is(err, double.ErrDeclined) || !strings.HasSuffix(err.Error(), "declined.") {
		t.Errorf("a card without money: %v", err)
	}
	for range 2 { // the second time it is paid already
		if back, err := double.Fill(s.ctx, page.URL, "4000002500003155"); err != nil || back != "https://shop.example/done?s="+page.ID {
			t.Errorf("%q, %v", back, err)
		}
	}
	if b := s.d.Books(); len(b.Payments) != 1 {
		t.Errorf("the books are %+v", b)
	}
	if _, err := double.Fill(s.ctx, s.url+"/c/pay/cs_test_none", "4242424242424242"); err == nil || errors.Is(err, double.ErrDeclined) {
		t.Errorf("no page: %v", err)
	}
}
