package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// AnswerLife is how long the answer to a call with an Idempotency-Key is kept (wire contract, section 4).
const AnswerLife = 24 * time.Hour

const maxIdempotencyKey = 255

// keptHeaders are those that belong to the answer of a creating call.
var keptHeaders = []string{"Deprecation"}

type keptAnswer struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header,omitzero"`
	Body   json.RawMessage   `json:"body"`
}

type attempt struct {
	h           *handler
	c           *call
	scope, body toll.Hash
}

// create runs f once for each Idempotency-Key. again is nil when what is stored is the answer itself.
func create[In, Out, Ref any](
	c *call, f func(c *call, in *In, once *store.Once) (Out, error), again func(c *call, earlier Ref) (Out, error),
) (any, error) {
	in := new(In)
	if err := c.decode(in); err != nil {
		return nil, err
	}
	c.unknown = unknownMembers(c.current, in)
	key, err := idempotencyKey(c.r.Header)
	if err != nil {
		return nil, err
	}
	if key == "" {
		return c.warned(f(c, in, &store.Once{}))
	}
	a, err := newAttempt(c, key)
	if err != nil {
		return nil, err
	}
	ctx := c.context
	kept, err := a.find(ctx)
	if errors.Is(err, store.ErrNotFound) {
		once := &store.Once{Scope: a.scope, Body: a.body, At: c.h.clock.now(), Since: a.since(), Seal: a.sealWarned}
		if again != nil {
			once.Seal = a.seal
		}
		out, failure := f(c, in, once)
		if failure == nil && !once.Stored && again == nil {
			// What is created already made no transaction of its own.
			failure = c.h.store.Tx(ctx, func(tx *store.Tx) error { return store.PutAnswer(ctx, tx, once, out) })
		}
		if failure == nil || once.Stored {
			return c.warned(out, failure)
		}
		// What refuses this call may be what another one with the key has made meanwhile.
		if kept, err = a.find(ctx); errors.Is(err, store.ErrNotFound) && !once.Lost {
			return nil, failure
		}
	}
	if err != nil {
		return nil, err
	}
	c.w.Header()["Idempotency-Replayed"] = yes
	if again != nil {
		var earlier Ref
		if err := json.Unmarshal(kept.Body, &earlier); err != nil {
			return nil, err
		}
		return c.warned(again(c, earlier))
	}
	c.status = kept.Status
	for name, value := range kept.Header {
		c.w.Header()[name] = []string{value}
	}
	return encoded(kept.Body), nil
}

func idempotencyKey(h http.Header) (string, error) {
	lines := h["Idempotency-Key"]
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 || lines[0] == "" || len(lines[0]) > maxIdempotencyKey || strings.IndexFunc(lines[0], invisible) >= 0 {
		return "", toll.Faults([]toll.Fault{{Path: "Idempotency-Key", Message: "must be a single header of 1 to 255 visible ASCII characters"}})
	}
	return lines[0], nil
}

func newAttempt(c *call, key string) (*attempt, error) {
	body, err := normalJSON(c.body)
	if err != nil {
		return nil, err
	}
	// The operation stands for the method and the words of the path.
	words := []string{c.caller.Address.Lower(), c.route.op, c.params[0].value, c.params[1].value, key}
	if c.route.action.secret { // another key of the account, or another person, may have fewer rights and must not get it by a repeat
		words = append(words, c.caller.KeyID.String())
		if !c.caller.UserID.IsZero() && c.caller.KeyID.IsZero() {
			words = append(words, c.caller.UserID.String())
		}
	}
	scope, err := json.Marshal(words)
	if err != nil {
		return nil, err
	}
	return &attempt{h: c.h, c: c, scope: sha256.Sum256(scope), body: sha256.Sum256(body)}, nil
}

// secretMembers are the members of answers that let whoever reads them act: API keys, access tokens, links, secrets of webhooks.
var secretMembers = []string{"key", "accessToken", "link", "secret", "token"}

// holdsSecret reports whether a type of answers has one of [secretMembers].
func holdsSecret(answer reflect.Type) bool {
	return slices.ContainsFunc(list.MembersOf(answer, ""), func(member string) bool {
		return slices.Contains(secretMembers, member[strings.LastIndexByte(member, '.')+1:])
	})
}

// normalJSON returns the body without its blanks and the order of its members, numbers digit for digit: the same call
// encoded anew is the same call. The body was decoded strictly before.
func normalJSON(body []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, toll.NewError(toll.CodeBadRequest).WithCause(err)
	}
	return json.Marshal(v)
}

func (a *attempt) since() time.Time { return a.h.clock.now().Add(-AnswerLife) }

func (a *attempt) find(ctx context.Context) (*keptAnswer, error) {
	row, err := store.Answer(ctx, a.h.store, a.scope, a.since())
	if err != nil {
		return nil, err
	}
	if row.Body != a.body {
		return nil, toll.NewError(toll.CodeIdempotencyMismatch)
	}
	plain, err := a.h.vault.Open(row.Answer, a.aad())
	if err != nil {
		return nil, err
	}
	kept := new(keptAnswer)
	return kept, json.Unmarshal(plain, kept)
}

// sealWarned is seal for the answer itself.
func (a *attempt) sealWarned(answer any) ([]byte, error) {
	warned, err := a.c.warned(answer, nil)
	if err != nil {
		return nil, err
	}
	body, err := encode(warned)
	if err != nil {
		return nil, err
	}
	return a.seal(json.RawMessage(body))
}

// seal returns an answer as it is stored, with its status and headers.
func (a *attempt) seal(answer any) ([]byte, error) {
	kept := keptAnswer{Status: a.c.status}
	if kept.Status == 0 {
		kept.Status = a.c.route.success()
	}
	for _, name := range keptHeaders {
		if values := a.c.w.Header()[name]; len(values) > 0 {
			if kept.Header == nil {
				kept.Header = map[string]string{}
			}
			kept.Header[name] = values[0]
		}
	}
	var err error
	if kept.Body, err = x402.Encode(answer); err != nil {
		return nil, err
	}
	plain, err := x402.Encode(kept)
	if err != nil {
		return nil, err
	}
	return a.h.vault.Seal(plain, a.aad())
}

// aad binds an answer to its call, so that it opens as the answer to no other one.
func (a *attempt) aad() []byte { return AnswerOf(a.h.Environment, a.scope) }

// AnswerOf is what the sealed answer to an Idempotency-Key is bound to.
func AnswerOf(environment toll.Environment, scope toll.Hash) []byte {
	return []byte("toll/idempotency/" + string(environment) + "/" + scope.String())
}
