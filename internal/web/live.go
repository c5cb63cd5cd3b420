package web

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tollhq/toll"
)

// PathLive is where a page of a workspace waits for news of it.
const PathLive = "/w/{workspace}/live"

// liveWait is how long a page waits for news before it asks again: below the minute after which
// proxies cut idle connections.
const liveWait = 25 * time.Second

// Live is GET /w/{workspace}/live?after=N. It answers with the length of the stream of events of the
// workspace as soon as that is above N, or after a time, as text. The page then reads itself again.
// It writes no session: what another request changed meanwhile would be lost, and a page that waits
// must not keep a session alive.
func (w *Web) Live() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Cache-Control", "no-store")
		last, err := w.wait(r)
		if err != nil {
			e := toll.AsError(err)
			http.Error(rw, e.Text(), e.HTTPStatus())
			return
		}
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = rw.Write([]byte(strconv.FormatInt(last, 10))) // the browser has gone; there is nobody to tell
	})
}

func (w *Web) wait(r *http.Request) (int64, error) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return 0, toll.Errorf(toll.CodeBadRequest, "after must be a whole number.")
	}
	c, err := r.Cookie(w.sessions.Cookie.Name)
	if err != nil {
		return 0, toll.NewError(toll.CodeNotAuthenticated)
	}
	ctx, err := w.sessions.Load(withVisited(r.Context()), c.Value)
	if err != nil {
		return 0, err
	}
	p, err := w.person(ctx, workspaceOf(r))
	switch {
	case errors.Is(err, errNotMember):
		return 0, &toll.Error{
			Code: toll.CodeForbidden, Status: http.StatusNotFound, Message: "There is no such workspace, or you are not a member of it.",
		}
	case err != nil:
		return 0, err
	case p == nil || !p.Rights.Has(toll.RightRead):
		return 0, toll.NewError(toll.CodeNotAuthenticated)
	}
	return w.Events.Wait(ctx, p.Address, c.Value, after, liveWait)
}
