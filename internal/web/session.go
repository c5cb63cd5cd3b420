package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

const (
	// idleTime ends a session that is not used, and longestTime every session.
	idleTime    = 12 * time.Hour
	longestTime = 7 * 24 * time.Hour
	// freshTime is how long after a sign-in a person may give access to others without another one.
	freshTime = time.Hour
)

// Members of a session.
const (
	sessionAddress = "address"
	sessionKey     = "key" // id of the API key of the sign-in
	sessionSince   = "since"
)

// person is who signed in: with an API key, whose rights the session has.
type person struct {
	auth.Caller
	Since time.Time // of the sign-in
}

func newSessions(d Deps, origin *url.URL) *scs.SessionManager {
	// scs.New would start a sweeper of a store in memory, which nobody can end.
	m := &scs.SessionManager{
		Store: sessionStore{store: d.Store, clock: d.Clock}, HashTokenInStore: true, Codec: scs.GobCodec{}, IdleTimeout: idleTime, Lifetime: longestTime,
		Cookie: scs.SessionCookie{Name: "session", HttpOnly: true, Path: "/", SameSite: http.SameSiteLaxMode},
		ErrorFunc: func(w http.ResponseWriter, r *http.Request, err error) {
			d.Log.ErrorContext(r.Context(), "session of a browser", slog.Any("err", err))
			http.Error(w, "The service cannot answer now. Try again.", http.StatusServiceUnavailable)
		},
	}
	if origin.Scheme == "https" {
		m.Cookie.Secure, m.Cookie.Name = true, "__Host-session"
	} else if origin.Port() != "" {
		m.Cookie.Name = "session-" + origin.Port() // browsers give the cookies of one port to all ports of a host
	}
	return m
}

// person returns who signed in, nil for nobody. A session ends with the API key of its sign-in.
func (w *Web) person(ctx context.Context) (*person, error) {
	text := w.sessions.GetString(ctx, sessionAddress)
	if text == "" {
		return nil, nil
	}
	address, err1 := toll.ParseAddress(text)
	id, err2 := toll.ParseHash(w.sessions.GetString(ctx, sessionKey))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	key, err := w.Auth.Key(ctx, address, id)
	if err != nil && toll.AsError(err).Code != toll.CodeKeyNotFound {
		return nil, err
	}
	if err != nil || key.Status != toll.StatusActive {
		return nil, w.sessions.Destroy(ctx)
	}
	caller := auth.Caller{Address: address, KeyID: id, Rights: key.Rights, MadeBy: key.MadeBy}
	if key.ExpiresAt != nil {
		caller.Ends = key.ExpiresAt.Time
	}
	return &person{Caller: caller, Since: store.FromMicros(w.sessions.GetInt64(ctx, sessionSince))}, nil
}

// admit begins a session for the owner of an API key. The session that the browser had before is over.
func (w *Web) admit(ctx context.Context, key string) (*person, error) {
	if key = strings.TrimSpace(key); key == "" {
		return nil, toll.Errorf(toll.CodeNotAuthenticated, "Paste an API key.")
	}
	caller, err := w.Auth.Authenticate(ctx, []string{"Bearer " + key})
	if err != nil {
		return nil, err
	}
	if !caller.Rights.Has(toll.RightRead) {
		return nil, auth.Lacks(toll.RightRead)
	}
	if e := w.signIns.Take(caller.Address, 1); e != nil {
		return nil, e
	}
	if err := w.sessions.RenewToken(ctx); err != nil {
		return nil, err
	}
	now := w.Clock().UTC().Truncate(time.Microsecond)
	w.sessions.Put(ctx, sessionAddress, caller.Address.String())
	w.sessions.Put(ctx, sessionKey, caller.KeyID.String())
	w.sessions.Put(ctx, sessionSince, store.Micros(now))
	return &person{Caller: caller, Since: now}, nil
}

// fresh reports whether the person signed in a short time ago.
func (w *Web) fresh(p *person) bool {
	return p != nil && w.Clock().Sub(p.Since) < freshTime
}

// ticket names a form that is shown in the session of the context, with all that the form says. Nobody else can make it:
// its key is what only the cookie of the browser holds.
func (w *Web) ticket(ctx context.Context, says ...string) string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails since Go 1.24
	nonce := base64.RawURLEncoding.EncodeToString(b)
	return nonce + "." + w.proof(ctx, nonce, says)
}

// holds reports whether a form was shown in this session, and said this.
func (w *Web) holds(ctx context.Context, ticket string, says ...string) bool {
	nonce, proof, _ := strings.Cut(ticket, ".")
	return w.sessions.Token(ctx) != "" && hmac.Equal([]byte(proof), []byte(w.proof(ctx, nonce, says)))
}

func (w *Web) proof(ctx context.Context, nonce string, says []string) string {
	mac := hmac.New(sha256.New, []byte(w.sessions.Token(ctx)))
	for _, s := range append([]string{nonce}, says...) {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		mac.Write([]byte(s))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// sessionStore keeps sessions in the database. The library calls the methods with a context alone, so those without are nil.
type sessionStore struct {
	scs.Store
	store *store.Store
	clock func() time.Time
}

var _ scs.CtxStore = sessionStore{}

// found is, in the context of one request, the token of the session that it came with. That session is changed and not
// made again, so that a request that is under way while the person signs out does not bring it back.
type found struct{ token string }

type foundKey struct{}

func withFound(ctx context.Context) context.Context {
	return context.WithValue(ctx, foundKey{}, &found{})
}

func (s sessionStore) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	row, err := store.BrowserSessionByToken(ctx, s.store, token)
	if errors.Is(err, store.ErrNotFound) || err == nil && !s.clock().Before(row.ExpiresAt) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if f, ok := ctx.Value(foundKey{}).(*found); ok {
		f.token = token
	}
	return row.Data, true, nil
}

func (s sessionStore) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	// The library goes by the time of this machine, which a sandbox may have left behind.
	now := s.clock()
	row := store.BrowserSession{Token: token, Data: data, ExpiresAt: now.Add(time.Until(expiry))}
	return s.store.Tx(ctx, func(tx *store.Tx) error {
		if f, ok := ctx.Value(foundKey{}).(*found); ok && f.token == token {
			return store.UpdateBrowserSession(ctx, tx, row)
		}
		return store.InsertBrowserSession(ctx, tx, row, now)
	})
}

func (s sessionStore) DeleteCtx(ctx context.Context, token string) error {
	return s.store.Tx(ctx, func(tx *store.Tx) error { return store.DeleteBrowserSession(ctx, tx, token) })
}
