package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
)

type keys struct {
	auth   *auth.Auth
	bounds bounds
	clock  clock
	recent *recentCalls
}

func (s keys) routes() []route {
	const at = Base + "/api-keys"
	return []route{
		{
			op: "createKey", method: "POST", path: at, auth: keyed, right: toll.RightKeys, session: true, fresh: true, status: 201, tag: "API keys", summary: "Create an API key; the key is returned only once",
			action: creates(s.createKey), codes: []toll.Code{toll.CodeRateLimited, toll.CodeKeyExpiryPast, toll.CodeBadNumber, toll.CodeForbidden},
		},
		{
			op: "listKeys", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "API keys", summary: "List your API keys",
			action: lists("KeyList", list.Keys, ofCaller(s.auth.Keys)), query: paging, codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "readKey", method: "GET", path: at + "/{id}", auth: self, right: toll.RightRead, ownKey: true, tag: "API keys", summary: "Read an API key",
			action: reads(by("id", toll.ParseHash, s.readKey)), codes: []toll.Code{toll.CodeKeyNotFound},
		},
		{
			op: "readKeyCalls", method: "GET", path: at + "/{id}/calls", auth: self, right: toll.RightRead, tag: "API keys",
			summary: "List the last 200 calls made with an API key to this server process, except verify and settle", action: reads(by("id", toll.ParseHash, s.recentCalls)),
			codes: []toll.Code{toll.CodeKeyNotFound},
		},
		{
			op: "updateKey", method: "PATCH", path: at + "/{id}", auth: self, right: toll.RightKeys, session: true, tag: "API keys", summary: "Update the name or the pinned API version of an API key",
			action: takes(s.updateKey), codes: []toll.Code{toll.CodeKeyNothingToUpdate, toll.CodeKeyNotFound},
		},
		{
			op: "rotateKey", method: "POST", path: at + "/{id}/rotate", auth: self, right: toll.RightKeys, session: true, fresh: true, status: 201, tag: "API keys",
			summary: "Rotate an API key: everything that the old key created moves to the new key, and the old key expires after an overlap. A key cannot rotate itself",
			action:  creates(s.rotateKey),
			codes:   []toll.Code{toll.CodeKeyNotFound, toll.CodeKeyAlreadyRevoked, toll.CodeForbidden, toll.CodeRateLimited, toll.CodeBadNumber},
		},
		{
			op: "revokeKey", method: "DELETE", path: at + "/{id}", auth: self, right: toll.RightKeys, session: true, tag: "API keys", ownKey: true,
			summary: "Revoke an API key and all keys, access tokens, and consents that it created, at once; the response has the number of each. A key can revoke itself",
			action:  reads(by("id", toll.ParseHash, s.revokeKey)),
			query:   []query{{"keep", "true: everything that the revoked key created stays valid and moves to the key of this call."}},
			codes:   []toll.Code{toll.CodeKeyNotFound, toll.CodeKeyAlreadyRevoked, toll.CodeForbidden, toll.CodeBadRequest},
		},
	}
}

type KeyInput struct {
	Name          *string    `json:"name,omitzero" maxLength:"100"`
	ExpiresAt     *toll.Time `json:"expiresAt,omitzero"`
	Ends          *toll.Time `json:"ends,omitzero" doc:"Alias of expiresAt."`
	ExpiresInSecs *toll.Int  `json:"expiresInSecs,omitzero" minimum:"60" doc:"Lifetime in seconds, instead of expiresAt."`
	Version       *string    `json:"version,omitzero" doc:"Pinned API version. Defaults to the current version."`
	Form          *string    `json:"form,omitzero" enum:"short,long" doc:"The form of the key. A short key has about 45 characters; a long key is a JWT behind a prefix and contains the address of the workspace. Defaults to short; to long with prefix, or if the operator set a namespace or key prefix."`
	Prefix        *string    `json:"prefix,omitzero" doc:"Prefix of a long key: one of the prefixes of this service. Defaults to the operator's setting."`
	Rights        []string   `json:"rights,omitzero" doc:"Rights of the new key: any of read, sell, spend, manage, money, and keys. Only rights of the calling key are allowed. Defaults to all of these rights that the calling key has."`
}

// maxKeySecs keeps the end of a key within the years that a time on the wire has.
const maxKeySecs = 100 * toll.YearSecs

