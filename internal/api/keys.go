package api

import (
	"encoding/json"
	"net/url"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

func keyRoutes() []route {
	const at = Base + "/api-keys"
	return []route{
		{
			op: "createKey", method: "POST", path: at, auth: keyed, right: toll.RightKeys, session: true, fresh: true, status: 201, tag: "API keys", summary: "Create an API key of the caller; its text is shown once",
			action: creates((*handler).createKey), codes: []toll.Code{toll.CodeRateLimited, toll.CodeKeyExpiryPast, toll.CodeBadNumber, toll.CodeForbidden},
		},
		{
			op: "listKeys", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "API keys", summary: "API keys of the caller",
			action: lists((*handler).listKeys), query: paging, codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "readKey", method: "GET", path: at + "/{id}", auth: self, right: toll.RightRead, tag: "API keys", summary: "One API key",
			action: reads(by("id", toll.ParseHash, (*handler).readKey)), codes: []toll.Code{toll.CodeKeyNotFound},
		},
		{
			op: "readKeyCalls", method: "GET", path: at + "/{id}/calls", auth: self, right: toll.RightRead, tag: "API keys",
			summary: "The last 200 calls of an API key, but verify and settle, that this process of the service answered", action: reads(by("id", toll.ParseHash, (*handler).recentCalls)),
			codes: []toll.Code{toll.CodeKeyNotFound},
		},
		{
			op: "updateKey", method: "PATCH", path: at + "/{id}", auth: self, right: toll.RightKeys, session: true, tag: "API keys", summary: "Change the name or the pinned API version",
			action: takes((*handler).updateKey), codes: []toll.Code{toll.CodeKeyNothingToUpdate, toll.CodeKeyNotFound},
		},
		{
			op: "rotateKey", method: "POST", path: at + "/{id}/rotate", auth: self, right: toll.RightKeys, session: true, fresh: true, status: 201, tag: "API keys",
			summary: "A key in the place of another one, which ends after an overlap; what that one made moves to the new one. No key rotates itself",
			action:  creates((*handler).rotateKey),
			codes:   []toll.Code{toll.CodeKeyNotFound, toll.CodeKeyAlreadyRevoked, toll.CodeForbidden, toll.CodeRateLimited, toll.CodeBadNumber},
		},
		{
			op: "revokeKey", method: "DELETE", path: at + "/{id}", auth: self, right: toll.RightKeys, session: true, tag: "API keys", ownKey: true,
			summary: "End an API key, at once, with what it made: keys, access tokens and consents, which are counted. A key can end itself",
			action:  reads(by("id", toll.ParseHash, (*handler).revokeKey)),
			query:   []query{{"keep", "true: what the key made stays, and the key of the call becomes its parent."}},
			codes:   []toll.Code{toll.CodeKeyNotFound, toll.CodeKeyAlreadyRevoked, toll.CodeForbidden, toll.CodeBadRequest},
		},
	}
}

// KeyInput creates an API key.
type KeyInput struct {
	Name          *string    `json:"name,omitzero" maxLength:"100"`
	ExpiresAt     *toll.Time `json:"expiresAt,omitzero"`
	Ends          *toll.Time `json:"ends,omitzero" doc:"Another name of expiresAt."`
	ExpiresInSecs *toll.Int  `json:"expiresInSecs,omitzero" minimum:"60" doc:"Instead of expiresAt."`
	Version       *string    `json:"version,omitzero" doc:"Pinned API version. Default the current one."`
	Prefix        *string    `json:"prefix,omitzero" doc:"One of the prefixes of this service. Default the operator's."`
	Rights        []string   `json:"rights,omitzero" doc:"Words of read, sell, spend, manage, money and keys that the key of the call has. Default all of those."`
}

// maxKeySecs keeps the end of a key within the years that a time on the wire has.
const maxKeySecs = 100 * toll.YearSecs

func (h *handler) createKey(c *call, in *KeyInput, once *store.Once) (*toll.APIKey, error) {
	p := auth.KeyParams{Version: apiversion.Current.String()}
	if in.Name != nil {
		p.Name = *in.Name
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
		return nil, toll.Faults([]toll.Fault{{Path: "ends", Message: "stands beside expiresAt"}})
	}
	switch {
	case in.ExpiresAt != nil && in.ExpiresInSecs != nil:
		return nil, toll.Faults([]toll.Fault{{Path: "expiresInSecs", Message: "stands beside expiresAt"}})
	case in.ExpiresAt != nil:
		p.ExpiresAt = in.ExpiresAt.Time
	case in.ExpiresInSecs != nil:
		if *in.ExpiresInSecs < 60 || *in.ExpiresInSecs > maxKeySecs {
			return nil, toll.Faults([]toll.Fault{{Path: "expiresInSecs", Message: "must be 60 to 100 years"}})
		}
		p.ExpiresAt = h.now().Add(time.Duration(*in.ExpiresInSecs) * time.Second)
	}
	once.Quota = h.quota(store.KindAPIKey, c.caller.Address)
	k, err := h.Auth.CreateKey(c.context, c.caller.Maker(), p, once)
	return &k, err
}

// KeyList is a list of API keys.
type KeyList struct {
	APIKeys []toll.APIKey `json:"apiKeys"`
	Paging
}

func (h *handler) listKeys(c *call, p store.Page, _ url.Values) (*KeyList, error) {
	list, err := h.Auth.Keys(c.context, c.caller.Address, p)
	return &KeyList{APIKeys: list.Items, Paging: pagingOf(p, list)}, err
}

func (h *handler) readKey(c *call, id toll.Hash) (*toll.APIKey, error) {
	k, err := h.Auth.Key(c.context, c.caller.Address, id)
	return &k, err
}

// KeyChange changes an API key. At least one member must be there; a null name clears it.
type KeyChange struct {
	Name    json.RawMessage `json:"name,omitzero" doc:"A string of at most 100 characters; null clears it."`
	Version *string         `json:"version,omitzero" doc:"Pinned API version."`
}

func (h *handler) updateKey(c *call, in *KeyChange) (*toll.APIKey, error) {
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
	if err := h.managesKey(c, id); err != nil {
		return nil, err
	}
	k, err := h.Auth.UpdateKey(c.context, c.caller.Address, id, u)
	return &k, err
}

// managesKey refuses a caller who may not change or end a key.
func (h *handler) managesKey(c *call, id toll.Hash) error {
	k, err := h.Auth.Key(c.context, c.caller.Address, id)
	if err != nil {
		return err
	}
	return c.caller.MayManage(k)
}

// RotateInput rotates an API key.
type RotateInput struct {
	OverlapSecs *toll.Int `json:"overlapSecs,omitzero" minimum:"0" maximum:"2592000" doc:"How long the old key works beside the new one. Default 86400, a day."`
}

func (h *handler) rotateKey(c *call, in *RotateInput, once *store.Once) (*toll.KeyRotated, error) {
	id, err := toll.ParseHash(c.param("id"))
	if err != nil {
		return nil, err
	}
	overlap := 24 * time.Hour
	if in.OverlapSecs != nil {
		n := int64(*in.OverlapSecs)
		if n < 0 || n > int64(auth.MaxOverlap/time.Second) {
			return nil, toll.Faults([]toll.Fault{{Path: "overlapSecs", Message: "must be 0 to 2592000, thirty days"}})
		}
		overlap = time.Duration(n) * time.Second
	}
	once.Quota = h.quota(store.KindAPIKey, c.caller.Address)
	out, err := h.Auth.RotateAPIKey(c.context, c.caller, id, overlap, once)
	return &out, err
}

func (h *handler) revokeKey(c *call, id toll.Hash) (*toll.KeyRevoked, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	keep, err := flag(q, "keep")
	if err != nil {
		return nil, err
	}
	if err := h.managesKey(c, id); err != nil {
		return nil, err
	}
	var out toll.KeyRevoked
	if keep {
		out, err = h.Auth.EndKeyOnly(c.context, c.caller, id)
	} else {
		out, err = h.Auth.EndKey(c.context, c.caller.Address, id)
	}
	return &out, err
}
