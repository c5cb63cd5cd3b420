package web

import (
	"net/http"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// PathEnroll is the page on which a person enrols a card.
const PathEnroll = "/cards/enroll"

// formEnroll is the first word of what the ticket of that form says.
const formEnroll = "enroll"

// enrollPage is the form that begins an enrolment, and what became of the last one.
type enrollPage struct {
	Test   bool   // no money moves
	Ticket string // "": there is no form
	Card   string // that was enrolled; "" for none
	ID     string // of Card
	Open   bool   // the last enrolment has no card yet
	Link   string // path and query of this page
	Page   string // address of the page of the processor, where the browser goes next
}

// Enroll is GET and POST /cards/enroll: a person who signed in goes to the page of the processor to
// have a card saved, and comes back with the id of the enrolment, which tells nothing (T79): the rail
// asks the processor.
func (w *Web) Enroll() http.Handler {
	return w.page(func(v *visit) {
		if !mayEnroll(v) {
			return
		}
		if id := v.r.URL.Query().Get("setup"); id != "" {
			showEnrolled(v, id)
			return
		}
		askEnroll(v, http.StatusOK, "")
	}, func(v *visit) {
		v.at = PathEnroll
		if !mayEnroll(v) {
			return
		}
		if !v.holds(v.form.Get("ticket"), formEnroll) {
			askEnroll(v, http.StatusForbidden, "The form is not one of this session. Send it once more.")
			return
		}
		_, page, err := w.Cards.Enroll(v.ctx(), v.person.Address, w.Source(v.r), v.origin()+PathEnroll)
		if e := toll.AsError(err); err != nil && e.HTTPStatus() == http.StatusTooManyRequests {
			tooMany(v, e)
			return
		}
		if err != nil {
			v.fail(err)
			return
		}
		// A redirect would have to be within form-action, and the page may be at a host of the operator.
		body := enrollPage{Test: w.Environment != toll.Live, Page: page}
		v.show(http.StatusOK, "enroll", shown{Title: "The card page opens", Body: body, Refresh: page}, "")
	})
}

// mayEnroll reports whether a person may enrol cards. When not, the answer was written.
func mayEnroll(v *visit) bool {
	switch {
	case v.w.Cards == nil:
		noCards(v)
	case v.person == nil:
		askSignIn(v, http.StatusOK, "Sign in to enrol a card.", v.here(), "")
	case !v.person.Rights.Has(toll.RightSpend):
		v.refuseNext(http.StatusForbidden, auth.Lacks(toll.RightSpend).Text(), "Sign out, and sign in with an API key that has it.")
	default:
		return true
	}
	return false
}

func askEnroll(v *visit, status int, fault string) {
	body := enrollPage{Test: v.w.Environment != toll.Live, Ticket: v.ticket(formEnroll)}
	v.show(status, "enroll", shown{Title: "Enrol a card", Fault: fault, Body: body}, "")
}

// showEnrolled shows what became of an enrolment of the person.
func showEnrolled(v *visit, id string) {
	if !mayAsk(v, v.person.Address) {
		return
	}
	method, failure, err := v.w.Cards.Enrolled(v.ctx(), v.person.Address, id)
	if err != nil {
		v.fail(err)
		return
	}
	body := enrollPage{Test: v.w.Environment != toll.Live, Link: v.here()}
	title := "The card is enrolled"
	switch {
	case method != "":
		m, err := store.PaymentMethodByID(v.ctx(), v.w.Store, v.person.Address, method)
		if err != nil {
			v.fail(err)
			return
		}
		body.ID, body.Card = m.ID, cardText(m)
	case failure != "":
		title, body.Ticket = "No card is enrolled", v.ticket(formEnroll)
	default:
		title, body.Open, body.Ticket = "No card is enrolled yet", true, v.ticket(formEnroll)
	}
	v.show(http.StatusOK, "enroll", shown{Title: title, Fault: failure, Body: body}, "")
}

// cardText is a card as its owner knows it.
func cardText(m *store.PaymentMethod) string {
	text := plain.Name(m.Brand) + " card ending in " + plain.Name(m.Last4)
	if m.ExpMonth > 0 {
		text += ", valid until " + strconv.FormatInt(100+m.ExpMonth, 10)[1:] + "/" + strconv.FormatInt(m.ExpYear, 10)
	}
	return text
}
