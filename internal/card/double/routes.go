package double

import (
	"net/http"
	"strings"
)

// apiRoutes are the paths of Stripe that the double has, by the permission that they need.
func apiRoutes() map[string][]*route {
	const read, post = http.MethodGet, http.MethodPost
	none := takes("")
	return map[string][]*route{
		"account": {
			{read, "account", none, (*call).getAccount},
		},
		"customer": {
			{post, "customers", takes(customerParams), (*call).createCustomer},
			{read, "customers", pages(""), listing("customer", "cus_")},
			{read, "customers/{id}", none, get("customer", "cus_")},
		},
		"payment_method": {
			{read, "payment_methods", pages("customer!"), listing("PaymentMethod", "pm_")},
			{read, "payment_methods/{id}", none, get("PaymentMethod", "pm_")},
			{post, "payment_methods/{id}/attach", takes("customer!"), (*call).attachMethod},
			{post, "payment_methods/{id}/detach", none, (*call).detachMethod},
		},
		"checkout_session": {
			{post, "checkout/sessions", takes(sessionParams), (*call).createSession},
			{read, "checkout/sessions", pages("customer"), listing("checkout.session", "cs_")},
			{read, "checkout/sessions/{id}", none, get("checkout.session", "cs_")},
			{post, "checkout/sessions/{id}/expire", none, (*call).expireSession},
		},
		"setup_intent": {
			{read, "setup_intents/{id}", none, get("setupintent", "seti_")},
			{read, "setup_attempts", pages("setup_intent!"), listing("setupattempt", "setatt_")},
		},
		"payment_intent": {
			{post, "payment_intents", takes(intentParams), (*call).createIntent},
			{read, "payment_intents", pages("customer"), listing("payment_intent", "pi_")},
			{read, "payment_intents/{id}", none, get("payment_intent", "pi_")},
			{post, "payment_intents/{id}/cancel", none, (*call).cancelIntent},
		},
		"charge": {
			{read, "charges/{id}", none, get("charge", "ch_")},
			{post, "refunds", takes(refundParams), (*call).createRefund},
			{read, "refunds", pages("charge payment_intent"), listing("refund", "re_")},
			{read, "refunds/{id}", none, get("refund", "re_")},
		},
		"dispute": {
			{read, "disputes", pages("charge payment_intent"), listing("dispute", "dp_")},
			{read, "disputes/{id}", none, get("dispute", "dp_")},
		},
		"balance": {
			{read, "balance_transactions/{id}", none, get("balance transaction", "txn_")},
		},
		"event": {
			{read, "events", pages("type types.*"), listing("event", "evt_")},
			{read, "events/{id}", none, get("event", "evt_")},
		},
		"webhook": {
			{read, "webhook_endpoints", pages(""), (*call).listWebhooks},
		},
	}
}

func (d *Double) routes() http.Handler {
	mux := http.NewServeMux()
	for permission, routes := range apiRoutes() {
		for _, rt := range routes {
			mux.HandleFunc(rt.method+" /v1/"+rt.path, d.serve(rt, permission))
		}
	}
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		f := invalidParam("", "", "Unrecognized request URL (%s: %s).", r.Method, r.URL.Path)
		f.status = http.StatusNotFound
		writeJSON(w, nil, f)
	})
	mux.HandleFunc("GET /c/pay/{id}", d.page((*call).showSession))
	mux.HandleFunc("POST /c/pay/{id}", d.page((*call).submitSession))
	mux.HandleFunc("GET /c/embed/{secret}", d.page((*call).showSession))
	mux.HandleFunc("POST /c/embed/{secret}", d.page((*call).submitSession))
	mux.HandleFunc("GET /c/authenticate/{secret}", d.page((*call).showAuthentication))
	mux.HandleFunc("POST /c/authenticate/{secret}", d.page((*call).submitAuthentication))
	mux.HandleFunc("GET /dahlia/stripe.js", script)
	mux.HandleFunc("GET /dahlia/leave.js", script)
	mux.HandleFunc("POST /_double/faults", d.command(d.postFault))
	mux.HandleFunc("GET /_double/books", d.command(d.getBooks))
	return d.named(mux)
}

// named refuses requests from this machine that name another host than this machine or PublicURL: those of a page in its browser whose name
// leads here (DNS rebinding). A double takes any test key, unless it was given one.
func (d *Double) named(next http.Handler) http.Handler {
	_, public, _ := strings.Cut(d.opts.PublicURL, "://")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback(r.RemoteAddr) && !loopback(r.Host) && r.Host != public {
			writeJSON(w, nil, &failure{status: http.StatusForbidden, Type: "invalid_request_error", Message: "The Host header does not name the card double"})
			return
		}
		next.ServeHTTP(w, r)
	})
}