func (s keys) createKey(c *call, in *KeyInput, once *store.Once) (*toll.APIKey, error) {
	p := auth.KeyParams{Version: apiversion.Current.String()}
	if in.Name != nil {
		p.Name = *in.Name
	}
	if in.Form != nil {
		p.Form = toll.KeyForm(*in.Form)
	}
	if in.Prefix != nil {
		p.Prefix = *in.Prefix
	}
	if in.Version != nil {
		v, err := apiversion.Parse(*in.Version)
		if err != nil {
			return nil, badVersion(err)
		}
		p.Version = v.String()
	}
	if in.Rights != nil {
		var err error
		if p.Rights, err = toll.ParseRights(in.Rights); err != nil {
			return nil, err
		}
	}
	if in.ExpiresAt == nil {
		in.ExpiresAt = in.Ends
	} else if in.Ends != nil {
		return nil, toll.Faults([]toll.Fault{{Path: "ends", Message: "cannot be combined with expiresAt"}})
	}
	switch {
	case in.ExpiresAt != nil && in.ExpiresInSecs != nil:
		return nil, toll.Faults([]toll.Fault{{Path: "expiresInSecs", Message: "cannot be combined with expiresAt"}})
	case in.ExpiresAt != nil:
		p.ExpiresAt = in.ExpiresAt.Time
	case in.ExpiresInSecs != nil:
		if *in.ExpiresInSecs < 60 || *in.ExpiresInSecs > maxKeySecs {
			return nil, toll.Faults([]toll.Fault{{Path: "expiresInSecs", Message: "must be 60 seconds to 100 years"}})
		}
		p.ExpiresAt = s.clock.now().Add(time.Duration(*in.ExpiresInSecs) * time.Second)
	}
	once.Quota = s.bounds.of(store.KindAPIKey, c.caller.Address)
	k, err := s.auth.CreateKey(c.context, c.caller.Maker(), p, once)
	return &k, err
}

func (s keys) readKey(c *call, id toll.Hash) (*toll.APIKey, error) {
	k, err := s.auth.Key(c.context, c.caller.Address, id)
	return &k, err
}

// KeyChange changes an API key. At least one member must be there; a null name clears it.
type KeyChange struct {
	Name    json.RawMessage `json:"name,omitzero" doc:"At most 100 characters. Null clears it."`
	Version *string         `json:"version,omitzero" doc:"Pinned API version."`
}

func (s keys) updateKey(c *call, in *KeyChange) (*toll.APIKey, error) {
	id, err := toll.ParseHash(c.param("id"))
	if err != nil {
		return nil, err
	}
	var u auth.KeyUpdate
	if u.SetName = len(in.Name) > 0; u.SetName {
		if err := json.Unmarshal(in.Name, &u.Name); err != nil {
			return nil, toll.Faults([]toll.Fault{{Path: "name", Message: "must be a string or null"}})
		}
	}
	if in.Version != nil {
		v, err := apiversion.Parse(*in.Version)
		if err != nil {
			return nil, badVersion(err)
		}
		text := v.String()
		u.Version = &text
	}
	if err := s.managesKey(c, id); err != nil {
		return nil, err
	}
	k, err := s.auth.UpdateKey(c.context, c.caller.Address, id, u)
	return &k, err
}

func (s keys) managesKey(c *call, id toll.Hash) error {
	k, err := s.auth.Key(c.context, c.caller.Address, id)
	if err != nil {
		return err
	}
	return c.caller.MayManage(k)
}

// RotateInput rotates an API key.
type RotateInput struct {
	OverlapSecs *toll.Int `json:"overlapSecs,omitzero" minimum:"0" maximum:"2592000" doc:"Seconds that the old key works alongside the new key. Defaults to 86400 (one day)."`
}

func (s keys) rotateKey(c *call, in *RotateInput, once *store.Once) (*toll.KeyRotated, error) {
	id, err := toll.ParseHash(c.param("id"))
	if err != nil {
		return nil, err
	}
	overlap := 24 * time.Hour
	if in.OverlapSecs != nil {
		n := int64(*in.OverlapSecs)
		if n < 0 || n > int64(auth.MaxOverlap/time.Second) {
			return nil, toll.Faults([]toll.Fault{{Path: "overlapSecs", Message: "must be 0 to 2592000 (30 days)"}})
		}
		overlap = time.Duration(n) * time.Second
	}
	once.Quota = s.bounds.of(store.KindAPIKey, c.caller.Address)
	out, err := s.auth.RotateAPIKey(c.context, c.caller, id, overlap, once)
	return &out, err
}

