package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// Actor is who does something that the audit log notes. It comes with the context of a request.
type Actor struct {
	Kind   string // user, key or local
	ID     string // of the user or the key; "" for local
	Source string // address from which the request came; "" for none
	Agent  string // program that sent the request, as it says; no log keeps it
}

// Person returns the id of the user, zero for a key and for local.
func (a Actor) Person() (id toll.UUID) {
	if a.Kind == "user" {
		_ = id.UnmarshalText([]byte(a.ID)) // ours
	}
	return id
}

type actorKey struct{}

// WithActor returns a context whose acts are those of an actor. Without one an act is local.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

func ActorOf(ctx context.Context) Actor {
	who, ok := ctx.Value(actorKey{}).(Actor)
	if !ok {
		who.Kind = "local"
	}
	return who
}

// AuditAll notes several acts of one moment, the logs in one order, so that two transactions never wait for each other.
func AuditAll(ctx context.Context, tx *Tx, at time.Time, acts ...Act) error {
	slices.SortStableFunc(acts, func(a, b Act) int { return strings.Compare(a.Workspace, b.Workspace) })
	for _, a := range acts {
		a.At = at
		if err := Audit(ctx, tx, a); err != nil {
			return err
		}
	}
	return nil
}

// Act is what is noted in the audit log: what was done to which object. Workspace is the address in lower case, "" for the log of
// the operator. Detail becomes JSON: at best the state before and after.
type Act struct {
	Workspace string
	Act       string
	Object    string
	Detail    any
	At        time.Time
}

// Changed is the detail of an act that changes a value.
type Changed struct {
	Before any `json:"before,omitzero"`
	After  any `json:"after,omitzero"`
}

func GrantAct(act string, g OAuthGrant, at time.Time) Act {
	return Act{Workspace: g.Owner.Lower(), Act: act, Object: g.ID.String(), At: at, Detail: Changed{After: map[string]string{
		"client": g.ClientName, "kind": g.Kind, "rights": g.Rights.String(), "planId": string(g.PlanID),
	}}}
}

// AuditEntry is an act in the log of a workspace. Each hash covers the one before, so that nothing is changed or left out unseen.
type AuditEntry struct {
	Workspace  string    `db:"workspace"`
	Number     int64     `db:"number"`
	At         time.Time `db:"at"`
	ActorKind  string    `db:"actor_kind"`
	Actor      string    `db:"actor"`
	Act        string    `db:"act"`
	Object     string    `db:"object"`
	Detail     string    `db:"detail"`
	Source     string    `db:"source,null"` // "" also when it was dropped; in the row a random text and a blank are before it
	SourceHash []byte    `db:"source_hash,empty"`
	Hash       []byte    `db:"hash"`
}

var auditLog = newRecord[AuditEntry]("audit_log")

// Audit notes an act in its own transaction, as the last thing of that: it locks the log of the workspace until the end.
func Audit(ctx context.Context, tx *Tx, a Act) error {
	detail, err := json.Marshal(a.Detail)
	if err != nil {
		return err
	}
	who := ActorOf(ctx)
	e := AuditEntry{
		Workspace: a.Workspace, At: a.At, ActorKind: who.Kind, Actor: who.ID, Act: a.Act, Object: a.Object,
		Detail: string(detail), Source: who.Source,
	}
	if e.Source != "" {
		// There are so few addresses that a digest of one alone would give it away. The random text before it goes when it goes.
		e.Source = rand.Text() + " " + e.Source
		sum := sha256.Sum256([]byte(e.Source))
		e.SourceHash = sum[:]
	}
	// The row is locked here, and read after that.
	if err := tx.QueryRow(ctx, `INSERT INTO audit_heads (workspace, last, hash) VALUES ($1, 1, $2)
		ON CONFLICT (workspace) DO UPDATE SET last = audit_heads.last + 1 RETURNING last, hash`,
		e.Workspace, []byte{}).Scan(&e.Number, &e.Hash); err != nil {
		return err
	}
	e.Hash = e.sum(e.Hash)
	if _, err := tx.Exec(ctx, "UPDATE audit_heads SET hash = $2 WHERE workspace = $1", e.Workspace, e.Hash); err != nil {
		return err
	}
	return auditLog.insert(ctx, tx, e)
}

