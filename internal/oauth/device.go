package oauth

import (
	"context"
	"crypto/rand"
	"errors"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

const (
	// deviceLife is how long a device waits for a person, and pollSecs how long in between its questions.
	deviceLife = 10 * time.Minute
	pollSecs   = 5
	// pollSlack is what a question may come early, as clocks and networks go.
	pollSlack = 500 * time.Millisecond
	// maxDevices bounds the devices that wait, and maxDevicesOfSource those of one source.
	maxDevices         = 10_000
	maxDevicesOfSource = 20

	// userAlphabet has no vowels, so that codes are no words, and nothing that looks like something else (RFC 8628, section 6.1).
	userAlphabet = "BCDFGHJKLMNPQRSTVWXZ"
	userLetters  = 8

	// maxGuesses is how many codes one person may type wrongly in guessWindow.
	maxGuesses  = 10
	guessWindow = 10 * time.Minute
)

// DeviceRequest is what a device asks a person for.
type DeviceRequest struct {
	Client   Client
	UserCode string // as it is shown: XXXX-XXXX
	Source   string // network address of who asked
	Asked
	CreatedAt time.Time
	ExpiresAt time.Time
}

// device is the answer of the device authorization endpoint (RFC 8628, section 3.2).
type device struct {
	DeviceCode      string `json:"device_code"`
	UserCode        string `json:"user_code"`
	VerificationURI string `json:"verification_uri"`
	Complete        string `json:"verification_uri_complete"`
	ExpiresIn       int64  `json:"expires_in"` // seconds
	Interval        int64  `json:"interval"`   // seconds
}

// DeviceAuthorization is POST /oauth/device_authorization: a device gets a code that a person types into a browser.
func (o *OAuth) DeviceAuthorization() http.Handler { return o.endpoint(o.beginDevice) }

func (o *OAuth) beginDevice(w http.ResponseWriter, r *http.Request) (any, error) {
	form, err := readForm(w, r)
	if err != nil {
		return nil, err
	}
	who, err := credentialsOf(r, form)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	source := o.source(r)
	if !o.allows(o.devices, sourceOf(ctx)) {
		return nil, tooMany("Too many device requests from your network. Try again later.")
	}
	client, err := o.authenticate(ctx, who)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(client.grants, grantDevice) {
		return nil, refused("unauthorized_client", "The client is not registered for the device grant.")
	}
	ask, err := o.read(ctx, client, form)
	if err != nil {
		return nil, err
	}
	code, user := random(), userCode()
	now := o.Clock()
	err = o.Store.Tx(ctx, func(tx *store.Tx) error {
		all, of, err := store.CountOAuthDevices(ctx, tx, now, maxDevices, sourceOf(ctx), maxDevicesOfSource)
		switch {
		case err != nil:
			return err
		case of == maxDevicesOfSource:
			return tooMany("Too many devices in your network wait for approval. A code expires after ten minutes.")
		case all == maxDevices:
			return tooMany("Too many devices wait for approval. Try again later.")
		}
		return store.InsertOAuthDevice(ctx, tx, store.OAuthDevice{
			Hash: sumOf(code), UserHash: sumOf(bareCode(user)), ClientID: client.ID, Scope: ask.Scope, Resource: ask.Resource,
			PlanID: ask.PlanID, AgentID: ask.AgentID, Source: source, Counted: sourceOf(ctx), CreatedAt: now, ExpiresAt: now.Add(deviceLife), PollSecs: pollSecs,
		})
	})
	if err != nil {
		return nil, err
	}
	page := o.Issuer + "/device"
	return &device{
		DeviceCode: code, UserCode: user, VerificationURI: page, Complete: page + "?" + url.Values{"user_code": {user}}.Encode(),
		ExpiresIn: int64(deviceLife / time.Second), Interval: pollSecs,
	}, nil
}

// userCode returns a fresh code for a person: 20^8 of them exist.
func userCode() string {
	var b strings.Builder
	most := big.NewInt(int64(len(userAlphabet)))
	for i := range userLetters {
		if i == userLetters/2 {
			b.WriteByte('-')
		}
		n, _ := rand.Int(rand.Reader, most) // never fails since Go 1.24
		b.WriteByte(userAlphabet[n.Int64()])
	}
	return b.String()
}

// bareCode returns a code as it is stored, of what a person typed.
func bareCode(typed string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			r -= 'a' - 'A'
		}
		if strings.ContainsRune(userAlphabet, r) {
			return r
		}
		return -1
	}, typed)
}

var (
	errNoDevice = toll.Errorf(toll.CodeBadRequest, "No device is waiting for approval with this code. Check the code, or start again on the device.")
	errGuesses  = toll.Errorf(toll.CodeRateLimited, "Too many wrong codes. Try again in ten minutes.")
	errDecided  = toll.Errorf(toll.CodeBadRequest, "This code was already used.")
)

