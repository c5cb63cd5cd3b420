package people

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

const (
	goodPassword = "correct horse battery"
	home         = "198.51.100.7"
)

// TestTriesGivenBack: each way to sign in gives its try back after a success, from every bucket, and a second success gives no
// more than its own. A failure gives nothing back.
// T157
func TestTriesGivenBack(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	ctx := t.Context()
	keep := func(b, _ []byte) ([]byte, error) { return b, nil }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := New(Deps{Store: st, Registration: Invited, Clock: time.Now, Seal: keep, Open: keep})
	must(err)
	limits := p.Passwords.limits
	user := toll.NewTimeUUID(p.clock())
	hash, err := p.Passwords.hash(ctx, goodPassword)
	must(err)
	must(st.Tx(ctx, func(tx *store.Tx) error {
		c := store.Credential{ID: toll.NewTimeUUID(p.clock()), UserID: user, Kind: Password, Subject: "alice", Name: "alice", Secret: hash, CreatedAt: p.clock()}
		return errors.Join(store.InsertUser(ctx, tx, store.User{ID: user, Name: "alice", CreatedAt: p.clock()}), store.InsertCredential(ctx, tx, c))
	}))
	type left struct{ tries, names, confirms int64 }
	look := func() (l left) {
		now := time.Since(limits.began)
		for _, b := range []struct {
			bucket
			left *int64
		}{
			{bucket{limits.tries, home}, &l.tries},
			{bucket{limits.names, "alice"}, &l.names},
			{bucket{limits.names, "confirm " + user.String()}, &l.confirms},
		} {
			*b.left = b.meter.Take(b.key, 1, now).Left + 1
			b.meter.Give(b.key, 1, now)
		}
		return l
	}
	code := func(right bool) (state, text string) {
		id := []byte(toll.NewUUID())
		must(st.Tx(ctx, func(tx *store.Tx) error {
			return store.InsertMailCode(ctx, tx, store.MailCode{ID: sumOf(string(id)), Code: codeHash(id, "12345678"), EndsAt: p.clock().Add(codeLife)})
		}))
		state, err := p.Codes.states.seal(codeState{CodeFor{Mail: "a@example.com"}, id, p.clock().Add(codeLife)}, "people mail code")
		must(err)
		return state, map[bool]string{true: "12345678", false: "87654321"}[right]
	}
	for name, c := range map[string]struct {
		try   func(right bool) error
		costs left // of a failure
	}{
		"password": {func(right bool) error {
			_, err := p.Passwords.SignIn(ctx, home, "alice", goodPassword[:map[bool]int{true: len(goodPassword), false: 9}[right]])
			return err
		}, left{tries: 1, names: 1}},
		"step-up": {func(right bool) error {
			return p.Passwords.Prove(ctx, user, goodPassword[:map[bool]int{true: len(goodPassword), false: 9}[right]])
		}, left{confirms: 1}},
		"mail code": {func(right bool) error {
			state, text := code(right)
			_, _, err := p.Codes.Check(ctx, home, state, text)
			return err
		}, left{tries: 1}},
		"recovery code": {func(right bool) error {
			codes, err := p.Credentials.NewRecoveryCodes(t.Context(), user)
			must(err)
			if !right {
				codes[0] = codes[0] + "a"
			}
			_, err = p.Passwords.Recover(ctx, home, "", "alice", codes[0], goodPassword)
			return err
		}, left{tries: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			limits.tries, limits.names = meter.New[string](time.Hour, 40), meter.New[string](time.Hour, 20)
			full := left{limits.tries.Burst(), limits.names.Burst(), limits.names.Burst()}
			for range 2 {
				must(c.try(true))
				if got := look(); got != full {
					t.Fatalf("after a success %+v are left, want %+v", got, full)
				}
			}
			if err := c.try(false); err == nil {
				t.Fatal("a wrong one is accepted")
			}
			want := left{full.tries - c.costs.tries, full.names - c.costs.names, full.confirms - c.costs.confirms}
			for range 2 {
				must(c.try(true))
				if got := look(); got != want {
					t.Fatalf("after a failure and a success %+v are left, want %+v", got, want)
				}
			}
		})
	}
}

// TestHashesGivenBack: each hash gives its place back, and so does a request that ends while it waits for one.
// T157
func TestHashesGivenBack(t *testing.T) {
	p := &Passwords{hashing: make(chan struct{}, 1)}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 {
		if _, err := p.hash(t.Context(), "a"); err != nil {
			t.Fatalf("hash %d: %v", i, err)
		}
		p.hashing <- struct{}{}
		if _, err := p.hash(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Fatalf("a canceled request: %v", err)
		}
		<-p.hashing
		if n := len(p.hashing); n != 0 {
			t.Fatalf("%d places are taken", n)
		}
	}
}

// A person is a member of at most 100 workspaces. The refused invitation stays open until the person leaves one of them.
func TestLinks_JoinAtMostWorkspaces(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx, now := t.Context(), time.Now()
		keep := func(b, _ []byte) ([]byte, error) { return b, nil }
		p, err := New(Deps{Store: st, Registration: Invited, Clock: time.Now, Seal: keep, Open: keep})
		if err != nil {
			t.Fatal(err)
		}
		at := func(n int) toll.Address { return toll.MustAddress(fmt.Sprintf("0x%040x", n+1)) }
		user := toll.NewTimeUUID(now)
		secret, hash := newSecret()
		if err := st.Tx(ctx, func(tx *store.Tx) error {
			err := store.InsertUser(ctx, tx, store.User{ID: user, Name: "alice", CreatedAt: now})
			for n := range mostWorkspaces + 1 {
				err = errors.Join(err, store.InsertPrincipal(ctx, tx, store.Principal{Address: at(n), CreatedAt: now}))
			}
			for n := range mostWorkspaces {
				err = errors.Join(err, addMember(ctx, tx, store.Membership{Workspace: at(n), UserID: user, Role: toll.RoleOwner, CreatedAt: now}))
			}
			return errors.Join(err, store.InsertLink(ctx, tx, store.Link{
				Hash: hash, Kind: linkJoin, Workspace: at(mostWorkspaces).Lower(), Role: toll.RoleViewer, CreatedAt: now, EndsAt: now.Add(invitationLife),
			}))
		}); err != nil {
			t.Fatal(err)
		}
		_, err = p.Links.Join(ctx, home, user, secret)
		if e := toll.AsError(err); e == nil || e.Code != toll.CodeForbidden || !strings.Contains(e.Text(), "100 workspaces") {
			t.Errorf("workspace %d: %v", mostWorkspaces+1, err)
		}
		if err := st.Tx(ctx, func(tx *store.Tx) error { return store.DeleteMembership(ctx, tx, at(0), user) }); err != nil {
			t.Fatal(err)
		}
		if joined, err := p.Links.Join(ctx, home, user, secret); err != nil || joined != at(mostWorkspaces) {
			t.Errorf("after one was left: %v, %v", joined, err)
		}
	})
}
