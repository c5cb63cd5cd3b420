package double

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// maxPage bounds a page that [Fill] reads, in bytes, and maxForms how many forms it sends.
const (
	maxPage  = 256 << 10
	maxForms = 5
)

var alert = regexp.MustCompile(`(?s)role="alert">(.*?)</p>`)

// Fill pays the page of a session, or saves a card on it, as a person in a browser does who agrees to 3-D Secure. page is the
// address of the session. It returns where the browser goes afterwards. Errors: [ErrDeclined] with what the page says.
func Fill(ctx context.Context, page, number string) (back string, err error) {
	start, err := url.Parse(page)
	if err != nil {
		return "", err
	}
	browser := http.Client{
		Timeout:       20 * time.Second,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	form := url.Values{
		"number": {number}, "expiry": {"12/39"}, "cvc": {"123"}, "name": {"Ada Lovelace"}, "email": {"ada@example.com"},
	}
	for range maxForms {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, page, strings.NewReader(form.Encode()))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := browser.Do(req)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(io.LimitReader(res.Body, maxPage))
		_ = res.Body.Close()
		switch {
		case err != nil:
			return "", err
		case res.StatusCode != http.StatusSeeOther:
			if said := alert.FindSubmatch(text); said != nil {
				return "", fmt.Errorf("%w: %s", ErrDeclined, html.UnescapeString(string(said[1])))
			}
			return "", fmt.Errorf("the page of the card double returned %s", res.Status)
		}
		next, err := res.Location()
		if err != nil {
			return "", err
		}
		if next.Host != start.Host || !strings.HasPrefix(next.Path, "/c/") {
			return next.String(), nil
		}
		page, form = next.String(), url.Values{"result": {"approve"}}
	}
	return "", errors.New("the page of the card double has too many steps")
}

// ErrDeclined says that a page did not take a card.
var ErrDeclined = errors.New("the card was not accepted")
