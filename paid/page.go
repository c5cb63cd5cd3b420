package paid

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the script of the page
	"encoding/base64"
	"errors"
	"html"
	"net/http"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

// asksPerson reports whether a person opened the URL in a browser: a GET or HEAD navigation that prefers HTML to JSON. Programs do
// not send such an Accept header, and a fetch from a page is not a navigation.
func asksPerson(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	accept := r.Header.Get("Accept")
	at := strings.Index(accept, "text/html")
	if at < 0 {
		return false
	}
	if json := strings.Index(accept, "application/json"); json >= 0 && json < at {
		return false
	}
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate"
}

const pageStyle = `:root{color-scheme:light dark}*{box-sizing:border-box}
body{margin:0;min-height:100vh;display:grid;place-items:center;padding:16px;font:15px/1.5 system-ui,sans-serif;
background:light-dark(#fbfbfa,#131311);color:light-dark(#1b1b18,#f1f0ec)}
main{width:min(480px,100%);padding:32px;border:1px solid light-dark(#e6e5e1,#2c2c28);border-radius:10px;
background:light-dark(#fff,#1b1b18);overflow-wrap:anywhere}
h1{font-size:24px;line-height:1.25;letter-spacing:-.02em;margin:4px 0 16px}
p{margin:12px 0 0;color:light-dark(#5c5b55,#b4b2a9)}.at{margin:0;font:13px ui-monospace,monospace}
a,button{display:block;width:100%;margin-top:24px;padding:10px;border:0;border-radius:6px;font:inherit;text-align:center;font-weight:600;
text-decoration:none;cursor:pointer;background:light-dark(#0b6e63,#4fc3b0);color:light-dark(#fff,#06211d)}
a+button,button+button{margin-top:12px}[hidden]{display:none}
pre{max-height:320px;overflow:auto;white-space:pre-wrap;font:13px/1.5 ui-monospace,monospace}
small{font-size:13px}code{font-size:.93em}`

// pageScript pays for one request with a browser wallet. Only a page on this server can show the response in this browser.
//
//go:embed page.js
var pageScript string

// Content security policies of the page. They allow its style and, with prices for wallets, its script and the connections of
// the script to this server.
var (
	pagePolicy   = policyOf("")
	walletPolicy = policyOf("; script-src '" + hashOf(pageScript) + "'; connect-src 'self'")
)

func policyOf(more string) string {
	return "default-src 'none'; style-src '" + hashOf(pageStyle) + "'" + more + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// signable is a payment that the script completes with the signature of a wallet.
type signable struct {
	X402Version int                    `json:"x402Version"`
	Resource    x402.Resource          `json:"resource"`
	Accepted    x402.ExactRequirements `json:"accepted"`
}

// walletButtons returns the HTML of one button per wallet price. The script of the page handles them.
func (x *exchange) walletButtons(exact []x402.ExactRequirements) (string, error) {
	var b strings.Builder
	for _, e := range exact {
		units, err1 := toll.ParseUnits(e.Amount)
		payment, err2 := x402.Encode(signable{2, x.required.Resource, e})
		if err := errors.Join(err1, err2); err != nil {
			return "", err
		}
		currency := toll.CurrencyUSDC
		if e.Extra.Name == "EURC" {
			currency = toll.CurrencyEURC
		}
		b.WriteString(`<button type="button" hidden data-payment="` + html.EscapeString(string(payment)) + `">Pay ` +
			toll.FormatAmount(units, 6) + " " + strings.ToUpper(currency) + " for this request from a wallet</button>\n")
	}
	return b.String(), nil
}

// writePage sends the body of a 402 as a page for a person who sent a request without a payment. The page shows the price of the
// request, links to the plan, and has a button for each wallet price. The headers for programs are the same as with a JSON body,
// and were set before.
func (x *exchange) writePage(exact []x402.ExactRequirements) {
	cost := x.required.Accepts[0].Amount
	switch {
	case !x.terms.Kind.Charges():
		cost = "requires a plan"
	case cost == "":
		cost = "costs credits"
	default:
		if n, err := strconv.ParseInt(cost, 10, 64); err == nil {
			cost = toll.Credits(n).Text()
		}
		if x.c.creditsFunc != nil {
			cost = "up to " + cost
		}
		cost = "costs " + cost + " per request"
	}
	name := cmp.Or(plain.Name(x.terms.PlanName), "without a name")
	var b strings.Builder
	line := func(before, text, after string) { b.WriteString(before + html.EscapeString(text) + after + "\n") }
	b.WriteString("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"robots\" content=\"noindex\">\n" +
		"<title>Payment required</title>\n<style>" + pageStyle + "</style>\n</head>\n<body>\n<main>\n")
	line(`<p class="at">`, plain.Text(x.resource(), maxErrorText), "</p>")
	line("<h1>This endpoint ", cost, "</h1>")
	if x.c.description != "" {
		line("<p>", plain.Text(x.c.description, maxErrorText), "</p>")
	}
	line("<p>Included in the plan <b><bdi>", name, "</bdi></b>.</p>")
	if page := x.terms.PlanPage(x.c.AgentID); page != "" {
		line(`<a href="`, page, `">See the price and buy</a>`)
	}
	policy, script := pagePolicy, ""
	if buttons, err := x.walletButtons(exact); err == nil && buttons != "" {
		policy, script = walletPolicy, "<script>"+pageScript+"</script>\n"
		b.WriteString(buttons + "<p role=\"alert\"></p>\n<pre hidden></pre>\n")
	}
	b.WriteString("<p><small>Programs send an access token for the plan in the header <code>" +
		html.EscapeString(x.c.tokenHeaders[0]) + "</code>. This request was not processed, and nothing was charged.</small></p>\n</main>\n" + script + "</body>\n</html>\n")
	h := x.w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	write(x.w, http.StatusPaymentRequired, "text/html; charset=utf-8", []byte(b.String()), x.correlation)
}