// sum returns the hash of the entry on top of the one before: SHA-256 of the parts, each with its length before it.
func (e *AuditEntry) sum(before []byte) []byte {
	h := sha256.New()
	number := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for _, part := range [][]byte{
		before, []byte(e.Workspace), number(e.Number), number(Micros(e.At)), []byte(e.ActorKind), []byte(e.Actor),
		[]byte(e.Act), []byte(e.Object), []byte(e.Detail), e.SourceHash,
	} {
		h.Write(number(int64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

// AuditList lists the entries of a workspace: of one act ("" for all), in a range of times (zero: no bound).
func AuditList(ctx context.Context, q Querier, workspace, act string, since, until time.Time, p Page) (List[AuditEntry], error) {
	l := Listing{
		Where: "workspace = $1", Args: []any{workspace}, ID: "number", Sorts: map[Sort]string{SortCreated: "at"},
	}
	if act != "" {
		l.Where, l.Args = "workspace = $1 AND act = $2", append(l.Args, act)
	}
	l.Between("at", since, until)
	list, err := auditLog.list(ctx, q, l, p)
	for i := range list.Items {
		_, list.Items[i].Source, _ = strings.Cut(list.Items[i].Source, " ")
	}
	return list, err
}

// mostSources bounds the entries that [SourcesOf] reads of one act.
const mostSources = 1000

// SourcesOf returns from where a person signed in, or made or claimed the workspace, as the log of a workspace says, within a range
// of times whose end is not in it. A source may stand there several times.
func SourcesOf(ctx context.Context, q Querier, workspace toll.Address, user toll.UUID, since, until time.Time) (out []string, err error) {
	for _, act := range []string{"sign_in", "workspace.created", "workspace.claimed"} {
		found, err := values[string](ctx, q, `SELECT source FROM audit_log WHERE workspace = $1 AND act = $2 AND at >= $3 AND at < $4
			AND actor = $5 AND source IS NOT NULL ORDER BY at DESC, number DESC LIMIT $6`,
			workspace.Lower(), act, Micros(since), Micros(until), user.String(), int64(mostSources))
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			_, s, _ = strings.Cut(s, " ") // see [Audit]
			out = append(out, s)
		}
	}
	return out, nil
}

// DropAuditSources removes the addresses of people from at most n entries before a moment, and returns from how many. Their digest
// stays, and the chain of hashes holds.
func DropAuditSources(ctx context.Context, s *Store, before time.Time, n int) (dropped int64, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		dropped, err = tx.Exec(ctx, `UPDATE audit_log SET source = NULL WHERE (workspace, number) IN (
			SELECT workspace, number FROM audit_log WHERE source IS NOT NULL AND at < $1 ORDER BY at LIMIT $2)`, Micros(before), int64(n))
		return err
	})
	return dropped, err
}

// AuditChains proves the audit log: it returns a line for each workspace whose entries were changed, added or left out.
func AuditChains(ctx context.Context, q Querier) (faults []string, err error) {
	type head struct {
		workspace string
		last      int64
		hash      []byte
	}
	heads, err := All(ctx, q, func(scan func(dest ...any) error) (h head, err error) {
		return h, scan(&h.workspace, &h.last, &h.hash)
	}, "SELECT workspace, last, hash FROM audit_heads ORDER BY workspace")
	if err != nil {
		return nil, err
	}
	for _, h := range heads {
		fault, err := auditChain(ctx, q, h.workspace, h.last, h.hash)
		if err != nil {
			return nil, err
		}
		if fault != "" {
			faults = append(faults, fmt.Sprintf("audit log of %q: %s", h.workspace, fault))
		}
	}
	return faults, nil
}

const auditPage = 500

func auditChain(ctx context.Context, q Querier, workspace string, last int64, want []byte) (string, error) {
	var hash []byte
	for at := int64(1); ; {
		part, err := auditLog.all(ctx, q, "WHERE workspace = $1 AND number >= $2 ORDER BY number LIMIT $3", workspace, at, int64(auditPage))
		if err != nil {
			return "", err
		}
		for _, e := range part {
			if sum := e.sum(hash); e.Number != at || !bytes.Equal(sum, e.Hash) {
				return fmt.Sprintf("entry %d was changed, or an earlier entry is missing", e.Number), nil
			}
			if e.Source != "" {
				if sum := sha256.Sum256([]byte(e.Source)); !bytes.Equal(sum[:], e.SourceHash) {
					return fmt.Sprintf("the source of entry %d was changed", e.Number), nil
				}
			}
			hash = e.Hash
			at++
		}
		if len(part) < auditPage {
			// A service at work may have added entries since the head was read.
			if at-1 < last || at-1 == last && !bytes.Equal(hash, want) {
				return fmt.Sprintf("the last entry, %d, does not match the recorded last entry, %d", at-1, last), nil
			}
			return "", nil
		}
	}
}

// auditedEvents are the events whose change is noted in the audit log of the principal, with the record after it.
var auditedEvents = map[toll.EventType]bool{
	toll.EventAgentCreated: true, toll.EventAgentUpdated: true, toll.EventAgentListed: true, toll.EventAgentUnlisted: true,
	toll.EventPlanCreated: true, toll.EventPlanUpdated: true, toll.EventPlanListed: true, toll.EventPlanUnlisted: true,
	toll.EventAPIKeyCreated: true, toll.EventAPIKeyRevoked: true, toll.EventWalletExported: true,
	toll.EventDelegationCreated: true,
}

// auditEvents notes those of these events that are acts of somebody.
func auditEvents(ctx context.Context, tx *Tx, events []NewEvent) error {
	for _, e := range events {
		if !auditedEvents[e.Type] {
			continue
		}
		if err := Audit(ctx, tx, Act{
			Workspace: e.Principal.Lower(), Act: string(e.Type), Object: e.ID, Detail: Changed{After: e.Data}, At: e.At,
		}); err != nil {
			return err
		}
	}
	return nil
}