func (s keys) revokeKey(c *call, id toll.Hash) (*toll.KeyRevoked, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	keep, err := flag(q, "keep")
	if err != nil {
		return nil, err
	}
	if err := s.managesKey(c, id); err != nil {
		return nil, err
	}
	var out toll.KeyRevoked
	if keep {
		out, err = s.auth.EndKeyOnly(c.context, c.caller, id)
	} else {
		out, err = s.auth.EndKey(c.context, c.caller.Address, id)
	}
	return &out, err
}

const (
	keptCalls = 200
	// halfOfKeys bounds the keys whose calls are kept: twice as many, those that called last.
	halfOfKeys = 512
)

// recentCalls are the last calls of API keys in this process. They are in memory alone.
type recentCalls struct {
	since      time.Time // start of the process
	mu         sync.Mutex
	young, old map[toll.Hash]*callRing // at most halfOfKeys each
}

type callRing struct {
	mu        sync.Mutex
	workspace toll.Address // of the key
	calls     []recentCall
	next      int // the place of the next call, once all are taken
}

type recentCall struct {
	at, took    int64 // microseconds
	route       *route
	method      string // "" where there is no route
	code        toll.Code
	status      int
	correlation []byte // a copy in memory that the ring keeps: the header that the id came in can be large
}

// of returns the calls of a key, nil when there are none and none are to be added.
func (r *recentCalls) of(key toll.Hash, add bool) *callRing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ring := r.young[key]; ring != nil {
		return ring
	}
	ring := r.old[key]
	if ring == nil && !add {
		return nil
	}
	if ring == nil {
		ring = &callRing{}
	}
	if len(r.young) >= halfOfKeys || r.young == nil {
		r.old, r.young = r.young, make(map[toll.Hash]*callRing)
	}
	r.young[key] = ring
	return ring
}

// keysOf returns the keys of a workspace, at most most, that made a call with this correlation id.
func (r *recentCalls) keysOf(workspace toll.Address, correlation string, most int) (keys []toll.Hash) {
	rings := map[toll.Hash]*callRing{}
	r.mu.Lock()
	maps.Copy(rings, r.old)
	maps.Copy(rings, r.young)
	r.mu.Unlock()
	for key, ring := range rings {
		if len(keys) < most && ring.has(workspace, correlation) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (r *callRing) has(workspace toll.Address, correlation string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workspace == workspace && slices.ContainsFunc(r.calls, func(c recentCall) bool { return string(c.correlation) == correlation })
}

func (r *callRing) add(workspace toll.Address, c recentCall, correlation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workspace = workspace
	if len(r.calls) < keptCalls {
		c.correlation = []byte(correlation)
		r.calls = append(r.calls, c)
		return
	}
	c.correlation = append(r.calls[r.next].correlation[:0], correlation...)
	r.calls[r.next] = c
	r.next = (r.next + 1) % keptCalls
}

func (r *callRing) list() []toll.RecentCall {
	out := []toll.RecentCall{}
	if r == nil {
		return out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.calls {
		c := &r.calls[(r.next+len(r.calls)-1-i)%len(r.calls)]
		call := toll.RecentCall{
			At: toll.At(time.UnixMicro(c.at).UTC()), Status: c.status, Code: c.code, DurationMicros: c.took, CorrelationID: string(c.correlation),
		}
		if c.route != nil {
			call.Operation, call.Method, call.Path = c.route.op, c.method, c.route.path
		}
		out = append(out, call)
	}
	return out
}

func (c *call) remember() {
	if c.began.IsZero() || !c.known || c.answered == 0 && !c.written {
		return
	}
	if c.answered == 0 { // it was written in parts
		c.answered = http.StatusOK
	}
	took := time.Since(c.began)
	r := recentCall{
		at: c.h.clock.now().Add(-took).UnixMicro(), took: took.Microseconds(), route: c.route, code: c.code, status: c.answered,
	}
	if c.route != nil {
		r.method = c.route.method
	}
	c.h.recent.of(c.caller.KeyID, true).add(c.caller.Address, r, c.correlation.ID)
}

type RecentCalls struct {
	Calls []toll.RecentCall `json:"calls" doc:"The most recent call first, at most 200."`
	Since toll.Time         `json:"since" doc:"Start time of this server process. Calls before this time and calls to other server processes are not included."`
}

func (s keys) recentCalls(c *call, id toll.Hash) (*RecentCalls, error) {
	if _, err := s.auth.Key(c.context, c.caller.Address, id); err != nil {
		return nil, err
	}
	return &RecentCalls{Calls: s.recent.of(id, false).list(), Since: toll.At(s.recent.since)}, nil
}