// Device returns the device that shows a code, for a person who signed in. After ten wrong codes in ten minutes the person
// gets no further answers. Errors: a [*toll.Error] that is safe to show, those of the database.
func (o *OAuth) Device(ctx context.Context, owner toll.Address, userCode string) (*DeviceRequest, error) {
	now := o.Clock()
	since := now.Add(-guessWindow)
	n, err := store.OAuthGuesses(ctx, o.Store, owner, since)
	if err != nil {
		return nil, err
	}
	if n >= maxGuesses {
		return nil, errGuesses
	}
	row, err := o.waiting(ctx, userCode)
	if errors.Is(err, errNoDevice) {
		count := o.Store.Tx(ctx, func(tx *store.Tx) error { return store.CountOAuthGuess(ctx, tx, owner, now, since) })
		if count != nil {
			return nil, count
		}
	}
	if err != nil {
		return nil, err
	}
	client, err := o.clientOn(ctx, row)
	if err != nil {
		return nil, err
	}
	code := bareCode(userCode)
	return &DeviceRequest{
		Client: client.Client, UserCode: code[:userLetters/2] + "-" + code[userLetters/2:], Source: row.Source,
		Asked: o.askedOn(row), CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt,
	}, nil
}

// clientOn returns the client of a device, or errNoDevice when it is not known any more.
func (o *OAuth) clientOn(ctx context.Context, row store.OAuthDevice) (*knownClient, error) {
	client, err := o.client(ctx, row.ClientID)
	if errors.Is(err, errUnknownClient) || errors.Is(err, errDocument) {
		err = errNoDevice
	}
	return client, err
}

// askedOn returns what a device asks for.
func (o *OAuth) askedOn(row store.OAuthDevice) Asked {
	w := Asked{Scope: row.Scope, Resource: row.Resource, PlanID: row.PlanID, AgentID: row.AgentID, Kind: KindPermission}
	if row.Resource == o.Resource {
		w.Kind = KindAPIKey
		w.Rights, _ = askedRights(row.Scope) // it was read when the device asked
	}
	return w
}

// waiting returns the device of a code that a person typed, or errNoDevice.
func (o *OAuth) waiting(ctx context.Context, typed string) (store.OAuthDevice, error) {
	code := bareCode(typed)
	if len(code) != userLetters {
		return store.OAuthDevice{}, errNoDevice
	}
	row, err := store.OAuthDeviceByUserHash(ctx, o.Store, sumOf(code))
	if errors.Is(err, store.ErrNotFound) || err == nil && !o.Clock().Before(row.ExpiresAt) {
		return store.OAuthDevice{}, errNoDevice
	}
	return row, err
}

// ApproveDevice records that a person lets the device with this code in. Errors: a [*toll.Error] that is safe to show, those
// of the database.
func (o *OAuth) ApproveDevice(ctx context.Context, userCode string, person auth.Caller, c Choice) error {
	row, err := o.waiting(ctx, userCode)
	if err != nil {
		return err
	}
	client, err := o.clientOn(ctx, row)
	if err != nil {
		return err
	}
	g, err := o.grant(ctx, client.Client, o.askedOn(row), person, c)
	if err != nil {
		return err
	}
	g.EndsAt = row.ExpiresAt
	return o.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := decideDevice(ctx, tx, row, g.ID); err != nil {
			return err
		}
		if err := o.insertGrant(ctx, tx, g, ""); err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.GrantAct("grant.created", g, o.Clock()))
	})
}

func (o *OAuth) DenyDevice(ctx context.Context, userCode string) error {
	row, err := o.waiting(ctx, userCode)
	if err != nil {
		return err
	}
	return o.Store.Tx(ctx, func(tx *store.Tx) error { return decideDevice(ctx, tx, row, toll.Hash{}) })
}

// decideDevice records the grant of a device, the zero hash for none. Errors: [errDecided].
func decideDevice(ctx context.Context, tx *store.Tx, row store.OAuthDevice, grant toll.Hash) error {
	first, err := store.DecideOAuthDevice(ctx, tx, row.Hash, grant)
	if err == nil && !first {
		return errDecided
	}
	return err
}

// poll is the grant of devices (RFC 8628, section 3.4).
func (o *OAuth) poll(ctx context.Context, client *knownClient, form url.Values) (*granted, error) {
	code := form.Get("device_code")
	if code == "" {
		return nil, refused("invalid_request", "device_code is missing.")
	}
	unknown := refused("invalid_grant", "The device code is unknown, was already used, or was issued to another client.")
	row, err := store.OAuthDeviceByHash(ctx, o.Store, sumOf(code))
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && row.ClientID != client.ID:
		return nil, unknown
	case err != nil:
		return nil, err
	}
	now := o.Clock()
	if !row.UsedAt.IsZero() {
		return nil, o.reused(ctx, row.GrantID)
	}
	if !now.Before(row.ExpiresAt) {
		return nil, refused("expired_token", "The device code expired before it was approved.")
	}
	early := !row.PollAt.IsZero() && now.Sub(row.PollAt) < time.Duration(row.PollSecs)*time.Second-pollSlack
	wait := row.PollSecs
	if early {
		wait += pollSecs
	}
	err = o.Store.Tx(ctx, func(tx *store.Tx) error {
		alone, err := store.PollOAuthDevice(ctx, tx, row, now, wait)
		early = early || !alone
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case early:
		return nil, refused("slow_down", "The device polls too often. Increase the interval by 5 seconds.")
	case row.Denied:
		return nil, refused("access_denied", "The person denied access.")
	case row.GrantID.IsZero():
		return nil, refused("authorization_pending", "The person has not approved or denied the request yet.")
	}
	g, err := store.OAuthGrantByID(ctx, o.Store, row.GrantID)
	if err = store.NotFoundAs(err, unknown); err == nil {
		err = o.sameClient(ctx, g, client)
	}
	if err == nil {
		err = o.sameTarget(g, form)
	}
	if err != nil {
		return nil, err
	}
	return o.issue(ctx, client, g, store.OAuthIssue{Device: row.Hash})
}
